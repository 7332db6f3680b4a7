//! The part of an object's metadata that the guard reads.
//!
//! Entry points: [`Meta`], [`Partial`]. Invariant: no odd value of one object makes a page of others unreadable.
//! Must not know a kind.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

/// An object of which only the metadata matters.
#[derive(Clone, Debug, Deserialize)]
pub struct Partial {
    pub metadata: Meta,
}

/// The metadata of an object, as little of it as the guard needs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    pub name: String,
    pub(crate) namespace: Option<String>,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    #[serde(deserialize_with = "time")]
    pub(crate) creation_timestamp: Option<Timestamp>,
    #[serde(deserialize_with = "some")]
    pub(crate) deletion_timestamp: bool,
    pub labels: Option<BTreeMap<String, String>>,
    pub(crate) annotations: Option<BTreeMap<String, String>>,
    pub(crate) managed_fields: Option<Vec<Managed>>,
}

/// One field manager's entry.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Managed {
    pub(crate) manager: Option<String>,
    pub(crate) operation: Option<String>,
    pub(crate) subresource: Option<String>,
    #[serde(deserialize_with = "time")]
    pub(crate) time: Option<Timestamp>,
    #[serde(rename = "fieldsV1")]
    fields: Option<ManagedFields>,
}

/// Of the managed fields only the path to Helm's annotation is read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ManagedFields {
    #[serde(rename = "f:metadata")]
    metadata: Option<ManagedMetadata>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ManagedMetadata {
    #[serde(rename = "f:annotations")]
    annotations: Option<ManagedAnnotations>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ManagedAnnotations {
    #[serde(rename = "f:meta.helm.sh/release-name")]
    release_name: Option<IgnoredAny>,
}

impl Managed {
    /// Whether this manager wrote Helm's annotation that names the release.
    pub(crate) fn owns_release_name(&self) -> bool {
        self.fields
            .as_ref()
            .and_then(|fields| fields.metadata.as_ref())
            .and_then(|metadata| metadata.annotations.as_ref())
            .is_some_and(|annotations| annotations.release_name.is_some())
    }
}

/// A time, or none when it is missing or no RFC 3339 time. Times inside
/// `managedFields` are whatever a client sent.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.and_then(|text| text.parse().ok()))
}

fn some<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<IgnoredAny>::deserialize(deserializer)?.is_some())
}
