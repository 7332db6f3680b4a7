//! Turns for what takes long: so many at once, and of one namespace no more than half of them.
//!
//! Entry points: [`Turns::take`], [`aside`]. Invariant: whoever sends much from one namespace keeps nobody of another
//! waiting, and no thread that answers requests works on what is large.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::available_parallelism;

use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::block_in_place;

/// Turns at one time.
pub(super) struct Turns {
    all: Arc<Semaphore>,
    /// How many of one namespace.
    share: usize,
    namespaces: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// The right to go on, until it is dropped.
pub(super) struct Turn {
    turns: Arc<Turns>,
    namespace: String,
    permits: Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)>,
}

impl Turns {
    /// As many turns as there are processors, and at least two.
    pub(super) fn new() -> Self {
        let count = available_parallelism().map_or(2, NonZeroUsize::get).max(2);
        Self { all: Arc::new(Semaphore::new(count)), share: count / 2, namespaces: Mutex::default() }
    }

    /// Waits for a turn of this namespace.
    pub(super) async fn take(self: &Arc<Self>, namespace: &str) -> Turn {
        let own = Arc::clone(
            self.namespaces
                .lock()
                .entry(namespace.to_owned())
                .or_insert_with(|| Arc::new(Semaphore::new(self.share))),
        );
        let mut turn = Turn { turns: Arc::clone(self), namespace: namespace.to_owned(), permits: None };
        // Never closed, so that both always come.
        if let Ok(own) = own.acquire_owned().await
            && let Ok(all) = Arc::clone(&self.all).acquire_owned().await
        {
            turn.permits = Some((own, all));
        }
        turn
    }

    /// Whether a namespace has all the turns that it may have, so that it waits for itself.
    pub(super) fn is_spent(&self, namespace: &str) -> bool {
        self.namespaces.lock().get(namespace).is_some_and(|own| own.available_permits() == 0)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut namespaces = self.turns.namespaces.lock();
        drop(self.permits.take());
        // What waits has a hold of it, and whoever has a turn.
        if namespaces.get(&self.namespace).is_some_and(|own| Arc::strong_count(own) == 1) {
            namespaces.remove(&self.namespace);
        }
    }
}

/// Does the work of a future apart from the threads that answer requests.
pub(super) async fn aside<F: Future>(work: F) -> F::Output {
    let mut work = Box::pin(work);
    let is_possible = Handle::try_current().is_ok_and(|it| it.runtime_flavor() == RuntimeFlavor::MultiThread);
    poll_fn(|context| match is_possible {
        true => block_in_place(|| work.as_mut().poll(context)),
        false => work.as_mut().poll(context),
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_namespace_leaves_turns_for_others() {
        let turns =
            Arc::new(Turns { share: 1, all: Arc::new(Semaphore::new(2)), namespaces: Mutex::default() });
        let soon = Duration::from_secs(1);
        let first = turns.take("a").await;
        assert!(timeout(soon, turns.take("a")).await.is_err());
        assert!(turns.is_spent("a") && !turns.is_spent("b"));
        let second = timeout(soon, turns.take("b")).await.ok();
        assert!(second.is_some());
        assert!(timeout(soon, turns.take("c")).await.is_err());
        assert!(!turns.is_spent("c"));
        drop((first, second));
        assert!(timeout(soon, turns.take("a")).await.is_ok());
        assert!(turns.namespaces.lock().is_empty());
    }
}
