//! Which releases have a say in a review, and by whose policy an edit is judged
//! of which nothing can be read.
//!
//! Entry points: `Case::claims`, [`governing`]. Invariant: a claim that does not
//! count is not looked at, and decides nothing. Does no I/O.

use std::sync::Arc;

use parking_lot::RwLock;

use super::case::{Aspect, Case};
use crate::helm::index::Index;
use crate::helm::release::Release;
use crate::model::{ObjectId, RELEASE_NAME, RELEASE_NAMESPACE, ReleaseId};
use crate::policy::Policy;
use crate::policy::book::Book;
use crate::verdict::claims::{counting, has_say, is_local};
use crate::verdict::edit::Owner;

impl Case<'_> {
    /// The claims that count, by what is known of the object's owner: his own in
    /// front, the others as they were seen.
    pub(super) fn claims(&self, index: &RwLock<Index>) -> Vec<Arc<Release>> {
        let mut claims = self.heard(index);
        if claims.len() > 1 || claims.iter().any(|claim| !is_local(claim, &self.subject.object)) {
            let owner = self.owner();
            claims = counting(&claims, &self.subject.object, &owner).cloned().collect();
            claims.sort_by_key(|claim| !matches!(&owner, Owner::Release(owner) if claim.id == *owner));
        }
        claims
    }

    /// The claims of other namespaces, which count only if the object names them.
    pub(super) fn foreign_claims(&self, index: &RwLock<Index>) -> Vec<Arc<Release>> {
        let mut claims = self.heard(index);
        claims.retain(|claim| !is_local(claim, &self.subject.object));
        claims
    }

    /// Which release the object says it belongs to: the old one, or the one that
    /// is created. A Scale does not say.
    pub(super) fn owner(&self) -> Owner {
        if let Aspect::Scale(_) = self.subject.aspect {
            return self.owner.clone();
        }
        let (old, new) = self.texts();
        let Some(object) = old.or(new) else { return Owner::Nobody };
        match object.texts(&["metadata", "annotations"], [RELEASE_NAMESPACE, RELEASE_NAME]) {
            [Some(namespace), Some(name)] => Owner::Release(ReleaseId { namespace, name }),
            _ => Owner::Nobody,
        }
    }

    /// The release that the new object names beside those that count, if its word
    /// would count: it may have taken the object over a moment ago.
    pub(super) fn newly_named(&self, claims: &[Arc<Release>]) -> Option<ReleaseId> {
        let (_, new) = self.texts();
        let [namespace, name] = new?.texts(&["metadata", "annotations"], [RELEASE_NAMESPACE, RELEASE_NAME]);
        let named = ReleaseId { namespace: namespace?, name: name? };
        let would_count = self.subject.object.namespace.as_ref() == Some(&named.namespace)
            || self.owner() == Owner::Release(named.clone());
        (would_count && claims.iter().all(|claim| claim.id != named)).then_some(named)
    }

    /// The version that the review is of; see `Subject::version_of`.
    pub(super) fn version(&self) -> Option<&str> {
        (self.subject.aspect == Aspect::Object).then_some(&*self.version)
    }

    /// All claims of releases that declare the object in the version of this review.
    fn heard(&self, index: &RwLock<Index>) -> Vec<Arc<Release>> {
        let object = &self.subject.object;
        let index = index.read();
        let claims = index.claims(object).iter();
        claims.filter(|claim| has_say(claim, object, self.version())).cloned().collect()
    }
}

/// The claims that count whatever the object says: of an edit of which no more than
/// the front is known.
pub(super) fn certain(object: &ObjectId, version: Option<&str>, index: &Index) -> Vec<Arc<Release>> {
    let counts = |claim: &&Arc<Release>| is_local(claim, object) && has_say(claim, object, version);
    index.claims(object).iter().filter(counts).cloned().collect()
}

/// By which owner these claims count.
pub(super) fn owner_of(claims: &[Arc<Release>], object: &ObjectId) -> Owner {
    let foreign = claims.iter().find(|claim| !is_local(claim, object));
    foreign.map_or(Owner::Nobody, |claim| Owner::Release(claim.id.clone()))
}

/// Whether a policy seals something of the object: then what nobody declares counts as well.
pub(super) fn is_sealed(book: &Book, object: &ObjectId, claims: &[Arc<Release>]) -> bool {
    claims.iter().any(|claim| {
        let policy = book.of(&claim.id);
        let declarations = claim.objects.get(object).into_iter();
        let mut declared = declarations.flat_map(|it| it.latest.iter().chain(&it.baseline));
        declared.any(|declared| !policy.rules(object, declared).sealed.is_empty())
    })
}

/// What holds for an object with these claims that count. Without any it is what
/// holds for its namespace.
pub(super) fn governing(book: &Book, object: &ObjectId, claims: &[Arc<Release>]) -> Arc<Policy> {
    match claims.first() {
        Some(release) => book.of(&release.id),
        None => {
            let namespace = object.namespace.clone().unwrap_or_default();
            book.of(&ReleaseId { namespace, name: String::new() })
        }
    }
}

#[cfg(test)]
mod tests;
