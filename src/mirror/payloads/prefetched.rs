//! Payloads that were read many at once, until their releases ask for them.
//!
//! Entry points: [`Prefetched::put`], [`Prefetched::take`]. Invariant: a payload is given once, and only for the version
//! of its record that was read. What is held has at most the size of one page more than [`ENOUGH`]. Pure state: no I/O.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::helm::record::Packed;
use crate::helm::release::Head;

/// The bytes of payloads from which on no others are read.
const ENOUGH: usize = 1 << 20;

/// The payloads at hand.
#[derive(Default)]
pub(in super::super) struct Prefetched {
    held: Mutex<Held>,
    taken: Notify,
}

#[derive(Default)]
struct Held {
    /// By the record's uid and resourceVersion.
    payloads: HashMap<(String, String), Packed>,
    bytes: usize,
}

impl Prefetched {
    /// Keeps the payload of a record.
    pub(in super::super) fn put(&self, record: &Head, payload: Packed) {
        let mut held = self.held.lock();
        held.bytes += payload.weight();
        if let Some(before) = held.payloads.insert(key(record), payload) {
            held.bytes -= before.weight();
        }
    }

    /// The payload of a record, which is kept no longer.
    pub(super) fn take(&self, record: &Head) -> Option<Packed> {
        let mut held = self.held.lock();
        if held.payloads.is_empty() {
            return None;
        }
        let payload = held.payloads.remove(&key(record))?;
        held.bytes -= payload.weight();
        self.taken.notify_waiters();
        Some(payload)
    }

    /// Waits until there is room for more.
    pub(in super::super) async fn room(&self) {
        self.fewer_than(ENOUGH).await;
    }

    /// Waits until all were asked for.
    pub(in super::super) async fn end(&self) {
        self.fewer_than(1).await;
    }

    /// Drops what nobody has asked for.
    pub(in super::super) fn clear(&self) {
        *self.held.lock() = Held::default();
        self.taken.notify_waiters();
    }

    async fn fewer_than(&self, bytes: usize) {
        loop {
            let taken = self.taken.notified();
            if self.held.lock().bytes < bytes {
                return;
            }
            taken.await;
        }
    }
}

fn key(record: &Head) -> (String, String) {
    (record.uid.clone(), record.resource_version.clone())
}

#[cfg(test)]
mod tests;
