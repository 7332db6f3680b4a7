//! Reads types from OpenAPI documents and CustomResourceDefinitions: [`Reduction`] from a server's documents, which
//! share definitions, [`from_crd`] from one CustomResourceDefinition, and [`facts`] from the paths of a document.
//!
//! Any document is safe: references are followed with a work list, so cycles and long chains use no stack, and
//! documents nested too deeply are rejected. Supported are types and formats, `x-kubernetes-list-type`,
//! `-list-map-keys`, `-map-type`, `-int-or-string`, `-preserve-unknown-fields`, and, for servers without list types,
//! `-patch-merge-key` and `-patch-strategy`, interpreted as server-side apply does.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::catalog::{KindFacts, priority};
use super::equality;
use super::path::Path;
use super::schema::{
    KindSchema, ListKey, ListKind, MAX_DEPTH, ScalarType, Shape, Struct, StructField, TypeBuilder, TypeId,
    is_deeper,
};
use crate::model::Gvk;

/// A document from which no types can be read.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    #[error("cannot read the OpenAPI document: {0}")]
    Document(#[source] serde_json::Error),
    #[error("cannot read the CustomResourceDefinition {name:?}: {problem}")]
    Definition {
        /// The definition's name; empty if it has none.
        name: String,
        problem: String,
    },
}

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
            Some(schema) => SchemaNode::deserialize(schema).map_err(|error| fail(error.to_string()))?,
            None => SchemaNode::default(),
        };
        let mut reduction = Reduction::default();
        let gvk = Gvk { group: group.to_owned(), version: name.to_owned(), kind: kind.to_owned() };
        reduction.add_custom(gvk, &schema, keeps);
        found.extend(reduction.finish());
    }
    Ok(found)
}

/// An OpenAPI document: version 2 has its definitions at the top level, version 3 under `components`.
#[derive(Deserialize)]
struct DefinitionsDocument {
    #[serde(default)]
    definitions: BTreeMap<String, SchemaNode>,
    #[serde(default)]
    components: Components,
}

#[derive(Default, Deserialize)]
struct Components {
    #[serde(default)]
    schemas: BTreeMap<String, SchemaNode>,
}

/// One schema. A string field of another type counts as absent: aggregated API servers may publish anything.
#[derive(Default, Deserialize)]
#[serde(default)]
struct SchemaNode {
    #[serde(rename = "$ref", deserialize_with = "text")]
    reference: Option<String>,
    #[serde(rename = "type", deserialize_with = "text")]
    ty: Option<String>,
    #[serde(deserialize_with = "text")]
    format: Option<String>,
    #[serde(deserialize_with = "text")]
    pattern: Option<String>,
    properties: Option<BTreeMap<String, SchemaNode>>,
    items: Option<OrFlag>,
    #[serde(rename = "additionalProperties")]
    additional: Option<OrFlag>,
    #[serde(rename = "allOf")]
    all_of: Option<Vec<SchemaNode>>,
    default: Option<Value>,
    #[serde(rename = "x-kubernetes-list-type", deserialize_with = "text")]
    list_type: Option<String>,
    #[serde(rename = "x-kubernetes-list-map-keys")]
    list_keys: Option<Vec<String>>,
    #[serde(rename = "x-kubernetes-map-type", deserialize_with = "text")]
    map_type: Option<String>,
    #[serde(rename = "x-kubernetes-patch-merge-key", deserialize_with = "text")]
    merge_key: Option<String>,
    #[serde(rename = "x-kubernetes-patch-strategy", deserialize_with = "text")]
    patch_strategy: Option<String>,
    #[serde(rename = "x-kubernetes-int-or-string")]
    int_or_string: Option<bool>,
    #[serde(rename = "x-kubernetes-preserve-unknown-fields")]
    keeps_unknown: Option<bool>,
    #[serde(rename = "x-kubernetes-group-version-kind")]
    kinds: Option<Vec<OpenApiKind>>,
}

/// An entry of `x-kubernetes-group-version-kind`.
#[derive(Deserialize)]
struct OpenApiKind {
    #[serde(default)]
    group: String,
    version: String,
    kind: String,
}

