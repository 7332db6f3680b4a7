//! Converts a manifest's text to the objects that Helm sends for it: [`parse`] and [`each`] split it into documents as
//! apimachinery's `YAMLOrJSONDecoder` does; [`identify`], [`set_object_namespace`] and [`set_helm_metadata`] convert a
//! document to the object that the API server gets. A document that Helm would not send is skipped with its reason.
//! Memory and nesting are bounded for any text. No reason quotes a document: it may hold secrets.

use std::borrow::Cow;
use std::fmt;
use std::ops::ControlFlow;

use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::release::gvk;
pub use super::yaml::YamlError;
use super::yaml::{self, Budget, shortest};
use kubemoor_declare::model::{
    MANAGED_BY, ObjectId, RELEASE_NAME, RELEASE_NAMESPACE, RESOURCE_POLICY, ReleaseId,
};

/// The memory limit for the objects of one manifest, in bytes, if all are in memory at once. A manifest that fits into
/// a Secret stays far below it.
const MEMORY: usize = 128 << 20;

/// The memory that the objects of one document may take, in bytes. etcd holds no object of more than 1.5 MiB.
const DOCUMENT: usize = 24 << 20;

/// The maximum length of a document that is parsed on its own, in bytes. The API server accepts no request of
/// more than 3 MiB.
const LONGEST: usize = 4 << 20;

const MAX_DOCUMENTS: usize = 50_000;

const MAX_SKIPPED: usize = 64;

const LIST_DEPTH: usize = 8;

/// The cost of a skipped document in [`MEMORY`].
const SKIPPED: usize = 256;

pub struct ManifestObject {
    /// The object as written: without Helm's metadata keys and without a namespace that it leaves out.
    pub value: Value,
    /// Its document says `helm.sh/resource-policy: keep`, so that an uninstall keeps it. Helm reads this in the
    /// metadata of a whole document and ignores the annotation of a list's item.
    pub is_kept: bool,
}

#[derive(Default)]
pub struct Manifest {
    /// The objects in the manifest's order, with lists flattened, as written: without Helm's metadata keys and without
    /// a namespace that they omit.
    pub objects: Vec<Value>,
    pub skipped: Vec<SkippedDocument>,
}

struct ManifestReader {
    objects: Vec<ManifestObject>,
    skipped: Vec<SkippedDocument>,
    budget: Budget,
}

enum ObjectOrList {
    Object(Value),
    List(Vec<Value>),
}

/// Parses a manifest as Helm does when it applies it: documents are split at `---` lines (or are JSON objects in a
/// row), YAML follows Go's rules, any object with `items` is flattened as a list, and empty documents are ignored.
pub fn parse(manifest: &str) -> Manifest {
    parse_within(manifest, MEMORY)
}

