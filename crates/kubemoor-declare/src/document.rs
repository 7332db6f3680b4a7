//! A manifest document as the API server is sent it, and as it stores it.
//!
//! [`prepare`] leaves out what the API server owns and what is never compared, whoever writes the document;
//! [`fill_null_entries`] sets what the API server stores for a null.

use serde_json::Value;

use super::declare::family;
use super::equality::{Family, member};
use super::schema::{KindSchema, MAX_DEPTH, Shape, TypeId, Types};

/// The fields of `metadata` that the API server sets. It ignores them in a manifest; `managedFields` and
/// `resourceVersion` even make an apply fail.
pub const SERVER_METADATA: [&str; 6] =
    ["creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"];

/// The document in the version in which its kind is served; `None` for a document that is not an object.
pub fn prepare(mut document: Value, api_version: String) -> Option<Value> {
    let fields = document.as_object_mut()?;
    fields.insert("apiVersion".to_owned(), api_version.into());
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|name, _| !SERVER_METADATA.contains(&name.as_str()));
    }
    fields.remove("status");
    // The controller writes the rules of an aggregated ClusterRole.
    if fields.get("aggregationRule").is_some_and(Value::is_object) {
        fields.remove("rules");
    }
    Some(document)
}

/// Replaces nulls in maps of texts, bytes and quantities by the values that the API server stores for them when they are
/// applied (`data: {a: }`). Of a custom kind this holds for the metadata alone.
pub fn fill_null_entries(document: &mut Value, schema: Option<&KindSchema>) {
    let KindSchema { types, root } = schema.unwrap_or_else(|| KindSchema::unknown());
    let is_custom = family(document) == Family::Custom;
    let Value::Object(fields) = document else { return };
    for (name, value) in fields.iter_mut().filter(|(name, _)| !is_custom || *name == "metadata") {
        fill(types, member(types.shape(*root), name), value, 1);
    }
}

fn fill(types: &Types, ty: TypeId, value: &mut Value, depth: usize) {
    if depth >= MAX_DEPTH {
        return;
    }
    match (types.shape(ty), value) {
        (shape @ (Shape::Struct(_) | Shape::Map { .. }), Value::Object(fields)) => {
            for (name, value) in fields {
                let below = member(shape, name);
                match types.zero(below) {
                    Some(zero) if value.is_null() && matches!(shape, Shape::Map { .. }) => {
                        *value = zero.into();
                    }
                    _ => fill(types, below, value, depth + 1),
                }
            }
        }
        (Shape::List { item, .. }, Value::Array(items)) => {
            items.iter_mut().for_each(|value| fill(types, *item, value, depth + 1));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
