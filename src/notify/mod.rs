//! Sends notifications to receivers over HTTP, each in its own format.
//!
//! Entry points: [`file::read`] for the receivers, [`Notifiers::new`] for the sender's handle and for the
//! [`Worker`] that delivers messages, [`Notifiers::send`], [`Notifiers::deny`]. Invariant: a sender never
//! waits. There is one bounded queue before the desk, which decides, and one before each receiver; messages
//! beyond that are dropped and counted. No value of a Secret and no credential of a notifier reaches a log.
//! Must not know a cluster.

mod delivery;
mod desk;
pub mod file;
mod format;
pub mod message;
mod words;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::delivery::{Delivery, Post};
pub use self::desk::Denial;
use self::desk::{Event, NotificationScheduler, Output};
use self::file::{Notifier, NotifierError, Settings};
use self::message::{Message, Subject};
use crate::metrics::{NoticeMetrics, NotificationFate};

/// The capacity of the desk's queue.
const EVENTS: usize = 1024;

/// Posts that wait for one receiver.
const WAITING: usize = 256;

/// The longest pause between looks at the clock, which may be set.
const LOOK: Duration = Duration::from_secs(60);

/// Accepts messages for receivers. Cheap to clone.
#[derive(Clone)]
pub struct Notifiers {
    /// `None` without receivers.
    queue: Option<mpsc::Sender<Event>>,
    metrics: NoticeMetrics,
}

/// Delivers what [`Notifiers`] takes.
pub struct Worker {
    settings: Settings,
    events: mpsc::Receiver<Event>,
    metrics: NoticeMetrics,
}

/// A desk at work.
struct Running<L> {
    desk: NotificationScheduler,
    receivers: Vec<mpsc::Sender<Post>>,
    leads: L,
    metrics: NoticeMetrics,
}

impl Notifiers {
    /// The handle that accepts messages for the receivers of `settings`, and the worker that delivers them.
    pub fn new(settings: Settings, metrics: &NoticeMetrics) -> (Self, Worker) {
        let (queue, events) = mpsc::channel(EVENTS);
        let queue = (!settings.notifiers.is_empty()).then_some(queue);
        (Self { queue, metrics: metrics.clone() }, Worker { settings, events, metrics: metrics.clone() })
    }

    /// Whether there are receivers.
    pub fn have_receivers(&self) -> bool {
        self.queue.is_some()
    }

    /// Tells the receivers `names`, or all if none is named, of something that every replica sees.
    /// Never waits.
    pub fn send(&self, names: &[String], message: Message) {
        self.hand_in(|| Event::Told(Box::new(message), names.to_vec()));
    }

    /// Like [`Self::send`], for a change that this replica denied; many denials share one message.
    pub fn deny(&self, denial: impl FnOnce() -> (Denial, Vec<String>)) {
        self.hand_in(|| {
            let (denial, names) = denial();
            Event::Denied(denial, names)
        });
    }

    fn hand_in(&self, event: impl FnOnce() -> Event) {
        let Some(queue) = &self.queue else { return };
        if queue.try_send(event()).is_err() {
            self.metrics.notification(NotificationFate::Dropped);
        }
    }
}

impl Worker {
    /// Starts to deliver, as tasks of `tasks`, until `stop`; then the waiting messages have a moment left.
    /// `source` names this cluster, and `leads` says whether this replica reports what all replicas see.
    ///
    /// # Errors
    /// When the settings of a notifier give no HTTP client.
    pub fn start(
        self,
        source: &str,
        leads: impl Fn() -> bool + Send + Sync + 'static,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Result<(), NotifierError> {
        let Self { settings: Settings { notifiers, denial_window }, events, metrics } = self;
        let source: Arc<str> = source.into();
        let (mut receivers, mut rules) = (Vec::new(), Vec::new());
        for notifier in notifiers {
            let (queue, waiting) = mpsc::channel(WAITING);
            rules.push(notifier.rules());
            let delivery = Delivery::new(notifier, Arc::clone(&source), metrics.clone())?;
            tasks.spawn(delivery.run(waiting, stop.clone()));
            receivers.push(queue);
        }
        let running =
            Running { desk: NotificationScheduler::new(rules, denial_window), receivers, leads, metrics };
        tasks.spawn(running.run(events, stop.clone()));
        Ok(())
    }
}

impl<L: Fn() -> bool> Running<L> {
    async fn run(mut self, mut events: mpsc::Receiver<Event>, stop: CancellationToken) {
        loop {
            let outputs = tokio::select! {
                () = stop.cancelled() => break,
                event = events.recv() => match event {
                    Some(event) => self.desk.take(event, (self.leads)(), Timestamp::now()),
                    None => break,
                },
                () = until(self.desk.next()) => self.desk.tick((self.leads)(), Timestamp::now()),
            };
            self.carry_out(outputs);
        }
        events.close();
        while let Ok(event) = events.try_recv() {
            let outputs = self.desk.take(event, (self.leads)(), Timestamp::now());
            self.carry_out(outputs);
        }
        let outputs = self.desk.close(Timestamp::now());
        self.carry_out(outputs);
    }

    fn carry_out(&self, outputs: Vec<Output>) {
        for output in outputs {
            let (fate, count) = match output {
                Output::Count(fate, count) => (fate, count),
                Output::Send(number, post) => {
                    let count = post.len();
                    match self.receivers.get(number).map(|queue| queue.try_send(post)) {
                        Some(Ok(())) => continue,
                        _ => (NotificationFate::Dropped, count),
                    }
                }
            };
            (0..count).for_each(|_| self.metrics.notification(fate));
        }
    }
}

/// Until that time, by a clock that may be set meanwhile.
async fn until(at: Option<Timestamp>) {
    match at {
        None => std::future::pending().await,
        Some(at) => {
            let left = Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default();
            tokio::time::sleep(left.min(LOOK)).await;
        }
    }
}

/// Sends one receiver a test message; gives the code and the front of its answer.
///
/// # Errors
/// When no client can be made, and when there is no answer.
pub async fn test(notifier: Notifier, source: &str) -> Result<(u16, String), String> {
    let message = Message::new(Subject::Test, Timestamp::now());
    let metrics = NoticeMetrics::default();
    let delivery = Delivery::new(notifier, source.into(), metrics).map_err(|error| error.to_string())?;
    delivery.test(message).await
}

#[cfg(test)]
mod tests;
