//! Restores declared paths of an object.
//!
//! Entry point: [`restore`]. Invariant: changes only the named paths, and the parents that they need. A
//! restored value uses the spelling of the old object if that matched the declaration, else the manifest's.
//! Each list is visited once, however many of its elements are restored (`lists`).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::compare::index::Held;
use super::equality::{self, Agreement, Alike, Family, Spot};
use super::fields::{Fields, Leaf, Node, Set};
use super::path::{Path, Segment};
use super::schema::{Scalar, Shape, Types};

mod lists;

/// The remaining paths, below some place.
type Paths<'p> = [&'p [Segment]];

struct Walk<'t> {
    types: &'t Types,
    family: Family,
    /// Whether there is an old object: only then the absence of a value in it says how the API server spells it.
    is_old_known: bool,
}

/// A part of the declaration, and the name of its field or entry.
#[derive(Clone, Copy)]
struct Part<'f> {
    name: &'f str,
    node: &'f Node,
}

/// The side whose spelling a value has.
#[derive(Clone, Copy, PartialEq)]
enum Whose {
    ApiServers,
    Editors,
}

/// See [`Fields::restore`].
pub(super) fn restore<'p>(
    fields: &Fields,
    paths: impl IntoIterator<Item = &'p Path>,
    old: &Value,
    new: &mut Value,
) {
    let walk = Walk { types: &fields.types, family: fields.family, is_old_known: !old.is_null() };
    let paths: Vec<&[Segment]> = paths.into_iter().map(|path| &*path.0).collect();
    let mut place = Some(new.take());
    walk.back(Part { name: "", node: &fields.root }, &paths, Some(old), &mut place);
    *new = place.unwrap_or_else(|| Value::Object(Map::new()));
}

impl Fields {
    /// Restores the declared `paths` of `new`: to the value in `old` unless that clearly differs from the
    /// declaration, else to the declared value. For a list element this restores the whole old element; for a
    /// list, the order of its declared elements. An undeclared path changes nothing.
    ///
    /// Afterwards [`Self::changed`] finds no drift at these paths.
    pub fn restore<'p>(&self, paths: impl IntoIterator<Item = &'p Path>, old: &Value, new: &mut Value) {
        restore(self, paths, old, new);
    }
}

