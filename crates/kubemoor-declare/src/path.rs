//! Paths to values in an object: JSON Pointers (RFC 6901) whose segments may also select a list element by its keys,
//! and the human-readable notation `spec.template.spec.containers[app].image`. A displayed path parses back to an equal
//! one. Paths know no schema, so they do not match a key that an element leaves to its default.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::{self, Write};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use smallvec::SmallVec;

use super::schema::ListKey;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Segment {
    /// The entry of a map: `spec`.
    Field(String),
    /// The list element with these key values: `[name=app]`, `[containerPort=80,protocol=TCP]`.
    Key(Vec<(String, Value)>),
    /// The element of a set: `[=value]`.
    Element(Value),
}

/// A place in an object: `/spec/template/spec/containers/[name=app]/image`.
///
/// In a field name, `~` is written `~0` and `/` is written `~1`, as in RFC 6901, and a leading `[` is written `~2`. A
/// key value that would otherwise parse as something else (`"80"`, a text with a comma) is written as a JSON string.
/// Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Path(pub Arc<[Segment]>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("the path {0:?} does not begin with `/`: write it as a JSON Pointer such as /spec/replicas")]
    NoSlash(String),
    #[error("the path segment {0:?} holds a lone `~`: write ~0 for `~`, ~1 for `/` and ~2 for a leading `[`")]
    Escape(String),
    #[error(
        "the path segment {0:?} is not a list key: write [name=value] or [=value], quoted as JSON where \
         needed"
    )]
    Key(String),
}

impl Path {
    /// The path of these nested fields, the outermost first.
    pub fn from_names<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        Self(names.into_iter().map(|name| Segment::Field(name.to_owned())).collect())
    }

    pub fn of_field(&self, name: &str) -> Self {
        Self(self.0.iter().cloned().chain([Segment::Field(name.to_owned())]).collect())
    }

    /// All values in `root` at this path: more than one only if list elements have the same key.
    pub fn get<'v>(&self, root: &'v Value) -> Vec<&'v Value> {
        let mut found = vec![root];
        for segment in self.0.iter() {
            found = found.into_iter().flat_map(|value| segment.step(value)).collect();
        }
        found
    }
}

impl Segment {
    /// Whether two values of a list key are equal apart from quotes: for the key `port: "80"` a user may also write
    /// `[port=80]`. Lists and maps are not keys.
    pub fn alike(a: &Value, b: &Value) -> bool {
        match (a, b) {
            (Value::String(text), Value::Number(number)) | (Value::Number(number), Value::String(text)) => {
                *text == number.to_string()
            }
            (Value::Array(_) | Value::Object(_), _) => false,
            _ => a == b,
        }
    }

    /// A key's value as text, the same for values that are [alike](Self::alike).
    pub fn spelled(value: &Value) -> String {
        match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }

    /// Whether it selects this list element.
    pub fn selects(&self, item: &Value) -> bool {
        match self {
            Self::Field(_) => false,
            Self::Key(keys) => {
                keys.iter().all(|(key, wanted)| item.get(key).is_some_and(|own| Self::alike(own, wanted)))
            }
            Self::Element(wanted) => Self::alike(item, wanted),
        }
    }

    fn step<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        match (self, value) {
            (Self::Field(name), Value::Object(map)) => map.get(name).into_iter().collect(),
            (element, Value::Array(items)) => items.iter().filter(|item| element.selects(item)).collect(),
            _ => Vec::new(),
        }
    }
}

impl Segment {
    fn spell(&self, to: &mut impl Write) -> fmt::Result {
        match self {
            Self::Field(name) => match name.strip_prefix('[') {
                Some(rest) => {
                    to.write_str("~2")?;
                    to.write_str(&escaped(rest))
                }
                None => to.write_str(&escaped(name)),
            },
            Self::Key(keys) => {
                to.write_str("[")?;
                for (index, (key, value)) in keys.iter().enumerate() {
                    to.write_str(if index == 0 { "" } else { "," })?;
                    spell_key_text(key, to)?;
                    to.write_str("=")?;
                    spell_key_value(value, to)?;
                }
                to.write_str("]")
            }
            Self::Element(value) => {
                to.write_str("[=")?;
                spell_key_value(value, to)?;
                to.write_str("]")
            }
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|segment| {
            f.write_char('/')?;
            segment.spell(f)
        })
    }
}

impl Serialize for Path {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Path {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spell(f)
    }
}

/// A text with the escapes of a JSON Pointer.
fn escaped(text: &str) -> Cow<'_, str> {
    match text.contains(['~', '/']) {
        true => text.replace('~', "~0").replace('/', "~1").into(),
        false => text.into(),
    }
}

/// Whether a text without quotes and brackets is JSON: a number or a literal.
fn is_json(text: &str) -> bool {
    let text = text.trim_ascii();
    match text.as_bytes().first() {
        Some(b'-' | b'0'..=b'9') => serde_json::from_str::<Value>(text).is_ok(),
        Some(b't' | b'f' | b'n') => matches!(text, "true" | "false" | "null"),
        _ => false,
    }
}

