//! Paths to a place in an object: JSON Pointers (RFC 6901) whose segments may also name a list element by its keys, and
//! the notation for people, `spec.template.spec.containers[app].image`. What is displayed parses back to an equal path.
//! Knows no schema: a key that an element leaves to its default does not match here.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::ops::Deref;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use serde_json::Value;
use smallvec::SmallVec;

use super::schema::ListKey;

#[derive(Clone, Debug, PartialEq)]
pub enum Segment {
    /// The entry of a map: `spec`.
    Field(String),
    /// The element of a list that holds these values: `[name=app]`, `[containerPort=80,protocol=TCP]`.
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

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("the path {0:?} does not begin with `/`: write it as a JSON Pointer such as /spec/replicas")]
    NoSlash(String),
    #[error("the path segment {0:?} holds a lone `~`: write ~0 for `~`, ~1 for `/` and ~2 for a leading `[`")]
    Escape(String),
    #[error(
        "the path segment {0:?} is no list key: write [name=value] or [=value], quoted as JSON where needed"
    )]
    Key(String),
}

impl Path {
    pub fn of_field(&self, name: &str) -> Self {
        Self(self.0.iter().cloned().chain([Segment::Field(name.to_owned())]).collect())
    }

    /// Every value in `root` at this path. More than one only where a list holds several elements of one key.
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

#[derive(Clone, Default)]
pub struct Segments(Arc<SharedSegments>);

#[derive(Default)]
struct SharedSegments {
    segments: Vec<Segment>,
    /// Written when it is first asked for: a denial needs it several times.
    text: OnceLock<Box<str>>,
}

impl Segments {
    /// Their text; `write` writes it, once.
    fn text(&self, write: impl FnOnce(&[Segment]) -> String) -> &str {
        self.0.text.get_or_init(|| write(self).into())
    }
}

impl Deref for Segments {
    type Target = [Segment];

