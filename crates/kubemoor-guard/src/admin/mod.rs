//! Health, metrics and the ledger over TLS, on a port of their own.
//!
//! Entry points: [`Readiness`], which every component reports to, and [`serve`]. Invariant: nothing here
//! writes. Health and metrics are open and need no cluster to answer. Only users whom the cluster
//! authenticates can read the ledger. Must not define readiness or grant rights.

mod ledger;
mod readiness;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use http::{Request, StatusCode, header};
use hyper::body::Incoming;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tower::Service;

pub use self::ledger::LedgerReader;
pub use self::readiness::{Condition, Readiness};
use kubemoor_runtime::server::{self, Ending, Limits, Peer, TlsPort};

const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const TEXT_TYPE: &str = "text/plain; charset=utf-8";

/// Limits for probes, scrapers and people, who send far fewer requests than the webhook gets. Requests in
/// flight at shutdown are cancelled, so that they cannot delay it.
const LIMITS: Limits = Limits {
    connections: 128,
    handshake: Duration::from_secs(5),
    head: Duration::from_secs(5),
    idle: Duration::from_secs(120),
    answer: Duration::from_secs(20),
    drain: Duration::from_secs(1),
};

/// The routes: `/livez`, `/readyz`, `/metrics` and the ledger's.
///
/// `/livez` is 200 as long as the process answers. `/readyz` is 200 once all
/// conditions are met, else 503; its body names each condition and, where it is
/// not met, why.
pub fn router(readiness: Readiness, metrics: Arc<Registry>, books: LedgerReader) -> Router {
    Router::new()
        .route("/livez", get(|| async { ([(header::CONTENT_TYPE, TEXT_TYPE)], "ok\n") }))
        .route("/readyz", get(ready).with_state(readiness))
        .route("/metrics", get(scrape).with_state(metrics))
        .route(ledger::PATH, get(ledger::answer).with_state(books))
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

async fn ready(State(readiness): State<Readiness>) -> impl axum::response::IntoResponse {
    let (ready, report) = readiness.report();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, [(header::CONTENT_TYPE, TEXT_TYPE)], report)
}

async fn scrape(State(registry): State<Arc<Registry>>) -> impl axum::response::IntoResponse {
    let mut text = String::new();
    match encode(&mut text, &registry) {
        Ok(()) => (StatusCode::OK, [(header::CONTENT_TYPE, METRICS_TYPE)], text),
        Err(error) => {
            let message = format!("the metrics cannot be written: {error}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, [(header::CONTENT_TYPE, TEXT_TYPE)], message)
        }
    }
}

#[cfg(test)]
mod tests;
