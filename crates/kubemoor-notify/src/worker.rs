//! Delivers what [`super::Notifiers`] takes: the desk decides, then each receiver has a delivery of its own.
//!
//! Entry point: [`Worker::start`]. Invariant: nothing waits for a receiver: a message beyond its queue is dropped and
//! counted. Must not decide which receiver gets a message.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::delivery::{Delivery, Post};
use super::desk::{Event, NotificationScheduler, Output};
use super::file::{NotifierError, Settings};
use kubemoor_runtime::metrics::{NoticeMetrics, NotificationFate};

/// Posts that wait for one receiver.
pub(super) const WAITING: usize = 256;

/// The longest pause between looks at the clock, which may be set.
const LOOK: Duration = Duration::from_secs(60);

/// Delivers what [`super::Notifiers`] takes.
pub struct Worker {
    pub(super) settings: Settings,
    pub(super) events: mpsc::Receiver<Event>,
    pub(super) metrics: NoticeMetrics,
}

/// A desk at work.
struct Running<L> {
    desk: NotificationScheduler,
    receivers: Vec<mpsc::Sender<Post>>,
    leads: L,
    metrics: NoticeMetrics,
}

impl Worker {
    /// Starts to deliver until `stop`; then the waiting messages have a moment left. `source` names this
    /// cluster, and `leads` says whether this replica reports what all replicas see. The returned future ends
    /// after that, or as soon as the delivery to a receiver has ended or broken down.
    ///
    /// # Errors
    /// When the settings of a notifier give no HTTP client.
    pub fn start(
        self,
        source: &str,
        leads: impl Fn() -> bool + Send + Sync + 'static,
        stop: CancellationToken,
    ) -> Result<impl Future<Output = Result<(), JoinError>> + Send + 'static, NotifierError> {
        let Self { settings: Settings { notifiers, denial_window }, events, metrics } = self;
        let source: Arc<str> = source.into();
        let (mut receivers, mut rules, mut tasks) = (Vec::new(), Vec::new(), JoinSet::new());
        for notifier in notifiers {
            let (queue, waiting) = mpsc::channel(WAITING);
            rules.push(notifier.rules());
            let delivery = Delivery::new(notifier, Arc::clone(&source), metrics.clone())?;
            tasks.spawn(delivery.run(waiting, stop.clone()));
            receivers.push(queue);
        }
        let running =
            Running { desk: NotificationScheduler::new(rules, denial_window), receivers, leads, metrics };
        // Without receivers nobody sends it anything.
        if !running.receivers.is_empty() {
            tasks.spawn(running.run(events, stop.clone()));
        }
        Ok(supervise(tasks, stop))
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

/// Waits for `stop` and then for all tasks. A task that ends sooner ends the waiting.
pub(super) async fn supervise(mut tasks: JoinSet<()>, stop: CancellationToken) -> Result<(), JoinError> {
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
