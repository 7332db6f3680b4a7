//! The objects of one manifest on their way to rest.
//!
//! Entry point: [`Packing`]. Invariant: what comes out is what went in, in its order. Must not drop an object because it
//! cannot be compressed.

use std::mem;
use std::sync::Arc;

use serde_json::Value;

use super::Declared;
use kubemoor_declare::model::ObjectId;
use kubemoor_declare::packed::{BlockWriter, FieldsCache, Packed};
use kubemoor_declare::schema::KindSchema;

/// The objects of a manifest, with the last ones in a block that is not full.
pub(super) struct Packing<'a> {
    cache: &'a Arc<FieldsCache>,
    writer: BlockWriter,
    objects: Vec<(Arc<ObjectId>, Arc<Declared>)>,
    /// Those whose documents the block takes in.
    pending: Vec<(ObjectId, Declared, Option<Arc<KindSchema>>)>,
}

impl<'a> Packing<'a> {
    pub(super) fn new(cache: &'a Arc<FieldsCache>) -> Self {
        Self { cache, writer: BlockWriter::default(), objects: Vec::new(), pending: Vec::new() }
    }

    /// How many objects there are.
    pub(super) fn count(&self) -> usize {
        self.objects.len() + self.pending.len()
    }

    /// Adds the object of this document, declared by this schema.
    pub(super) fn add(
        &mut self,
        object: ObjectId,
        declared: Declared,
        document: &Value,
        schema: Option<Arc<KindSchema>>,
    ) {
        // A block ends before an object that it does not take: the order stays.
        if !self.writer.take(document, declared.weight()) {
            self.end_block();
            self.objects.push((Arc::new(object), Arc::new(declared)));
            return;
        }
        self.pending.push((object, declared, schema));
        if self.writer.is_full() {
            self.end_block();
        }
    }

    /// The objects.
    pub(super) fn finish(mut self) -> Vec<(Arc<ObjectId>, Arc<Declared>)> {
        self.end_block();
        self.objects
    }

    fn end_block(&mut self) {
        let block = self.writer.finish(self.cache).map(Arc::new);
        for (index, (object, mut declared, schema)) in (0..).zip(mem::take(&mut self.pending)) {
            if let Ok(block) = &block {
                declared.packed = Packed::Document { block: Arc::clone(block), index, schema };
            }
            self.objects.push((Arc::new(object), Arc::new(declared)));
        }
    }
}
