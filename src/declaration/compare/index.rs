//! Lists whose elements are identified by keys.
//!
//! Entry points: [`Index`] finds declared elements in a live list, [`Held`] those of a set, [`Known`] finds
//! declared elements by their keys, [`Declared`] checks whether a live element is declared. Invariant: time
//! is linear in long lists, whatever their content.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::declaration::declare::cut;
use crate::declaration::equality::keys::{FEW_PAIRS, spelled, spelled_any};
use crate::declaration::equality::{self, Alike};
use crate::declaration::fields::{Element, Elements};
use crate::declaration::schema::{ListKey, TypeId, Types};

/// Pairs of elements above which a list is looked up by an index.
const MAX_PAIRS: usize = 1 << 12;

/// Declared elements above which they are looked up by an index.
const MAX_ELEMENTS: usize = 16;

/// The live elements of one declared key.
#[derive(Clone, Copy)]
pub(in crate::declaration) enum Found<'v> {
    None,
    /// Its place, and itself.
    One(usize, &'v Value),
    Many,
}

/// A live list, to look up elements by declared keys.
pub(in crate::declaration) struct Index<'v, 't> {
    pub(super) keys: &'t [ListKey],
    items: &'v [Value],
    /// Only for long lists.
    places: Option<HashMap<Vec<String>, Vec<usize>>>,
}

/// Declared elements, for lookups by their keys.
pub(in crate::declaration) struct Known<'f> {
    items: &'f [Element],
    places: HashMap<Vec<String>, usize>,
}

/// Declared elements, to tell whether a live one is among them.
pub(in crate::declaration) struct Declared<'f> {
    elements: &'f Elements,
    keys: &'f [ListKey],
    /// Only for many elements.
    known: Option<HashSet<Vec<String>>>,
}

/// The elements of a set, to find declared ones.
pub(in crate::declaration) struct Held<'v, 't> {
    types: &'t Types,
    item: TypeId,
    items: &'v [Value],
    /// Only for long sets.
    alike: Option<Alike<'v, 't>>,
}

impl<'v> Found<'v> {
    /// The element, if it is there once.
    pub(in crate::declaration) fn one(self) -> Option<&'v Value> {
        if let Self::One(_, value) = self { Some(value) } else { None }
    }

    /// The place of the element, if it is there once.
    pub(super) fn place(self) -> Option<usize> {
        if let Self::One(place, _) = self { Some(place) } else { None }
    }
}

impl<'v, 't> Index<'v, 't> {
    pub(in crate::declaration) fn new(
        elements: &Elements,
        types: &'t Types,
        list: Option<&'v Value>,
    ) -> Self {
        Self::of(elements, types, list.and_then(Value::as_array).map_or(&[][..], Vec::as_slice))
    }

    pub(in crate::declaration) fn of(elements: &Elements, types: &'t Types, items: &'v [Value]) -> Self {
        let keys = elements.keys(types);
        let places = (elements.items.len().saturating_mul(items.len()) > MAX_PAIRS).then(|| {
            let mut places: HashMap<Vec<String>, Vec<usize>> = HashMap::new();
            for (index, item) in items.iter().enumerate() {
                if let Some(spelled) = spelled_keys(item, keys) {
                    places.entry(spelled).or_default().push(index);
                }
            }
            places
        });
        Self { keys, items, places }
    }

    pub(in crate::declaration) fn find(&self, element: &Element) -> Found<'v> {
        let mut found = Found::None;
        self.each(element, |index, value| {
            found = match found {
                Found::None => Found::One(index, value),
                Found::One(..) | Found::Many => Found::Many,
            };
        });
        found
    }

    pub(in crate::declaration) fn collect(&self, element: &Element) -> Vec<&'v Value> {
        let mut all = Vec::new();
        self.each(element, |_, value| all.push(value));
        all
    }

    /// The positions of the element.
    pub(in crate::declaration) fn places(&self, element: &Element) -> Vec<usize> {
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
        let Some(places) = &self.places else {
            for (index, item) in self.items.iter().enumerate() {
                if equality::has_keys(item, self.keys, &element.keys) {
                    visit(index, item);
                }
            }
            return;
        };
        let spelled: Option<Vec<String>> = element.keys.iter().map(spelled).collect();
        for index in spelled.and_then(|key| places.get(&key)).into_iter().flatten() {
            if let Some(item) = self.items.get(*index) {
                visit(*index, item);
            }
        }
    }
}

impl<'f> Known<'f> {
    pub(in crate::declaration) fn new(elements: &'f Elements) -> Self {
        let place = |(place, item): (usize, &Element)| (item.keys.iter().map(spelled_any).collect(), place);
        let places = elements.items.iter().enumerate().map(place).collect();
        Self { items: &elements.items, places }
    }

    /// The place of the element with exactly these keys, and itself.
    pub(in crate::declaration) fn find(&self, keys: &[(String, Value)]) -> Option<(usize, &'f Element)> {
        let spelled: Vec<String> = keys.iter().map(|(_, value)| spelled_any(value)).collect();
        let place = *self.places.get(&spelled)?;
        let item = self.items.get(place)?;
        keys.iter().map(|(_, value)| value).eq(item.keys.iter()).then_some((place, item))
    }
}

impl<'f> Declared<'f> {
    pub(in crate::declaration) fn new(elements: &'f Elements, types: &'f Types) -> Self {
        let all = || elements.items.iter().filter_map(|e| e.keys.iter().map(spelled).collect()).collect();
        let known = (elements.items.len() > MAX_ELEMENTS).then(all);
        Self { elements, keys: elements.keys(types), known }
    }

    pub(in crate::declaration) fn holds(&self, item: &Value) -> bool {
        match &self.known {
            Some(known) => spelled_keys(item, self.keys).is_some_and(|keys| known.contains(&keys)),
            None => self.elements.items.iter().any(|e| equality::has_keys(item, self.keys, &e.keys)),
        }
    }
}

impl<'v, 't> Held<'v, 't> {
    /// An index of the elements of `list`; `wanted` is the number of lookups to expect.
    pub(in crate::declaration) fn new(
        types: &'t Types,
        item: TypeId,
        wanted: usize,
        list: Option<&'v Value>,
    ) -> Self {
        let items = list.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let is_long = wanted.saturating_mul(items.len()) > FEW_PAIRS;
        Self { types, item, items, alike: is_long.then(|| Alike::new(types, item, items)) }
    }

    /// The first element that means the same as `wanted`.
    pub(in crate::declaration) fn find(&self, wanted: &Value) -> Option<&'v Value> {
        match &self.alike {
            Some(alike) => alike.find(wanted),
            None => {
                let same = |own: &&Value| equality::is_same(self.types, self.item, Some(own), Some(wanted));
                self.items.iter().find(same)
            }
        }
    }
}

fn spelled_keys(item: &Value, keys: &[ListKey]) -> Option<Vec<String>> {
    keys.iter().map(|key| equality::key_value(item, key).and_then(spelled)).collect()
}