fn spell_key_value(value: &Value, to: &mut impl Write) -> fmt::Result {
    match value {
        Value::String(text) => spell_key_text(text, to),
        other => to.write_str(&escaped(&other.to_string())),
    }
}

fn spell_key_text(text: &str, to: &mut impl Write) -> fmt::Result {
    match is_bare(text) {
        true => to.write_str(&escaped(text)),
        false => to.write_str(&escaped(&Value::from(text).to_string())),
    }
}

fn is_bare(text: &str) -> bool {
    let is_mark = |byte: u8| matches!(byte, b'"' | b',' | b'=' | b'[' | b']' | b'{' | b'}');
    !text.is_empty() && !text.bytes().fold(false, |found, byte| found | is_mark(byte)) && !is_json(text)
}

impl FromStr for Path {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let Some(body) = text.strip_prefix('/') else { return Err(PathError::NoSlash(text.to_owned())) };
        body.split('/').map(Segment::from_str).collect::<Result<_, _>>().map(Self)
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
        keys(inner).map(Self::Key).ok_or_else(fail)
    }
}

/// Keys and their values: `name=app,port=80`.
fn keys(text: &str) -> Option<Vec<(String, Value)>> {
    let keys = split_outside_quotes(text, ',').into_iter().map(|part| {
        match split_outside_quotes(part, '=').as_slice() {
            [key, value] => Some((name(key)?, scalar(value)?)),
            _ => None,
        }
    });
    keys.collect()
}

fn scalar(text: &str) -> Option<Value> {
    match serde_json::from_str::<Value>(text) {
        Ok(value) => Some(value),
        Err(_) if text.is_empty() || text.starts_with('"') => None,
        Err(_) => Some(Value::from(text)),
    }
}

fn name(text: &str) -> Option<String> {
    match text.starts_with('"') {
        true => serde_json::from_str(text).ok(),
        false => Some(text.to_owned()).filter(|text| !text.is_empty()),
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

/// The key whose name is left out in the human-readable notation: `[app]` means `[name=app]`.
const NAME: &str = "name";

/// A [`Path`] in the human-readable notation.
#[derive(Clone, Copy, Debug)]
pub struct Plain<'p>(&'p Path);

impl Path {
    /// The path in the human-readable notation. A field name with dots or other special characters is written in
    /// brackets and quotes: `metadata.annotations["example.org/a"]`.
    pub fn plain(&self) -> Plain<'_> {
        Plain(self)
    }

    /// Reads the notation of [`Self::plain`]; `None` for any other text.
    pub fn from_plain(text: &str) -> Option<Self> {
        let mut segments = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let segment = match rest.strip_prefix('[') {
                Some(inner) => {
                    let within = *split_outside_quotes(inner, ']').first()?;
                    rest = inner.get(within.len() + 1..)?;
                    bracketed(within)?
                }
                None => {
                    let name = if segments.is_empty() { rest } else { rest.strip_prefix('.')? };
                    let end = name.find(|c| !is_plain(c)).unwrap_or(name.len());
                    rest = name.get(end..)?;
                    Segment::Field(name.get(..end).filter(|name| !name.is_empty())?.to_owned())
                }
            };
            segments.push(segment);
        }
        (!segments.is_empty()).then(|| Self(segments.into()))
    }
}

impl Plain<'_> {
    pub fn spell(self, to: &mut impl Write) -> fmt::Result {
        for (index, segment) in self.0.0.iter().enumerate() {
            match segment {
                Segment::Field(name) if is_name(name) => {
                    to.write_str(if index == 0 { "" } else { "." })?;
                    to.write_str(name)?;
                }
                Segment::Field(name) => write!(to, "[{}]", Value::from(name.as_str()))?,
                Segment::Key(keys) => spell_plain_keys(keys, to)?,
                Segment::Element(value) => {
                    to.write_str("[=")?;
                    spell_plain_value(value, to)?;
                    to.write_char(']')?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spell(f)
    }
}

fn spell_plain_value(value: &Value, to: &mut impl Write) -> fmt::Result {
    match value {
        Value::String(text) if is_word(text) => to.write_str(text),
        other => write!(to, "{other}"),
    }
}

fn spell_plain_keys(keys: &[(String, Value)], to: &mut impl Write) -> fmt::Result {
    to.write_char('[')?;
    match keys {
        [(key, Value::String(name))] if key == NAME && is_word(name) => to.write_str(name)?,
        keys => {
            for (index, (key, value)) in keys.iter().enumerate() {
                to.write_str(if index == 0 { "" } else { "," })?;
                spell_plain_value(&Value::from(key.as_str()), to)?;
                to.write_char('=')?;
                spell_plain_value(value, to)?;
            }
        }
    }
    to.write_char(']')
}

fn is_name(name: &str) -> bool {
    // Digits alone would look like a list index.
    !name.is_empty() && name.chars().all(is_plain) && !name.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '$')
}

fn is_word(text: &str) -> bool {
    let is_mark = |c: char| matches!(c, '.' | '/' | ':' | '@' | '+');
    !text.is_empty() && text.chars().all(|c| is_plain(c) || is_mark(c)) && !is_json(text)
}

fn bracketed(text: &str) -> Option<Segment> {
    if text.starts_with('"') && split_outside_quotes(text, '=').len() == 1 {
        return serde_json::from_str::<String>(text).ok().map(Segment::Field);
    }
    if is_word(text) {
        return Some(Segment::Key(vec![(NAME.to_owned(), Value::from(text))]));
    }
    // A list index, as in a JSON Pointer.
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Segment::Field(text.to_owned())).filter(|_| !text.is_empty());
    }
    if let Some(value) = text.strip_prefix('=') {
        return scalar(value).map(Segment::Element);
    }
    keys(text).map(Segment::Key)
}

