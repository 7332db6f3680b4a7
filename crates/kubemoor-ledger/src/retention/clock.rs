//! Whether the machine's clock is good enough to call a row old by it.
//!
//! Entry point: [`Clock::look`]. Invariant: a clock that was just set, or that makes every row too old at a start, is
//! not believed for an hour. Pure state.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// How long a clock must go evenly after it was set.
const STEADY: Duration = Duration::from_secs(3600);

/// How far a clock that goes evenly may move between two looks.
const TOLERANCE: SignedDuration = SignedDuration::from_mins(1);

/// The clock as it was seen.
pub(super) struct Clock {
    last: (Instant, Timestamp),
    /// When it was last found to be set, or not to fit the rows.
    doubted: Option<Instant>,
}

impl Clock {
    /// The clock at a start; `newest` is the time of the newest row, and `age` that at which rows are deleted.
    pub(super) fn start(now: (Instant, Timestamp), newest: Option<Timestamp>, age: Duration) -> Self {
        let age = SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX);
        let fits = newest.is_none_or(|newest| now.1.duration_since(newest) <= age);
        Self { last: now, doubted: (!fits).then_some(now.0) }
    }

    /// Looks at the clock again. Returns whether rows may be deleted by it.
    pub(super) fn look(&mut self, now: (Instant, Timestamp)) -> bool {
        let passed = SignedDuration::try_from(now.0.saturating_duration_since(self.last.0));
        let shown = now.1.duration_since(self.last.1);
        let off = (shown - passed.unwrap_or(SignedDuration::MAX)).abs();
        if off > TOLERANCE {
            self.doubted = Some(now.0);
        }
        self.last = now;
        self.doubted.is_none_or(|doubted| now.0.saturating_duration_since(doubted) >= STEADY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAYS: Duration = Duration::from_secs(90 * 86_400);

    /// Starts a clock when the newest row is `newest` seconds old, and looks at it after these seconds, when it shows those.
    #[track_caller]
    fn check(newest: Option<i64>, looks: &[(u64, i64)], expected: &[bool]) {
        let (start, time): (_, Timestamp) = (Instant::now(), "2026-05-01T12:00:00Z".parse().unwrap());
        let newest = newest.map(|seconds| time - SignedDuration::from_secs(seconds));
        let mut clock = Clock::start((start, time), newest, DAYS);
        let look = |(passed, shown): &(u64, i64)| {
            clock.look((start + Duration::from_secs(*passed), time + SignedDuration::from_secs(*shown)))
        };
        assert_eq!(looks.iter().map(look).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn rows_are_not_deleted_by_a_clock_that_jumped() {
        const YEAR: i64 = 365 * 86_400;
        check(None, &[(0, 0), (600, 600)], &[true, true]);
        check(Some(60), &[(0, 0), (600, 601)], &[true, true]);
        check(Some(60), &[(0, 0), (600, 600 + YEAR), (1200, 1200 + YEAR)], &[true, false, false]);
        check(Some(60), &[(600, 600 + YEAR), (4201, 4201 + YEAR)], &[false, true]);
        check(Some(60), &[(600, 600 - YEAR), (1200, 1200)], &[false, false]);
        // A machine that starts with a wrong clock, or whose guard was away for long.
        check(Some(YEAR), &[(0, 0), (3599, 3599), (3601, 3601)], &[false, false, true]);
    }
}
