//! Converts a manifest document to its declared fields.
//!
//! Entry point: [`declare`]. Invariant: follows the rules of server-side apply: granular maps and structs by
//! their entries, keyed lists and sets by their elements, everything else as one value. Leaves out the fields
//! that the server owns or fills in (`outputs`).

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::document::SERVER_METADATA;
use super::embedded;
use super::equality::{self, Family, Place};
use super::fields::{Element, Elements, Entry, Fields, Leaf, Node, Set};
use super::outputs::{self, Above};
use super::schema::{KindSchema, ListKey, ListKind, MAX_DEPTH, Shape, Struct, TypeId, Types};
use crate::model::Gvk;

/// Keyed lists whose order still matters: variables refer to earlier ones, and init containers run one after
/// the other.
const ORDERED: &[&str] = &["env", "initContainers"];

struct Walk<'a> {
    types: &'a Types,
    document: &'a Value,
}

/// The type of a list whose elements have keys.
struct ListType<'t> {
    list: TypeId,
    item: TypeId,
    keys: &'t [ListKey],
}

/// The declared fields of a manifest document. Helm's metadata must be in it
/// already. Without a schema all but the metadata is untyped: maps granular,
/// lists atomic.
pub fn declare(document: &Value, schema: Option<&KindSchema>) -> Fields {
    let schema = schema.unwrap_or_else(|| KindSchema::unknown());
    let walk = Walk { types: &schema.types, document };
    let root = walk.root(schema.root).unwrap_or_else(|| Node::Object(Box::new([])));
    Fields { types: Arc::clone(&schema.types), family: family(document), ty: schema.root, root }
}

impl Walk<'_> {
    fn root(&self, ty: TypeId) -> Option<Node> {
        let map = self.document.as_object()?;
        let top = Above { above: None, name: "", depth: 0 };
        let secret = outputs::is_secret(self.document);
        let mut entries = Vec::new();
        for (name, value) in map {
            let skipped = match &**name {
                "apiVersion" | "kind" | "status" => true,
                "data" | "stringData" => secret,
                _ => false,
            };
            if !skipped {
                entries.extend(self.member(ty, name, value, &top));
            }
        }
        if secret && (map.contains_key("data") || map.contains_key("stringData")) {
            let data = secret_data(map.get("data"), map.get("stringData"));
            entries.extend(self.member(ty, "data", &data, &top));
        }
        Some(object(entries))
    }

    /// The place of the fields of a struct.
    fn place(&self, holder: &Above<'_>) -> Place {
        let is_cron_job = || self.document.get("kind").is_some_and(|kind| kind == "CronJob");
        let is_template = holder.is(&["spec", "jobTemplate", "spec"]) && is_cron_job();
        if is_template { Place::Template } else { Place::Field }
    }

    /// The entry `name` of a value of type `ty`, if it declares anything.
    fn member(&self, ty: TypeId, name: &str, value: &Value, above: &Above<'_>) -> Option<Entry> {
        let at = Above { above: Some(above), name, depth: above.depth + 1 };
        let server_owned = above.is(&["metadata"]) && is_no_manifests(name);
        if server_owned || outputs::is_output(self.document, &at, value) {
            return None;
        }
        let mut value = value;
        let (known, ty, place) = match self.types.shape(ty) {
            Shape::Struct(shape) => match shape.field(name) {
                Some(field) => {
                    // The server replaces a null by the default. A default with several parts may have
                    // several owners.
                    let default = field.default.as_deref().filter(|it| self.types.is_one_value(field.ty, it));
                    if let (Value::Null, Some(default)) = (value, default) {
                        value = default;
                    }
                    (Some(&field.name), field.ty, self.place(above))
                }
                None if shape.open => (None, TypeId::ANY, Place::Field),
                None => (None, TypeId::ANY, Place::Unlisted),
            },
            Shape::Map { value, .. } => (None, *value, Place::Entry),
            _ => (None, TypeId::ANY, Place::Field),
        };
        let node = self.node(ty, place, value, &at)?;
        Some(Entry { name: known.map_or_else(|| name.into(), Arc::clone), node })
    }

    fn node(&self, ty: TypeId, place: Place, value: &Value, at: &Above<'_>) -> Option<Node> {
        let leaf = |ty| Some(Node::Leaf(Leaf { value: cut(value, at.depth), ty, place }));
        if at.depth >= MAX_DEPTH {
            return leaf(TypeId::ANY);
        }
        match (self.types.shape(ty), value) {
            (
                Shape::Struct(Struct { atomic: false, .. }) | Shape::Map { atomic: false, .. } | Shape::Any,
                Value::Object(map),
            ) if !map.is_empty() => {
                let unlisted = place == Place::Unlisted;
                let entries = map.iter().filter_map(|(name, value)| {
                    let mut entry = self.member(ty, name, value, at)?;
                    if unlisted {
                        mark_unlisted(&mut entry.node);
                    }
                    Some(entry)
                });
                Some(object(entries.collect()))
            }
            (Shape::List { item, kind: ListKind::Map(keys) }, Value::Array(items)) => {
                match self.elements(ListType { list: ty, item: *item, keys }, items, at) {
                    Some(_) if items.is_empty() => None,
                    None => leaf(ty),
                    elements => elements,
                }
            }
            (Shape::List { kind: ListKind::Set, .. }, Value::Array(items)) if items.is_empty() => None,
            (Shape::List { item, kind: ListKind::Set }, Value::Array(items)) => {
                let values = items.iter().map(|item| cut(item, at.depth)).collect();
                Some(Node::Set(Box::new(Set { item: *item, values })))
            }
            _ => leaf(ty),
        }
    }

    /// The elements by their keys; `None` if the keys do not identify them.
    fn elements(
        &self,
        ListType { list, item, keys }: ListType<'_>,
        values: &[Value],
        at: &Above<'_>,
    ) -> Option<Node> {
        let mut items: Vec<Element> = Vec::with_capacity(values.len());
        let mut seen = std::collections::HashSet::new();
        for value in values {
            let own: Option<Box<[Value]>> = keys
                .iter()
                .map(|key| {
                    equality::key_value(value, key).filter(|v| !v.is_array() && !v.is_object()).cloned()
                })
                .collect();
            let own = own?;
            let spelled: Vec<String> =
                own.iter().map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned)).collect();
            if !seen.insert(spelled) {
                return None;
            }
            let below = Above { above: Some(at), name: "*", depth: at.depth + 1 };
            let node = self.node(item, Place::Entry, value, &below)?;
            items.push(Element { keys: own, node });
        }
        let ordered = ORDERED.contains(&at.name) && matches!(keys, [key] if &*key.name == "name");
        Some(Node::Elements(Box::new(Elements { list, ordered, items: items.into() })))
    }
}

