//! The declared fields of one object: a tree of declared paths, compact because tens of thousands stay in memory. Each leaf
//! is compared as one value. `Debug` shows no value, since it may be a Secret's.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::equality::{Family, FieldAgreement, FieldPlace, is_granular};
use super::path::{Path, PathLookup, Segment, Trail, TrailStep};
use super::schema::{ListKey, ListKind, Shape, TypeId, Types};

#[derive(Clone, PartialEq)]
pub struct DeclaredFields {
    pub(super) types: Arc<Types>,
    pub(super) family: Family,
    pub(super) ty: TypeId,
    pub(super) root: FieldNode,
}

/// One declared path at which an object changed or differs from its declaration.
///
/// For the existence of a list element, `old` and `new` hold its keys, as a list where it occurs more than
/// once. For the existence of a struct that declares only nulls, `old` is an empty struct. For the order of a
/// list, `declared`, `old` and `new` hold the keys of its declared elements in their respective order.
#[derive(Clone, PartialEq)]
pub struct FieldChange {
    pub path: Path,
    /// The declared value; `None` for the existence of a list element or of a struct.
    pub declared: Option<Value>,
    /// The value before; `None` if it was absent or is unknown.
    pub old: Option<Value>,
    pub new: Option<Value>,
    /// Whether the new value is the declared one.
    pub agreement: FieldAgreement,
}

impl FieldChange {
    /// Whether a declared list element occurs more than once.
    pub fn is_doubled(&self) -> bool {
        matches!(self.path.0.last(), Some(Segment::Key(_))) && matches!(self.new, Some(Value::Array(_)))
    }
}

#[derive(Clone, PartialEq)]
pub(super) enum FieldNode {
    /// Compared as one value.
    Leaf(FieldLeaf),
    Object(Box<[FieldEntry]>),
    /// Some elements of a list, identified by keys.
    Elements(Box<Elements>),
    Set(Box<Set>),
}

#[derive(Clone, PartialEq)]
pub(super) struct FieldLeaf {
    pub(super) value: Value,
    pub(super) ty: TypeId,
    pub(super) place: FieldPlace,
}

#[derive(Clone, PartialEq)]
pub(super) struct FieldEntry {
    pub(super) name: Arc<str>,
    pub(super) node: FieldNode,
}

#[derive(Clone, PartialEq)]
pub(super) struct Elements {
    /// The type of the list, which has the keys.
    pub(super) list: TypeId,
    /// Whether the order of the declared elements matters.
    pub(super) ordered: bool,
    pub(super) items: Box<[Element]>,
}

#[derive(Clone, PartialEq)]
pub(super) struct Element {
    /// The values of the list's keys, in their order.
    pub(super) keys: Box<[Value]>,
    pub(super) node: FieldNode,
}

#[derive(Clone, PartialEq)]
pub(super) struct Set {
    pub(super) item: TypeId,
    pub(super) values: Box<[Value]>,
}

impl DeclaredFields {
    /// Whether the kind grants rights (RBAC): the server stores such objects as sent and completes nothing.
    pub fn is_rbac(&self) -> bool {
        self.family == Family::Rights
    }

    pub fn leaves(&self) -> Vec<(Path, Value)> {
        let mut found = Vec::new();
        self.root
            .each_value(&self.types, &Trail::ROOT, &mut |trail, _, value| found.push((trail.path(), value)));
        found
    }

    /// The declared paths of maps, structs and lists that server-side apply replaces as a whole.
    pub fn atomic_paths(&self) -> Vec<Path> {
        let mut found = Vec::new();
        self.root.each_value(&self.types, &Trail::ROOT, &mut |trail, ty, value| {
            if (value.is_object() || value.is_array()) && self.types.is_one_value(ty, &value) {
                found.push(trail.path());
            }
        });
        found
    }

    /// The declared paths of empty maps and structs that server-side apply merges with the fields of other managers:
    /// they declare only their own existence.
    pub fn granular_empties(&self) -> Vec<Path> {
        let mut found = Vec::new();
        self.root.each_value(&self.types, &Trail::ROOT, &mut |trail, ty, value| {
            if value.as_object().is_some_and(serde_json::Map::is_empty) && is_granular(&self.types, ty) {
                found.push(trail.path());
            }
        });
        found
    }

    pub fn weight(&self) -> usize {
        self.root.weight()
    }

    /// The declared value at a path of plain field names, such as `["metadata", "annotations",
    /// "helm.sh/resource-policy"]`. `None` where nothing is declared, and for lists with identified elements.
    pub fn get(&self, path: &[&str]) -> Option<Value> {
        self.named(path)?.leaf()
    }

