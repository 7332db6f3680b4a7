//! Who is let in: every request passes `check`, those for a visitor's pages `admit`, and forms that do something
//! [`SentForm`].
//!
//! A page of another site, and another user, learn nothing and cause nothing: the Host must be the page's own, somebody
//! who is known must ask, and no action comes from another site.

use std::sync::Arc;
use std::time::Duration;

use axum::Form;
use axum::extract::{FromRequest, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Method, StatusCode, Uri};
use jiff::Timestamp;

use super::address::Asked;
use super::html;
use super::loopback::Loopback;
use super::visitor::Visitor;
use super::visitors::{Refused, Visitors};

/// What a page may load or run: nothing but its own.
const CONTENT: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
     connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// How long one page may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What lets visitors in.
pub(super) struct Door {
    /// What a browser may call this server.
    hosts: Vec<String>,
    way: Way,
}

/// How it is known who asks.
enum Way {
    Loopback(Arc<Loopback>),
    InCluster(Arc<Visitors>),
}

/// What a form of the visitor's own asks for. A handler that takes one runs only if the form holds the visitor's token.
pub(super) struct SentForm(pub(super) Asked);

impl Door {
    /// Lets the owner in.
    pub(super) fn on_loopback(loopback: Arc<Loopback>) -> Self {
        Self { hosts: loopback.hosts(), way: Way::Loopback(loopback) }
    }

    /// Lets in whom the cluster knows, at these names and any port.
    pub(super) fn in_cluster(hosts: Vec<String>, visitors: Arc<Visitors>) -> Self {
        Self { hosts, way: Way::InCluster(visitors) }
    }

    /// Whether a browser may remember that this name is served over TLS. A forwarded port's name is others' as well.
    fn is_lasting(&self, headers: &HeaderMap) -> bool {
        matches!(self.way, Way::InCluster(_))
            && host(headers).is_some_and(|host| without_port(host) != "localhost")
    }

    fn is_host(&self, headers: &HeaderMap) -> bool {
        let Some(host) = host(headers) else { return false };
        // Ports of this machine are others' as well; a name in a cluster is one's own.
        let host = match &self.way {
            Way::Loopback(_) => host,
            Way::InCluster(_) => without_port(host),
        };
        self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host))
    }
}

/// Every request: whether it means this server, and what its answer may do in a browser.
pub(super) async fn check(State(door): State<Arc<Door>>, request: Request, next: Next) -> Response {
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

/// Admits the request of a known visitor, and an action only if no other site sent it.
pub(super) async fn admit(State(door): State<Arc<Door>>, mut request: Request, next: Next) -> Response {
    let headers = request.headers();
    if *request.method() != Method::GET && is_of_another_site(headers) {
        return html::refusal(StatusCode::FORBIDDEN, "Another site sent this request. Nothing was done.");
    }
    let visitor = match &door.way {
        Way::Loopback(loopback) if loopback.is_owner(headers) => Arc::clone(&loopback.visitor),
        Way::Loopback(_) => {
            let why = "Open the address that `kubemoor ui` has printed: it lets this browser in.";
            return html::refusal(StatusCode::UNAUTHORIZED, why);
        }
        Way::InCluster(visitors) => match visitors.identify(headers, Timestamp::now()).await {
            Ok(visitor) => visitor,
            Err(Refused::Unknown) => {
                return (StatusCode::UNAUTHORIZED, html::doorstep("login", "Log in")).into_response();
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

impl<S: Send + Sync> FromRequest<S> for SentForm {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let visitor = request.extensions().get::<Arc<Visitor>>().cloned();
        let form = Form::<Vec<(String, String)>>::from_request(request, state).await;
        let asked = Asked::of(form.map_err(IntoResponse::into_response)?.0);
        let token = asked.get("token").unwrap_or_default();
        match visitor.is_some_and(|visitor| visitor.is_form_token(token)) {
            true => Ok(Self(asked)),
            false => Err(html::refuse_form()),
        }
    }
}

/// Whether a browser says that another site sent a request.
pub(super) fn is_of_another_site(headers: &HeaderMap) -> bool {
    if let Some(site) = headers.get("sec-fetch-site") {
        return site.as_bytes() != b"same-origin";
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return false };
    let origin: Option<Uri> = origin.to_str().ok().and_then(|origin| origin.parse().ok());
    let authority = origin.as_ref().and_then(Uri::authority).map(http::uri::Authority::as_str);
    authority.is_none() || authority != host(headers)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_other_sites_are_told_by_what_browsers_say() {
        let is_other = |pairs: &[(&'static str, &'static str)]| {
            let pairs = pairs
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            is_of_another_site(&pairs.collect())
        };
        let host = ("host", "ui.example:8443");
        for own in [
            vec![host],
            vec![host, ("sec-fetch-site", "same-origin")],
            vec![host, ("origin", "https://ui.example:8443")],
        ] {
            assert!(!is_other(&own), "{own:?}");
        }
        for other in [
            vec![host, ("sec-fetch-site", "same-site")],
            vec![host, ("sec-fetch-site", "none")],
            vec![host, ("origin", "https://ui.example")],
            vec![host, ("origin", "https://evil.example:8443")],
            vec![host, ("origin", "null")],
            vec![("origin", "https://ui.example:8443")],
        ] {
            assert!(is_other(&other), "{other:?}");
        }
    }

    #[test]
    fn ports_are_no_part_of_a_name() {
        for (host, name) in [
            ("ui.example", "ui.example"),
            ("ui.example:8443", "ui.example"),
            ("[::1]:1", "[::1]"),
            ("[::1]", "[::1]"),
        ] {
            assert_eq!(without_port(host), name);
        }
    }
}
