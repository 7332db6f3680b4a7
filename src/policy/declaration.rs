//! One declaration of one object, and the marks that the guard signs for it.
//!
//! Entry point: `Declaration::mark`. Invariant: two declarations that differ in anything never share a mark, and
//! nobody without the guard's key can make one. Must not hold a declared value.

use super::signing::SigningKey;
use crate::declaration::digest::Digest;
use crate::model::{ObjectId, ReleaseId};

/// One declaration of one object of one release.
#[derive(Clone, Copy, Debug)]
pub struct Declaration<'a> {
    /// The release.
    pub release: &'a ReleaseId,
    /// The object.
    pub object: &'a ObjectId,
    /// What it declares.
    pub digest: &'a Digest,
    /// The text of the seal under which the object holds nothing else; none where that is not said.
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
        // No statement begins like this.
        let seal = seal.map(|seal| format!("sealed {seal}"));
        parts.extend(seal.iter().map(|seal| seal.as_bytes()));
        parts.extend(said);
        let mut mark = [0; 16];
        mark.iter_mut().zip(key.mark(purpose, &parts)).for_each(|(byte, marked)| *byte = marked);
        mark
    }
}
