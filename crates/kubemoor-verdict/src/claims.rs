//! The claims of releases on an object: which of them count, and how a release adopts or loses an object (deletion,
//! alone or with its namespace or CustomResourceDefinition).
//!
//! A user who may write Secrets in one namespace must not control objects in another (there, a release counts only if
//! the live object's annotations name it), nor objects of a release that a policy leaves to its operators. A claim that
//! does not count can neither allow nor deny an edit.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::edit::{DryRunEvidence, Edit, EditOutcome, Grounds, ObjectOwner, Rules, Verdict, VerdictReason};
use crate::{identities, judge, sealed};
use kubemoor_declare::equality::FieldAgreement;
use kubemoor_declare::fields::FieldChange;
use kubemoor_declare::model::{MANAGED_BY, ObjectId, Operation, ReleaseId};
use kubemoor_declare::path::Path;
use kubemoor_helm::index::Index;
use kubemoor_helm::release::Release;
use kubemoor_helm::state::{self, Deletion};
use kubemoor_policy::resolver::PolicyResolver;
use kubemoor_policy::resource::SubjectSpec;

/// The claims that count: of releases in the object's namespace, and of the release that the object's annotations
/// name.
pub fn counting<'r>(
    claims: &'r [Arc<Release>],
    object: &ObjectId,
    owner: &ObjectOwner,
) -> impl Iterator<Item = &'r Arc<Release>> {
    claims.iter().filter(move |release| counts(release, object, owner))
}

/// If a policy names operators for the object's owner, drops the claims whose records other users may write. Any claim
/// can allow an edit, so these users could otherwise declare the object in a record of another release. Keeps all
/// claims if the owner does not declare the object, because they can deny an edit.
pub fn retain_operators(claims: &mut Vec<Arc<Release>>, owner: &ObjectOwner, resolver: &PolicyResolver) {
    let ObjectOwner::Release(owner) = owner else { return };
    let own = resolver.policy(owner);
    if own.operators.is_empty() || claims.iter().all(|claim| claim.id != *owner) {
        return;
    }
    let is_writer = |subject: &SubjectSpec| own.operators.contains(subject) || own.exempt.contains(subject);
    claims.retain(|claim| {
        let theirs = resolver.policy(&claim.id);
        // In a laxer mode, every user may write the records.
        let is_theirs_alone = !theirs.operators.is_empty() && theirs.edits >= own.edits;
        let mut writers = theirs.operators.iter().chain(&theirs.exempt);
        claim.id == *owner || (is_theirs_alone && writers.all(is_writer))
    });
}

/// Whether the release that the object names matters: several releases claim it, and a policy names operators of one.
pub fn depends_on_owner(claims: &[Arc<Release>], resolver: &PolicyResolver) -> bool {
    claims.len() > 1 && claims.iter().any(|claim| !resolver.policy(&claim.id).operators.is_empty())
}

pub fn counts(release: &Release, object: &ObjectId, owner: &ObjectOwner) -> bool {
    is_local(release, object) || matches!(owner, ObjectOwner::Release(owner) if release.id == *owner)
}

/// Whether the object is in the release's own namespace.
pub fn is_local(release: &Release, object: &ObjectId) -> bool {
    object.namespace.as_deref() == Some(release.id.namespace.as_str())
}

/// Whether a release declares the object in the `version` of a review; true without a version, as for a Scale.
///
/// The API server sends a review for each registered version of a kind, with the object converted to it. A manifest
/// cannot be compared with an object in another version, so each claim is judged once, in its own version.
pub fn is_declared_in_version(release: &Release, object: &ObjectId, version: Option<&str>) -> bool {
    let Some(version) = version else { return true };
    release.declared(object).is_some_and(|declared| declared.served() == version)
}

/// Whether an update makes `release` manage `object`. Without Helm's label, no webhook and no watch selects the object.
/// Outside of its own namespace, a release counts only if the object names it.
pub(crate) fn adopts(object: &ObjectId, release: &Release, old: &Value, new: &Value) -> bool {
    let names_it = |value: &Value| ReleaseId::named_by(value).is_some_and(|named| named == release.id);
    let is_named = !is_local(release, object) && names_it(new) && !names_it(old);
    labels(old, new) || (is_helms(new) && is_named)
}

/// Whether an update may make a release manage the object. Both values may lack fields that the update does not change.
pub fn may_adopt(old: &Value, new: &Value) -> bool {
    labels(old, new) || ReleaseId::named_by(old) != ReleaseId::named_by(new)
}

fn labels(old: &Value, new: &Value) -> bool {
    is_helms(new) && !is_helms(old)
}

fn is_helms(object: &Value) -> bool {
    let (key, value) = MANAGED_BY;
    let labels = object.get("metadata").and_then(|metadata| metadata.get("labels"));
    labels.and_then(|labels| labels.get(key)).and_then(Value::as_str) == Some(value)
}

/// How long finalizers may block a deletion before they count as drift. Controllers release volumes, load balancers and
/// dependants within a few minutes.
const FINALIZER_GRACE_PERIOD: SignedDuration = SignedDuration::from_mins(5);

/// The finalizers of any object, and those of a namespace, which the namespace controller removes.
const FINALIZERS: [[&str; 2]; 2] = [["metadata", "finalizers"], ["spec", "finalizers"]];