    fn named(&self, path: &[&str]) -> Option<&FieldNode> {
        path.iter().try_fold(&self.root, |node, name| node.entry(name))
    }

    /// The declared entries of the map at a path of plain field names, such as `["metadata", "labels"]`.
    pub fn entries(&self, path: &[&str]) -> Vec<(&str, Value)> {
        let Some(FieldNode::Object(entries)) = self.named(path) else { return Vec::new() };
        entries.iter().filter_map(|entry| Some((&*entry.name, entry.node.leaf()?))).collect()
    }

    /// The declared fields of the list element at `path`, as one value. `None` where no such element is declared.
    pub fn element(&self, path: &Path) -> Option<Value> {
        Some(self.node(&path.0)?.value())
    }

    pub fn declares(&self, path: &Path) -> bool {
        self.node(&path.0).is_some()
    }

    fn node(&self, path: &[Segment]) -> Option<&FieldNode> {
        path.iter().try_fold(&self.root, |node, segment| match (segment, node) {
            (Segment::Field(name), node) => node.entry(name),
            (Segment::Key(wanted), FieldNode::Elements(elements)) => elements.find(&self.types, wanted),
            _ => None,
        })
    }

    /// The path segment that identifies the element at `index` of the declared list at `path`. `None` where
    /// there is no such list, or its elements are not identified.
    pub fn element_at(&self, path: &[Segment], index: usize) -> Option<Segment> {
        match self.node(path)? {
            FieldNode::Elements(elements) => {
                let keys = elements.keys(&self.types).iter().map(|key| key.name.to_string());
                Some(Segment::Key(keys.zip(elements.items.get(index)?.keys.iter().cloned()).collect()))
            }
            FieldNode::Set(set) => set.values.get(index).cloned().map(Segment::Element),
            FieldNode::Leaf(_) | FieldNode::Object(_) => None,
        }
    }
}

impl FieldNode {
    pub(super) fn entry(&self, name: &str) -> Option<&FieldNode> {
        let FieldNode::Object(entries) = self else { return None };
        let index = entries.binary_search_by(|entry| (*entry.name).cmp(name)).ok()?;
        entries.get(index).map(|entry| &entry.node)
    }

    fn leaf(&self) -> Option<Value> {
        if let Self::Leaf(leaf) = self { Some(leaf.value.clone()) } else { None }
    }

    fn value(&self) -> Value {
        match self {
            Self::Leaf(leaf) => leaf.value.clone(),
            Self::Object(entries) => {
                entries.iter().map(|entry| (entry.name.to_string(), entry.node.value())).collect()
            }
            Self::Elements(elements) => elements.items.iter().map(|item| item.node.value()).collect(),
            Self::Set(set) => set.values.iter().cloned().collect(),
        }
    }

    fn weight(&self) -> usize {
        let below = match self {
            Self::Leaf(leaf) => weight(&leaf.value),
            Self::Object(entries) => entries
                .iter()
                .map(|entry| size_of::<Arc<str>>() + entry.name.len() + entry.node.weight())
                .sum(),
            Self::Elements(elements) => {
                let keys = |item: &Element| item.keys.iter().map(weight).sum::<usize>();
                elements.items.iter().map(|item| keys(item) + item.node.weight()).sum()
            }
            Self::Set(set) => set.values.iter().map(weight).sum(),
        };
        size_of::<Element>() + below
    }

    fn each_value(&self, types: &Types, trail: &Trail<'_>, visit: &mut dyn FnMut(&Trail<'_>, TypeId, Value)) {
        match self {
            Self::Leaf(leaf) => visit(trail, leaf.ty, leaf.value.clone()),
            Self::Object(entries) => {
                for entry in entries {
                    entry.node.each_value(types, &trail.then(TrailStep::Field(&entry.name)), visit);
                }
            }
            Self::Elements(elements) => {
                let keys = elements.keys(types);
                for item in &elements.items {
                    item.node.each_value(types, &trail.then(TrailStep::Key(keys, &item.keys)), visit);
                }
            }
            Self::Set(set) => {
                set.values
                    .iter()
                    .for_each(|v| visit(&trail.then(TrailStep::Element(v)), set.item, v.clone()));
            }
        }
    }
}