/// A schema, or `true` for any value and `false` for none.
enum OrFlag {
    Flag(bool),
    SchemaNode(Box<SchemaNode>),
}

impl<'de> Deserialize<'de> for OrFlag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = OrFlag;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a schema or a boolean")
            }

            fn visit_bool<E>(self, flag: bool) -> Result<OrFlag, E> {
                Ok(OrFlag::Flag(flag))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OrFlag, A::Error> {
                let node = SchemaNode::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                Ok(OrFlag::SchemaNode(Box::new(node)))
            }

            // One schema per position: Kubernetes does not use this.
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<OrFlag, A::Error> {
                while items.next_element::<IgnoredAny>()?.is_some() {}
                Ok(OrFlag::Flag(true))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::String(text) => Some(text),
        _ => None,
    })
}

/// The prefixes of Kubernetes' own definitions, which state an empty default for every non-pointer field, whether the
/// server returns it or not.
const OWN: [&str; 4] =
    ["io.k8s.api.", "io.k8s.apimachinery.", "io.k8s.apiextensions-apiserver.", "io.k8s.kube-aggregator."];

/// Collects types from documents.
#[derive(Default)]
pub struct Reduction {
    builder: TypeBuilder,
    named: HashMap<String, TypeId>,
    /// Referenced definitions that are not reduced yet.
    waiting: Vec<String>,
    /// Types that are aliases of another type, possibly with another atomicity.
    copies: HashMap<TypeId, (TypeId, Option<bool>)>,
    kinds: Vec<(Gvk, TypeId)>,
    /// Whether structs keep fields that they do not list.
    open: bool,
    /// Whether this is a custom kind: the server adds only the defaults that its schema states, including empty ones.
    custom: bool,
}

impl Reduction {
    /// Adds the kinds of an OpenAPI document.
    pub fn add(&mut self, document: &[u8], wanted: &dyn Fn(&Gvk) -> bool) -> Result<(), SchemaError> {
        let document: DefinitionsDocument =
            serde_json::from_slice(document).map_err(SchemaError::Document)?;
        for definitions in [&document.definitions, &document.components.schemas] {
            self.add_definitions(definitions, wanted);
        }
        Ok(())
    }

    fn add_custom(&mut self, gvk: Gvk, schema: &SchemaNode, keeps_unknown: bool) {
        (self.open, self.custom) = (keeps_unknown, true);
        let definitions = BTreeMap::new();
        let fields = self.fields(schema, &definitions);
        let open = keeps_unknown || schema.keeps_unknown == Some(true) || schema.properties.is_none();
        let root = self.builder.object(fields, open);
        self.kinds.push((gvk, root));
        (self.open, self.custom) = (false, false);
    }

    /// The kinds that were added, with their types in one arena.
    pub fn finish(mut self) -> Vec<(Gvk, KindSchema)> {
        let copied: Vec<(TypeId, Shape)> = self.copies.keys().map(|id| (*id, self.original(*id))).collect();
        for (id, shape) in copied {
            self.builder.set(id, shape);
        }
        let types = Arc::new(self.builder.types);
        let schema = |root| KindSchema { types: Arc::clone(&types), root };
        self.kinds.into_iter().map(|(gvk, root)| (gvk, schema(root))).collect()
    }

    fn add_definitions(&mut self, definitions: &BTreeMap<String, SchemaNode>, wanted: &dyn Fn(&Gvk) -> bool) {
        for (name, node) in definitions {
            let Some([kind]) = node.kinds.as_deref() else { continue };
            let gvk =
                Gvk { group: kind.group.clone(), version: kind.version.clone(), kind: kind.kind.clone() };
            let known = self.kinds.iter().any(|(other, _)| *other == gvk);
            if is_object(node) && !known && wanted(&gvk) {
                let root = self.named(name);
                self.kinds.push((gvk, root));
            }
        }
        while let Some(name) = self.waiting.pop() {
            let (Some(id), Some(node)) = (self.named.get(&name).copied(), definitions.get(&name)) else {
                continue;
            };
            match self.reference(node) {
                Some(target) => {
                    self.copies.insert(id, (target, atomic(node)));
                }
                None => {
                    self.custom = !OWN.iter().any(|own| name.starts_with(own));
                    let shape = self.shape(node, Some(&name), definitions);
                    self.builder.set(id, shape);
                }
            }
        }
    }

