//! The values of a chart as one tree.
//!
//! Entry points: [`merged`], [`find`], [`leaves`], [`text`]. Invariant: walks end at [`DEEPEST`] and after [`MOST`]
//! leaves, whatever a record holds.

use serde_json::{Map, Value};

/// How deep values are read.
const DEEPEST: usize = 32;

/// The most leaves that are looked at.
const MOST: usize = 20_000;

/// A leaf of the values: its path, and its text.
pub(super) struct Leaf {
    pub(super) path: Vec<String>,
    pub(super) text: String,
}

/// The defaults of a chart under the user's values, as Helm brings them together: a null takes a default away.
pub(super) fn merged(defaults: &Value, given: &Value) -> Value {
    merge(defaults, given, 0)
}

/// What the values hold at a path of maps.
pub(super) fn find<'v>(values: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(values, |value, name| value.get(name))
}

/// A scalar as a template prints it; `None` for maps, lists, null and the empty text.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

/// The leaves below a path, list elements left out.
pub(super) fn leaves(values: &Value, below: &[String]) -> Vec<Leaf> {
    let mut found = Vec::new();
    let mut open: Vec<(Vec<String>, &Value)> =
        find(values, below).map(|value| (below.to_vec(), value)).into_iter().collect();
    while let Some((path, value)) = open.pop() {
        if let Value::Object(map) = value
            && path.len() < DEEPEST
        {
            // The last is taken first.
            open.extend(
                map.iter()
                    .rev()
                    .map(|(name, value)| ([&path[..], std::slice::from_ref(name)].concat(), value)),
            );
        } else if let Some(text) = text(value) {
            found.push(Leaf { path, text });
        }
        if found.len() >= MOST || open.len() >= MOST {
            break;
        }
    }
    found
}

fn merge(defaults: &Value, given: &Value, depth: usize) -> Value {
    match (defaults, given) {
        (Value::Object(defaults), Value::Object(given)) if depth < DEEPEST => {
            let mut both: Map<String, Value> = defaults.clone();
            for (name, value) in given {
                match (value, defaults.get(name)) {
                    (Value::Null, _) => drop(both.remove(name)),
                    (value, Some(default)) => {
                        drop(both.insert(name.clone(), merge(default, value, depth + 1)))
                    }
                    (value, None) => drop(both.insert(name.clone(), value.clone())),
                }
            }
            Value::Object(both)
        }
        (defaults, Value::Null) => defaults.clone(),
        (_, given) => given.clone(),
    }
}
