//! When an API server is asked again that gave no watch.
//!
//! Entry point: [`Pace`]. Invariant: one that answers with errors is asked ever more seldom, and one that was away is
//! followed soon after it is back. Safe to cancel.

use std::time::Duration;

use kube::runtime::watcher::DefaultBackoff;
use tokio::time::{Instant, sleep_until};

use crate::client::call::CallError;

/// How long after nobody answered at all it is tried again: asking costs a server that is away nothing, and one that
/// is back is to be followed at once.
pub(super) const AWAY: Duration = Duration::from_secs(1);

/// How long after that a server may refuse everything, because it does not know anybody's rights yet, and how often it
/// is asked meanwhile.
pub(super) const RETURNING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_millis(500));

/// After a watch that lasted so long, its end is no failure.
const STEADY: Duration = Duration::from_secs(10);

/// When to ask again.
#[derive(Default)]
pub(super) struct Pace {
    /// Not before this instant.
    not_before: Option<Instant>,
    /// When nobody answered at all last.
    away: Option<Instant>,
    backoff: DefaultBackoff,
}

impl Pace {
    /// Waits until it is time to ask.
    pub(super) async fn wait(&mut self) {
        if let Some(instant) = self.not_before {
            sleep_until(instant).await;
            self.not_before = None;
        }
    }

    /// A server that answers with an error is asked less and less often.
    pub(super) fn pause_after(&mut self, error: &CallError) {
        if let CallError::Unreachable { .. } = error {
            let now = Instant::now();
            self.away = Some(now);
            self.not_before = Some(now + AWAY);
        } else {
            self.pause();
        }
    }

    /// A watch ended before its time, after it had `lasted` so long.
    pub(super) fn pause_after_end(&mut self, lasted: Duration) {
        if lasted >= STEADY {
            self.backoff = DefaultBackoff::default();
        }
        self.pause();
    }

    /// Waits longer than the last time, unless the server has just come back.
    fn pause(&mut self) {
        let (now, (returning, often)) = (Instant::now(), RETURNING);
        let is_back = self.away.is_some_and(|away| now < away + returning);
        let pause = if is_back { Some(often) } else { self.backoff.next() };
        self.not_before = pause.map(|pause| now + pause);
    }
}
