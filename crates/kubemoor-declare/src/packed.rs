//! Declared fields stored as the compressed document that they come from, and a cache of unpacked ones. Unpacking a
//! document gives the same fields that [`declare`] returned for it. A document is never shown: it may be a Secret.

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::Compression;
use flate2::bufread::DeflateDecoder;
use flate2::write::DeflateEncoder;
use moka::sync::Cache;
use serde_json::Value;

use super::declare::declare;
use super::fields::DeclaredFields;
use super::schema::{KindSchema, TypeId, Types, is_deeper};

/// Larger fields are not packed, because unpacking them would cost a verdict a millisecond.
pub const HEAVY: usize = 256 << 10;

pub const CACHE: u64 = 8 << 20;

/// The approximate memory of a cache entry in bytes, without its fields.
const ENTRY: usize = 256;

/// The nesting depth that every JSON parser accepts; deeper documents are not packed.
const DEPTH: usize = 100;

/// The declared fields of one document, in memory or packed.
#[derive(Clone)]
pub enum PackedFields {
    Whole(Arc<DeclaredFields>),
    Document(Arc<PackedDocument>),
}

pub struct PackedDocument {
    /// Its key in the cache.
    number: u64,
    text: Compressed,
    /// The schema of its kind at the time of packing.
    schema: Option<Arc<KindSchema>>,
    cache: Arc<FieldsCache>,
}

/// A cache of unpacked fields with a memory limit.
pub struct FieldsCache {
    fields: Cache<u64, Arc<DeclaredFields>>,
    packed: AtomicU64,
    asked: AtomicU64,
    read: AtomicU64,
}

impl PackedFields {
    /// Packs the fields that `document` declares by this schema, unless the document would take long to unpack.
    pub fn new(
        document: &Value,
        fields: DeclaredFields,
        schema: Option<Arc<KindSchema>>,
        cache: &Arc<FieldsCache>,
    ) -> Self {
        if fields.weight() <= HEAVY && !is_deeper(document, DEPTH) {
            let text = document.to_string();
            if text.len() <= HEAVY
                && let Ok(text) = Compressed::new(text.as_bytes())
            {
                let number = cache.packed.fetch_add(1, Ordering::Relaxed);
                return Self::Document(Arc::new(PackedDocument {
                    number,
                    text,
                    schema,
                    cache: Arc::clone(cache),
                }));
            }
        }
        fields.into()
    }

    pub fn fields(&self) -> Arc<DeclaredFields> {
        match self {
            Self::Whole(fields) => Arc::clone(fields),
            Self::Document(document) => document.fields(),
        }
    }

    /// Whether both have the same types, so that equal documents declare equal fields.
    pub fn is_typed_as(&self, other: &Self) -> bool {
        let ((types, root), (others, other)) = (self.types(), other.types());
        root == other && Arc::ptr_eq(types, others)
    }

    pub fn weight(&self) -> usize {
        match self {
            Self::Whole(fields) => fields.weight(),
            Self::Document(document) => size_of::<PackedDocument>() + document.text.size(),
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

impl PackedDocument {
    fn fields(&self) -> Arc<DeclaredFields> {
        self.cache.asked.fetch_add(1, Ordering::Relaxed);
        // Cheaper than `get_with`, which first allocates the key.
        if let Some(fields) = self.cache.fields.get(&self.number) {
            return fields;
        }
        self.cache.fields.get_with(self.number, || {
            self.cache.read.fetch_add(1, Ordering::Relaxed);
            // It was compressed here, so it can be unpacked. An empty document would declare nothing.
            let document = self.text.read().ok().and_then(|text| serde_json::from_slice(&text).ok());
            Arc::new(declare(&document.unwrap_or_default(), self.schema.as_deref()))
        })
    }
}

impl FieldsCache {
    pub fn within(bytes: u64) -> Self {
        let weigh = |_: &u64, fields: &Arc<DeclaredFields>| {
            u32::try_from(ENTRY + fields.weight()).unwrap_or(u32::MAX)
        };
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

    /// The number of documents that were unpacked for them.
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }
}

impl Default for FieldsCache {
    fn default() -> Self {
        Self::within(CACHE)
    }
}

impl From<DeclaredFields> for PackedFields {
    fn from(fields: DeclaredFields) -> Self {
        Self::Whole(Arc::new(fields))
    }
}

impl fmt::Debug for PackedFields {
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

/// Higher levels take longer and save next to nothing.
const LEVEL: Compression = Compression::new(4);

/// Some bytes, deflated (RFC 1951).
pub struct Compressed(Box<[u8]>);

impl Compressed {
    pub fn new(bytes: &[u8]) -> io::Result<Self> {
        let mut encoder = DeflateEncoder::new(Vec::new(), LEVEL);
        encoder.write_all(bytes)?;
        Ok(Self(encoder.finish()?.into()))
    }

    pub fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        DeflateDecoder::new(&*self.0).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    pub fn size(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests;
