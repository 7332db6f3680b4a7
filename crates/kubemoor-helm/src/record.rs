//! A release record: the decoded bytes that Helm's storage driver stores for one revision. Only the fields of
//! [`Record`] are ever built in memory. Templates, values and hooks, which hold secrets, are skipped while the bytes
//! are streamed, and so is a manifest that is not kept. No error quotes a record's content.
//!
//! Helm reads the JSON with Go's `encoding/json`: keys match case-insensitively, and the last duplicate wins. A record
//! with either is rejected, because it could mean one thing to Helm and another to the guard.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufReader, Read};
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use flate2::bufread::MultiGzDecoder;
use jiff::Timestamp;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::error::Category;

use self::filter::{FilteredParts, RecordFilter};
pub use super::chart_source::ChartSource;

mod filter;

/// The maximum JSON size of a record after decompression, in bytes. Helm's own limit is the size of a Secret, about 768
/// KiB compressed.
pub const DEFAULT_CAP: usize = 64 << 20;

/// The maximum size of a record's manifest, in bytes. Manifests compress to about a tenth, and share the 768 KiB with
/// their chart.
pub const MANIFEST_CAP: usize = 16 << 20;

/// Helm's prefix of a record's name, before the release's name.
pub const NAME_PREFIX: &str = "sh.helm.release.v1.";

/// One revision of a release, reduced to what the guard needs.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    pub name: String,
    /// The namespace that the release was installed into.
    pub namespace: String,
    /// The revision, from 1.
    pub revision: u64,
    /// The status of Helm's last operation on the revision.
    pub status: ReleaseStatus,
    /// The manifest as rendered: YAML documents, without Helm's own metadata
    /// keys, without hooks. May hold secrets. Empty where it was not kept.
    pub manifest: String,
    pub digest: [u8; 32],
    /// SHA-256 of the values that the user gave, which may hold secrets: it must not be shown as it is.
    pub values: [u8; 32],
    pub apply_method: ApplyMethod,
    /// The chart that the revision was made from, if the record names it.
    pub chart: Option<ChartVersion>,
    /// When the operation that made the revision began.
    pub last_deployed: Option<Timestamp>,
    /// When the release's uninstallation began.
    pub deleted: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ApplyMethod {
    /// Server-side apply: Helm 4, for releases that Helm 4 began.
    ServerSide,
    /// Create, patch and replace: Helm 3, and releases that Helm 3 began.
    ClientSide,
}

/// A record's payload as stored: base64 text of gzip, or of plain JSON.
pub struct PackedRecord {
    text: Box<str>,
    /// Whether it is wrapped in Kubernetes' own base64.
    is_secret: bool,
}

/// Decodes a record from the value of `data.release`: in a Helm Secret after Kubernetes' own base64 is removed, in a
/// Helm ConfigMap unchanged. It is base64 text of the release's JSON, compressed with gzip or plain.
///
/// `cap` bounds the decompressed JSON in bytes ([`DEFAULT_CAP`]). The JSON is read while it is decompressed and only
/// the record's own fields are kept, so that a record which decompresses to gigabytes needs no memory.
///
/// # Errors
/// When any layer is broken, the JSON exceeds the cap or has trailing data, or a field is missing, given
/// twice, or not a valid time.
pub fn decode(payload: &[u8], cap: usize) -> Result<Record, RecordError> {
    read(&without_base64(payload)?, cap, MANIFEST_CAP, String::new()).map(|(record, _)| record)
}

impl PackedRecord {
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
    pub fn from_object(object: &Value) -> Option<Self> {
        let text = object.pointer("/data/release")?.as_str()?;
        Some(Self::new(text, object.get("kind").and_then(Value::as_str) != Some("ConfigMap")))
    }

    /// The record, and the length of its manifest, which is kept if it has at most `keeps` bytes.
    pub fn decode(&self, keeps: usize) -> Result<(Record, usize), RecordError> {
        read(&self.bytes()?, DEFAULT_CAP, keeps, String::new())
    }

    pub fn manifest(&self) -> Result<String, RecordError> {
        // Reserved memory is not used until it is written to.
        let room = String::with_capacity(MANIFEST_CAP);
        Ok(read(&self.bytes()?, DEFAULT_CAP, MANIFEST_CAP, room)?.0.manifest)
    }

    /// The whole JSON of the record, if it has at most `cap` bytes.
    pub(super) fn json(&self, cap: usize) -> Result<Vec<u8>, RecordError> {
        let (bytes, mut json) = (self.bytes()?, Vec::new());
        decompressed(&bytes, cap).read_to_end(&mut json).map_err(RecordError::Decompress)?;
        if json.len() > cap { Err(RecordError::TooLarge { cap }) } else { Ok(json) }
    }

    /// The content below base64.
    fn bytes(&self) -> Result<Vec<u8>, RecordError> {
        match self.is_secret {
            true => without_base64(&BASE64.decode(&*self.text).map_err(RecordError::Base64)?),
            false => without_base64(self.text.as_bytes()),
        }
    }
}