impl Elements {
    pub(super) fn find(&self, types: &Types, wanted: &[(String, Value)]) -> Option<&FieldNode> {
        let keys = self.keys(types);
        let is = |(name, value): &(String, Value), item: &Element| {
            let own = keys.iter().zip(&item.keys).find(|(key, _)| *key.name == **name);
            own.is_some_and(|(_, own)| Segment::alike(value, own))
        };
        self.items.iter().find(|item| wanted.iter().all(|it| is(it, item))).map(|item| &item.node)
    }

    pub(super) fn keys<'t>(&self, types: &'t Types) -> &'t [ListKey] {
        match types.shape(self.list) {
            Shape::List { kind: ListKind::Map(keys), .. } => keys,
            _ => &[],
        }
    }
}

/// The approximate memory of a value in bytes, without the size of `Value` itself.
pub fn weight(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(|item| size_of::<Value>() + weight(item)).sum(),
        Value::Object(map) => {
            let entry = size_of::<(String, Value)>();
            map.iter().map(|(name, value)| entry + name.len() + weight(value)).sum()
        }
    }
}

impl fmt::Debug for DeclaredFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.leaves().iter().map(|(path, _)| path.to_string())).finish()
    }
}

impl fmt::Debug for FieldChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FieldChange")
            .field("path", &self.path.to_string())
            .field("agreement", &self.agreement)
            .finish_non_exhaustive()
    }
}

/// The list elements of declarations and of one live object that share their merge key with another element.
pub struct AmbiguousElements<'v> {
    /// The paths of lists with such elements, and of these elements by the merge key alone.
    declared: HashSet<String>,
    live: PathLookup<'v>,
}

struct RepeatedKeys<'t> {
    types: &'t Types,
    found: HashSet<String>,
}

impl<'v> AmbiguousElements<'v> {
    pub fn new<'f>(declared: impl IntoIterator<Item = &'f DeclaredFields>, live: &'v Value) -> Self {
        let mut found = HashSet::new();
        for fields in declared {
            let mut repeated = RepeatedKeys { types: &fields.types, found };
            repeated.node(&fields.root, &Trail::ROOT);
            found = repeated.found;
        }
        Self { declared: found, live: PathLookup::new(live) }
    }

    /// Whether the path is at or below such an element, or is a list that declares one.
    pub fn has_path(&mut self, path: &Path) -> bool {
        if self.declared.contains(&path.to_string()) {
            return true;
        }
        let mut above = Vec::new();
        for segment in path.0.iter() {
            if let Segment::Key(keys) = segment {
                let element = Path(above.iter().cloned().chain([merge_key(keys)]).collect());
                if self.declared.contains(&element.to_string()) || self.live.get(&element).len() > 1 {
                    return true;
                }
            }
            above.push(segment.clone());
        }
        false
    }
}

impl RepeatedKeys<'_> {
    fn node(&mut self, node: &FieldNode, trail: &Trail<'_>) {
        match node {
            FieldNode::Object(entries) => {
                for entry in entries {
                    self.node(&entry.node, &trail.then(TrailStep::Field(&entry.name)));
                }
            }
            FieldNode::Elements(elements) => {
                let keys = elements.keys(self.types);
                self.list(keys, elements.items.iter().filter_map(|item| item.keys.first()), trail);
                for item in &elements.items {
                    self.node(&item.node, &trail.then(TrailStep::Key(keys, &item.keys)));
                }
            }
            // A list whose keys do not identify its elements is declared as one value.
            FieldNode::Leaf(leaf) => {
                let Shape::List { kind: ListKind::Map(keys), .. } = self.types.shape(leaf.ty) else { return };
                let (Value::Array(items), Some(key)) = (&leaf.value, keys.first()) else { return };
                self.list(keys, items.iter().filter_map(|item| item.get(&*key.name)), trail);
            }
            FieldNode::Set(_) => {}
        }
    }

    /// Records the merge keys that occur more than once in a list, and the list itself.
    fn list<'v>(&mut self, keys: &[ListKey], own: impl Iterator<Item = &'v Value>, trail: &Trail<'_>) {
        let mut counts: HashMap<String, (&Value, usize)> = HashMap::new();
        for value in own {
            counts.entry(Segment::spelled(value)).or_insert((value, 0)).1 += 1;
        }
        for (value, _) in counts.into_values().filter(|(_, count)| *count > 1) {
            let key = keys.get(..1).unwrap_or_default();
            let element = trail.then(TrailStep::Key(key, std::slice::from_ref(value))).path();
            self.found.insert(element.to_string());
            self.found.insert(trail.path().to_string());
        }
    }
}

fn merge_key(keys: &[(String, Value)]) -> Segment {
    Segment::Key(keys.first().into_iter().cloned().collect())
}

#[cfg(test)]
mod tests;
