//! The known kinds: their plural, their scope, and their types.
//!
//! Entry point: [`Catalog`]. Invariant: holds only values that were added. An unknown kind gives `None`.
//! Cheap to clone: types are shared. Must not fetch anything.

mod facts;

use std::collections::HashMap;
use std::sync::Arc;

pub use self::facts::KindFacts;
use super::schema::KindSchema;
use crate::model::Gvk;

/// The types of a kind in each version.
type Versions = Vec<(String, Arc<KindSchema>)>;

/// What kinds there are.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// By group and kind.
    kinds: HashMap<(String, String), Arc<KindFacts>>,
    /// Kinds by group and plural.
    plurals: HashMap<(String, String), String>,
    /// By group and kind, then by version.
    schemas: HashMap<(String, String), Versions>,
}

impl Catalog {
    /// The facts of a kind.
    pub fn facts(&self, group: &str, kind: &str) -> Option<&Arc<KindFacts>> {
        self.kinds.get(&(group.to_owned(), kind.to_owned()))
    }

    /// The facts of the kind that a resource such as `deployments` holds.
    pub fn kind_of_resource(&self, group: &str, plural: &str) -> Option<&Arc<KindFacts>> {
        let kind = self.plurals.get(&(group.to_owned(), plural.to_owned()))?;
        self.facts(group, kind)
    }

    /// The types of a kind: of exactly this version, else of the most stable
    /// other version of the same group and kind (versions go far more often
    /// than fields move).
    pub fn schema(&self, gvk: &Gvk) -> Option<Arc<KindSchema>> {
        let versions = self.schemas.get(&(gvk.group.clone(), gvk.kind.clone()))?;
        let exact = versions.iter().find(|(version, _)| *version == gvk.version);
        let stable = || versions.iter().max_by_key(|(version, _)| priority(version));
        exact.or_else(stable).map(|(_, schema)| Arc::clone(schema))
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

#[cfg(test)]
mod tests;