/// Whether all bytes are in the base64 alphabet.
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

/// Helm's status of a revision. Only the latest revision's matters.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    strum::Display,
    strum::IntoStaticStr,
    strum::VariantArray,
    strum::VariantNames,
)]
#[strum(serialize_all = "kebab-case")]
pub enum ReleaseStatus {
    /// The revision is what the cluster should hold.
    Deployed,
    /// The operation failed; the cluster may hold a part of it.
    Failed,
    /// An installation is under way.
    PendingInstall,
    /// An upgrade is under way.
    PendingUpgrade,
    /// A rollback is under way.
    PendingRollback,
    /// A later revision replaced this one.
    Superseded,
    /// The release was uninstalled with its history kept.
    Uninstalled,
    /// An uninstallation is under way.
    Uninstalling,
    /// Helm's own `unknown`, and every other status that Helm does not use.
    Unknown,
}

impl ReleaseStatus {
    /// Whether an install, upgrade or rollback is in progress by the rules of Helm's own lock: `uninstalling`
    /// is not pending.
    pub fn is_pending(self) -> bool {
        matches!(self, Self::PendingInstall | Self::PendingUpgrade | Self::PendingRollback)
    }

    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl FromStr for ReleaseStatus {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut all = <Self as strum::VariantArray>::VARIANTS.iter().copied();
        Ok(all.find(|status| status.as_str() == text).unwrap_or(Self::Unknown))
    }
}

/// The longest name or version, in bytes. Helm has no longer names in its labels.
const LONGEST: usize = 128;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChartVersion {
    name: Arc<str>,
    version: Arc<str>,
}

impl ChartVersion {
    /// The chart with this name and version; `None` if Helm would not accept them.
    pub fn new(name: &str, version: &str) -> Option<Self> {
        let is_plain = |text: &str| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+');
            !text.is_empty() && text.len() <= LONGEST && text.chars().all(is_plain)
        };
        (is_plain(name) && is_plain(version)).then(|| Self { name: name.into(), version: version.into() })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Name and version as `helm list` writes them: `web-1.2.3`.
    pub fn label(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }
}

impl fmt::Display for ChartVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} version {}", self.name, self.version)
    }
}

