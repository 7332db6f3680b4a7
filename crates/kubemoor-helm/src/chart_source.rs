//! The inputs and the result of rendering a revision: the chart's defaults, the user's values, the templates and the
//! manifest. Read on demand from one record, and not kept for long. And the keys of a Secret that an earlier revision set by
//! `stringData` and that are still there, although no revision in force declares them: the API server turns `stringData`
//! into `data` and forgets whose the keys were, so neither an apply nor a merge removes a key that a chart drops.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::Value;

use super::manifest;
use super::record::{ChartVersion, PackedRecord, RecordError, json_error};
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_declare::path::{Path, Segment};

/// The most bytes of JSON of a record that is read whole.
const CAP: usize = 16 << 20;

/// The maximum number of values, keys and elements in such a record: each uses many times its bytes in memory.
const VALUES: usize = 300_000;

pub struct ChartSource {
    pub revision: u64,
    release: ReleaseId,
    chart: ChartMetadata,
    defaults: Value,
    given: Value,
    templates: Vec<(String, String)>,
    manifest: String,
}

#[derive(Deserialize)]
struct WireRecord {
    name: String,
    namespace: String,
    version: u64,
    chart: WireChart,
    config: Option<Value>,
    #[serde(default)]
    manifest: String,
}

#[derive(Deserialize)]
struct WireChart {
    metadata: ChartMetadata,
    values: Option<Value>,
    templates: Option<Vec<WireFile>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ChartMetadata {
    name: String,
    version: String,
    #[serde(default)]
    app_version: String,
}

#[derive(Deserialize)]
struct WireFile {
    name: String,
    data: String,
}

impl PackedRecord {
    /// The inputs and the result of rendering the revision.
    pub fn source(&self) -> Result<ChartSource, RecordError> {
        let json = self.json(CAP)?;
        if json.iter().filter(|byte| matches!(byte, b',' | b'{' | b'[')).count() > VALUES {
            return Err(RecordError::TooLarge { cap: CAP });
        }
        let wire: WireRecord = serde_json::from_slice(&json).map_err(json_error)?;
        let decoded = |file: WireFile| {
            let text = String::from_utf8(BASE64_STANDARD.decode(file.data).ok()?).ok()?;
            Some((file.name, text))
        };
        let templates = wire.chart.templates.unwrap_or_default();
        Ok(ChartSource {
            revision: wire.version,
            release: ReleaseId { namespace: wire.namespace.into(), name: wire.name.into() },
            chart: wire.chart.metadata,
            defaults: wire.chart.values.unwrap_or_default(),
            given: wire.config.unwrap_or_default(),
            templates: templates.into_iter().filter_map(decoded).collect(),
            manifest: wire.manifest,
        })
    }
}

impl ChartSource {
    pub fn chart(&self) -> Option<ChartVersion> {
        ChartVersion::new(&self.chart.name, &self.chart.version)
    }

    pub fn manifest(&self) -> &str {
        &self.manifest
    }

    /// The memory that it takes, about, in bytes.
    pub fn weight(&self) -> usize {
        let templates: usize = self.templates.iter().map(|(name, text)| name.len() + text.len()).sum();
        self.manifest.len() + templates + weight(&self.defaults) + weight(&self.given)
    }

    pub(crate) fn templates(&self) -> impl Iterator<Item = (&str, &str)> {
        self.templates.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    pub(crate) fn values(&self) -> (&Value, &Value) {
        (&self.defaults, &self.given)
    }

    /// What templates know beside values: `Chart.AppVersion`.
    pub(crate) fn builtin(&self, name: &str) -> Option<String> {
        let text: &str = match name {
            "Chart.Name" => &self.chart.name,
            "Chart.Version" => &self.chart.version,
            "Chart.AppVersion" => &self.chart.app_version,
            "Release.Name" => &self.release.name,
            "Release.Namespace" => &self.release.namespace,
            _ => return None,
        };
        Some(text.to_owned())
    }
}

fn weight(value: &Value) -> usize {
    let below = match value {
        Value::Object(map) => {
            map.iter().map(|(name, value)| 2 * size_of::<String>() + name.len() + weight(value)).sum()
        }
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::String(text) => text.len(),
        _ => 0,
    };
    size_of::<Value>() + below
}

#[derive(Clone, Debug, PartialEq)]
pub struct DroppedSecretKey {
    pub path: Path,
    /// The last revision that declared it.
    pub revision: u64,
}

/// The keys of a live Secret that upgrades left behind, by the latest revision and those before it, newest first. A key
/// with another value than the one that was declared is somebody else's.
pub fn left_behind(sources: &[ChartSource], object: &ObjectId, live: &Value) -> Vec<DroppedSecretKey> {
    let Some((latest, earlier)) = sources.split_first() else { return Vec::new() };
    let Some(Value::Object(data)) = live.get("data").filter(|_| is_secret(object)) else { return Vec::new() };
    let Some(declared) = manifest::written(latest.manifest(), object) else { return Vec::new() };
    let is_declared = |key: &str| {
        let has = |map: &str| declared.object.get(map).is_some_and(|map| map.get(key).is_some());
        has("data") || has("stringData")
    };
    let mut open: Vec<(&String, &Value)> = data.iter().filter(|(key, _)| !is_declared(key)).collect();
    let mut found = Vec::new();
    for source in earlier {
        if open.is_empty() {
            break;
        }
        let Some(before) = manifest::written(source.manifest(), object) else { continue };
        open.retain(|(key, value)| {
            let text = before.object.pointer("/stringData").and_then(|texts| texts.get(key.as_str()));
            let Some(text) = text.and_then(Value::as_str) else { return true };
            if value.as_str() == Some(&BASE64_STANDARD.encode(text)) {
                let path = ["data", key.as_str()].map(|name| Segment::Field(name.to_owned()));
                found.push(DroppedSecretKey {
                    path: Path(path.into_iter().collect()),
                    revision: source.revision,
                });
            }
            false
        });
    }
    found.sort_by_cached_key(|it| it.path.to_string());
    found
}

/// Whether an object can hold such keys.
pub fn is_secret(object: &ObjectId) -> bool {
    object.group.is_empty() && object.kind == "Secret"
}

#[cfg(test)]
mod tests;
