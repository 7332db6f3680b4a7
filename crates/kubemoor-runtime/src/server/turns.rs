//! Turns for slow operations: a limited number at one time, and a smaller limit for each asker.
//!
//! Entry point: [`Turns::take`]. Invariant: an asker at its own limit waits until one of its turns ends, and
//! takes none that others wait for. Must not know what a turn is for.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// A limited number of turns, with a limit for each asker.
#[derive(Debug)]
pub struct Turns<K> {
    all: Arc<Semaphore>,
    each: usize,
    askers: Mutex<HashMap<K, Arc<Semaphore>>>,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub struct Turn {
    _own: OwnedSemaphorePermit,
    _one: OwnedSemaphorePermit,
}

impl<K: Eq + Hash> Turns<K> {
    /// `all` turns at one time, `each` of them for one who asks.
    pub fn new(all: usize, each: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), each, askers: Mutex::default() }
    }

    /// A turn for `asker`; `None` if none is free by `until`.
    pub async fn take(&self, asker: K, until: Instant) -> Option<Turn> {
        let own = {
            let mut askers = self.askers.lock();
            // Every caller that has a turn or waits for one holds a reference to it.
            askers.retain(|_, own| Arc::strong_count(own) > 1);
            Arc::clone(askers.entry(asker).or_insert_with(|| Arc::new(Semaphore::new(self.each))))
        };
        let own = timeout_at(until, own.acquire_owned()).await.ok()?.ok()?;
        let one = timeout_at(until, Arc::clone(&self.all).acquire_owned()).await.ok()?.ok()?;
        Some(Turn { _own: own, _one: one })
    }

    /// Whether the asker is at its own limit, and so waits only for its own turns.
    pub fn is_spent<Q: Eq + Hash + ?Sized>(&self, asker: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.askers.lock().get(asker).is_some_and(|own| own.available_permits() == 0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn caller_at_own_limit_waits_without_blocking_other_callers() {
        let turns = Turns::new(3, 2);
        let until = || Instant::now() + Duration::from_secs(1);
        let first = turns.take("alice", until()).await.unwrap();
        let _second = turns.take("alice", until()).await.unwrap();
        assert!(turns.take("alice", until()).await.is_none());
        assert!(turns.is_spent("alice") && !turns.is_spent("bob"));
        let _bob = turns.take("bob", until()).await.unwrap();
        assert!(turns.take("carol", until()).await.is_none());
        assert!(!turns.is_spent("carol"));
        drop(first);
        let _carol = turns.take("carol", until()).await.unwrap();
        assert_eq!(turns.askers.lock().len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn caller_without_turn_or_wait_is_forgotten() {
        let turns = Turns::new(1, 1);
        for asker in 0..10 {
            turns.take(asker, Instant::now()).await.unwrap();
        }
        assert_eq!(turns.askers.lock().len(), 1);
    }
}
