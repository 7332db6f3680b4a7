//! Bytes that are kept for long and read seldom.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::bufread::DeflateDecoder;
use flate2::write::DeflateEncoder;

/// Higher levels take longer and save next to nothing.
const LEVEL: Compression = Compression::new(4);

/// Some bytes, deflated (RFC 1951).
pub struct Compressed(Box<[u8]>);

impl Compressed {
    /// Compresses bytes.
    ///
    /// # Errors
    /// When the encoder fails, which one that writes to memory does not do for any reason known.
    pub fn new(bytes: &[u8]) -> io::Result<Self> {
        let mut encoder = DeflateEncoder::new(Vec::new(), LEVEL);
        encoder.write_all(bytes)?;
        Ok(Self(encoder.finish()?.into()))
    }

    /// The bytes.
    ///
    /// # Errors
    /// As with [`Self::new`].
    pub fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        DeflateDecoder::new(&*self.0).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// The memory that this takes beside itself, in bytes.
    pub fn size(&self) -> usize {
        self.0.len()
    }
}
