//! The JSON of a value, as much of it as can be shown.
//!
//! Entry points: [`brief`] for people ([`is_deep`] if that omits a part), [`full`] for machines, [`front`] of that,
//! [`is_within`].
//! Invariant: no more of a value is written than is kept. Must not know which values are secret.

use std::io;

use serde_json::Value;

use kubemoor_declare::model::text::escaped_json;

/// The characters of a value that are shown.
pub(super) const LIMIT: usize = 120;

/// The most characters of a value in JSON, for machines.
const FULL: usize = 2000;

/// Room for the JSON of most values, in bytes.
const ROOM: usize = 256;

/// The value's JSON, written only as far as it can be shown.
pub(super) fn brief(value: &Value, depth: usize) -> String {
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

/// Whether [`brief`] omits a part of a value.
pub(super) fn is_deep(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(items) => {
            depth >= 3 || items.len() > LIMIT || items.iter().any(|item| is_deep(item, depth + 1))
        }
        Value::Object(fields) => {
            depth >= 3 || fields.len() > LIMIT || fields.values().any(|value| is_deep(value, depth + 1))
        }
        _ => false,
    }
}

/// The value's JSON, cut where machines read it.
pub(super) fn full(value: &Value) -> String {
    if value.as_str().is_some_and(|text| text.len() <= FULL) {
        // Text is always written.
        return cut(escaped_json(serde_json::to_string(value).unwrap_or_default()), FULL).0;
    }
    let (text, is_whole) = json(value, 4 * FULL);
    match cut(escaped_json(text), FULL) {
        (text, false) if !is_whole => text + "…",
        (text, _) => text,
    }
}

/// Whether a value's JSON has at most so many bytes.
pub(crate) fn is_within(value: &Value, bytes: usize) -> bool {
    struct Room(usize);
    impl io::Write for Room {
        fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(piece.len()).ok_or(io::ErrorKind::WriteZero)?;
            Ok(piece.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    // JSON puts a text in quotes.
    let is_longer = value.as_str().is_some_and(|text| text.len() + 2 > bytes);
    !is_longer && serde_json::to_writer(Room(bytes), value).is_ok()
}

/// At most `limit` characters of `text`, and whether there were more.
pub(super) fn cut(mut text: String, limit: usize) -> (String, bool) {
    match place_of(limit, &text) {
        Some(end) => {
            text.truncate(end);
            text.push('…');
            text.shrink_to_fit();
            (text, true)
        }
        None => (text, false),
    }
}

/// The first `limit` characters of `text`, if there are more.
pub(super) fn front(text: &str, limit: usize) -> Option<String> {
    let front = text.get(..place_of(limit, text)?)?;
    Some([front, "…"].concat())
}

/// The front of a value's JSON, of about so many bytes, and whether that is all:
/// no more is written than is kept.
fn json(value: &Value, bytes: usize) -> (String, bool) {
    struct Front(Vec<u8>, usize);
    impl io::Write for Front {
        fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
            let room = self.1.saturating_sub(self.0.len());
            match piece.get(..room) {
                Some(front) if front.len() < piece.len() => {
                    self.0.extend_from_slice(front);
                    Err(io::ErrorKind::WriteZero.into())
                }
                _ => {
                    self.0.extend_from_slice(piece);
                    Ok(piece.len())
                }
            }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut kept = Front(Vec::with_capacity(bytes.min(ROOM)), bytes);
    let is_whole = serde_json::to_writer(&mut kept, value).is_ok();
    let end = kept.0.utf8_chunks().next().map_or(0, |chunk| chunk.valid().len());
    kept.0.truncate(end);
    (String::from_utf8(kept.0).unwrap_or_default(), is_whole)
}

fn quoted(text: &str) -> String {
    let start = place_of(LIMIT + 1, text).and_then(|end| text.get(..end)).unwrap_or(text);
    // Text is always written.
    escaped_json(serde_json::to_string(start).unwrap_or_default())
}

/// Where the character of this number begins, if there is one.
pub(crate) fn place_of(number: usize, text: &str) -> Option<usize> {
    // Of fewer bytes there are no more characters.
    let front = text.as_bytes().get(..number)?;
    if front.is_ascii() {
        return (text.len() > number).then_some(number);
    }
    text.char_indices().nth(number).map(|(place, _)| place)
}
