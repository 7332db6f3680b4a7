//! The facts about one kind, without its types.
//!
//! Entry points: [`KindFacts`], [`KindFacts::from_crd`]. Invariant: a definition without one of the facts gives `None`.

use serde_json::Value;

use super::super::path::{Path, Segment};

/// The facts about one kind, without its types.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KindFacts {
    /// The API group; empty for the core group.
    pub group: String,
    /// The kind, such as `Deployment`.
    pub kind: String,
    /// The resource's name in URLs and rules, such as `deployments`.
    pub plural: String,
    /// Whether its objects lie in namespaces.
    pub namespaced: bool,
    /// The versions in which it is served, the preferred one first.
    pub versions: Vec<String>,
    /// The field of the `scale` subresource's replicas; `None` without such a subresource.
    pub scale_replicas_path: Option<Path>,
}

impl KindFacts {
    /// The version asked for where it is served, else the preferred one.
    pub fn served(&self, version: &str) -> Option<&str> {
        let exact = self.versions.iter().find(|served| *served == version);
        exact.or_else(|| self.versions.first()).map(String::as_str)
    }

    /// The facts that a CustomResourceDefinition (v1) states. None if it lacks
    /// any of them.
    pub fn from_crd(crd: &Value) -> Option<Self> {
        let text = |pointer: &str| crd.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let versions: Vec<&Value> = crd.pointer("/spec/versions")?.as_array()?.iter().collect();
        let served = |version: &&&Value| version.get("served").and_then(Value::as_bool) == Some(true);
        let storage = |version: &&Value| version.get("storage").and_then(Value::as_bool) != Some(true);
        let mut names: Vec<&Value> = versions.iter().filter(served).copied().collect();
        names.sort_by_key(storage);
        let scale = versions
            .iter()
            .find_map(|version| version.pointer("/subresources/scale/specReplicasPath")?.as_str())
            .map(dotted);
        Some(Self {
            group: text("/spec/group")?,
            kind: text("/spec/names/kind")?,
            plural: text("/spec/names/plural")?,
            namespaced: crd.pointer("/spec/scope")?.as_str()? == "Namespaced",
            versions: names.iter().filter_map(|v| Some(v.get("name")?.as_str()?.to_owned())).collect(),
            scale_replicas_path: scale,
        })
    }
}

/// A path such as `.spec.replicas`: the API server takes no array notation in
/// it.
fn dotted(text: &str) -> Path {
    let names = text.split('.').filter(|name| !name.is_empty());
    Path(names.map(|name| Segment::Field(name.to_owned())).collect())
}
