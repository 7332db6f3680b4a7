//! Writes a path as text.
//!
//! Entry points: `Display` of [`Path`] and [`Segment`]. Invariant: quotes a key's value where it would read back as
//! something else.

use std::fmt::{self, Write as _};

use serde_json::Value;

use super::{Path, Segment};

/// Writes what it is given as RFC 6901 escapes it.
struct Escaping<'f, 'b>(&'f mut fmt::Formatter<'b>);

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

/// Whether a text without quotes and brackets is JSON: a number or a literal.
pub(super) fn is_json(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t', '\n', '\r']);
    match text.as_bytes().first() {
        Some(b'-' | b'0'..=b'9') => serde_json::from_str::<Value>(text).is_ok(),
        _ => matches!(text, "true" | "false" | "null"),
    }
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
