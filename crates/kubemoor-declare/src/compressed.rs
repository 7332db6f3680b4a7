//! Bytes that are kept for long and read seldom.
//!
//! Entry point: [`Compressed`]. Invariant: decompression returns the original bytes, whatever they are. Must not know their
//! meaning: that most of them are like the usual text only makes them shorter.

use std::io::{self, Read, Write};

use flate2::bufread::ZlibDecoder;
use flate2::write::ZlibEncoder;
use flate2::{Compress, Compression, Decompress};

/// Objects as charts have them, and statuses of releases. Bytes are compressed as if they followed this text (the preset
/// dictionary of RFC 1950), so that what they have in common with it takes no memory. It may be changed at any time.
const USUAL: &[u8] = include_bytes!("compressed/usual.txt");

/// How much time it may take: higher levels save next to nothing.
const LEVEL: Compression = Compression::new(4);

/// Some bytes, deflated (RFC 1951) as if the usual text came before them.
pub struct Compressed(Box<[u8]>);

impl Compressed {
    /// Compresses bytes.
    ///
    /// # Errors
    /// When the encoder fails, which one that writes to memory does not do for any reason known.
    pub fn new(bytes: &[u8]) -> io::Result<Self> {
        let mut compress = Compress::new(LEVEL, false);
        compress.set_dictionary(USUAL)?;
        let mut encoder = ZlibEncoder::new_with_compress(Vec::new(), compress);
        encoder.write_all(bytes)?;
        Ok(Self(encoder.finish()?.into()))
    }

    /// The first `limit` bytes, or all that there are.
    ///
    /// # Errors
    /// As with [`Self::new`].
    pub fn read(&self, limit: u64) -> io::Result<Vec<u8>> {
        let mut decompress = Decompress::new(false);
        decompress.set_dictionary(USUAL)?;
        let mut bytes = Vec::with_capacity(self.size());
        ZlibDecoder::new_with_decompress(&*self.0, decompress).take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// The memory that this takes beside itself, in bytes.
    pub fn size(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn compressed_bytes_round_trip_up_to_the_read_limit() {
        for bytes in [&b""[..], b"a", &[7; 100_000], &(0..=255).collect::<Vec<u8>>(), USUAL] {
            let compressed = Compressed::new(bytes).unwrap();
            assert_eq!(compressed.read(u64::MAX).unwrap(), bytes);
            assert_eq!(compressed.read(3).unwrap(), &bytes[..bytes.len().min(3)]);
        }
    }

    #[test]
    fn usual_object_takes_a_small_part_of_its_text() {
        let object = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "checkout-api", "namespace": "payments", "labels": {
                "app.kubernetes.io/name": "checkout", "app.kubernetes.io/instance": "checkout-api",
                "app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": "checkout-4.1.0",
            }},
            "spec": {"type": "ClusterIP", "selector": {"app.kubernetes.io/instance": "checkout-api"},
                     "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": "http"}]},
        });
        let text = object.to_string();
        let size = Compressed::new(text.as_bytes()).unwrap().size();
        assert!(size * 4 < text.len(), "{size} of {} bytes", text.len());
    }
}
