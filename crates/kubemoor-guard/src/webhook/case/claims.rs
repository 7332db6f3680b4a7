//! Selects the releases that count in a review, by the owner that its objects name.
//!
//! Entry points: `Case::claims`, `Case::owner`. Invariant: a claim that does not count is not
//! checked, and decides nothing. Must not do I/O.

use std::sync::Arc;

use parking_lot::RwLock;

use super::{Aspect, Case};
use kubemoor_declare::model::{RELEASE_NAME, RELEASE_NAMESPACE, ReleaseId};
use kubemoor_declare::outline::Excerpt;
use kubemoor_helm::index::Index;
use kubemoor_helm::release::Release;
use kubemoor_policy::resolver::PolicyResolver;
use kubemoor_verdict::claims::{counting, has_say, is_local, retain_operators};
use kubemoor_verdict::edit::Owner;

impl Case<'_> {
    /// The claims that count, by the known owner of the object: the owner's first, the others in
    /// the order in which they appeared.
    pub(in super::super) fn claims(
        &self,
        index: &RwLock<Index>,
        resolver: &PolicyResolver,
    ) -> Vec<Arc<Release>> {
        let mut claims = self.heard(index);
        if claims.len() > 1 || claims.iter().any(|claim| !is_local(claim, &self.subject.object)) {
            let owner = self.owner();
            claims = counting(&claims, &self.subject.object, &owner).cloned().collect();
            retain_operators(&mut claims, &owner, resolver);
            claims.sort_by_key(|claim| !matches!(&owner, Owner::Release(owner) if claim.id == *owner));
        }
        if claims.is_empty() { self.adopter(index) } else { claims }
    }

    /// The claim of the release that the new object names and the old one does not, where no claim counts: the
    /// object becomes that release's, as by a creation. Anybody may have given the old one the name of some release
    /// that does not declare it.
    fn adopter(&self, index: &RwLock<Index>) -> Vec<Arc<Release>> {
        let (Some(old), Some(new)) = self.texts() else { return Vec::new() };
        let Some(owner) = named_by(new).filter(|owner| named_by(old).as_ref() != Some(owner)) else {
            return Vec::new();
        };
        self.heard(index).into_iter().filter(|claim| claim.id == owner).collect()
    }

    /// The claims of other namespaces, which count only if the object names them.
    pub(in super::super) fn foreign_claims(&self, index: &RwLock<Index>) -> Vec<Arc<Release>> {
        let mut claims = self.heard(index);
        claims.retain(|claim| !is_local(claim, &self.subject.object));
        claims
    }

    /// The release that the old object names, or the created one. A Scale names none.
    pub(in super::super) fn owner(&self) -> Owner {
        if let Aspect::Scale(_) = self.subject.aspect {
            return self.owner.clone();
        }
        let (old, new) = self.texts();
        let Some(object) = old.or(new) else { return Owner::Nobody };
        named_by(object).map_or(Owner::Nobody, Owner::Release)
    }

    /// The release that the new object names besides those that count, if its claim would count: it
    /// may have taken over the object a moment ago.
    pub(in super::super) fn newly_named(&self, claims: &[Arc<Release>]) -> Option<ReleaseId> {
        let (_, new) = self.texts();
        let named = named_by(new?)?;
        let would_count = self.subject.object.namespace.as_ref() == Some(&named.namespace)
            || self.owner() == Owner::Release(named.clone());
        (would_count && claims.iter().all(|claim| claim.id != named)).then_some(named)
    }

    /// The version of the review; see `Subject::version_of`.
    pub(in super::super) fn version(&self) -> Option<&str> {
        (self.subject.aspect == Aspect::Object).then_some(&*self.version)
    }

    /// All claims of releases that declare the object in the version of this review.
    fn heard(&self, index: &RwLock<Index>) -> Vec<Arc<Release>> {
        let object = &self.subject.object;
        let index = index.read();
        let claims = index.claims(object).into_iter();
        claims.filter(|claim| has_say(claim, object, self.version())).cloned().collect()
    }
}

/// The release that an object's annotations name.
fn named_by(object: &Excerpt<'_>) -> Option<ReleaseId> {
    let [namespace, name] = object.texts(&["metadata", "annotations"], [RELEASE_NAMESPACE, RELEASE_NAME]);
    Some(ReleaseId { namespace: namespace?.into(), name: name?.into() })
}

#[cfg(test)]
mod tests;
