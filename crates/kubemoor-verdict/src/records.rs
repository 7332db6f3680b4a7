//! The rule that guards Helm's records.
//!
//! It denies changes of the manifest of an existing revision, contradictions between a record's name, labels and
//! payload, and the deletion of the last deployed record except in an uninstallation; also a new owner reference,
//! because of which the garbage collector may delete that record. Everything else is allowed: pruning, restores, the
//! deletion of a stuck pending record, re-encryption. If a policy names operators, only they may write records. Every
//! object that Helm reads as a record, by its name or by its labels, is one. This prevents accidents; users who may
//! write Secrets in a namespace can still act as Helm there.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::edit::{Grounds, Rules, Verdict, VerdictReason};
use crate::identities;
use kubemoor_declare::model::{Actor, ObjectId, Operation, ReleaseId};
use kubemoor_helm::index::Index;
use kubemoor_helm::record::{Record, RecordError, ReleaseStatus, parse_record_name};
use kubemoor_helm::release::Release;
use kubemoor_policy::Policy;
use kubemoor_policy::resource::SubjectSpec;

pub struct RecordEdit<'a> {
    pub operation: Operation,
    pub actor: &'a Actor,
    /// The Secret or ConfigMap.
    pub object: &'a ObjectId,
    pub old: Option<&'a Stored>,
    pub new: Option<&'a Stored>,
    /// The releases that its labels name before and after, if they mark it as Helm's. Helm finds the records of a
    /// release by these labels, whatever the names of the objects.
    pub labelled: &'a [String],
    /// Whether an update adds an owner reference to the object. The garbage collector deletes the object if that owner
    /// does not exist.
    pub adds_owner: bool,
    /// Whether the object is being deleted, and the edit does not change its labels and its content. Helm still reads a
    /// record whose deletion a finalizer blocks.
    pub being_deleted: bool,
}

/// A record as an object holds it.
pub struct Stored {
    pub owner: Option<String>,
    pub name: Option<String>,
    pub version: Option<String>,
    pub status: Option<String>,
    pub payload: Result<Record, RecordError>,
}

/// Why an edit falsifies a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordViolation {
    Manifest,
    LastDeployed,
    Disagreement,
    /// A policy names the users who may write the release's records, and this actor is not one of them.
    Stranger,
}

/// The effects of an edit on a record, before any rule is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFacts {
    pub revision: u64,
    /// The releases that it describes, before and after.
    pub releases: Vec<ReleaseId>,
    /// What the edit would falsify, whoever makes it.
    pub falsified: Option<RecordViolation>,
}

/// The release and revision in a record's name.
pub fn names(object: &ObjectId) -> Option<(ReleaseId, u64)> {
    let (name, revision) = parse_record_name(&object.name)?;
    Some((ReleaseId { namespace: object.namespace.clone()?, name: name.into() }, revision))
}

/// The releases for which Helm reads the object, by its name or by its labels, as if they were in the object's
/// namespace; the release of its name comes first. Empty if Helm reads the object for no release.
fn places(object: &ObjectId, labelled: &[String]) -> Vec<ReleaseId> {
    let Some(namespace) = &object.namespace else { return Vec::new() };
    let mut places: Vec<_> = names(object).into_iter().map(|(release, _)| release).collect();
    for name in labelled {
        if places.iter().all(|place| place.name != *name) {
            places.push(ReleaseId { namespace: namespace.clone(), name: name.as_str().into() });
        }
    }
    places
}

/// Judges one edit of a record. The policies of all releases for which Helm reads the record, before or after, apply to
/// the edit. Also returns the falsified part.
pub fn judge(edit: &RecordEdit<'_>, index: &Index, rules: &Rules<'_>) -> (Verdict, Option<RecordViolation>) {
    match facts(edit, index, rules) {
        Ok(facts) => decide(edit.actor, &facts, |release| rules.resolver.policy(release)),
        Err(reason) => (Verdict::allow(reason), None),
    }
}

/// The effects of an edit on a record.
///
/// # Errors
/// The reason why the edit is allowed under every policy.
pub fn facts(edit: &RecordEdit<'_>, index: &Index, rules: &Rules<'_>) -> Result<RecordFacts, VerdictReason> {
    let places = places(edit.object, edit.labelled);
    if places.is_empty() {
        return Err(VerdictReason::NotDeclared);
    }
    if edit.being_deleted {
        return Err(VerdictReason::BeingDeleted);
    }
    if edit.operation == Operation::Delete && identities::deletes(edit.actor, edit.object) {
        return Err(VerdictReason::Identity);
    }
    let named = names(edit.object);
    let release = named.as_ref().and_then(|(id, _)| index.release_without_rival(id)).map(Arc::as_ref);
    let falsified = match (&named, edit.operation) {
        // Its name is not that of a record, so the content cannot contradict it.
        (None, _) => None,
        (Some((_, revision)), Operation::Delete) => last_deployed(edit, *revision, release),
        (Some((id, revision)), Operation::Create | Operation::Update) => {
            let removed = || last_deployed(edit, *revision, release).filter(|_| edit.adds_owner);
            rewritten(edit, id, *revision).or_else(removed)
        }
    };
    let held = [edit.old, edit.new].into_iter().flatten().find_map(|it| it.payload.as_ref().ok());
    let (named, revision) = named.unzip();
    let revision = revision.or(held.map(|record| record.revision));
    let releases = read_for(edit, named.as_ref(), &places, index, rules);
    Ok(RecordFacts { revision: revision.unwrap_or_default(), releases, falsified })
}

