//! The declared elements of a list, by their keys.
//!
//! Entry points: [`Known`] finds a declared element, [`Declared`] checks whether a live element is declared. Invariant:
//! time is linear in long lists, whatever their content.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::spelled_keys;
use crate::equality;
use crate::equality::keys::{spelled, spelled_any};
use crate::fields::{Element, Elements};
use crate::schema::{ListKey, Types};

/// Declared elements above which they are looked up by an index.
const MAX_ELEMENTS: usize = 16;

/// Declared elements, for lookups by their keys.
pub(crate) struct Known<'f> {
    items: &'f [Element],
    places: HashMap<Vec<String>, usize>,
}

/// Declared elements, to tell whether a live one is among them.
pub(crate) struct Declared<'f> {
    elements: &'f Elements,
    keys: &'f [ListKey],
    /// Only for many elements.
    known: Option<HashSet<Vec<String>>>,
}

impl<'f> Known<'f> {
    pub(crate) fn new(elements: &'f Elements) -> Self {
        let place = |(place, item): (usize, &Element)| (item.keys.iter().map(spelled_any).collect(), place);
        let places = elements.items.iter().enumerate().map(place).collect();
        Self { items: &elements.items, places }
    }

    /// The place of the element with exactly these keys, and itself.
    pub(crate) fn find(&self, keys: &[(String, Value)]) -> Option<(usize, &'f Element)> {
        let spelled: Vec<String> = keys.iter().map(|(_, value)| spelled_any(value)).collect();
        let place = *self.places.get(&spelled)?;
        let item = self.items.get(place)?;
        keys.iter().map(|(_, value)| value).eq(item.keys.iter()).then_some((place, item))
    }
}

impl<'f> Declared<'f> {
    pub(crate) fn new(elements: &'f Elements, types: &'f Types) -> Self {
        let all = || elements.items.iter().filter_map(|e| e.keys.iter().map(spelled).collect()).collect();
        let known = (elements.items.len() > MAX_ELEMENTS).then(all);
        Self { elements, keys: elements.keys(types), known }
    }

    pub(crate) fn holds(&self, item: &Value) -> bool {
        match &self.known {
            Some(known) => spelled_keys(item, self.keys).is_some_and(|keys| known.contains(&keys)),
            None => self.elements.items.iter().any(|e| equality::has_keys(item, self.keys, &e.keys)),
        }
    }
}
