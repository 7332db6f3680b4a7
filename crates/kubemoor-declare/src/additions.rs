//! The parts of an object beyond its declared fields.
//!
//! Entry point: [`Fields::additions`]. Invariant: declared values and the API server's own defaults are not
//! additions. An addition is reported once, at the highest new place. Time is linear in the objects. Must not
//! know who wrote a field.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::equality::{self, Family, Unnamed};
use super::fields::{Fields, Leaf, Node};
use super::path::{Path, Segment};
use super::schema::{ListKey, ListKind, MAX_DEPTH, Shape, Struct, TypeId, Types};

/// The places that are searched for additions.
pub trait Scope: Sized {
    /// The scope one step further down; `None` if it covers nothing there or below.
    fn step(&self, segment: &Segment) -> Option<Self>;

    /// Whether the scope covers everything here and below.
    fn is_inside(&self) -> bool;
}

/// One place with an undeclared value.
#[derive(Clone, Debug, PartialEq)]
pub struct Addition<'v> {
    /// The place.
    pub path: Path,
    /// The previous value; `None` if it was absent or is unknown.
    pub old: Option<&'v Value>,
    /// The new value.
    pub new: &'v Value,
    /// Whether it is a list element or an entry of a free map. The API server fills in fields, but neither of
    /// these.
    pub is_member: bool,
}

struct Walk<'t, 'v> {
    types: &'t Types,
    family: Family,
    path: Vec<Segment>,
    found: Vec<Addition<'v>>,
}

/// A position of the walk.
#[derive(Clone, Copy)]
struct Spot<'s> {
    /// What is declared here; none where nothing is.
    node: Option<&'s Node>,
    field: Unnamed<'s>,
    is_member: bool,
}

impl Fields {
    /// The values of `new` within `scope` that are neither declared, nor in `old`, nor defaults. Both objects
    /// come from the API server, in the version of the manifest.
    pub fn additions<'v>(
        &self,
        scope: &impl Scope,
        old: Option<&'v Value>,
        new: &'v Value,
    ) -> Vec<Addition<'v>> {
        // To a Pod the scheduler and the admission plugins of the server add.
        if self.family == Family::Pod {
            return Vec::new();
        }
        let mut walk = Walk { types: &self.types, family: self.family, path: Vec::new(), found: Vec::new() };
        let is_of_update = old.is_some();
        let field =
            Unnamed { ty: self.ty, name: "", within: "", default: None, is_changed: false, is_of_update };
        let spot = Spot { node: Some(&self.root), field, is_member: false };
        walk.value(spot, scope, old, new);
        walk.found
    }

    /// Whether each part of the value at `path` is declared, or a value below or above it is.
    pub fn covers(&self, path: &Path, value: &Value) -> bool {
        match value {
            Value::Object(map) if !map.is_empty() => {
                map.iter().all(|(name, below)| self.covers(&path.of_field(name), below))
            }
            _ => self.declares_around(path),
        }
    }

    /// Whether a value is declared at `path`, below it, or above it as one value.
    pub(super) fn declares_around(&self, path: &Path) -> bool {
        let mut node = &self.root;
        for segment in path.0.iter() {
            let below = match (segment, node) {
                (_, Node::Leaf(leaf)) => return !equality::is_void(&leaf.value),
                (Segment::Field(name), node) => node.entry(name),
                (Segment::Key(wanted), Node::Elements(elements)) => elements.find(&self.types, wanted),
                (Segment::Element(wanted), Node::Set(set)) => {
                    return set.values.iter().any(|own| Segment::alike(wanted, own));
                }
                _ => None,
            };
            let Some(below) = below else { return false };
            node = below;
        }
        true
    }
}

impl<'t, 'v> Walk<'t, 'v> {
    fn value(&mut self, spot: Spot<'_>, scope: &impl Scope, old: Option<&'v Value>, new: &'v Value) {
        let node = spot.node;
        // A leaf is compared with the declaration as one value.
        let is_closed = matches!(node, Some(Node::Leaf(leaf)) if !self.is_open(leaf, new));
        if new.is_null() || is_closed || self.path.len() >= MAX_DEPTH {
            return;
        }
        let old = old.filter(|old| !old.is_null());
        let is_undeclared = node.is_none() && scope.is_inside();
        if is_undeclared && old.is_none() && !self.is_taken_apart(spot, new) {
            self.found(spot, None, new);
            return;
        }
        match (self.types.shape(spot.field.ty), new) {
            (
                Shape::Struct(Struct { atomic: false, .. }) | Shape::Map { atomic: false, .. } | Shape::Any,
                Value::Object(map),
            ) => {
                for (name, value) in map {
                    self.member(spot, scope, old, (name, value));
                }
            }
            (Shape::List { item, kind: ListKind::Map(keys) }, Value::Array(items)) => {
                self.elements((spot, *item, keys), scope, old, items);
            }
            (Shape::List { kind: ListKind::Set, .. }, Value::Array(items)) => {
                self.set(spot, scope, old, items);
            }
            _ if is_undeclared && !self.is_within(spot.field.ty, old, new) => self.found(spot, old, new),
            _ => {}
        }
    }

