//! What a guard has read, and in which order.
//!
//! Entry points: [`Reads::note`], [`Reads::fault`]. Invariant: only what was answered counts as read.
//! Must not change what the guard does.

use std::collections::BTreeMap;

use super::super::super::event::{ApiWork, WorkOutcome, Write};
use kubemoor_declare::model::{ObjectId, ReleaseId};

/// The reads of each release's passes.
#[derive(Default)]
pub(super) struct Reads {
    count: usize,
    /// When an object was read last, and whether it was there.
    objects: BTreeMap<(ReleaseId, ObjectId), (usize, bool)>,
    /// When a release's records were read last.
    records: BTreeMap<ReleaseId, usize>,
}

impl Reads {
    /// A piece of work for a release came to this.
    pub(super) fn note(&mut self, release: &ReleaseId, work: &ApiWork, outcome: &WorkOutcome) {
        self.count += 1;
        match (work, outcome) {
            (ApiWork::ReadObject { object, .. }, WorkOutcome::Object { live, .. }) => {
                let key = (release.clone(), object.clone());
                self.objects.insert(key, (self.count, live.is_some()));
            }
            (ApiWork::ReadRecords { release: of }, WorkOutcome::Records(_)) if of == release => {
                self.records.insert(release.clone(), self.count);
            }
            _ => {}
        }
    }

    /// What is wrong with a write by what was read before it. A deletion is of what was just made.
    pub(super) fn fault(
        &self,
        release: &ReleaseId,
        object: &ObjectId,
        write: &Write,
    ) -> Option<&'static str> {
        let body = match write {
            Write::Create { document, .. } | Write::Apply { document, .. } => &document.0,
            Write::Merge { patch, .. } => &patch.0,
            Write::Delete { .. } => return None,
        };
        let Some((read_at, was_there)) = self.objects.get(&(release.clone(), object.clone())) else {
            return Some("which it has not read");
        };
        if self.records.get(release).is_none_or(|records_at| records_at < read_at) {
            return Some("on records that it read before the object");
        }
        let is_bound = body.pointer("/metadata/resourceVersion").is_some();
        (*was_there && !is_bound).then_some("whatever its version is")
    }
}
