//! A release record: the bytes that Helm's storage driver keeps for one
//! revision, decoded.
//!
//! Entry point: [`decode`]. Invariant: of the record only the fields of
//! [`Record`] are ever built in memory; chart, values and hooks, which hold
//! secrets, are skipped while the bytes stream by. Must not print a manifest.

use std::fmt;
use std::io::{self, BufReader, Read};
use std::str::FromStr;

use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::read::DecoderReader;
use flate2::bufread::MultiGzDecoder;
use jiff::Timestamp;

mod wire;

/// The most bytes of JSON that a record may hold after decompression. Helm's
/// own limit is what a Secret holds, about 768 KiB compressed.
pub const DEFAULT_CAP: usize = 64 << 20;

/// What Helm puts before a release's name in the name of its record.
const NAME_PREFIX: &str = "sh.helm.release.v1.";

/// The first bytes of gzip as Helm tests for them; a payload without them is
/// plain JSON, as Helm wrote it before it compressed.
const GZIP_MAGIC: [u8; 3] = [0x1f, 0x8b, 0x08];

/// Helm's base64: the standard alphabet, padding required.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical)
        .with_decode_allow_trailing_bits(true),
);

/// One revision of a release, reduced to what the guard needs.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// The release's name.
    pub name: String,
    /// The namespace that the release was installed into.
    pub namespace: String,
    /// The revision, from 1.
    pub revision: u64,
    /// What Helm last did with the revision.
    pub status: Status,
    /// The manifest as rendered: YAML documents, without Helm's own metadata
    /// keys, without hooks. May hold secrets.
    pub manifest: String,
    /// How Helm writes the release's objects.
    pub apply_method: ApplyMethod,
    /// When the operation that made the revision began.
    pub last_deployed: Option<Timestamp>,
    /// When the release's uninstallation began.
    pub deleted: Option<Timestamp>,
}

/// What Helm says of a revision. Only the latest revision's counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Helm's own `unknown`, and every word that Helm does not use.
    Unknown,
    /// The revision is what the cluster should hold.
    Deployed,
    /// The release was uninstalled with its history kept.
    Uninstalled,
    /// A later revision took the place of this one.
    Superseded,
    /// The operation failed; the cluster may hold a part of it.
    Failed,
    /// An uninstallation is under way.
    Uninstalling,
    /// An installation is under way.
    PendingInstall,
    /// An upgrade is under way.
    PendingUpgrade,
    /// A rollback is under way.
    PendingRollback,
}

/// How Helm writes a release's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ApplyMethod {
    /// By server-side apply, Helm 4's way for releases that began with it.
    ServerSide,
    /// By create, patch and replace: Helm 3, and what Helm 3 began.
    ClientSide,
}

