//! Delivers to one receiver, in order and one request at a time.
//!
//! A request is retried with exponential backoff and jitter, not earlier than the receiver's `Retry-After`, as long as
//! a retry may help; then it is dropped and counted. A receiver that is down is logged once. No text that leaves this
//! file holds the URL or another credential of the receiver.

use super::file::{Notifier, NotifierError};
use super::message::Notification;
use backon::BackoffBuilder;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use jiff::Timestamp;
use kubemoor_declare::model::text::{one_line, shortened};
use kubemoor_runtime::metrics::{NoticeMetrics, NotificationFate};
use kubemoor_runtime::telemetry::FailureLog;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The first and the longest pause between attempts.
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(60);

/// The longest `Retry-After` that is respected.
const LONGEST_ASKED: Duration = Duration::from_secs(300);

/// Retries: about ten minutes in total.
const ATTEMPTS: usize = 14;

/// Time limit for sending the remaining messages when the process ends.
const FAREWELL: Duration = Duration::from_secs(5);

/// How many bytes of an answer are read, and how many characters are shown.
const READ: usize = 2048;
const SHOWN: usize = 200;

pub(super) struct Delivery {
    client: reqwest::Client,
    notifier: Notifier,
    source: String,
    metrics: NoticeMetrics,
    failures: FailureLog,
}

enum Attempt {
    Taken,
    /// Another attempt may help, after at least this pause.
    Later(String, Duration),
    Never(String),
}

impl Delivery {
    pub(super) fn new(
        notifier: Notifier,
        source: &str,
        metrics: NoticeMetrics,
    ) -> Result<Self, NotifierError> {
        let client = reqwest::Client::builder()
            .timeout(notifier.timeout)
            // A redirect would send one receiver's messages to another.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("kubemoor/", env!("CARGO_PKG_VERSION")))
            .default_headers(notifier.headers.clone())
            .build()
            .map_err(|error| NotifierError::Client { name: notifier.name.clone(), reason: reason(&error) })?;
        Ok(Self { client, notifier, source: source.to_owned(), metrics, failures: FailureLog::default() })
    }

    /// Delivers until `stop`, then spends [`FAREWELL`] on the waiting messages.
    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Arc<Notification>>, stop: CancellationToken) {
        // One deadline for all waiting messages.
        let mut farewell = pin!(async {
            stop.cancelled().await;
            tokio::time::sleep(FAREWELL).await;
        });
        loop {
            let message = tokio::select! {
                biased;
                message = queue.recv() => message,
                () = stop.cancelled(), if !queue.is_closed() => {
                    queue.close();
                    continue;
                }
            };
            let Some(message) = message else { return };
            tokio::select! {
                () = self.deliver(&message) => {}
                () = &mut farewell => {
                    queue.close();
                    self.metrics.notification(NotificationFate::Failed);
                    while queue.try_recv().is_ok() {
                        self.metrics.notification(NotificationFate::Failed);
                    }
                    return;
                }
            }
        }
    }

    /// Sends one message once. Returns the status code and the start of the answer, or why there is no answer.
    pub(super) async fn test(&self, message: Notification) -> Result<(u16, String), String> {
        let Some(body) = self.notifier.format.body(&message, &self.source)? else {
            return Err("its template is empty for a test message".to_owned());
        };
        let answer = self.request(body).send().await.map_err(|error| reason(&error))?;
        let code = answer.status().as_u16();
        Ok((code, excerpt(answer, &self.notifier).await))
    }

    async fn deliver(&mut self, message: &Notification) {
        let body = match self.notifier.format.body(message, &self.source) {
            Ok(Some(body)) => body,
            Ok(None) => return,
            Err(why) => return self.give_up(&why),
        };
        let mut pauses = backon::ExponentialBuilder::default()
            .with_min_delay(FIRST)
            .with_max_delay(LONGEST)
            .with_max_times(ATTEMPTS)
            .with_jitter()
            .build();
        loop {
            match self.attempt(body.clone()).await {
                Attempt::Taken => {
                    self.failures.note_success();
                    self.metrics.notification(NotificationFate::Delivered);
                    return;
                }
                Attempt::Later(why, asked) => match pauses.next() {
                    Some(pause) => {
                        self.log_first_failure(&why);
                        tokio::time::sleep(pause.max(asked)).await;
                    }
                    None => return self.give_up(&why),
                },
                Attempt::Never(why) => return self.give_up(&why),
            }
        }
    }

    async fn attempt(&self, body: Vec<u8>) -> Attempt {
        let answer = match self.request(body).send().await {
            Ok(answer) if answer.status().is_success() => return Attempt::Taken,
            Ok(answer) => answer,
            Err(error) => return Attempt::Later(reason(&error), Duration::ZERO),
        };
        let code = answer.status().as_u16();
        let after = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let pause = after.and_then(|text| pause(text, Timestamp::now())).unwrap_or_default();
        let front = excerpt(answer, &self.notifier).await;
        let why = match front.is_empty() {
            true => format!("it answers {code}"),
            false => format!("it answers {code}: {front}"),
        };
        match code {
            408 | 425 | 429 | 500.. => Attempt::Later(why, pause),
            _ => Attempt::Never(why),
        }
    }

    fn request(&self, body: Vec<u8>) -> reqwest::RequestBuilder {
        let request = self.client.post(self.notifier.url.clone());
        request.header(CONTENT_TYPE, self.notifier.format.content_type()).body(body)
    }

    fn give_up(&mut self, why: &str) {
        self.log_first_failure(why);
        self.metrics.notification(NotificationFate::Failed);
    }

    fn log_first_failure(&mut self, why: &str) {
        if self.failures.note_failure() {
            tracing::warn!(notifier = self.notifier.name, "failed to notify a receiver: {why}");
        }
    }
}

async fn excerpt(mut answer: reqwest::Response, notifier: &Notifier) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < READ
        && let Ok(Some(chunk)) = answer.chunk().await
    {
        bytes.extend_from_slice(&chunk);
    }
    bytes.truncate(READ);
    let text = notifier.without_secrets(&String::from_utf8_lossy(&bytes));
    shortened(one_line(text.trim()), SHOWN).into_owned()
}

/// The reason of a failure, without the URL: it may hold a token.
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

/// The pause that `Retry-After` asks for: seconds, or a date.
fn pause(text: &str, now: Timestamp) -> Option<Duration> {
    let seconds = text.trim().parse().ok().map(Duration::from_secs);
    let date = || {
        let date = jiff::fmt::rfc2822::parse(text.trim()).ok()?.timestamp();
        Duration::try_from(date.duration_since(now)).ok()
    };
    seconds.or_else(date).map(|pause| pause.min(LONGEST_ASKED))
}

#[cfg(test)]
mod tests;
