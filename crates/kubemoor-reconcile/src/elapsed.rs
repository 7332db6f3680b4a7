//! The time that has passed by a clock that can be set back.
//!
//! Entry points: [`elapsed`], [`is_set_back`]. Invariant: a clock that was set back prolongs no
//! wait: a time that was in the future counts as long ago. Must not read a clock.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// The time by which one task's `now` can be behind another's.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(1);

/// The time from `then` to `now`; the maximum if the clock was set back.
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
    fn elapsed_time_is_maximal_when_the_clock_is_set_back() {
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
