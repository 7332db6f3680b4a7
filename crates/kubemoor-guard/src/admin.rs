//! Health, metrics and the ledger over TLS, on a port of their own. Nothing here writes.
//!
//! Health is open and needs no cluster to answer: every component reports to [`Readiness`], and a request never waits for
//! one. Only users whom the cluster authenticates and authorizes can read the ledger and, unless a flag opens them, the
//! metrics, which name releases; the API server is asked each time. As in the API server, a client certificate takes
//! precedence over a token. A user without the right gets the same answer whether or not rows exist. Refusals are Kubernetes
//! Statuses, so that any client of the API can read them.

use std::fmt::{Display, Write as _};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::error_handling::HandleErrorLayer;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{BoxError, Extension, Json, Router};
use http::{HeaderMap, Request, StatusCode, header};
use hyper::body::Incoming;
use jiff::Timestamp;
use parking_lot::RwLock;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Semaphore;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::timeout::error::Elapsed;
use tower::{Service, ServiceBuilder};

use kubemoor_cluster::client::access::{self, Right};
use kubemoor_cluster::client::call::ClusterError;
use kubemoor_declare::model::Actor;
use kubemoor_ledger::LedgerHandle;
use kubemoor_ledger::query::{self, EntryPage, Filter, PAGE};
use kubemoor_runtime::server::{self, Limits, Peer, ServerShutdown, TlsPort};
use kubemoor_runtime::tls::UserAuthority;

const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const TEXT_TYPE: &str = "text/plain; charset=utf-8";

/// The time limit of a request that needs the API server or the database: Prometheus's default scrape timeout.
const WITHIN: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub struct MetricsApi {
    pub registry: Arc<Registry>,
    /// Authenticates scrapers; `None` to serve everybody.
    pub users: Option<Authenticator>,
}

/// Limits for probes, scrapers and people, who send far fewer requests than the webhook gets. Requests in
/// flight at shutdown are cancelled, so that they cannot delay it.
const LIMITS: Limits = Limits {
    connections: 128,
    handshake: Duration::from_secs(5),
    idle: Duration::from_secs(30),
    unread: Duration::from_secs(30),
    drain: Duration::from_secs(1),
};

/// Concurrent requests that may call the API server or the database. Further ones are refused at once, so that they
/// take no connection from probes.
const READS: usize = 32;

/// The routes: `/livez`, `/readyz`, `/metrics` and the ledger's.
///
/// `/livez` is 200 as long as the process answers. `/readyz` is 200 once all
/// conditions are met, else 503; its body names each condition and, where it is
/// not met, why.
pub fn router(readiness: Readiness, metrics: MetricsApi, api: LedgerApi) -> Router {
    let limit = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(unanswered))
        .load_shed()
        .timeout(WITHIN)
        .layer(GlobalConcurrencyLimitLayer::new(READS));
    Router::new()
        .route(METRICS, get(scrape).with_state(metrics))
        .route(LEDGER, get(read_ledger).with_state(api))
        .layer(limit)
        .route("/livez", get(|| async { ([(header::CONTENT_TYPE, TEXT_TYPE)], "ok\n") }))
        .route("/readyz", get(ready).with_state(readiness))
}

pub async fn serve(port: TlsPort, router: Router, ending: ServerShutdown) {
    let answer = move |peer: Peer, mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        let answered = router.clone().call(request);
        async move {
            let Ok(response) = answered.await;
            response
        }
    };
    server::serve(port, answer, LIMITS, ending).await;
}

async fn ready(State(readiness): State<Readiness>) -> impl IntoResponse {
    let (ready, report) = readiness.report();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, [(header::CONTENT_TYPE, TEXT_TYPE)], report)
}

async fn unanswered(error: BoxError) -> ReadRefusal {
    if error.is::<Elapsed>() {
        tracing::warn!("the API server or the ledger database did not answer a reader within {WITHIN:?}");
        return ReadRefusal::Unavailable("no answer in time; try again".to_owned());
    }
    ReadRefusal::Unavailable("too many requests; try again".to_owned())
}

