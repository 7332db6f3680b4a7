//! Health, metrics and the ledger over TLS, on a port of their own.
//!
//! Entry points: [`Readiness`], which every component reports to, and [`serve`]. Invariant: nothing here
//! writes. Health is open and needs no cluster to answer. Only users whom the cluster authenticates and
//! authorizes can read the ledger and, unless a flag opens them, the metrics, which name releases. Must not
//! define readiness or grant rights.

mod authenticator;
mod ledger;
mod readiness;

use std::sync::Arc;
use std::time::Duration;

use axum::error_handling::HandleErrorLayer;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{BoxError, Extension, Router};
use http::{HeaderMap, Request, StatusCode, header};
use hyper::body::Incoming;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::timeout::error::Elapsed;
use tower::{Service, ServiceBuilder};

pub use self::authenticator::Authenticator;
use self::authenticator::{METRICS, Permission, Refusal};
pub use self::ledger::LedgerReader;
pub use self::readiness::{Condition, Readiness};
use kubemoor_runtime::server::{self, Ending, Limits, Peer, TlsPort};

const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const TEXT_TYPE: &str = "text/plain; charset=utf-8";

/// How long an answer may take that needs the API server or the database: as long as Prometheus waits by default.
const WITHIN: Duration = Duration::from_secs(10);

/// The metrics, and who may read them.
#[derive(Clone)]
pub struct Metrics {
    /// What is measured.
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
    drain: Duration::from_secs(1),
};

/// Requests that ask the API server or the database at one time. Further ones are refused at once, so that they take no
/// connection from probes.
const READS: usize = 32;

/// The routes: `/livez`, `/readyz`, `/metrics` and the ledger's.
///
/// `/livez` is 200 as long as the process answers. `/readyz` is 200 once all
/// conditions are met, else 503; its body names each condition and, where it is
/// not met, why.
pub fn router(readiness: Readiness, metrics: Metrics, books: LedgerReader) -> Router {
    let limit = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(unanswered))
        .load_shed()
        .timeout(WITHIN)
        .layer(GlobalConcurrencyLimitLayer::new(READS));
    Router::new()
        .route(METRICS, get(scrape).with_state(metrics))
        .route(ledger::PATH, get(ledger::answer).with_state(books))
        .layer(limit)
        .route("/livez", get(|| async { ([(header::CONTENT_TYPE, TEXT_TYPE)], "ok\n") }))
        .route("/readyz", get(ready).with_state(readiness))
}

/// Serves `router` on `port` until `ending` tells it to stop.
pub async fn serve(port: TlsPort, router: Router, ending: Ending) {
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

/// The refusal of a request beyond the limits.
async fn unanswered(error: BoxError) -> Refusal {
    if error.is::<Elapsed>() {
        tracing::warn!("the API server or the ledger's database has not answered a reader within {WITHIN:?}");
        return Refusal::Unavailable("no answer in time; try again".to_owned());
    }
    Refusal::Unavailable("too many ask at once; try again".to_owned())
}

async fn scrape(
    State(metrics): State<Metrics>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Response {
    if let Some(users) = &metrics.users
        && let Err(refusal) = users.permit(&peer, &headers, Permission::Metrics).await
    {
        return refusal.into_response();
    }
    let mut text = String::new();
    match encode(&mut text, &metrics.registry) {
        Ok(()) => (StatusCode::OK, [(header::CONTENT_TYPE, METRICS_TYPE)], text).into_response(),
        Err(error) => {
            let message = format!("the metrics cannot be written: {error}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, [(header::CONTENT_TYPE, TEXT_TYPE)], message).into_response()
        }
    }
}

#[cfg(test)]
mod tests;
