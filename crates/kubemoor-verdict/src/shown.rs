//! The part of a value that a person may see.
//!
//! Entry points: [`Shown::of`]; [`Shown::sealed`] for storage. Invariant: a [`Shown`] is text for
//! messages, logs and records. It cannot be turned back into a value, so that a mask is never
//! written to an object. For a Secret's value, and for a webhook's address with a caller's token,
//! it holds only a digest, which leaves it only under a key. Must not reveal a secret.

mod excerpt;
mod sealing;
mod secrets;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest, Sha256};

use self::excerpt::{LIMIT, brief, cut, front, full, is_deep};
pub(super) use self::excerpt::{is_within, place_of};
pub use self::sealing::SealingKey;
use self::secrets::{holds_token, is_secret};
use kubemoor_declare::model::ObjectId;
use kubemoor_declare::path::Path;

/// The text in place of a Secret's value.
const MASK: &str = "(redacted)";

/// A value as a person may see it: its JSON, cut, or a mask. As JSON it is the
/// same text, of which more is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown(Content);

#[derive(Clone, PartialEq, Eq)]
enum Content {
    /// The value's JSON, cut.
    Text(String),
    /// The same of a long value, and a longer text of it.
    Long(Arc<(String, String)>),
    /// SHA-256 of a Secret's value and its place. A guessed password can be
    /// tried against it, so it never leaves this type as it is.
    Masked([u8; 32]),
}

impl Shown {
    /// The visible part of `value`, which is at `path` of `object`.
    pub fn of(object: &ObjectId, path: &Path, value: &Value) -> Self {
        if is_secret(object, path) || holds_token(object, value) {
            return Self(Content::Masked(digest(object, path, value)));
        }
        if value.is_string() {
            // The brief text of a string is the front of its full one.
            let full = full(value);
            return Self(match front(&full, LIMIT) {
                Some(brief) => Content::Long((brief, full).into()),
                None => Content::Text(full),
            });
        }
        let text = brief(value, 0);
        let (cut, is_cut) = cut(text, LIMIT);
        match is_cut || is_deep(value, 0) {
            true => Self(Content::Long((cut, full(value)).into())),
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

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Long(texts) => write!(f, "{:?}", texts.0),
            Self::Masked(_) => f.write_str(MASK),
        }
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
        path.pointer(),
        value.to_string().as_str(),
    ] {
        hash.update(part.len().to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests;