    fn named(&mut self, name: &str) -> TypeId {
        if let Some(id) = self.named.get(name) {
            return *id;
        }
        let id = self.builder.reserve();
        self.named.insert(name.to_owned(), id);
        self.waiting.push(name.to_owned());
        id
    }

    fn reference(&mut self, node: &SchemaNode) -> Option<TypeId> {
        Some(self.named(referred(node)?))
    }

    fn node(&mut self, node: &SchemaNode, definitions: &BTreeMap<String, SchemaNode>) -> TypeId {
        let Some(target) = self.reference(node) else {
            let shape = self.shape(node, None, definitions);
            return self.builder.add(shape);
        };
        match atomic(node) {
            None => target,
            Some(atomic) => {
                let copy = self.builder.reserve();
                self.copies.insert(copy, (target, Some(atomic)));
                copy
            }
        }
    }

    /// The shape that an alias resolves to; untyped for a cycle.
    fn original(&self, copy: TypeId) -> Shape {
        let (mut at, mut wanted) = (copy, None);
        for _ in 0..=self.copies.len() {
            let Some((target, atomic)) = self.copies.get(&at) else {
                let mut shape = self.builder.types.shape(at).clone();
                if let (Some(wanted), Shape::Struct(Struct { atomic, .. }) | Shape::Map { atomic, .. }) =
                    (wanted, &mut shape)
                {
                    *atomic = wanted;
                }
                return shape;
            };
            wanted = wanted.or(*atomic);
            at = *target;
        }
        Shape::Any
    }

    fn shape(
        &mut self,
        node: &SchemaNode,
        name: Option<&str>,
        definitions: &BTreeMap<String, SchemaNode>,
    ) -> Shape {
        if let Some(scalar) = scalar(node, name) {
            return Shape::Scalar(scalar);
        }
        let is_atomic = atomic(node).unwrap_or(false);
        match node.ty.as_deref() {
            Some("array") => {
                let item = match &node.items {
                    Some(OrFlag::SchemaNode(item)) => self.node(item, definitions),
                    _ => TypeId::ANY,
                };
                let kind = self.list_kind(node, definitions);
                Shape::List { item, kind }
            }
            Some("object") | None if node.properties.is_some() => {
                let mut fields = self.fields(node, definitions);
                let open = self.open
                    || node.keeps_unknown == Some(true)
                    || !matches!(node.additional, None | Some(OrFlag::Flag(false)));
                fields.sort_by(|a, b| a.name.cmp(&b.name));
                Shape::Struct(Struct { fields: fields.into(), atomic: is_atomic, open })
            }
            Some("object") => match &node.additional {
                Some(OrFlag::SchemaNode(value)) => {
                    let value = self.node(value, definitions);
                    Shape::Map { value, atomic: is_atomic }
                }
                Some(OrFlag::Flag(true)) => Shape::Map { value: TypeId::ANY, atomic: is_atomic },
                _ if is_atomic => Shape::Map { value: TypeId::ANY, atomic: true },
                _ => Shape::Any,
            },
            _ => Shape::Any,
        }
    }

    fn fields(&mut self, node: &SchemaNode, definitions: &BTreeMap<String, SchemaNode>) -> Vec<StructField> {
        let properties = node.properties.iter().flatten();
        properties
            .map(|(name, node)| StructField {
                name: self.builder.name(name),
                ty: self.node(node, definitions),
                default: match self.custom {
                    true => node.default.clone().map(Box::new),
                    false => non_empty_default(node.default.as_ref()),
                },
            })
            .collect()
    }

