//! Decides whether a drift may be repaired, and in which order. Holds every rule that keeps users who can write Secrets
//! from using the guard's permissions.

use jiff::{SignedDuration, Timestamp};

use crate::drifts::ObjectDrift;
use crate::repair::{RepairContext, Task};
use crate::report::DriftKind;
use kubemoor_declare::model::{DriftMode, ObjectId};
use kubemoor_helm::record::ReleaseStatus;
use kubemoor_helm::release::{Appearance, Release};
use kubemoor_policy::RepairRights;
use kubemoor_verdict::claims::is_local;

/// How long repairs wait for a release whose record was already deployed when it first appeared: a restore or a
/// migration creates records before objects.
pub(crate) const HOLD: SignedDuration = SignedDuration::from_mins(10);

/// Kinds whose re-created object would not equal the old one: a Job would run again, an empty volume would hide the
/// loss, and so on.
const NEVER_CREATED: [(&str, &str); 6] = [
    ("batch", "Job"),
    ("", "PersistentVolumeClaim"),
    ("", "PersistentVolume"),
    ("", "Pod"),
    ("", "Namespace"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
];

/// Why nothing can be written.
pub(crate) const NOT_SERVED: &str = "the cluster does not serve its kind";

/// API groups whose objects grant permissions or can block all requests.
const PRIVILEGED: [&str; 3] =
    ["rbac.authorization.k8s.io", "admissionregistration.k8s.io", "apiextensions.k8s.io"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RepairPlan {
    Repair,
    Report(&'static str),
    /// The release's state says that the object should not exist, or not yet: it is planned again when the release
    /// changes.
    Wait,
    Hold(SignedDuration),
    /// Leave it: the live object was never seen with the declared values, and no user with permission to write it has
    /// ordered the repair.
    Unconfirmed,
}

pub(crate) fn plan(task: &Task, situation: &RepairContext, now: Timestamp) -> RepairPlan {
    let RepairContext { release, declared, policy, life, drift: ObjectDrift { kind, .. }, .. } = situation;
    if policy.drift == DriftMode::Ignore || declared.opted_out {
        return RepairPlan::Wait;
    }
    if release.invalid.is_some() {
        return RepairPlan::Report("its release's latest record is not accepted");
    }
    if release.state.status != ReleaseStatus::Deployed {
        return RepairPlan::Wait;
    }
    match kind {
        DriftKind::Missing if situation.may_be_gone => return RepairPlan::Wait,
        DriftKind::Terminating => return RepairPlan::Report("it is being deleted"),
        DriftKind::Unreadable => return RepairPlan::Report("it is nested too deeply to be checked"),
        DriftKind::Missing | DriftKind::Changed | DriftKind::Ownership => {}
    }
    if policy.drift != DriftMode::Repair && !task.asked {
        return RepairPlan::Report("drift is only reported");
    }
    if let Some(reason) = never_repaired_reason(release, &task.object, *kind, policy.repair) {
        return RepairPlan::Report(reason);
    }
    if situation.first_digest != Some(release.state.digest) {
        return RepairPlan::Report("the manifest of its release's revision has changed");
    }
    if release.state.appearance == Appearance::Seen(ReleaseStatus::Deployed) && !task.asked {
        let age = now.duration_since(release.state.created);
        if age < HOLD {
            return RepairPlan::Hold(HOLD - age);
        }
    }
    // Only after the hold: a restore may still create the object.
    let is_its = life.as_ref().is_some_and(|life| life.has_release_annotations && life.release == release.id);
    if is_its && (situation.ordered_by.is_some() || is_confirmed(situation)) {
        RepairPlan::Repair
    } else if situation.is_unserved && *kind == DriftKind::Missing {
        // Nobody can confirm it.
        RepairPlan::Report(NOT_SERVED)
    } else if is_its {
        RepairPlan::Unconfirmed
    } else {
        RepairPlan::Report("the guard has never seen it with its release's annotations")
    }
}

/// The reason why drift of this kind is never repaired for `object`; `None` if it may be.
pub(crate) fn never_repaired_reason(
    release: &Release,
    object: &ObjectId,
    kind: DriftKind,
    rights: RepairRights,
) -> Option<&'static str> {
    let (group, name) = (object.group.as_str(), object.kind.as_str());
    if kind == DriftKind::Missing && NEVER_CREATED.contains(&(group, name)) {
        return Some("objects of its kind are never re-created");
    }
    if PRIVILEGED.contains(&group) && !rights.rbac {
        return Some("objects that grant rights, intercept requests or define kinds are not repaired");
    }
    (!is_local(release, object) && !rights.cluster_scoped).then_some("it is outside its release's namespace")
}

/// Whether the live object was once seen with the values to write. For an existing object, this checks the declaration;
/// the values are checked when they are known. A new object gets all declared values, except for replicas that an
/// autoscaler sets.
fn is_confirmed(situation: &RepairContext) -> bool {
    let RepairContext { agreement, declared, drift, is_autoscaled, .. } = situation;
    agreement.as_ref().is_some_and(|agreement| match drift.kind {
        DriftKind::Missing => agreement.confirms_all(declared.scale().filter(|_| *is_autoscaled)),
        _ => true,
    })
}

pub(crate) fn install_order(kind: &str) -> usize {
    ORDER.iter().position(|known| *known == kind).unwrap_or(ORDER.len())
}

const ORDER: [&str; 36] = [
    "PriorityClass",
    "Namespace",
    "NetworkPolicy",
    "ResourceQuota",
    "LimitRange",
    "PodSecurityPolicy",
    "PodDisruptionBudget",
    "ServiceAccount",
    "Secret",
    "SecretList",
    "ConfigMap",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleList",
    "ClusterRoleBinding",
    "ClusterRoleBindingList",
    "Role",
    "RoleList",
    "RoleBinding",
    "RoleBindingList",
    "Service",
    "DaemonSet",
    "Pod",
    "ReplicationController",
    "ReplicaSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "StatefulSet",
    "Job",
    "CronJob",
    "IngressClass",
    "Ingress",
    "APIService",
];

#[cfg(test)]
mod tests;
