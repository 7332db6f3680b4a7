//! Whether a missing object may be re-created, and when.
//!
//! Entry point: [`plan`]. Invariant: pure; every rule that keeps the guard from
//! lending its rights to whoever can write a Secret is here.

use jiff::{SignedDuration, Timestamp};

use super::missing::Seen;
use crate::helm::record::Status;
use crate::helm::release::{Appearance, Release};
use crate::model::{DriftMode, ObjectId};
use crate::policy::Policy;
use crate::verdict::claims::is_local;

/// For how long a release is left alone whose record first appeared as
/// deployed: a restore or a migration brings records before objects.
pub(super) const HOLD: SignedDuration = SignedDuration::from_mins(10);

/// Kinds whose new object would not be the old one: a Job would run again, an
/// empty volume hides the loss, and so on.
const NEVER: [(&str, &str); 6] = [
    ("batch", "Job"),
    ("", "PersistentVolumeClaim"),
    ("", "PersistentVolume"),
    ("", "Pod"),
    ("", "Namespace"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
];

/// Groups whose objects grant rights or stand in everybody's way.
const PRIVILEGED: [&str; 2] = ["rbac.authorization.k8s.io", "admissionregistration.k8s.io"];

/// What is to be done about a missing object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Create it again.
    Recreate,
    /// Say that it is missing and is not re-created, for this reason.
    Report(&'static str),
    /// The release's state says that it is not to be there, or not yet: look
    /// again when the release changes.
    Wait,
    /// Look again after this time.
    Hold(SignedDuration),
}

/// What is to be done about `object`, which `release` declares and which is
/// missing. `first_digest` is of the manifest that was first seen of the
/// release's revision.
pub(super) fn plan(
    release: &Release,
    object: &ObjectId,
    seen: Option<&Seen>,
    first_digest: Option<[u8; 32]>,
    policy: &Policy,
    now: Timestamp,
) -> Plan {
    let Some(declared) = release.declared(object) else { return Plan::Wait };
    if release.invalid.is_some() {
        return Plan::Report("its release's latest record cannot be believed");
    }
    if release.state.status != Status::Deployed {
        return Plan::Wait;
    }
    if declared.opted_out {
        return Plan::Wait;
    }
    if policy.drift != DriftMode::Repair {
        return Plan::Report("drift is only reported (--drift Report)");
    }
    if let Some(reason) = never(release, object) {
        return Plan::Report(reason);
    }
    if seen.is_none_or(|seen| seen.release != release.id) {
        return Plan::Report("the guard never saw it alive with its release's annotations");
    }
    if first_digest != Some(release.state.digest) {
        return Plan::Report("the manifest of its release's revision has changed");
    }
    if release.state.appearance == Appearance::Seen(Status::Deployed) {
        let age = now.duration_since(release.state.created);
        if age < HOLD {
            return Plan::Hold(HOLD - age);
        }
    }
    Plan::Recreate
}

/// Why `object` is never re-created for `release`, whatever happens; none if it
/// may be.
pub(super) fn never(release: &Release, object: &ObjectId) -> Option<&'static str> {
    if NEVER.contains(&(object.group.as_str(), object.kind.as_str())) {
        return Some("objects of its kind are never re-created");
    }
    if PRIVILEGED.contains(&object.group.as_str()) {
        return Some("objects that grant rights or intercept requests are not re-created");
    }
    (!is_local(release, object)).then_some("it lies outside of its release's namespace")
}

#[cfg(test)]
mod tests;
