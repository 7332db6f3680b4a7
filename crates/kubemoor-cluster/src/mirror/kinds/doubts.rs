//! Kinds that were not found where discovery said that they are.
//!
//! An API server that has just started does not list all kinds yet, and one that was upgraded serves some of
//! them in other versions. Entry points: [`Doubts::raise`], [`WatchDoubt::take`]. Invariant: a doubt lasts as long as its
//! holder keeps it. Must not ask the API server.

use std::sync::{Arc, Weak};

use crate::client::watch::Event;

/// One kind is not found. Keep it until the kind is found.
#[derive(Debug)]
pub struct Doubt {
    _held: Arc<()>,
}

/// The doubt about the kind of one watch.
#[derive(Debug, Default)]
pub struct WatchDoubt(Option<Doubt>);

/// The doubts that are still kept.
#[derive(Default)]
pub(super) struct Doubts(parking_lot::Mutex<Vec<Weak<()>>>);

impl WatchDoubt {
    /// Takes in what the watch tells: the doubt begins when the kind is not found, and ends when the watch is open.
    /// Whether the kind is not found now.
    pub fn take<T>(&mut self, event: &Event<T>, raise: impl FnOnce() -> Doubt) -> bool {
        match event {
            Event::Broken(error) if error.is_not_found() => {
                self.0.get_or_insert_with(raise);
                return true;
            }
            Event::Watching => self.0 = None,
            _ => {}
        }
        false
    }
}

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
    use crate::client::call::CallError;

    #[test]
    fn doubt_of_a_watch_ends_when_the_watch_is_open() {
        let (doubts, mut doubt) = (Doubts::default(), WatchDoubt::default());
        let late = CallError::Late { within: std::time::Duration::ZERO };
        for (event, is_not_found, is_doubted) in [
            (Event::<()>::Broken(late), false, false),
            (Event::Broken(CallError::Unserved), true, true),
            (Event::Broken(CallError::Unserved), true, true),
            (Event::Relisting, false, true),
            (Event::Watching, false, false),
        ] {
            assert_eq!(doubt.take(&event, || doubts.raise()), is_not_found);
            assert_eq!(doubts.sweep(), is_doubted);
        }
    }

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
