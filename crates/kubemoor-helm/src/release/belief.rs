//! Checks whether a record agrees with itself.
//!
//! Entry point: [`believe`]. Invariant: name, labels and payload of a believed record agree, and its storage is trusted
//! for its namespace.

use super::super::record::Record;
use super::super::storage::Storage;
use super::head::Head;
use super::payload::Payload;
use kubemoor_declare::model::ReleaseId;

/// Why a record cannot be believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Disbelief {
    /// It does not decode.
    #[error("{0}")]
    Decode(String),
    /// Its name or labels say something else than its payload.
    #[error("its {what} is {metadata} by its metadata and {payload} by its payload")]
    Disagree {
        /// The duplicate part.
        what: &'static str,
        /// As the metadata tells it.
        metadata: String,
        /// As the payload tells it.
        payload: String,
    },
}

/// The record at `stored`, if its name, its labels and its payload agree and
/// `storage` trusts it for the namespace that its payload gives.
///
/// # Errors
/// Why it cannot be believed.
pub fn believe<'p>(
    stored: &ReleaseId,
    head: &Head,
    payload: &'p Payload,
    storage: &Storage,
) -> Result<&'p Record, Disbelief> {
    let record = payload.record.as_ref().map_err(|error| Disbelief::Decode(error.to_string()))?;
    // A namespace that is trusted counts as the record's own.
    let namespace = match storage.holds(&stored.namespace, &record.namespace) {
        true => record.namespace.as_str(),
        false => stored.namespace.as_str(),
    };
    let told = [
        ("release", stored.name.to_string(), record.name.clone()),
        ("namespace", namespace.to_owned(), record.namespace.clone()),
        ("revision", head.revision.to_string(), record.revision.to_string()),
        ("status", head.status.to_string(), record.status.to_string()),
    ];
    match told.into_iter().find(|(_, metadata, payload)| metadata != payload) {
        Some((what, metadata, payload)) => Err(Disbelief::Disagree { what, metadata, payload }),
        None => Ok(record),
    }
}
