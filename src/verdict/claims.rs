//! Which of the releases that declare an object speak for it.
//!
//! Entry point: [`counting`]. Invariant: whoever may write Secrets in one
//! namespace gains no say over objects in another: there, only the live
//! object's own annotations count.

use std::sync::Arc;

use super::edit::Owner;
use crate::helm::release::Release;
use crate::model::ObjectId;

/// The claims that count: of releases in the object's namespace, and of the
/// release that the object's annotations name. While the annotations are not
/// at hand, the claim seen first counts as well.
pub fn counting<'r>(
    claims: &'r [Arc<Release>],
    object: &ObjectId,
    owner: &Owner,
) -> impl Iterator<Item = &'r Release> {
    claims.iter().enumerate().filter_map(move |(index, release)| {
        let counts = is_local(release, object)
            || match owner {
                Owner::Unknown => index == 0,
                Owner::Nobody => false,
                Owner::Release(owner) => release.id == *owner,
            };
        counts.then_some(release.as_ref())
    })
}

/// Whether the object lies in the release's own namespace.
pub fn is_local(release: &Release, object: &ObjectId) -> bool {
    object.namespace.as_deref() == Some(release.id.namespace.as_str())
}
