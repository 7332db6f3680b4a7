//! Restores declared paths of an object. Only the named paths change, and the parents that they need. A restored value uses
//! the spelling of the old object if that matched the declaration, else the manifest's. Each list is visited once, however
//! many of its elements are restored; undeclared elements keep their places among the others.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::compare::{LiveList, find_declared};
use super::equality::{self, ElementIndex, EquivalenceIndex, Family, FieldAgreement, FieldContext};
use super::fields::{DeclaredFields, Element, Elements, FieldLeaf, FieldNode, Set};
use super::path::{Path, Segment};
use super::schema::{ScalarType, Shape, Types};

type Paths<'p> = [&'p [Segment]];

struct Restorer<'t> {
    types: &'t Types,
    family: Family,
    /// Whether there is an old object: only then does absence show how the API server stores the declared value.
    is_old_known: bool,
}

#[derive(Clone, Copy)]
struct RestoredPart<'f> {
    name: &'f str,
    node: &'f FieldNode,
}

impl DeclaredFields {
    /// Restores the declared `paths` of `new`: to the value in `old` unless that clearly differs from the
    /// declaration, else to the declared value. For a list element this restores the whole old element; for a
    /// list, the order of its declared elements. An undeclared path changes nothing.
    ///
    /// Afterwards [`Self::changed`] finds no drift at these paths.
    pub fn restore<'p>(&self, paths: impl IntoIterator<Item = &'p Path>, old: &Value, new: &mut Value) {
        let walk = Restorer { types: &self.types, family: self.family, is_old_known: !old.is_null() };
        let paths: Vec<&[Segment]> = paths.into_iter().map(|path| &*path.0).collect();
        let mut place = Some(new.take());
        walk.restore_node(RestoredPart { name: "", node: &self.root }, &paths, Some(old), &mut place);
        *new = place.unwrap_or_else(|| Value::Object(Map::new()));
    }
}

