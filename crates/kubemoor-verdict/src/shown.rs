//! The part of a value that a user may see, and the first difference between values.
//!
//! A [`Shown`] is text for messages, logs and records. It cannot be turned back into a value, so that a mask is never
//! written to an object. For a Secret's value, and for a webhook's address with a caller's token, it holds only a
//! digest, which is output only as a keyed hash. A long or nested value is shown by the first place at which it
//! differs, so that both sides never look the same.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest, Sha256};

use kubemoor_declare::model::ObjectId;
use kubemoor_declare::model::text::escaped_json;
use kubemoor_declare::path::{Path, Segment};
use kubemoor_policy::signing::hex;

/// The text in place of a Secret's value.
const MASK: &str = "(redacted)";

/// A value as a user may see it: its JSON, shortened, or a mask. Serialized, it is a longer part of the same text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown(ShownContent);

#[derive(Clone, PartialEq, Eq)]
enum ShownContent {
    Text(String),
    /// The short and the longer text of a long value.
    Long(Arc<(String, String)>),
    /// SHA-256 of a Secret's value and its path. A guessed password can be tested against it, so it leaves this type
    /// only as a keyed hash.
    Masked([u8; 32]),
}

impl Shown {
    /// The visible part of `value`, which is at `path` of `object`.
    pub fn new(object: &ObjectId, path: &Path, value: &Value) -> Self {
        if is_secret(object, path) || holds_token(object, value) {
            return Self(ShownContent::Masked(digest(object, path, value)));
        }
        let full = full(value);
        Self(match front(&full, LIMIT) {
            Some(brief) => ShownContent::Long((brief, full).into()),
            None => ShownContent::Text(full),
        })
    }

    /// The same text, but with a mask that distinguishes values of one field: under one key, masks are equal exactly
    /// when the values are (`(redacted 5f0c…)`).
    pub fn sealed(&self, key: &SealingKey) -> String {
        let digest = match &self.0 {
            ShownContent::Text(text) => return text.clone(),
            ShownContent::Long(texts) => return texts.0.clone(),
            ShownContent::Masked(digest) => digest,
        };
        match key.seal(digest) {
            Some(hash) => format!("{} {hash})", MASK.trim_end_matches(')')),
            None => MASK.to_owned(),
        }
    }

    pub fn is_masked(&self) -> bool {
        matches!(self.0, ShownContent::Masked(_))
    }

    pub fn as_str(&self) -> &str {
        match &self.0 {
            ShownContent::Text(text) => text,
            ShownContent::Long(texts) => &texts.0,
            ShownContent::Masked(_) => MASK,
        }
    }

    /// The longer text of a long value, for machines.
    pub fn full(&self) -> &str {
        match &self.0 {
            ShownContent::Long(texts) => &texts.1,
            ShownContent::Text(_) | ShownContent::Masked(_) => self.as_str(),
        }
    }
}

impl fmt::Debug for ShownContent {
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
pub(crate) fn whole(object: &ObjectId, path: &Path, value: &Value, bytes: usize) -> Option<Value> {
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

/// The most characters of a value that are shown.
const LIMIT: usize = 120;

/// The most characters of a value in JSON, for machines.
const FULL: usize = 2000;

/// Room for the JSON of most values, in bytes.
const ROOM: usize = 256;

/// The value's JSON, cut where machines read it.
fn full(value: &Value) -> String {
    // The escape of a character has at most six bytes.
    let (text, is_whole) = json(value, 6 * FULL);
    let text = escaped_json(text);
    match front(&text, FULL) {
        Some(front) => front,
        None if is_whole => text,
        None => text + "…",
    }
}

/// Whether a value's JSON has at most this number of bytes.
pub(crate) fn is_within(value: &Value, bytes: usize) -> bool {
    // JSON puts a text in quotes.
    let is_longer = value.as_str().is_some_and(|text| text.len() + 2 > bytes);
    !is_longer && json(value, bytes).1
}

/// The first `limit` characters of `text`, if there are more.
fn front(text: &str, limit: usize) -> Option<String> {
    let front = text.get(..place_of(limit, text)?)?;
    Some([front, "…"].concat())
}

/// The start of a value's JSON, of at most this number of bytes, and whether that is all. No more is serialized.
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

/// The byte offset of the character with this number, if there is one.
pub(crate) fn place_of(number: usize, text: &str) -> Option<usize> {
    // A text has no more characters than bytes.
    let front = text.as_bytes().get(..number)?;
    if front.is_ascii() {
        return (text.len() > number).then_some(number);
    }
    text.char_indices().nth(number).map(|(place, _)| place)
}

/// The bytes of a sealed value's hash that are kept: enough to tell values apart, and as text short enough to compare
/// by eye.
const HASH_BYTES: usize = 8;

/// The key that makes sealed values of one ledger comparable with each other, and useless without the ledger.
#[derive(Clone, PartialEq, Eq)]
pub struct SealingKey([u8; 32]);

impl SealingKey {
    /// The key of these bytes, which must be random.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A keyed hash of a secret's digest, in hexadecimal: two of them are equal under one key exactly when the
    /// digests are. `None` if HMAC rejects the key, which does not happen.
    pub fn seal(&self, digest: &[u8; 32]) -> Option<String> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        mac.update(digest);
        mac.finalize().into_bytes().get(..HASH_BYTES).map(hex)
    }
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealingKey(..)")
    }
}

