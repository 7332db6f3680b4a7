//! Elements of a list by their keys.
//!
//! Entry points: [`ByKeys`] for a list that is compared as one value, [`spelled`] for indexes of others. Invariant:
//! time is linear in long lists, whatever they hold. Must not know what is declared.

use std::collections::HashMap;

use serde_json::Value;

use super::{has_keys, key_value, work};
use crate::schema::ListKey;

/// Pairs of elements within one value above which they are looked up by an index.
pub(crate) const FEW_PAIRS: usize = 1 << 8;

/// Elements within a value that is compared as one, to find those of some keys.
pub(crate) struct ByKeys<'v, 't> {
    keys: &'t [ListKey],
    items: &'v [Value],
    /// Only for long lists.
    places: Option<HashMap<Vec<String>, Vec<&'v Value>>>,
}

impl<'v, 't> ByKeys<'v, 't> {
    /// An index of these elements; `wanted` is the number of lookups to expect.
    pub(crate) fn new(items: &'v [Value], keys: &'t [ListKey], wanted: usize) -> Self {
        let places = (wanted.saturating_mul(items.len()) > FEW_PAIRS).then(|| {
            let mut places: HashMap<_, Vec<&Value>> = HashMap::new();
            for item in items {
                let own: Option<Vec<String>> =
                    keys.iter().map(|key| key_value(item, key).map(spelled_any)).collect();
                if let Some(own) = own {
                    places.entry(own).or_default().push(item);
                }
            }
            places
        });
        Self { keys, items, places }
    }

    /// The first two elements with these keys.
    pub(crate) fn first_two(&self, values: &[Value]) -> [Option<&'v Value>; 2] {
        match &self.places {
            None => {
                let mut found = self.items.iter().filter(|item| has_keys(item, self.keys, values));
                [found.next(), found.next()]
            }
            Some(places) => {
                let spelled: Vec<String> = values.iter().map(spelled_any).collect();
                let mut found = places.get(&spelled).into_iter().flatten().copied();
                [found.next(), found.next()]
            }
        }
    }
}

/// A key's value as text, the same for values that are the same key.
pub(crate) fn spelled(value: &Value) -> Option<String> {
    work::note();
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(_) | Value::Object(_) => None,
        Value::Number(number) => Some(match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 => format!("{float:.0}"),
            _ => number.to_string(),
        }),
        other => Some(other.to_string()),
    }
}

/// The same, where a key may also be a list or a map.
pub(crate) fn spelled_any(value: &Value) -> String {
    spelled(value).unwrap_or_else(|| value.to_string())
}