impl Restorer<'_> {
    /// Restores the values at `paths` below `part`. Recursion follows the declarations.
    fn restore_node(
        &self,
        part: RestoredPart<'_>,
        paths: &Paths<'_>,
        old: Option<&Value>,
        new: &mut Option<Value>,
    ) {
        match part.node {
            FieldNode::Leaf(leaf) if paths.iter().any(|path| path.is_empty()) => {
                *new = self.value(leaf, part.name, old, self.is_old_known);
            }
            FieldNode::Leaf(_) => {}
            // A removed struct is restored with its old content.
            FieldNode::Object(_) if is_gone(new) && paths.iter().any(|path| path.is_empty()) => {
                *new = old.cloned();
            }
            node @ FieldNode::Object(_) => self.fields_back(node, paths, old, new),
            FieldNode::Elements(elements) => self.elements_back(elements, paths, old, new),
            FieldNode::Set(set) => {
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

    fn fields_back(&self, node: &FieldNode, paths: &Paths<'_>, old: Option<&Value>, new: &mut Option<Value>) {
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
            let part = RestoredPart { name: field, node };
            self.restore_node(part, &paths, old.and_then(|old| old.get(field)), &mut value);
            map.extend(value.map(|value| (field.to_owned(), value)));
        }
        // A parent that the change added only to hold this is removed too.
        let holds = !map.is_empty() || old.is_some_and(Value::is_object);
        *new = holds.then_some(Value::Object(map));
    }

    /// The value to restore in a leaf: the old one, if that agrees with the declared one. If the API server returned
    /// the old value, `Doubt` is only about its notation.
    fn value(&self, leaf: &FieldLeaf, name: &str, had: Option<&Value>, is_servers: bool) -> Option<Value> {
        let declared = leaf.value.clone();
        let spot = FieldContext::new(name, leaf.place, self.family);
        let agreement = equality::agreement(self.types, leaf.ty, spot, &declared, had);
        if agreement == FieldAgreement::Agrees || (is_servers && agreement == FieldAgreement::Doubt) {
            return had.cloned();
        }
        Some(match (self.types.shape(leaf.ty), declared) {
            // The API server accepts labels and similar values only as strings.
            (Shape::Scalar(ScalarType::Text), scalar @ (Value::Bool(_) | Value::Number(_))) => {
                Value::String(scalar.to_string())
            }
            (_, declared) => declared,
        })
    }

    /// Sets all declared fields of a value that may come from a user's edit.
    fn enforce(&self, node: &FieldNode, name: &str, value: &mut Option<Value>) {
        match node {
            FieldNode::Leaf(leaf) => *value = self.value(leaf, name, value.as_ref(), false),
            FieldNode::Object(entries) => {
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
            FieldNode::Elements(elements) => {
                let items = list(value.take());
                *value = Some(Value::Array(self.all_elements(elements, items)));
            }
            FieldNode::Set(set) => {
                let wanted: Vec<&Value> = set.values.iter().collect();
                self.set_back(set, &wanted, None, value);
            }
        }
    }

    /// Adds missing elements to a set, in the notation of the old object.
    fn set_back(&self, set: &Set, wanted: &[&Value], old: Option<&Value>, new: &mut Option<Value>) {
        let items = list(new.take());
        let (mut missing, mut added) = (Vec::new(), EquivalenceIndex::of_list(self.types, set.item, None));
        let mut all = Value::Array(items);
        let there = EquivalenceIndex::of_list(self.types, set.item, Some(&all));
        let before = EquivalenceIndex::of_list(self.types, set.item, old);
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

#[derive(Default)]
struct WantedElement<'p> {
    whole: bool,
    below: Vec<&'p [Segment]>,
}

struct Slots {
    items: Vec<Option<Value>>,
    /// The elements to insert, by the element that they follow; `None` for the front.
    behind: BTreeMap<Option<usize>, Vec<Value>>,
}

impl Restorer<'_> {
    /// Restores elements of a list, values below elements, and the order.
    fn elements_back(
        &self,
        elements: &Elements,
        paths: &Paths<'_>,
        old: Option<&Value>,
        new: &mut Option<Value>,
    ) {
        let declared = ElementIndex::of_declared(elements);
        let mut wanted: BTreeMap<usize, WantedElement<'_>> = BTreeMap::new();
        for path in paths {
            if let [Segment::Key(keys), below @ ..] = path
                && let Some((place, _)) = find_declared(elements, &declared, keys)
            {
                let wanted = wanted.entry(place).or_default();
                match below {
                    [] => wanted.whole = true,
                    below => wanted.below.push(below),
                }
            }
        }
        if !wanted.is_empty() {
            let items = list(new.take());
            *new = Some(Value::Array(self.put(elements, &wanted, old, items)));
        }
        if paths.iter().any(|path| path.is_empty()) {
            self.reorder(elements, new);
        }
    }

    /// Makes the list contain every declared element once, as declared.
    fn all_elements(&self, elements: &Elements, items: Vec<Value>) -> Vec<Value> {
        let whole = |place| (place, WantedElement { whole: true, below: Vec::new() });
        self.put(elements, &(0..elements.items.len()).map(whole).collect(), None, items)
    }

    fn put(
        &self,
        elements: &Elements,
        wanted: &BTreeMap<usize, WantedElement<'_>>,
        old: Option<&Value>,
        items: Vec<Value>,
    ) -> Vec<Value> {
        let before = LiveList::new(elements, self.types, old);
        let places = self.places(elements, &items);
        let mut slots = Slots { items: items.into_iter().map(Some).collect(), behind: BTreeMap::new() };
        let mut preceding = None;
        for ((place, item), own) in elements.items.iter().enumerate().zip(&places) {
            let first = own.first().copied();
            match wanted.get(&place) {
                None => {}
                Some(wanted) => {
                    if wanted.whole {
                        let restored =
                            self.element(elements, item, &before, first.and_then(|at| slots.get(at)));
                        own.iter().for_each(|at| drop(slots.take(*at)));
                        slots.put(first, preceding, restored);
                    }
                    if let (Some(at), false) = (first, wanted.below.is_empty()) {
                        let mut value = slots.take(at);
                        let part = RestoredPart { name: "", node: &item.node };
                        let was = before.only(item).map(|(_, value)| value);
                        self.restore_node(part, &wanted.below, was, &mut value);
                        let value = value.unwrap_or_else(|| self.bare(elements, item));
                        slots.put(first, preceding, value);
                    }
                }
            }
            preceding = first.or(preceding);
        }
        slots.into_items()
    }

    fn element(
        &self,
        elements: &Elements,
        item: &Element,
        before: &LiveList<'_>,
        own: Option<&Value>,
    ) -> Value {
        let mut before = before.collect(item).into_iter();
        let restored = match (before.next(), before.next()) {
            (Some(only), None) => Some(only.clone()),
            // It occurred twice or not at all: restore only its declared fields.
            (first, _) => {
                let mut restored = own.or(first).cloned();
                self.enforce(&item.node, "", &mut restored);
                restored
            }
        };
        match restored {
            Some(Value::Object(map)) => with_keys(map, elements, self.types, item),
            _ => self.bare(elements, item),
        }
    }

    fn bare(&self, elements: &Elements, item: &Element) -> Value {
        with_keys(Map::new(), elements, self.types, item)
    }

    fn places(&self, elements: &Elements, items: &[Value]) -> Vec<Vec<usize>> {
        let index = LiveList::of_items(elements, self.types, items);
        elements.items.iter().map(|item| index.places(item).to_vec()).collect()
    }

    /// Sorts the declared elements of a list into their declared order, within the positions that they have.
    fn reorder(&self, elements: &Elements, new: &mut Option<Value>) {
        let Some(Value::Array(items)) = new else { return };
        let declared: Vec<usize> =
            self.places(elements, items).iter().filter_map(|own| own.first().copied()).collect();
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
}

impl Slots {
    fn get(&self, at: usize) -> Option<&Value> {
        self.items.get(at)?.as_ref()
    }

    fn take(&mut self, at: usize) -> Option<Value> {
        self.items.get_mut(at)?.take()
    }

    /// Puts an element into its place, or behind the one that precedes it.
    fn put(&mut self, at: Option<usize>, preceding: Option<usize>, value: Value) {
        match at.and_then(|at| self.items.get_mut(at)) {
            Some(slot) => *slot = Some(value),
            None => self.behind.entry(preceding).or_default().push(value),
        }
    }

    fn into_items(mut self) -> Vec<Value> {
        let mut items = self.behind.remove(&None).unwrap_or_default();
        for (at, item) in self.items.into_iter().enumerate() {
            items.extend(item);
            items.extend(self.behind.remove(&Some(at)).into_iter().flatten());
        }
        items
    }
}

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
