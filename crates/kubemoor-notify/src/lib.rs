//! Sends notifications to receivers over HTTP, each in its own format.
//!
//! Entry points: [`file::read`] for the receivers, [`Notifiers::new`] for the sender's handle and for the
//! [`Worker`] that delivers messages, [`Notifiers::send`], [`Notifiers::send_in_turn`], [`Notifiers::deny`].
//! Invariant: no sender waits for a receiver. There is one bounded queue before the desk, which decides, and one
//! before each receiver; messages beyond that are dropped and counted, except that senders in turn wait for room
//! before the desk. No value of a Secret and no credential of a notifier reaches a log. Must not know a cluster.

mod delivery;
mod desk;
pub mod file;
mod format;
pub mod message;
mod words;
mod worker;

use jiff::Timestamp;
use tokio::sync::mpsc;

use self::delivery::Delivery;
pub use self::desk::Denial;
use self::desk::Event;
use self::file::{Notifier, Settings};
pub use self::format::template::Template;
use self::message::{Message, Subject};
pub use self::worker::Worker;
use kubemoor_runtime::metrics::{NoticeMetrics, NotificationFate};

/// The capacity of the desk's queue.
const EVENTS: usize = 1024;

/// Accepts messages for receivers. Cheap to clone.
#[derive(Clone)]
pub struct Notifiers {
    /// `None` without receivers.
    queue: Option<mpsc::Sender<Event>>,
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

    /// Like [`Self::send`], and waits for room before the desk, which waits for no receiver: if the end of something
    /// were dropped, its beginning would be repeated for good.
    pub async fn send_in_turn(&self, names: &[String], message: Message) {
        let Some(queue) = &self.queue else { return };
        if queue.send(Event::Told(Box::new(message), names.to_vec())).await.is_err() {
            self.metrics.notification(NotificationFate::Dropped);
        }
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