/// Whether an object is being deleted. Only the API server sets a `deletionTimestamp`.
pub fn is_being_deleted(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

/// Whether `path` holds finalizers of `object`. While the object is being deleted, a change there is a step of its
/// deletion: the API server accepts no new finalizer then.
pub fn is_of_finalizers(object: &ObjectId, path: &Path) -> bool {
    finalizers(object).any(|names| identities::is_below(path, names))
}

/// The time from which the finalizers of `live` count as drift; `None` if it is not being deleted.
pub fn finalizer_deadline(live: &Value) -> Option<Timestamp> {
    let since = live.pointer("/metadata/deletionTimestamp")?.as_str()?;
    since.parse::<Timestamp>().ok()?.checked_add(FINALIZER_GRACE_PERIOD).ok()
}

/// The finalizers that have blocked the deletion of `live` for too long, as a drifted field.
pub(crate) fn blocking_finalizers(object: &ObjectId, live: &Value, now: Timestamp) -> Option<FieldChange> {
    if finalizer_deadline(live)? > now {
        return None;
    }
    finalizers(object).find_map(|names| {
        let [above, name] = names;
        let held = live.get(above)?.get(name)?;
        held.as_array().filter(|held| !held.is_empty())?;
        let path = Path::from_names(names);
        let agreement = FieldAgreement::Differs;
        Some(FieldChange { path, declared: None, old: None, new: Some(held.clone()), agreement })
    })
}

fn finalizers(object: &ObjectId) -> impl Iterator<Item = [&'static str; 2]> {
    let is_namespace = object.group.is_empty() && object.kind == "Namespace";
    FINALIZERS.into_iter().filter(move |[above, _]| is_namespace || *above == "metadata")
}

/// The objects that are deleted with a namespace or a CustomResourceDefinition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CascadeScope {
    Namespace(String),
    Kind { group: String, plural: String },
}

/// A declared object that would be deleted too.
#[derive(Clone, Debug)]
pub struct Dependant {
    pub release: Arc<Release>,
    pub object: ObjectId,
}

/// The objects that are deleted with `object`; `None` for other kinds.
pub fn cascade_scope(object: &ObjectId) -> Option<CascadeScope> {
    match (object.group.as_str(), object.kind.as_str()) {
        ("", "Namespace") => Some(CascadeScope::Namespace(object.name.to_string())),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            let (plural, group) = object.name.split_once('.')?;
            Some(CascadeScope::Kind { group: group.to_owned(), plural: plural.to_owned() })
        }
        _ => None,
    }
}

/// The declared objects that are deleted too, one for each release; only objects in the release's own namespace. An
/// object elsewhere counts only if it exists and its annotations name the release, which this function cannot know.
pub fn dependants(taken: &CascadeScope, index: &Index, rules: &Rules<'_>, now: Timestamp) -> Vec<Dependant> {
    let along = |object: &ObjectId| match taken {
        CascadeScope::Namespace(namespace) => object.namespace.as_deref() == Some(namespace),
        CascadeScope::Kind { group, plural } => {
            object.group == *group
                && index.kind_of_resource(group, plural).is_some_and(|(kind, _)| kind == object.kind)
        }
    };
    let protected = |release: &Release, object: &ObjectId| {
        is_local(release, object)
            && state::current_claim(
                release,
                object,
                rules.resolver.policy(&release.id).operation_timeout,
                now,
            )
            .is_some_and(|standing| {
                standing.deletion != Deletion::Uninstalled
                    && standing.alternatives.iter().any(|declared| !declared.opted_out)
            })
    };
    let mut found: Vec<_> = index
        .releases()
        .filter_map(|release| {
            let object = release.objects.keys().filter(|it| along(it) && protected(release, it)).min()?;
            Some(Dependant { release: Arc::clone(release), object: ObjectId::clone(object) })
        })
        .collect();
    found.sort_by(|a, b| a.release.id.cmp(&b.release.id));
    found
}

/// Judges the deletion of a namespace or definition that also deletes `dependants`, or an update that gives it a new
/// owner. Helm may delete an object of its own release, whatever is deleted with it.
pub fn judge_deletion(
    edit: &Edit<'_>,
    claims: &[Arc<Release>],
    dependants: &[Dependant],
    rules: &Rules<'_>,
    now: Timestamp,
) -> Verdict {
    let (itself, _) = judge::judge(edit, claims, rules, DryRunEvidence::None, now);
    let Some(first) = dependants.first() else { return itself };
    let deletes = match (edit.operation, edit.old, edit.new) {
        (Operation::Delete, ..) => true,
        (Operation::Update, Some(old), Some(new)) => sealed::adds_owner(old, new),
        _ => false,
    };
    let passes = !deletes
        || matches!(
            itself.reason,
            VerdictReason::InBand | VerdictReason::BeingDeleted | VerdictReason::Identity
        )
        || identities::deletes(edit.actor, edit.object)
        || edit.old.is_some_and(is_being_deleted);
    if passes || itself.outcome == EditOutcome::Deny {
        return itself;
    }
    let grounds = Grounds::new(&first.release.id, first.release.state.revision, Vec::new());
    let governed = dependants.iter().map(|it| (grounds.clone(), rules.resolver.policy(&it.release.id)));
    Verdict::strictest(edit.actor, VerdictReason::Dependants, governed).unwrap_or(itself)
}

#[cfg(test)]
mod tests;
