//! Setting declared paths of an object back.
//!
//! Entry point: [`restore`]. Invariant: nothing but the path that is named
//! changes, and what must stand around it for the path to exist. What comes
//! back is spelled as the object before had it, where that was as declared;
//! else as the manifest spells it.

use serde_json::{Map, Value};

use super::compare::index::Index;
use super::equality::{self, Agreement, Spot};
use super::fields::{Element, Elements, Fields, Leaf, Node, Set};
use super::path::{Path, Segment};
use super::schema::{Scalar, Shape, Types};

/// See [`Fields::restore`].
pub(super) fn restore(fields: &Fields, path: &Path, old: &Value, new: &mut Value) {
    let walk = Walk { types: &fields.types };
    let mut place = Some(new.take());
    walk.back(&fields.root, "", &path.0, Some(old), &mut place);
    *new = place.unwrap_or_else(|| Value::Object(Map::new()));
}

struct Walk<'t> {
    types: &'t Types,
}

/// Who spelled a value.
#[derive(Clone, Copy, PartialEq)]
enum Whose {
    ApiServers,
    Editors,
}

impl Walk<'_> {
    /// Sets what is at `segments` below `node` back. Recursion follows the
    /// declarations.
    fn back(
        &self,
        node: &Node,
        name: &str,
        segments: &[Segment],
        old: Option<&Value>,
        new: &mut Option<Value>,
    ) {
        match (segments, node) {
            ([], Node::Leaf(leaf)) => *new = self.value(leaf, name, old, Whose::ApiServers),
            ([], Node::Elements(elements)) => self.reorder(elements, new),
            ([Segment::Field(field), below @ ..], Node::Object(_)) => {
                let Some(node) = node.entry(field) else { return };
                let mut map = match new.take() {
                    Some(Value::Object(map)) => map,
                    _ => Map::new(),
                };
                let mut value = map.remove(field);
                self.back(node, field, below, old.and_then(|old| old.get(field)), &mut value);
                map.extend(value.map(|value| (field.clone(), value)));
                // What the edit made only to hold this goes along.
                let holds = !map.is_empty() || old.is_some_and(Value::is_object);
                *new = holds.then_some(Value::Object(map));
            }
            ([Segment::Key(keys), below @ ..], Node::Elements(elements)) => {
                let declared = |item: &&Element| keys.iter().map(|(_, value)| value).eq(item.keys.iter());
                if let Some(item) = elements.items.iter().find(declared) {
                    let mut items = list(new.take());
                    match below {
                        [] => self.element_back(elements, item, old, &mut items),
                        _ => self.below_element(elements, item, below, old, &mut items),
                    }
                    *new = Some(Value::Array(items));
                }
            }
            ([Segment::Element(wanted)], Node::Set(set)) => {
                let mut items = list(new.take());
                if !self.has(set, &items, wanted) {
                    items.push(self.spelled(set, old, wanted));
                }
                *new = Some(Value::Array(items));
            }
            _ => {}
        }
    }

    /// What a leaf has to hold: the value that it had, if that agrees with the
    /// declared one. A doubt is one about spelling where the API server wrote
    /// the value.
    fn value(&self, leaf: &Leaf, name: &str, had: Option<&Value>, whose: Whose) -> Option<Value> {
        let declared = leaf.value.value();
        let spot = Spot { name, place: leaf.place };
        match (equality::agreement(self.types, leaf.ty, spot, &declared, had), whose) {
            (Agreement::Agrees, _) | (Agreement::Doubt, Whose::ApiServers) => return had.cloned(),
            (Agreement::Doubt | Agreement::Differs, _) => {}
        }
        Some(match (self.types.shape(leaf.ty), declared) {
            // The API server takes labels and the like only as texts.
            (Shape::Scalar(Scalar::Text), scalar @ (Value::Bool(_) | Value::Number(_))) => {
                Value::String(scalar.to_string())
            }
            (_, declared) => declared,
        })
    }

    fn below_element(
        &self,
        elements: &Elements,
        item: &Element,
        below: &[Segment],
        old: Option<&Value>,
        items: &mut [Value],
    ) {
        let before = Index::new(elements, self.types, old).find(item).one();
        let keys = elements.keys(self.types);
        let own = items.iter_mut().find(|value| equality::has_keys(value, keys, &item.keys));
        if let Some(own) = own {
            let mut value = Some(own.take());
            self.back(&item.node, "", below, before, &mut value);
            *own = value.unwrap_or_else(|| with_keys(Map::new(), elements, self.types, item));
        }
    }

    /// Has a declared element there once, as it was before.
    fn element_back(&self, elements: &Elements, item: &Element, old: Option<&Value>, items: &mut Vec<Value>) {
        let keys = elements.keys(self.types);
        let mut before = Index::new(elements, self.types, old).collect(item).into_iter();
        let mut own: Vec<usize> = Vec::new();
        for (place, value) in items.iter().enumerate() {
            if equality::has_keys(value, keys, &item.keys) {
                own.push(place);
            }
        }
        let restored = match (before.next(), before.next()) {
            (Some(only), None) => Some(only.clone()),
            // It was there twice, or not at all: what is declared of it is put
            // right.
            (first, _) => {
                let mut restored = own.first().and_then(|place| items.get(*place)).or(first).cloned();
                self.enforce(&item.node, "", &mut restored);
                restored
            }
        };
        let restored = match restored {
            Some(Value::Object(map)) => with_keys(map, elements, self.types, item),
            _ => with_keys(Map::new(), elements, self.types, item),
        };
        let place = own.first().copied().unwrap_or_else(|| self.place(elements, item, items));
        let mut index = 0;
        items.retain(|_| {
            let stays = !own.contains(&index);
            index += 1;
            stays
        });
        items.insert(place.min(items.len()), restored);
    }

    /// Where a declared element belongs that is not there: behind the declared
    /// one that precedes it.
    fn place(&self, elements: &Elements, item: &Element, items: &[Value]) -> usize {
        let keys = elements.keys(self.types);
        let preceding = elements.items.iter().take_while(|other| other.keys != item.keys);
        let places = preceding
            .filter_map(|other| items.iter().position(|value| equality::has_keys(value, keys, &other.keys)));
        places.last().map_or(0, |place| place + 1)
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
                let mut items = list(value.take());
                for item in &elements.items {
                    self.element_back(elements, item, None, &mut items);
                }
                *value = Some(Value::Array(items));
            }
            Node::Set(set) => {
                let mut items = list(value.take());
                for wanted in &set.values {
                    if !self.has(set, &items, wanted) {
                        items.push(wanted.clone());
                    }
                }
                *value = Some(Value::Array(items));
            }
        }
    }

    /// Puts the declared elements of a list into their declared order, in the
    /// places that they have among the others.
    fn reorder(&self, elements: &Elements, new: &mut Option<Value>) {
        let Some(Value::Array(items)) = new else { return };
        let keys = elements.keys(self.types);
        let of = |item: &Element| items.iter().position(|value| equality::has_keys(value, keys, &item.keys));
        let declared: Vec<usize> = elements.items.iter().filter_map(of).collect();
        let mut places = declared.clone();
        places.sort_unstable();
        places.dedup();
        let values: Vec<Value> = declared.iter().filter_map(|place| items.get(*place).cloned()).collect();
        if places.len() != values.len() {
            return;
        }
        for (place, value) in places.into_iter().zip(values) {
            if let Some(item) = items.get_mut(place) {
                *item = value;
            }
        }
    }

    fn has(&self, set: &Set, items: &[Value], wanted: &Value) -> bool {
        items.iter().any(|item| equality::is_same(self.types, set.item, Some(item), Some(wanted)))
    }

    /// An element of a set as the object before spelled it.
    fn spelled(&self, set: &Set, old: Option<&Value>, wanted: &Value) -> Value {
        let before = old.and_then(Value::as_array).into_iter().flatten();
        let same = |item: &&Value| equality::is_same(self.types, set.item, Some(item), Some(wanted));
        before.into_iter().find(same).unwrap_or(wanted).clone()
    }
}

fn list(value: Option<Value>) -> Vec<Value> {
    match value {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

/// An element with the keys that tell it apart.
fn with_keys(mut element: Map<String, Value>, elements: &Elements, types: &Types, item: &Element) -> Value {
    for (key, value) in elements.keys(types).iter().zip(&item.keys) {
        if element.get(&*key.name).is_none_or(Value::is_null) && key.default.as_deref() != Some(value) {
            element.insert(key.name.to_string(), value.clone());
        }
    }
    Value::Object(element)
}

#[cfg(test)]
mod tests;
