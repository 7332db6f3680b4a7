//! Pauses before an API server that failed to give a watch is asked again.
//!
//! Entry point: [`Pace`]. Invariant: a server that was down or busy is followed within five seconds after it returns,
//! however long it was away, unless it asks for a longer pause. After other refusals the pauses grow. Safe to cancel.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use kube::runtime::watcher::DefaultBackoff;
use tokio::time::{Instant, sleep_until};

use crate::client::call::CallError;

/// The pause after an attempt that got no answer at all: asking costs a server that is down nothing, and it
/// should be followed as soon as it returns.
pub(super) const AWAY: Duration = Duration::from_secs(1);

/// After an answer that a server is busy or broken (429, 5xx): the first pause, and the one to which pauses grow. Each is
/// prolonged by up to its own length, by chance, so that guards do not ask at the same moment.
pub(super) const BUSY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(2));

/// The longest pause that a server may ask for.
pub(super) const ASKED: Duration = Duration::from_secs(30);

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
    /// The time of the last answer of a busy server, and the pauses after it.
    busy: Option<(Instant, ExponentialBackoff)>,
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
        let now = Instant::now();
        if let CallError::Unreachable { .. } = error {
            self.away = Some(now);
            self.not_before = Some(now + AWAY);
        } else if error.is_outage() {
            self.pause_busy(error.retry_after());
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

    /// Waits for a server that is busy, and for as long as it has `asked` for.
    fn pause_busy(&mut self, asked: Option<Duration>) {
        let (now, (first, longest)) = (Instant::now(), BUSY);
        let calm = self.busy.take().filter(|(last, _)| *last + ASKED * 2 > now).map(|(_, pauses)| pauses);
        let mut pauses = calm.unwrap_or_else(|| {
            let growing = ExponentialBuilder::default().with_min_delay(first).with_max_delay(longest);
            growing.without_max_times().with_jitter().build()
        });
        let pause = pauses.next().unwrap_or(longest);
        self.not_before = Some(now + asked.map_or(pause, |asked| asked.min(ASKED) + pause / 2));
        self.busy = Some((now, pauses));
    }

    /// Waits longer than the last time, unless the server has just come back.
    fn pause(&mut self) {
        let (now, (returning, often)) = (Instant::now(), RETURNING);
        let is_back = self.away.is_some_and(|away| now < away + returning);
        let pause = if is_back { Some(often) } else { self.backoff.next() };
        self.not_before = pause.map(|pause| now + pause);
    }
}
