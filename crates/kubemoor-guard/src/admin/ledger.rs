//! `GET /api/v1/ledger`: serves ledger rows to users who may list GuardedReleases in the requested namespace.
//!
//! Entry point: [`answer`]. Invariant: the ledger is read only after the user is authenticated and the API
//! server has authorized them. An unauthorized user gets the same answer whether or not rows exist. As in the
//! API server, a client certificate takes precedence over a token. Tokens that take long to verify delay
//! neither reads nor the tokens of other peers. Failures are Kubernetes Statuses, so that any client of the
//! API can read them.

use std::fmt::Display;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::{HeaderMap, StatusCode, header};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use kubemoor_cluster::client::access::{self, Right};
use kubemoor_declare::model::Actor;
use kubemoor_ledger::Ledger;
use kubemoor_ledger::query::{self, Filter, PAGE, Page};
use kubemoor_runtime::server::Peer;
use kubemoor_runtime::server::turns::Turns;
use kubemoor_runtime::tls::UserAuthority;

/// The path.
pub(super) const PATH: &str = "/api/v1/ledger";

/// A user needs the right to list this resource to read the ledger.
const GROUP: &str = "kubemoor.dev";
const RESOURCE: &str = "guardedreleases";

/// Time limit for one answer.
const WITHIN: Duration = Duration::from_secs(10);

/// Limits on concurrent token reviews: in total, and for each peer. Peers are not authenticated yet at this
/// point. The second limit covers everyone who connects through one `port-forward`.
const ASKED: (usize, usize) = (32, 16);

/// Pages that are read at one time, and for one user.
const READ: (usize, usize) = (8, 2);

/// The ledger, and the means to authenticate its readers.
#[derive(Clone)]
pub struct LedgerReader {
    ledger: Ledger,
    users: UserAuthority,
    client: Arc<OnceLock<kube::Client>>,
    asked: Arc<Turns<IpAddr>>,
    read: Arc<Turns<String>>,
}

/// The query parameters. Unknown names are refused: a misspelt filter must not return more rows than
/// requested.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    namespace: Option<String>,
    release: Option<String>,
    user: Option<String>,
    /// One of these, separated by commas.
    verdict: Option<String>,
    /// Likewise.
    operation: Option<String>,
    object: Option<String>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    facts: Option<bool>,
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

impl LedgerReader {
    /// The ledger; refused until [`LedgerReader::trust`] names a cluster.
    pub fn new(ledger: Ledger, users: UserAuthority) -> Self {
        let asked = Arc::new(Turns::new(ASKED.0, ASKED.1));
        let read = Arc::new(Turns::new(READ.0, READ.1));
        Self { ledger, users, client: Arc::default(), asked, read }
    }

    /// Sets the client that verifies tokens and rights. Call it once: a run has one cluster. Returns the
    /// handle that receives the authorities of user certificates.
    pub fn trust(&self, client: kube::Client) -> UserAuthority {
        let _ = self.client.set(client);
        self.users.clone()
    }

    /// Returns the user and the query once the API server has authorized the request.
    async fn permitted(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        asked: Result<Query<Asked>, QueryRejection>,
    ) -> Result<(Actor, Asked), Refusal> {
        let client = self.client.get().ok_or_else(|| {
            Refusal::Unavailable("no API server says yet who may read the ledger; try again".to_owned())
        })?;
        let certified = self.users.identify(&peer.certificates, Timestamp::now());
        let actor = match (certified, bearer(headers)) {
            (Some(actor), _) => actor,
            (None, None) => return Err(Refusal::Unauthenticated),
            (None, Some(token)) => {
                let actor = access::who(client, token).await.map_err(|error| unasked(&error))?;
                actor.ok_or(Refusal::Unauthenticated)?
            }
        };
        let Query(asked) = asked.map_err(|error| Refusal::Malformed(error.body_text()))?;
        let namespace = asked.namespace.as_deref();
        let right = Right { verb: "list", group: GROUP, resource: RESOURCE, namespace, name: None };
        let may = access::may(client, &actor, &right).await;
        if !may.map_err(|error| unasked(&error))? {
            return Err(Refusal::Forbidden);
        }
        Ok((actor, asked))
    }
}

pub(super) async fn answer(
    State(books): State<LedgerReader>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Response {
    match page(&books, &peer, &headers, asked).await {
        Ok(page) => Json(page).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

async fn page(
    books: &LedgerReader,
    peer: &Peer,
    headers: &HeaderMap,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Page, Refusal> {
    let until = Instant::now() + WITHIN;
    if peer.certificates.is_empty() && bearer(headers).is_none() {
        return Err(Refusal::Unauthenticated);
    }
    let busy = || Refusal::Unavailable("too many ask at once; try again".to_owned());
    let (actor, asked) = {
        // Given back before anything is read.
        let _turn = books.asked.take(peer.address, until).await.ok_or_else(busy)?;
        let asking = books.permitted(peer, headers, asked);
        timeout_at(until, asking).await.map_err(|_| unasked(&"it takes too long"))??
    };
    let filter = asked.filter(books.ledger.cluster())?;
    let closed = || Refusal::Unavailable("the ledger is not open; the guard's log says why".to_owned());
    let store = books.ledger.store().ok_or_else(closed)?;
    let _turn = books.read.take(actor.user, until).await.ok_or_else(busy)?;
    let page = timeout_at(until, store.page(&filter)).await.map_err(|_| unread(&"it takes too long"))?;
    page.map_err(|error| unread(&error))
}

/// The refusal where the API server could not be asked.
fn unasked(error: &dyn Display) -> Refusal {
    tracing::warn!(%error, "the API server cannot be asked who may read the ledger");
    Refusal::Unavailable("the API server cannot be asked who may read the ledger".to_owned())
}

/// The refusal where the database could not be read.
fn unread(error: &dyn Display) -> Refusal {
    tracing::warn!(%error, "the ledger cannot be read");
    Refusal::Unavailable("the ledger cannot be read; the guard's log says why".to_owned())
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
        let Self {
            namespace,
            release,
            user,
            verdict,
            operation,
            object,
            since,
            until,
            facts,
            limit,
            r#continue,
        } = self;
        let object =
            object.map(|text| text.parse().map_err(|form: &str| Refusal::Malformed(form.to_owned())));
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
            verdicts: each(verdict.as_deref(), |text| query::parse_verdict(text).map(str::to_owned))?,
            operations: each(operation.as_deref(), query::parse_operation)?,
            object: object.transpose()?,
            since,
            until,
            before: before.transpose()?,
            facts: facts.unwrap_or_default(),
            limit,
        })
    }
}

/// Parses each part of a comma-separated list.
fn each<T>(list: Option<&str>, parse: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, Refusal> {
    let texts = list.into_iter().flat_map(|list| list.split(','));
    texts.map(|text| parse(text).map_err(Refusal::Malformed)).collect()
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (code, reason, message) = match self {
            Self::Unauthenticated => (
                StatusCode::UNAUTHORIZED,
                "Unauthorized",
                "a bearer token that the API server takes, or a client certificate of the cluster".to_owned(),
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
