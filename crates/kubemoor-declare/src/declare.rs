//! Converts a manifest document to its declared fields by the rules of server-side apply: granular maps and structs by
//! their entries, keyed lists and sets by their elements, everything else as one value. Fields that the server or its
//! controllers own or fill in are left out. Also prepares the document for the API server, and computes its digest.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::catalog;
use super::equality::{self, Family, FieldPlace, is_empty, member};
use super::fields::{DeclaredFields, Element, Elements, FieldEntry, FieldLeaf, FieldNode, Set};
use super::path::{Path, Segment};
use super::schema::{KindSchema, ListKey, ListKind, MAX_DEPTH, Shape, Struct, TypeId, Types};
use crate::model::{Gvk, ObjectId};

/// Keyed lists whose order still matters: variables refer to earlier ones, and init containers run one after the other.
const ORDERED: &[&str] = &["env", "initContainers"];

struct Declarer<'a> {
    types: &'a Types,
    document: &'a Value,
}

/// The declared fields of a manifest document, which must contain Helm's metadata. Without a schema everything but the
/// metadata is untyped: maps are granular, lists atomic.
pub fn declare(document: &Value, schema: Option<&KindSchema>) -> DeclaredFields {
    let schema = schema.unwrap_or_else(|| KindSchema::unknown());
    let walk = Declarer { types: &schema.types, document };
    let root = walk.root(schema.root).unwrap_or_else(|| FieldNode::Object(Box::new([])));
    DeclaredFields { types: Arc::clone(&schema.types), family: family(document), ty: schema.root, root }
}