/// The fewest characters of a caller's token.
const TOKEN: usize = 32;

/// Whether values at `path` are a Secret's content. Its metadata is not, except for annotations: kubectl stores whole
/// manifests in one.
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

/// Whether a value of a webhook configuration holds an address of the guard with the token that authenticates the API
/// server.
fn holds_token(object: &ObjectId, value: &Value) -> bool {
    if object.group != "admissionregistration.k8s.io" {
        return false;
    }
    let text = value.to_string();
    let is_token = |rest: &str| {
        let known = |letter: &char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
        rest.chars().take_while(known).count() >= TOKEN
    };
    ["/validate/", "/mutate/", "/observe/"].into_iter().any(|base| text.split(base).skip(1).any(is_token))
}

fn is_helms(path: &Path) -> bool {
    matches!(path.0.get(2), Some(Segment::Field(name)) if name.starts_with("meta.helm.sh/") || name.starts_with("helm.sh/"))
}

/// A value is shown whole if its JSON has at most this number of characters.
const SHORT: usize = 60;

/// The characters of a line before the place at which it differs.
const BEFORE: usize = 20;

/// The most characters of a line that are shown.
const LINE: usize = 80;

/// The depth at which the search stops.
const DEEPEST: usize = 64;

/// The first place below a field at which its values differ.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Difference {
    /// The place as users write it, after the field's path: `[0].host`.
    #[serde(skip)]
    pub plain: String,
    /// The place from the object's root, as a JSON Pointer.
    pub path: String,
    /// The line of a long text, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The declared value there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared: Option<Shown>,
    /// The value there before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<Shown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<Shown>,
}

#[derive(Clone, Copy)]
enum ValueStep<'v> {
    Field(&'v str),
    Index(usize),
}

struct TextPlace {
    /// From 0.
    line: usize,
    /// In characters.
    column: usize,
    is_of_lines: bool,
}

impl Difference {
    pub(crate) fn find(
        object: &ObjectId,
        path: &Path,
        [declared, old]: [Option<&Value>; 2],
        new: &Value,
    ) -> Option<Self> {
        // For an edit, the change counts; for a live object, the difference from the declaration.
        let other = old.or(declared)?;
        if is_short(other) && is_short(new) {
            return None;
        }
        let steps = first(other, new, declared)?;
        let (other, declared, old, new) = (
            step_down(other, &steps),
            declared.and_then(|declared| step_down(declared, &steps)),
            old.and_then(|old| step_down(old, &steps)),
            step_down(new, &steps),
        );
        let (mut plain, mut pointer) = (String::new(), path.to_string());
        for step in &steps {
            // Writing to a String cannot fail.
            let _ = match step {
                ValueStep::Field(name) => {
                    let below = Path::from_names([*name]);
                    let dot = if below.plain().to_string().starts_with('[') { "" } else { "." };
                    write!(plain, "{dot}{}", below.plain()).and_then(|()| write!(pointer, "{below}"))
                }
                ValueStep::Index(index) => {
                    write!(plain, "[{index}]").and_then(|()| write!(pointer, "/{index}"))
                }
            };
        }
        let place = match (other, new) {
            (Some(Value::String(a)), Some(Value::String(b))) => TextPlace::find(a, b),
            _ => None,
        };
        let shown = |value: Option<&Value>| match (&place, value) {
            (Some(place), Some(Value::String(text))) => {
                let excerpt = Value::String(place.excerpt(text)?);
                Some(Shown::new(object, path, &excerpt))
            }
            (_, value) => value.map(|value| Shown::new(object, path, value)),
        };
        let line = place.as_ref().filter(|place| place.is_of_lines).map(|place| place.line + 1);
        let (was, is) = (shown(old), shown(new));
        let said = if old == declared { was.clone() } else { shown(declared) };
        let found = Self { plain, path: pointer, line, declared: said, old: was, new: is };
        // A place that is the whole field would add nothing.
        (!steps.is_empty() || place.is_some()).then_some(found)
    }
}

