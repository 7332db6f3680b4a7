//! Stops repairs while so much drifts at once that somebody is at work on the
//! whole cluster, or the guard is wrong.
//!
//! Entry point: [`Brake`]. Invariant: once on, it stays on until a person asks
//! for a repair while less drifts. What drifts for a moment, such as while news
//! of an uninstallation are on their way, does not set it. Pure state.

use std::time::Duration;

use tokio::time::Instant;

/// More drifting objects than this, and than [`SHARE`], stop repairs.
const MOST: usize = 10;

/// The share of all declared objects, as a divisor: a tenth.
const SHARE: usize = 10;

/// For how long so much has to drift. Nothing is repaired meanwhile.
const LASTING: Duration = Duration::from_secs(3);

/// Whether repairs are stopped.
#[derive(Debug, Default)]
pub(super) struct Brake {
    on: bool,
    /// Since when too much drifts.
    since: Option<Instant>,
}

/// What the brake says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pull {
    /// Go on.
    Free,
    /// Look again soon: it may be for a moment only.
    Slipping,
    /// Repairs stop now.
    Sets,
    /// Repairs are stopped.
    On,
}

impl Brake {
    /// `drifting` of `declared` objects drift, and could be repaired.
    pub(super) fn pull(&mut self, drifting: usize, declared: usize, now: Instant) -> Pull {
        if self.on {
            return Pull::On;
        }
        if !is_too_much(drifting, declared) {
            self.since = None;
            return Pull::Free;
        }
        let since = *self.since.get_or_insert(now);
        if now.duration_since(since) < LASTING {
            return Pull::Slipping;
        }
        self.on = true;
        Pull::Sets
    }

    /// A person asks for repairs, and besides what he asks for `drifting` of
    /// `declared` objects drift. Gives whether the brake goes off by that.
    pub(super) fn ease(&mut self, drifting: usize, declared: usize) -> bool {
        let off = self.on && !is_too_much(drifting, declared);
        if off {
            *self = Self::default();
        }
        off
    }

    /// Whether repairs are stopped.
    pub(super) fn is_on(&self) -> bool {
        self.on
    }
}

fn is_too_much(drifting: usize, declared: usize) -> bool {
    drifting > MOST && drifting.saturating_mul(SHARE) > declared
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_sets_when_too_much_drifts_for_long_and_eases_when_a_person_says_so() {
        let mut brake = Brake::default();
        let start = Instant::now();
        for (drifting, declared) in [(10, 20), (11, 110), (1000, 10_000)] {
            assert_eq!(brake.pull(drifting, declared, start), Pull::Free, "{drifting} of {declared}");
        }
        assert_eq!(brake.pull(11, 109, start), Pull::Slipping);
        assert_eq!(brake.pull(10, 109, start + LASTING / 2), Pull::Free);
        assert_eq!(brake.pull(11, 109, start + LASTING), Pull::Slipping);
        assert_eq!(brake.pull(12, 109, start + LASTING * 2), Pull::Sets);
        // Less drift alone is no person's word.
        assert_eq!(brake.pull(0, 109, start + LASTING * 3), Pull::On);
        assert!(!brake.ease(11, 109) && brake.is_on());
        assert!(brake.ease(10, 109) && !brake.is_on());
        assert!(!brake.ease(0, 109));
        assert_eq!(brake.pull(11, 109, start + LASTING * 9), Pull::Slipping);
    }
}
