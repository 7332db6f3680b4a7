//! How much time has passed by a clock that can be set.
//!
//! Entry points: [`elapsed`], [`is_set_back`]. Invariant: a clock that was set back keeps nobody
//! waiting: what was to come later counts as long ago. Must not read a clock.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// By how much one task's `now` can be behind another's.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(1);

/// The time from `then` to `now`; the longest there is if the clock was set back.
pub(crate) fn elapsed(then: Timestamp, now: Timestamp) -> Duration {
    if is_set_back(then, now) {
        return Duration::MAX;
    }
    Duration::try_from(now.duration_since(then)).unwrap_or_default()
}

/// Whether the clock was set back between `then` and `now`.
pub(crate) fn is_set_back(then: Timestamp, now: Timestamp) -> bool {
    now.duration_since(then) < -TOLERANCE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_before_now_is_elapsed_and_a_clock_set_back_ends_every_wait() {
        let then: Timestamp = "2026-05-01T12:00:00Z".parse().unwrap();
        for (millis, expected) in [
            (0, Duration::ZERO),
            (1500, Duration::from_millis(1500)),
            (-1000, Duration::ZERO),
            (-1001, Duration::MAX),
            (-86_400_000, Duration::MAX),
        ] {
            assert_eq!(elapsed(then, then + SignedDuration::from_millis(millis)), expected, "{millis}");
        }
    }
}
