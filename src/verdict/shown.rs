//! A value as a person may see it.
//!
//! Invariant: a [`Shown`] is text for messages, logs and records. It cannot be
//! turned back into a value, so that no mask can ever be written to an object.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::declaration::path::{Path, Segment};
use crate::model::ObjectId;

/// The characters of a value that are shown.
const LIMIT: usize = 120;

/// A value as a person may see it: its JSON, cut, or a mask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Shown(String);

impl Shown {
    /// What may be seen of `value`, which is at `path` of `object`.
    pub fn of(object: &ObjectId, path: &Path, value: &Value) -> Self {
        if is_secret(object, path) {
            return Self("(redacted)".to_owned());
        }
        let mut text = brief(value, 0);
        if let Some((end, _)) = text.char_indices().nth(LIMIT) {
            text.truncate(end);
            text.push('…');
        }
        Self(text)
    }
}

impl Shown {
    /// What is shown.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether values at `path` are a Secret's content. Its metadata is not, but
/// for annotations: kubectl keeps whole manifests in one.
fn is_secret(object: &ObjectId, path: &Path) -> bool {
    let field = |index: usize| match path.0.get(index) {
        Some(Segment::Field(name)) => Some(name.as_str()),
        _ => None,
    };
    let open = match field(0) {
        Some("metadata") => field(1).is_some_and(|name| name != "annotations") || is_helms(path),
        Some("type" | "immutable") => true,
        _ => false,
    };
    object.group.is_empty() && object.kind == "Secret" && !open
}

fn is_helms(path: &Path) -> bool {
    matches!(path.0.get(2), Some(Segment::Field(name)) if name.starts_with("meta.helm.sh/") || name.starts_with("helm.sh/"))
}

/// The value's JSON, of which no more is written than can be shown.
fn brief(value: &Value, depth: usize) -> String {
    match value {
        Value::Array(items) if depth >= 3 || items.len() > LIMIT => format!("[… {} items]", items.len()),
        Value::Object(fields) if depth >= 3 || fields.len() > LIMIT => {
            format!("{{… {} fields}}", fields.len())
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| brief(item, depth + 1)).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(fields) => {
            let fields: Vec<_> = fields
                .iter()
                .map(|(name, value)| format!("{}:{}", quoted(name), brief(value, depth + 1)))
                .collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::String(text) => quoted(text),
        scalar => scalar.to_string(),
    }
}

fn quoted(text: &str) -> String {
    let start = match text.char_indices().nth(LIMIT + 1) {
        Some((end, _)) => text.get(..end).unwrap_or_default(),
        None => text,
    };
    // Text is always written.
    serde_json::to_string(start).unwrap_or_default()
}

#[cfg(test)]
mod tests;
