//! When objects have to be judged again though nothing happens to them: a
//! window opens or closes.
//!
//! Entry point: [`Alarms`]. Invariant: one time per object; nothing is polled.

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::model::{ObjectId, ReleaseId};

/// The times at which objects are judged again.
#[derive(Default)]
pub(super) struct Alarms {
    set: Mutex<Set>,
    earlier: Notify,
}

#[derive(Default)]
struct Set {
    times: BTreeSet<(Timestamp, ObjectId)>,
    of: HashMap<ObjectId, (Timestamp, ReleaseId)>,
}

impl Alarms {
    /// An object of a release is to be judged again at `at`, or never.
    pub(super) fn set(&self, release: &ReleaseId, object: &ObjectId, at: Option<Timestamp>) {
        let mut set = self.set.lock();
        if let Some((before, _)) = set.of.remove(object) {
            set.times.remove(&(before, object.clone()));
        }
        let Some(at) = at else { return };
        let is_first = set.times.first().is_none_or(|(first, _)| at < *first);
        set.times.insert((at, object.clone()));
        set.of.insert(object.clone(), (at, release.clone()));
        drop(set);
        if is_first {
            self.earlier.notify_one();
        }
    }

    /// Waits until some are due and gives them. Safe to cancel.
    pub(super) async fn due(&self) -> Vec<(ReleaseId, ObjectId)> {
        loop {
            let first = self.set.lock().times.first().map(|(at, _)| *at);
            let wait = async {
                match first {
                    Some(at) => {
                        let left = at.duration_since(Timestamp::now());
                        tokio::time::sleep(left.try_into().unwrap_or_default()).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = wait => {
                    let due = self.take(Timestamp::now());
                    if !due.is_empty() {
                        return due;
                    }
                }
                () = self.earlier.notified() => {}
            }
        }
    }

    fn take(&self, now: Timestamp) -> Vec<(ReleaseId, ObjectId)> {
        let mut set = self.set.lock();
        let mut due = Vec::new();
        while set.times.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, object)) = set.times.pop_first() else { break };
            if let Some((_, release)) = set.of.remove(&object) {
                due.push((release, object));
            }
        }
        due
    }
}

#[cfg(test)]
mod tests;
