//! How long to wait before an object is repaired once more.
//!
//! Entry point: [`Backoff`]. Invariant: an object that goes again and again is
//! never fought over hot and never given up; the first few times cost no wait.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;

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

/// Counts what was done for each object lately.
#[derive(Default)]
pub(crate) struct Backoff(HashMap<ObjectId, (u32, Timestamp)>);

impl Backoff {
    /// When the next attempt for `object` may be made; none: now.
    pub(crate) fn until(&self, object: &ObjectId, now: Timestamp) -> Option<Duration> {
        let (attempts, last) = self.0.get(object)?;
        let exponent = attempts.checked_sub(AT_ONCE)?;
        let wait = FIRST.saturating_mul(2_u32.saturating_pow(exponent)).min(LONGEST);
        // Spread by the object's name and the number of the attempt, so that
        // many do not come at once, nor in step with whoever writes.
        let spread =
            object.name.bytes().fold(*attempts, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        let wait = wait.mul_f64(1.0 - f64::from(spread % 100) / 400.0);
        wait.checked_sub(elapsed(*last, now)).filter(|left| !left.is_zero())
    }

    /// Whether somebody undoes what is done for an object, again and again.
    pub(crate) fn is_contested(&self, object: &ObjectId, now: Timestamp) -> bool {
        self.0.get(object).is_some_and(|(attempts, last)| *attempts >= AT_ONCE && elapsed(*last, now) < PEACE)
    }

    /// Somebody undid what was done for an object, before this process ran.
    pub(crate) fn contest(&mut self, object: &ObjectId, now: Timestamp) {
        let (attempts, _) = self.0.entry(object.clone()).or_insert((0, now));
        *attempts = (*attempts).max(AT_ONCE);
    }

    /// A person asks for an attempt now.
    pub(crate) fn forget(&mut self, object: &ObjectId) {
        self.0.remove(object);
    }

    /// An attempt is made; gives the number of recent ones.
    pub(crate) fn attempt(&mut self, object: &ObjectId, now: Timestamp) -> u32 {
        self.0.retain(|_, (_, last)| elapsed(*last, now) < PEACE);
        let (attempts, last) = self.0.entry(object.clone()).or_insert((0, now));
        *attempts = attempts.saturating_add(1);
        *last = now;
        *attempts
    }
}

#[cfg(test)]
mod tests;
