//! `GET /api/v1/ledger`: the rows, for who may list the guarded releases of
//! the namespace asked for.
//!
//! Entry point: [`answer`]. Invariant: nothing of the ledger is looked at
//! before the API server has said whose the token is and that he may; who may
//! not gets the same answer whether or not there is anything. Failures are
//! Kubernetes Statuses, so that any client of the API can read them.

use std::sync::{Arc, OnceLock};

use axum::Json;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::cluster::access;
use crate::ledger::Ledger;
use crate::ledger::query::{Filter, PAGE};

/// The path.
pub(super) const PATH: &str = "/api/v1/ledger";

/// What may be listed by who may read the ledger.
const GROUP: &str = "kubemoor.dev";
const RESOURCE: &str = "guardedreleases";

/// Requests that are answered at one time: each puts two questions to the API
/// server before it is known to be anybody's.
const AT_ONCE: usize = 8;

/// The ledger, and whom to ask about tokens.
#[derive(Clone)]
pub struct Books {
    ledger: Ledger,
    client: Arc<OnceLock<kube::Client>>,
    room: Arc<Semaphore>,
}

/// What may be asked. Names that are not known are refused: a filter that is
/// misspelt must not show more than was asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    namespace: Option<String>,
    release: Option<String>,
    user: Option<String>,
    verdict: Option<String>,
    since: Option<Timestamp>,
    limit: Option<u32>,
    r#continue: Option<String>,
}

/// Why there is no answer.
enum Refusal {
    Unauthenticated,
    Forbidden,
    Malformed(String),
    Unavailable(String),
}

impl Books {
    /// The ledger; refused until [`Books::trust`] names a cluster.
    pub fn new(ledger: Ledger) -> Self {
        Self { ledger, client: Arc::default(), room: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// Whose word on tokens and rights counts. Once: a run has one cluster.
    pub fn trust(&self, client: kube::Client) {
        let _ = self.client.set(client);
    }
}

pub(super) async fn answer(
    State(books): State<Books>,
    headers: HeaderMap,
    asked: Result<Query<Asked>, axum::extract::rejection::QueryRejection>,
) -> Response {
    match page(&books, &headers, asked).await {
        Ok(page) => Json(page).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

async fn page(
    books: &Books,
    headers: &HeaderMap,
    asked: Result<Query<Asked>, axum::extract::rejection::QueryRejection>,
) -> Result<crate::ledger::query::Page, Refusal> {
    let token = bearer(headers).ok_or(Refusal::Unauthenticated)?;
    let client = books.client.get().ok_or_else(|| {
        Refusal::Unavailable("no API server says yet who may read the ledger; try again".to_owned())
    })?;
    let busy = |_| Refusal::Unavailable("too many ask at once; try again".to_owned());
    let _room = books.room.try_acquire().map_err(busy)?;
    let unasked = |error: crate::cluster::call::CallError| {
        tracing::warn!(%error, "the API server cannot be asked who may read the ledger");
        Refusal::Unavailable("the API server cannot be asked who may read the ledger".to_owned())
    };
    let actor = access::who(client, token).await.map_err(unasked)?.ok_or(Refusal::Unauthenticated)?;
    let Query(asked) = asked.map_err(|error| Refusal::Malformed(error.body_text()))?;
    let namespace = asked.namespace.as_deref();
    if !access::may(client, &actor, "list", GROUP, RESOURCE, namespace).await.map_err(unasked)? {
        return Err(Refusal::Forbidden);
    }
    let filter = asked.filter(books.ledger.cluster())?;
    let closed = || Refusal::Unavailable("the ledger is not open; the guard's log says why".to_owned());
    let store = books.ledger.store().ok_or_else(closed)?;
    store.page(&filter).await.map_err(|error| {
        tracing::warn!(%error, "the ledger cannot be read");
        Refusal::Unavailable("the ledger cannot be read; the guard's log says why".to_owned())
    })
}

/// The bearer token of a request. It is used for nothing but the question whose
/// it is.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

impl Asked {
    /// Only rows of the guard's own cluster: the rights were asked for there.
    fn filter(self, cluster: Option<&str>) -> Result<Filter, Refusal> {
        let Self { namespace, release, user, verdict, since, limit, r#continue } = self;
        let before = r#continue.map(|text| {
            text.parse().map_err(|_| {
                Refusal::Malformed("`continue` is none that this ledger gave; leave it out".to_owned())
            })
        });
        if limit.is_some_and(|limit| !(1..=PAGE).contains(&limit)) {
            return Err(Refusal::Malformed(format!("`limit` is a number from 1 to {PAGE}")));
        }
        Ok(Filter {
            cluster: Some(cluster.unwrap_or_default().to_owned()),
            namespace,
            release,
            user,
            verdict,
            since,
            before: before.transpose()?,
            limit,
        })
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (code, reason, message) = match self {
            Self::Unauthenticated => (
                StatusCode::UNAUTHORIZED,
                "Unauthorized",
                "a bearer token that the API server takes".to_owned(),
            ),
            Self::Forbidden => (
                StatusCode::FORBIDDEN,
                "Forbidden",
                format!("the right to list {RESOURCE}.{GROUP} in the namespace asked for, or in all of them"),
            ),
            Self::Malformed(why) => (StatusCode::BAD_REQUEST, "BadRequest", why),
            Self::Unavailable(why) => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", why),
        };
        let message = match code {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => format!("reading the ledger takes {message}"),
            _ => message,
        };
        let status = json!({
            "apiVersion": "v1", "kind": "Status", "status": "Failure",
            "code": code.as_u16(), "reason": reason, "message": message,
        });
        let mut response = (code, Json(status)).into_response();
        if code == StatusCode::UNAUTHORIZED {
            let challenge = http::HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}
