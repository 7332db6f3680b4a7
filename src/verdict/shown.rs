//! The part of a value that a person may see.
//!
//! Entry points: [`Shown::of`]; [`Shown::sealed`] for storage. Invariant: a [`Shown`] is text for
//! messages, logs and records. It cannot be turned back into a value, so that a mask is never
//! written to an object. For a Secret's value, and for a webhook's address with a caller's token,
//! it holds only a digest, which leaves it only under a key. Must not reveal a secret.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io;

use hmac::{Hmac, KeyInit, Mac};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::declaration::path::{Path, Segment};
use crate::model::ObjectId;

/// The characters of a value that are shown.
const LIMIT: usize = 120;

/// The most characters of a value in JSON, for machines.
const FULL: usize = 2000;

/// The fewest letters of a caller's token.
const TOKEN: usize = 32;

/// Room for the JSON of most values, in bytes.
const ROOM: usize = 256;

/// The text in place of a Secret's value.
const MASK: &str = "(redacted)";

/// The bytes of a sealed value's hash that are kept: enough to tell values
/// apart, and as text short enough to compare by eye.
const HASH_BYTES: usize = 8;

/// A value as a person may see it: its JSON, cut, or a mask. As JSON it is the
/// same text, of which more is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown(Content);

#[derive(Clone, PartialEq, Eq)]
enum Content {
    /// The value's JSON, cut.
    Text(String),
    /// The same of a long value, and a longer text of it.
    Long(Box<(String, String)>),
    /// SHA-256 of a Secret's value and its place. A guessed password can be
    /// tried against it, so it never leaves this type as it is.
    Masked([u8; 32]),
}

/// What makes sealed values of one ledger comparable with each other, and
/// useless to anybody without the ledger.
#[derive(Clone, PartialEq, Eq)]
pub struct SealingKey([u8; 32]);

impl Shown {
    /// The visible part of `value`, which is at `path` of `object`.
    pub fn of(object: &ObjectId, path: &Path, value: &Value) -> Self {
        if is_secret(object, path) || holds_token(object, value) {
            return Self(Content::Masked(digest(object, path, value)));
        }
        let text = brief(value, 0);
        let (cut, is_cut) = cut(text, LIMIT);
        match is_cut || is_deep(value, 0) {
            true => Self(Content::Long(Box::new((cut, full(value))))),
            false => Self(Content::Text(cut)),
        }
    }

    /// The same text, but a mask that tells values of one field apart: equal
    /// under one key exactly when the values are (`(redacted 5f0c…)`).
    pub fn sealed(&self, key: &SealingKey) -> String {
        let digest = match &self.0 {
            Content::Text(text) => return text.clone(),
            Content::Long(texts) => return texts.0.clone(),
            Content::Masked(digest) => digest,
        };
        match key.seal(digest) {
            Some(hash) => format!("{} {hash})", MASK.trim_end_matches(')')),
            None => MASK.to_owned(),
        }
    }

    /// Whether the value is not shown.
    pub fn is_masked(&self) -> bool {
        matches!(self.0, Content::Masked(_))
    }

    /// The shown text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Content::Text(text) => text,
            Content::Long(texts) => &texts.0,
            Content::Masked(_) => MASK,
        }
    }

    /// The longer text of a long value, for machines.
    pub fn full(&self) -> &str {
        match &self.0 {
            Content::Long(texts) => &texts.1,
            Content::Text(_) | Content::Masked(_) => self.as_str(),
        }
    }
}

impl SealingKey {
    /// The key of these bytes, which must be random.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A keyed hash of a secret's digest, in hexadecimal: two of them are equal under one key
    /// exactly when the digests are. `None` if HMAC rejects the key, which does not happen.
    pub fn seal(&self, digest: &[u8; 32]) -> Option<String> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        mac.update(digest);
        let mut text = String::new();
        for byte in mac.finalize().into_bytes().iter().take(HASH_BYTES) {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        Some(text)
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Long(texts) => write!(f, "{:?}", texts.0),
            Self::Masked(_) => f.write_str(MASK),
        }
    }
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealingKey(..)")
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl JsonSchema for Shown {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Shown".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}

impl Serialize for Shown {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.full())
    }
}

/// `value` unchanged, if all of it may be seen and its JSON has at most `bytes` bytes.
pub(super) fn whole(object: &ObjectId, path: &Path, value: &Value, bytes: usize) -> Option<Value> {
    let is_masked = is_secret(object, path) || holds_token(object, value);
    (!is_masked && is_within(value, bytes)).then(|| value.clone())
}

/// The digest includes the path: it must not show that two Secrets have the same password.
fn digest(object: &ObjectId, path: &Path, value: &Value) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [
        object.group.as_str(),
        object.kind.as_str(),
        object.namespace.as_deref().unwrap_or_default(),
        object.name.as_str(),
        path.to_string().as_str(),
        value.to_string().as_str(),
    ] {
        hash.update(part.len().to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
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

/// Whether a value of a webhook configuration holds an address of the guard with
/// the token by which it knows the API server.
fn holds_token(object: &ObjectId, value: &Value) -> bool {
    if object.group != "admissionregistration.k8s.io" {
        return false;
    }
    let text = value.to_string();
    let is_token = |rest: &str| {
        let known = |letter: &char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
        rest.chars().take_while(known).count() >= TOKEN
    };
    ["/validate/", "/mutate/"].into_iter().any(|base| text.split(base).skip(1).any(is_token))
}

fn is_helms(path: &Path) -> bool {
    matches!(path.0.get(2), Some(Segment::Field(name)) if name.starts_with("meta.helm.sh/") || name.starts_with("helm.sh/"))
}

/// The value's JSON, written only as far as it can be shown.
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

/// Whether [`brief`] omits a part of a value.
fn is_deep(value: &Value, depth: usize) -> bool {
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
fn full(value: &Value) -> String {
    let (text, is_whole) = front(value, 4 * FULL);
    match cut(text, FULL) {
        (text, false) if !is_whole => text + "…",
        (text, _) => text,
    }
}

/// Whether a value's JSON has at most so many bytes.
pub(super) fn is_within(value: &Value, bytes: usize) -> bool {
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
    serde_json::to_writer(Room(bytes), value).is_ok()
}

/// The front of a value's JSON, of about so many bytes, and whether that is all:
/// no more is written than is kept.
fn front(value: &Value, bytes: usize) -> (String, bool) {
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

/// At most `limit` characters of `text`, and whether there were more.
fn cut(mut text: String, limit: usize) -> (String, bool) {
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

fn quoted(text: &str) -> String {
    let start = place_of(LIMIT + 1, text).and_then(|end| text.get(..end)).unwrap_or(text);
    // Text is always written.
    serde_json::to_string(start).unwrap_or_default()
}

/// Where the character of this number begins, if there is one.
fn place_of(number: usize, text: &str) -> Option<usize> {
    // Of fewer bytes there are no more characters.
    let front = text.as_bytes().get(..number)?;
    if front.is_ascii() {
        return (text.len() > number).then_some(number);
    }
    text.char_indices().nth(number).map(|(place, _)| place)
}

#[cfg(test)]
mod tests;