    fn deref(&self) -> &[Segment] {
        &self.0.segments
    }
}

impl PartialEq for Segments {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Segments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl From<Vec<Segment>> for Segments {
    fn from(segments: Vec<Segment>) -> Self {
        Self(Arc::new(SharedSegments { segments, text: OnceLock::new() }))
    }
}

impl<const N: usize> From<[Segment; N]> for Segments {
    fn from(segments: [Segment; N]) -> Self {
        Self::from(Vec::from(segments))
    }
}

impl From<&[Segment]> for Segments {
    fn from(segments: &[Segment]) -> Self {
        Self::from(segments.to_vec())
    }
}

impl FromIterator<Segment> for Segments {
    fn from_iter<I: IntoIterator<Item = Segment>>(segments: I) -> Self {
        Self::from(Vec::from_iter(segments))
    }
}

const ROOM: usize = 128;

struct PointerEscaper<'t, W: ?Sized>(&'t mut W);

impl Path {
    pub fn pointer(&self) -> &str {
        self.0.text(|segments| {
            let mut text = String::with_capacity(ROOM);
            for segment in segments {
                text.push('/');
                // Writing to a String cannot fail.
                let _ = segment.spell(&mut text);
            }
            text
        })
    }
}

impl Segment {
    fn spell(&self, to: &mut impl Write) -> fmt::Result {
        match self {
            Self::Field(name) => match name.strip_prefix('[') {
                Some(rest) => {
                    to.write_str("~2")?;
                    PointerEscaper(to).write_str(rest)
                }
                None => PointerEscaper(to).write_str(name),
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
        f.write_str(self.pointer())
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spell(f)
    }
}

impl<W: Write + ?Sized> Write for PointerEscaper<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let is_escaped = |byte: u8| matches!(byte, b'~' | b'/');
        if !text.bytes().fold(false, |found, byte| found | is_escaped(byte)) {
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
        other => write!(PointerEscaper(to), "{other}"),
    }
}

fn spell_key_text(text: &str, to: &mut impl Write) -> fmt::Result {
    match is_bare(text) {
        true => PointerEscaper(to).write_str(text),
        false => write!(PointerEscaper(to), "{}", Value::from(text)),
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

/// The key by which an element is named with its value alone: `[app]`.
const NAME: &str = "name";

/// A [`Path`] as people write it.
#[derive(Clone, Copy, Debug)]
pub struct Plain<'p>(&'p Path);

impl Path {
    /// The path in the notation for people. A field whose name holds dots or other marks is written in
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
                    let end = closing(inner)?;
                    let segment = bracketed(inner.get(..end)?)?;
                    rest = inner.get(end + 1..)?;
                    segment
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
    // Digits alone would read as a place in a list.
    !name.is_empty() && name.chars().all(is_plain) && !name.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '$')
}

fn is_word(text: &str) -> bool {
    let is_mark = |c: char| matches!(c, '.' | '/' | ':' | '@' | '+');
    !text.is_empty() && text.chars().all(|c| is_plain(c) || is_mark(c)) && !is_json(text)
}

/// Where the bracket closes that was opened before `text`.
fn closing(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    text.char_indices().find_map(|(place, c)| {
        let closes = c == ']' && !quoted;
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ => {}
        }
        closes.then_some(place)
    })
}

fn bracketed(text: &str) -> Option<Segment> {
    if text.starts_with('"') && split_outside_quotes(text, '=').len() == 1 {
        return serde_json::from_str::<String>(text).ok().map(Segment::Field);
    }
    if is_word(text) {
        return Some(Segment::Key(vec![(NAME.to_owned(), Value::from(text))]));
    }
    // A place in a list, as JSON Pointers have it.
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Segment::Field(text.to_owned())).filter(|_| !text.is_empty());
    }
    if let Some(value) = text.strip_prefix('=') {
        return scalar(value).map(Segment::Element);
    }
    let keys = split_outside_quotes(text, ',').into_iter().map(|part| {
        match split_outside_quotes(part, '=').as_slice() {
            [key, value] => Some((name(key)?.as_str()?.to_owned(), scalar(value)?)),
            _ => None,
        }
    });
    keys.collect::<Option<Vec<_>>>().map(Segment::Key)
}

const USUAL: usize = 12;

/// The path to a place while a walk is under way: a list on the walker's own
/// stack, so that nothing is allocated until a change is found.
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

    /// The name of the field that holds this one; empty within a list element or at the root.
    pub(crate) fn holder(&self) -> &'a str {
        match self.above.and_then(|above| above.step) {
            Some(TrailStep::Field(name)) => name,
            _ => "",
        }
    }

    /// The name of the field here, or of the list whose element is here; empty at the root.
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
    /// The elements of lists, by where the list is in memory and the names of the keys.
    lists: HashMap<(usize, Vec<String>), ElementsByTokens<'v>>,
}

type ElementsByTokens<'v> = HashMap<Vec<Token>, Vec<&'v Value>>;

/// Equal for values that [`Segment::alike`] takes for the same.
#[derive(PartialEq, Eq, Hash)]
enum Token {
    Text(String),
    Bool(bool),
    Null,
}

impl Token {
    fn new(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(Self::Text(text.clone())),
            Value::Number(number) => Some(Self::Text(number.to_string())),
            Value::Bool(bool) => Some(Self::Bool(*bool)),
            Value::Null => Some(Self::Null),
            Value::Array(_) | Value::Object(_) => None,
        }
    }
}

impl<'v> PathLookup<'v> {
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
                let wanted = keys.iter().map(|(_, value)| Token::new(value)).collect();
                self.elements(value, names, wanted)
            }
            Segment::Element(wanted) => {
                self.elements(value, Vec::new(), Token::new(wanted).map(|token| vec![token]))
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
            let mut elements = ElementsByTokens::new();
            for item in items {
                let tokens = match names.is_empty() {
                    true => Token::new(item).map(|token| vec![token]),
                    false => names.iter().map(|name| item.get(name).and_then(Token::new)).collect(),
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
