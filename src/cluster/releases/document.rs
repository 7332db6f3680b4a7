//! A release's manifest, read again: manifests are not kept.

use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;

use super::super::call::CallError;
use super::super::payloads::Fetched;
use super::super::records;
use super::Releases;
use crate::helm::record::{ApplyMethod, Status};
use crate::helm::release::{self, Head};
use crate::model::{ObjectId, ReleaseId};

/// How often a record is read again because it changed meanwhile.
const ATTEMPTS: usize = 3;

/// A manifest as the record of one revision has it. May hold secrets: has no `Debug`.
pub struct Documents {
    /// The revision.
    pub revision: u64,
    /// Its status.
    pub status: Status,
    /// How Helm writes its objects.
    pub apply_method: ApplyMethod,
    /// SHA-256 of the manifest.
    pub digest: [u8; 32],
    /// Its objects as Helm sends them, in the manifest's order.
    pub objects: Vec<(ObjectId, Value)>,
}

/// Why a manifest cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// There is no record of the revision.
    #[error("release {release} has no record of revision {revision}")]
    NoRecord {
        /// The release.
        release: ReleaseId,
        /// The revision.
        revision: u64,
    },
    /// The record cannot be believed.
    #[error("the record {record} of release {release} does not count: {reason}")]
    Unbelievable {
        /// The release.
        release: ReleaseId,
        /// The Secret or ConfigMap.
        record: String,
        /// Why.
        reason: String,
    },
    /// The API server gave no usable answer.
    #[error("revision {revision} of release {release} could not be read: {reason}")]
    Call {
        /// The release.
        release: ReleaseId,
        /// The revision.
        revision: u64,
        /// What the API server said.
        reason: Box<CallError>,
    },
}

impl Releases {
    /// The manifest of `revision` of `release`, read from its record now.
    ///
    /// # Errors
    /// When there is no such record, it cannot be believed, or it cannot be
    /// read within the time `within`.
    pub async fn documents(
        &self,
        release: &ReleaseId,
        revision: u64,
        within: Duration,
    ) -> Result<Documents, DocumentError> {
        let called =
            |reason| DocumentError::Call { release: release.clone(), revision, reason: Box::new(reason) };
        let reading = timeout(within, self.read_documents(release, revision, within)).await;
        reading.unwrap_or_else(|_| Err(called(CallError::Late { within })))
    }

    async fn read_documents(
        &self,
        release: &ReleaseId,
        revision: u64,
        within: Duration,
    ) -> Result<Documents, DocumentError> {
        let called =
            |reason| DocumentError::Call { release: release.clone(), revision, reason: Box::new(reason) };
        let none = || DocumentError::NoRecord { release: release.clone(), revision };
        let (stored, storage) = (self.stored(release), self.storage());
        let mut head = self.head(&stored, revision).ok_or_else(none)?;
        for _ in 0..ATTEMPTS {
            match self.payloads.fetch(&stored.namespace, &head, within).await.map_err(called)? {
                Fetched::Gone => return Err(none()),
                Fetched::Moved(meta) => {
                    // The watch will tell the index.
                    head = records::read(meta).ok().filter(|(id, _)| *id == stored).ok_or_else(none)?.1.head;
                }
                Fetched::Payload(payload) => {
                    let (id, catalog) = (release.clone(), self.kinds.catalog());
                    let parsing = tokio::task::spawn_blocking(move || {
                        let unbelievable = |reason| DocumentError::Unbelievable {
                            release: id.clone(),
                            record: head.secret.clone(),
                            reason,
                        };
                        let record = release::believe(&stored, &head, &payload, &storage)
                            .map_err(|disbelief| unbelievable(disbelief.to_string()))?;
                        if record.namespace != id.namespace {
                            return Err(unbelievable(format!("it is of namespace {}", record.namespace)));
                        }
                        Ok(Documents {
                            revision: record.revision,
                            status: record.status,
                            apply_method: record.apply_method,
                            digest: release::digest(&record.manifest),
                            objects: release::documents(&id, &record.manifest, &catalog).0,
                        })
                    });
                    let cut_off = |_| {
                        called(CallError::Unreachable { reason: "the program is shutting down".to_owned() })
                    };
                    return parsing.await.map_err(cut_off)?;
                }
            }
        }
        Err(none())
    }

    fn head(&self, release: &ReleaseId, revision: u64) -> Option<Head> {
        let records = self.records.lock().of(release);
        records.into_iter().map(|known| known.head).find(|head| head.revision == revision)
    }
}
