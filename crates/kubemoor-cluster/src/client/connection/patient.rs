//! Clients that wait for a server that turns requests away.
//!
//! Entry points: [`client`] for a command, [`lasting_client`] for a long-running process. Invariant: a request is sent
//! again only as long as its caller waits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Request;
use kube::Config;
use kube::client::Body;
use kube::client::retry::RetryPolicy;
use tower::retry::RetryLayer;
use tower::{BoxError, Layer, service_fn};
use tracing::debug;

use super::pool::ConnectionPool;

/// The first and the longest pause before a request is sent again that a server turned away.
const RETRY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// The maximum number of retries.
const RETRIES: u32 = 15;

/// The client of a configuration. A server that turns requests away is asked again soon, as long as the caller waits:
/// kube's own pauses grow beyond what anybody waits for, and would outlast the server's return.
pub(super) fn client(mut config: Config) -> kube::Result<kube::Client> {
    config.default_retry = false;
    let namespace = config.default_namespace.clone();
    patient(kube::Client::try_from(config)?, namespace)
}

/// The same, whose connections are replaced once they are lost.
pub(super) fn lasting_client(mut config: Config) -> kube::Result<kube::Client> {
    config.default_retry = false;
    let namespace = config.default_namespace.clone();
    let pool = Arc::new(ConnectionPool::new(move || kube::Client::try_from(config.clone()))?);
    let service = service_fn(move |request: Request<Body>| {
        let pool = Arc::clone(&pool);
        async move { pool.send(request).await.map_err(BoxError::from) }
    });
    patient(kube::Client::new(service, namespace.clone()), namespace)
}

/// A client that sends a request again that the server turned away.
fn patient(client: kube::Client, namespace: String) -> kube::Result<kube::Client> {
    let valid_until = *client.valid_until();
    let once = service_fn(move |request: Request<Body>| {
        let client = client.clone();
        let (method, uri, begun) = (request.method().clone(), request.uri().clone(), Instant::now());
        async move {
            let answer = client.send(request).await;
            let told = answer.as_ref().map_or_else(ToString::to_string, |it| it.status().to_string());
            debug!("{method} {uri}: {told} in {} milliseconds", begun.elapsed().as_millis());
            answer.map_err(BoxError::from)
        }
    });
    let (first, longest) = RETRY;
    let policy = RetryPolicy::new(first, longest, RETRIES, true)
        .map_err(|error| kube::Error::Service(Box::new(error)))?;
    let service = RetryLayer::new(policy).layer(once);
    Ok(kube::Client::new(service, namespace).with_valid_until(valid_until))
}
