//! A release record: the decoded bytes that Helm's storage driver stores for one revision.
//!
//! Entry points: [`decode`]; [`Packed`] for a record whose manifest may be long. Invariant: only the fields
//! of [`Record`] are ever built in memory. Templates, values and hooks, which hold secrets, are skipped while
//! the bytes stream by, and so is a manifest that is not to be kept. Must not print a manifest.

use std::fmt;

use base64::Engine;
use base64::read::DecoderReader;
use jiff::Timestamp;
use serde_json::Value;

pub use self::chart::ChartVersion;
pub use self::error::RecordError;
use self::layers::{BASE64, Kept, layers};
pub use self::source::ChartSource;
pub use self::status::Status;

mod chart;
mod error;
mod layers;
mod sieve;
mod source;
mod status;
mod unescape;
mod wire;

/// The most bytes of JSON that a record may hold after decompression. Helm's
/// own limit is what a Secret holds, about 768 KiB compressed.
pub const DEFAULT_CAP: usize = 64 << 20;

/// The most bytes that a record's manifest may have. Those of charts compress
/// to a tenth, and share the 768 KiB with the chart that they come from.
pub const MANIFEST_CAP: usize = 16 << 20;

/// Helm's prefix of a record's name, before the release's name.
pub const NAME_PREFIX: &str = "sh.helm.release.v1.";

/// One revision of a release, reduced to what the guard needs.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// The release's name.
    pub name: String,
    /// The namespace that the release was installed into.
    pub namespace: String,
    /// The revision, from 1.
    pub revision: u64,
    /// The status of Helm's last operation on the revision.
    pub status: Status,
    /// The manifest as rendered: YAML documents, without Helm's own metadata
    /// keys, without hooks. May hold secrets. Empty where it was not kept.
    pub manifest: String,
    /// SHA-256 of the manifest.
    pub digest: [u8; 32],
    /// SHA-256 of the values that the user gave, which may hold secrets: it must not be shown as it is.
    pub values: [u8; 32],
    /// How Helm writes the release's objects.
    pub apply_method: ApplyMethod,
    /// The chart that the revision was made from, where the record says so.
    pub chart: Option<ChartVersion>,
    /// When the operation that made the revision began.
    pub last_deployed: Option<Timestamp>,
    /// When the release's uninstallation began.
    pub deleted: Option<Timestamp>,
}

/// How Helm writes a release's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ApplyMethod {
    /// By server-side apply, Helm 4's way for releases that began with it.
    ServerSide,
    /// By create, patch and replace: Helm 3, and what Helm 3 began.
    ClientSide,
}

/// A record's payload at rest: base64 text of gzip, or of plain JSON.
pub struct Packed {
    text: Box<str>,
    /// Whether Kubernetes' own base64 is around it.
    is_secret: bool,
}

/// Decodes a record from the value of `data.release`: in a Helm Secret after Kubernetes' own base64 is
/// removed, in a Helm ConfigMap unchanged. It is base64 text of the release's JSON, compressed with gzip or
/// plain.
///
/// `cap` bounds the decompressed JSON in bytes ([`DEFAULT_CAP`]). The JSON is read while it is decompressed
/// and only the record's own fields are kept, so that a record which decompresses to gigabytes needs no
/// memory.
///
/// # Errors
/// When any layer is broken, the JSON exceeds the cap or has trailing data, or a field is missing, given
/// twice, or not a valid time.
pub fn decode(payload: &[u8], cap: usize) -> Result<Record, RecordError> {
    layers(payload, cap, &mut Kept::new(MANIFEST_CAP))
}

impl Packed {
    /// The text of `data.release` of a Secret or ConfigMap as the API gives it.
    pub fn new(text: impl Into<Box<str>>, is_secret: bool) -> Self {
        Self { text: text.into(), is_secret }
    }

    /// The text of a `data.release` without its object. Whether it comes from a Secret is detected: then the
    /// base64 contains base64 again.
    pub fn unlabelled(text: impl Into<Box<str>>) -> Self {
        let text = text.into();
        let is_secret = BASE64.decode(&*text).is_ok_and(|inner| !inner.is_empty() && is_base64(&inner));
        Self { text, is_secret }
    }

    /// The value of `data.release` in a Secret or ConfigMap from the API; `None` where it is not a text.
    pub fn of(object: &Value) -> Option<Self> {
        let text = object.pointer("/data/release")?.as_str()?;
        Some(Self::new(text, object.get("kind").and_then(Value::as_str) != Some("ConfigMap")))
    }

    /// The record, and the length of its manifest, which is kept if it has at most `keeps` bytes.
    ///
    /// # Errors
    /// As [`decode`], and when Kubernetes' own layer is not base64.
    pub fn decode(&self, keeps: usize) -> Result<(Record, usize), RecordError> {
        let mut kept = Kept::new(keeps);
        let record = self.read(&mut kept)?;
        Ok((record, kept.length))
    }

    /// Unpacks the manifest into `room`, over what that held.
    ///
    /// # Errors
    /// As [`Self::decode`].
    pub fn manifest(&self, room: &mut String) -> Result<(), RecordError> {
        room.clear();
        let mut kept = Kept::new(MANIFEST_CAP);
        kept.text = std::mem::take(room);
        let outcome = self.read(&mut kept);
        // Given on by the record where there is one.
        *room = outcome?.manifest;
        Ok(())
    }

    fn read(&self, kept: &mut Kept) -> Result<Record, RecordError> {
        let text = self.text.as_bytes();
        match self.is_secret {
            true => layers(DecoderReader::new(text, &BASE64), DEFAULT_CAP, kept),
            false => layers(text, DEFAULT_CAP, kept),
        }
    }
}

/// Whether the bytes are nothing but the alphabet of base64.
pub fn is_base64(text: &[u8]) -> bool {
    text.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='))
}

/// The name of the Secret or ConfigMap that holds `revision` of `release`.
pub fn record_name(release: &str, revision: u64) -> String {
    format!("{NAME_PREFIX}{release}.v{revision}")
}

/// The release and revision in the name of a Secret or ConfigMap; `None` for a name that Helm would not give.
pub fn parse_record_name(name: &str) -> Option<(String, u64)> {
    let (release, revision) = name.strip_prefix(NAME_PREFIX)?.rsplit_once(".v")?;
    let number: u64 = revision.parse().ok()?;
    (!release.is_empty() && number > 0 && number.to_string() == revision)
        .then(|| (release.to_owned(), number))
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("name", &self.name)
            .field("namespace", &self.namespace)
            .field("revision", &self.revision)
            .field("status", &self.status)
            .field("manifest", &format_args!("<{} bytes>", self.manifest.len()))
            .field("apply_method", &self.apply_method)
            .field("chart", &self.chart)
            .field("last_deployed", &self.last_deployed)
            .field("deleted", &self.deleted)
            .finish()
    }
}

#[cfg(test)]
mod tests;
