//! The API paths of a kind's objects, and the part of their metadata that is read. No value from a manifest or an
//! object can escape its path segment, and no unexpected value in one object makes a whole page unreadable.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::core::Request as Requests;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use crate::client::call::ClusterError;

/// The characters that need no escape in a path; RBAC names contain colons.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');

/// The API group of Kubemoor's own kinds.
pub const GROUP: &str = "kubemoor.dev";

/// The version of Kubemoor's own kinds.
pub const VERSION: &str = "v1alpha1";

/// A kind with its API group, version and plural name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ApiResource {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version, such as `v1`.
    pub version: String,
    /// The kind, such as `Deployment`.
    pub kind: String,
    /// The plural, such as `deployments`.
    pub plural: String,
}

impl ApiResource {
    pub fn new(group: &str, version: &str, kind: &str, plural: &str) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        }
    }

    /// The `apiVersion` of the objects, such as `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Whether the objects are Secrets, whose values no message may quote.
    pub(crate) fn is_secret(&self) -> bool {
        self.group.is_empty() && self.plural == "secrets"
    }

    pub(crate) fn requests(&self, namespace: Option<&str>) -> Result<Requests, ClusterError> {
        Ok(Requests::new(self.path(namespace)?))
    }

    /// The path of the resource's collection: of one namespace, or of all.
    pub fn path(&self, namespace: Option<&str>) -> Result<String, ClusterError> {
        let root = if self.group.is_empty() {
            format!("/api/{}", segment(&self.version)?)
        } else {
            format!("/apis/{}/{}", segment(&self.group)?, segment(&self.version)?)
        };
        let plural = segment(&self.plural)?;
        Ok(match namespace {
            Some(namespace) => format!("{root}/namespaces/{}/{plural}", segment(namespace)?),
            None => format!("{root}/{plural}"),
        })
    }
}

/// `text` as one path segment; rejects what the API server rejects in names.
pub fn segment(text: &str) -> Result<String, ClusterError> {
    if text.is_empty() || text == "." || text == ".." || text.contains(['/', '%']) {
        return Err(ClusterError::InvalidRequest { reason: format!("{text:?} is not a valid object name") });
    }
    Ok(utf8_percent_encode(text, PLAIN).to_string())
}

#[derive(Clone, Debug, Deserialize)]
pub struct Partial {
    pub metadata: Meta,
}

/// The part of an object's metadata that the guard needs.
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
    /// Whether this manager owns Helm's annotation that names the release.
    pub(crate) fn owns_release_name(&self) -> bool {
        self.fields
            .as_ref()
            .and_then(|fields| fields.metadata.as_ref())
            .and_then(|metadata| metadata.annotations.as_ref())
            .is_some_and(|annotations| annotations.release_name.is_some())
    }
}

/// A time; `None` if it is missing or not RFC 3339. Clients can send any text as a time inside `managedFields`.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.and_then(|text| text.parse().ok()))
}

fn some<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<IgnoredAny>::deserialize(deserializer)?.is_some())
}

#[cfg(test)]
mod tests;