async fn scrape(
    State(metrics): State<MetricsApi>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Response, ReadRefusal> {
    if let Some(users) = &metrics.users {
        users.permit(&peer, &headers, Permission::Metrics).await?;
    }
    let mut text = String::new();
    Ok(match encode(&mut text, &metrics.registry) {
        Ok(()) => (StatusCode::OK, [(header::CONTENT_TYPE, METRICS_TYPE)], text).into_response(),
        Err(error) => {
            let message = format!("the metrics cannot be written: {error}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, [(header::CONTENT_TYPE, TEXT_TYPE)], message).into_response()
        }
    })
}

/// The readiness conditions of this process, which is ready if there are none; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    conditions: Arc<RwLock<Vec<(&'static str, ConditionState)>>>,
}

/// One condition, reported by the component that owns it. Clones report on the same condition.
#[derive(Clone, Debug)]
pub struct ReadinessCondition {
    readiness: Readiness,
    name: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ConditionState {
    Met,
    /// Met, with a note for the readers of the report.
    Noted(String),
    Unmet(String),
}

impl Readiness {
    /// Adds a condition, unmet until its owner reports it as met. An existing name returns the existing
    /// condition in its current state.
    pub fn condition(&self, name: &'static str) -> ReadinessCondition {
        let mut conditions = self.conditions.write();
        if conditions.iter().all(|(present, _)| *present != name) {
            conditions.push((name, ConditionState::Unmet("not yet known".to_owned())));
        }
        ReadinessCondition { readiness: self.clone(), name }
    }

    pub fn is_ready(&self) -> bool {
        self.conditions.read().iter().all(|(_, standing)| !matches!(standing, ConditionState::Unmet(_)))
    }

    /// Returns whether all conditions are met, and one line for each: `[+]records ok` or
    /// `[-]records: no listing yet`.
    pub fn report(&self) -> (bool, String) {
        let conditions = self.conditions.read();
        let mut ready = true;
        let mut report = String::new();
        for (name, standing) in conditions.iter() {
            // Writing to a String cannot fail.
            let _ = match standing {
                ConditionState::Met => writeln!(report, "[+]{name} ok"),
                ConditionState::Noted(note) => writeln!(report, "[!]{name}: {note}"),
                ConditionState::Unmet(reason) => {
                    ready = false;
                    writeln!(report, "[-]{name}: {reason}")
                }
            };
        }
        report.push_str(if ready { "ready\n" } else { "not ready\n" });
        (ready, report)
    }
}

impl ReadinessCondition {
    pub fn met(&self) {
        self.set(ConditionState::Met);
    }

    /// Marks the condition as met, with a note of a few words on one line.
    pub fn noted(&self, note: impl Into<String>) {
        self.set(ConditionState::Noted(note.into()));
    }

    /// Marks the condition as unmet. `reason` names what is missing, in a few words on one line.
    pub fn unmet(&self, reason: impl Into<String>) {
        self.set(ConditionState::Unmet(reason.into()));
    }

    fn set(&self, standing: ConditionState) {
        let mut conditions = self.readiness.conditions.write();
        for (name, present) in conditions.iter_mut() {
            if *name == self.name && *present != standing {
                if let ConditionState::Unmet(reason) = &standing {
                    tracing::warn!(condition = name, reason, "readiness check failing");
                } else if matches!(present, ConditionState::Unmet(_)) {
                    tracing::info!(condition = name, "readiness check passed");
                }
                present.clone_from(&standing);
            }
        }
    }
}

/// Also the path that a scraper needs the right to GET.
const METRICS: &str = "/metrics";

/// Authenticates users of the cluster, and checks their rights. Cheap to clone.
#[derive(Clone)]
pub struct Authenticator {
    authority: UserAuthority,
    client: Arc<OnceLock<kube::Client>>,
}

/// What is read, which determines the required right.
#[derive(Clone, Copy)]
enum Permission<'a> {
    /// Rows of the ledger of one namespace, or of all: the right to list GuardedReleases there.
    Ledger { namespace: Option<&'a str> },
    /// The metrics: the right to GET `/metrics`, as for other servers in a cluster (RBAC's `nonResourceURLs`).
    Metrics,
}

#[derive(Debug)]
enum ReadRefusal {
    Unauthenticated(&'static str),
    Forbidden(&'static str, &'static str),
    Malformed(String),
    Unavailable(String),
}

impl Authenticator {
    /// Authenticates nobody until [`Authenticator::trust`] names a cluster.
    pub fn new(authority: UserAuthority) -> Self {
        Self { authority, client: Arc::default() }
    }

    /// Sets the client that verifies tokens and rights. Call it once: a run has one cluster. Returns the
    /// handle that receives the authorities of user certificates.
    pub fn trust(&self, client: kube::Client) -> UserAuthority {
        let _ = self.client.set(client);
        self.authority.clone()
    }

    async fn permit(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        permission: Permission<'_>,
    ) -> Result<(), ReadRefusal> {
        let what = permission.what();
        if peer.certificates.is_empty() && bearer(headers).is_none() {
            return Err(ReadRefusal::Unauthenticated(what));
        }
        let client = self.client.get().ok_or_else(|| {
            ReadRefusal::Unavailable(format!("the guard cannot check yet who may read {what}; try again"))
        })?;
        let certified = self.authority.identify(&peer.certificates, Timestamp::now());
        let actor = match (certified, bearer(headers)) {
            (Some(actor), _) => actor,
            (None, None) => return Err(ReadRefusal::Unauthenticated(what)),
            (None, Some(token)) => {
                let actor = access::authenticate_token(client, token)
                    .await
                    .map_err(|error| permission.unasked(&error))?;
                actor.ok_or(ReadRefusal::Unauthenticated(what))?
            }
        };
        let may = permission.is_given(client, &actor).await;
        if !may.map_err(|error| permission.unasked(&error))? {
            return Err(ReadRefusal::Forbidden(what, permission.right()));
        }
        Ok(())
    }
}

impl Permission<'_> {
    fn what(self) -> &'static str {
        match self {
            Self::Ledger { .. } => "the ledger",
            Self::Metrics => "the metrics",
        }
    }

    fn right(self) -> &'static str {
        match self {
            Self::Ledger { .. } => {
                "the right to list guardedreleases.kubemoor.dev in the requested namespace or in all \
                 namespaces"
            }
            Self::Metrics => "the right to get the path /metrics (nonResourceURLs)",
        }
    }

    async fn is_given(self, client: &kube::Client, actor: &Actor) -> Result<bool, ClusterError> {
        match self {
            Self::Ledger { namespace } => {
                let (group, resource) = ("kubemoor.dev", "guardedreleases");
                let right = Right { verb: "list", group, resource, namespace, name: None };
                access::is_user_allowed(client, actor, &right).await
            }
            Self::Metrics => access::is_get_allowed(client, actor, METRICS).await,
        }
    }

    fn unasked(self, error: &dyn Display) -> ReadRefusal {
        tracing::warn!(%error, "failed to check who may read {}", self.what());
        ReadRefusal::Unavailable(format!("cannot ask the API server who may read {}", self.what()))
    }
}

