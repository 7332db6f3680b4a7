//! Which manifest was seen first of each release's revision.
//!
//! Entry point: [`FirstSeen`]. Invariant: a record keeps the digest with which
//! it was first seen, so that whoever rewrites its manifest gains no repairs.
//! Must not decide anything.

use std::collections::HashMap;

use crate::helm::release::Release;
use crate::model::ReleaseId;

/// The first manifests, by release.
#[derive(Default)]
pub(super) struct FirstSeen(HashMap<ReleaseId, First>);

/// The first manifest that was seen of one record. A record that was deleted
/// and made anew is another one, whatever revision it has.
struct First {
    /// None for what an earlier process saw.
    uid: Option<String>,
    revision: u64,
    digest: [u8; 32],
}

impl FirstSeen {
    /// The digest for a release's revision.
    pub(super) fn digest(&self, id: &ReleaseId, revision: u64) -> Option<[u8; 32]> {
        self.0.get(id).filter(|first| first.revision == revision).map(|first| first.digest)
    }

    /// A release whose record counts.
    pub(super) fn note(&mut self, release: &Release) {
        let (uid, revision) = (&release.latest.uid, release.state.revision);
        match self.0.get_mut(&release.id) {
            Some(first) if first.revision == revision && first.uid.as_ref().is_none_or(|own| own == uid) => {
                first.uid = Some(uid.clone());
            }
            _ => {
                let first = First { uid: Some(uid.clone()), revision, digest: release.state.digest };
                self.0.insert(release.id.clone(), first);
            }
        }
    }

    /// What an earlier process saw first of a revision. It saw it before this one did.
    pub(super) fn remember(&mut self, release: &ReleaseId, revision: u64, digest: [u8; 32]) {
        let uid = match self.0.get(release) {
            Some(first) if first.revision != revision => return,
            Some(first) => first.uid.clone(),
            None => None,
        };
        self.0.insert(release.clone(), First { uid, revision, digest });
    }

    /// A release is gone.
    pub(super) fn forget(&mut self, id: &ReleaseId) {
        self.0.remove(id);
    }
}
