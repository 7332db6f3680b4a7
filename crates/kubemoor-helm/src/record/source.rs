//! The inputs and the result of rendering a revision: the chart's defaults, the user's values, the templates
//! and the manifest.
//!
//! Entry point: [`Packed::source`]. Invariant: read on demand from one record, within [`CAP`], and not kept
//! for long. Has no `Debug`: values and manifests hold secrets.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::Value;

use super::{ChartVersion, Packed, RecordError, layers};

/// The most bytes of JSON of a record that is read whole.
const CAP: usize = 16 << 20;

/// The maximum number of values, keys and elements in such a record: each uses many times its bytes in
/// memory.
const VALUES: usize = 300_000;

/// The inputs and the result of rendering one revision.
pub struct ChartSource {
    /// The revision.
    pub revision: u64,
    release: Names,
    chart: Metadata,
    defaults: Value,
    given: Value,
    templates: Vec<(String, String)>,
    manifest: String,
}

/// The release of a record.
struct Names {
    name: String,
    namespace: String,
}

#[derive(Deserialize)]
struct Wire {
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
    metadata: Metadata,
    values: Option<Value>,
    templates: Option<Vec<WireFile>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
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

impl Packed {
    /// The inputs and the result of rendering the revision.
    ///
    /// # Errors
    /// As for `decode`, and when the record is too large to be read whole.
    pub fn source(&self) -> Result<ChartSource, RecordError> {
        let json = self.json(CAP)?;
        if json.iter().filter(|byte| matches!(byte, b',' | b'{' | b'[')).count() > VALUES {
            return Err(RecordError::TooLarge { cap: CAP });
        }
        let wire: Wire = serde_json::from_slice(&json).map_err(super::wire::json_error)?;
        let decoded = |file: WireFile| {
            let text = String::from_utf8(BASE64_STANDARD.decode(file.data).ok()?).ok()?;
            Some((file.name, text))
        };
        let templates = wire.chart.templates.unwrap_or_default();
        Ok(ChartSource {
            revision: wire.version,
            release: Names { name: wire.name, namespace: wire.namespace },
            chart: wire.chart.metadata,
            defaults: wire.chart.values.unwrap_or_default(),
            given: wire.config.unwrap_or_default(),
            templates: templates.into_iter().filter_map(decoded).collect(),
            manifest: wire.manifest,
        })
    }

    fn json(&self, cap: usize) -> Result<Vec<u8>, RecordError> {
        let text = self.text.as_bytes();
        match self.is_secret {
            true => layers::whole(base64::read::DecoderReader::new(text, &layers::BASE64), cap),
            false => layers::whole(text, cap),
        }
    }
}

impl ChartSource {
    /// The chart.
    pub fn chart(&self) -> Option<ChartVersion> {
        ChartVersion::new(&self.chart.name, &self.chart.version)
    }

    /// The rendered manifest.
    pub fn manifest(&self) -> &str {
        &self.manifest
    }

    /// The memory that it takes, about, in bytes.
    pub fn weight(&self) -> usize {
        let templates: usize = self.templates.iter().map(|(name, text)| name.len() + text.len()).sum();
        self.manifest.len() + templates + weight(&self.defaults) + weight(&self.given)
    }

    /// The templates, each with its file.
    pub(crate) fn templates(&self) -> impl Iterator<Item = (&str, &str)> {
        self.templates.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// The chart's defaults and the user's values.
    pub(crate) fn values(&self) -> (&Value, &Value) {
        (&self.defaults, &self.given)
    }

    /// What templates know beside values: `Chart.AppVersion`.
    pub(crate) fn builtin(&self, name: &str) -> Option<String> {
        let text = match name {
            "Chart.Name" => &self.chart.name,
            "Chart.Version" => &self.chart.version,
            "Chart.AppVersion" => &self.chart.app_version,
            "Release.Name" => &self.release.name,
            "Release.Namespace" => &self.release.namespace,
            _ => return None,
        };
        Some(text.clone())
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
