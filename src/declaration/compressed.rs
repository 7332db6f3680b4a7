//! Bytes that are kept for long and read seldom.
//!
//! Entry point: [`Compressed`]. Invariant: decompression returns the original bytes. Must not know their
//! meaning.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

/// Some bytes, deflated (RFC 1951).
pub struct Compressed(Box<[u8]>);

impl Compressed {
    /// Compresses bytes, sooner fast than small.
    ///
    /// # Errors
    /// When the encoder fails, which one that writes to memory does not do for any reason known.
    pub fn new(bytes: &[u8]) -> io::Result<Self> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes)?;
        Ok(Self(encoder.finish()?.into()))
    }

    /// The first `limit` bytes, or all that there are.
    ///
    /// # Errors
    /// As with [`Self::new`].
    pub fn read(&self, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(self.size());
        DeflateDecoder::new(&*self.0).take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// The memory that this takes beside itself, in bytes.
    pub fn size(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_bytes_round_trip_up_to_the_read_limit() {
        for bytes in [&b""[..], b"a", &[7; 100_000], &(0..=255).collect::<Vec<u8>>()] {
            let compressed = Compressed::new(bytes).unwrap();
            assert_eq!(compressed.read(u64::MAX).unwrap(), bytes);
            assert_eq!(compressed.read(3).unwrap(), &bytes[..bytes.len().min(3)]);
        }
    }
}
