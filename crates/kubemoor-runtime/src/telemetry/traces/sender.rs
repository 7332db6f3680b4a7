//! Sends spans to the collector.
//!
//! Entry point: [`Sender::new`]. Invariant: a collector that accepts nothing is logged once. The exporter has
//! its own thread without a runtime, so requests are made on the program's.

use std::time::Duration;

use async_trait::async_trait;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Bytes;
use opentelemetry_http::{HttpClient, HttpError};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::super::FailureLog;

/// How long a collector may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most of its answer that is read.
const CAP: usize = 64 << 10;

/// Sends requests of the exporter.
#[derive(Debug)]
pub(super) struct Sender {
    client: reqwest::Client,
    runtime: Handle,
    failures: Mutex<FailureLog>,
}

impl Sender {
    /// One that sends on this runtime.
    pub(super) fn new() -> Result<Self, reqwest::Error> {
        let client = reqwest::Client::builder()
            .timeout(PATIENCE)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("kubemoor/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Self { client, runtime: Handle::current(), failures: Mutex::default() })
    }

    /// Logs the first failure of a run of them.
    fn note(&self, failure: Option<String>) {
        let mut failures = self.failures.lock();
        match failure {
            None => failures.note_success(),
            Some(why) if failures.note_failure() => {
                tracing::warn!("traces cannot be sent to the collector, and are dropped: {why}");
            }
            Some(_) => {}
        }
    }
}

#[async_trait]
impl HttpClient for Sender {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sending = self.runtime.spawn(send(self.client.clone(), request));
        let outcome = sending.await.unwrap_or_else(|error| Err(error.into()));
        self.note(match &outcome {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("it answers {}", answer.status())),
            Err(error) => Some(causes_of(error.as_ref())),
        });
        outcome
    }
}

async fn send(client: reqwest::Client, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let answer = client.execute(request.try_into()?).await?;
    let (head, body) = Response::<reqwest::Body>::from(answer).into_parts();
    let body = Limited::new(body, CAP).collect().await?.to_bytes();
    Ok(Response::from_parts(head, body))
}

/// The error and what caused it, in one sentence.
fn causes_of(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
