//! Which releases have a say in an edit of which nothing can be read, and by whose policy it is judged.
//!
//! Entry points: [`certain`], [`governing`]. Invariant: a claim that does not
//! count is not looked at, and decides nothing. Does no I/O.

use std::sync::Arc;

use crate::helm::index::Index;
use crate::helm::release::Release;
use crate::model::{ObjectId, ReleaseId};
use crate::policy::Policy;
use crate::policy::resolver::PolicyResolver;
use crate::verdict::claims::{has_say, is_local};
use crate::verdict::edit::Owner;

/// The claims that count whatever the object says: of an edit of which no more than
/// the front is known.
pub(super) fn certain(object: &ObjectId, version: Option<&str>, index: &Index) -> Vec<Arc<Release>> {
    let counts = |claim: &&Arc<Release>| is_local(claim, object) && has_say(claim, object, version);
    index.claims(object).into_iter().filter(counts).cloned().collect()
}

/// By which owner these claims count.
pub(super) fn owner_of(claims: &[Arc<Release>], object: &ObjectId) -> Owner {
    let foreign = claims.iter().find(|claim| !is_local(claim, object));
    foreign.map_or(Owner::Nobody, |claim| Owner::Release(claim.id.clone()))
}

/// Whether a policy seals something of the object: then what nobody declares counts as well.
pub(super) fn is_sealed(resolver: &PolicyResolver, object: &ObjectId, claims: &[Arc<Release>]) -> bool {
    claims.iter().any(|claim| {
        let policy = resolver.of(&claim.id);
        let declarations = claim.objects.get(object).into_iter();
        let mut declared = declarations.flat_map(|it| it.latest.iter().chain(&it.baseline));
        declared.any(|declared| !policy.rules(object, declared).sealed.is_empty())
    })
}

/// What holds for an object with these claims that count. Without any it is what
/// holds for its namespace.
pub(super) fn governing(
    resolver: &PolicyResolver,
    object: &ObjectId,
    claims: &[Arc<Release>],
) -> Arc<Policy> {
    match claims.first() {
        Some(release) => resolver.of(&release.id),
        None => {
            let namespace = object.namespace.clone().unwrap_or_default();
            resolver.of(&ReleaseId { namespace, name: String::new() })
        }
    }
}
