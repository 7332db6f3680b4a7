//! Delivers to one receiver, in order.
//!
//! Entry points: [`Delivery::run`], and [`Delivery::test`] for a single attempt. Invariant: one
//! request at a time, tried again with growing pauses and jitter, or after the pause that the
//! receiver asks for, as long as that may help, then given up and counted. A receiver that is
//! down is logged once. Messages that wait meanwhile go out together, if the format can hold several.

mod answer;

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use backon::BackoffBuilder;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::answer::Attempt;
use super::file::{Notifier, NotifierError};
use super::message::Message;
use kubemoor_runtime::metrics::{NoticeMetrics, NotificationFate};
use kubemoor_runtime::telemetry::FailureLog;

/// The first pause, and the longest.
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(60);

/// Attempts after the first: about ten minutes.
const ATTEMPTS: usize = 14;

/// Time limit for sending the remaining messages when the process ends.
const FAREWELL: Duration = Duration::from_secs(5);

/// The messages of one delivery.
pub(super) type Post = Vec<Arc<Message>>;

/// Delivers to one receiver.
pub(super) struct Delivery {
    client: reqwest::Client,
    notifier: Notifier,
    source: Arc<str>,
    metrics: NoticeMetrics,
    failures: FailureLog,
}

impl Delivery {
    pub(super) fn new(
        notifier: Notifier,
        source: Arc<str>,
        metrics: NoticeMetrics,
    ) -> Result<Self, NotifierError> {
        let client = reqwest::Client::builder()
            .timeout(notifier.timeout)
            // A redirect would send one receiver's messages to another.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("kubemoor/", env!("CARGO_PKG_VERSION")))
            .default_headers(notifier.headers.clone())
            .build()
            .map_err(|error| NotifierError::Client {
                name: notifier.name.clone(),
                reason: answer::reason(&error),
            })?;
        Ok(Self { client, notifier, source, metrics, failures: FailureLog::default() })
    }

    /// Delivers until all senders are dropped, or a moment after `stop`.
    pub(super) async fn run(mut self, mut waiting: mpsc::Receiver<Post>, stop: CancellationToken) {
        let together = self.notifier.format.together();
        let mut pending = VecDeque::new();
        // One for all that waits.
        let mut farewell = pin!(farewell(stop));
        loop {
            if pending.is_empty() {
                let Some(post) = waiting.recv().await else { return };
                pending.extend(post);
            }
            while pending.len() < together
                && let Ok(post) = waiting.try_recv()
            {
                pending.extend(post);
            }
            let chunk: Post = pending.drain(..together.min(pending.len())).collect();
            tokio::select! {
                () = self.deliver(&chunk) => {}
                () = &mut farewell => {
                    waiting.close();
                    let mut lost = chunk.len() + pending.len();
                    while let Ok(post) = waiting.try_recv() {
                        lost += post.len();
                    }
                    self.count(NotificationFate::Failed, lost);
                    return;
                }
            }
        }
    }

    /// Sends one message once. Gives the status code and the first part of the answer, or why there is no answer.
    pub(super) async fn test(&self, message: Message) -> Result<(u16, String), String> {
        let Some(body) = self.body(&vec![Arc::new(message)])? else {
            return Err("this format has nothing to say for a test".to_owned());
        };
        let answer = self.request(body).send().await.map_err(|error| answer::reason(&error))?;
        let code = answer.status().as_u16();
        Ok((code, answer::excerpt(answer, &self.notifier).await))
    }

    async fn deliver(&mut self, messages: &Post) {
        let mut pauses = backon::ExponentialBuilder::default()
            .with_min_delay(FIRST)
            .with_max_delay(LONGEST)
            .with_max_times(ATTEMPTS)
            .with_jitter()
            .build();
        loop {
            let why = match self.attempt(messages).await {
                Attempt::Taken => {
                    self.failures.note_success();
                    self.count(NotificationFate::Delivered, messages.len());
                    return;
                }
                Attempt::Later(why, asked) => match pauses.next() {
                    Some(pause) => {
                        self.complain(&why);
                        tokio::time::sleep(pause.max(asked)).await;
                        continue;
                    }
                    None => why,
                },
                Attempt::Never(why) => why,
            };
            self.complain(&why);
            self.count(NotificationFate::Failed, messages.len());
            return;
        }
    }

    async fn attempt(&self, messages: &Post) -> Attempt {
        // Built for each attempt: an alert that waited would have expired meanwhile.
        let body = match self.body(messages) {
            Ok(Some(body)) => body,
            Ok(None) => return Attempt::Taken,
            Err(why) => return Attempt::Never(why),
        };
        match self.request(body).send().await {
            Ok(answer) => Attempt::of(answer, &self.notifier).await,
            Err(error) => Attempt::Later(answer::reason(&error), Duration::ZERO),
        }
    }

    fn body(&self, messages: &Post) -> Result<Option<Vec<u8>>, String> {
        self.notifier.format.body(messages, &self.source, Timestamp::now())
    }

    fn request(&self, body: Vec<u8>) -> reqwest::RequestBuilder {
        let request = self.client.post(self.notifier.url.clone());
        request.header(http::header::CONTENT_TYPE, self.notifier.format.content_type()).body(body)
    }

    fn count(&self, fate: NotificationFate, messages: usize) {
        (0..messages).for_each(|_| self.metrics.notification(fate));
    }

    fn complain(&mut self, why: &str) {
        if self.failures.note_failure() {
            tracing::warn!(notifier = self.notifier.name, "a notifier does not take what it is told: {why}");
        }
    }
}

async fn farewell(stop: CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(FAREWELL).await;
}