/// Like [`parse`], but passes the objects one by one, so that only those of one document are in memory. Stops
/// when `take` breaks. Only the first skipped documents are reported.
pub fn each(manifest: &str, mut take: impl FnMut(ManifestObject) -> ControlFlow<()>) -> Vec<SkippedDocument> {
    let mut skipped = Vec::new();
    for (index, document) in ManifestDocuments::new(manifest).enumerate() {
        let mut reader = ManifestReader::new(DOCUMENT);
        if index >= MAX_DOCUMENTS {
            skipped.truncate(MAX_SKIPPED - 1);
            skipped.push(SkippedDocument { index, source: None, reason: SkipReason::TooMany });
            break;
        }
        if document.length() > LONGEST || reader.document(index, document).is_none() {
            reader.objects.clear();
            reader.skipped = vec![SkippedDocument { index, source: None, reason: SkipReason::Memory }];
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
    let mut reader = ManifestReader::new(memory);
    for (index, document) in ManifestDocuments::new(manifest).enumerate() {
        if reader.document(index, document).is_none() {
            reader.skipped.push(SkippedDocument { index, source: None, reason: SkipReason::Memory });
            break;
        }
    }
    Manifest { objects: reader.objects.into_iter().map(|it| it.value).collect(), skipped: reader.skipped }
}

impl ManifestReader {
    fn new(memory: usize) -> Self {
        Self { objects: Vec::new(), skipped: Vec::new(), budget: Budget::new(memory) }
    }

    /// Takes one document; `None` when the budget is used up.
    fn document(&mut self, index: usize, document: YamlDocument<'_>) -> Option<()> {
        let (value, source) = match document {
            YamlDocument::Json(json) => {
                self.budget.charge(json.cost())?;
                match json.value() {
                    Some(value) => (value, None),
                    None => return self.skip(index, None, SkipReason::Depth),
                }
            }
            YamlDocument::Malformed(reason) => return self.skip(index, None, reason),
            YamlDocument::Yaml(text) => {
                let text = unbroken(text);
                let source = source_file(&text);
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

    /// Flattens a value into objects. As in Helm, lists are flattened level by level, so their items come after the
    /// objects beside them.
    fn value(&mut self, index: usize, source: Option<String>, value: Value) -> Option<()> {
        let is_kept = is_kept(&value);
        let mut level = vec![value];
        for _ in 0..LIST_DEPTH {
            let mut next = Vec::new();
            for value in level {
                match classify(value) {
                    Ok(ObjectOrList::Object(value)) => self.objects.push(ManifestObject { value, is_kept }),
                    Ok(ObjectOrList::List(items)) => next.extend(items),
                    Err(reason) => self.skip(index, source.clone(), reason)?,
                }
            }
            level = next;
        }
        if level.is_empty() { Some(()) } else { self.skip(index, source, SkipReason::Items) }
    }

    fn skip(&mut self, index: usize, source: Option<String>, reason: SkipReason) -> Option<()> {
        self.budget.charge(SKIPPED + source.as_ref().map_or(0, String::len))?;
        self.skipped.push(SkippedDocument { index, source, reason });
        Some(())
    }
}

/// Whether an uninstall keeps a document's objects, by Helm's own parsing of the annotation.
fn is_kept(document: &Value) -> bool {
    let annotations = document.pointer("/metadata/annotations");
    let policy = annotations.and_then(|annotations| annotations.get(RESOURCE_POLICY)?.as_str());
    policy.is_some_and(|policy| policy.trim().eq_ignore_ascii_case("keep"))
}

/// Whether a value is an object or a list of objects, by apimachinery's test: a value with `items` is a list,
/// whatever its kind.
fn classify(value: Value) -> Result<ObjectOrList, SkipReason> {
    let Value::Object(mut map) = value else { return Err(SkipReason::NotAMap) };
    let kind = text(&map, "kind").ok_or(SkipReason::Missing { field: "kind" })?.to_owned();
    if let Some(items) = map.remove("items") {
        let items = match items {
            Value::Array(items) => items,
            Value::Null => Vec::new(),
            _ => return Err(SkipReason::Items),
        };
        let api_version = text(&map, "apiVersion").unwrap_or_default();
        return Ok(ObjectOrList::List(
            items.into_iter().map(|item| typed(item, &kind, api_version)).collect(),
        ));
    }
    if text(&map, "apiVersion").is_none() {
        return Err(SkipReason::Missing { field: "apiVersion" });
    }
    let metadata = map.get("metadata").and_then(Value::as_object);
    if metadata.and_then(|metadata| text(metadata, "name")).is_some() {
        return Ok(ObjectOrList::Object(Value::Object(map)));
    }
    Err(match metadata.and_then(|metadata| text(metadata, "generateName")) {
        Some(_) => SkipReason::GeneratedName,
        None => SkipReason::Missing { field: "metadata.name" },
    })
}

/// Gives an item without apiVersion and kind those of its list.
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

/// How far the decoder looks for an opening brace.
const GUESS: usize = 4096;

/// The memory that a `{` of JSON can cost, in bytes: a map's first leaf.
const BRACE: usize = 640;

/// The memory that a `,` or `[` of JSON can cost, in bytes: an entry's slot, and as much again for growth.
const COMMA: usize = 112;

enum YamlDocument<'a> {
    Yaml(&'a str),
    Json(Json<'a>),
    /// Lines that are not a document.
    Malformed(SkipReason),
}

struct Json<'a>(&'a str);

struct ManifestDocuments<'a> {
    rest: &'a str,
    /// JSON objects read so far, while the text is taken for JSON.
    json: Option<usize>,
}

impl<'a> ManifestDocuments<'a> {
    /// The documents of `text`: consecutive JSON objects if it begins with a brace, for as long as they parse; else
    /// YAML.
    fn new(text: &'a str) -> Self {
        let trimmed = text.trim_start();
        let json = trimmed.starts_with('{') && text.len() - trimmed.len() < GUESS;
        Self { rest: text, json: json.then_some(0) }
    }

    /// The next JSON object. Once one fails, the rest is YAML, unless the text
    /// has proved to be JSON by two objects in a row.
    fn next_json(&mut self, read: usize) -> Option<YamlDocument<'a>> {
        let mut objects = serde_json::Deserializer::from_str(self.rest).into_iter::<IgnoredAny>();
        let found = objects.next()?.ok().and_then(|_| self.rest.split_at_checked(objects.byte_offset()));
        if let Some((text, rest)) = found {
            self.json = Some(read + 1);
            self.rest = rest;
            return Some(YamlDocument::Json(Json(text)));
        }
        if read > 1 {
            self.rest = "";
            return Some(YamlDocument::Malformed(SkipReason::Json));
        }
        self.json = None;
        // The rest of the last object's line is blank.
        let blank = self.rest.len() - self.rest.trim_start().len();
        let blank = self.rest.get(..blank).and_then(|text| text.find('\n')).map_or(blank, |at| at + 1);
        self.rest = self.rest.get(blank..).unwrap_or_default();
        self.next()
    }
}

impl YamlDocument<'_> {
    fn length(&self) -> usize {
        match self {
            Self::Yaml(text) => text.len(),
            Self::Json(json) => json.0.len(),
            Self::Malformed(_) => 0,
        }
    }
}

impl Json<'_> {
    /// The maximum memory of the value in bytes.
    fn cost(&self) -> usize {
        let bytes = self.0.bytes().map(|byte| match byte {
            b'{' => BRACE,
            b',' | b'[' => COMMA,
            _ => 1,
        });
        bytes.sum()
    }

    /// The value; `None` when it is nested beyond the parser's bound.
    fn value(&self) -> Option<Value> {
        let mut value = serde_json::from_str(self.0).ok()?;
        normalise(&mut value);
        Some(value)
    }
}

impl<'a> Iterator for ManifestDocuments<'a> {
    type Item = YamlDocument<'a>;

    fn next(&mut self) -> Option<YamlDocument<'a>> {
        if let Some(read) = self.json {
            return self.next_json(read);
        }
        if self.rest.is_empty() {
            return None;
        }
        let mut end = 0;
        for line in self.rest.split_inclusive('\n') {
            let Some(after) = line.strip_prefix("---") else {
                end += line.len();
                continue;
            };
            let after = after.trim();
            if !after.is_empty() && !after.starts_with('#') {
                self.rest = self.rest.get(end + line.len()..).unwrap_or_default();
                return Some(YamlDocument::Malformed(SkipReason::Separator));
            }
            if end != 0 {
                break;
            }
            // A separator before any content belongs to the document.
            end += line.len();
        }
        let (document, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        self.rest =
            rest.strip_prefix("---").map_or("", |rest| rest.split_once('\n').map_or("", |(_, rest)| rest));
        Some(YamlDocument::Yaml(document))
    }
}

/// The template that rendered a document, from Helm's comment above it.
fn source_file(document: &str) -> Option<String> {
    let head = document.lines().take_while(|line| line.is_empty() || line.starts_with(['#', '-']));
    let path = head.filter_map(|line| line.strip_prefix("# Source: ")).next()?;
    Some(path.chars().filter(|letter| !letter.is_control()).take(256).collect())
}

/// Replaces `\r\n` with `\n`, as Go's line reader does.
fn unbroken(text: &str) -> Cow<'_, str> {
    if text.contains("\r\n") { text.replace("\r\n", "\n").into() } else { text.into() }
}