    /// Whether a declared empty value with parts leaves its content open.
    fn is_open(&self, leaf: &Leaf, new: &Value) -> bool {
        let of_many = match self.types.shape(leaf.ty) {
            Shape::Struct(Struct { atomic, .. }) | Shape::Map { atomic, .. } => !atomic && new.is_object(),
            Shape::List { kind, .. } => *kind != ListKind::Atomic && new.is_array(),
            Shape::Any => new.is_object(),
            Shape::Scalar(_) => false,
        };
        of_many && equality::is_void(&leaf.value)
    }

    /// Whether each part of a new value is reported as a separate addition.
    fn is_taken_apart(&self, Spot { field, is_member, .. }: Spot<'_>, new: &Value) -> bool {
        let of_many = match (self.types.shape(field.ty), new) {
            (Shape::Map { atomic: false, .. }, Value::Object(_)) => true,
            (Shape::List { kind: ListKind::Map(_) | ListKind::Set, .. }, Value::Array(_)) => true,
            (_, Value::Object(_)) => field.name == "metadata",
            _ => false,
        };
        of_many && !is_member
    }

    fn member(
        &mut self,
        above: Spot<'_>,
        scope: &impl Scope,
        old: Option<&'v Value>,
        (name, value): (&str, &'v Value),
    ) {
        let segment = Segment::Field(name.to_owned());
        let Some(scope) = scope.step(&segment) else { return };
        let (ty, default, is_member) = match self.types.shape(above.field.ty) {
            Shape::Struct(shape) => match shape.field(name) {
                Some(field) => (field.ty, field.default.as_deref(), false),
                None => (TypeId::ANY, None, false),
            },
            Shape::Map { value, .. } => (*value, None, true),
            _ => (TypeId::ANY, None, false),
        };
        let field = Unnamed { ty, name, within: above.field.name, default, ..above.field };
        let node = above.node.and_then(|node| node.entry(name));
        let old = old.and_then(|old| old.get(name));
        self.path.push(segment);
        self.value(Spot { node, field, is_member }, &scope, old, value);
        self.path.pop();
    }

    fn elements(
        &mut self,
        (above, ty, keys): (Spot<'_>, TypeId, &[ListKey]),
        scope: &impl Scope,
        old: Option<&'v Value>,
        items: &'v [Value],
    ) {
        let mut declared: HashMap<Vec<String>, &Node> = HashMap::new();
        if let Some(Node::Elements(elements)) = above.node {
            let key = |values: &[Value]| values.iter().map(Segment::spelled).collect();
            declared.extend(elements.items.iter().map(|item| (key(&item.keys), &item.node)));
        }
        let values = |item: &'v Value| -> Option<Vec<(String, Value)>> {
            let value = |key: &ListKey| Some((key.name.to_string(), equality::key_value(item, key)?.clone()));
            keys.iter().map(value).collect()
        };
        let spell =
            |keys: &[(String, Value)]| keys.iter().map(|(_, value)| Segment::spelled(value)).collect();
        // Elements with the same keys are compared in their order: the first of one list with the first of
        // the other.
        let mut before: HashMap<Vec<String>, Vec<&'v Value>> = HashMap::new();
        for item in old.and_then(Value::as_array).into_iter().flatten().rev() {
            if let Some(keys) = values(item) {
                before.entry(spell(&keys)).or_default().push(item);
            }
        }
        let field = Unnamed { ty, default: None, ..above.field };
        for item in items {
            // The API server takes no element without its keys.
            let Some(keys) = values(item) else { continue };
            let spelled: Vec<String> = spell(&keys);
            let segment = Segment::Key(keys);
            let Some(scope) = scope.step(&segment) else { continue };
            let old = before.get_mut(&spelled).and_then(Vec::pop);
            let node = declared.get(&spelled).copied();
            self.path.push(segment);
            self.value(Spot { node, field, is_member: true }, &scope, old, item);
            self.path.pop();
        }
    }

    fn set(&mut self, above: Spot<'_>, scope: &impl Scope, old: Option<&'v Value>, items: &'v [Value]) {
        let declared: &[Value] = if let Some(Node::Set(set)) = above.node { &set.values } else { &[] };
        let before = old.and_then(Value::as_array).into_iter().flatten();
        let known: HashSet<String> = before.chain(declared).map(Segment::spelled).collect();
        for item in items.iter().filter(|item| !known.contains(&Segment::spelled(item))) {
            let segment = Segment::Element(item.clone());
            if scope.step(&segment).is_some_and(|scope| scope.is_inside()) {
                self.path.push(segment);
                self.found(Spot { is_member: true, ..above }, None, item);
                self.path.pop();
            }
        }
    }

    /// Whether the new value was there before: unchanged, or with elements removed.
    fn is_within(&self, ty: TypeId, old: Option<&Value>, new: &Value) -> bool {
        if equality::is_same(self.types, ty, old, Some(new)) {
            return true;
        }
        let (Some(Value::Array(old)), Value::Array(new)) = (old, new) else { return false };
        // Each in its turn: what stays keeps its order.
        let mut left = old.iter();
        new.len() < old.len() && new.iter().all(|item| left.any(|before| before == item))
    }

    fn found(&mut self, spot: Spot<'_>, old: Option<&'v Value>, new: &'v Value) {
        let Spot { field, is_member, .. } = spot;
        let field = Unnamed { is_changed: old.is_some(), ..field };
        if is_member || !equality::is_filled_in(self.types, self.family, field, new, 0) {
            let path = Path(self.path.as_slice().into());
            self.found.push(Addition { path, old, new, is_member });
        }
    }
}

#[cfg(test)]
mod tests;
