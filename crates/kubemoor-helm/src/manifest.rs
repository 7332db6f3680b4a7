//! Converts a manifest's text to the objects that Helm sends for it.
//!
//! Entry points: [`parse`], [`each`]; then [`identify`], [`place`] and [`own`] convert a document to the
//! object that the API server gets. Invariant: a document that Helm would not send is skipped with its
//! reason, never guessed at. Memory and nesting are bounded for any text. Must not quote a document: it may
//! hold secrets.

use std::fmt;
use std::ops::ControlFlow;

use documents::{Document, Documents};
use serde_json::{Map, Value};
pub use written::{Written, written};

pub use self::owned::{identify, own, place};
pub use self::skipped::{SkipReason, Skipped};
pub use super::yaml::YamlError;
use super::yaml::{self, Budget};
use kubemoor_declare::model::RESOURCE_POLICY;

mod documents;
mod owned;
mod skipped;
mod written;

/// The memory limit for the objects of one manifest, in bytes, where they are held together. A manifest that
/// fits into a Secret stays far below it.
const MEMORY: usize = 128 << 20;

/// The memory that the objects of one document may take, in bytes. etcd holds
/// no object of more than 1.5 MiB.
const DOCUMENT: usize = 24 << 20;

/// The maximum length of a document that is parsed on its own, in bytes. The API server accepts no request of
/// more than 3 MiB.
const LONGEST: usize = 4 << 20;

/// The most documents that are read one by one, empty ones among them.
const MAX_DOCUMENTS: usize = 50_000;

/// The maximum number of skipped documents that are reported.
const MAX_SKIPPED: usize = 64;

/// The deepest nesting of lists in lists.
const LIST_DEPTH: usize = 8;

/// The cost of a skipped document in [`MEMORY`].
const SKIPPED: usize = 256;

/// An object of a manifest.
pub struct ManifestObject {
    /// The object as written: without Helm's metadata keys and without a namespace that it leaves out.
    pub value: Value,
    /// Its document says `helm.sh/resource-policy: keep`, so that an uninstallation leaves it alone. Helm reads
    /// this in the metadata of a whole document and ignores the annotation of a list's item.
    pub is_kept: bool,
}

/// The objects of a manifest, and its skipped documents.
#[derive(Default)]
pub struct Manifest {
    /// The objects in the manifest's order, lists taken apart, as written:
    /// without Helm's metadata keys and without a namespace that they leave out.
    pub objects: Vec<Value>,
    /// The documents that Helm would not send.
    pub skipped: Vec<Skipped>,
}

struct Reader {
    objects: Vec<ManifestObject>,
    skipped: Vec<Skipped>,
    budget: Budget,
}

enum Kind {
    Object(Value),
    List(Vec<Value>),
}

/// Parses a manifest as Helm does when it applies it: documents apart at `---`
/// lines (or JSON objects one after the other), YAML by Go's rules, any object
/// with `items` taken apart as a list, empty documents passed over.
pub fn parse(manifest: &str) -> Manifest {
    parse_within(manifest, MEMORY)
}

/// Like [`parse`], but passes the objects one by one, so that only those of one document are in memory. Stops
/// when `take` breaks. Only the first skipped documents are reported.
pub fn each(manifest: &str, mut take: impl FnMut(ManifestObject) -> ControlFlow<()>) -> Vec<Skipped> {
    let mut skipped = Vec::new();
    for (index, document) in Documents::of(manifest).enumerate() {
        let mut reader = Reader::new(DOCUMENT);
        if index >= MAX_DOCUMENTS {
            skipped.truncate(MAX_SKIPPED - 1);
            skipped.push(Skipped { index, source: None, reason: SkipReason::TooMany });
            break;
        }
        if document.length() > LONGEST || reader.document(index, document).is_none() {
            reader.objects.clear();
            reader.skipped = vec![Skipped { index, source: None, reason: SkipReason::Memory }];
        }
        let room = MAX_SKIPPED.saturating_sub(skipped.len());
        skipped.extend(reader.skipped.into_iter().take(room));
        if reader.objects.into_iter().try_for_each(&mut take).is_break() {
            break;
        }
    }
    skipped
}

fn parse_within(manifest: &str, memory: usize) -> Manifest {
    let mut reader = Reader::new(memory);
    for (index, document) in Documents::of(manifest).enumerate() {
        if reader.document(index, document).is_none() {
            reader.skipped.push(Skipped { index, source: None, reason: SkipReason::Memory });
            break;
        }
    }
    Manifest { objects: reader.objects.into_iter().map(|it| it.value).collect(), skipped: reader.skipped }
}

