//! Lists whose elements are identified by keys.
//!
//! Entry points: [`Index`] finds declared elements in a live list, [`Held`] those of a set, [`Known`] finds
//! declared elements by their keys, [`Declared`] checks whether a live element is declared. Invariant: time
//! is linear in long lists, whatever their content.

mod declared;
mod held;

use std::collections::HashMap;

use serde_json::Value;

pub(crate) use self::declared::{Declared, Known};
pub(crate) use self::held::Held;
use crate::declare::cut;
use crate::equality;
use crate::equality::keys::spelled;
use crate::fields::{Element, Elements};
use crate::schema::{ListKey, Types};

/// Pairs of elements above which a list is looked up by an index.
const MAX_PAIRS: usize = 1 << 12;

/// The live elements of one declared key.
#[derive(Clone, Copy)]
pub(crate) enum Found<'v> {
    None,
    /// Its place, and itself.
    One(usize, &'v Value),
    Many,
}

/// A live list, to look up elements by declared keys.
pub(crate) struct Index<'v, 't> {
    pub(super) keys: &'t [ListKey],
    items: &'v [Value],
    lookup: Lookup<'v>,
}

/// The keys of a list's elements.
enum Lookup<'v> {
    /// Those of each element in turn, for short lists.
    Values(Vec<Option<&'v Value>>),
    /// The places of the elements, for long lists.
    Places(HashMap<Vec<String>, Vec<usize>>),
}

impl<'v> Found<'v> {
    /// The element, if it is there once.
    pub(crate) fn one(self) -> Option<&'v Value> {
        if let Self::One(_, value) = self { Some(value) } else { None }
    }

    /// The place of the element, if it is there once.
    pub(super) fn place(self) -> Option<usize> {
        if let Self::One(place, _) = self { Some(place) } else { None }
    }
}

impl<'v, 't: 'v> Index<'v, 't> {
    pub(crate) fn new(elements: &Elements, types: &'t Types, list: Option<&'v Value>) -> Self {
        Self::of(elements, types, list.and_then(Value::as_array).map_or(&[][..], Vec::as_slice))
    }

    pub(crate) fn of(elements: &Elements, types: &'t Types, items: &'v [Value]) -> Self {
        let keys = elements.keys(types);
        let is_long = elements.items.len().saturating_mul(items.len()) > MAX_PAIRS;
        let lookup = match is_long {
            true => Lookup::Places(places(items, keys)),
            false => {
                let of = |item: &'v Value| keys.iter().map(|key| equality::key_value(item, key));
                Lookup::Values(items.iter().flat_map(of).collect())
            }
        };
        Self { keys, items, lookup }
    }

    pub(crate) fn find(&self, element: &Element) -> Found<'v> {
        let mut found = Found::None;
        self.each(element, |index, value| {
            found = match found {
                Found::None => Found::One(index, value),
                Found::One(..) | Found::Many => Found::Many,
            };
        });
        found
    }

    pub(crate) fn collect(&self, element: &Element) -> Vec<&'v Value> {
        let mut all = Vec::new();
        self.each(element, |_, value| all.push(value));
        all
    }

    /// The positions of the element.
    pub(crate) fn places(&self, element: &Element) -> Vec<usize> {
        let mut places = Vec::new();
        self.each(element, |place, _| places.push(place));
        places
    }

    /// The element as a change shows it: its keys; as a list where there are
    /// several.
    pub(super) fn shown(&self, element: &Element) -> Option<Value> {
        let keys = |item: &Value| -> Value {
            let own = self.keys.iter().filter_map(|key| Some((key.name.to_string(), item.get(&*key.name)?)));
            Value::Object(own.map(|(name, value)| (name, cut(value, 0))).collect())
        };
        match self.find(element) {
            Found::None => None,
            Found::One(_, value) => Some(keys(value)),
            Found::Many => Some(self.collect(element).into_iter().map(keys).collect()),
        }
    }

    fn each(&self, element: &Element, mut visit: impl FnMut(usize, &'v Value)) {
        match &self.lookup {
            Lookup::Values(values) => {
                for (index, item) in self.items.iter().enumerate() {
                    let own = values.iter().skip(index * self.keys.len()).take(self.keys.len());
                    if equality::are_keys(own.copied(), &element.keys) {
                        visit(index, item);
                    }
                }
            }
            Lookup::Places(places) => {
                let spelled: Option<Vec<String>> = element.keys.iter().map(spelled).collect();
                for index in spelled.and_then(|key| places.get(&key)).into_iter().flatten() {
                    if let Some(item) = self.items.get(*index) {
                        visit(*index, item);
                    }
                }
            }
        }
    }
}

fn places(items: &[Value], keys: &[ListKey]) -> HashMap<Vec<String>, Vec<usize>> {
    let mut places: HashMap<Vec<String>, Vec<usize>> = HashMap::new();
    for (index, item) in items.iter().enumerate() {
        if let Some(spelled) = spelled_keys(item, keys) {
            places.entry(spelled).or_default().push(index);
        }
    }
    places
}

fn spelled_keys(item: &Value, keys: &[ListKey]) -> Option<Vec<String>> {
    keys.iter().map(|key| equality::key_value(item, key).and_then(spelled)).collect()
}
