//! Values that many declarations repeat, each stored once: names of fields, labels and kinds.
//!
//! Entry points: [`shared`] for texts, [`Pool`] for anything else. Invariant: equal values share memory while
//! they are in use, and unused ones are dropped. The result equals the input. Must not be given a Secret's
//! values.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;

use crate::sweep::Sweep;

/// The longest text that is worth a look, in bytes.
const LONGEST: usize = 64;

/// How many values are stored before the first check for unused ones.
const ROOM: usize = 1024;

static NAMES: LazyLock<Mutex<Pool<str>>> = LazyLock::new(Mutex::default);

/// Values, each stored once.
pub struct Pool<T: ?Sized> {
    known: HashSet<Arc<T>>,
    sweep: Sweep,
}

/// The text, in memory that all who have it share.
pub fn shared(text: &str) -> Arc<str> {
    if text.len() > LONGEST {
        return Arc::from(text);
    }
    NAMES.lock().share(text)
}

impl<T: ?Sized + Eq + Hash> Pool<T> {
    /// The value, in memory that all who have it share.
    pub fn share<'v>(&mut self, value: &'v T) -> Arc<T>
    where
        Arc<T>: From<&'v T>,
    {
        match self.known.get(value) {
            Some(known) => Arc::clone(known),
            None => self.adopt(Arc::from(value)),
        }
    }

    /// The value, in the memory of the first who had it.
    pub fn adopt(&mut self, value: Arc<T>) -> Arc<T> {
        if let Some(known) = self.known.get(&value) {
            return Arc::clone(known);
        }
        if self.sweep.is_due(self.known.len()) {
            self.known.retain(|known| Arc::strong_count(known) > 1);
            self.sweep.note_left(self.known.len());
        }
        self.known.insert(Arc::clone(&value));
        value
    }
}

impl<T: ?Sized> Default for Pool<T> {
    fn default() -> Self {
        Self { known: HashSet::new(), sweep: Sweep::above(ROOM) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_share_memory_and_unused_ones_go() {
        let mut names = Pool::<str>::default();
        let name = names.share("kept");
        for number in 0..10 * ROOM {
            drop(names.share(&format!("dropped {number}")));
        }
        assert!(Arc::ptr_eq(&name, &names.share("kept")));
        assert!(names.known.len() <= ROOM, "{} names are kept", names.known.len());
    }

    #[test]
    fn long_text_is_nobody_elses() {
        let long = "x".repeat(LONGEST + 1);
        assert!(*shared(&long) == *long && !Arc::ptr_eq(&shared(&long), &shared(&long)));
        assert!(Arc::ptr_eq(&shared("short"), &shared("short")));
    }
}