/// Why a payload is not a record. No message holds any of its content.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("the record is not base64 text: {0}")]
    Base64(#[source] base64::DecodeError),
    #[error("the record does not decompress: {0}")]
    Decompress(#[source] io::Error),
    #[error("the record's manifest has more than {cap} bytes")]
    LongManifest { cap: usize },
    #[error("the record holds more than {cap} bytes after decompression")]
    TooLarge { cap: usize },
    #[error("the record is not a release's JSON: {what} at byte {at}")]
    Json {
        what: &'static str,
        /// Where, counted from the first byte of the JSON's last line.
        at: usize,
    },
    #[error("the record gives `{field}` more than once or in another spelling")]
    Ambiguous { field: &'static str },
    #[error("the record has no `{field}`")]
    Missing { field: &'static str },
    #[error("the record's `{field}` is not an RFC 3339 time")]
    Time { field: &'static str },
}

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

/// Decodes Helm's base64. Like Go's decoder, it ignores line breaks.
fn without_base64(payload: &[u8]) -> Result<Vec<u8>, RecordError> {
    let text: Vec<u8> = payload.iter().copied().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    BASE64.decode(text).map_err(RecordError::Base64)
}

/// The JSON of a record as it is decompressed: one byte more than `cap` if it has more.
fn decompressed(bytes: &[u8], cap: usize) -> io::Take<Box<dyn Read + '_>> {
    let json: Box<dyn Read + '_> =
        if bytes.starts_with(&GZIP_MAGIC) { Box::new(MultiGzDecoder::new(bytes)) } else { Box::new(bytes) };
    json.take(cap as u64 + 1)
}

/// Reads a record from its bytes below base64, and returns it with the length of its manifest. The manifest is put into
/// `room` if it has at most `keeps` bytes.
fn read(bytes: &[u8], cap: usize, keeps: usize, room: String) -> Result<(Record, usize), RecordError> {
    let mut json = decompressed(bytes, cap);
    let mut filter = RecordFilter::new(BufReader::new(&mut json), keeps, room);
    let parsed = WireRelease::read(&mut filter);
    let parts = filter.finish();
    if json.limit() == 0 {
        return Err(RecordError::TooLarge { cap });
    }
    let parts = parts?;
    let length = parts.length;
    Ok((parsed?.into_record(parts)?, length))
}

/// The paths that are read in the JSON of a release, and their parent objects.
const PLACES: [&str; 13] = [
    "name",
    "namespace",
    "version",
    "manifest",
    "apply_method",
    "info",
    "info.status",
    "info.last_deployed",
    "info.deleted",
    "chart",
    "chart.metadata",
    "chart.metadata.name",
    "chart.metadata.version",
];

/// A release's JSON as Helm writes it, reduced to the fields of a record. `null` is absence, as in Go.
#[derive(Default)]
struct WireRelease {
    /// The paths that were found, with their strings if they have one.
    texts: HashMap<&'static str, Option<String>>,
    version: Option<u64>,
    /// A field that occurs more than once or in another case. Within `chart`, which no verdict depends on, the last
    /// duplicate wins, as in Go.
    ambiguous: Option<&'static str>,
}

/// Reads the object at a path of a release's JSON, or `null`.
struct WireObject<'r> {
    place: &'static str,
    release: &'r mut WireRelease,
}

impl WireRelease {
    fn read(source: impl Read) -> Result<Self, RecordError> {
        let mut release = Self::default();
        let mut reader = serde_json::Deserializer::from_reader(source);
        WireObject { place: "", release: &mut release }.deserialize(&mut reader).map_err(json_error)?;
        reader.end().map_err(json_error)?;
        Ok(release)
    }

    fn into_record(mut self, parts: FilteredParts) -> Result<Record, RecordError> {
        // The filter takes the manifest out only if its key is written without escapes.
        let is_spelled = self.text("manifest").is_some_and(|left| !left.is_empty());
        if let Some(field) = self.ambiguous.or(is_spelled.then_some("manifest")) {
            return Err(RecordError::Ambiguous { field });
        }
        let chart = self.text("chart.metadata.name").zip(self.text("chart.metadata.version"));
        Ok(Record {
            name: self.required("name")?,
            namespace: self.required("namespace")?,
            revision: self
                .version
                .filter(|version| *version > 0)
                .ok_or(RecordError::Missing { field: "version" })?,
            status: self.required("info.status")?.parse().unwrap_or(ReleaseStatus::Unknown),
            // Helm leaves the key out when a chart renders no object.
            manifest: parts.manifest,
            digest: parts.digest,
            values: parts.values,
            apply_method: match self.text("apply_method").as_deref() {
                Some("ssa") => ApplyMethod::ServerSide,
                _ => ApplyMethod::ClientSide,
            },
            chart: chart.and_then(|(name, version)| ChartVersion::new(&name, &version)),
            last_deployed: self.time("info.last_deployed")?,
            deleted: self.time("info.deleted")?,
        })
    }

    fn required(&mut self, field: &'static str) -> Result<String, RecordError> {
        self.text(field).filter(|text| !text.is_empty()).ok_or(RecordError::Missing { field })
    }

    fn text(&mut self, field: &str) -> Option<String> {
        self.texts.remove(field).flatten()
    }

    /// Helm 3 writes "" and Go's zero time for a missing time, Helm 4 writes no key.
    fn time(&mut self, field: &'static str) -> Result<Option<Timestamp>, RecordError> {
        match self.text(field).as_deref() {
            None | Some("" | "0001-01-01T00:00:00Z") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| RecordError::Time { field }),
        }
    }

    fn note_ambiguous(&mut self, place: &'static str) {
        if !place.starts_with("chart.") {
            self.ambiguous = place.rsplit('.').next();
        }
    }
}

impl<'de> DeserializeSeed<'de> for WireObject<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for WireObject<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        let Self { place: above, release } = self;
        // A key with a dot is never read.
        let within = |place: &str, key: &str| match above {
            "" => place == key,
            above => place.strip_prefix(above).and_then(|rest| rest.strip_prefix('.')) == Some(key),
        } && !key.contains('.');
        while let Some(key) = map.next_key::<String>()? {
            let Some(place) = PLACES.into_iter().find(|place| within(place, &key)) else {
                let folded = fold(&key);
                if let Some(place) = PLACES.into_iter().find(|place| within(place, &folded)) {
                    release.note_ambiguous(place);
                }
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if release.texts.insert(place, None).is_some() {
                release.note_ambiguous(place);
            }
            match place {
                "info" | "chart" | "chart.metadata" => {
                    map.next_value_seed(WireObject { place, release: &mut *release })?;
                }
                "version" => release.version = map.next_value()?,
                _ => drop(release.texts.insert(place, map.next_value()?)),
            }
        }
        Ok(())
    }
}

/// The key as Go folds it to match it with a field: by Unicode case folding, the long s and the Kelvin sign become
/// ASCII letters.
fn fold(key: &str) -> String {
    let folded = key.chars().map(|letter| match letter {
        'ſ' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    });
    folded.collect()
}

/// The parser's own message can quote the value, which may be a secret. Only the kind of the error and its
/// place are reported.
pub(super) fn json_error(error: serde_json::Error) -> RecordError {
    let what = match error.classify() {
        Category::Io => return RecordError::Decompress(error.into()),
        Category::Data => "a value of an unexpected type",
        Category::Eof => "an unexpected end",
        Category::Syntax => "a syntax error",
    };
    RecordError::Json { what, at: error.column() }
}

#[cfg(test)]
mod tests;
