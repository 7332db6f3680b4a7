//! The times at which the statuses of releases are checked.
//!
//! Entry point: [`Due`]. Invariant: each release has one entry, with the earliest of the requested
//! times, and one more if it has agreements to write; the next one is found without a walk over the
//! others; repeated failures of a write lead to longer pauses. Must not write anything.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use kubemoor_declare::model::ReleaseId;
use kubemoor_reconcile::backoff::growing;

/// After a write that failed, the time until the next.
const AGAIN: Duration = Duration::from_secs(10);

/// The longest such time.
const LONGEST: Duration = Duration::from_secs(300);

/// The releases to check, with the earliest time for each.
#[derive(Default)]
pub(super) struct Due {
    /// Those with agreements to write, which come before all others: only the guard that has seen them knows them.
    first: Queue,
    others: Queue,
    /// The number of consecutive failed writes.
    failures: HashMap<ReleaseId, u32>,
}

/// Releases, each with one time.
#[derive(Default)]
struct Queue {
    times: HashMap<ReleaseId, Instant>,
    soonest: BTreeSet<(Instant, ReleaseId)>,
}

impl Queue {
    fn next(&self) -> Option<Instant> {
        self.soonest.first().map(|(at, _)| *at)
    }

    fn pop(&mut self) -> Option<ReleaseId> {
        let (_, release) = self.soonest.pop_first()?;
        self.times.remove(&release);
        if self.times.is_empty() {
            // At the start all releases are due at once.
            self.times.shrink_to_fit();
        }
        Some(release)
    }

    fn add(&mut self, release: ReleaseId, at: Instant) {
        let before = self.times.get(&release).copied();
        if before.is_some_and(|before| before <= at) {
            return;
        }
        if let Some(before) = before {
            self.soonest.remove(&(before, release.clone()));
        }
        self.times.insert(release.clone(), at);
        self.soonest.insert((at, release));
    }
}

impl Due {
    /// Forgets how often writes have failed.
    pub(super) fn forget_failures(&mut self) {
        self.failures.clear();
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.first.next().into_iter().chain(self.others.next()).min()
    }

    /// The number of releases to check.
    pub(super) fn count(&self) -> usize {
        let is_only_first = |release: &&ReleaseId| !self.others.times.contains_key(*release);
        self.others.times.len() + self.first.times.keys().filter(is_only_first).count()
    }

    /// Removes and returns the release that is due first, and whether it has agreements to write.
    pub(super) fn pop(&mut self) -> Option<(ReleaseId, bool)> {
        let now = Instant::now();
        if self.first.next().is_some_and(|at| at <= now) {
            return self.pop_first().map(|release| (release, true));
        }
        self.others.pop().map(|release| (release, false))
    }

    /// Removes and returns a release with agreements to write, due or not.
    pub(super) fn pop_first(&mut self) -> Option<ReleaseId> {
        self.first.pop()
    }

    /// Schedules a check of a release after `pause`, or earlier.
    pub(super) fn look_at(&mut self, release: ReleaseId, pause: Duration) {
        self.others.add(release, Instant::now() + pause);
    }

    /// Schedules a check of a release with agreements to write.
    pub(super) fn look_at_first(&mut self, release: ReleaseId, pause: Duration) {
        self.first.add(release, Instant::now() + pause);
    }

    /// Schedules another try after a failed write; each pause is longer than the last.
    pub(super) fn retry(&mut self, release: ReleaseId) {
        let failures = self.failures.entry(release.clone()).or_default();
        let pause = growing(AGAIN, *failures, LONGEST, &release.name);
        *failures = failures.saturating_add(1);
        self.look_at(release, pause);
    }

    /// Forgets failed writes, because a write succeeded or the release is gone.
    pub(super) fn forgive(&mut self, release: &ReleaseId) {
        self.failures.remove(release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(name: &str) -> ReleaseId {
        ReleaseId { namespace: "n".into(), name: name.into() }
    }

    #[tokio::test(start_paused = true)]
    async fn each_release_is_due_once_at_its_soonest_time() {
        let mut due = Due::default();
        let start = Instant::now();
        for (name, seconds) in [("a", 5), ("b", 3), ("a", 2), ("a", 9)] {
            due.look_at(release(name), Duration::from_secs(seconds));
        }
        assert_eq!((due.next(), due.count()), (Some(start + Duration::from_secs(2)), 2));
        let popped = [due.pop(), due.pop(), due.pop()].map(|it| it.map(|(release, _)| release));
        assert_eq!(popped, [Some(release("a")), Some(release("b")), None]);
        assert_eq!((due.next(), due.count()), (None, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn agreements_come_before_all_other_changes() {
        let mut due = Due::default();
        for name in ["a", "b", "c"] {
            due.look_at(release(name), Duration::ZERO);
        }
        due.look_at_first(release("c"), Duration::from_millis(100));
        assert_eq!((due.pop(), due.count()), (Some((release("a"), false)), 2));
        tokio::time::advance(Duration::from_millis(100)).await;
        let popped: Vec<_> = std::iter::from_fn(|| due.pop()).collect();
        assert_eq!(popped, [(release("c"), true), (release("b"), false), (release("c"), false)]);
    }

    #[tokio::test(start_paused = true)]
    async fn failing_write_is_tried_ever_more_seldom() {
        let mut due = Due::default();
        let mut pauses = Vec::new();
        for _ in 0..9 {
            due.retry(release("a"));
            pauses.push(due.next().unwrap() - Instant::now());
            assert_eq!(due.pop(), Some((release("a"), false)));
        }
        assert!(pauses[0] <= AGAIN && pauses[8] > LONGEST / 2 && pauses[8] <= LONGEST, "{pauses:?}");
        due.forgive(&release("a"));
        due.retry(release("a"));
        assert!(due.next().unwrap() - Instant::now() <= AGAIN);
    }
}
