//! Paths to a place in an object: JSON Pointers (RFC 6901) whose segments may
//! also name a list element by its keys.
//!
//! Entry point: [`Path`]. Invariant: what [`Path`] displays, it parses back to
//! an equal path. Knows no schema: a key that an element leaves to its default
//! does not match here.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use serde_json::Value;

pub use self::plain::Plain;

mod plain;

/// Room for the steps of most paths.
const USUAL: usize = 12;

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
/// something else (`"80"`, a text with a comma) is written as a JSON string.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Path(pub Vec<Segment>);

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
        for segment in &self.0 {
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

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|segment| {
            f.write_str("/")?;
            segment.fmt(f)
        })
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => match name.strip_prefix('[') {
                Some(rest) => {
                    f.write_str("~2")?;
                    Escaping(f).write_str(rest)
                }
                None => Escaping(f).write_str(name),
            },
            Self::Key(keys) => {
                f.write_str("[")?;
                for (index, (key, value)) in keys.iter().enumerate() {
                    if index > 0 {
                        f.write_str(",")?;
                    }
                    spell_text(key, f)?;
                    f.write_str("=")?;
                    spell(value, f)?;
                }
                f.write_str("]")
            }
            Self::Element(value) => {
                f.write_str("[=")?;
                spell(value, f)?;
                f.write_str("]")
            }
        }
    }
}

/// Writes what it is given as RFC 6901 escapes it.
struct Escaping<'f, 'b>(&'f mut fmt::Formatter<'b>);

impl fmt::Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if !text.bytes().any(|byte| matches!(byte, b'~' | b'/')) {
            return self.0.write_str(text);
        }
        text.split_inclusive(['~', '/']).try_for_each(|piece| {
            if let Some(piece) = piece.strip_suffix('~') {
                self.0.write_str(piece)?;
                self.0.write_str("~0")
            } else if let Some(piece) = piece.strip_suffix('/') {
                self.0.write_str(piece)?;
                self.0.write_str("~1")
            } else {
                self.0.write_str(piece)
            }
        })
    }
}

fn unescape(text: &str) -> Result<String, PathError> {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '~' {
            plain.push(c);
            continue;
        }
        match rest.next() {
            Some('0') => plain.push('~'),
            Some('1') => plain.push('/'),
            Some('2') if plain.is_empty() => plain.push('['),
            _ => return Err(PathError::Escape(text.to_owned())),
        }
    }
    Ok(plain)
}

/// Writes a key's value in the form for brackets.
fn spell(value: &Value, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match value {
        Value::String(text) => spell_text(text, f),
        other => write!(Escaping(f), "{other}"),
    }
}

fn spell_text(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if is_bare(text) { Escaping(f).write_str(text) } else { write!(Escaping(f), "{}", Value::from(text)) }
}

/// Whether a text reads back as itself without quotes.
fn is_bare(text: &str) -> bool {
    let plain = |byte| !matches!(byte, b'"' | b',' | b'=' | b'[' | b']' | b'{' | b'}');
    !text.is_empty() && text.bytes().all(plain) && !is_json(text)
}

/// Whether a text without quotes and brackets is JSON: a number or a literal.
fn is_json(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t', '\n', '\r']);
    match text.as_bytes().first() {
        Some(b'-' | b'0'..=b'9') => serde_json::from_str::<Value>(text).is_ok(),
        _ => matches!(text, "true" | "false" | "null"),
    }
}

impl FromStr for Path {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let Some(body) = text.strip_prefix('/') else { return Err(PathError::NoSlash(text.to_owned())) };
        body.split('/').map(Segment::from_str).collect::<Result<Vec<_>, _>>().map(Self)
    }
}

impl FromStr for Segment {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        let plain = unescape(text)?;
        let Some(inner) =
            text.strip_prefix('[').and_then(|_| plain.strip_prefix('[')).and_then(|p| p.strip_suffix(']'))
        else {
            return Ok(Self::Field(plain));
        };
        let fail = || PathError::Key(text.to_owned());
        if let Some(value) = inner.strip_prefix('=') {
            return scalar(value).map(Self::Element).ok_or_else(fail);
        }
        let mut keys = Vec::new();
        for part in split_outside_quotes(inner, ',') {
            match split_outside_quotes(part, '=').as_slice() {
                [key, value] => {
                    let Value::String(key) = name(key).ok_or_else(fail)? else { return Err(fail()) };
                    keys.push((key, scalar(value).ok_or_else(fail)?));
                }
                _ => return Err(fail()),
            }
        }
        Ok(Self::Key(keys))
    }
}

/// A bare text, or JSON where the text is JSON.
fn scalar(text: &str) -> Option<Value> {
    match serde_json::from_str::<Value>(text) {
        Ok(value) => Some(value),
        Err(_) if text.is_empty() || text.starts_with('"') => None,
        Err(_) => Some(Value::from(text)),
    }
}

fn name(text: &str) -> Option<Value> {
    match text.starts_with('"') {
        true => serde_json::from_str::<Value>(text).ok(),
        false if text.is_empty() => None,
        false => Some(Value::from(text)),
    }
}

fn split_outside_quotes(text: &str, separator: char) -> Vec<&str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(|c: char| {
        let splits = c == separator && !quoted;
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ => {}
        }
        splits
    })
    .collect()
}

/// The path to a place while a walk is under way: a list on the walker's own
/// stack, so that nothing is allocated until a change is found.
#[derive(Clone, Copy)]
pub(super) struct Trail<'a> {
    above: Option<&'a Trail<'a>>,
    step: Step<'a>,
}

/// One step of a [`Trail`].
#[derive(Clone, Copy)]
pub(super) enum Step<'a> {
    Root,
    Field(&'a str),
    Key(&'a [super::schema::ListKey], &'a [Value]),
    Element(&'a Value),
}

impl<'a> Trail<'a> {
    pub(super) const ROOT: Trail<'static> = Trail { above: None, step: Step::Root };

    pub(super) fn then(&'a self, step: Step<'a>) -> Trail<'a> {
        Trail { above: Some(self), step }
    }

    /// The name of the field that holds this one; empty within a list element or at the root.
    pub(super) fn holder(&self) -> &'a str {
        match self.above.map(|above| above.step) {
            Some(Step::Field(name)) => name,
            _ => "",
        }
    }

    pub(super) fn path(&self) -> Path {
        let mut segments = Vec::with_capacity(USUAL);
        let mut at = Some(self);
        while let Some(trail) = at {
            match trail.step {
                Step::Root => {}
                Step::Field(name) => segments.push(Segment::Field(name.to_owned())),
                Step::Key(keys, values) => segments.push(Segment::Key(
                    keys.iter()
                        .zip(values)
                        .map(|(key, value)| (key.name.to_string(), value.clone()))
                        .collect(),
                )),
                Step::Element(value) => segments.push(Segment::Element(value.clone())),
            }
            at = trail.above;
        }
        segments.reverse();
        Path(segments)
    }
}

#[cfg(test)]
mod tests;