/// The verdict on an edit with these effects, by the policies of its releases.
pub fn decide(
    actor: &Actor,
    facts: &RecordFacts,
    policy: impl Fn(&ReleaseId) -> Arc<Policy>,
) -> (Verdict, Option<RecordViolation>) {
    let RecordFacts { revision, releases, falsified } = facts;
    let policies: Vec<_> = releases.iter().map(policy).collect();
    let among = |subjects: &[SubjectSpec]| subjects.iter().any(|subject| subject.matches(actor));
    let is_stranger = policies.iter().any(|policy| !policy.operators.is_empty() && !among(&policy.operators));
    let falsified = if is_stranger { Some(RecordViolation::Stranger) } else { *falsified };
    if falsified.is_none() {
        return (Verdict::allow(VerdictReason::RecordIntact), None);
    }
    let governed = releases.iter().zip(&policies);
    let governed =
        governed.map(|(release, policy)| (Grounds::new(release, *revision, Vec::new()), Arc::clone(policy)));
    let verdict = Verdict::strictest(actor, VerdictReason::Record, governed);
    let verdict = verdict.unwrap_or_else(|| Verdict::allow(VerdictReason::RecordIntact));
    (verdict, falsified)
}

/// The verdict on an edit of a record of which neither version could be read: the user is not an operator, or the edit
/// is always allowed. `None` if it depends on the content of the record.
pub fn judge_unread(
    edit: &RecordEdit<'_>,
    index: &Index,
    rules: &Rules<'_>,
) -> Option<(Verdict, Option<RecordViolation>)> {
    match judge(edit, index, rules) {
        stranger @ (_, Some(RecordViolation::Stranger)) => Some(stranger),
        (verdict, None) if verdict.reason != VerdictReason::RecordIntact => Some((verdict, None)),
        _ => None,
    }
}

/// The releases for which Helm reads the record at `places`, before and after the edit. Helm ignores the namespace in a
/// record's content. Releases of several namespaces may store their records in one, so the record's name, `named`,
/// counts for the release that is known to store its records there and for the one in the content; without either, for
/// a release in that namespace. Helm writes no label with another name, so such a label counts for all releases of that
/// name whose records may be there.
fn read_for(
    edit: &RecordEdit<'_>,
    named: Option<&ReleaseId>,
    places: &[ReleaseId],
    index: &Index,
    rules: &Rules<'_>,
) -> Vec<ReleaseId> {
    let policies = rules.resolver.policies();
    let storage = policies.storage();
    let within =
        |namespace: &str, place: &ReleaseId| ReleaseId { namespace: namespace.into(), ..place.clone() };
    let records = [edit.old, edit.new].into_iter().flatten().filter_map(|it| it.payload.as_ref().ok());
    let told = records.flat_map(|record| {
        let trusted =
            places.iter().filter(move |place| storage.can_store(&place.namespace, &record.namespace));
        trusted.map(move |place| within(&record.namespace, place))
    });
    let known = named.and_then(|place| index.stored(place)).map(|release| release.id.clone());
    let mut releases: Vec<_> = known.into_iter().chain(told).collect();
    if releases.is_empty() {
        releases.extend(named.cloned());
    }
    for place in places.iter().filter(|place| Some(*place) != named) {
        releases.push(place.clone());
        releases.extend(storage.namespaces_in(&place.namespace).map(|namespace| within(namespace, place)));
    }
    releases.sort();
    releases.dedup();
    releases
}

/// Whether the deletion would leave the release without its last deployed record. The known state of the release may
/// lag behind a Helm operation; the record itself comes from the API server.
fn last_deployed(edit: &RecordEdit<'_>, revision: u64, release: Option<&Release>) -> Option<RecordViolation> {
    let release = release?;
    if matches!(release.state.status, ReleaseStatus::Uninstalling | ReleaseStatus::Uninstalled) {
        return None;
    }
    let mut heads = [&release.latest].into_iter().chain(&release.baseline);
    let last = heads.find(|head| head.status == ReleaseStatus::Deployed);
    let says_deployed =
        matches!(edit.old.map(|old| &old.payload), Some(Ok(old)) if old.status == ReleaseStatus::Deployed);
    let is_last = match last {
        Some(last) => last.secret == edit.object.name || (says_deployed && revision > last.revision),
        None => says_deployed && revision >= release.latest.revision,
    };
    is_last.then_some(RecordViolation::LastDeployed)
}

fn rewritten(edit: &RecordEdit<'_>, id: &ReleaseId, revision: u64) -> Option<RecordViolation> {
    let new = edit.new?;
    if let (Some(Ok(old)), Ok(new)) = (edit.old.map(|old| &old.payload), &new.payload)
        && old.digest != new.digest
    {
        return Some(RecordViolation::Manifest);
    }
    // The update would make it the record of another release, which Helm never does.
    if let (Some(Ok(old)), Ok(new)) = (edit.old.map(|old| &old.payload), &new.payload)
        && old.namespace != new.namespace
    {
        return Some(RecordViolation::Disagreement);
    }
    // An edit of a record that disagreed before does not have to correct it, and a program may create a record
    // before it writes the whole content.
    let agreed = edit.old.is_some_and(|old| agrees(old, id, revision));
    (agreed && !agrees(new, id, revision)).then_some(RecordViolation::Disagreement)
}

fn agrees(stored: &Stored, id: &ReleaseId, revision: u64) -> bool {
    let Ok(record) = &stored.payload else { return false };
    stored.owner.as_deref() == Some("helm")
        && stored.name.as_deref() == Some(id.name.as_str())
        && stored.version.as_deref() == Some(revision.to_string().as_str())
        // Statuses that only a later Helm knows count as equal.
        && stored.status.as_deref().and_then(|word| word.parse().ok()) == Some(record.status)
        && record.name == id.name
        && record.revision == revision
}

#[cfg(test)]
mod tests;