    fn list_kind(&mut self, node: &SchemaNode, definitions: &BTreeMap<String, SchemaNode>) -> ListKind {
        let merges = node.patch_strategy.as_deref().is_some_and(|s| s.split(',').any(|s| s == "merge"));
        let keys: Vec<&str> = match (node.list_type.as_deref(), &node.list_keys, &node.merge_key) {
            (Some("map"), Some(keys), _) if !keys.is_empty() => keys.iter().map(String::as_str).collect(),
            (Some("set"), _, _) => return ListKind::Set,
            (Some(_), _, _) => return ListKind::Atomic,
            (None, _, Some(key)) if merges => vec![key.as_str()],
            (None, _, None) if merges => return ListKind::Set,
            (None, _, _) => return ListKind::Atomic,
        };
        let item = match &node.items {
            Some(OrFlag::SchemaNode(item)) => {
                referred(item).and_then(|name| definitions.get(name)).or(Some(&**item))
            }
            _ => None,
        };
        let properties = item.and_then(|item| item.properties.as_ref());
        let keys = keys
            .into_iter()
            .map(|key| {
                let stated =
                    properties.and_then(|p| p.get(key)).and_then(|p| non_empty_default(p.default.as_ref()));
                // Documents of version 2 state no defaults, but the keys of ports depend on this one.
                let default = stated.or_else(|| (key == "protocol").then(|| Box::new(Value::from("TCP"))));
                ListKey { name: self.builder.name(key), default }
            })
            .collect();
        ListKind::Map(keys)
    }
}

fn referred(node: &SchemaNode) -> Option<&str> {
    let own = node.reference.as_deref().or_else(|| match node.all_of.as_deref() {
        Some([only]) if node.properties.is_none() => only.reference.as_deref(),
        _ => None,
    });
    own.and_then(|reference| reference.rsplit('/').next())
}

/// Whether the schema declares its value atomic or granular; `None` if neither.
fn atomic(node: &SchemaNode) -> Option<bool> {
    match node.map_type.as_deref() {
        Some("atomic") => Some(true),
        Some(_) => Some(false),
        None => None,
    }
}

fn scalar(node: &SchemaNode, name: Option<&str>) -> Option<ScalarType> {
    let name = name.unwrap_or_default();
    if name.ends_with(".api.resource.Quantity") {
        return Some(ScalarType::Quantity);
    }
    if name.ends_with(".util.intstr.IntOrString") || node.format.as_deref() == Some("int-or-string") {
        return Some(ScalarType::IntOrString);
    }
    if node.int_or_string == Some(true) {
        // In custom kinds, only the pattern that the usual generator writes identifies a quantity.
        let quantity = node.pattern.as_deref().is_some_and(|pattern| pattern.contains("[KMGTPE]i"));
        return Some(if quantity { ScalarType::Quantity } else { ScalarType::IntOrString });
    }
    match (node.ty.as_deref()?, node.format.as_deref()) {
        ("string", Some("byte")) => Some(ScalarType::Bytes),
        ("string", Some("date-time")) => Some(ScalarType::Time),
        ("string", _) => Some(ScalarType::Text),
        ("integer" | "number" | "boolean", _) => Some(ScalarType::Plain),
        _ => None,
    }
}

/// A default that is neither empty nor zero.
fn non_empty_default(default: Option<&Value>) -> Option<Box<Value>> {
    default.filter(|value| !equality::is_empty(value) && !equality::is_zero(value)).cloned().map(Box::new)
}

/// Whether a schema describes whole objects instead of lists or options.
fn is_object(node: &SchemaNode) -> bool {
    let metadata = node.properties.as_ref().and_then(|properties| properties.get("metadata"));
    metadata.and_then(referred).is_some_and(|name| name.ends_with(".ObjectMeta"))
}

#[derive(Deserialize)]
struct PathsDocument {
    #[serde(default)]
    paths: BTreeMap<String, Operations>,
}

#[derive(Deserialize)]
struct Operations {
    get: Option<PathOperation>,
}

#[derive(Deserialize)]
struct PathOperation {
    #[serde(rename = "x-kubernetes-group-version-kind")]
    kind: Option<OpenApiKind>,
}

/// The kinds whose objects can be read at a path of the document (version 2 or
/// 3). Each has the versions that the document serves, the most stable first.
pub fn facts(document: &[u8]) -> Result<Vec<KindFacts>, SchemaError> {
    let document: PathsDocument = serde_json::from_slice(document).map_err(SchemaError::Document)?;
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
                owner.scale_replicas_path = Some(Path::from_names(["spec", "replicas"]));
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

#[cfg(test)]
mod tests;
