//! Tells receivers of drifts and repairs: CloudEvents 1.0 over HTTP, in
//! structured mode.
//!
//! Entry points: [`file::read`] for who is told, [`Notifiers::start`], then
//! [`Notifiers::send`]. Invariant: a sender never waits: each receiver has a
//! queue of its own, bounded, and what does not fit is dropped and counted. The
//! same is told once within `AGAIN`. No value of a Secret and no header of a
//! notifier reaches a log. Must not know a cluster.

mod cloudevent;
mod delivery;
pub mod file;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::delivery::Delivery;
use self::file::Notifier;
use crate::metrics::{NoticeMetrics, NotificationFate};
use crate::model::{ObjectId, ReleaseId};
use crate::verdict::edit::Finding;

/// Messages that wait for one receiver.
const WAITING: usize = 256;

/// How long the same message is not told again.
const AGAIN: Duration = Duration::from_secs(600);

/// Messages that are remembered for that.
const REMEMBERED: usize = 4096;

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// Something is not as declared.
    Drifted,
    /// It is as declared again.
    Repaired,
    /// A repair did not succeed.
    NotRepaired,
}

/// What a receiver is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// What it is about.
    pub subject: Subject,
    /// The release.
    pub release: ReleaseId,
    /// The revision that the object is held to.
    pub revision: u64,
    /// The object.
    pub object: ObjectId,
    /// What is wrong with it, in one word.
    pub drift: &'static str,
    /// Its fields that are not as declared.
    pub fields: Vec<Finding>,
    /// The field manager that wrote them.
    pub by: Option<String>,
    /// Since when the guard knows.
    pub since: Timestamp,
    /// Why it is not repaired.
    pub detail: Option<String>,
}

/// All receivers. Dropping it lets what waits be delivered.
pub struct Notifiers {
    receivers: Vec<Receiver>,
    told: Mutex<HashMap<u64, Instant>>,
    source: Arc<str>,
    metrics: NoticeMetrics,
}

struct Receiver {
    name: String,
    queue: mpsc::Sender<Arc<Vec<u8>>>,
}

impl Notifiers {
    /// Starts to deliver to `notifiers`, as tasks of `tasks`, until `stop`. Then
    /// what waits has a moment left. `source` names this cluster.
    ///
    /// # Errors
    /// When no HTTP client can be made of what a notifier says.
    pub fn start(
        notifiers: Vec<Notifier>,
        source: &str,
        metrics: &NoticeMetrics,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Result<Self, file::NotifierError> {
        let mut receivers = Vec::new();
        for notifier in notifiers {
            let (queue, waiting) = mpsc::channel(WAITING);
            let name = notifier.name.clone();
            let delivery = Delivery::new(notifier, metrics.clone())?;
            tasks.spawn(delivery.run(waiting, stop.clone()));
            receivers.push(Receiver { name, queue });
        }
        Ok(Self { receivers, told: Mutex::default(), source: source.into(), metrics: metrics.clone() })
    }

    /// Tells the receivers `names`, or all if none is named. Never waits.
    pub fn send(&self, names: &[String], message: Message) {
        let receivers =
            || self.receivers.iter().filter(|receiver| names.is_empty() || names.contains(&receiver.name));
        if receivers().next().is_none() {
            return;
        }
        if self.is_told(&message) {
            self.metrics.notification(NotificationFate::Repeated);
            return;
        }
        let body = Arc::new(cloudevent::body(&message, &self.source, Timestamp::now()));
        for receiver in receivers() {
            if receiver.queue.try_send(Arc::clone(&body)).is_err() {
                self.metrics.notification(NotificationFate::Dropped);
            }
        }
    }

    /// Whether the same was told a moment ago; it is from now on.
    fn is_told(&self, message: &Message) -> bool {
        let now = Instant::now();
        let key = key(message);
        let mut told = self.told.lock();
        told.retain(|_, at| now.duration_since(*at) < AGAIN);
        if told.len() >= REMEMBERED {
            let oldest = told.iter().min_by_key(|(_, at)| **at).map(|(key, _)| *key);
            oldest.and_then(|oldest| told.remove(&oldest));
        }
        told.insert(key, now).is_some()
    }
}

/// Tells messages apart. Each drift is known from a time of its own: one that
/// comes back after a repair is another.
fn key(message: &Message) -> u64 {
    let Message { subject, release, revision, object, drift, fields, by: _, since, detail } = message;
    let mut hasher = DefaultHasher::new();
    (subject, release, revision, object, drift, since, detail).hash(&mut hasher);
    for field in fields {
        field.path.to_string().hash(&mut hasher);
        field.new.as_ref().map(ToString::to_string).hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests;
