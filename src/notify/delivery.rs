//! Delivers to one receiver, in order.
//!
//! Entry point: [`Delivery::run`]. Invariant: one message at a time, tried again
//! with growing pauses and jitter as long as that may help, then given up and
//! counted. A receiver that is down is said once.

use std::sync::Arc;
use std::time::Duration;

use backon::BackoffBuilder;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::file::{Notifier, NotifierError};
use crate::metrics::{NoticeMetrics, NotificationFate};
use crate::telemetry::FailureLog;

/// How CloudEvents are sent in structured mode.
const CONTENT_TYPE: &str = "application/cloudevents+json; charset=utf-8";

/// The first pause, and the longest.
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(60);

/// Attempts after the first: about ten minutes.
const ATTEMPTS: usize = 14;

/// What waits when the process ends has this long.
const FAREWELL: Duration = Duration::from_secs(5);

/// Delivers to one receiver.
pub(super) struct Delivery {
    client: reqwest::Client,
    notifier: Notifier,
    metrics: NoticeMetrics,
    failures: FailureLog,
}

/// How one attempt went.
enum Attempt {
    Taken,
    /// Another attempt may help.
    Later(String),
    /// It does not.
    Never(String),
}

impl Delivery {
    pub(super) fn new(notifier: Notifier, metrics: NoticeMetrics) -> Result<Self, NotifierError> {
        let client = reqwest::Client::builder()
            .timeout(notifier.timeout)
            // Who answers elsewhere would get what was meant for another.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("kubemoor/", env!("CARGO_PKG_VERSION")))
            .default_headers(notifier.headers.clone())
            .build()
            .map_err(|error| NotifierError::Client { name: notifier.name.clone(), reason: reason(&error) })?;
        Ok(Self { client, notifier, metrics, failures: FailureLog::default() })
    }

    pub(super) async fn run(mut self, mut waiting: mpsc::Receiver<Arc<Vec<u8>>>, stop: CancellationToken) {
        loop {
            let body = tokio::select! {
                biased;
                body = waiting.recv() => body,
                () = stop.cancelled() => None,
            };
            let Some(body) = body else { return };
            tokio::select! {
                () = self.deliver(&body) => {}
                () = farewell(&stop) => {
                    waiting.close();
                    let mut lost = 1;
                    while waiting.try_recv().is_ok() {
                        lost += 1;
                    }
                    (0..lost).for_each(|_| self.metrics.notification(NotificationFate::Failed));
                    return;
                }
            }
        }
    }

    async fn deliver(&mut self, body: &Arc<Vec<u8>>) {
        let mut pauses = backon::ExponentialBuilder::default()
            .with_min_delay(FIRST)
            .with_max_delay(LONGEST)
            .with_max_times(ATTEMPTS)
            .with_jitter()
            .build();
        loop {
            let why = match self.attempt(body).await {
                Attempt::Taken => {
                    self.failures.note_success();
                    self.metrics.notification(NotificationFate::Delivered);
                    return;
                }
                Attempt::Later(why) => match pauses.next() {
                    Some(pause) => {
                        self.complain(&why);
                        tokio::time::sleep(pause).await;
                        continue;
                    }
                    None => why,
                },
                Attempt::Never(why) => why,
            };
            self.complain(&why);
            self.metrics.notification(NotificationFate::Failed);
            return;
        }
    }

    async fn attempt(&self, body: &Arc<Vec<u8>>) -> Attempt {
        let request = self.client.post(self.notifier.url.clone());
        let request = request.header(http::header::CONTENT_TYPE, CONTENT_TYPE).body(body.as_ref().clone());
        match request.send().await {
            Ok(answer) if answer.status().is_success() => Attempt::Taken,
            Ok(answer) => {
                let code = answer.status().as_u16();
                let why = format!("it answers {code}");
                if matches!(code, 408 | 425 | 429 | 500..) {
                    Attempt::Later(why)
                } else {
                    Attempt::Never(why)
                }
            }
            Err(error) => Attempt::Later(reason(&error)),
        }
    }

    fn complain(&mut self, why: &str) {
        if self.failures.note_failure() {
            tracing::warn!(notifier = self.notifier.name, "a notifier does not take what it is told: {why}");
        }
    }
}

async fn farewell(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(FAREWELL).await;
}

/// What failed, without the URL: it may hold a token.
fn reason(error: &reqwest::Error) -> String {
    let what = if error.is_timeout() {
        "no answer in time"
    } else if error.is_connect() {
        "no connection"
    } else {
        "the request failed"
    };
    let mut cause = std::error::Error::source(error);
    let mut innermost = None;
    while let Some(next) = cause {
        innermost = Some(next.to_string());
        cause = next.source();
    }
    innermost.map_or_else(|| what.to_owned(), |innermost| format!("{what}: {innermost}"))
}