const USUAL: usize = 12;

/// The path to the current value of a walk: a linked list on the call stack, so nothing is allocated until a change is
/// found.
#[derive(Clone, Copy)]
pub(crate) struct Trail<'a> {
    above: Option<&'a Trail<'a>>,
    step: Option<TrailStep<'a>>,
}

#[derive(Clone, Copy)]
pub(crate) enum TrailStep<'a> {
    Field(&'a str),
    Key(&'a [ListKey], &'a [Value]),
    Element(&'a Value),
}

impl<'a> Trail<'a> {
    pub(crate) const ROOT: Trail<'static> = Trail { above: None, step: None };

    pub(crate) fn then(&'a self, step: TrailStep<'a>) -> Trail<'a> {
        Trail { above: Some(self), step: Some(step) }
    }

    /// The name of the parent field; empty within a list element or at the root.
    pub(crate) fn holder(&self) -> &'a str {
        match self.above.and_then(|above| above.step) {
            Some(TrailStep::Field(name)) => name,
            _ => "",
        }
    }

    /// The name of the current field, or of the list that contains the current element; empty at the root.
    pub(crate) fn name(&self) -> &'a str {
        match (self.step, self.above) {
            (Some(TrailStep::Field(name)), _) => name,
            (Some(TrailStep::Key(..) | TrailStep::Element(_)), Some(above)) => above.name(),
            _ => "",
        }
    }

    pub(crate) fn path(&self) -> Path {
        let above = std::iter::successors(Some(self), |trail| trail.above);
        let steps: SmallVec<[TrailStep<'_>; USUAL]> = above.filter_map(|trail| trail.step).collect();
        Path(steps.iter().rev().map(TrailStep::segment).collect())
    }
}

impl TrailStep<'_> {
    fn segment(&self) -> Segment {
        match *self {
            Self::Field(name) => Segment::Field(name.to_owned()),
            Self::Key(keys, values) => {
                let keys = keys.iter().zip(values);
                Segment::Key(keys.map(|(key, value)| (key.name.to_string(), value.clone())).collect())
            }
            Self::Element(value) => Segment::Element(value.clone()),
        }
    }
}

pub struct PathLookup<'v> {
    root: &'v Value,
    /// The elements of lists, by the list's address in memory and the names of the keys.
    lists: HashMap<(usize, Vec<String>), ElementsByTokens<'v>>,
}

type ElementsByTokens<'v> = HashMap<Vec<String>, Vec<&'v Value>>;

/// A text that is the same for values that are [alike](Segment::alike); `None` for lists and maps, which are not keys.
fn token(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        // No string key has this text.
        Value::Bool(_) | Value::Null => Some(format!("\0{value}")),
        Value::Array(_) | Value::Object(_) => None,
    }
}

impl<'v> PathLookup<'v> {
    pub fn new(root: &'v Value) -> Self {
        Self { root, lists: HashMap::new() }
    }

    /// All values at this path; see [`Path::get`].
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
                let wanted = keys.iter().map(|(_, value)| token(value)).collect();
                self.elements(value, names, wanted)
            }
            Segment::Element(wanted) => {
                self.elements(value, Vec::new(), token(wanted).map(|token| vec![token]))
            }
        }
    }

    /// The elements whose key values have these tokens; without keys, the elements that have this token themselves.
    fn elements(
        &mut self,
        list: &'v Value,
        names: Vec<String>,
        wanted: Option<Vec<String>>,
    ) -> Vec<&'v Value> {
        let (Value::Array(items), Some(wanted)) = (list, wanted) else { return Vec::new() };
        let place = (std::ptr::from_ref(list).addr(), names.clone());
        let elements = self.lists.entry(place).or_insert_with(|| {
            let mut elements = ElementsByTokens::new();
            for item in items {
                let tokens = match names.is_empty() {
                    true => token(item).map(|token| vec![token]),
                    false => names.iter().map(|name| item.get(name).and_then(token)).collect(),
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
