//! The policies that would permit what passed and Deny would refuse.
//!
//! Entry point: [`permits`]. Invariant: a policy names exactly the releases,
//! objects and fields that were met, so that it permits nothing else.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::ledger::entry::{Entry, Object};

/// What would permit the edits of one release's objects.
pub(super) struct Permit {
    namespace: String,
    release: String,
    objects: BTreeMap<(String, String, Option<String>, String), BTreeSet<String>>,
    /// Edits that no ignored field would permit.
    pub(super) uncovered: usize,
}

/// One for each release of `entries`.
pub(super) fn permits(entries: &[Entry]) -> Vec<Permit> {
    let mut permits: BTreeMap<(String, String), Permit> = BTreeMap::new();
    for entry in entries {
        let release = entry.release.clone().unwrap_or_default();
        let permit = permits.entry((entry.namespace.clone(), release.clone())).or_insert_with(|| Permit {
            namespace: entry.namespace.clone(),
            release,
            objects: BTreeMap::new(),
            uncovered: 0,
        });
        let covered = entry.release.is_some() && entry.more_fields == 0 && !entry.fields.is_empty();
        if !covered {
            permit.uncovered += 1;
            continue;
        }
        let Object { group, kind, namespace, name } = entry.object.clone();
        let paths = permit.objects.entry((group, kind, namespace, name)).or_default();
        paths.extend(entry.fields.iter().map(|field| field.path.clone()));
    }
    permits.into_values().collect()
}

impl Permit {
    /// Whether there is anything that a policy would permit.
    pub(super) fn is_policy(&self) -> bool {
        !self.objects.is_empty()
    }

    /// The policy, as it may be applied.
    pub(super) fn policy(&self) -> Value {
        let ignore = self.objects.iter().map(|((group, kind, namespace, name), paths)| {
            // Selectors are regular expressions; dots are not meant as such.
            let mut target = json!({"kind": kind, "name": name.replace('.', "\\.")});
            if let Some(target) = target.as_object_mut() {
                if !group.is_empty() {
                    target.insert("group".to_owned(), json!(group.replace('.', "\\.")));
                }
                if let Some(namespace) = namespace {
                    target.insert("namespace".to_owned(), json!(namespace));
                }
            }
            json!({"target": target, "paths": paths})
        });
        json!({
            "apiVersion": "kubemoor.dev/v1alpha1",
            "kind": "DriftPolicy",
            "metadata": {"name": format!("permit-{}-{}", self.namespace, self.release)},
            "spec": {
                "releases": {"names": [self.release], "namespaces": [self.namespace]},
                "ignore": ignore.collect::<Vec<_>>(),
            },
        })
    }
}
