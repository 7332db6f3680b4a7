//! Values that many objects repeat, each stored once while it is in use.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use kubemoor_declare::sweep::Sweep;

/// How many values are stored before the first check for unused ones.
const ROOM: usize = 1024;

/// Values, each stored once.
pub(crate) struct Pool<T: ?Sized> {
    known: HashSet<Arc<T>>,
    sweep: Sweep,
}

impl<T: ?Sized + Eq + Hash> Pool<T> {
    /// The value, in memory that all who have it share.
    pub(crate) fn share<'v>(&mut self, value: &'v T) -> Arc<T>
    where
        Arc<T>: From<&'v T>,
    {
        match self.known.get(value) {
            Some(known) => Arc::clone(known),
            None => self.adopt(Arc::from(value)),
        }
    }

    /// The value, in the memory of the first who had it.
    pub(crate) fn adopt(&mut self, value: Arc<T>) -> Arc<T> {
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
}