impl Walk<'_> {
    /// Sets what is at `paths` below `part` back. Recursion follows the
    /// declarations.
    fn back(&self, part: Part<'_>, paths: &Paths<'_>, old: Option<&Value>, new: &mut Option<Value>) {
        match part.node {
            Node::Leaf(leaf) if paths.iter().any(|path| path.is_empty()) => {
                *new = self.value(leaf, part.name, old, Whose::ApiServers);
            }
            Node::Leaf(_) => {}
            // A struct is there again, with all that it held.
            Node::Object(_) if is_gone(new) && paths.iter().any(|path| path.is_empty()) => {
                *new = old.cloned();
            }
            node @ Node::Object(_) => self.fields_back(node, paths, old, new),
            Node::Elements(elements) => self.elements_back(elements, paths, old, new),
            Node::Set(set) => {
                let wanted: Vec<&Value> = paths
                    .iter()
                    .filter_map(|path| match path {
                        [Segment::Element(wanted)] => Some(wanted),
                        _ => None,
                    })
                    .collect();
                if !wanted.is_empty() {
                    self.set_back(set, &wanted, old, new);
                }
            }
        }
    }

    fn fields_back(&self, node: &Node, paths: &Paths<'_>, old: Option<&Value>, new: &mut Option<Value>) {
        let mut below: BTreeMap<&str, Vec<&[Segment]>> = BTreeMap::new();
        for path in paths {
            if let [Segment::Field(field), rest @ ..] = path {
                below.entry(field).or_default().push(rest);
            }
        }
        let mut below = below
            .into_iter()
            .filter_map(|(field, paths)| Some((field, node.entry(field)?, paths)))
            .peekable();
        if below.peek().is_none() {
            return;
        }
        let mut map = match new.take() {
            Some(Value::Object(map)) => map,
            _ => Map::new(),
        };
        for (field, node, paths) in below {
            let mut value = map.remove(field);
            let part = Part { name: field, node };
            self.back(part, &paths, old.and_then(|old| old.get(field)), &mut value);
            map.extend(value.map(|value| (field.to_owned(), value)));
        }
        // A parent that the change added only to hold this is removed too.
        let holds = !map.is_empty() || old.is_some_and(Value::is_object);
        *new = holds.then_some(Value::Object(map));
    }

    /// The value to restore in a leaf: the old one, if that agrees with the declared one. If the API server
    /// wrote the value, a doubt concerns only the spelling.
    fn value(&self, leaf: &Leaf, name: &str, had: Option<&Value>, whose: Whose) -> Option<Value> {
        let declared = leaf.value.clone();
        let spot = Spot::new(name, leaf.place, self.family);
        match (equality::agreement(self.types, leaf.ty, spot, &declared, had), whose) {
            (Agreement::Agrees, _) => return had.cloned(),
            (Agreement::Doubt, Whose::ApiServers) if self.is_old_known => return had.cloned(),
            (
                Agreement::Doubt
                | Agreement::Altered
                | Agreement::Missing
                | Agreement::Added
                | Agreement::Within
                | Agreement::Differs,
                _,
            ) => {}
        }
        Some(match (self.types.shape(leaf.ty), declared) {
            // The API server takes labels and the like only as texts.
            (Shape::Scalar(Scalar::Text), scalar @ (Value::Bool(_) | Value::Number(_))) => {
                Value::String(scalar.to_string())
            }
            (_, declared) => declared,
        })
    }

    /// Sets everything declared that an editor's value may not hold.
    fn enforce(&self, node: &Node, name: &str, value: &mut Option<Value>) {
        match node {
            Node::Leaf(leaf) => *value = self.value(leaf, name, value.as_ref(), Whose::Editors),
            Node::Object(entries) => {
                let was = value.as_ref().is_some_and(Value::is_object);
                let mut map = match value.take() {
                    Some(Value::Object(map)) => map,
                    _ => Map::new(),
                };
                for entry in entries {
                    let mut below = map.remove(&*entry.name);
                    self.enforce(&entry.node, &entry.name, &mut below);
                    map.extend(below.map(|below| (entry.name.to_string(), below)));
                }
                *value = (was || !map.is_empty()).then_some(Value::Object(map));
            }
            Node::Elements(elements) => {
                let items = list(value.take());
                *value = Some(Value::Array(self.all_elements(elements, items)));
            }
            Node::Set(set) => {
                let wanted: Vec<&Value> = set.values.iter().collect();
                self.set_back(set, &wanted, None, value);
            }
        }
    }

    /// Has elements in a set, spelled as the object before spelled them.
    fn set_back(&self, set: &Set, wanted: &[&Value], old: Option<&Value>, new: &mut Option<Value>) {
        let items = list(new.take());
        let (mut missing, mut added) = (Vec::new(), Alike::new(self.types, set.item, &[]));
        let mut all = Value::Array(items);
        let there = Held::new(self.types, set.item, wanted.len(), Some(&all));
        let before = Held::new(self.types, set.item, wanted.len(), old);
        for &wanted in wanted {
            if there.find(wanted).is_none() && added.find(wanted).is_none() {
                added.add(wanted);
                missing.push(before.find(wanted).unwrap_or(wanted).clone());
            }
        }
        drop(there);
        if let Value::Array(items) = &mut all {
            items.append(&mut missing);
        }
        *new = Some(all);
    }
}

fn is_gone(value: &Option<Value>) -> bool {
    value.as_ref().is_none_or(Value::is_null)
}

fn list(value: Option<Value>) -> Vec<Value> {
    match value {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
