//! The guard's own mark on data that it stores where others may write.
//!
//! Entry point: [`SigningKey`]. Invariant: marks for one purpose count for no
//! other; the key is in no output. Pure: the maker of the key draws the bytes.

use std::fmt;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretBox};
use sha2::Sha256;

/// The secret key that all replicas of a guard share. Cheap to clone.
#[derive(Clone)]
pub struct SigningKey(Arc<SecretBox<[u8; 32]>>);

impl SigningKey {
    /// The key of these bytes, which must be random.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Arc::new(SecretBox::new(Box::new(bytes))))
    }

    /// The key itself, for its storage.
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.0.expose_secret()
    }

    /// Returns the mark on these parts for a purpose.
    pub fn mark(&self, purpose: &str, parts: &[&[u8]]) -> [u8; 32] {
        self.over(purpose, parts).map(|mac| mac.finalize().into_bytes().into()).unwrap_or_default()
    }

    /// Whether this is the right mark, checked in constant time.
    pub fn is_mark(&self, mark: &[u8], purpose: &str, parts: &[&[u8]]) -> bool {
        self.over(purpose, parts).is_some_and(|mac| mac.verify_slice(mark).is_ok())
    }

    /// `value`, readable only with the key; a second call restores it. Only one value may be hidden
    /// for each purpose and parts: with two, their difference would show.
    pub fn hide(&self, purpose: &str, parts: &[&[u8]], value: [u8; 32]) -> [u8; 32] {
        let mut hidden = self.mark(purpose, parts);
        hidden.iter_mut().zip(value).for_each(|(byte, own)| *byte ^= own);
        hidden
    }

    /// Includes the length of each part, so that no two lists of parts give the same text. HMAC
    /// accepts keys of any length.
    fn over(&self, purpose: &str, parts: &[&[u8]]) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.as_bytes()).ok()?;
        for part in [&[purpose.as_bytes()], parts].concat() {
            mac.update(&part.len().to_le_bytes());
            mac.update(part);
        }
        Some(mac)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_value_is_readable_only_with_same_key_and_parts() {
        let (key, value) = (SigningKey::new([7; 32]), [9; 32]);
        let hidden = key.hide("a", &[b"one"], value);
        assert_ne!(hidden, value);
        assert_eq!(key.hide("a", &[b"one"], hidden), value);
        assert_ne!(key.hide("a", &[b"two"], hidden), value);
        assert_ne!(SigningKey::new([8; 32]).hide("a", &[b"one"], hidden), value);
    }

    #[test]
    fn mark_counts_for_its_key_purpose_and_parts_alone() {
        let key = SigningKey::new([7; 32]);
        let mark = key.mark("a", &[b"one", b"two"]);
        assert!(key.is_mark(&mark, "a", &[b"one", b"two"]));
        for (purpose, parts) in [
            ("b", &[&b"one"[..], b"two"][..]),
            ("a", &[b"onet", b"wo"]),
            ("a", &[b"one"]),
            ("aone", &[b"two"]),
        ] {
            assert!(!key.is_mark(&mark, purpose, parts), "{purpose} {parts:?}");
        }
        assert!(!SigningKey::new([8; 32]).is_mark(&mark, "a", &[b"one", b"two"]));
        assert!(
            !key.is_mark(&mark[..31], "a", &[b"one", b"two"]) && !key.is_mark(&[], "a", &[b"one", b"two"])
        );
        assert_eq!(format!("{key:?}"), "SigningKey(..)");
    }
}
