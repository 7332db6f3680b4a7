//! The key under which a secret's digest leaves the guard.
//!
//! Entry point: [`SealingKey::seal`]. Invariant: nobody without the key learns anything about a digest, and the key is
//! never shown.

use std::fmt::{self, Write as _};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The bytes of a sealed value's hash that are kept: enough to tell values
/// apart, and as text short enough to compare by eye.
const HASH_BYTES: usize = 8;

/// What makes sealed values of one ledger comparable with each other, and
/// useless to anybody without the ledger.
#[derive(Clone, PartialEq, Eq)]
pub struct SealingKey([u8; 32]);

impl SealingKey {
    /// The key of these bytes, which must be random.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A keyed hash of a secret's digest, in hexadecimal: two of them are equal under one key
    /// exactly when the digests are. `None` if HMAC rejects the key, which does not happen.
    pub fn seal(&self, digest: &[u8; 32]) -> Option<String> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        mac.update(digest);
        let mut text = String::new();
        for byte in mac.finalize().into_bytes().iter().take(HASH_BYTES) {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        Some(text)
    }
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealingKey(..)")
    }
}
