//! The content of a record until its release is assembled.
//!
//! Entry points: [`Payload::unpack`], [`Payload::with_text`]. Invariant: a long manifest is in memory only
//! while it is read. Each thread has one buffer for it, and returns its memory in between. With short-lived
//! buffers as long as manifests, the allocator would keep one after the other, with parts of releases between
//! them.

use std::cell::RefCell;

use crate::record::{MANIFEST_CAP, Packed, Record, RecordError};

/// The longest manifest that is kept unpacked, in bytes; longer ones are
/// unpacked when they are read.
const SHORT: usize = 1 << 20;

/// The content of a record's payload.
pub struct Payload {
    /// The record, or why it is none.
    pub record: Result<Record, RecordError>,
    /// The compressed source of a manifest that is too long to be kept.
    pub packed: Option<Packed>,
}

/// The longest manifest that is read beside others, in bytes.
const LIGHT: usize = 256 << 10;

thread_local! {
    /// This thread's buffer for long manifests.
    static ROOM: RefCell<String> = RefCell::default();
}

impl Payload {
    /// Whether reading its manifest needs so much memory that only one is read at a time.
    pub fn is_heavy(&self) -> bool {
        self.packed.is_some() || self.record.as_ref().is_ok_and(|record| record.manifest.len() > LIGHT)
    }

    /// A payload whose record is known whole.
    pub fn whole(record: Result<Record, RecordError>) -> Self {
        Self { record, packed: None }
    }

    /// Unpacks a payload. A long manifest is kept only in its compressed form.
    pub fn unpack(packed: Packed) -> Self {
        match packed.decode(SHORT) {
            Ok((record, length)) => Self { record: Ok(record), packed: (length > SHORT).then_some(packed) },
            Err(error) => Self::whole(Err(error)),
        }
    }

    /// Reads the manifest of its record.
    ///
    /// # Errors
    /// When it cannot be unpacked.
    pub fn with_text<T>(&self, record: &Record, read: impl FnOnce(&str) -> T) -> Result<T, RecordError> {
        let Some(packed) = &self.packed else { return Ok(read(&record.manifest)) };
        // One that is read inside of another has a place of its own.
        let mut room = ROOM.take();
        // Reserved memory is not in use before it is written to.
        room.reserve_exact(MANIFEST_CAP);
        let outcome = packed.manifest(&mut room).map(|()| read(&room));
        room.clear();
        room.shrink_to(SHORT);
        ROOM.set(room);
        outcome
    }
}
