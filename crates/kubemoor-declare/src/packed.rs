//! Declared fields at rest: the compressed document that they come from, and a cache of those that were read from it.
//! What is read from a document is what [`declare`] made of it first. A document is never shown: it may be a Secret.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use moka::sync::Cache;
use serde_json::Value;

use super::compressed::Compressed;
use super::declare::declare;
use super::fields::Fields;
use super::schema::{KindSchema, TypeId, Types};

/// Fields that take more than this are kept as they are: to read them again would cost a verdict a
/// millisecond.
pub const HEAVY: usize = 256 << 10;

/// The default memory of a cache for the fields of documents, in bytes.
pub const CACHE: u64 = 8 << 20;

/// What an entry of the cache takes beside the fields, about, in bytes.
const ENTRY: usize = 256;

/// Levels of nesting that a parser of JSON takes whole.
const DEPTH: usize = 100;

/// The declared fields of one document, cached or to be read.
#[derive(Clone)]
pub enum Packed {
    /// As they are.
    Whole(Arc<Fields>),
    /// To be read.
    Document(Arc<Document>),
}

/// A compressed document.
pub struct Document {
    /// Its number among all of the cache.
    number: u64,
    text: Compressed,
    /// The schema of its kind at the time of packing.
    schema: Option<Arc<KindSchema>>,
    cache: Arc<FieldsCache>,
}

/// The fields that were read from documents, within a memory limit.
pub struct FieldsCache {
    fields: Cache<u64, Arc<Fields>>,
    /// How many documents have been packed.
    packed: AtomicU64,
    asked: AtomicU64,
    read: AtomicU64,
}

impl Packed {
    /// The fields that `document` declares by this schema. They are kept as they are where the document would take long
    /// to read.
    pub fn new(
        document: &Value,
        fields: Fields,
        schema: Option<Arc<KindSchema>>,
        cache: &Arc<FieldsCache>,
    ) -> Self {
        if fields.weight() <= HEAVY && is_shallow(document, 0) {
            let text = document.to_string();
            if text.len() <= HEAVY
                && let Ok(text) = Compressed::new(text.as_bytes())
            {
                let number = cache.packed.fetch_add(1, Ordering::Relaxed);
                return Self::Document(Arc::new(Document { number, text, schema, cache: Arc::clone(cache) }));
            }
        }
        fields.into()
    }

    /// The declared fields.
    pub fn fields(&self) -> Arc<Fields> {
        match self {
            Self::Whole(fields) => Arc::clone(fields),
            Self::Document(document) => document.fields(),
        }
    }

    /// Whether both have the same types: then the same document declares the same fields.
    pub fn is_typed_as(&self, other: &Self) -> bool {
        let ((types, root), (others, other)) = (self.types(), other.types());
        root == other && Arc::ptr_eq(types, others)
    }

    /// The memory that this takes beside itself, about, in bytes.
    pub fn weight(&self) -> usize {
        match self {
            Self::Whole(fields) => fields.weight(),
            Self::Document(document) => size_of::<Document>() + document.text.size(),
        }
    }

    fn types(&self) -> (&Arc<Types>, TypeId) {
        match self {
            Self::Whole(fields) => (&fields.types, fields.ty),
            Self::Document(document) => {
                let schema = document.schema.as_deref().unwrap_or_else(|| KindSchema::unknown());
                (&schema.types, schema.root)
            }
        }
    }
}

impl Document {
    fn fields(&self) -> Arc<Fields> {
        self.cache.asked.fetch_add(1, Ordering::Relaxed);
        // Cheaper than `get_with`, which takes memory for the key first.
        if let Some(fields) = self.cache.fields.get(&self.number) {
            return fields;
        }
        self.cache.fields.get_with(self.number, || {
            self.cache.read.fetch_add(1, Ordering::Relaxed);
            // It was compressed here, so it can be read. An empty document would declare nothing.
            let document = self.text.read().ok().and_then(|text| serde_json::from_slice(&text).ok());
            Arc::new(declare(&document.unwrap_or_default(), self.schema.as_deref()))
        })
    }
}

