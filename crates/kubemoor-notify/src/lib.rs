//! Sends notifications to receivers over HTTP, each in its own format.
//!
//! No sender waits for a receiver: each receiver has a bounded queue, and a message beyond it is dropped and counted.
//! [`file::read`] gives the receivers, [`Notifiers::new`] the sender's handle and the [`Worker`] that delivers.

mod delivery;
pub mod file;
mod format;
pub mod message;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use self::delivery::Delivery;
use self::file::{Notifier, NotifierError};
pub use self::format::Format;
use self::message::{Notification, NotificationSubject};
use kubemoor_runtime::metrics::{NoticeMetrics, NotificationFate};

const WAITING: usize = 4096;

/// The time within which a receiver does not get the same message again.
const AGAIN: Duration = Duration::from_secs(600);

/// Maximum number of messages that are remembered for this.
const REMEMBERED: u64 = 4096;

/// Accepts messages for receivers. Cheap to clone.
#[derive(Clone)]
pub struct Notifiers(Arc<NotifiersState>);

struct NotifiersState {
    receivers: Vec<ReceiverQueue>,
    /// The sent messages: the receiver's index, and the message's fingerprint.
    recent: Cache<(usize, u64), ()>,
    leads: OnceLock<Box<dyn Fn() -> bool + Send + Sync>>,
    metrics: NoticeMetrics,
}

struct ReceiverQueue {
    name: String,
    queue: mpsc::Sender<Arc<Notification>>,
}

/// Delivers what [`Notifiers`] accepts.
pub struct Worker {
    notifiers: Notifiers,
    receivers: Vec<(Notifier, mpsc::Receiver<Arc<Notification>>)>,
}

impl Notifiers {
    /// The handle that accepts messages for these receivers, and the worker that delivers them.
    pub fn new(notifiers: Vec<Notifier>, metrics: &NoticeMetrics) -> (Self, Worker) {
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        for notifier in notifiers {
            let (queue, waiting) = mpsc::channel(WAITING);
            senders.push(ReceiverQueue { name: notifier.name.clone(), queue });
            receivers.push((notifier, waiting));
        }
        // The oldest are forgotten first.
        let recent = Cache::builder().eviction_policy(EvictionPolicy::lru());
        let notifiers = Self(Arc::new(NotifiersState {
            receivers: senders,
            recent: recent.max_capacity(REMEMBERED).time_to_live(AGAIN).build(),
            leads: OnceLock::new(),
            metrics: metrics.clone(),
        }));
        (notifiers.clone(), Worker { notifiers, receivers })
    }

    pub fn has_receivers(&self) -> bool {
        !self.0.receivers.is_empty()
    }

    /// Queues the message for the receivers `names`, or for all if none is named; never waits. Each replica sends its
    /// own denials. Everything else is seen by all replicas, so only the leader sends it.
    pub fn send(&self, names: &[String], message: Notification) {
        let NotifiersState { receivers, recent, leads, metrics } = &*self.0;
        if receivers.is_empty()
            || message.subject != NotificationSubject::Denied && !leads.get().is_some_and(|leads| leads())
        {
            return;
        }
        let (fingerprint, message) = (message.fingerprint(), Arc::new(message));
        for (number, receiver) in receivers.iter().enumerate() {
            if !names.is_empty() && !names.contains(&receiver.name) {
                continue;
            }
            if !recent.entry((number, fingerprint)).or_insert(()).is_fresh() {
                metrics.notification(NotificationFate::Repeated);
            } else if receiver.queue.try_send(Arc::clone(&message)).is_err() {
                recent.invalidate(&(number, fingerprint));
                metrics.notification(NotificationFate::Dropped);
            }
        }
    }
}

impl Worker {
    /// Delivers until `stop`, then spends a moment on the waiting messages. `source` names this cluster; `leads`
    /// returns whether this replica sends what all replicas see. The returned future completes after that, or as soon
    /// as the delivery to a receiver has ended or panicked.
    pub fn start(
        self,
        source: &str,
        leads: impl Fn() -> bool + Send + Sync + 'static,
        stop: CancellationToken,
    ) -> Result<impl Future<Output = Result<(), JoinError>> + Send + 'static, NotifierError> {
        let Self { notifiers: Notifiers(shared), receivers } = self;
        shared.leads.get_or_init(|| Box::new(leads));
        let mut tasks = JoinSet::new();
        for (notifier, queue) in receivers {
            let delivery = Delivery::new(notifier, source, shared.metrics.clone())?;
            tasks.spawn(delivery.run(queue, stop.clone()));
        }
        Ok(supervise(tasks, stop))
    }
}

/// Waits for `stop`, then for all tasks. Returns early if a task ends.
async fn supervise(mut tasks: JoinSet<()>, stop: CancellationToken) -> Result<(), JoinError> {
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        Some(ended) = tasks.join_next() => return ended,
    }
    while let Some(ended) = tasks.join_next().await {
        ended?;
    }
    Ok(())
}

/// Sends one receiver a test message; returns the status code and the start of the answer.
pub async fn test(notifier: Notifier, source: &str) -> Result<(u16, String), String> {
    let delivery =
        Delivery::new(notifier, source, NoticeMetrics::default()).map_err(|error| error.to_string())?;
    delivery.test(Notification::new(NotificationSubject::Test, Timestamp::now())).await
}

#[cfg(test)]
mod tests;
