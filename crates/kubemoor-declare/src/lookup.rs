//! Looks up the values of one object at many paths.
//!
//! Entry point: [`Lookup::get`]. Invariant: finds the same values as [`Path::get`], and visits each list only
//! once for each set of keys in the paths, however many paths there are. Must not know what is declared.

use std::collections::HashMap;

use serde_json::Value;

use super::path::{Path, Segment};

/// Finds values in an object.
pub struct Lookup<'v> {
    root: &'v Value,
    /// The elements of lists, by where the list is in memory and the names of the keys.
    lists: HashMap<(usize, Vec<String>), Elements<'v>>,
}

/// The elements of a list by their identity.
type Elements<'v> = HashMap<Vec<Token>, Vec<&'v Value>>;

/// Equal for values that [`Segment::alike`] takes for the same.
#[derive(PartialEq, Eq, Hash)]
enum Token {
    Text(String),
    Bool(bool),
    Null,
}

impl Token {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(Self::Text(text.clone())),
            Value::Number(number) => Some(Self::Text(number.to_string())),
            Value::Bool(bool) => Some(Self::Bool(*bool)),
            Value::Null => Some(Self::Null),
            Value::Array(_) | Value::Object(_) => None,
        }
    }
}

impl<'v> Lookup<'v> {
    /// Looks at `root`.
    pub fn new(root: &'v Value) -> Self {
        Self { root, lists: HashMap::new() }
    }

    /// Every value at this path; see [`Path::get`].
    pub fn get(&mut self, path: &Path) -> Vec<&'v Value> {
        let mut found = vec![self.root];
        for segment in path.0.iter() {
            found = found.into_iter().flat_map(|value| self.step(segment, value)).collect();
        }
        found
    }

    fn step(&mut self, segment: &Segment, value: &'v Value) -> Vec<&'v Value> {
        match segment {
            Segment::Field(name) => value.as_object().and_then(|map| map.get(name)).into_iter().collect(),
            Segment::Key(keys) => {
                let names = keys.iter().map(|(name, _)| name.clone()).collect();
                let wanted = keys.iter().map(|(_, value)| Token::of(value)).collect();
                self.elements(value, names, wanted)
            }
            Segment::Element(wanted) => {
                self.elements(value, Vec::new(), Token::of(wanted).map(|token| vec![token]))
            }
        }
    }

    /// The elements with these tokens for the values of these keys; for their own where there are no keys.
    fn elements(
        &mut self,
        list: &'v Value,
        names: Vec<String>,
        wanted: Option<Vec<Token>>,
    ) -> Vec<&'v Value> {
        let (Value::Array(items), Some(wanted)) = (list, wanted) else { return Vec::new() };
        let place = (std::ptr::from_ref(list).addr(), names.clone());
        let elements = self.lists.entry(place).or_insert_with(|| {
            let mut elements = Elements::new();
            for item in items {
                let tokens = match names.is_empty() {
                    true => Token::of(item).map(|token| vec![token]),
                    false => names.iter().map(|name| item.get(name).and_then(Token::of)).collect(),
                };
                if let Some(tokens) = tokens {
                    elements.entry(tokens).or_default().push(item);
                }
            }
            elements
        });
        elements.get(&wanted).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
