//! The known kinds: their plural, their scope, and their types.
//!
//! Entry point: [`Catalog`]. Invariant: holds only values that were added. An unknown kind gives `None`.
//! Cheap to clone: types are shared. Must not fetch anything.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::path::{Path, Segment};
use super::schema::KindSchema;
use crate::model::Gvk;

/// What kinds there are.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// By group and kind.
    kinds: HashMap<(String, String), Arc<KindFacts>>,
    /// Kinds by group and plural.
    plurals: HashMap<(String, String), String>,
    /// By group and kind, then by version.
    schemas: HashMap<(String, String), Vec<(String, KindSchema)>>,
}

/// The facts about one kind, without its types.
#[derive(Clone, Debug, PartialEq)]
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

impl Catalog {
    /// The facts of a kind.
    pub fn facts(&self, group: &str, kind: &str) -> Option<&KindFacts> {
        self.kinds.get(&(group.to_owned(), kind.to_owned())).map(Arc::as_ref)
    }

    /// The facts of the kind that a resource such as `deployments` holds.
    pub fn kind_of_resource(&self, group: &str, plural: &str) -> Option<&KindFacts> {
        let kind = self.plurals.get(&(group.to_owned(), plural.to_owned()))?;
        self.facts(group, kind)
    }

    /// The types of a kind: of exactly this version, else of the most stable
    /// other version of the same group and kind (versions go far more often
    /// than fields move).
    pub fn schema(&self, gvk: &Gvk) -> Option<KindSchema> {
        let versions = self.schemas.get(&(gvk.group.clone(), gvk.kind.clone()))?;
        let exact = versions.iter().find(|(version, _)| *version == gvk.version);
        let stable = || versions.iter().max_by_key(|(version, _)| priority(version));
        exact.or_else(stable).map(|(_, schema)| schema.clone())
    }

    /// The kinds in no order.
    pub fn kinds(&self) -> impl Iterator<Item = &KindFacts> {
        self.kinds.values().map(Arc::as_ref)
    }

    /// Puts a kind's facts in, in place of earlier ones.
    pub fn insert(&mut self, facts: KindFacts) {
        let key = (facts.group.clone(), facts.kind.clone());
        self.plurals.insert((facts.group.clone(), facts.plural.clone()), facts.kind.clone());
        self.kinds.insert(key, Arc::new(facts));
    }

    /// Puts a kind's types in, in place of earlier ones of that version.
    pub fn insert_schema(&mut self, gvk: Gvk, schema: KindSchema) {
        let versions = self.schemas.entry((gvk.group, gvk.kind)).or_default();
        versions.retain(|(version, _)| *version != gvk.version);
        versions.push((gvk.version, schema));
    }
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

/// How stable and recent a version is, as Kubernetes orders versions: `v2`
/// before `v1` before `v2beta1` before `v1alpha2`, then all others.
pub fn priority(version: &str) -> (u8, u32, u32) {
    let numbers = || -> Option<(u8, u32, u32)> {
        let rest = version.strip_prefix('v')?;
        for (stage, name) in [(2, "beta"), (1, "alpha")] {
            if let Some((major, minor)) = rest.split_once(name) {
                return Some((stage, major.parse().ok()?, minor.parse().ok()?));
            }
        }
        Some((3, rest.parse().ok()?, 0))
    };
    numbers().unwrap_or_default()
}

/// A path such as `.spec.replicas`: the API server takes no array notation in
/// it.
fn dotted(text: &str) -> Path {
    let names = text.split('.').filter(|name| !name.is_empty());
    Path(names.map(|name| Segment::Field(name.to_owned())).collect())
}

#[cfg(test)]
mod tests;
