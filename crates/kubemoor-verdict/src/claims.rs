//! Selects the releases that may decide about an object, among those that declare it.
//!
//! Entry points: [`counting`], [`retain_operators`], [`has_say`]. Invariant: a user who may write Secrets
//! in one namespace gains no say over objects in another: there, only the live
//! object's own annotations count. Nor over those of a release that a policy leaves to
//! its operators. A claim that does not count neither lets an edit pass nor refuses it.

use std::sync::Arc;

use super::edit::Owner;
use kubemoor_declare::model::ObjectId;
use kubemoor_helm::release::Release;
use kubemoor_policy::resolver::PolicyResolver;
use kubemoor_policy::subject::Subject;

/// The claims that count: of releases in the object's namespace, and of the
/// release that the object's annotations name.
pub fn counting<'r>(
    claims: &'r [Arc<Release>],
    object: &ObjectId,
    owner: &Owner,
) -> impl Iterator<Item = &'r Arc<Release>> {
    claims.iter().filter(move |release| counts(release, object, owner))
}

/// Drops the claims that others may write than the operators of the object's owner, if a policy names these. Any claim
/// may let an edit pass, so the record of another release in the namespace could otherwise declare the object as
/// somebody else wants it. All claims stay if the owner does not declare the object: they may refuse an edit.
pub fn retain_operators(claims: &mut Vec<Arc<Release>>, owner: &Owner, resolver: &PolicyResolver) {
    let Owner::Release(owner) = owner else { return };
    let own = resolver.of(owner);
    if own.operators.is_empty() || claims.iter().all(|claim| claim.id != *owner) {
        return;
    }
    let is_writer = |subject: &Subject| own.operators.contains(subject) || own.exempt.contains(subject);
    claims.retain(|claim| {
        let theirs = resolver.of(&claim.id);
        // Under a laxer mode everybody may write them.
        let is_theirs_alone = !theirs.operators.is_empty() && theirs.edits >= own.edits;
        let mut writers = theirs.operators.iter().chain(&theirs.exempt);
        claim.id == *owner || (is_theirs_alone && writers.all(is_writer))
    });
}

/// Whether it matters which of several releases the object names: a policy leaves one of them to its operators.
pub fn hangs_on_owner(claims: &[Arc<Release>], resolver: &PolicyResolver) -> bool {
    claims.len() > 1 && claims.iter().any(|claim| !resolver.of(&claim.id).operators.is_empty())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_policies::{policies, policy};
    use crate::sample_releases::{Given, assembled};
    use kubemoor_declare::model::ReleaseId;

    fn release(name: &str) -> ReleaseId {
        ReleaseId { namespace: "shop".into(), name: name.into() }
    }

    fn claims(names: &[&str]) -> Vec<Arc<Release>> {
        let given = |name| Given { namespace: "shop", name, ..Given::default() };
        names.iter().map(|name| Arc::new(assembled(given(name), None))).collect()
    }

    #[test]
    fn beside_an_owner_with_operators_only_their_releases_count() {
        let of = |releases: &str, operators: &str| {
            let users = operators.split(' ').map(|user| format!("{{kind: User, name: {user}}}"));
            let users = users.collect::<Vec<_>>().join(", ");
            policy(releases, &format!("{{releases: {{names: [{releases}]}}, operators: [{users}]}}"))
        };
        let resolver = PolicyResolver::of_policies(policies([
            of("web", "ci flux"),
            of("cache", "ci"),
            of("wide", "ci mallory"),
            policy("lax", "{releases: {names: [lax]}, edits: Record, operators: [{kind: User, name: ci}]}"),
            policy(
                "excused",
                "{releases: {names: [excused]}, operators: [{kind: User, name: ci}], exempt: [{kind: User, name: eve}]}",
            ),
        ]));
        let check = |owner: &Owner, names: &[&str], expected: &[&str]| {
            let mut claims = claims(names);
            retain_operators(&mut claims, owner, &resolver);
            let left: Vec<_> = claims.iter().map(|claim| claim.id.name.as_str()).collect();
            assert_eq!(left, expected, "{owner:?}");
        };
        let all = ["web", "cache", "wide", "lax", "excused", "forged"];
        check(&Owner::Release(release("web")), &all, &["web", "cache"]);
        check(&Owner::Release(release("cache")), &all, &["cache"]);
        check(&Owner::Release(release("forged")), &all, &all);
        check(&Owner::Nobody, &all, &all);
        // Without the owner's own claim nobody would refuse anything.
        check(&Owner::Release(release("web")), &["forged"], &["forged"]);
    }

    #[test]
    fn owner_matters_where_one_of_several_releases_has_operators() {
        let operated = policy("web", "{releases: {names: [web]}, operators: [{kind: User, name: ci}]}");
        let resolver = PolicyResolver::of_policies(policies([operated]));
        for (names, expected) in
            [(&["web"][..], false), (&["forged", "web"], true), (&["forged", "other"], false)]
        {
            assert_eq!(hangs_on_owner(&claims(names), &resolver), expected, "{names:?}");
        }
    }
}
