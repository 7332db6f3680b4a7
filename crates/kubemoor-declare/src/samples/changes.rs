//! Changes of random objects, and their spellings as text.
//!
//! Entry points: [`touched`], [`reordered`], [`spelled`]. Must not be used outside of tests.

use serde_json::Value;

/// The same object, its lists that know no order turned round.
pub(crate) fn reordered(value: &Value, name: &str) -> Value {
    match value {
        Value::Array(items) => {
            let items = items.iter().map(|item| reordered(item, ""));
            match name {
                "containers" | "ports" | "finalizers" => items.rev().collect(),
                _ => items.collect(),
            }
        }
        Value::Object(map) => {
            map.iter().map(|(name, value)| (name.clone(), reordered(value, name))).collect()
        }
        scalar => scalar.clone(),
    }
}

/// Whether some list of the object holds one key twice.
pub(crate) fn has_doubled_keys(value: &Value) -> bool {
    let key = |item: &Value| match item.get("containerPort") {
        Some(port) => format!("{port}/{}", item.get("protocol").and_then(Value::as_str).unwrap_or("TCP")),
        None => item.get("name").map(Value::to_string).unwrap_or_default(),
    };
    match value {
        Value::Array(items) => {
            let keys: std::collections::HashSet<String> = items.iter().map(key).collect();
            let keyed = items.iter().any(Value::is_object);
            (keyed && keys.len() < items.len()) || items.iter().any(has_doubled_keys)
        }
        Value::Object(map) => map.values().any(has_doubled_keys),
        _ => false,
    }
}

/// `value` in JSON's text, as anybody may spell it: `choices` decide on space,
/// on escapes, and on entries and whole values of the same name in front of
/// those that count.
pub(crate) fn spelled(value: &Value, choices: &mut dyn Iterator<Item = u8>) -> String {
    let mut choice = |of: u8| choices.next().map_or(0, |choice| choice % of);
    let space = [" ", "", "", "\n\t"][usize::from(choice(4))];
    match value {
        Value::Object(map) => {
            let mut entries = Vec::new();
            for (name, value) in map {
                let decoy = [None, None, None, Some("\"\\\\\\\"{\""), Some("[{}, \"]\"]"), Some("-1e3")]
                    [usize::from(choices.next().map_or(0, |choice| choice % 6))];
                entries.extend(decoy.map(|decoy| format!("{}{space}:{decoy}", spelled_text(name, 0))));
                let escaped = choices.next().map_or(0, |choice| choice % 4);
                let value = spelled(value, choices);
                entries.push(format!("{}:{space}{value}", spelled_text(name, escaped)));
            }
            format!("{{{space}{}{space}}}", entries.join(","))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| spelled(item, choices)).collect();
            format!("[{}]", items.join(&format!("{space},")))
        }
        Value::String(text) => {
            let escaped = choice(4);
            spelled_text(text, escaped)
        }
        scalar => scalar.to_string(),
    }
}

/// `value` with its scalar number `place` replaced.
pub(crate) fn touched(value: &Value, place: &mut usize, by: &Value) -> Value {
    match value {
        Value::Object(map) => {
            map.iter().map(|(name, value)| (name.clone(), touched(value, place, by))).collect()
        }
        Value::Array(items) => items.iter().map(|item| touched(item, place, by)).collect(),
        scalar => {
            *place = place.wrapping_sub(1);
            if *place == usize::MAX { by.clone() } else { scalar.clone() }
        }
    }
}

/// A string in JSON's text; with `escaped` of one its first character is.
fn spelled_text(text: &str, escaped: u8) -> String {
    let mut rest = text.chars();
    match rest.next() {
        Some(first) if escaped == 1 && first.is_ascii() => {
            let rest = Value::from(rest.as_str()).to_string();
            format!("\"\\u{:04x}{}", u32::from(first), rest.strip_prefix('"').unwrap())
        }
        _ => Value::from(text).to_string(),
    }
}
