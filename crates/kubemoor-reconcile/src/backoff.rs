//! The wait before an object is repaired again.
//!
//! Entry point: [`Backoff`]. Invariant: the first few repairs of an object do not wait; after that,
//! each wait is longer, up to a limit. The guard never gives up an object. Attempts that had no answer no longer count once
//! the API server answers.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;

use super::effort::note;
use super::elapsed::elapsed;
use kubemoor_declare::model::ObjectId;
use kubemoor_declare::sweep::Sweep;

/// The number of repairs of an object without a wait.
const AT_ONCE: u32 = 3;

/// The first wait.
const FIRST: Duration = Duration::from_secs(1);

/// The longest wait.
const LONGEST: Duration = Duration::from_secs(300);

/// The count starts again after this time without a repair.
const PEACE: Duration = Duration::from_secs(600);

/// The number of objects up to which idle ones are not searched for and dropped.
const ROOM: usize = 64;

/// Counts the recent repairs of each object.
pub(crate) struct Backoff {
    attempts: HashMap<ObjectId, Attempts>,
    /// Of idle objects.
    sweep: Sweep,
}

/// The recent attempts for one object.
#[derive(Clone, Copy)]
struct Attempts {
    count: u32,
    /// Those of them that had no answer, since the last answer.
    unanswered: u32,
    last: Timestamp,
    /// How often another writer put the object right.
    forgiven: u32,
}

/// The wait after a number of failed tries: `first`, then twice as long each time, at most
/// `longest`. It is shorter by up to a quarter, depending on the name of what is tried, so that
/// many waits do not end at once.
pub fn growing(first: Duration, tries: u32, longest: Duration, name: &str) -> Duration {
    let wait = first.saturating_mul(2_u32.saturating_pow(tries)).min(longest);
    let seed = tries.wrapping_add(AT_ONCE);
    let spread = name.bytes().fold(seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    wait.mul_f64(1.0 - f64::from(spread % 100) / 400.0)
}

impl Backoff {
    /// The time until the next attempt for `object`; `None` if it may be made now.
    pub(crate) fn until(&self, object: &ObjectId, now: Timestamp) -> Option<Duration> {
        let Attempts { count, last, .. } = self.attempts.get(object)?;
        let exponent = count.checked_sub(AT_ONCE)?;
        // By the number of the attempt, so that it is not in step with the other writer.
        let wait = growing(FIRST, exponent, LONGEST, &object.name);
        wait.checked_sub(elapsed(*last, now)).filter(|left| !left.is_zero())
    }

    /// Whether another writer undoes the repairs of an object again and again.
    pub(crate) fn is_contested(&self, object: &ObjectId, now: Timestamp) -> bool {
        self.attempts.get(object).is_some_and(|it| {
            it.count.saturating_sub(it.unanswered) >= AT_ONCE && elapsed(it.last, now) < PEACE
        })
    }

    /// Records that another writer undid repairs of an object before this process started.
    pub(crate) fn contest(&mut self, object: &ObjectId, now: Timestamp) {
        let attempts = self.attempts.entry(object.clone()).or_insert(Attempts::none(now));
        attempts.count = attempts.count.max(AT_ONCE.saturating_add(attempts.unanswered));
    }

    /// Forgets earlier attempts, because another writer put the object right. Returns false if that happens again and
    /// again: a writer that alternates must not decide how often the guard writes.
    pub(crate) fn forgive(&mut self, object: &ObjectId, now: Timestamp) -> bool {
        let attempts = self.recent(object, now);
        let is_forgiven = attempts.forgiven < AT_ONCE;
        if is_forgiven {
            *attempts = Attempts { forgiven: attempts.forgiven + 1, ..Attempts::none(now) };
        }
        is_forgiven
    }

    /// Forgets earlier attempts, for example because a person orders a repair.
    pub(crate) fn forget(&mut self, object: &ObjectId) {
        self.attempts.remove(object);
    }

    /// Records an attempt and returns the number of recent ones.
    pub(crate) fn attempt(&mut self, object: &ObjectId, now: Timestamp) -> u32 {
        let attempts = self.recent(object, now);
        let answered = attempts.count.saturating_sub(attempts.unanswered);
        *attempts = Attempts { count: answered.saturating_add(1), unanswered: 0, last: now, ..*attempts };
        attempts.count
    }

    /// Records an attempt that had no answer: an API server that is away is asked more and more seldom.
    pub(crate) fn attempt_unanswered(&mut self, object: &ObjectId, now: Timestamp) {
        let attempts = self.recent(object, now);
        attempts.count = attempts.count.saturating_add(1);
        attempts.unanswered = attempts.unanswered.saturating_add(1);
        attempts.last = now;
    }

    fn recent(&mut self, object: &ObjectId, now: Timestamp) -> &mut Attempts {
        if self.attempts.get(object).is_some_and(|it| elapsed(it.last, now) >= PEACE) {
            self.attempts.remove(object);
        }
        if self.sweep.is_due(self.attempts.len()) {
            note(self.attempts.len());
            self.attempts.retain(|_, it| elapsed(it.last, now) < PEACE);
            self.sweep.note_left(self.attempts.len());
        }
        self.attempts.entry(object.clone()).or_insert(Attempts::none(now))
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self { attempts: HashMap::new(), sweep: Sweep::above(ROOM) }
    }
}

impl Attempts {
    fn none(now: Timestamp) -> Self {
        Self { count: 0, unanswered: 0, last: now, forgiven: 0 }
    }
}

#[cfg(test)]
mod tests;
