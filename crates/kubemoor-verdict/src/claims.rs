//! Selects the releases that may decide about an object, among those that declare it.
//!
//! Entry points: [`counting`], [`has_say`]. Invariant: a user who may write Secrets
//! in one namespace gains no say over objects in another: there, only the live
//! object's own annotations count. A claim that does not count neither lets an
//! edit pass nor refuses it.

use std::sync::Arc;

use super::edit::Owner;
use kubemoor_declare::model::ObjectId;
use kubemoor_helm::release::Release;

/// The claims that count: of releases in the object's namespace, and of the
/// release that the object's annotations name.
pub fn counting<'r>(
    claims: &'r [Arc<Release>],
    object: &ObjectId,
    owner: &Owner,
) -> impl Iterator<Item = &'r Arc<Release>> {
    claims.iter().filter(move |release| counts(release, object, owner))
}

/// Whether a claim counts.
pub fn counts(release: &Release, object: &ObjectId, owner: &Owner) -> bool {
    is_local(release, object) || matches!(owner, Owner::Release(owner) if release.id == *owner)
}

/// Whether the object is in the release's own namespace.
pub fn is_local(release: &Release, object: &ObjectId) -> bool {
    object.namespace.as_deref() == Some(release.id.namespace.as_str())
}

/// Whether a release declares the object in the version of a review; `None`
/// where a review is of no version, as of a Scale.
///
/// The API server asks about each registered version of a kind, with the object
/// converted to it. What is declared in one version cannot be held against
/// another, so each claim is heard once, in its own.
pub fn has_say(release: &Release, object: &ObjectId, version: Option<&str>) -> bool {
    let Some(version) = version else { return true };
    release.declared(object).is_some_and(|declared| declared.served() == version)
}
