//! The releases whose repairs people have suspended, and the ends of these suspensions.
//!
//! Entry point: [`Suspensions`]. Invariant: a suspension has no effect after its end, even before
//! it is removed; nothing is polled. Must not read a clock.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use kubemoor_declare::model::ReleaseId;
use kubemoor_policy::suspension::{Suspended, Suspension};

/// The suspended releases.
#[derive(Debug, Default)]
pub(crate) struct Suspensions {
    of: BTreeMap<ReleaseId, Suspension>,
    /// Those of `of` that end, the soonest first.
    ends: BTreeSet<(Timestamp, ReleaseId)>,
}

impl Suspensions {
    /// Begins with these suspensions.
    pub(crate) fn new(suspended: Suspended) -> Self {
        let mut suspensions = Self::default();
        for (release, suspension) in suspended {
            suspensions.set(release, Some(suspension));
        }
        suspensions
    }

    /// Suspends a release, or ends its suspension.
    pub(crate) fn set(&mut self, release: ReleaseId, suspension: Option<Suspension>) {
        if let Some(end) = self.of.remove(&release).and_then(|before| before.until) {
            self.ends.remove(&(end, release.clone()));
        }
        let Some(suspension) = suspension else { return };
        if let Some(end) = suspension.until {
            self.ends.insert((end, release.clone()));
        }
        self.of.insert(release, suspension);
    }

    /// The suspension of a release at `now`.
    pub(crate) fn of(&self, release: &ReleaseId, now: Timestamp) -> Option<&Suspension> {
        self.of.get(release).filter(|suspension| !suspension.is_over(now))
    }

    /// When the next one ends.
    pub(crate) fn next_end(&self) -> Option<Timestamp> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// Removes and returns the releases whose suspension has ended by `now`.
    pub(crate) fn take_ended(&mut self, now: Timestamp) -> Vec<ReleaseId> {
        let mut ended = Vec::new();
        while self.next_end().is_some_and(|end| end <= now) {
            let Some((_, release)) = self.ends.pop_first() else { break };
            self.of.remove(&release);
            ended.push(release);
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspension_that_was_prolonged_or_ended_early_has_one_end() {
        let release = |name: &str| ReleaseId { namespace: "n".into(), name: name.into() };
        let at = |second| Timestamp::from_second(second).unwrap();
        let until = |end: Option<i64>| Suspension { until: end.map(at), ..Suspension::default() };
        let mut suspensions = Suspensions::new(Suspended::from([(release("a"), until(Some(5)))]));
        for (name, suspension) in
            [("a", Some(until(Some(9)))), ("b", Some(until(Some(3)))), ("b", None), ("c", Some(until(None)))]
        {
            suspensions.set(release(name), suspension);
        }
        assert_eq!(suspensions.next_end(), Some(at(9)));
        assert_eq!(suspensions.take_ended(at(8)), []);
        assert!(suspensions.of(&release("a"), at(8)).is_some());
        assert!(suspensions.of(&release("a"), at(9)).is_none(), "before it is taken");
        assert_eq!(suspensions.take_ended(at(9)), [release("a")]);
        assert_eq!(suspensions.next_end(), None);
        assert!(suspensions.of(&release("c"), at(i64::from(u32::MAX))).is_some());
    }
}
