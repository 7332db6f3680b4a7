//! The JSON of a release as Helm writes it, reduced to the fields of a record.
//!
//! Entry point: `Release::read`. Helm reads with Go's `encoding/json`: keys match without regard to case, and
//! of duplicates the last wins. Invariant: a record with either is refused, because it could mean one thing
//! to Helm and another to the guard. A valid record has neither.

use std::fmt;
use std::io::Read;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::error::Category;

use super::sieve::Digests;
use super::{ApplyMethod, ChartVersion, Record, RecordError, Status};

/// The fields that are read, at the top, in `info`, in `chart` and in its `metadata`.
const FIELDS: [&str; 11] = [
    "name",
    "namespace",
    "version",
    "manifest",
    "apply_method",
    "info",
    "chart",
    "metadata",
    "status",
    "last_deployed",
    "deleted",
];

/// A release's JSON, undigested. `null` is absence, as in Go.
#[derive(Default)]
pub(super) struct Release {
    name: Option<String>,
    namespace: Option<String>,
    version: Option<u64>,
    /// Empty: its text is taken on the way.
    manifest: Option<String>,
    apply_method: Option<String>,
    info: Option<Info>,
    chart: Option<Chart>,
    ambiguous: Option<&'static str>,
}

/// The `info` of a release's JSON.
#[derive(Default)]
struct Info {
    status: Option<String>,
    last_deployed: Option<String>,
    deleted: Option<String>,
    ambiguous: Option<&'static str>,
}

/// The `chart` of a release's JSON. No verdict depends on it, so the last of duplicate fields counts, as in
/// Go.
#[derive(Default)]
struct Chart {
    metadata: Option<Metadata>,
}

/// The `metadata` of a chart.
#[derive(Default)]
struct Metadata {
    name: Option<String>,
    version: Option<String>,
}