impl Declarer<'_> {
    fn root(&self, ty: TypeId) -> Option<FieldNode> {
        let map = self.document.as_object()?;
        let top = NameTrail { above: None, name: "", depth: 0 };
        let secret = is_secret(self.document);
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

    fn place(&self, holder: &NameTrail<'_>) -> FieldPlace {
        let is_cron_job = || self.document.get("kind").is_some_and(|kind| kind == "CronJob");
        let is_template = holder.is(&["spec", "jobTemplate", "spec"]) && is_cron_job();
        if is_template { FieldPlace::Template } else { FieldPlace::Field }
    }

    fn member(&self, ty: TypeId, name: &str, value: &Value, above: &NameTrail<'_>) -> Option<FieldEntry> {
        let at = NameTrail { above: Some(above), name, depth: above.depth + 1 };
        let server_owned = above.is(&["metadata"]) && is_ignored_metadata(name);
        if server_owned || is_output(self.document, &at, value) {
            return None;
        }
        let mut value = value;
        let (known, ty, place) = match self.types.shape(ty) {
            Shape::Struct(shape) => match shape.field(name) {
                Some(field) => {
                    // The server replaces a null with the default. Parts of a granular default may have several owners.
                    let default = field.default.as_deref().filter(|it| self.types.is_one_value(field.ty, it));
                    if let (Value::Null, Some(default)) = (value, default) {
                        value = default;
                    }
                    (Some(&field.name), field.ty, self.place(above))
                }
                None if shape.open => (None, TypeId::ANY, FieldPlace::Field),
                None => (None, TypeId::ANY, FieldPlace::Unlisted),
            },
            Shape::Map { value, .. } => (None, *value, FieldPlace::Entry),
            _ => (None, TypeId::ANY, FieldPlace::Field),
        };
        let node = self.node(ty, place, value, &at)?;
        Some(FieldEntry { name: known.map_or_else(|| name.into(), Arc::clone), node })
    }

    fn node(&self, ty: TypeId, place: FieldPlace, value: &Value, at: &NameTrail<'_>) -> Option<FieldNode> {
        let leaf = |ty| Some(FieldNode::Leaf(FieldLeaf { value: cut(value, at.depth), ty, place }));
        if at.depth >= MAX_DEPTH {
            return leaf(TypeId::ANY);
        }
        match (self.types.shape(ty), value) {
            (
                Shape::Struct(Struct { atomic: false, .. }) | Shape::Map { atomic: false, .. } | Shape::Any,
                Value::Object(map),
            ) if !map.is_empty() => {
                let unlisted = place == FieldPlace::Unlisted;
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
                match self.elements((ty, *item, keys), items, at) {
                    Some(_) if items.is_empty() => None,
                    None => leaf(ty),
                    elements => elements,
                }
            }
            (Shape::List { kind: ListKind::Set, .. }, Value::Array(items)) if items.is_empty() => None,
            (Shape::List { item, kind: ListKind::Set }, Value::Array(items)) => {
                let values = items.iter().map(|item| cut(item, at.depth)).collect();
                Some(FieldNode::Set(Box::new(Set { item: *item, values })))
            }
            _ => leaf(ty),
        }
    }

    /// The elements by their keys; `None` if the keys do not identify them.
    fn elements(
        &self,
        (list, item, keys): (TypeId, TypeId, &[ListKey]),
        values: &[Value],
        at: &NameTrail<'_>,
    ) -> Option<FieldNode> {
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
            let below = NameTrail { above: Some(at), name: "*", depth: at.depth + 1 };
            let node = self.node(item, FieldPlace::Entry, value, &below)?;
            items.push(Element { keys: own, node });
        }
        let ordered = ORDERED.contains(&at.name) && matches!(keys, [key] if &*key.name == "name");
        Some(FieldNode::Elements(Box::new(Elements { list, ordered, items: items.into() })))
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

/// Whether a manifest never declares this field of `metadata`.
fn is_ignored_metadata(name: &str) -> bool {
    matches!(name, "name" | "namespace") || SERVER_METADATA.contains(&name)
}

pub(super) fn family(document: &Value) -> Family {
    let text = |name| document.get(name).and_then(Value::as_str).unwrap_or_default();
    let Gvk { group, kind, .. } = Gvk::from_api_version(text("apiVersion"), text("kind"));
    match (group.as_str(), kind.as_str()) {
        ("rbac.authorization.k8s.io", _) => Family::Rights,
        ("", "Pod") => Family::Pod,
        (group, kind) if catalog::core().facts(group, kind).is_some() => Family::Core,
        _ => Family::Custom,
    }
}

fn object(mut entries: Vec<FieldEntry>) -> FieldNode {
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    FieldNode::Object(entries.into())
}

/// Marks fields at every level as unknown to the server, which may drop them.
fn mark_unlisted(node: &mut FieldNode) {
    match node {
        FieldNode::Leaf(leaf) => leaf.place = FieldPlace::Unlisted,
        FieldNode::Object(entries) => entries.iter_mut().for_each(|entry| mark_unlisted(&mut entry.node)),
        FieldNode::Elements(_) | FieldNode::Set(_) => {}
    }
}

/// A Secret's `data` as the server merges it from `data` and `stringData`.
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

/// The paths of CA bundles: API group, kind, field names from the root.
const CA_BUNDLES: &[(&str, &str, &[&str])] = &[
    (
        "admissionregistration.k8s.io",
        "ValidatingWebhookConfiguration",
        &["webhooks", "*", "clientConfig", "caBundle"],
    ),
    (
        "admissionregistration.k8s.io",
        "MutatingWebhookConfiguration",
        &["webhooks", "*", "clientConfig", "caBundle"],
    ),
    (
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        &["spec", "conversion", "webhook", "clientConfig", "caBundle"],
    ),
    (
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        &["spec", "conversion", "webhookClientConfig", "caBundle"],
    ),
    ("apiregistration.k8s.io", "APIService", &["spec", "caBundle"]),
];

/// The paths of values that the API server derives from others if they are null or empty: API group, kind, field names
/// from the root.
const DERIVED: &[(&str, &str, &[&str])] = &[
    ("", "PersistentVolumeClaim", &["spec", "dataSource"]),
    ("", "ReplicationController", &["spec", "selector"]),
    ("batch", "Job", &["spec", "selector"]),
];

/// The field names from the root to a value, to find fields that are not declared.
#[derive(Clone, Copy)]
pub(super) struct NameTrail<'a> {
    pub(super) above: Option<&'a NameTrail<'a>>,
    pub(super) name: &'a str,
    pub(super) depth: usize,
}

impl NameTrail<'_> {
    /// Whether the field names from the root to here are `names`. List elements are named `*`.
    pub(super) fn is(&self, names: &[&str]) -> bool {
        match names.split_last() {
            None => self.above.is_none(),
            Some((last, rest)) => self.above.is_some_and(|above| self.name == *last && above.is(rest)),
        }
    }
}

pub(super) fn is_secret(document: &Value) -> bool {
    is_kind(document, "", "Secret")
}

/// Whether another component fills in this field: `rules` beside an `aggregationRule`, a CA bundle without a
/// certificate, or an empty value that the API server derives from others.
pub(super) fn is_output(document: &Value, at: &NameTrail<'_>, value: &Value) -> bool {
    let is_in = |places: &[(&str, &str, &[&str])]| {
        places.iter().any(|(group, kind, names)| is_kind(document, group, kind) && at.is(names))
    };
    match at.name {
        "rules" => {
            at.is(&["rules"])
                && is_kind(document, "rbac.authorization.k8s.io", "ClusterRole")
                && document.get("aggregationRule").is_some_and(Value::is_object)
        }
        "caBundle" => is_in(CA_BUNDLES) && is_placeholder(value),
        "dataSource" | "selector" => is_empty(value) && is_in(DERIVED),
        _ => false,
    }
}

