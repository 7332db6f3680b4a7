//! Reads one object of a release's manifest from its record again, because manifests are not kept in memory.
//!
//! Entry point: [`Releases::document`]. Invariant: the object comes from a trusted record in its current
//! version.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;

use super::super::payloads::Fetched;
use super::super::records;
use super::{ANSWERING, Releases};
use crate::client::call::CallError;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::record::{ApplyMethod, Status};
use kubemoor_helm::release::{self, Head};

/// How often a record is read again because it changed meanwhile.
const ATTEMPTS: usize = 3;

/// An object as the manifest of one revision has it. May hold secrets: has no `Debug`.
pub struct Document {
    /// The revision.
    pub revision: u64,
    /// Its status.
    pub status: Status,
    /// How Helm writes the release's objects.
    pub apply_method: ApplyMethod,
    /// SHA-256 of the manifest.
    pub digest: [u8; 32],
    /// The object as Helm sends it; none where the manifest has no such object.
    pub object: Option<Value>,
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
    /// The API server answered, and it takes longer than there is time to read what
    /// it said.
    #[error("revision {revision} of release {release} is too large to be read within {} ms", .within.as_millis())]
    Slow {
        /// The release.
        release: ReleaseId,
        /// The revision.
        revision: u64,
        /// The time that there was.
        within: Duration,
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
    /// The declaration of `object` in the manifest of `revision` of `release`, read from its record now.
    ///
    /// # Errors
    /// When there is no such record, it is not valid, or it cannot be read within the time `within`.
    pub async fn document(
        &self,
        release: &ReleaseId,
        revision: u64,
        object: &ObjectId,
        within: Duration,
    ) -> Result<Document, DocumentError> {
        // Calls end before the whole does, so that it is known what took so long.
        let reading = self.read_document(release, revision, object, within.mul_f64(ANSWERING));
        let slow = DocumentError::Slow { release: release.clone(), revision, within };
        timeout(within, reading).await.unwrap_or(Err(slow))
    }

    pub(super) fn head(&self, release: &ReleaseId, revision: u64) -> Option<Arc<Head>> {
        let records = self.records.lock().of(release);
        records.into_iter().map(|known| known.head).find(|head| head.revision == revision)
    }

    async fn read_document(
        &self,
        release: &ReleaseId,
        revision: u64,
        object: &ObjectId,
        within: Duration,
    ) -> Result<Document, DocumentError> {
        let called =
            |reason| DocumentError::Call { release: release.clone(), revision, reason: Box::new(reason) };
        let none = || DocumentError::NoRecord { release: release.clone(), revision };
        let (stored, storage) = (self.stored(release), self.storage());
        let mut head = self.head(&stored, revision).ok_or_else(none)?;
        for _ in 0..ATTEMPTS {
            match self.payloads.fetch(&stored, &head, within).await.map_err(called)? {
                Fetched::Gone => return Err(none()),
                Fetched::Moved(meta) => {
                    // The watch will tell the index.
                    head = records::read(meta).ok().filter(|(id, _)| *id == stored).ok_or_else(none)?.1.head;
                }
                Fetched::Payload(payload) => {
                    let (id, object, catalog) = (release.clone(), object.clone(), self.kinds.catalog());
                    let reading = self.payloads.read(payload.is_heavy(), move || {
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
                        let object =
                            payload.with_text(record, |text| release::document(&id, text, &object, &catalog));
                        Ok(Document {
                            revision: record.revision,
                            status: record.status,
                            apply_method: record.apply_method,
                            digest: record.digest,
                            object: object.map_err(|error| unbelievable(error.to_string()))?,
                        })
                    });
                    return reading.await.map_err(called)?;
                }
            }
        }
        Err(none())
    }
}
