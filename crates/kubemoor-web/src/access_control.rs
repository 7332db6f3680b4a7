//! Access control: every request passes `check`, requests for a visitor's pages pass `admit`, and forms that act pass
//! [`SentForm`]. Other sites and other users learn nothing and cause nothing: the Host must be the page's own, the
//! visitor must be authenticated, and no action comes from another site. On loopback, all pages are below a path that
//! cannot be guessed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Query, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Form};
use futures::StreamExt as _;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Method, StatusCode};
use jiff::Timestamp;
use tokio::sync::Semaphore;

use super::html::{self, PageQuery};
use super::in_cluster::{AuthenticationError, Visitors, cookies};
use super::visitor::{LoginMethod, PageCluster, VisitedCluster, Visitor};
use kubemoor_ledger::store::Store;
use kubemoor_policy::signing::{SigningKey, hex};
use kubemoor_runtime::callers::{self, RandomError};

/// The Content-Security-Policy: pages load and run only the page's own files.
const CONTENT: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
     connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct AccessCheck {
    hosts: Vec<String>,
    way: AccessMethod,
}

enum AccessMethod {
    Loopback(Arc<Loopback>),
    InCluster(Arc<Visitors>),
}

/// The fields of a form. Extraction fails unless the form holds the visitor's token.
pub(super) struct SentForm(pub(super) PageQuery);

impl AccessCheck {
    pub(super) fn on_loopback(loopback: Arc<Loopback>) -> Self {
        Self { hosts: loopback.hosts(), way: AccessMethod::Loopback(loopback) }
    }

    /// Admits visitors whom the cluster authenticates, at these host names and any port.
    pub(super) fn in_cluster(hosts: Vec<String>, visitors: Arc<Visitors>) -> Self {
        Self { hosts, way: AccessMethod::InCluster(visitors) }
    }

    /// Whether to send HSTS for this host. Not for `localhost`, which port forwards of other servers share.
    fn is_lasting(&self, headers: &HeaderMap) -> bool {
        matches!(self.way, AccessMethod::InCluster(_))
            && host(headers).is_some_and(|host| without_port(host) != "localhost")
    }

    fn is_host(&self, headers: &HeaderMap) -> bool {
        let Some(host) = host(headers) else { return false };
        // Other servers use other ports of this machine; in a cluster the host name is this server's alone.
        let host = match &self.way {
            AccessMethod::Loopback(_) => host,
            AccessMethod::InCluster(_) => without_port(host),
        };
        self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host))
    }
}

