//! The conditions by which the API server skips a webhook, where it knows `matchConditions`.
//!
//! Entry points: [`sparing`] for edits, [`records`], [`helms_metadata_changes`] for statuses.
//! Invariant: a condition skips only requests that the guard allows whatever a policy says, so that
//! they also pass while no guard answers. Must not skip a request that any guard could refuse.

use k8s_openapi::api::admissionregistration::v1::MatchCondition;

use kubemoor_declare::model::{MANAGED_BY, RELEASE_NAME, RELEASE_NAMESPACE};
use kubemoor_helm::record::NAME_PREFIX;
use kubemoor_verdict::identities;

/// The names of the guard's own conditions. All others are the admin's.
pub(super) const OWN: [&str; 5] = [METADATA, CLEANUP, DELETED, OWNERS, RECORD];

/// Helm's label or one of its annotations changes, or the owners.
const METADATA: &str = "helms-metadata-changes";

/// The request is not an update that leaves the owners and the labels as they are.
const OWNERS: &str = "owners-or-labels-change";

/// The request is not a deletion by a controller that may delete everything.
const CLEANUP: &str = "not-a-controllers-cleanup";

/// The object is not being deleted already, or the request changes more than its finalizers.
const DELETED: &str = "not-being-deleted";

/// The object is a record of Helm's.
const RECORD: &str = "a-record-of-helms";

/// The metadata that a change of an object in deletion may always have: its finalizers, and what
/// only the API server sets.
const FINISHING: &str = "['finalizers', 'managedFields', 'resourceVersion', 'generation', 'deletionTimestamp', \
    'deletionGracePeriodSeconds']";

/// Skips what keeps namespaces from staying `Terminating` and garbage from piling up: deletions by
/// the namespace controller and the garbage collector, and the removal of finalizers from objects
/// that are being deleted.
pub(super) fn sparing() -> Vec<MatchCondition> {
    vec![no_cleanup(), being_deleted()]
}

/// Skips what Helm does not read as a record, by its name or by its labels, and deletions by the namespace controller
/// and the garbage collector. Records that are being deleted are sent: Helm still reads them.
pub(super) fn records() -> Vec<MatchCondition> {
    let is_record = |of: &str| {
        let labels = format!("{of}.metadata.labels");
        format!(
            "({of} != null && ((has({of}.metadata.name) && {of}.metadata.name.startsWith('{NAME_PREFIX}')) \
             || (has({labels}) && 'owner' in {labels} && {labels}['owner'] == 'helm')))"
        )
    };
    let expression = ["object", "oldObject"].map(is_record).join(" || ");
    vec![no_cleanup(), condition(RECORD, expression)]
}

fn no_cleanup() -> MatchCondition {
    let users: Vec<_> = identities::delete_everything().map(|user| format!("'{user}'")).collect();
    let is_theirs = format!("request.userInfo.username in [{}]", users.join(", "));
    condition(CLEANUP, format!("request.operation != 'DELETE' || !({is_theirs})"))
}

/// Skips deletions of objects that are being deleted already, and changes of nothing but their
/// finalizers. Any other change is judged: a finalizer keeps such an object at work. Only the API
/// server sets a `deletionTimestamp`.
pub(super) fn being_deleted() -> MatchCondition {
    let differs = |place: &str, spared: &str| {
        let (new, old) = (format!("object{place}"), format!("oldObject{place}"));
        format!(
            "{new}.exists(k, !(k in {spared}) && !(k in {old} && {new}[k] == {old}[k])) \
             || {old}.exists(k, !(k in {spared}) && !(k in {new}))"
        )
    };
    let differs = [differs("", "['metadata']"), differs(".metadata", FINISHING)].join(" || ");
    let expression = format!(
        "oldObject == null || !has(oldObject.metadata.deletionTimestamp) || (object != null && ({differs}))"
    );
    condition(DELETED, expression)
}

/// Skips updates that leave the owners as they are, and the labels, by which policies select namespaces.
pub(super) fn updated_owners() -> MatchCondition {
    let labels = |of: &str| format!("(has({of}.metadata.labels) ? {of}.metadata.labels : {{}})");
    let labels = format!("{} != {}", labels("object"), labels("oldObject"));
    condition(OWNERS, format!("request.operation != 'UPDATE' || {} || {labels}", owners_change()))
}

/// The owners of the object change: the garbage collector deletes an object whose owners do not exist.
fn owners_change() -> String {
    let owners = |of: &str| {
        let owners = format!("{of}.metadata.ownerReferences");
        format!("(has({owners}) ? {owners} : [])")
    };
    format!("{} != {}", owners("object"), owners("oldObject"))
}

/// Skips what changes neither Helm's label nor one of its annotations, nor the owners.
pub(super) fn helms_metadata_changes() -> MatchCondition {
    let value = |of: &str, map: &str, key: &str| {
        let map = format!("{of}.metadata.{map}");
        format!("(has({map}) && '{key}' in {map} ? {map}['{key}'] : '')")
    };
    let changes = |(map, key): (&str, &str)| {
        format!("{} != {}", value("object", map, key), value("oldObject", map, key))
    };
    let changed =
        [("labels", MANAGED_BY.0), ("annotations", RELEASE_NAME), ("annotations", RELEASE_NAMESPACE)];
    condition(METADATA, format!("{} || {}", changed.map(changes).join(" || "), owners_change()))
}

fn condition(name: &str, expression: String) -> MatchCondition {
    MatchCondition { name: name.to_owned(), expression }
}
