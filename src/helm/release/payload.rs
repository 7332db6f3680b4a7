//! What a record holds, as it is kept until its release is put together.
//!
//! Entry points: [`Payload::unpack`], [`Payload::text`]. Invariant: a long manifest is in memory only while it is
//! read.

use std::borrow::Cow;

use crate::helm::record::{Packed, Record, RecordError};

/// The longest manifest that is kept unpacked, in bytes; longer ones are
/// unpacked when they are read.
const SHORT: usize = 1 << 20;

/// What a record's payload turned out to be.
pub struct Payload {
    /// The record, or why it is none.
    pub record: Result<Record, RecordError>,
    /// What a manifest is unpacked from that is too long to be kept, and how
    /// long it is.
    pub packed: Option<(Packed, usize)>,
}

/// The longest manifest that is read beside others, in bytes.
const LIGHT: usize = 256 << 10;

impl Payload {
    /// Whether reading its manifest takes so much memory that one is read after
    /// the other.
    pub fn is_heavy(&self) -> bool {
        self.packed.is_some() || self.record.as_ref().is_ok_and(|record| record.manifest.len() > LIGHT)
    }

    /// A payload whose record is known whole.
    pub fn whole(record: Result<Record, RecordError>) -> Self {
        Self { record, packed: None }
    }

    /// Unpacks a payload. Of a long manifest nothing is kept but what it is
    /// unpacked from.
    pub fn unpack(packed: Packed) -> Self {
        match packed.decode(SHORT) {
            Ok((record, length)) => {
                Self { record: Ok(record), packed: (length > SHORT).then_some((packed, length)) }
            }
            Err(error) => Self::whole(Err(error)),
        }
    }

    /// The manifest of its record.
    ///
    /// # Errors
    /// When it cannot be unpacked.
    pub fn text<'r>(&self, record: &'r Record) -> Result<Cow<'r, str>, RecordError> {
        match &self.packed {
            Some((packed, length)) => packed.manifest(*length).map(Cow::Owned),
            None => Ok(Cow::Borrowed(&record.manifest)),
        }
    }
}