/// Checks the Host header of every request, and sets the security headers of every response.
pub(super) async fn check(State(door): State<Arc<AccessCheck>>, request: Request, next: Next) -> Response {
    let is_lasting = door.is_lasting(request.headers());
    let mut response = if door.is_host(request.headers()) {
        match tokio::time::timeout(PATIENCE, next.run(request)).await {
            Ok(response) => response,
            Err(_) => {
                html::refusal(StatusCode::GATEWAY_TIMEOUT, "The cluster did not answer in time. Try again.")
            }
        }
    } else {
        html::refusal(StatusCode::MISDIRECTED_REQUEST, "This server is not known by that name.")
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
    if is_lasting {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000"));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Admits the request of a known visitor.
pub(super) async fn admit(
    State(door): State<Arc<AccessCheck>>,
    mut request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let visitor = match &door.way {
        AccessMethod::Loopback(loopback) if loopback.is_owner(headers) => Arc::clone(&loopback.visitor),
        AccessMethod::Loopback(_) => {
            let why = "Open the address that `kubemoor ui` has printed: it lets this browser in.";
            return html::refusal(StatusCode::UNAUTHORIZED, why);
        }
        AccessMethod::InCluster(visitors) => match visitors.identify(headers, Timestamp::now()).await {
            Ok(visitor) => visitor,
            // No page has a deeper path; the relative link to the login would loop there.
            Err(AuthenticationError::Unknown) if request.uri().path().rfind('/') != Some(0) => {
                return html::no_such_page();
            }
            Err(AuthenticationError::Unknown) => {
                return (StatusCode::UNAUTHORIZED, html::redirect_page("login", "Log in")).into_response();
            }
            Err(why @ AuthenticationError::Malformed) => {
                return html::refusal(StatusCode::UNAUTHORIZED, &why.to_string());
            }
            Err(why @ AuthenticationError::Unavailable(_)) => {
                return html::refusal(StatusCode::BAD_GATEWAY, &why.to_string());
            }
        },
    };
    request.extensions_mut().insert(visitor);
    next.run(request).await
}

/// Limits the pages that are rendered at one time for all visitors. Rendering a large release takes tens of megabytes.
static MAKING: Semaphore = Semaphore::const_new(8);

/// Waits until the visitor has room for another response, and frees it when the response is sent.
pub(super) async fn limit_concurrency(
    Extension(visitor): Extension<Arc<Visitor>>,
    request: Request,
    next: Next,
) -> Response {
    // Neither semaphore is ever closed.
    let turn = Arc::clone(&visitor.answers).acquire_owned().await;
    let making = MAKING.acquire().await;
    let response = next.run(request).await;
    drop(making);
    response.map(|body| {
        Body::from_stream(body.into_data_stream().map(move |data| {
            let _turn = &turn;
            data
        }))
    })
}

impl<S: Send + Sync> FromRequest<S> for SentForm {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let visitor = request.extensions().get::<Arc<Visitor>>().cloned();
        let form = Form::<Vec<(String, String)>>::from_request(request, state).await;
        let asked = PageQuery::new(form.map_err(IntoResponse::into_response)?.0);
        let token = asked.get("token").unwrap_or_default();
        match visitor.is_some_and(|visitor| visitor.is_form_token(token)) {
            true => Ok(Self(asked)),
            false => Err(html::refusal(
                StatusCode::FORBIDDEN,
                "This form is not from your page, or it has expired. Nothing was done. Go back and try \
                 again.",
            )),
        }
    }
}

/// The query of an address, or a form that the visitor's own page sent. For pages that change nothing.
pub(super) struct PageRequest(pub(super) PageQuery);

impl<S: Send + Sync> FromRequest<S> for PageRequest {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        if *request.method() == Method::POST {
            return SentForm::from_request(request, state).await.map(|SentForm(asked)| Self(asked));
        }
        let asked = PageQuery::from_request_parts(&mut request.into_parts().0, state).await;
        asked.map(Self).map_err(IntoResponse::into_response)
    }
}

fn host(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::HOST).and_then(|host| host.to_str().ok())
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// The path of the address that is printed for the owner.
pub(super) const OPEN: &str = "open";

const COOKIE: &str = "kubemoor";

/// Purposes of [`SigningKey::mark`].
const PATH: &str = "path of the page";
const TOKEN: &str = "token of the address";
const OWNER: &str = "cookie of the visitor";
const FORMS: &str = "forms of the visitor";

pub enum LoopbackSettings {
    Clusters(Vec<PageCluster>),
    /// The database that the guards of many clusters share. No cluster is called.
    Database(Store),
}

pub(super) struct Loopback {
    key: SigningKey,
    address: SocketAddr,
    pub(super) visitor: Arc<Visitor>,
}

impl Loopback {
    /// Creates the secret address; visitors who know it are admitted.
    pub(super) fn new(settings: LoopbackSettings, address: SocketAddr) -> Result<Self, RandomError> {
        let key = callers::random_key()?;
        let forms = SigningKey::new(key.mark(FORMS, &[]));
        let visitor = match settings {
            LoopbackSettings::Clusters(clusters) => {
                let clusters = clusters.into_iter().map(VisitedCluster::new).collect();
                Visitor::new(clusters, LoginMethod::Owner, None, forms)
            }
            LoopbackSettings::Database(store) => Visitor::of_database(store, forms),
        };
        Ok(Self { key, address, visitor: Arc::new(visitor) })
    }

    pub(super) fn hosts(&self) -> Vec<String> {
        vec![self.address.to_string(), format!("localhost:{}", self.address.port())]
    }

    /// The path below which all pages are, without a trailing slash. Browsers send cookies to every port of a host;
    /// with an unguessable path, no other server of this machine receives them.
    pub(super) fn path(&self) -> String {
        format!("/{}", hex(self.key.mark(PATH, &[]).split_at(16).0))
    }

    pub(super) fn address(&self) -> String {
        format!("http://{}{}/{OPEN}?token={}", self.address, self.path(), self.token())
    }

    pub(super) fn is_owner(&self, headers: &HeaderMap) -> bool {
        let own = self.cookie();
        cookies(headers).any(|(name, value)| name == COOKIE && is_same(value, &own))
    }

    fn token(&self) -> String {
        hex(&self.key.mark(TOKEN, &[]))
    }

    fn cookie(&self) -> String {
        hex(&self.key.mark(OWNER, &[]))
    }
}

pub(super) async fn open(
    State(loopback): State<Arc<Loopback>>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let own = loopback.token();
    if !query.iter().any(|(name, value)| name == "token" && is_same(value, &own)) {
        let why = "The token in this address is not valid. Open the address that `kubemoor ui` printed last.";
        return html::refusal(StatusCode::UNAUTHORIZED, why);
    }
    let (cookie, path) = (loopback.cookie(), loopback.path());
    let cookie = format!("{COOKIE}={cookie}; Path={path}/; HttpOnly; SameSite=Strict");
    let Ok(cookie) = HeaderValue::from_str(&cookie) else {
        return html::refusal(StatusCode::INTERNAL_SERVER_ERROR, "The cookie cannot be set.");
    };
    // After a redirect the request would still count as cross-site, and the browser would not send the cookie.
    ([(header::SET_COOKIE, cookie)], html::redirect_page("./", "Continue to the overview")).into_response()
}

pub(super) fn is_same(left: &str, right: &str) -> bool {
    verify_slices_are_equal(left.as_bytes(), right.as_bytes()).is_ok()
}

#[cfg(test)]
mod tests;
