//! Kinds that were not found where discovery said that they are.
//!
//! An API server that has just started does not list all kinds yet, and one that was upgraded serves some of
//! them in other versions. Entry points: [`Doubts::raise`], [`Doubt`]. Invariant: a doubt lasts as long as its
//! holder keeps it. Must not ask the API server.

use std::sync::{Arc, Weak};

/// One kind is not found. Keep it until the kind is found.
#[derive(Debug)]
pub struct Doubt {
    _held: Arc<()>,
}

/// The doubts that are still kept.
#[derive(Default)]
pub(super) struct Doubts(parking_lot::Mutex<Vec<Weak<()>>>);

impl Doubts {
    /// Adds a doubt.
    pub(super) fn raise(&self) -> Doubt {
        let held = Arc::new(());
        self.0.lock().push(Arc::downgrade(&held));
        Doubt { _held: held }
    }

    /// Forgets the doubts that nobody keeps. Whether any is left.
    pub(super) fn sweep(&self) -> bool {
        let mut doubts = self.0.lock();
        doubts.retain(|doubt| doubt.strong_count() > 0);
        !doubts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubt_lasts_as_long_as_it_is_kept() {
        let doubts = Doubts::default();
        assert!(!doubts.sweep());
        let (first, second) = (doubts.raise(), doubts.raise());
        drop(first);
        assert!(doubts.sweep());
        drop(second);
        assert!(!doubts.sweep());
    }
}
