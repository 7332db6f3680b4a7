//! The reduction of schemas to types.
//!
//! Entry point: [`Reduction`]. Invariant: if several documents define a name, the first definition is used.
//! Types that no wanted kind refers to are not reduced.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value;

use super::SchemaError;
use super::document::{Node, OrFlag, V2, V3};
use crate::equality;
use crate::model::Gvk;
use crate::schema::{Builder, Field, KindSchema, ListKey, ListKind, Scalar, Shape, Struct, TypeId};

/// The prefixes of Kubernetes' own definitions. They state an empty default for each field that is not a
/// pointer, whether the server shows it or not.
const OWN: [&str; 4] =
    ["io.k8s.api.", "io.k8s.apimachinery.", "io.k8s.apiextensions-apiserver.", "io.k8s.kube-aggregator."];

/// Types gathered from documents.
#[derive(Default)]
pub struct Reduction {
    builder: Builder,
    /// Definitions by name.
    named: HashMap<String, TypeId>,
    /// Definitions that are referred to but not reduced yet.
    waiting: Vec<String>,
    /// Types that are another type, perhaps with another atomicity.
    copies: HashMap<TypeId, (TypeId, Option<bool>)>,
    kinds: Vec<(Gvk, TypeId)>,
    /// Whether structs keep fields that they do not list.
    open: bool,
    /// Whether this is a custom kind: the server adds only the defaults that its schema states, including
    /// empty ones.
    custom: bool,
}

impl Reduction {
    /// Adds the wanted kinds of an OpenAPI v3 document.
    pub fn add_v3(&mut self, document: &[u8], wanted: &dyn Fn(&Gvk) -> bool) -> Result<(), SchemaError> {
        let document: V3 = serde_json::from_slice(document).map_err(SchemaError::Document)?;
        self.add(&document.components.schemas, wanted);
        Ok(())
    }

    /// Adds the wanted kinds of an OpenAPI v2 document.
    pub fn add_v2(&mut self, document: &[u8], wanted: &dyn Fn(&Gvk) -> bool) -> Result<(), SchemaError> {
        let document: V2 = serde_json::from_slice(document).map_err(SchemaError::Document)?;
        self.add(&document.definitions, wanted);
        Ok(())
    }

    /// Adds one version of a custom kind.
    pub(super) fn add_custom(&mut self, gvk: Gvk, schema: &Node, keeps_unknown: bool) {
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
        let types = Arc::new(self.builder.types());
        let schema = |root| KindSchema { types: Arc::clone(&types), root };
        self.kinds.into_iter().map(|(gvk, root)| (gvk, schema(root))).collect()
    }

    fn add(&mut self, definitions: &BTreeMap<String, Node>, wanted: &dyn Fn(&Gvk) -> bool) {
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

    /// The place of a definition.
    fn named(&mut self, name: &str) -> TypeId {
        if let Some(id) = self.named.get(name) {
            return *id;
        }
        let id = self.builder.reserve();
        self.named.insert(name.to_owned(), id);
        self.waiting.push(name.to_owned());
        id
    }

    /// The definition that a schema refers to.
    fn reference(&mut self, node: &Node) -> Option<TypeId> {
        Some(self.named(referred(node)?))
    }

    fn node(&mut self, node: &Node, definitions: &BTreeMap<String, Node>) -> TypeId {
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

    /// The shape that a copied type has in the end; untyped for a circle.
    fn original(&self, copy: TypeId) -> Shape {
        let (mut at, mut wanted) = (copy, None);
        for _ in 0..=self.copies.len() {
            let Some((target, atomic)) = self.copies.get(&at) else {
                let mut shape = self.builder.shape(at).clone();
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

    fn shape(&mut self, node: &Node, name: Option<&str>, definitions: &BTreeMap<String, Node>) -> Shape {
        if let Some(scalar) = scalar(node, name) {
            return Shape::Scalar(scalar);
        }
        let is_atomic = atomic(node).unwrap_or(false);
        match node.ty.as_deref() {
            Some("array") => {
                let item = match &node.items {
                    Some(OrFlag::Node(item)) => self.node(item, definitions),
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
                Some(OrFlag::Node(value)) => {
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

    fn fields(&mut self, node: &Node, definitions: &BTreeMap<String, Node>) -> Vec<Field> {
        let properties = node.properties.iter().flatten();
        properties
            .map(|(name, node)| Field {
                name: self.builder.name(name),
                ty: self.node(node, definitions),
                default: match self.custom {
                    true => node.default.clone().map(Box::new),
                    false => telling(node.default.as_ref()),
                },
            })
            .collect()
    }

    fn list_kind(&mut self, node: &Node, definitions: &BTreeMap<String, Node>) -> ListKind {
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
            Some(OrFlag::Node(item)) => {
                referred(item).and_then(|name| definitions.get(name)).or(Some(&**item))
            }
            _ => None,
        };
        let properties = item.and_then(|item| item.properties.as_ref());
        let keys = keys
            .into_iter()
            .map(|key| {
                let stated = properties.and_then(|p| p.get(key)).and_then(|p| telling(p.default.as_ref()));
                // Documents of version 2 state no default; ports rest on this one.
                let default = stated.or_else(|| (key == "protocol").then(|| Box::new(Value::from("TCP"))));
                ListKey { name: self.builder.name(key), default }
            })
            .collect();
        ListKind::Map(keys)
    }
}

/// The name of the definition that a schema refers to.
fn referred(node: &Node) -> Option<&str> {
    let own = node.reference.as_deref().or_else(|| match node.all_of.as_deref() {
        Some([only]) if node.properties.is_none() => only.reference.as_deref(),
        _ => None,
    });
    own.and_then(|reference| reference.rsplit('/').next())
}

/// Whether the schema says that the value is atomic or has parts.
fn atomic(node: &Node) -> Option<bool> {
    match node.map_type.as_deref() {
        Some("atomic") => Some(true),
        Some(_) => Some(false),
        None => None,
    }
}

fn scalar(node: &Node, name: Option<&str>) -> Option<Scalar> {
    let name = name.unwrap_or_default();
    if name.ends_with(".api.resource.Quantity") {
        return Some(Scalar::Quantity);
    }
    if name.ends_with(".util.intstr.IntOrString") || node.format.as_deref() == Some("int-or-string") {
        return Some(Scalar::IntOrString);
    }
    if node.int_or_string == Some(true) {
        // Custom kinds know quantities only by the pattern that the usual
        // generator writes for them.
        let quantity = node.pattern.as_deref().is_some_and(|pattern| pattern.contains("[KMGTPE]i"));
        return Some(if quantity { Scalar::Quantity } else { Scalar::IntOrString });
    }
    match (node.ty.as_deref()?, node.format.as_deref()) {
        ("string", Some("byte")) => Some(Scalar::Bytes),
        ("string", Some("date-time")) => Some(Scalar::Time),
        ("string", _) => Some(Scalar::Text),
        ("integer" | "number" | "boolean", _) => Some(Scalar::Plain),
        _ => None,
    }
}

/// A default that says more than that absence is emptiness.
fn telling(default: Option<&Value>) -> Option<Box<Value>> {
    default.filter(|value| !equality::is_empty(value) && !equality::is_zero(value)).cloned().map(Box::new)
}

/// Whether a schema describes whole objects instead of lists or options.
fn is_object(node: &Node) -> bool {
    let metadata = node.properties.as_ref().and_then(|properties| properties.get("metadata"));
    metadata.and_then(referred).is_some_and(|name| name.ends_with(".ObjectMeta"))
}