/// Whether a value can be shown whole.
fn is_short(value: &Value) -> bool {
    match value {
        Value::String(text) => text.len() <= SHORT && !text.contains('\n'),
        Value::Array(_) | Value::Object(_) => is_within(value, SHORT),
        _ => true,
    }
}

/// The path to the first place at which `a` and `b` differ, preferably one at which `b` also differs from `declared`.
/// `None` if they are equal.
fn first<'v>(a: &'v Value, b: &'v Value, declared: Option<&'v Value>) -> Option<Vec<ValueStep<'v>>> {
    let is_wrong = |steps: &[ValueStep<'_>]| {
        declared.is_none_or(|declared| step_down(declared, steps) != step_down(b, steps))
    };
    let mut steps = Vec::new();
    let mut nearest = None;
    search((a, b), &mut steps, &mut |steps| {
        let wrong = is_wrong(steps);
        if wrong || nearest.is_none() {
            nearest = Some(steps.to_vec());
        }
        wrong
    });
    nearest
}

/// Passes each place at which two values differ to `found`, until it accepts one. Returns whether it did.
fn search<'v>(
    (a, b): (&'v Value, &'v Value),
    steps: &mut Vec<ValueStep<'v>>,
    found: &mut dyn FnMut(&[ValueStep<'v>]) -> bool,
) -> bool {
    let mut below = |step: ValueStep<'v>, pair: (Option<&'v Value>, Option<&'v Value>)| {
        steps.push(step);
        let is_found = match pair {
            (Some(a), Some(b)) if steps.len() < DEEPEST => search((a, b), steps, found),
            (Some(a), Some(b)) => a != b && found(steps),
            (None, None) => false,
            _ => found(steps),
        };
        steps.pop();
        is_found
    };
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let added = b.keys().filter(|name| !a.contains_key(*name));
            a.keys().chain(added).any(|name| below(ValueStep::Field(name), (a.get(name), b.get(name))))
        }
        (Value::Array(a), Value::Array(b)) => (0..a.len().max(b.len()))
            .any(|index| below(ValueStep::Index(index), (a.get(index), b.get(index)))),
        (a, b) => a != b && found(steps),
    }
}

fn step_down<'v>(value: &'v Value, steps: &[ValueStep<'_>]) -> Option<&'v Value> {
    steps.iter().try_fold(value, |value, step| match step {
        ValueStep::Field(name) => value.get(*name),
        ValueStep::Index(index) => value.get(*index),
    })
}

impl TextPlace {
    /// `None` for short texts.
    fn find(a: &str, b: &str) -> Option<Self> {
        let is_of_lines = a.contains('\n') || b.contains('\n');
        if !is_of_lines && a.len() <= SHORT && b.len() <= SHORT {
            return None;
        }
        let (mut line, mut column) = (0, 0);
        for (one, other) in a.chars().zip(b.chars()) {
            if one != other {
                break;
            }
            match one {
                '\n' => (line, column) = (line + 1, 0),
                _ => column += 1,
            }
        }
        Some(Self { line, column, is_of_lines })
    }

    /// The part of a text around the place; `None` if it has no such line.
    fn excerpt(&self, text: &str) -> Option<String> {
        let line = text.split('\n').nth(self.line)?;
        let skipped = if self.column + BEFORE <= LINE { 0 } else { self.column - BEFORE };
        let rest = place_of(skipped, line).and_then(|begin| line.get(begin..)).unwrap_or_default();
        let end = place_of(LINE, rest);
        let kept = end.and_then(|end| rest.get(..end)).unwrap_or(rest);
        let mark = |is_cut| if is_cut { "…" } else { "" };
        Some([mark(skipped > 0), kept, mark(end.is_some())].concat())
    }
}

#[cfg(test)]
mod tests;
