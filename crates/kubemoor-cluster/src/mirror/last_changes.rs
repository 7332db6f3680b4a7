//! Finds out from one record alone whether etcd went back to an older state.
//!
//! Entry points: [`LastChanges::take`] for what a watch of records tells, [`LastChanges::due`] for the changes to compare
//! with the API server, [`LastChanges::judge`] for its answers. The last change that a watch told of has the highest version
//! of all that are known. If etcd went back to before any known change, it went back to before this one, so the record
//! of this one shows it, whatever versions came since. It costs the API server one read of one key, which it asks etcd for.
//! With 10,000 releases of 10 revisions, a list would cost a read of 100,000 Secrets: API servers before 1.31 read them
//! whole from etcd for pages of metadata, and their memory, which they answer from otherwise, may not know of a restore.
//! A deletion from before the last listing is not known, so its undoing is not noticed if no record was written since.
//!
//! Invariant: a record in a state from before the known one is proof. A missing record is proof if the open watch did not
//! tell of a deletion until the next comparison. A newer state never is: a watch that is late costs no new listing. Pure
//! state: no I/O, at most four changes. Must not be asked while the watch is not open: it may tell later what it did not
//! tell yet.

use std::cmp::Ordering;

use super::payloads::SELECTOR;
use super::records::Newest;
use crate::client::resource::Meta;
use crate::client::watch::{Event, parse_version};

/// A change of a record, as the watch told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LastChange {
    pub(super) namespace: String,
    pub(super) record: String,
    uid: String,
    version: u64,
    is_deletion: bool,
}

/// The last changes of the records of one watch.
#[derive(Default)]
pub(super) struct LastChanges {
    written: Track,
    deleted: Track,
    /// Whether the known records were searched for the one that was written last.
    is_searched: bool,
    /// Whether the watch goes on from what is known.
    is_open: bool,
}

/// The last change of one sort.
#[derive(Default)]
struct Track {
    newest: Option<LastChange>,
    /// What is compared until the API server agrees. Newer changes may come from a watch that goes on after a restore.
    compared: Option<LastChange>,
    /// The API server has no such record.
    is_doubted: bool,
}

/// How a record is, beside its last known change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    /// As the watch told.
    Same,
    /// It changed since then, and the watch is late.
    Later,
    /// It is gone, by a deletion of which the watch is late, or because it was never there in an older etcd.
    Gone,
    /// It is as it was before.
    Earlier,
}

impl LastChange {
    fn of(meta: &Meta, is_deletion: bool) -> Option<Self> {
        Some(Self {
            namespace: meta.namespace.clone()?,
            record: meta.name.clone(),
            uid: meta.uid.clone(),
            version: parse_version(&meta.resource_version)?,
            is_deletion,
        })
    }

    fn is_of(&self, other: &Self) -> bool {
        (&self.record, &self.namespace) == (&other.record, &other.namespace)
    }

    /// The record is now as `now` says: `None` if the watch has no such object.
    fn compare(&self, now: Option<&Meta>) -> Comparison {
        let Some(now) = now.filter(|now| is_selected(now)) else {
            return if self.is_deletion { Comparison::Same } else { Comparison::Gone };
        };
        match parse_version(&now.resource_version).map(|version| version.cmp(&self.version)) {
            Some(Ordering::Less) => Comparison::Earlier,
            Some(Ordering::Greater) => Comparison::Later,
            // Another history has come as far.
            Some(Ordering::Equal) if now.uid != self.uid => Comparison::Earlier,
            Some(Ordering::Equal) | None => Comparison::Same,
        }
    }
}

/// Whether the watch has the object: without the label it is gone for the watch.
fn is_selected(meta: &Meta) -> bool {
    let labels = meta.labels.iter().flatten();
    labels.into_iter().any(|(key, value)| SELECTOR.split_once('=') == Some((key, value)))
}

impl LastChanges {
    /// Takes in what the watch tells.
    pub(super) fn take(&mut self, event: &Event<Meta>) {
        match event {
            Event::Relisting => *self = Self::default(),
            Event::Applied(meta) => {
                LastChange::of(meta, false).into_iter().for_each(|change| self.written.note(change));
            }
            Event::Deleted(meta) => {
                LastChange::of(meta, true).into_iter().for_each(|change| self.delete(change));
            }
            Event::Watching => {
                self.is_open = true;
                (self.written.is_doubted, self.deleted.is_doubted) = (false, false);
            }
            Event::Broken(_) => {
                self.is_open = false;
                self.written.hold();
                self.deleted.hold();
            }
            Event::Listed(_) | Event::Synced => {}
        }
    }

    /// Nothing is compared until the watch is open again.
    pub(super) fn suspend(&mut self) {
        self.is_open = false;
    }

    /// The changes to compare with the API server now. `newest` finds the known record that was written last.
    pub(super) fn due(&mut self, newest: impl FnOnce() -> Option<Newest>) -> Vec<LastChange> {
        if !self.is_open {
            return Vec::new();
        }
        if self.written.newest.is_none() && !std::mem::replace(&mut self.is_searched, true) {
            self.written.newest = newest().map(|Newest { namespace, record, uid, version }| LastChange {
                namespace,
                record,
                uid,
                version,
                is_deletion: false,
            });
        }
        let written = self.written.due();
        let mut due: Vec<_> = written.into_iter().cloned().collect();
        // A deletion from before the last write cannot be lost without it.
        let is_implied =
            |deleted: &LastChange| written.is_some_and(|written| deleted.version <= written.version);
        match self.deleted.due() {
            Some(deleted) if is_implied(deleted) => self.deleted.compared = None,
            deleted => due.extend(deleted.cloned()),
        }
        due
    }

    /// Takes in how the record of a due change is now. Whether etcd went back to an older state.
    pub(super) fn judge(&mut self, change: &LastChange, now: Option<&Meta>) -> bool {
        if !self.is_open {
            return false;
        }
        if change.is_deletion { &mut self.deleted } else { &mut self.written }.judge(change, now)
    }

    /// The version of the last change to compare.
    pub(super) fn version(due: &[LastChange]) -> Option<u64> {
        due.iter().map(|change| change.version).max()
    }

    fn delete(&mut self, change: LastChange) {
        let is_gone = |known: &mut LastChange| known.is_of(&change);
        self.written.compared.take_if(is_gone);
        if self.written.newest.take_if(|known| known.is_of(&change)).is_some() {
            self.is_searched = false;
        }
        self.deleted.note(change);
    }
}

impl Track {
    /// Notes a change. It explains what the API server says of its record.
    fn note(&mut self, change: LastChange) {
        self.compared.take_if(|compared| compared.is_of(&change));
        if self.newest.as_ref().is_none_or(|newest| newest.version < change.version) {
            self.newest = Some(change);
        }
    }

    /// Has what is newest now compared before what the watch tells when it is open again.
    fn hold(&mut self) {
        self.compared.clone_from(&self.newest);
    }

    fn due(&mut self) -> Option<&LastChange> {
        if self.compared.is_none() {
            self.is_doubted = false;
            self.hold();
        }
        self.compared.as_ref()
    }

    fn judge(&mut self, change: &LastChange, now: Option<&Meta>) -> bool {
        if self.compared.as_ref() != Some(change) {
            return false;
        }
        match change.compare(now) {
            Comparison::Earlier => true,
            Comparison::Later => false,
            Comparison::Gone => std::mem::replace(&mut self.is_doubted, true),
            Comparison::Same => {
                self.compared = None;
                false
            }
        }
    }
}

#[cfg(test)]
mod tests;
