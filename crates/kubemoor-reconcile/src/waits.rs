//! The backoff between repairs of an object, and the times at which releases and objects are visited without an event.
//! Nothing is polled, and a clock that is set back does not prolong a wait.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::note_effort;
use kubemoor_declare::model::{ObjectId, ReleaseId, Sweep};
use kubemoor_policy::guarded::{SuspendedReleases, Suspension};

/// The time by which one task's `now` can be behind another's.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(1);

/// The time from `then` to `now`; the maximum if the clock was set back.
pub(crate) fn elapsed(then: Timestamp, now: Timestamp) -> Duration {
    if is_set_back(then, now) {
        return Duration::MAX;
    }
    Duration::try_from(now.duration_since(then)).unwrap_or_default()
}

pub(crate) fn is_set_back(then: Timestamp, now: Timestamp) -> bool {
    now.duration_since(then) < -TOLERANCE
}

const AT_ONCE: u32 = 3;

const FIRST: Duration = Duration::from_secs(1);

const LONGEST: Duration = Duration::from_secs(300);

/// The count starts again after this time without a repair.
const PEACE: Duration = Duration::from_secs(600);

/// Up to this number of objects, idle ones are not dropped.
const ROOM: usize = 64;

pub(crate) struct Backoff {
    attempts: HashMap<ObjectId, RepairAttempts>,
    sweep: Sweep,
}

#[derive(Clone, Copy)]
struct RepairAttempts {
    count: u32,
    /// The attempts without a response since the last response.
    unanswered: u32,
    last: Timestamp,
    forgiven: u32,
}

