//! How long to wait before an object is repaired once more.
//!
//! Entry point: [`Backoff`]. Invariant: an object that goes again and again is
//! never fought over hot and never given up; the first few times cost no wait.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;

use super::effort::note;
use super::elapsed::elapsed;
use crate::model::ObjectId;

/// How often an object comes back at once.
const AT_ONCE: u32 = 3;

/// The first wait.
const FIRST: Duration = Duration::from_secs(1);

/// The longest wait.
const LONGEST: Duration = Duration::from_secs(300);

/// After this time in peace the count starts anew.
const PEACE: Duration = Duration::from_secs(600);

/// How many objects are counted without a look at which were left in peace.
const ROOM: usize = 64;

/// Counts what was done for each object lately.
#[derive(Default)]
pub(crate) struct Backoff {
    attempts: HashMap<ObjectId, (u32, Timestamp)>,
    /// How many objects there may be before those are dropped that were left in peace.
    room: usize,
}

/// The wait after so many tries in vain: `first`, then twice as long each time, `longest` at most;
/// less by up to a quarter, as the name says of what is tried, so that many do not come at once.
pub(crate) fn growing(first: Duration, tries: u32, longest: Duration, name: &str) -> Duration {
    let wait = first.saturating_mul(2_u32.saturating_pow(tries)).min(longest);
    let seed = tries.wrapping_add(AT_ONCE);
    let spread = name.bytes().fold(seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    wait.mul_f64(1.0 - f64::from(spread % 100) / 400.0)
}

impl Backoff {
    /// When the next attempt for `object` may be made; none: now.
    pub(crate) fn until(&self, object: &ObjectId, now: Timestamp) -> Option<Duration> {
        let (attempts, last) = self.attempts.get(object)?;
        let exponent = attempts.checked_sub(AT_ONCE)?;
        // By the number of the attempt, so that it is not in step with the other writer.
        let wait = growing(FIRST, exponent, LONGEST, &object.name);
        wait.checked_sub(elapsed(*last, now)).filter(|left| !left.is_zero())
    }

    /// Whether somebody undoes what is done for an object, again and again.
    pub(crate) fn is_contested(&self, object: &ObjectId, now: Timestamp) -> bool {
        self.attempts
            .get(object)
            .is_some_and(|(attempts, last)| *attempts >= AT_ONCE && elapsed(*last, now) < PEACE)
    }

    /// Somebody undid what was done for an object, before this process ran.
    pub(crate) fn contest(&mut self, object: &ObjectId, now: Timestamp) {
        let (attempts, _) = self.attempts.entry(object.clone()).or_insert((0, now));
        *attempts = (*attempts).max(AT_ONCE);
    }

    /// A person asks for an attempt now.
    pub(crate) fn forget(&mut self, object: &ObjectId) {
        self.attempts.remove(object);
    }

    /// An attempt is made; gives the number of recent ones.
    pub(crate) fn attempt(&mut self, object: &ObjectId, now: Timestamp) -> u32 {
        if self.attempts.get(object).is_some_and(|(_, last)| elapsed(*last, now) >= PEACE) {
            self.attempts.remove(object);
        }
        if self.attempts.len() >= self.room {
            note(self.attempts.len());
            self.attempts.retain(|_, (_, last)| elapsed(*last, now) < PEACE);
            self.room = ROOM.max(self.attempts.len().saturating_mul(2));
        }
        let (attempts, last) = self.attempts.entry(object.clone()).or_insert((0, now));
        *attempts = attempts.saturating_add(1);
        *last = now;
        *attempts
    }
}

#[cfg(test)]
mod tests;
