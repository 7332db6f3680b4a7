//! The known kinds with their plurals, scopes and types. [`core()`] has the built-in kinds that charts use, as
//! Kubernetes describes them. `cargo run --example core_kinds` generates them from a server's OpenAPI documents in the
//! format of [`encode`]: JSON with one kind or type per line, so that a new Kubernetes version gives a readable diff.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::path::Path;
use super::schema::{KindSchema, TypeId, Types};
use crate::model::Gvk;

type KindVersions = Vec<(String, Arc<KindSchema>)>;

#[derive(Clone, Debug, Default)]
pub struct Catalog {
    kinds: HashMap<(String, String), Arc<KindFacts>>,
    plurals: HashMap<(String, String), String>,
    schemas: HashMap<(String, String), KindVersions>,
}

impl Catalog {
    pub fn facts(&self, group: &str, kind: &str) -> Option<&Arc<KindFacts>> {
        self.kinds.get(&(group.to_owned(), kind.to_owned()))
    }

    /// The facts about the kind of a resource such as `deployments`.
    pub fn kind_of_resource(&self, group: &str, plural: &str) -> Option<&Arc<KindFacts>> {
        let kind = self.plurals.get(&(group.to_owned(), plural.to_owned()))?;
        self.facts(group, kind)
    }

    /// The types of a kind in this version, else in the most stable other version of the same group and kind (versions
    /// disappear far more often than fields move).
    pub fn schema(&self, gvk: &Gvk) -> Option<Arc<KindSchema>> {
        let versions = self.schemas.get(&(gvk.group.clone(), gvk.kind.clone()))?;
        let exact = versions.iter().find(|(version, _)| *version == gvk.version);
        let stable = || versions.iter().max_by_key(|(version, _)| priority(version));
        exact.or_else(stable).map(|(_, schema)| Arc::clone(schema))
    }

    pub fn kinds(&self) -> impl Iterator<Item = &KindFacts> {
        self.kinds.values().map(Arc::as_ref)
    }

    pub fn insert(&mut self, facts: KindFacts) {
        let key = (facts.group.clone(), facts.kind.clone());
        self.plurals.insert((facts.group.clone(), facts.plural.clone()), facts.kind.clone());
        self.kinds.insert(key, Arc::new(facts));
    }

    pub fn insert_schema(&mut self, gvk: Gvk, schema: KindSchema) {
        let versions = self.schemas.entry((gvk.group, gvk.kind)).or_default();
        versions.retain(|(version, _)| *version != gvk.version);
        versions.push((gvk.version, Arc::new(schema)));
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

/// The facts about one kind, without its types.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KindFacts {
    /// The API group; empty for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    pub kind: String,
    /// The resource's name in URLs and rules, such as `deployments`.
    pub plural: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub namespaced: bool,
    /// The versions in which it is served, the preferred one first.
    pub versions: Vec<String>,
    /// The path of the replicas that the `scale` subresource sets; `None` without such a subresource.
    #[serde(rename = "replicas", default, skip_serializing_if = "Option::is_none")]
    pub scale_replicas_path: Option<Path>,
}

impl KindFacts {
    /// The requested version if it is served, else the preferred one.
    pub fn served(&self, version: &str) -> Option<&str> {
        let exact = self.versions.iter().find(|served| *served == version);
        exact.or_else(|| self.versions.first()).map(String::as_str)
    }

    /// The facts that a CustomResourceDefinition (v1) states. None if it lacks any of them.
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
            // The API server does not accept array notation in this path.
            .map(|path| Path::from_names(path.split('.').filter(|name| !name.is_empty())));
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

static DATA: &str = include_str!("catalog/core.json");

/// The built-in catalog.
pub fn core() -> &'static Catalog {
    // A test decodes the same text, so this cannot fail at run time.
    static CORE: LazyLock<Catalog> = LazyLock::new(|| decode(DATA).unwrap_or_default());
    &CORE
}

/// Whether any type of the core kinds has a field of that name.
pub fn has_field(name: &str) -> bool {
    static NAMES: LazyLock<HashSet<Arc<str>>> = LazyLock::new(|| {
        let pod = Gvk { group: String::new(), version: "v1".to_owned(), kind: "Pod".to_owned() };
        core().schema(&pod).map(|schema| schema.types.names()).unwrap_or_default()
    });
    NAMES.contains(name)
}

impl Catalog {
    /// A copy of the built-in catalog of the core kinds, to add kinds to.
    pub fn with_core() -> Self {
        core().clone()
    }
}

#[derive(Deserialize)]
struct CatalogText {
    kinds: Vec<KindRow>,
    types: Types,
}

/// Encodes kinds and their types, which must share one arena.
pub fn encode(facts: &[KindFacts], schemas: &[(Gvk, KindSchema)]) -> serde_json::Result<String> {
    let empty = Types::default();
    let types = schemas.first().map_or(&empty, |(_, schema)| &*schema.types);
    let mut lines = Vec::new();
    for facts in facts {
        let own = schemas.iter().filter(|(gvk, _)| gvk.group == facts.group && gvk.kind == facts.kind);
        let types = own.map(|(gvk, schema)| (gvk.version.clone(), schema.root.0)).collect();
        lines.push(serde_json::to_string(&KindRow { facts: facts.clone(), types })?);
    }
    let kinds = lines.join(",\n");
    let rows: Result<Vec<String>, _> = types.0.iter().map(serde_json::to_string).collect();
    Ok(format!("{{\"kinds\":[\n{kinds}\n],\"types\":[\n{}\n]}}\n", rows?.join(",\n")))
}

/// Reads what [`encode`] wrote.
pub fn decode(text: &str) -> serde_json::Result<Catalog> {
    let text: CatalogText = serde_json::from_str(text)?;
    let types = Arc::new(text.types);
    let mut catalog = Catalog::default();
    for KindRow { facts, types: roots } in text.kinds {
        for (version, root) in roots {
            let gvk = Gvk { group: facts.group.clone(), version, kind: facts.kind.clone() };
            catalog.insert_schema(gvk, KindSchema { types: Arc::clone(&types), root: TypeId(root) });
        }
        catalog.insert(facts);
    }
    Ok(catalog)
}

#[derive(Serialize, Deserialize)]
struct KindRow {
    #[serde(flatten)]
    facts: KindFacts,
    types: BTreeMap<String, u32>,
}

#[cfg(test)]
mod tests;
