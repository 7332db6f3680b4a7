//! Paths to a place in an object: JSON Pointers (RFC 6901) whose segments may also name a list element by its keys.
//!
//! Entry point: [`Path`]. Invariant: what [`Path`] displays (`spell`), it parses back (`read`) to an equal path. Knows
//! no schema: a key that an element leaves to its default does not match here.

use serde_json::Value;

pub use self::plain::Plain;
pub use self::segments::Segments;
pub(super) use self::trail::{Step, Trail};

mod plain;
mod read;
mod segments;
mod spell;
mod trail;

/// One step of a [`Path`].
#[derive(Clone, Debug, PartialEq)]
pub enum Segment {
    /// The entry of a map: `spec`.
    Field(String),
    /// The element of a list that holds these values: `[name=app]`,
    /// `[containerPort=80,protocol=TCP]`.
    Key(Vec<(String, Value)>),
    /// The element of a set: `[=value]`.
    Element(Value),
}

/// A place in an object: `/spec/template/spec/containers/[name=app]/image`.
///
/// In a field name `~` is written `~0` and `/` is written `~1`, as RFC 6901
/// has it, and a leading `[` is written `~2`. A key's value that would read as
/// something else (`"80"`, a text with a comma) is written as a JSON string. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Path(pub Segments);

/// A text that is no path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The text does not begin with a slash.
    #[error("the path {0:?} does not begin with `/`: write it as a JSON Pointer such as /spec/replicas")]
    NoSlash(String),
    /// A `~` without `0` or `1` after it.
    #[error("the path segment {0:?} holds a lone `~`: write ~0 for `~`, ~1 for `/` and ~2 for a leading `[`")]
    Escape(String),
    /// A bracketed segment cannot be read.
    #[error(
        "the path segment {0:?} is no list key: write [name=value] or [=value], quoted as JSON where needed"
    )]
    Key(String),
}

impl Path {
    /// The path of a field of what is here.
    pub fn of_field(&self, name: &str) -> Self {
        Self(self.0.iter().cloned().chain([Segment::Field(name.to_owned())]).collect())
    }

    /// Every value in `root` at this path. More than one only where a list
    /// holds several elements of one key.
    pub fn get<'v>(&self, root: &'v Value) -> Vec<&'v Value> {
        let mut found = vec![root];
        for segment in self.0.iter() {
            found = found.into_iter().flat_map(|value| segment.step(value)).collect();
        }
        found
    }
}

impl Segment {
    /// Whether two values of a list key are the same apart from quotes: for a name `"80"` a user may also
    /// write `[port=80]`. Lists and maps are not keys.
    pub fn alike(a: &Value, b: &Value) -> bool {
        match (a, b) {
            (Value::String(text), Value::Number(number)) | (Value::Number(number), Value::String(text)) => {
                *text == number.to_string()
            }
            (Value::Array(_) | Value::Object(_), _) => false,
            _ => a == b,
        }
    }

    /// A key's value as text: values that are [alike](Self::alike) have the same one.
    pub fn spelled(value: &Value) -> String {
        match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }

    fn step<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        match (self, value) {
            (Self::Field(name), Value::Object(map)) => map.get(name).into_iter().collect(),
            (Self::Key(keys), Value::Array(items)) => items
                .iter()
                .filter(|item| {
                    keys.iter().all(|(key, wanted)| item.get(key).is_some_and(|v| Self::alike(v, wanted)))
                })
                .collect(),
            (Self::Element(wanted), Value::Array(items)) => {
                items.iter().filter(|item| Self::alike(item, wanted)).collect()
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
