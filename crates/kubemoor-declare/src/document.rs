//! Prepares a manifest document for a write to the API server.
//!
//! Entry point: [`prepare`]. Invariant: the result sets no field that the API server owns or that is never
//! compared. Must not know who writes it, or whether the write is a dry run.

use serde_json::Value;

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

#[cfg(test)]
mod tests;
