//! The first seen manifest of each release's revision.
//!
//! Entry point: [`FirstSeen`]. Invariant: a record keeps the digest with which
//! it was first seen, so that a user who rewrites its manifest gains no repairs.
//! Must not decide anything.

use std::collections::HashMap;

use kubemoor_declare::model::ReleaseId;
use kubemoor_helm::release::Release;

/// The first manifests, by release.
#[derive(Default)]
pub(crate) struct FirstSeen(HashMap<ReleaseId, First>);

/// The first seen manifest of one record. A record that was deleted and created again is another
/// one, even with the same revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct First {
    /// The record's uid; `None` where an earlier process did not store it.
    pub uid: Option<String>,
    pub revision: u64,
    /// SHA-256 of the manifest.
    pub digest: [u8; 32],
}

impl First {
    /// Whether a release has another record of the revision by now, with another manifest: it was
    /// installed again since.
    pub(crate) fn is_outlived_by(&self, release: &Release) -> bool {
        release.invalid.is_none()
            && release.latest.revision == self.revision
            && release.state.digest != self.digest
            && self.uid.as_ref().is_some_and(|uid| *uid != release.latest.uid)
    }
}

impl FirstSeen {
    /// The first seen manifest of a release's revision.
    pub(crate) fn of(&self, id: &ReleaseId, revision: u64) -> Option<&First> {
        self.0.get(id).filter(|first| first.revision == revision)
    }

    /// Notes the manifest of a release with a valid record.
    pub(crate) fn note(&mut self, release: &Release) {
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

    /// Takes over the manifest that an earlier process saw first of a revision, which was before
    /// this process saw one.
    pub(crate) fn remember(&mut self, release: &ReleaseId, earlier: First) {
        let uid = match self.0.get(release) {
            Some(first) if first.revision != earlier.revision => return,
            Some(first) => first.uid.clone(),
            None => earlier.uid.clone(),
        };
        self.0.insert(release.clone(), First { uid, ..earlier });
    }

    /// Forgets a release that is gone.
    pub(crate) fn forget(&mut self, id: &ReleaseId) {
        self.0.remove(id);
    }
}