/// Why a payload is not a record. No message holds any of its content.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The payload is not base64 text.
    #[error("the record is not base64 text: {0}")]
    Base64(#[source] io::Error),
    /// The compressed data is broken.
    #[error("the record does not decompress: {0}")]
    Decompress(#[source] io::Error),
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
    /// A time is none.
    #[error("the record's `{field}` is not an RFC 3339 time")]
    Time {
        /// The field.
        field: &'static str,
    },
}

/// Decodes a record from what `data.release` of a Helm Secret holds once
/// Kubernetes' own base64 is removed, or of a Helm ConfigMap as it stands:
/// base64 text of gzip, or of plain JSON, of the release.
///
/// `cap` bounds the decompressed JSON in bytes ([`DEFAULT_CAP`]). The JSON is
/// read as it is decompressed and nothing but the record's own fields is kept,
/// so that a record which decompresses to gigabytes costs no memory.
///
/// # Errors
/// When any layer is broken, the JSON exceeds the cap or has trailing data, or
/// a field is missing, given twice, or no time.
pub fn decode(payload: &[u8], cap: usize) -> Result<Record, RecordError> {
    let text = Unbroken(payload);
    let mut bytes = BufReader::new(DecoderReader::new(text, &BASE64));
    let mut magic = Vec::with_capacity(GZIP_MAGIC.len());
    bytes.by_ref().take(GZIP_MAGIC.len() as u64).read_to_end(&mut magic).map_err(RecordError::Base64)?;
    let compressed = magic == GZIP_MAGIC;
    let whole = BufReader::new(io::Cursor::new(magic).chain(bytes));
    if compressed { read(MultiGzDecoder::new(whole), cap) } else { read(whole, cap) }
}

/// Decodes a record from the text of `data.release` in a Helm Secret as the
/// API gives it, with Kubernetes' own base64 around it. See [`decode`].
///
/// # Errors
/// As [`decode`], and when the outer layer is not base64.
pub fn decode_secret(text: &str, cap: usize) -> Result<Record, RecordError> {
    let mut payload = Vec::new();
    DecoderReader::new(text.as_bytes(), &BASE64).read_to_end(&mut payload).map_err(RecordError::Base64)?;
    decode(&payload, cap)
}

/// The name of the Secret or ConfigMap that holds `revision` of `release`.
pub fn record_name(release: &str, revision: u64) -> String {
    format!("{NAME_PREFIX}{release}.v{revision}")
}

/// The release and revision that a Secret's or ConfigMap's name says it holds;
/// `None` when Helm would not give it that name.
pub fn parse_record_name(name: &str) -> Option<(String, u64)> {
    let (release, revision) = name.strip_prefix(NAME_PREFIX)?.rsplit_once(".v")?;
    let number: u64 = revision.parse().ok()?;
    (!release.is_empty() && number > 0 && number.to_string() == revision)
        .then(|| (release.to_owned(), number))
}

impl Status {
    /// Whether an install, upgrade or rollback is under way, as Helm's own
    /// lock sees it: `uninstalling` is not pending.
    pub fn is_pending(self) -> bool {
        matches!(self, Self::PendingInstall | Self::PendingUpgrade | Self::PendingRollback)
    }

    /// The status in Helm's words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Deployed => "deployed",
            Self::Uninstalled => "uninstalled",
            Self::Superseded => "superseded",
            Self::Failed => "failed",
            Self::Uninstalling => "uninstalling",
            Self::PendingInstall => "pending-install",
            Self::PendingUpgrade => "pending-upgrade",
            Self::PendingRollback => "pending-rollback",
        }
    }
}

impl FromStr for Status {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "deployed" => Self::Deployed,
            "uninstalled" => Self::Uninstalled,
            "superseded" => Self::Superseded,
            "failed" => Self::Failed,
            "uninstalling" => Self::Uninstalling,
            "pending-install" => Self::PendingInstall,
            "pending-upgrade" => Self::PendingUpgrade,
            "pending-rollback" => Self::PendingRollback,
            _ => Self::Unknown,
        })
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
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
            .field("last_deployed", &self.last_deployed)
            .field("deleted", &self.deleted)
            .finish()
    }
}

/// Reads the JSON of a release from `source`, at most `cap` bytes of it.
fn read(source: impl Read, cap: usize) -> Result<Record, RecordError> {
    let mut capped = Capped { source: BufReader::new(source), left: cap, exceeded: false, failure: None };
    let parsed = wire::Release::read(&mut capped);
    if capped.exceeded {
        return Err(RecordError::TooLarge { cap });
    }
    if let Some(failure) = capped.failure {
        let inner = failure.get_ref().and_then(|inner| inner.downcast_ref::<base64::DecodeError>());
        return Err(if inner.is_some() {
            RecordError::Base64(failure)
        } else {
            RecordError::Decompress(failure)
        });
    }
    parsed?.into_record()
}

/// The payload without the line breaks that Go's base64 decoder passes over.
struct Unbroken<'a>(&'a [u8]);

impl Read for Unbroken<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut written = 0;
        for slot in out {
            let Some((byte, rest)) = next_unbroken(self.0) else { break };
            *slot = byte;
            self.0 = rest;
            written += 1;
        }
        Ok(written)
    }
}

/// The first byte of `text` that is no line break, and what follows it.
fn next_unbroken(text: &[u8]) -> Option<(u8, &[u8])> {
    let start = text.iter().position(|byte| !matches!(byte, b'\r' | b'\n'))?;
    let (byte, rest) = text.get(start..)?.split_first()?;
    Some((*byte, rest))
}

/// A reader that ends in an error past its cap, and keeps the error that its
/// source gave: the JSON reader would fold it into one of its own.
struct Capped<R> {
    source: R,
    left: usize,
    exceeded: bool,
    failure: Option<io::Error>,
}

impl<R: Read> Read for Capped<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self.source.read(out) {
            Ok(count) if count > self.left => {
                self.exceeded = true;
                Err(io::ErrorKind::FileTooLarge.into())
            }
            Ok(count) => {
                self.left -= count;
                Ok(count)
            }
            Err(error) => {
                let kind = error.kind();
                self.failure = Some(error);
                Err(kind.into())
            }
        }
    }
}

#[cfg(test)]
mod tests;
