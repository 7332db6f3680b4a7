//! Finds out whether an apply would remove fields from a live object.
//!
//! Entry point: [`abandons`]. Invariant: walks no deeper than the applied document, whatever the
//! `managedFields` contain. Must not write.

use serde_json::{Map, Value};

use super::owners::{Operation, Owners};
use kubemoor_declare::equality;
use kubemoor_declare::schema::Scalar;

/// Whether applying `document` as `manager` removes fields from the `live` object: the API server
/// removes fields that a manager has applied before and no longer applies. Helm's own entry holds
/// the fields of Helm's last apply, so Helm never applied a document that lacks some of them.
pub fn abandons(live: &Value, manager: &str, document: &Value) -> bool {
    let owners = Owners::of(live);
    let own = owners.read().filter(|entry| {
        let it = &entry.manager;
        it.name == manager && it.operation == Operation::Apply && it.subresource.is_empty()
    });
    let document = as_stored(document);
    own.into_iter().any(|entry| lacks(entry.owned.tree(), &document))
}

/// Whether `value` lacks some of these owned paths.
fn lacks(owned: &Map<String, Value>, value: &Value) -> bool {
    owned.iter().any(|(name, below)| match name.split_once(':') {
        Some((kind, name)) => match step(kind, name, value) {
            Some(found) => below.as_object().is_some_and(|below| lacks(below, found)),
            None => true,
        },
        // `.`: the value itself, which is there.
        None => false,
    })
}

fn step<'v>(kind: &str, name: &str, value: &'v Value) -> Option<&'v Value> {
    let items = || value.as_array().into_iter().flatten();
    match kind {
        "f" => value.get(name),
        "k" => {
            let keys: Map<String, Value> = serde_json::from_str(name).ok()?;
            // An element does not spell a key with its default value.
            let is = |item: &&Value| {
                item.is_object()
                    && keys.iter().all(|(key, own)| item.get(key).is_none_or(|value| is_same(value, own)))
            };
            items().find(is)
        }
        "v" => {
            let wanted: Value = serde_json::from_str(name).ok()?;
            items().find(|item| is_same(item, &wanted))
        }
        _ => value.get(name.parse::<usize>().ok()?),
    }
}

fn is_same(a: &Value, b: &Value) -> bool {
    equality::is_same_scalar(Scalar::IntOrString, a, b)
}

/// A Secret with its texts where the API server stores them.
fn as_stored(document: &Value) -> Value {
    let mut stored = document.clone();
    if stored.get("kind").and_then(Value::as_str) != Some("Secret") {
        return stored;
    }
    if let (Some(texts), Value::Object(fields)) =
        (document.get("stringData").and_then(Value::as_object), &mut stored)
    {
        let data = fields.entry("data").or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(data) = data {
            data.extend(texts.keys().map(|key| (key.clone(), Value::Null)));
        }
    }
    stored
}

#[cfg(test)]
mod tests;
