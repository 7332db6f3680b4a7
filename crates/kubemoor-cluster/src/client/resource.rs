//! The path of a kind's objects in the API (`metadata` has the part of their metadata that is used here).
//!
//! Entry points: [`Resource`], [`segment`]. Invariant: no value in a manifest or an object can escape its path
//! segment.

mod metadata;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

pub use self::metadata::{Managed, Meta, Partial};
use super::call::CallError;

/// The characters that a path needs no escape for; RBAC names hold colons.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');

/// The API group of Kubemoor's own kinds.
pub const GROUP: &str = "kubemoor.dev";

/// The version of Kubemoor's own kinds.
pub const VERSION: &str = "v1alpha1";

/// One resource of the API: what a kind is called in paths.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version, such as `v1`.
    pub version: String,
    /// The kind, such as `Deployment`.
    pub kind: String,
    /// The plural, such as `deployments`.
    pub plural: String,
}

impl Resource {
    /// The resource that holds the objects of `kind` of `group` in `version` under `plural`.
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

    /// The path of the resource's collection: of one namespace, or of all.
    pub fn path(&self, namespace: Option<&str>) -> Result<String, CallError> {
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

/// `text` as one segment of a path, by the API server's own rule for names.
pub fn segment(text: &str) -> Result<String, CallError> {
    if text.is_empty() || text == "." || text == ".." || text.contains(['/', '%']) {
        return Err(CallError::Unformed { reason: format!("{text:?} cannot be a name in the API") });
    }
    Ok(utf8_percent_encode(text, PLAIN).to_string())
}

#[cfg(test)]
mod tests;