/// The bearer token of a request, which is used only for a TokenReview.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

impl IntoResponse for ReadRefusal {
    fn into_response(self) -> Response {
        let (code, reason, message) = match self {
            Self::Unauthenticated(what) => {
                let takes =
                    "a bearer token that the API server accepts, or a client certificate of the cluster";
                (StatusCode::UNAUTHORIZED, "Unauthorized", format!("reading {what} requires {takes}"))
            }
            Self::Forbidden(what, right) => {
                (StatusCode::FORBIDDEN, "Forbidden", format!("reading {what} requires {right}"))
            }
            Self::Malformed(why) => (StatusCode::BAD_REQUEST, "BadRequest", why),
            Self::Unavailable(why) => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", why),
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

const LEDGER: &str = "/api/v1/ledger";

/// Pages that are read at one time: the ledger's writer and its trimming also need connections.
const LEDGER_READS: usize = 4;

#[derive(Clone)]
pub struct LedgerApi {
    ledger: LedgerHandle,
    users: Authenticator,
    reads: Arc<Semaphore>,
}

/// The query parameters. Unknown names are refused: a misspelt filter must not return more rows than
/// requested.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LedgerQuery {
    namespace: Option<String>,
    release: Option<String>,
    user: Option<String>,
    verdict: Option<String>,
    operation: Option<String>,
    object: Option<String>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    facts: Option<bool>,
    limit: Option<u32>,
    r#continue: Option<String>,
}

impl LedgerApi {
    pub fn new(ledger: LedgerHandle, users: Authenticator) -> Self {
        Self { ledger, users, reads: Arc::new(Semaphore::new(LEDGER_READS)) }
    }
}

async fn read_ledger(
    State(api): State<LedgerApi>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    asked: Result<Query<LedgerQuery>, QueryRejection>,
) -> Result<Json<EntryPage>, ReadRefusal> {
    let Query(asked) = asked.map_err(|error| ReadRefusal::Malformed(error.body_text()))?;
    let permission = Permission::Ledger { namespace: asked.namespace.as_deref() };
    api.users.permit(&peer, &headers, permission).await?;
    let filter = asked.filter(api.ledger.cluster())?;
    let closed = || ReadRefusal::Unavailable("the ledger is not open; the guard's log says why".to_owned());
    let store = api.ledger.store().ok_or_else(closed)?;
    let busy = |_| ReadRefusal::Unavailable("too many requests for the ledger; try again".to_owned());
    let _turn = api.reads.try_acquire().map_err(busy)?;
    store.page(&filter).await.map(Json).map_err(|error| {
        tracing::warn!(%error, "failed to read the ledger");
        ReadRefusal::Unavailable("the ledger cannot be read; the guard's log says why".to_owned())
    })
}

impl LedgerQuery {
    /// Returns only rows of the guard's own cluster, because the rights were checked there.
    fn filter(self, cluster: Option<&str>) -> Result<Filter, ReadRefusal> {
        let object = self
            .object
            .map(|text| text.parse().map_err(|form: &str| ReadRefusal::Malformed(form.to_owned())));
        let before = self.r#continue.map(|text| {
            text.parse().map_err(|_| {
                ReadRefusal::Malformed("`continue` is not a token of this ledger; leave it out".to_owned())
            })
        });
        if self.limit.is_some_and(|limit| !(1..=PAGE).contains(&limit)) {
            return Err(ReadRefusal::Malformed(format!("`limit` must be a number from 1 to {PAGE}")));
        }
        Ok(Filter {
            cluster: Some(cluster.unwrap_or_default().to_owned()),
            namespace: self.namespace,
            release: self.release,
            user: self.user,
            verdicts: each(self.verdict.as_deref(), |text| query::parse_verdict(text).map(str::to_owned))?,
            operations: each(self.operation.as_deref(), query::parse_operation)?,
            object: object.transpose()?,
            since: self.since,
            until: self.until,
            before: before.transpose()?,
            facts: self.facts.unwrap_or_default(),
            limit: self.limit,
        })
    }
}

fn each<T>(list: Option<&str>, parse: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, ReadRefusal> {
    let texts = list.into_iter().flat_map(|list| list.split(','));
    texts.map(|text| parse(text).map_err(ReadRefusal::Malformed)).collect()
}

#[cfg(test)]
mod tests;
