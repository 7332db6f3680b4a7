//! The times at which the loop looks at releases again without an event.
//!
//! Entry point: [`Agenda`]. Invariant: each release has one entry, with the earliest of the
//! requested times. Must not read a clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::Reconciler;
use kubemoor_declare::model::ReleaseId;
use kubemoor_helm::release::Release;

/// Releases and the times at which they are due.
#[derive(Default)]
pub(super) struct Agenda {
    times: BTreeMap<ReleaseId, Timestamp>,
    /// The same, the soonest first.
    soonest: BTreeSet<(Timestamp, ReleaseId)>,
}

impl Agenda {
    /// Takes the releases that are due by now.
    pub(super) fn take_due(&mut self, now: Timestamp) -> Vec<ReleaseId> {
        let mut due = Vec::new();
        while self.soonest.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, release)) = self.soonest.pop_first() else { break };
            self.times.remove(&release);
            due.push(release);
        }
        due
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.soonest.first().map(|(at, _)| *at)
    }

    /// Schedules another look at a release at that time, unless it is due earlier.
    pub(super) fn put_off(&mut self, release: &ReleaseId, at: Timestamp) {
        let before = self.times.get(release).copied();
        if before.is_some_and(|before| before <= at) {
            return;
        }
        if let Some(before) = before {
            self.soonest.remove(&(before, release.clone()));
        }
        self.times.insert(release.clone(), at);
        self.soonest.insert((at, release.clone()));
    }

    /// Makes all entries due at that time, unless they are due earlier.
    fn hurry(&mut self, at: Timestamp) {
        let releases: Vec<_> = self.times.keys().cloned().collect();
        releases.iter().for_each(|release| self.put_off(release, at));
    }
}

impl Reconciler {
    /// Schedules another look at a release after that time, or earlier.
    pub(super) fn put_off(&mut self, id: &ReleaseId, delay: Duration) {
        self.passes.agenda.put_off(id, self.after(delay));
    }

    /// Ends all waits, because the clock was set back: they would last longer by that much.
    pub(super) fn end_waits(&mut self) {
        self.drifts.end_waits();
        self.passes.agenda.hurry(self.now);
    }

    /// The time after `delay`.
    pub(super) fn after(&self, delay: Duration) -> Timestamp {
        let at = self.now.saturating_add(SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX));
        at.unwrap_or(Timestamp::MAX)
    }

    /// The time until an operation counts as dead, plus a moment.
    pub(super) fn until_locked(&self, release: &Release) -> Option<Duration> {
        let policy = self.known.policy(&release.id)?;
        let timeout = SignedDuration::try_from(policy.operation_timeout).ok()?;
        let left = timeout - self.now.duration_since(release.state.touched.max(release.state.created));
        let left = Duration::try_from(left).ok()?;
        Some(left + Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(name: &str) -> ReleaseId {
        ReleaseId { namespace: "n".into(), name: name.into() }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn all_releases_are_due_at_once_after_clock_moves_back() {
        let mut agenda = Agenda::default();
        for (name, second) in [("a", 9000), ("b", 3), ("c", 9999)] {
            agenda.put_off(&release(name), at(second));
        }
        agenda.hurry(at(5));
        assert_eq!(agenda.take_due(at(4)), [release("b")]);
        assert_eq!(agenda.take_due(at(5)), [release("a"), release("c")]);
        assert_eq!(agenda.next(), None);
    }

    #[test]
    fn release_is_due_once_at_its_earliest_scheduled_time() {
        let mut agenda = Agenda::default();
        for (name, second) in [("a", 5), ("b", 3), ("a", 2), ("a", 9)] {
            agenda.put_off(&release(name), at(second));
        }
        assert_eq!(agenda.next(), Some(at(2)));
        assert_eq!(agenda.take_due(at(1)), []);
        assert_eq!(agenda.take_due(at(9)), [release("a"), release("b")]);
        assert_eq!((agenda.next(), agenda.take_due(at(99))), (None, Vec::new()));
    }
}
