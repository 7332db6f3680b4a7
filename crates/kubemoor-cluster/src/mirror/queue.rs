//! A queue that does not add an item which already waits.
//!
//! Invariant: never longer than the number of different items, never blocks a sender. An item that is added
//! while it is being processed is returned once more.

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Room for as many items as usually wait.
const USUAL: usize = 64;

/// The receiving end: what has changed since it was last asked for.
#[derive(Debug)]
pub struct Changes<T>(Arc<Waiting<T>>);

/// The sending end for any number of [`Changes`].
#[derive(Debug)]
pub struct Announcer<T>(Mutex<Vec<Weak<Waiting<T>>>>);

#[derive(Debug)]
struct Waiting<T> {
    items: Mutex<(VecDeque<T>, HashSet<T>)>,
    arrived: Notify,
}

impl<T: Clone + Eq + Hash> Changes<T> {
    /// A queue that holds `items`.
    pub(super) fn of(items: impl IntoIterator<Item = T>) -> Self {
        let changes = Self(Arc::new(Waiting { items: Mutex::default(), arrived: Notify::new() }));
        for item in items {
            changes.0.add(item);
        }
        changes
    }

    /// Adds `item` unless it waits already.
    pub(super) fn add(&self, item: T) {
        self.0.add(item);
    }

    /// The item that has waited longest; waits for one. Safe to cancel: an
    /// item is taken only when it is returned.
    pub async fn next(&self) -> T {
        loop {
            let arrived = self.0.arrived.notified();
            if let Some(item) = self.0.take() {
                return item;
            }
            arrived.await;
        }
    }

    /// The item that has waited longest, if there is one.
    pub fn take(&self) -> Option<T> {
        self.0.take()
    }
}

impl<T: Clone + Eq + Hash> Announcer<T> {
    /// A receiver that starts with `items`.
    pub fn subscribe(&self, items: impl IntoIterator<Item = T>) -> Changes<T> {
        let changes = Changes::of(items);
        self.0.lock().push(Arc::downgrade(&changes.0));
        changes
    }

    /// Tells every receiver of `item`.
    pub fn announce(&self, item: &T) {
        self.0.lock().retain(|receiver| match receiver.upgrade() {
            Some(receiver) => {
                receiver.add(item.clone());
                true
            }
            None => false,
        });
    }
}

impl<T> Default for Announcer<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone + Eq + Hash> Waiting<T> {
    fn add(&self, item: T) {
        let mut items = self.items.lock();
        let (order, known) = &mut *items;
        if known.insert(item.clone()) {
            order.push_back(item);
            drop(items);
            self.arrived.notify_one();
        }
    }

    fn take(&self) -> Option<T> {
        let mut items = self.items.lock();
        let (order, known) = &mut *items;
        let item = order.pop_front()?;
        known.remove(&item);
        if order.is_empty() {
            // At the start everything waits at once.
            order.shrink_to(USUAL);
            known.shrink_to(USUAL);
        }
        Some(item)
    }
}

#[cfg(test)]
mod tests;
