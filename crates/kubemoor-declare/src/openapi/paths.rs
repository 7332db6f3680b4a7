//! The facts that the paths of an OpenAPI document state about kinds: plural, scope, scale.
//!
//! Entry point: [`facts`]. Must not read schemas.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Deserialize;

use super::SchemaError;
use super::document::Kind;
use crate::catalog::{KindFacts, priority};
use crate::path::{Path, Segment};

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    paths: BTreeMap<String, Operations>,
}

#[derive(Deserialize)]
struct Operations {
    get: Option<Operation>,
}

#[derive(Deserialize)]
struct Operation {
    #[serde(rename = "x-kubernetes-group-version-kind")]
    kind: Option<Kind>,
}

/// The kinds whose objects can be read at a path of the document (version 2 or
/// 3). Each has the versions that the document serves, the most stable first.
pub fn facts(document: &[u8]) -> Result<Vec<KindFacts>, SchemaError> {
    let document: Document = serde_json::from_slice(document).map_err(SchemaError::Document)?;
    let mut found: BTreeMap<(String, String), KindFacts> = BTreeMap::new();
    for (path, operations) in &document.paths {
        let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        let Some(kind) = operations.get.as_ref().and_then(|get| get.kind.as_ref()) else { continue };
        let (plural, scaled) = match segments.as_slice() {
            [.., plural, "{name}"] => (*plural, false),
            [.., plural, "{name}", "scale"] => (*plural, true),
            _ => continue,
        };
        if scaled {
            let group = match segments.as_slice() {
                ["apis", group, ..] => *group,
                _ => "",
            };
            let owner = found.values_mut().find(|facts| facts.plural == plural && facts.group == group);
            if let Some(owner) = owner {
                owner.scale_replicas_path = Some(replicas());
            }
            continue;
        }
        let facts = found.entry((kind.group.clone(), kind.kind.clone())).or_insert_with(|| KindFacts {
            group: kind.group.clone(),
            kind: kind.kind.clone(),
            plural: plural.to_owned(),
            namespaced: segments.contains(&"{namespace}"),
            versions: Vec::new(),
            scale_replicas_path: None,
        });
        if !facts.versions.contains(&kind.version) {
            facts.versions.push(kind.version.clone());
        }
    }
    let mut found: Vec<KindFacts> = found.into_values().collect();
    for facts in &mut found {
        facts.versions.sort_by_key(|version| Reverse(priority(version)));
    }
    Ok(found)
}

/// Where every built-in kind that scales keeps its replicas.
fn replicas() -> Path {
    Path(["spec", "replicas"].map(|name| Segment::Field(name.to_owned())).into())
}