/// Converts numbers as Go's JSON does. The recursion is bounded by serde_json's own limit.
fn normalise(value: &mut Value) {
    match value {
        Value::Number(number) if number.as_i64().is_none() => {
            if let Some(passed_on) = number.as_f64().and_then(shortest) {
                *number = passed_on;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalise),
        Value::Object(entries) => entries.values_mut().for_each(normalise),
        _ => {}
    }
}

/// The identity of `object` in the cluster. `namespaced` is the scope of its kind; an unknown kind counts as
/// namespaced.
///
/// As in Helm, a cluster-scoped object never has a namespace, whatever its manifest says, and a namespaced
/// one without a namespace gets the release's.
pub fn identify(object: &Value, release: &ReleaseId, namespaced: Option<bool>) -> ObjectId {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let gvk = gvk(object);
    let namespace = match (namespaced, text("/metadata/namespace")) {
        (Some(false), _) => None,
        (_, "") => Some(release.namespace.clone()),
        (_, explicit) => Some(explicit.into()),
    };
    ObjectId {
        group: gvk.group.into(),
        kind: gvk.kind.into(),
        namespace,
        name: text("/metadata/name").into(),
    }
}

/// Sets `metadata.namespace` to the namespace of `id`, as Helm does before it sends the object.
pub fn set_object_namespace(object: &mut Value, id: &ObjectId) {
    let Some(metadata) = child(object, "metadata") else { return };
    match &id.namespace {
        Some(namespace) => metadata.insert("namespace".to_owned(), Value::String(namespace.to_string())),
        None => metadata.remove("namespace"),
    };
}

/// Sets the label and the two annotations that Helm forces on every object of a release, over the manifest's own
/// values. A label or annotation that is null becomes "", as in Helm.
pub fn set_helm_metadata(object: &mut Value, release: &ReleaseId) {
    let Some(metadata) = child(object, "metadata") else { return };
    force(metadata, "labels", &[MANAGED_BY]);
    force(metadata, "annotations", &[(RELEASE_NAME, &release.name), (RELEASE_NAMESPACE, &release.namespace)]);
}

/// Sets `entries` in the string map `field` of `metadata`.
fn force(metadata: &mut Map<String, Value>, field: &str, entries: &[(&str, &str)]) {
    let mut texts = match metadata.remove(field) {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    };
    for value in texts.values_mut().filter(|value| value.is_null()) {
        *value = Value::String(String::new());
    }
    for (key, value) in entries {
        texts.insert((*key).to_owned(), Value::String((*value).to_owned()));
    }
    metadata.insert(field.to_owned(), Value::Object(texts));
}

/// The map at `field` of `object`, created if absent.
fn child<'a>(object: &'a mut Value, field: &str) -> Option<&'a mut Map<String, Value>> {
    object.as_object_mut()?.entry(field).or_insert_with(|| Value::Object(Map::new())).as_object_mut()
}

