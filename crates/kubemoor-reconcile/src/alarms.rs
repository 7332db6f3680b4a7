//! Times at which objects are judged again although nothing happens to them: a time window opens or
//! closes.
//!
//! Entry point: [`Alarms`]. Invariant: one time per object; nothing is polled.
//! Pure state.

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;

use kubemoor_declare::model::{ObjectId, ReleaseId};

/// The times at which objects are judged again.
#[derive(Debug, Default)]
pub(crate) struct Alarms {
    times: BTreeSet<(Timestamp, ObjectId)>,
    of: HashMap<ObjectId, (Timestamp, ReleaseId)>,
}

impl Alarms {
    /// Sets the time at which an object of a release is judged again; with `None` it is not.
    pub(crate) fn set(&mut self, release: &ReleaseId, object: &ObjectId, at: Option<Timestamp>) {
        if let Some((before, _)) = self.of.remove(object) {
            self.times.remove(&(before, object.clone()));
        }
        if let Some(at) = at {
            self.times.insert((at, object.clone()));
            self.of.insert(object.clone(), (at, release.clone()));
        }
    }

    /// The earliest time that is set.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.times.first().map(|(at, _)| *at)
    }

    /// Removes and returns the objects that are due.
    pub(crate) fn take(&mut self, now: Timestamp) -> Vec<(ReleaseId, ObjectId)> {
        let mut due = Vec::new();
        while self.next().is_some_and(|at| at <= now) {
            let Some((_, object)) = self.times.pop_first() else { break };
            if let Some((_, release)) = self.of.remove(&object) {
                due.push((release, object));
            }
        }
        due
    }
}