/// How a key of the JSON relates to the fields that count.
enum Key {
    Field(&'static str),
    /// Go would take the key for this field, a strict reader would not.
    Lookalike(&'static str),
    Other,
}

/// A JSON object whose known keys fill a value.
trait Fill: Default {
    /// Takes the value of `field`, or returns `false` for an unknown field.
    fn fill<'de, M: MapAccess<'de>>(&mut self, field: &'static str, map: &mut M) -> Result<bool, M::Error>;
    /// Notes that `field` was given in more than one way.
    fn note_ambiguous(&mut self, field: &'static str);
}

/// Reads a JSON object into `T`, or `null` as its default.
struct Seed<T>(T);

impl Release {
    /// Reads one release and the end of its input.
    pub(super) fn read(source: impl Read) -> Result<Self, RecordError> {
        let mut reader = serde_json::Deserializer::from_reader(source);
        let release = Seed(Self::default()).deserialize(&mut reader).map_err(json_error)?;
        reader.end().map_err(json_error)?;
        Ok(release)
    }

    /// The record that the release's JSON describes.
    pub(super) fn into_record(self, manifest: String, digests: Digests) -> Result<Record, RecordError> {
        let info = self.info.unwrap_or_default();
        if let Some(field) = self.ambiguous.or(info.ambiguous) {
            return Err(RecordError::Ambiguous { field });
        }
        Ok(Record {
            name: required("name", self.name)?,
            namespace: required("namespace", self.namespace)?,
            revision: self
                .version
                .filter(|version| *version > 0)
                .ok_or(RecordError::Missing { field: "version" })?,
            status: required("info.status", info.status)?.parse().unwrap_or(Status::Unknown),
            // Helm leaves the key out when a chart renders no object.
            manifest,
            digest: digests.manifest,
            values: digests.values,
            apply_method: match self.apply_method.as_deref() {
                Some("ssa") => ApplyMethod::ServerSide,
                _ => ApplyMethod::ClientSide,
            },
            chart: self.chart.and_then(Chart::named),
            last_deployed: time("info.last_deployed", info.last_deployed)?,
            deleted: time("info.deleted", info.deleted)?,
        })
    }
}

impl Chart {
    fn named(self) -> Option<ChartVersion> {
        let Metadata { name, version } = self.metadata?;
        ChartVersion::new(&name?, &version?)
    }
}

/// The parser's own message can quote the value, which may be a secret. Only the kind of the error and its
/// place are reported.
pub(super) fn json_error(error: serde_json::Error) -> RecordError {
    let what = match error.classify() {
        Category::Data => "a value of another type than Helm writes",
        Category::Eof => "an unexpected end",
        Category::Syntax | Category::Io => "a syntax error",
    };
    RecordError::Json { what, at: error.column() }
}

fn required(field: &'static str, value: Option<String>) -> Result<String, RecordError> {
    value.filter(|text| !text.is_empty()).ok_or(RecordError::Missing { field })
}

/// Helm 3 writes "" and Go's zero time for a missing time, Helm 4 writes no key.
fn time(field: &'static str, value: Option<String>) -> Result<Option<Timestamp>, RecordError> {
    match value.as_deref() {
        None | Some("" | "0001-01-01T00:00:00Z") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| RecordError::Time { field }),
    }
}

impl Fill for Release {
    fn fill<'de, M: MapAccess<'de>>(&mut self, field: &'static str, map: &mut M) -> Result<bool, M::Error> {
        let again = match field {
            "name" => set(&mut self.name, map)?,
            "namespace" => set(&mut self.namespace, map)?,
            "version" => set(&mut self.version, map)?,
            "manifest" => set(&mut self.manifest, map)?,
            "apply_method" => set(&mut self.apply_method, map)?,
            "info" => {
                let again = self.info.is_some();
                self.info = Some(map.next_value_seed(Seed(Info::default()))?);
                again
            }
            "chart" => {
                let again = self.chart.is_some();
                self.chart = Some(map.next_value_seed(Seed(Chart::default()))?);
                again
            }
            _ => return Ok(false),
        };
        if again {
            self.note_ambiguous(field);
        }
        Ok(true)
    }

    fn note_ambiguous(&mut self, field: &'static str) {
        self.ambiguous = Some(field);
    }
}

impl Fill for Info {
    fn fill<'de, M: MapAccess<'de>>(&mut self, field: &'static str, map: &mut M) -> Result<bool, M::Error> {
        let again = match field {
            "status" => set(&mut self.status, map)?,
            "last_deployed" => set(&mut self.last_deployed, map)?,
            "deleted" => set(&mut self.deleted, map)?,
            _ => return Ok(false),
        };
        if again {
            self.note_ambiguous(field);
        }
        Ok(true)
    }

    fn note_ambiguous(&mut self, field: &'static str) {
        self.ambiguous = Some(field);
    }
}

impl Fill for Chart {
    fn fill<'de, M: MapAccess<'de>>(&mut self, field: &'static str, map: &mut M) -> Result<bool, M::Error> {
        if field == "metadata" {
            self.metadata = Some(map.next_value_seed(Seed(Metadata::default()))?);
        }
        Ok(field == "metadata")
    }

    fn note_ambiguous(&mut self, _: &'static str) {}
}

impl Fill for Metadata {
    fn fill<'de, M: MapAccess<'de>>(&mut self, field: &'static str, map: &mut M) -> Result<bool, M::Error> {
        match field {
            "name" => set(&mut self.name, map)?,
            "version" => set(&mut self.version, map)?,
            _ => return Ok(false),
        };
        Ok(true)
    }

    fn note_ambiguous(&mut self, _: &'static str) {}
}

/// Sets `slot` to the map's next value; whether it held one before.
fn set<'de, T, M>(slot: &mut Option<T>, map: &mut M) -> Result<bool, M::Error>
where
    T: Deserialize<'de>,
    M: MapAccess<'de>,
{
    let again = slot.is_some();
    *slot = map.next_value()?;
    Ok(again)
}

impl<'de, T: Fill> DeserializeSeed<'de> for Seed<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Fill> Visitor<'de> for Seed<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(self.0)
    }

    fn visit_map<M: MapAccess<'de>>(mut self, mut map: M) -> Result<T, M::Error> {
        while let Some(key) = map.next_key::<Key>()? {
            let taken = match key {
                Key::Field(field) => self.0.fill(field, &mut map)?,
                Key::Lookalike(field) => {
                    self.0.note_ambiguous(field);
                    false
                }
                Key::Other => false,
            };
            if !taken {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(self.0)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl Visitor<'_> for KeyVisitor {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_str<E>(self, text: &str) -> Result<Key, E> {
                Ok(Key::of(text))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

impl Key {
    fn of(text: &str) -> Self {
        if let Some(field) = FIELDS.iter().find(|field| **field == text) {
            return Self::Field(field);
        }
        match FIELDS.iter().find(|field| folds_to(text, field)) {
            Some(field) => Self::Lookalike(field),
            None => Self::Other,
        }
    }
}

/// Whether Go matches the key `text` with `field`: case folding by Unicode, in which the long s and the
/// Kelvin sign fold to ASCII letters.
fn folds_to(text: &str, field: &str) -> bool {
    let folded = text.chars().map(|letter| match letter {
        'ſ' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    });
    folded.eq(field.chars())
}
