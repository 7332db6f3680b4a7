//! The reasons why a record cannot be decoded.
//!
//! Entry point: [`RecordError`]. Invariant: no error quotes a record's content.

use std::io;

/// Why a payload is not a record. No message holds any of its content.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The payload is not base64 text.
    #[error("the record is not base64 text: {0}")]
    Base64(#[source] io::Error),
    /// The compressed data is broken.
    #[error("the record does not decompress: {0}")]
    Decompress(#[source] io::Error),
    /// Its manifest is larger than any that Helm stores.
    #[error("the record's manifest has more than {cap} bytes")]
    LongManifest {
        /// The cap in bytes.
        cap: usize,
    },
    /// The record is larger than the cap.
    #[error("the record holds more than {cap} bytes after decompression")]
    TooLarge {
        /// The cap in bytes.
        cap: usize,
    },
    /// The content is not the JSON of a release.
    #[error("the record is not a release's JSON: {what} at byte {at}")]
    Json {
        /// What is wrong.
        what: &'static str,
        /// Where, counted from the first byte of the JSON's last line.
        at: usize,
    },
    /// A field that decides what the record says is given twice, or under a
    /// spelling that Helm and this program would read differently.
    #[error("the record gives `{field}` more than once or in another spelling")]
    Ambiguous {
        /// The field.
        field: &'static str,
    },
    /// A field that every record has is missing or empty.
    #[error("the record has no `{field}`")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A time is not in RFC 3339 form.
    #[error("the record's `{field}` is not an RFC 3339 time")]
    Time {
        /// The field.
        field: &'static str,
    },
}
