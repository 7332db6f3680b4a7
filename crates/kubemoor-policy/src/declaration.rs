//! One declaration of one object, and the marks that the guard signs for it.
//!
//! Entry point: `Declaration::mark`. Invariant: two different declarations never share a mark, and
//! a mark cannot be made without the guard's key. Must not hold a declared value.

use super::signing::SigningKey;
use kubemoor_declare::digest::Digest;
use kubemoor_declare::model::{ObjectId, ReleaseId};

/// One declaration of one object of one release.
#[derive(Clone, Copy, Debug)]
pub struct Declaration<'a> {
    /// The release.
    pub release: &'a ReleaseId,
    /// The object.
    pub object: &'a ObjectId,
    /// The digest of the declared values.
    pub digest: &'a Digest,
    /// The text of the seal under which the object has no additions; `None` where the statement
    /// does not cover this.
    pub seal: Option<&'a str>,
}

impl Declaration<'_> {
    /// The guard's mark on a statement about this declaration.
    pub(super) fn mark(&self, key: &SigningKey, purpose: &str, said: &[&[u8]]) -> [u8; 16] {
        let Declaration { release, object: ObjectId { group, kind, namespace, name }, digest, seal } = self;
        let scope: &[u8] = if namespace.is_some() { b"namespaced" } else { b"cluster" };
        let namespace = namespace.as_deref().unwrap_or_default();
        let texts = [&release.namespace, &release.name, group, kind, namespace, name];
        let mut parts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
        parts.extend([scope, digest.as_bytes()]);
        // No other part begins like this.
        let seal = seal.map(|seal| format!("sealed {seal}"));
        parts.extend(seal.iter().map(|seal| seal.as_bytes()));
        parts.extend(said);
        let mut mark = [0; 16];
        mark.iter_mut().zip(key.mark(purpose, &parts)).for_each(|(byte, marked)| *byte = marked);
        mark
    }
}
