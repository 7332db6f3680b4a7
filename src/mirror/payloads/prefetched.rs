//! Payloads that were read many at once, until their releases ask for them.
//!
//! Entry points: [`Prefetched::put`], [`Prefetched::take`]. Invariant: a payload is given once, and only for the version
//! of its record that was read. Beyond [`ENOUGH`] bytes at most one page is held. Pure state: no I/O.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use crate::helm::record::Packed;
use crate::helm::release::Head;
use crate::model::ReleaseId;

/// The bytes of payloads from which on no others are read.
const ENOUGH: usize = 1 << 20;

/// The payloads at hand.
pub(in super::super) struct Prefetched {
    held: Mutex<Held>,
    taken: Notify,
    turn: Semaphore,
}

#[derive(Default)]
struct Held {
    /// By the place of the release's records.
    payloads: HashMap<ReleaseId, Payload>,
    bytes: usize,
}

struct Payload {
    uid: String,
    version: String,
    packed: Packed,
}

impl Prefetched {
    pub(super) fn new() -> Self {
        Self { held: Mutex::default(), taken: Notify::new(), turn: Semaphore::new(1) }
    }

    /// The right to put payloads here, for one after the other.
    pub(in super::super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.turn.acquire().await.ok()
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
    pub(in super::super) fn put(&self, stored: &ReleaseId, record: &Head, packed: Packed) {
        self.drop_of(stored);
        let (uid, version) = (record.uid.clone(), record.resource_version.clone());
        let mut held = self.held.lock();
        held.bytes += packed.weight();
        held.payloads.insert(stored.clone(), Payload { uid, version, packed });
    }

    /// The payload of a record of a release, which is kept no longer.
    pub(super) fn take(&self, stored: &ReleaseId, record: &Head) -> Option<Packed> {
        let is_of = |it: &Payload| it.uid == record.uid && it.version == record.resource_version;
        self.held.lock().payloads.get(stored).filter(|it| is_of(it))?;
        self.drop_of(stored)
    }

    /// Takes out the payload of a release.
    pub(in super::super) fn drop_of(&self, stored: &ReleaseId) -> Option<Packed> {
        let mut held = self.held.lock();
        let Payload { packed, .. } = held.payloads.remove(stored)?;
        held.bytes -= packed.weight();
        self.taken.notify_waiters();
        Some(packed)
    }
}

#[cfg(test)]
mod tests;