/// An object as its manifest states it. Has no `Debug`, because it may hold secrets.
pub struct SourceDocument {
    /// The template that rendered it, as Helm notes above it.
    pub source: Option<String>,
    pub object: Value,
}

/// The last YAML document of a manifest that consists of this object alone.
pub fn find_document(manifest: &str, object: &ObjectId) -> Option<SourceDocument> {
    let mut found = None;
    for document in ManifestDocuments::new(manifest).take(MAX_DOCUMENTS) {
        let YamlDocument::Yaml(text) = document else { continue };
        let may_be = text.len() <= LONGEST && text.contains(&*object.kind) && text.contains(&*object.name);
        if !may_be {
            continue;
        }
        let mut budget = Budget::new(DOCUMENT);
        let Ok(value) = yaml::to_json(text, &mut budget) else { continue };
        if is_object(&value, object) {
            found = Some(SourceDocument { source: source_file(text), object: value });
        }
    }
    found
}

/// Whether a document is this object. A document without a namespace is in its release's namespace, or in none.
fn is_object(value: &Value, object: &ObjectId) -> bool {
    let text = |pointer| value.pointer(pointer).and_then(Value::as_str);
    let gvk = gvk(value);
    gvk.group == object.group
        && gvk.kind == object.kind
        && text("/metadata/name") == Some(&object.name)
        && text("/metadata/namespace").is_none_or(|namespace| object.namespace.as_deref() == Some(namespace))
}

/// A document, or an item of a list in one, that is not an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedDocument {
    /// The document's position in the manifest, from 0, empty ones counted.
    pub index: usize,
    /// The template that rendered it, as Helm notes above each document.
    pub source: Option<String>,
    pub reason: SkipReason,
}

/// Why a document is not an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SkipReason {
    #[error("it is not YAML as Helm reads it: {0}")]
    Yaml(#[from] YamlError),
    #[error("text follows the `---` before it")]
    Separator,
    #[error("it is not JSON; nothing from here on was read")]
    Json,
    #[error("its JSON is nested too deeply")]
    Depth,
    #[error("it is not a map")]
    NotAMap,
    #[error("it has no {field}")]
    Missing {
        /// The field: `apiVersion`, `kind` or `metadata.name`.
        field: &'static str,
    },
    #[error("its name is generated by the API server")]
    GeneratedName,
    #[error("its items are not a list of objects")]
    Items,
    #[error("it is beyond the first {MAX_DOCUMENTS} documents; nothing from here on was read")]
    TooMany,
    #[error("its objects exceed their memory limit")]
    Memory,
}

#[cfg(test)]
mod tests;
