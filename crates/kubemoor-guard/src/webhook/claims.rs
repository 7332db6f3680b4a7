//! Selects the releases that count for an edit that cannot be read, and the policy by which it is
//! judged.
//!
//! Entry points: [`certain`], [`governing`]. Invariant: a claim that does not count is not checked,
//! and decides nothing. Must not do I/O.

use std::sync::Arc;

use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::index::Index;
use kubemoor_helm::release::{Declarations, Release};
use kubemoor_policy::Policy;
use kubemoor_policy::resolver::PolicyResolver;
use kubemoor_verdict::claims::{has_say, is_local};
use kubemoor_verdict::edit::Owner;

/// The claims that count whatever the object contains: for an edit of which only the front is
/// known.
pub(super) fn certain(object: &ObjectId, version: Option<&str>, index: &Index) -> Vec<Arc<Release>> {
    let counts = |claim: &&Arc<Release>| is_local(claim, object) && has_say(claim, object, version);
    index.claims(object).into_iter().filter(counts).cloned().collect()
}

/// The owner by which these claims count.
pub(super) fn owner_of(claims: &[Arc<Release>], object: &ObjectId) -> Owner {
    let foreign = claims.iter().find(|claim| !is_local(claim, object));
    foreign.map_or(Owner::Nobody, |claim| Owner::Release(claim.id.clone()))
}

/// Whether a policy seals a part of the object: then undeclared fields count too.
pub(super) fn is_sealed(resolver: &PolicyResolver, object: &ObjectId, claims: &[Arc<Release>]) -> bool {
    claims.iter().any(|claim| {
        let policy = resolver.of(&claim.id);
        let declarations = claim.objects.get(object).into_iter();
        declarations
            .flat_map(Declarations::all)
            .any(|declared| !policy.rules(object, declared).sealed.is_empty())
    })
}

/// The policy of an object with these claims; without any claim, the policy of its namespace.
pub(super) fn governing(
    resolver: &PolicyResolver,
    object: &ObjectId,
    claims: &[Arc<Release>],
) -> Arc<Policy> {
    match claims.first() {
        Some(release) => resolver.of(&release.id),
        None => {
            let namespace = object.namespace.clone().unwrap_or_default();
            resolver.of(&ReleaseId { namespace, name: "".into() })
        }
    }
}
