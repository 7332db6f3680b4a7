//! The inputs and the result of rendering a revision: the chart's defaults, the user's values, the templates and the
//! manifest. They are read on demand from one record, and not kept for long. Also finds keys of a Secret that an
//! earlier revision set by `stringData` and the latest one no longer declares: the API server moves `stringData` into
//! `data` without its owner, so neither an apply nor a merge removes a key that a chart drops.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::manifest;
use super::record::{ChartVersion, PackedRecord, RecordError, json_error};
use kubemoor_declare::fields::weight;
use kubemoor_declare::model::ObjectId;
use kubemoor_declare::path::{Path, Segment};

/// The maximum JSON size in bytes of a record that is read whole.
const CAP: usize = 16 << 20;

/// The maximum number of values, keys and elements in such a record: each uses many times its bytes in memory.
const VALUES: usize = 300_000;

#[derive(Deserialize)]
pub struct ChartSource {
    #[serde(rename = "version")]
    pub revision: u64,
    name: String,
    namespace: String,
    chart: SourceChart,
    #[serde(default)]
    config: Value,
    #[serde(default)]
    manifest: String,
}

#[derive(Deserialize)]
struct SourceChart {
    metadata: ChartMetadata,
    #[serde(default)]
    values: Value,
    templates: Option<Vec<ChartFile>>,
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
struct ChartFile {
    name: String,
    /// Empty if it is not text.
    #[serde(deserialize_with = "text_of_base64")]
    data: String,
}

fn text_of_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let bytes = BASE64_STANDARD.decode(String::deserialize(deserializer)?).unwrap_or_default();
    Ok(String::from_utf8(bytes).unwrap_or_default())
}

impl PackedRecord {
    /// The inputs and the result of rendering the revision.
    pub fn source(&self) -> Result<ChartSource, RecordError> {
        let json = self.json(CAP)?;
        if json.iter().filter(|byte| matches!(byte, b',' | b'{' | b'[')).count() > VALUES {
            return Err(RecordError::TooLarge { cap: CAP });
        }
        serde_json::from_slice(&json).map_err(json_error)
    }
}

impl ChartSource {
    pub fn chart(&self) -> Option<ChartVersion> {
        ChartVersion::new(&self.chart.metadata.name, &self.chart.metadata.version)
    }

    pub fn manifest(&self) -> &str {
        &self.manifest
    }

    /// The approximate memory of this in bytes.
    pub fn weight(&self) -> usize {
        let templates: usize = self.templates().map(|(name, text)| name.len() + text.len()).sum();
        self.manifest.len() + templates + weight(&self.chart.values) + weight(&self.config)
    }

    pub(crate) fn templates(&self) -> impl Iterator<Item = (&str, &str)> {
        let files = self.chart.templates.iter().flatten();
        files.map(|file| (file.name.as_str(), file.data.as_str()))
    }

    /// The chart's default values, and those that the user gave.
    pub(crate) fn values(&self) -> (&Value, &Value) {
        (&self.chart.values, &self.config)
    }

    /// The value of a built-in object of templates, such as `Chart.AppVersion`.
    pub(crate) fn builtin(&self, name: &str) -> Option<String> {
        let ChartMetadata { name: chart, version, app_version } = &self.chart.metadata;
        let text = match name {
            "Chart.Name" => chart,
            "Chart.Version" => version,
            "Chart.AppVersion" => app_version,
            "Release.Name" => &self.name,
            "Release.Namespace" => &self.namespace,
            _ => return None,
        };
        Some(text.to_owned())
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct DroppedSecretKey {
    pub path: Path,
    /// The last revision that declared it.
    pub revision: u64,
}

/// The keys of a live Secret that upgrades left behind; `sources` are the revisions, newest first. A key whose value is
/// not the one that was declared belongs to someone else.
pub fn dropped_secret_keys(
    sources: &[ChartSource],
    object: &ObjectId,
    live: &Value,
) -> Vec<DroppedSecretKey> {
    let Some((latest, earlier)) = sources.split_first() else { return Vec::new() };
    let Some(Value::Object(data)) = live.get("data").filter(|_| is_secret(object)) else { return Vec::new() };
    let Some(declared) = manifest::find_document(latest.manifest(), object) else { return Vec::new() };
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
        let Some(before) = manifest::find_document(source.manifest(), object) else { continue };
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

pub fn is_secret(object: &ObjectId) -> bool {
    object.group.is_empty() && object.kind == "Secret"
}

#[cfg(test)]
mod tests;
