//! Who may go on, where only so many can at one time.
//!
//! Entry point: [`Turns::take`]. Invariant: whoever has as many turns as one may
//! have waits for his own, and takes none of those for which others wait.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// So many turns at one time, and so many for each who asks.
pub(super) struct Turns<K> {
    all: Arc<Semaphore>,
    each: usize,
    askers: Mutex<HashMap<K, Arc<Semaphore>>>,
}

/// A turn, until it is dropped.
pub(super) struct Turn {
    _own: OwnedSemaphorePermit,
    _one: OwnedSemaphorePermit,
}

impl<K: Eq + Hash> Turns<K> {
    pub(super) fn new(all: usize, each: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), each, askers: Mutex::default() }
    }

    /// A turn of `asker`'s; none if none comes until `until`.
    pub(super) async fn take(&self, asker: K, until: Instant) -> Option<Turn> {
        let own = {
            let mut askers = self.askers.lock();
            // Those who neither have a turn nor wait for one.
            askers.retain(|_, own| Arc::strong_count(own) > 1);
            Arc::clone(askers.entry(asker).or_insert_with(|| Arc::new(Semaphore::new(self.each))))
        };
        let own = timeout_at(until, own.acquire_owned()).await.ok()?.ok()?;
        let one = timeout_at(until, Arc::clone(&self.all).acquire_owned()).await.ok()?.ok()?;
        Some(Turn { _own: own, _one: one })
    }
}
