//! Who is let in.
//!
//! Entry points: `check` for every request, `admit` for those of a visitor, `open` for the address
//! that a visitor was told. Invariant: a page of another site, and another user of the machine, learn
//! nothing and cause nothing: the Host must be the page's own, the address below which all pages lie is not to
//! be guessed, a cookie says who it is, and every action carries a token that only the visitor's pages hold.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Method, StatusCode};
use subtle::ConstantTimeEq;

use super::cluster::Settings;
use super::html;
use super::visitor::Visitor;
use crate::callers::{self, RandomError};
use crate::policy::signing::SigningKey;

/// The page behind the address that a visitor was told.
pub(super) const OPEN: &str = "open";

/// What a page may load or run: nothing but its own.
const CONTENT: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
     connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// How long one page may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Purposes of marks.
const PATH: &str = "path of the page";
const TOKEN: &str = "token of the address";
const COOKIE: &str = "cookie of the visitor";
const FORM: &str = "token of a form";

/// What lets visitors in.
pub(super) struct Door {
    key: SigningKey,
    address: SocketAddr,
    /// What a browser may call this server.
    hosts: Vec<String>,
    path: String,
    visitor: Arc<Visitor>,
}

impl Door {
    /// Lets in whoever knows the address that is made here.
    pub(super) fn on_loopback(clusters: Vec<Settings>, address: SocketAddr) -> Result<Self, RandomError> {
        let key = callers::random_key()?;
        let hosts = vec![address.to_string(), format!("localhost:{}", address.port())];
        // Cookies know no port: below a path that nobody guesses, no other server of this machine is sent them.
        let path = format!("/{}", half(&key.mark(PATH, &[])));
        let form = hex(&key.mark(FORM, &[]));
        Ok(Self { key, address, hosts, path, visitor: Arc::new(Visitor::new(clusters, form)) })
    }

    /// Begins to follow the visitor's clusters, so that the first page finds something.
    pub(super) async fn begin(&self) {
        self.visitor.begin().await;
    }

    /// The path below which all pages lie, without a slash at its end.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The address that lets a browser in.
    pub(super) fn address(&self) -> String {
        format!("http://{}{}/{OPEN}?token={}", self.address, self.path, hex(&self.key.mark(TOKEN, &[])))
    }

    fn cookie(&self) -> String {
        hex(&self.key.mark(COOKIE, &[]))
    }

    fn is_host(&self, headers: &HeaderMap) -> bool {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        host.is_some_and(|host| self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host)))
    }

    fn is_visitor(&self, headers: &HeaderMap) -> bool {
        let own = self.cookie();
        cookies(headers).any(|(name, value)| name == html::COOKIE && is_same(value, &own))
    }
}

/// Every request: whether it means this server, and what its answer may do in a browser.
pub(super) async fn check(State(door): State<Arc<Door>>, request: Request, next: Next) -> Response {
    let mut response = if door.is_host(request.headers()) {
        match tokio::time::timeout(PATIENCE, next.run(request)).await {
            Ok(response) => response,
            Err(_) => refusal(StatusCode::GATEWAY_TIMEOUT, "The cluster did not answer in time. Try again."),
        }
    } else {
        refusal(StatusCode::MISDIRECTED_REQUEST, "This server is not known by that name.")
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CONTENT),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// A request of a visitor: whose it is; of an action also that one of the visitor's own pages sent it.
pub(super) async fn admit(State(door): State<Arc<Door>>, mut request: Request, next: Next) -> Response {
    let headers = request.headers();
    if !door.is_visitor(headers) {
        let why = "Open the address that `kubemoor ui` has printed: it lets this browser in.";
        return refusal(StatusCode::UNAUTHORIZED, why);
    }
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    if *request.method() != Method::GET && site.is_some_and(|site| site != b"same-origin") {
        return refusal(StatusCode::FORBIDDEN, "Another site sent this request. Nothing was done.");
    }
    request.extensions_mut().insert(Arc::clone(&door.visitor));
    next.run(request).await
}

/// The address that the visitor was told.
pub(super) async fn open(
    State(door): State<Arc<Door>>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let own = hex(&door.key.mark(TOKEN, &[]));
    if !query.iter().any(|(name, value)| name == "token" && is_same(value, &own)) {
        let why =
            "The token in this address is not valid. Open the address that `kubemoor ui` has printed last.";
        return refusal(StatusCode::UNAUTHORIZED, why);
    }
    let cookie =
        format!("{}={}; Path={}/; HttpOnly; SameSite=Strict", html::COOKIE, door.cookie(), door.path);
    let Ok(cookie) = HeaderValue::from_str(&cookie) else {
        return refusal(StatusCode::INTERNAL_SERVER_ERROR, "The cookie cannot be set.");
    };
    // A redirection would still count as the step of whoever opened the address, and lack the cookie.
    ([(header::SET_COOKIE, cookie)], html::doorstep()).into_response()
}

/// Whether a form's token is the visitor's.
pub(super) fn is_token(visitor: &Visitor, token: &str) -> bool {
    is_same(token, &visitor.form)
}

fn refusal(status: StatusCode, why: &str) -> Response {
    (status, html::notice(why)).into_response()
}

fn is_same(left: &str, right: &str) -> bool {
    left.as_bytes().ct_eq(right.as_bytes()).into()
}

fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let all = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn half(bytes: &[u8; 32]) -> String {
    hex(bytes.split_at(16).0)
}
