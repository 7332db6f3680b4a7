//! Distinguishes the declarations of an object.
//!
//! Entry point: [`Digest::of`]. Invariant: covers everything that a write of the document could set, whatever
//! schema is known: all but the namespace, which the object's name holds. The order of a map's entries does
//! not matter. A document that nests deeper than the comparison has no digest, and so never counts as known.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::schema::MAX_DEPTH;

/// The length of a digest: enough to make collisions infeasible.
const BYTES: usize = 16;

/// A digest of one manifest document. Of a Secret it must not be shown: who knows
/// the rest of the document could guess the value.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; BYTES]);

impl Digest {
    /// The digest of a document with Helm's metadata in it; none for one that
    /// nests deeper than [`MAX_DEPTH`] levels.
    pub fn of(document: &Value) -> Option<Self> {
        let mut hasher = Sha256::new();
        put(document, "", 0, &mut hasher)?;
        let mut digest = [0; BYTES];
        digest.iter_mut().zip(hasher.finalize()).for_each(|(byte, hashed)| *byte = hashed);
        Some(Self(digest))
    }

    /// Its bytes, to be hashed with a key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Digest(..)")
    }
}

/// Each value as its type and length, then what it holds: no two spell the same.
/// `of` is the name that it has in its document's first level.
fn put(value: &Value, of: &str, depth: usize, hasher: &mut Sha256) -> Option<()> {
    match value {
        Value::Array(_) | Value::Object(_) if depth >= MAX_DEPTH => return None,
        Value::Null => hasher.update(b"n"),
        Value::Bool(value) => hasher.update([b'b', u8::from(*value)]),
        Value::Number(number) => put_text(b'#', &number.to_string(), hasher),
        Value::String(text) => put_text(b's', text, hasher),
        Value::Array(items) => {
            put_length(b'a', items.len(), hasher);
            for item in items {
                put(item, "", depth + 1, hasher)?;
            }
        }
        Value::Object(map) => {
            let is_place = |name: &str| depth == 1 && of == "metadata" && name == "namespace";
            let mut entries: Vec<_> = map.iter().filter(|(name, _)| !is_place(name)).collect();
            entries.sort_unstable_by_key(|(name, _)| *name);
            put_length(b'o', entries.len(), hasher);
            for (name, value) in entries {
                put_text(b'k', name, hasher);
                put(value, name, depth + 1, hasher)?;
            }
        }
    }
    Some(())
}

fn put_text(kind: u8, text: &str, hasher: &mut Sha256) {
    put_length(kind, text.len(), hasher);
    hasher.update(text.as_bytes());
}

fn put_length(kind: u8, length: usize, hasher: &mut Sha256) {
    hasher.update([kind]);
    hasher.update(length.to_le_bytes());
}

#[cfg(test)]
mod tests;