/// A copy of a value at `depth` levels of nesting, without its parts below [`MAX_DEPTH`].
pub(super) fn cut(value: &Value, depth: usize) -> Value {
    match value {
        Value::Array(_) | Value::Object(_) if depth >= MAX_DEPTH => Value::Null,
        Value::Array(items) => items.iter().map(|item| cut(item, depth + 1)).collect(),
        Value::Object(map) => map.iter().map(|(name, value)| (name.clone(), cut(value, depth + 1))).collect(),
        scalar => scalar.clone(),
    }
}

/// Whether this field of `metadata` is never decided by a manifest.
fn is_no_manifests(name: &str) -> bool {
    matches!(name, "name" | "namespace") || SERVER_METADATA.contains(&name)
}

/// The family of the document's kind.
pub(super) fn family(document: &Value) -> Family {
    let text = |name| document.get(name).and_then(Value::as_str).unwrap_or_default();
    let Gvk { group, kind, .. } = Gvk::from_api_version(text("apiVersion"), text("kind"));
    match (group.as_str(), kind.as_str()) {
        ("rbac.authorization.k8s.io", _) => Family::Rights,
        ("", "Pod") => Family::Pod,
        (group, kind) if embedded::core().facts(group, kind).is_some() => Family::Core,
        _ => Family::Custom,
    }
}

/// Entries in the order in which they are searched.
fn object(mut entries: Vec<Entry>) -> Node {
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Node::Object(entries.into())
}

/// Marks fields that the server does not know, at every level: it may drop them.
fn mark_unlisted(node: &mut Node) {
    match node {
        Node::Leaf(leaf) => leaf.place = Place::Unlisted,
        Node::Object(entries) => entries.iter_mut().for_each(|entry| mark_unlisted(&mut entry.node)),
        Node::Elements(_) | Node::Set(_) => {}
    }
}

/// A Secret's `data` as the server makes it of `data` and `stringData`.
fn secret_data(data: Option<&Value>, texts: Option<&Value>) -> Value {
    let mut merged = data.and_then(Value::as_object).cloned().unwrap_or_default();
    for (key, text) in texts.and_then(Value::as_object).into_iter().flatten() {
        let text = match text {
            Value::String(text) => STANDARD.encode(text),
            Value::Null => String::new(),
            other => STANDARD.encode(cut(other, 0).to_string()),
        };
        merged.insert(key.clone(), Value::String(text));
    }
    if merged.is_empty() { Value::Object(Map::new()) } else { Value::Object(merged) }
}

#[cfg(test)]
mod tests;