impl Reader {
    fn new(memory: usize) -> Self {
        Self { objects: Vec::new(), skipped: Vec::new(), budget: Budget::new(memory) }
    }

    /// Takes one document; `None` when the budget is used up.
    fn document(&mut self, index: usize, document: Document<'_>) -> Option<()> {
        let (value, source) = match document {
            Document::Json(json) => {
                self.budget.charge(json.cost())?;
                match json.value() {
                    Some(value) => (value, None),
                    None => return self.skip(index, None, SkipReason::Depth),
                }
            }
            Document::Malformed(reason) => return self.skip(index, None, reason),
            Document::Yaml(text) => {
                let text = documents::unbroken(text);
                let source = documents::source(&text);
                match yaml::to_json(&text, &mut self.budget) {
                    Ok(value) => (value, source),
                    Err(YamlError::Memory { .. }) => return None,
                    Err(error) => return self.skip(index, source, error.into()),
                }
            }
        };
        if value.is_null() {
            return Some(());
        }
        self.value(index, source, value)
    }

    /// Takes a value apart until only objects are left. Lists come after what
    /// stood beside them, level by level, as in Helm's flattening.
    fn value(&mut self, index: usize, source: Option<String>, value: Value) -> Option<()> {
        let is_kept = is_kept(&value);
        let mut level = vec![value];
        for _ in 0..LIST_DEPTH {
            let mut next = Vec::new();
            for value in level {
                match classify(value) {
                    Ok(Kind::Object(value)) => self.objects.push(ManifestObject { value, is_kept }),
                    Ok(Kind::List(items)) => next.extend(items),
                    Err(reason) => self.skip(index, source.clone(), reason)?,
                }
            }
            level = next;
        }
        if level.is_empty() { Some(()) } else { self.skip(index, source, SkipReason::Items) }
    }

    fn skip(&mut self, index: usize, source: Option<String>, reason: SkipReason) -> Option<()> {
        self.budget.charge(SKIPPED + source.as_ref().map_or(0, String::len))?;
        self.skipped.push(Skipped { index, source, reason });
        Some(())
    }
}

/// Whether an uninstallation leaves a document's objects alone, by Helm's own spelling rules.
fn is_kept(document: &Value) -> bool {
    let annotations = document.pointer("/metadata/annotations");
    let policy = annotations.and_then(|annotations| annotations.get(RESOURCE_POLICY)?.as_str());
    policy.is_some_and(|policy| policy.trim().eq_ignore_ascii_case("keep"))
}

/// Whether a value is an object or a list of objects, by apimachinery's test: a value with `items` is a list,
/// whatever its kind.
fn classify(value: Value) -> Result<Kind, SkipReason> {
    let Value::Object(mut map) = value else { return Err(SkipReason::NotAMap) };
    let kind = text(&map, "kind").ok_or(SkipReason::Missing { field: "kind" })?.to_owned();
    if let Some(items) = map.remove("items") {
        let items = match items {
            Value::Array(items) => items,
            Value::Null => Vec::new(),
            _ => return Err(SkipReason::Items),
        };
        let api_version = text(&map, "apiVersion").unwrap_or_default();
        return Ok(Kind::List(items.into_iter().map(|item| typed(item, &kind, api_version)).collect()));
    }
    if text(&map, "apiVersion").is_none() {
        return Err(SkipReason::Missing { field: "apiVersion" });
    }
    let metadata = map.get("metadata").and_then(Value::as_object);
    if metadata.and_then(|metadata| text(metadata, "name")).is_some() {
        return Ok(Kind::Object(Value::Object(map)));
    }
    Err(match metadata.and_then(|metadata| text(metadata, "generateName")) {
        Some(_) => SkipReason::GeneratedName,
        None => SkipReason::Missing { field: "metadata.name" },
    })
}

/// An item that names neither apiVersion nor kind has its list's.
fn typed(mut item: Value, list_kind: &str, api_version: &str) -> Value {
    if let Value::Object(map) = &mut item
        && text(map, "kind").is_none()
        && text(map, "apiVersion").is_none()
    {
        let kind = list_kind.strip_suffix("List").unwrap_or(list_kind);
        map.insert("kind".to_owned(), Value::String(kind.to_owned()));
        map.insert("apiVersion".to_owned(), Value::String(api_version.to_owned()));
    }
    item
}

fn text<'a>(map: &'a Map<String, Value>, field: &str) -> Option<&'a str> {
    map.get(field).and_then(Value::as_str).filter(|text| !text.is_empty())
}

impl fmt::Debug for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manifest")
            .field("objects", &format_args!("<{} objects>", self.objects.len()))
            .field("skipped", &self.skipped)
            .finish()
    }
}

#[cfg(test)]
mod tests;
