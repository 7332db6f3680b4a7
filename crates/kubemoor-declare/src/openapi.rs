//! From OpenAPI documents and CustomResourceDefinitions to types.
//!
//! Entry points: [`Reduction`] for the documents of a server, which share
//! definitions; [`from_crd`] for one custom kind; [`facts`] for what paths say.
//!
//! Invariant: total on any document. References are followed by a work list,
//! so circles and long chains cost no stack; documents nested too deeply are
//! refused. Must not fetch anything.
//!
//! What is read: types and formats, `x-kubernetes-list-type`,
//! `-list-map-keys`, `-map-type`, `-int-or-string`, `-preserve-unknown-fields`,
//! and for servers that know no list types yet `-patch-merge-key` and
//! `-patch-strategy`, with the meaning that server-side apply gives them.

use serde::Deserialize;
use serde_json::Value;

use self::document::Node;
use super::schema::{KindSchema, MAX_DEPTH};
use crate::model::Gvk;

mod document;
mod paths;
mod reduce;

pub use self::paths::facts;
pub use self::reduce::Reduction;

/// A document from which no types can be read.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// It is no OpenAPI document in JSON.
    #[error("cannot read the OpenAPI document: {0}")]
    Document(#[source] serde_json::Error),
    /// It is no CustomResourceDefinition of apiextensions.k8s.io/v1.
    #[error("cannot read the CustomResourceDefinition {name:?}: {problem}")]
    Definition {
        /// Its name, as far as it has one.
        name: String,
        /// The reason.
        problem: String,
    },
}

/// The types of every version of a CustomResourceDefinition (v1).
pub fn from_crd(crd: &Value) -> Result<Vec<(Gvk, KindSchema)>, SchemaError> {
    let text = |pointer: &str| crd.pointer(pointer).and_then(Value::as_str);
    let fail = |problem: String| SchemaError::Definition {
        name: text("/metadata/name").unwrap_or_default().to_owned(),
        problem,
    };
    let missing = |field: &str| fail(format!("{field} is missing"));
    let group = text("/spec/group").ok_or_else(|| missing("spec.group"))?;
    let kind = text("/spec/names/kind").ok_or_else(|| missing("spec.names.kind"))?;
    let versions =
        crd.pointer("/spec/versions").and_then(Value::as_array).ok_or_else(|| missing("spec.versions"))?;
    let keeps = crd.pointer("/spec/preserveUnknownFields").and_then(Value::as_bool) == Some(true);
    let mut found = Vec::new();
    for version in versions {
        let name =
            version.get("name").and_then(Value::as_str).ok_or_else(|| missing("spec.versions[].name"))?;
        let schema = match version.pointer("/schema/openAPIV3Schema") {
            Some(schema) if is_deeper(schema, MAX_DEPTH) => {
                return Err(fail(format!("the schema of version {name} is nested too deeply")));
            }
            Some(schema) => Node::deserialize(schema).map_err(|error| fail(error.to_string()))?,
            None => Node::default(),
        };
        let mut reduction = Reduction::default();
        let gvk = Gvk { group: group.to_owned(), version: name.to_owned(), kind: kind.to_owned() };
        reduction.add_custom(gvk, &schema, keeps);
        found.extend(reduction.finish());
    }
    Ok(found)
}

/// Whether a value is nested more than `levels` deep.
fn is_deeper(value: &Value, levels: usize) -> bool {
    let mut rest = vec![(value, 0)];
    while let Some((value, depth)) = rest.pop() {
        if depth > levels {
            return true;
        }
        match value {
            Value::Array(items) => rest.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(map) => rest.extend(map.values().map(|item| (item, depth + 1))),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests;
