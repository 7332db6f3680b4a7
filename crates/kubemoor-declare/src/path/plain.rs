//! Paths in the notation for people: `spec.template.spec.containers[app].image`.
//!
//! Entry points: [`Path::plain`], [`Path::from_plain`]. Invariant: `from_plain` reads what `plain` writes.
//! JSON Pointers remain the form for machines: policies, resources, the ledger.

use std::fmt::{self, Write};

use serde_json::Value;

use super::read::{name, scalar, split_outside_quotes};
use super::spell::is_json;
use super::{Path, Segment};

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
    /// Writes the path.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn spell(self, to: &mut impl Write) -> fmt::Result {
        for (index, segment) in self.0.0.iter().enumerate() {
            match segment {
                Segment::Field(name) if is_name(name) => {
                    to.write_str(if index == 0 { "" } else { "." })?;
                    to.write_str(name)?;
                }
                Segment::Field(name) => write!(to, "[{}]", Value::from(name.as_str()))?,
                Segment::Key(keys) => spell_keys(keys, to)?,
                Segment::Element(value) => {
                    to.write_str("[=")?;
                    spell(value, to)?;
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

/// Writes a key's value, in quotes where it would read as something else.
fn spell(value: &Value, to: &mut impl Write) -> fmt::Result {
    match value {
        Value::String(text) if is_word(text) => to.write_str(text),
        other => write!(to, "{other}"),
    }
}

fn spell_keys(keys: &[(String, Value)], to: &mut impl Write) -> fmt::Result {
    to.write_char('[')?;
    match keys {
        [(key, Value::String(name))] if key == NAME && is_word(name) => to.write_str(name)?,
        keys => {
            for (index, (key, value)) in keys.iter().enumerate() {
                to.write_str(if index == 0 { "" } else { "," })?;
                spell(&Value::from(key.as_str()), to)?;
                to.write_char('=')?;
                spell(value, to)?;
            }
        }
    }
    to.write_char(']')
}

/// Whether a field's name needs no quotes.
fn is_name(name: &str) -> bool {
    // Digits alone would read as a place in a list.
    !name.is_empty() && name.chars().all(is_plain) && !name.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '$')
}

/// Whether a text reads back as itself between brackets.
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

#[cfg(test)]
mod tests;
