//! Who is let in: every request passes `check`, those for a visitor's pages `admit`, and forms that do something
//! [`SentForm`]. A page of another site, and another user, learn nothing and cause nothing: the Host must be the page's
//! own, somebody who is known must ask, and no action comes from another site. On this machine the address below which
//! all pages lie is not to be guessed, and nobody who has not got it is let in.

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
use super::in_cluster::{Refused, Visitors, cookies};
use super::visitor::{LoginMethod, PageCluster, VisitedCluster, Visitor};
use kubemoor_ledger::store::Store;
use kubemoor_policy::signing::{SigningKey, hex};
use kubemoor_runtime::callers::{self, RandomError};

/// What a page may load or run: nothing but its own.
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

/// What a form of the visitor's own asks for. A handler that takes one runs only if the form holds the visitor's token.
pub(super) struct SentForm(pub(super) PageQuery);

impl AccessCheck {
    pub(super) fn on_loopback(loopback: Arc<Loopback>) -> Self {
        Self { hosts: loopback.hosts(), way: AccessMethod::Loopback(loopback) }
    }

    /// Lets in whom the cluster knows, at these names and any port.
    pub(super) fn in_cluster(hosts: Vec<String>, visitors: Arc<Visitors>) -> Self {
        Self { hosts, way: AccessMethod::InCluster(visitors) }
    }

    /// Whether a browser may remember that this name is served over TLS. A forwarded port's name is others' as well.
    fn is_lasting(&self, headers: &HeaderMap) -> bool {
        matches!(self.way, AccessMethod::InCluster(_))
            && host(headers).is_some_and(|host| without_port(host) != "localhost")
    }

    fn is_host(&self, headers: &HeaderMap) -> bool {
        let Some(host) = host(headers) else { return false };
        // Ports of this machine are others' as well; a name in a cluster is one's own.
        let host = match &self.way {
            AccessMethod::Loopback(_) => host,
            AccessMethod::InCluster(_) => without_port(host),
        };
        self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host))
    }
}

/// Every request: whether it means this server, and what its answer may do in a browser.
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
            // No page lies deeper: a relative address there would lead to itself without end.
            Err(Refused::Unknown) if request.uri().path().rfind('/') != Some(0) => {
                return html::no_such_page();
            }
            Err(Refused::Unknown) => {
                return (StatusCode::UNAUTHORIZED, html::redirect_page("login", "Log in")).into_response();
            }
            Err(why @ Refused::Malformed) => {
                return html::refusal(StatusCode::UNAUTHORIZED, &why.to_string());
            }
            Err(why @ Refused::Away(_)) => return html::refusal(StatusCode::BAD_GATEWAY, &why.to_string()),
        },
    };
    request.extensions_mut().insert(visitor);
    next.run(request).await
}

/// The pages that are made at one time, for all visitors. Each of a large release takes tens of megabytes meanwhile.
static MAKING: Semaphore = Semaphore::const_new(8);

/// Answers a visitor once they have room for one more answer, which is free again when all of it was sent.
pub(super) async fn take_turn(
    Extension(visitor): Extension<Arc<Visitor>>,
    request: Request,
    next: Next,
) -> Response {
    // Neither is ever closed.
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
                "This form is not from a page of yours, or it is old. Nothing was done. Go back and try again.",
            )),
        }
    }
}

/// What an address asks for, or a form of the visitor's own. For pages that change nothing.
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

/// The page behind the address that the owner was told.
pub(super) const OPEN: &str = "open";

const COOKIE: &str = "kubemoor";

/// Purposes of marks.
const PATH: &str = "path of the page";
const TOKEN: &str = "token of the address";
const OWNER: &str = "cookie of the visitor";
const FORMS: &str = "forms of the visitor";

pub enum LoopbackSettings {
    Clusters(Vec<PageCluster>),
    /// The database that the guards of many clusters share. No cluster is asked.
    Database(Store),
}

pub(super) struct Loopback {
    key: SigningKey,
    address: SocketAddr,
    pub(super) visitor: Arc<Visitor>,
}

impl Loopback {
    /// Lets in visitors who know the address that is made here.
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

    /// The path below which all pages lie, without a slash at its end. Cookies know no port: below a path that nobody
    /// guesses, no other server of this machine is sent them.
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
        let why =
            "The token in this address is not valid. Open the address that `kubemoor ui` has printed last.";
        return html::refusal(StatusCode::UNAUTHORIZED, why);
    }
    let (cookie, path) = (loopback.cookie(), loopback.path());
    let cookie = format!("{COOKIE}={cookie}; Path={path}/; HttpOnly; SameSite=Strict");
    let Ok(cookie) = HeaderValue::from_str(&cookie) else {
        return html::refusal(StatusCode::INTERNAL_SERVER_ERROR, "The cookie cannot be set.");
    };
    // A redirection would still count as the step of the page that opened the address, and lack the cookie.
    ([(header::SET_COOKIE, cookie)], html::redirect_page("./", "Continue to the overview")).into_response()
}

pub(super) fn is_same(left: &str, right: &str) -> bool {
    verify_slices_are_equal(left.as_bytes(), right.as_bytes()).is_ok()
}

#[cfg(test)]
mod tests;