impl FieldsCache {
    /// A cache that takes this much memory, in bytes.
    pub fn within(bytes: u64) -> Self {
        let weigh =
            |_: &u64, fields: &Arc<Fields>| u32::try_from(ENTRY + fields.weight()).unwrap_or(u32::MAX);
        Self {
            fields: Cache::builder().max_capacity(bytes).weigher(weigh).build(),
            packed: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            read: AtomicU64::new(0),
        }
    }

    /// The number of requests for fields.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// The number of documents that were read for them.
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }
}

impl Default for FieldsCache {
    fn default() -> Self {
        Self::within(CACHE)
    }
}

impl From<Fields> for Packed {
    fn from(fields: Fields) -> Self {
        Self::Whole(Arc::new(fields))
    }
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fields().fmt(f)
    }
}

impl fmt::Debug for FieldsCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FieldsCache")
            .field("asked", &self.asked())
            .field("read", &self.read())
            .finish_non_exhaustive()
    }
}

/// Whether the nesting of a value is within the limit of a JSON parser.
fn is_shallow(value: &Value, depth: usize) -> bool {
    let below = |value| is_shallow(value, depth + 1);
    match value {
        Value::Array(items) => depth < DEPTH && items.iter().all(below),
        Value::Object(map) => depth < DEPTH && map.values().all(below),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::embedded;
    use crate::model::Gvk;
    use crate::samples::{Deep, any_value};

    fn schema() -> Option<Arc<KindSchema>> {
        embedded::core().schema(&Gvk::from_api_version("apps/v1", "Deployment"))
    }

    /// The document with the schema of a Deployment.
    fn packed(document: &Value, cache: &Arc<FieldsCache>) -> Packed {
        Packed::new(document, declare(document, schema().as_deref()), schema(), cache)
    }

    fn config_map(number: usize) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": number.to_string()},
        })
    }

    proptest! {
        #[test]
        fn packed_fields_equal_the_declared_fields(document in any_value()) {
            let packed = packed(&document, &Arc::default());
            prop_assert!(matches!(packed, Packed::Document(_)));
            prop_assert!(*packed.fields() == declare(&document, schema().as_deref()));
        }
    }

    #[test]
    fn packed_document_is_read_once_for_concurrent_requests() {
        let cache = Arc::default();
        let packed = packed(&config_map(0), &cache);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| packed.fields());
            }
        });
        assert_eq!((cache.asked(), cache.read()), (8, 1));
    }

    #[test]
    fn a_full_cache_reads_again_and_gives_the_same() {
        let cache = Arc::new(FieldsCache::within(0));
        let documents: Vec<_> = (0..8).map(config_map).collect();
        let packed: Vec<_> = documents.iter().map(|document| packed(document, &cache)).collect();
        for _ in 0..2 {
            for (document, packed) in documents.iter().zip(&packed) {
                assert!(*packed.fields() == declare(document, schema().as_deref()));
            }
        }
        assert_eq!(cache.read(), 16);
    }

    #[test]
    fn heavy_or_deep_documents_are_kept_as_they_are() {
        let is_packed = |document: &Value| {
            let packed = Packed::new(document, declare(document, None), None, &Arc::default());
            matches!(packed, Packed::Document(_))
        };
        let data = |length| json!({"kind": "ConfigMap", "data": {"k": "a".repeat(length)}});
        assert!(is_packed(&data(HEAVY / 2)) && !is_packed(&data(HEAVY)));
        // A status declares nothing, and would be read all the same.
        assert!(!is_packed(&json!({"kind": "ConfigMap", "status": "a".repeat(HEAVY)})));
        assert!(
            is_packed(&Deep::new(DEPTH, Value::Null).0) && !is_packed(&Deep::new(DEPTH + 1, Value::Null).0)
        );
    }

    #[test]
    fn documents_take_a_fraction_of_their_fields_at_rest() {
        let document = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "labels": {"app.kubernetes.io/name": "web"}},
            "spec": {"replicas": 2, "template": {"spec": {"containers": [
                {"name": "app", "image": "web:1", "ports": [{"containerPort": 80}],
                 "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}},
            ]}}},
        });
        let fields = declare(&document, schema().as_deref()).weight();
        let packed = packed(&document, &Arc::default()).weight();
        assert!(packed * 2 < fields, "{packed} of {fields} bytes");
    }
}
