//! Restores elements of a list, all of one list at once.
//!
//! Entry points: `Walk::elements_back`, `Walk::all_elements`. Invariant: undeclared elements keep their
//! places among the others. A re-created element goes behind the declared one that precedes it.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Part, Paths, Walk, list};
use crate::compare::index::{Index, Known};
use crate::fields::{Element, Elements};
use crate::path::Segment;
use crate::schema::Types;

/// The parts of one element to restore.
#[derive(Default)]
struct Wanted<'p> {
    whole: bool,
    below: Vec<&'p [Segment]>,
}

/// A list under construction.
struct Slots {
    items: Vec<Option<Value>>,
    /// The elements to insert, by the element that they follow; `None` for the front.
    behind: BTreeMap<Option<usize>, Vec<Value>>,
}

impl Walk<'_> {
    /// Sets elements of a list back, what lies below some, and their order.
    pub(super) fn elements_back(
        &self,
        elements: &Elements,
        paths: &Paths<'_>,
        old: Option<&Value>,
        new: &mut Option<Value>,
    ) {
        let known = Known::new(elements);
        let mut wanted: BTreeMap<usize, Wanted<'_>> = BTreeMap::new();
        for path in paths {
            if let [Segment::Key(keys), below @ ..] = path
                && let Some((place, _)) = known.find(keys)
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

    /// Has every declared element there once, as it is declared.
    pub(super) fn all_elements(&self, elements: &Elements, items: Vec<Value>) -> Vec<Value> {
        let whole = |place| (place, Wanted { whole: true, below: Vec::new() });
        self.put(elements, &(0..elements.items.len()).map(whole).collect(), None, items)
    }

    fn put(
        &self,
        elements: &Elements,
        wanted: &BTreeMap<usize, Wanted<'_>>,
        old: Option<&Value>,
        items: Vec<Value>,
    ) -> Vec<Value> {
        let before = Index::new(elements, self.types, old);
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
                        let part = Part { name: "", node: &item.node };
                        self.back(part, &wanted.below, before.find(item).one(), &mut value);
                        let value = value.unwrap_or_else(|| self.bare(elements, item));
                        slots.put(first, preceding, value);
                    }
                }
            }
            preceding = first.or(preceding);
        }
        slots.into_items()
    }

    /// A declared element as it was before.
    fn element(
        &self,
        elements: &Elements,
        item: &Element,
        before: &Index<'_, '_>,
        own: Option<&Value>,
    ) -> Value {
        let mut before = before.collect(item).into_iter();
        let restored = match (before.next(), before.next()) {
            (Some(only), None) => Some(only.clone()),
            // It was there twice, or not at all: what is declared of it is put
            // right.
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

    /// The positions of each declared element.
    fn places(&self, elements: &Elements, items: &[Value]) -> Vec<Vec<usize>> {
        let index = Index::of(elements, self.types, items);
        elements.items.iter().map(|item| index.places(item)).collect()
    }

    /// Puts the declared elements of a list into their declared order, in the
    /// places that they have among the others.
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

/// An element with the keys that tell it apart.
fn with_keys(mut element: Map<String, Value>, elements: &Elements, types: &Types, item: &Element) -> Value {
    for (key, value) in elements.keys(types).iter().zip(&item.keys) {
        if element.get(&*key.name).is_none_or(Value::is_null) && key.default.as_deref() != Some(value) {
            element.insert(key.name.to_string(), value.clone());
        }
    }
    Value::Object(element)
}
