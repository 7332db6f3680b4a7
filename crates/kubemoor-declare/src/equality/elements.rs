//! Finds list elements by their key values, and elements of unordered lists by equivalence. Both take time that is
//! linear in the length of the lists, whatever their content.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Number, Value};

use super::{base64_digits, counts, key_value, quantity, same, work};
use crate::fields::Elements;
use crate::schema::{ListKey, ListKind, MAX_DEPTH, ScalarType, Shape, TypeId, Types};

/// The positions of list elements by their key values.
pub(crate) struct ElementIndex {
    places: HashMap<Vec<String>, Vec<usize>>,
}

impl ElementIndex {
    /// Indexes a live list. An element without a key that has no default is not indexed.
    pub(crate) fn of_list(items: &[Value], keys: &[ListKey]) -> Self {
        Self::new(
            items.iter().map(|item| keys.iter().map(|key| key_value(item, key).map(spelled_key)).collect()),
        )
    }

    pub(crate) fn of_declared(elements: &Elements) -> Self {
        Self::new(elements.items.iter().map(|item| Some(item.keys.iter().map(spelled_key).collect())))
    }

    fn new(elements: impl Iterator<Item = Option<Vec<String>>>) -> Self {
        let mut places: HashMap<_, Vec<usize>> = HashMap::new();
        for (place, own) in elements.enumerate() {
            if let Some(own) = own {
                places.entry(own).or_default().push(place);
            }
        }
        Self { places }
    }

    /// The places of the elements with these keys.
    pub(crate) fn places<'k>(&self, wanted: impl Iterator<Item = &'k Value>) -> &[usize] {
        let wanted: Vec<String> = wanted.map(spelled_key).collect();
        self.places.get(&wanted).map(Vec::as_slice).unwrap_or_default()
    }
}

/// A key's value as text, the same for values that are the same key.
fn spelled_key(value: &Value) -> String {
    work::note();
    match value {
        Value::String(text) => text.clone(),
        // No scalar has this text.
        Value::Array(_) | Value::Object(_) => format!("\0{value}"),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 => format!("{float:.0}"),
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}

/// The limit on comparisons of a list, in multiples of its size.
const TRIES: usize = 8;

/// The maximum length of a text that may be a number.
const MAX_DIGITS: usize = 32;

/// Finds the elements of a list that are equivalent to a value.
pub(crate) struct EquivalenceIndex<'v, 't> {
    types: &'t Types,
    item: TypeId,
    depth: usize,
    classes: HashMap<u64, Vec<(&'v Value, usize)>>,
    /// How many values may still be compared without a match.
    left: Cell<usize>,
}

impl<'v, 't> EquivalenceIndex<'v, 't> {
    /// From `list`; empty if it is not a list.
    pub(crate) fn of_list(types: &'t Types, item: TypeId, list: Option<&'v Value>) -> Self {
        Self::at(types, item, list.and_then(Value::as_array).map_or(&[][..], Vec::as_slice), 0)
    }

    /// Like [`Self::of_list`], for a list at `depth` levels of nesting.
    pub(super) fn at(types: &'t Types, item: TypeId, items: &'v [Value], depth: usize) -> Self {
        let mut alike =
            Self { types, item, depth, classes: HashMap::with_capacity(items.len()), left: Cell::new(0) };
        items.iter().for_each(|item| alike.add(item));
        alike
    }

    pub(crate) fn add(&mut self, item: &'v Value) {
        let (class, size) = self.class(item);
        self.classes.entry(class).or_default().push((item, size));
        self.left.set(self.left.get().saturating_add(TRIES * size));
    }

    /// The first element that is equivalent to `wanted`.
    pub(crate) fn find(&self, wanted: &Value) -> Option<&'v Value> {
        let found = self.classes.get(&self.class(wanted).0)?;
        for (item, size) in found {
            if same(self.types, self.item, Some(item), Some(wanted), self.depth) {
                return Some(item);
            }
            self.left.set(self.left.get().checked_sub(*size)?);
        }
        None
    }

    fn class(&self, value: &Value) -> (u64, usize) {
        let mut size = 0;
        (class(self.types, self.item, Some(value), self.depth, &mut size), size)
    }
}

/// A hash that is equal for equivalent scalars.
pub fn class_of_scalar(kind: ScalarType, value: &Value) -> u64 {
    match (kind, value) {
        (ScalarType::Text | ScalarType::IntOrString, Value::String(text)) => hash_of(&spelled(text)),
        (ScalarType::Text | ScalarType::IntOrString | ScalarType::Plain, Value::Number(number)) => {
            hash_of(&canonical(number))
        }
        (ScalarType::Quantity, value) => match quantity(value) {
            Some(quantity) => hash_of(&quantity),
            None => hash_of(&value.to_string()),
        },
        (ScalarType::Bytes, Value::String(text)) => hash_of(&base64_digits(text).collect::<Vec<u8>>()),
        (ScalarType::Time, Value::String(text)) => match text.parse::<jiff::Timestamp>() {
            Ok(time) => hash_of(&time.as_nanosecond()),
            Err(_) => hash_of(text),
        },
        (_, Value::String(text)) => hash_of(text),
        (_, other) => hash_of(&other.to_string()),
    }
}

/// A hash that is equal for equivalent values; adds the number of visited values to `size`.
fn class(types: &Types, ty: TypeId, value: Option<&Value>, depth: usize, size: &mut usize) -> u64 {
    *size += 1;
    work::note();
    let shape = types.shape(ty);
    let Some(value) = value.filter(|value| counts(shape, value)) else { return 0 };
    if depth >= MAX_DEPTH {
        return 1;
    }
    match value {
        Value::Object(map) => {
            let mut sum = hash_of(&"map");
            for (name, value) in map {
                let below = class(types, super::member(shape, name), Some(value), depth + 1, size);
                if below != 0 {
                    sum = sum.wrapping_add(hash_of(&(name, below)));
                }
            }
            sum | 2
        }
        Value::Array(items) => {
            let (item, ordered) = match shape {
                Shape::List { item, kind } => (*item, *kind == ListKind::Atomic),
                _ => (TypeId::ANY, true),
            };
            let mut classes: Vec<u64> =
                items.iter().map(|own| class(types, item, Some(own), depth + 1, size)).collect();
            if !ordered {
                classes.sort_unstable();
                classes.dedup();
            }
            hash_of(&("list", items.len(), classes)) | 2
        }
        scalar => {
            let kind = if let Shape::Scalar(kind) = shape { *kind } else { ScalarType::Plain };
            class_of_scalar(kind, scalar) | 2
        }
    }
}

/// The text, or its canonical form if it is a number.
fn spelled(text: &str) -> String {
    let may_be = text.len() <= MAX_DIGITS && text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let number = may_be.then(|| text.parse::<Number>().ok()).flatten();
    number.filter(|number| number.to_string() == text).map_or_else(|| text.to_owned(), |it| canonical(&it))
}

/// One text for all notations of a number.
fn canonical(number: &Number) -> String {
    number.as_f64().map_or_else(|| number.to_string(), |number| format!("{}", number + 0.0))
}

fn hash_of(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
