//! Whether this process leads, as everybody asks it.
//!
//! Entry point: [`Leadership`]. Invariant: by this process's own clock, a lead ends at the time that the election
//! gave it, also in a process that was suspended meanwhile. Must not know the Lease.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::watch;
use tokio::time::Instant;

/// Whether this process leads. Cheap to clone; clones share the state.
#[derive(Clone, Debug)]
pub struct Leadership(Arc<Belief>);

#[derive(Debug)]
struct Belief {
    until: RwLock<Until>,
    told: watch::Sender<bool>,
}

/// Until when a process leads.
#[derive(Clone, Copy, Debug)]
enum Until {
    Never,
    Instant(Instant),
    Always,
}

impl Leadership {
    /// Of a process that knows of no other.
    pub fn alone() -> Self {
        Self::new(Until::Always)
    }

    /// Of a process that must write nothing.
    pub fn never() -> Self {
        Self::new(Until::Never)
    }

    /// Whether this process leads at this moment.
    pub fn holds(&self) -> bool {
        self.left().is_none_or(|left| !left.is_zero())
    }

    /// How long this process certainly leads; `None` without a limit, zero if it does not lead.
    pub fn left(&self) -> Option<Duration> {
        match *self.0.until.read() {
            Until::Never => Some(Duration::ZERO),
            Until::Instant(until) => Some(until.saturating_duration_since(Instant::now())),
            Until::Always => None,
        }
    }

    /// Tells when the lead is gained or lost. After a stop of the process it may
    /// tell so late: a write asks [`Leadership::holds`].
    pub fn watch(&self) -> watch::Receiver<bool> {
        self.0.told.subscribe()
    }

    /// Of a process that leads until that time.
    #[cfg(test)]
    pub(crate) fn until(until: Instant) -> Self {
        Self::new(Until::Instant(until))
    }

    pub(crate) fn lose(&self) {
        *self.0.until.write() = Until::Never;
        if self.0.told.send_if_modified(std::mem::take) {
            tracing::info!("this replica leads no more; it goes on judging edits");
        }
    }

    pub(super) fn gain(&self, until: Instant) {
        // If the lead had ended, another process may have led since.
        let is_renewal = self.holds();
        *self.0.until.write() = Until::Instant(until);
        let is_news = |told: &mut bool| !std::mem::replace(told, true) || !is_renewal;
        if self.0.told.send_if_modified(is_news) {
            tracing::info!("this replica leads: it repairs, registers and writes statuses");
        }
    }

    fn new(until: Until) -> Self {
        let told = watch::Sender::new(matches!(until, Until::Always));
        Self(Arc::new(Belief { until: RwLock::new(until), told }))
    }
}
