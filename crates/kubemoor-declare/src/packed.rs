//! Compressed storage of declared fields: manifest documents, compressed together, and a cache of recently
//! used fields.
//!
//! Entry points: [`BlockWriter`] packs documents, [`Packed::fields`] reads one. Invariant: the result equals
//! that of [`declare`] on the document, cached or not. Reading one costs at most inflating [`BLOCK`] bytes
//! and parsing one document. Concurrent requests for a document read it once. Must not show a document: it
//! may be a Secret.

use std::fmt;
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use moka::sync::Cache;
use serde_json::Value;

use super::compressed::Compressed;
use super::declare::declare;
use super::fields::Fields;
use super::schema::{KindSchema, TypeId, Types};

/// Fields that take more than this are kept as they are: to read them again would cost a verdict a
/// millisecond.
pub const HEAVY: usize = 256 << 10;

/// The text of the documents that are compressed together, in bytes; one document alone may be longer.
pub const BLOCK: usize = 16 << 10;

/// The default memory of a cache for the fields of documents, in bytes.
pub const CACHE: u64 = 8 << 20;

/// How long a cache keeps fields that nobody asks for, until [`FieldsCache::drop_idle`] is called.
pub const IDLE: Duration = Duration::from_secs(30);

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
    Document {
        /// Where the document lies.
        block: Arc<Block>,
        /// Its number in the block.
        index: u32,
        /// The schema of its kind at the time of packing.
        schema: Option<Arc<KindSchema>>,
    },
}

/// Some documents, compressed together.
pub struct Block {
    compressed: Compressed,
    /// Where in the text each document ends.
    ends: Box<[u32]>,
    /// The number of the first document among all of the cache.
    first: u64,
    cache: Arc<FieldsCache>,
}

/// The recently used fields, within a memory limit.
pub struct FieldsCache {
    fields: Cache<u64, Arc<Fields>>,
    /// How many documents have been packed.
    packed: AtomicU64,
    asked: AtomicU64,
    read: AtomicU64,
}

/// Packs documents into one block.
#[derive(Default)]
pub struct BlockWriter {
    text: Vec<u8>,
    ends: Vec<u32>,
}

impl Packed {
    /// The declared fields.
    pub fn fields(&self) -> Arc<Fields> {
        match self {
            Self::Whole(fields) => Arc::clone(fields),
            Self::Document { block, index, schema } => block.fields(*index, schema.as_deref()),
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
            Self::Document { block, .. } => {
                size_of::<u32>() + (size_of::<Block>() + block.compressed.size()) / block.ends.len().max(1)
            }
        }
    }
}

impl Packed {
    fn types(&self) -> (&Arc<Types>, TypeId) {
        match self {
            Self::Whole(fields) => (&fields.types, fields.ty),
            Self::Document { schema, .. } => {
                let schema = schema.as_deref().unwrap_or_else(|| KindSchema::unknown());
                (&schema.types, schema.root)
            }
        }
    }
}

impl BlockWriter {
    /// Takes in a document whose fields take so many bytes of memory, unless they are to be kept as they
    /// are. Tells whether it did.
    pub fn take(&mut self, document: &Value, weight: usize) -> bool {
        if weight > HEAVY || !is_shallow(document, 0) {
            return false;
        }
        let text = document.to_string();
        let Some(end) = u32::try_from(self.text.len() + text.len()).ok().filter(|_| text.len() <= HEAVY)
        else {
            return false;
        };
        self.text.extend(text.into_bytes());
        self.ends.push(end);
        true
    }

    /// Whether the block is as long as it may be.
    pub fn is_full(&self) -> bool {
        self.text.len() >= BLOCK
    }

    /// The finished block, whose documents' fields are kept in `cache`. Empties this.
    ///
    /// # Errors
    /// When it cannot be compressed.
    pub fn finish(&mut self, cache: &Arc<FieldsCache>) -> io::Result<Block> {
        let (text, ends) = (mem::take(&mut self.text), mem::take(&mut self.ends));
        let compressed = Compressed::new(&text)?;
        let first = cache.packed.fetch_add(ends.len() as u64, Ordering::Relaxed);
        Ok(Block { compressed, ends: ends.into(), first, cache: Arc::clone(cache) })
    }
}

impl Block {
    fn fields(&self, index: u32, schema: Option<&KindSchema>) -> Arc<Fields> {
        self.cache.asked.fetch_add(1, Ordering::Relaxed);
        let key = self.first + u64::from(index);
        // Cheaper than `get_with`, which takes memory for the key first.
        if let Some(fields) = self.cache.fields.get(&key) {
            return fields;
        }
        self.cache.fields.get_with(key, || {
            self.cache.read.fetch_add(1, Ordering::Relaxed);
            // The block was compressed here, so it can be read. An empty document would declare nothing.
            Arc::new(declare(&self.document(index).unwrap_or_default(), schema))
        })
    }

    fn document(&self, index: u32) -> Option<Value> {
        let index = usize::try_from(index).ok()?;
        let at = |index: usize| Some(usize::try_from(*self.ends.get(index)?).unwrap_or(usize::MAX));
        let (start, end) = (index.checked_sub(1).map_or(Some(0), at)?, at(index)?);
        let text = self.compressed.read(end as u64).ok()?;
        serde_json::from_slice(text.get(start..)?).ok()
    }
}

impl FieldsCache {
    /// A cache that takes this much memory, in bytes.
    pub fn within(bytes: u64) -> Self {
        Self::new(bytes, IDLE)
    }

    /// Drops the fields that nobody has asked for in [`IDLE`]: at a start all objects are compared once, and most
    /// are not edited for days.
    pub fn drop_idle(&self) {
        self.fields.run_pending_tasks();
    }

    /// The number of requests for fields.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// The number of documents that were read for them.
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// A cache that takes this much memory, in bytes, and keeps fields that nobody asks for so long.
    fn new(bytes: u64, idle: Duration) -> Self {
        let weigh =
            |_: &u64, fields: &Arc<Fields>| u32::try_from(ENTRY + fields.weight()).unwrap_or(u32::MAX);
        Self {
            fields: Cache::builder().max_capacity(bytes).weigher(weigh).time_to_idle(idle).build(),
            packed: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            read: AtomicU64::new(0),
        }
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
mod tests;
