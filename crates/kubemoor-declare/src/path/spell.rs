//! Writes a path as text.
//!
//! Entry points: [`Path::pointer`], `Display` of [`Path`] and [`Segment`]. Invariant: quotes a key's
//! value where it would read back as something else.

use std::fmt::{self, Write};

use serde_json::Value;

use super::{Path, Segment};

/// Room for the text of most paths, in bytes.
const ROOM: usize = 128;

/// Writes what it is given as RFC 6901 escapes it.
struct Escaping<'t, W: ?Sized>(&'t mut W);

impl Path {
    /// The path as text.
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
                    Escaping(to).write_str(rest)
                }
                None => Escaping(to).write_str(name),
            },
            Self::Key(keys) => {
                to.write_str("[")?;
                for (index, (key, value)) in keys.iter().enumerate() {
                    to.write_str(if index == 0 { "" } else { "," })?;
                    spell_text(key, to)?;
                    to.write_str("=")?;
                    spell(value, to)?;
                }
                to.write_str("]")
            }
            Self::Element(value) => {
                to.write_str("[=")?;
                spell(value, to)?;
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

impl<W: Write + ?Sized> Write for Escaping<'_, W> {
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
pub(super) fn is_json(text: &str) -> bool {
    let text = text.trim_ascii();
    match text.as_bytes().first() {
        Some(b'-' | b'0'..=b'9') => serde_json::from_str::<Value>(text).is_ok(),
        Some(b't' | b'f' | b'n') => matches!(text, "true" | "false" | "null"),
        _ => false,
    }
}

/// Writes a key's value in the form for brackets.
fn spell(value: &Value, to: &mut impl Write) -> fmt::Result {
    match value {
        Value::String(text) => spell_text(text, to),
        other => write!(Escaping(to), "{other}"),
    }
}

fn spell_text(text: &str, to: &mut impl Write) -> fmt::Result {
    match is_bare(text) {
        true => Escaping(to).write_str(text),
        false => write!(Escaping(to), "{}", Value::from(text)),
    }
}

/// Whether a text reads back as itself without quotes.
fn is_bare(text: &str) -> bool {
    let is_mark = |byte: u8| matches!(byte, b'"' | b',' | b'=' | b'[' | b']' | b'{' | b'}');
    !text.is_empty() && !text.bytes().fold(false, |found, byte| found | is_mark(byte)) && !is_json(text)
}