/// Whether another component fills in the undeclared value at `path` of an object.
pub fn is_undeclared_output(object: &ObjectId, fields: &DeclaredFields, path: &Path) -> bool {
    let ObjectId { group, kind, .. } = object;
    let is_at = |names: &[&str]| {
        names.len() == path.0.len()
            && names.iter().zip(path.0.iter()).all(|(name, segment)| match segment {
                Segment::Field(field) => field == name,
                Segment::Key(_) | Segment::Element(_) => *name == "*",
            })
    };
    let is_aggregated = || {
        let rule = Path::from_names(["aggregationRule"]);
        group == "rbac.authorization.k8s.io" && kind == "ClusterRole" && fields.declares_around(&rule)
    };
    CA_BUNDLES.iter().any(|(of, named, names)| group == of && kind == named && is_at(names))
        || (is_at(&["rules"]) && is_aggregated())
}

fn is_kind(document: &Value, group: &str, kind: &str) -> bool {
    let text = |name| document.get(name).and_then(Value::as_str).unwrap_or_default();
    let own = text("apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
    text("kind") == kind && own == group
}

/// Whether a CA bundle holds no certificate.
fn is_placeholder(value: &Value) -> bool {
    let digits: String = match value {
        Value::Null => return true,
        Value::String(text) => text.split_ascii_whitespace().collect(),
        _ => return false,
    };
    let Ok(bytes) = STANDARD.decode(digits) else { return false };
    !String::from_utf8_lossy(&bytes).contains("-----BEGIN CERTIFICATE-----")
}

/// The fields of `metadata` that the API server sets. It ignores them in a manifest; `managedFields` and
/// `resourceVersion` even make an apply fail.
pub const SERVER_METADATA: [&str; 6] =
    ["creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"];

/// The document to apply, in the served version and without fields that others own; `None` if it is not an object.
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

/// Replaces nulls in maps of strings, bytes and quantities with the values that the API server stores for them on apply
/// (`data: {a: }`). For custom kinds, it does so only in the metadata.
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

/// The length of a digest: enough to make collisions infeasible.
const BYTES: usize = 16;

/// A digest of one manifest document. A Secret's digest must not be shown: anyone who knows the rest of the document
/// could guess the value.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; BYTES]);

impl Digest {
    /// The digest of a document that contains Helm's metadata; `None` if it is nested deeper than [`MAX_DEPTH`] levels.
    pub fn new(document: &Value) -> Option<Self> {
        let mut hasher = Sha256::new();
        put(document, "", 0, &mut hasher)?;
        let mut digest = [0; BYTES];
        digest.iter_mut().zip(hasher.finalize()).for_each(|(byte, hashed)| *byte = hashed);
        Some(Self(digest))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Digest(..)")
    }
}

/// Hashes each value as its type, length and content, so different values give different input. `of` is the value's
/// field name. Leaves out `metadata.namespace`.
fn put(value: &Value, of: &str, depth: usize, hasher: &mut Sha256) -> Option<()> {
    match value {
        Value::Array(_) | Value::Object(_) if depth >= MAX_DEPTH => return None,
        Value::Null => hasher.update(b"n"),
        Value::Bool(value) => hasher.update([b'b', u8::from(*value)]),
        Value::Number(number) => put_text(b'#', &number.to_string(), hasher),
        Value::String(text) => put_text(b's', text, hasher),
        Value::Array(items) => {
            put_length(b'a', items.len(), hasher);
            for item in items {
                put(item, "", depth + 1, hasher)?;
            }
        }
        Value::Object(map) => {
            let is_place = |name: &str| depth == 1 && of == "metadata" && name == "namespace";
            let mut entries: Vec<_> = map.iter().filter(|(name, _)| !is_place(name)).collect();
            entries.sort_unstable_by_key(|(name, _)| *name);
            put_length(b'o', entries.len(), hasher);
            for (name, value) in entries {
                put_text(b'k', name, hasher);
                put(value, name, depth + 1, hasher)?;
            }
        }
    }
    Some(())
}

fn put_text(kind: u8, text: &str, hasher: &mut Sha256) {
    put_length(kind, text.len(), hasher);
    hasher.update(text.as_bytes());
}

fn put_length(kind: u8, length: usize, hasher: &mut Sha256) {
    hasher.update([kind]);
    hasher.update(length.to_le_bytes());
}

#[cfg(test)]
mod tests;
