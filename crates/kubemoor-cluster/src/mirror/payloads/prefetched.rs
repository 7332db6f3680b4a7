//! Payloads that were read many at once, until their releases ask for them.
//!
//! Entry points: [`Prefetched::put`], [`Prefetched::take`]. Invariant: a payload is given once, and only for the version
//! of its record that was read. Beyond [`ENOUGH`] bytes at most one page is held. Pure state: no I/O.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{MutexGuard, Notify};

use kubemoor_declare::model::ReleaseId;
use kubemoor_helm::record::Packed;
use kubemoor_helm::release::Head;

/// The bytes of payloads from which on no others are read.
const ENOUGH: usize = 1 << 20;

/// The payloads at hand.
#[derive(Default)]
pub(in super::super) struct Prefetched {
    held: Mutex<Held>,
    taken: Notify,
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Held {
    /// By the place of the release's records.
    payloads: HashMap<ReleaseId, (Arc<Head>, Packed)>,
    bytes: usize,
}

impl Prefetched {
    /// The right to put payloads here, for one after the other.
    pub(in super::super) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Waits until there is room for more.
    pub(in super::super) async fn room(&self) {
        loop {
            let taken = self.taken.notified();
            if self.held.lock().bytes < ENOUGH {
                return;
            }
            taken.await;
        }
    }

    /// Keeps the payload of a record of a release, in place of an earlier one.
    pub(in super::super) fn put(&self, stored: &ReleaseId, record: Arc<Head>, packed: Packed) {
        self.drop_of(stored);
        let mut held = self.held.lock();
        held.bytes += packed.weight();
        held.payloads.insert(stored.clone(), (record, packed));
    }

    /// The payload of a record of a release, which is kept no longer.
    pub(super) fn take(&self, stored: &ReleaseId, record: &Head) -> Option<Packed> {
        self.held.lock().payloads.get(stored).filter(|(read, _)| read.is_same_version(record))?;
        self.drop_of(stored)
    }

    /// Takes out the payload of a release.
    pub(in super::super) fn drop_of(&self, stored: &ReleaseId) -> Option<Packed> {
        let mut held = self.held.lock();
        let (_, packed) = held.payloads.remove(stored)?;
        held.bytes -= packed.weight();
        self.taken.notify_waiters();
        Some(packed)
    }
}

#[cfg(test)]
mod tests;
