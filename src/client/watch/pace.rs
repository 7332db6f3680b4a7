//! Pauses before an API server that failed to give a watch is asked again.
//!
//! Entry point: [`Pace`]. Invariant: the pauses grow while the server answers with errors. A server that was
//! down is followed soon after it returns. Safe to cancel.

use std::time::Duration;

use kube::runtime::watcher::DefaultBackoff;
use tokio::time::{Instant, sleep_until};

use crate::client::call::CallError;

/// The pause after an attempt that got no answer at all: asking costs a server that is down nothing, and it
/// should be followed as soon as it returns.
pub(super) const AWAY: Duration = Duration::from_secs(1);

/// After an outage a server may refuse everything for a while, because it does not know any rights yet: the
/// length of that while, and the pause between attempts.
pub(super) const RETURNING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_millis(500));

/// After a watch that lasted so long, its end is no failure.
const STEADY: Duration = Duration::from_secs(10);

/// When to ask again.
#[derive(Default)]
pub(super) struct Pace {
    /// Not before this instant.
    not_before: Option<Instant>,
    /// The time of the last attempt without any answer.
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

    /// The pauses grow while a server answers with errors.
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