/// The wait after a number of failed tries: `first`, then twice as long each time, at most
/// `longest`. It is shorter by up to a quarter, depending on the name of what is tried, so that
/// many waits do not end at once.
pub fn backoff_delay(first: Duration, tries: u32, longest: Duration, name: &str) -> Duration {
    let wait = first.saturating_mul(2_u32.saturating_pow(tries)).min(longest);
    let seed = tries.wrapping_add(AT_ONCE);
    let spread = name.bytes().fold(seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    wait.mul_f64(1.0 - f64::from(spread % 100) / 400.0)
}

impl Backoff {
    /// The time until the next attempt for `object`; `None` if it may be made now.
    pub(crate) fn until(&self, object: &ObjectId, now: Timestamp) -> Option<Duration> {
        let RepairAttempts { count, last, .. } = self.attempts.get(object)?;
        let exponent = count.checked_sub(AT_ONCE)?;
        // The jitter depends on the attempt's number, so that the guard is not in step with the other writer.
        let wait = backoff_delay(FIRST, exponent, LONGEST, &object.name);
        wait.checked_sub(elapsed(*last, now)).filter(|left| !left.is_zero())
    }

    pub(crate) fn is_contested(&self, object: &ObjectId, now: Timestamp) -> bool {
        self.attempts.get(object).is_some_and(|it| {
            it.count.saturating_sub(it.unanswered) >= AT_ONCE && elapsed(it.last, now) < PEACE
        })
    }

    /// Records that another writer undid repairs of an object before this process started.
    pub(crate) fn contest(&mut self, object: &ObjectId, now: Timestamp) {
        let attempts = self.attempts.entry(object.clone()).or_insert(RepairAttempts::none(now));
        attempts.count = attempts.count.max(AT_ONCE.saturating_add(attempts.unanswered));
    }

    /// Forgets earlier attempts, because another writer reverted the drift. Returns false if that happens repeatedly: a
    /// writer that alternates must not control how often the guard writes.
    pub(crate) fn reset_after_revert(&mut self, object: &ObjectId, now: Timestamp) -> bool {
        let attempts = self.recent(object, now);
        let is_forgiven = attempts.forgiven < AT_ONCE;
        if is_forgiven {
            *attempts = RepairAttempts { forgiven: attempts.forgiven + 1, ..RepairAttempts::none(now) };
        }
        is_forgiven
    }

    pub(crate) fn forget(&mut self, object: &ObjectId) {
        self.attempts.remove(object);
    }

    pub(crate) fn attempt(&mut self, object: &ObjectId, now: Timestamp) -> u32 {
        let attempts = self.recent(object, now);
        let answered = attempts.count.saturating_sub(attempts.unanswered);
        *attempts =
            RepairAttempts { count: answered.saturating_add(1), unanswered: 0, last: now, ..*attempts };
        attempts.count
    }

    /// The last attempt wrote nothing, because somebody else had just written the object: it does not count.
    pub(crate) fn retract(&mut self, object: &ObjectId) {
        if let Some(attempts) = self.attempts.get_mut(object) {
            attempts.count = attempts.count.saturating_sub(1);
        }
    }

    /// Records an attempt without a response: an unavailable API server is called less and less often.
    pub(crate) fn attempt_unanswered(&mut self, object: &ObjectId, now: Timestamp) {
        let attempts = self.recent(object, now);
        attempts.count = attempts.count.saturating_add(1);
        attempts.unanswered = attempts.unanswered.saturating_add(1);
        attempts.last = now;
    }

    fn recent(&mut self, object: &ObjectId, now: Timestamp) -> &mut RepairAttempts {
        if self.attempts.get(object).is_some_and(|it| elapsed(it.last, now) >= PEACE) {
            self.attempts.remove(object);
        }
        if self.sweep.is_due(self.attempts.len()) {
            note_effort(self.attempts.len());
            self.attempts.retain(|_, it| elapsed(it.last, now) < PEACE);
            self.sweep.note_left(self.attempts.len());
        }
        self.attempts.entry(object.clone()).or_insert(RepairAttempts::none(now))
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self { attempts: HashMap::new(), sweep: Sweep::above(ROOM) }
    }
}

impl RepairAttempts {
    fn none(now: Timestamp) -> Self {
        Self { count: 0, unanswered: 0, last: now, forgiven: 0 }
    }
}

/// Times at which something is done without an event, one for each key.
#[derive(Debug)]
pub(crate) struct Timetable<K> {
    times: BTreeMap<K, Timestamp>,
    /// The same, the soonest first.
    soonest: BTreeSet<(Timestamp, K)>,
}

impl<K: Clone + Ord> Timetable<K> {
    pub(crate) fn set(&mut self, key: &K, at: Option<Timestamp>) {
        if let Some(before) = self.times.remove(key) {
            self.soonest.remove(&(before, key.clone()));
        }
        if let Some(at) = at {
            self.times.insert(key.clone(), at);
            self.soonest.insert((at, key.clone()));
        }
    }

    pub(crate) fn schedule_by(&mut self, key: &K, at: Timestamp) {
        if self.times.get(key).is_none_or(|before| at < *before) {
            self.set(key, Some(at));
        }
    }

    pub(crate) fn bring_all_forward(&mut self, at: Timestamp) {
        let keys: Vec<K> = self.times.keys().cloned().collect();
        keys.iter().for_each(|key| self.schedule_by(key, at));
    }

    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.soonest.first().map(|(at, _)| *at)
    }

    pub(crate) fn take_due(&mut self, now: Timestamp) -> Vec<K> {
        let mut due = Vec::new();
        while self.next().is_some_and(|at| at <= now) {
            let Some((_, key)) = self.soonest.pop_first() else { break };
            self.times.remove(&key);
            due.push(key);
        }
        due
    }
}

impl<K> Default for Timetable<K> {
    fn default() -> Self {
        Self { times: BTreeMap::new(), soonest: BTreeSet::new() }
    }
}

/// The releases with suspended repairs; a suspension has no effect after its end, even before it is removed.
#[derive(Debug, Default)]
pub(crate) struct Suspensions(pub(crate) SuspendedReleases);

impl Suspensions {
    pub(crate) fn set(&mut self, release: ReleaseId, suspension: Option<Suspension>) {
        match suspension {
            Some(suspension) => self.0.insert(release, suspension),
            None => self.0.remove(&release),
        };
    }

    pub(crate) fn get(&self, release: &ReleaseId, now: Timestamp) -> Option<&Suspension> {
        self.0.get(release).filter(|suspension| !suspension.is_over(now))
    }

    pub(crate) fn next_end(&self) -> Option<Timestamp> {
        self.0.values().filter_map(|suspension| suspension.until).min()
    }

    pub(crate) fn take_ended(&mut self, now: Timestamp) -> Vec<ReleaseId> {
        let ended = self.0.iter().filter(|(_, suspension)| suspension.is_over(now));
        let mut ended: Vec<ReleaseId> = ended.map(|(release, _)| release.clone()).collect();
        ended.sort();
        ended.iter().for_each(|release| drop(self.0.remove(release)));
        ended
    }
}

#[cfg(test)]
mod tests;
