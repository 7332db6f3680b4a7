//! What the state of a release's latest record allows. Older records, such as a stale pending one, allow nothing. The
//! state selects the manifests that a change may match, for every user; a Helm operation passes because it writes such
//! a manifest.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::record::ReleaseStatus;
use super::release::{DeclaredObject, ObjectDeclarations, Release};
use kubemoor_declare::model::{ObjectId, RESOURCE_POLICY};

/// How long after a failed operation Helm may still delete the objects that it created (`--cleanup-on-fail` runs after
/// the record says failed).
pub const CLEANUP: SignedDuration = SignedDuration::from_mins(10);

/// The current claim of one release on one object.
#[derive(Clone, Debug)]
pub struct ReleaseClaim<'r> {
    pub release: &'r Release,
    /// The declarations that a change may match: one is enough. Never empty.
    pub alternatives: Vec<&'r Arc<DeclaredObject>>,
    /// The deletions that Helm's own operation may make.
    pub deletion: Deletion,
    /// An operation is under way, so a valid Helm write may come at any time.
    pub pending: bool,
}

/// The deletions of the object that Helm's own operation may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    Never,
    /// An upgrade or rollback drops it, unless the live object says `keep`.
    Dropped,
    Uninstalled,
    /// The failed operation is being cleaned up: objects created since this time.
    CreatedSince(Timestamp),
}

impl ReleaseClaim<'_> {
    /// The part that applies to a review in `version`. `None` where the current manifest uses another
    /// version: the object is judged in that one.
    pub fn in_version(mut self, version: &str) -> Option<Self> {
        let is_meant = |declared: &DeclaredObject| declared.served() == version;
        if !self.alternatives.first().is_some_and(|first| is_meant(first)) {
            return None;
        }
        self.alternatives.retain(|declared| is_meant(declared));
        Some(self)
    }
}

/// The claim of `release` on `object` at `now`. `None` if the state of its record declares no such object.
pub fn current_claim<'r>(
    release: &'r Release,
    object: &ObjectId,
    operation_timeout: Duration,
    now: Timestamp,
) -> Option<ReleaseClaim<'r>> {
    let ObjectDeclarations { latest, earlier, baseline } = release.objects.get(object)?;
    let (latest, baseline) = (latest.as_ref(), baseline.as_ref());
    // Helm writes each document of the object in turn.
    let written = || latest.into_iter().chain(earlier);
    let state = &release.state;
    let locked = is_locked(release, operation_timeout, now);
    let unless_locked = |deletion| if locked { Deletion::Never } else { deletion };
    let (alternatives, deletion) = match state.status {
        ReleaseStatus::PendingInstall | ReleaseStatus::PendingUpgrade | ReleaseStatus::PendingRollback => {
            match latest {
                Some(_) => (written().chain(baseline.filter(|_| locked)).collect(), Deletion::Never),
                None => (Vec::from_iter(baseline), unless_locked(Deletion::Dropped)),
            }
        }
        ReleaseStatus::Uninstalling => {
            // A locked uninstallation deletes no more objects, so a change may also match the manifest that
            // was deployed before.
            let others = baseline.filter(|_| locked);
            // Helm deletes the object if at least one of its documents lacks `keep`.
            let keep = written().all(|declared| declared.keep);
            let deletion = if keep { Deletion::Never } else { unless_locked(Deletion::Uninstalled) };
            (latest.into_iter().chain(latest.and(others)).collect(), deletion)
        }
        ReleaseStatus::Failed => {
            let fresh = now.duration_since(state.last_written) <= CLEANUP;
            let deletion = if fresh { Deletion::CreatedSince(state.created) } else { Deletion::Never };
            (written().chain(baseline).collect(), deletion)
        }
        ReleaseStatus::Deployed | ReleaseStatus::Superseded | ReleaseStatus::Unknown => {
            (Vec::from_iter(latest), Deletion::Never)
        }
        ReleaseStatus::Uninstalled => (Vec::new(), Deletion::Never),
    };
    let pending = !locked && (state.status.is_pending() || state.status == ReleaseStatus::Uninstalling);
    (!alternatives.is_empty()).then_some(ReleaseClaim { release, alternatives, deletion, pending })
}

/// Whether an operation's record stayed untouched for so long that the operation counts as dead: Helm's
/// process was killed, or a hook failed and Helm stopped writing.
pub fn is_locked(release: &Release, operation_timeout: Duration, now: Timestamp) -> bool {
    let state = &release.state;
    let underway = state.status.is_pending() || state.status == ReleaseStatus::Uninstalling;
    let timeout = SignedDuration::try_from(operation_timeout).unwrap_or(SignedDuration::MAX);
    underway && now.duration_since(state.last_written.max(state.created)) > timeout
}

impl Deletion {
    /// Whether this allows the deletion of `live`, the live object.
    pub fn covers(self, live: &Value) -> bool {
        match self {
            Self::Never => false,
            Self::Uninstalled => true,
            // Helm reads the annotation of the live object here, and accepts only this exact word.
            Self::Dropped => annotation(live, RESOURCE_POLICY) != Some("keep"),
            Self::CreatedSince(since) => live
                .pointer("/metadata/creationTimestamp")
                .and_then(Value::as_str)
                .and_then(|text| text.parse::<Timestamp>().ok())
                .is_some_and(|created| created >= since),
        }
    }
}

fn annotation<'v>(object: &'v Value, name: &str) -> Option<&'v str> {
    object.pointer("/metadata/annotations")?.get(name)?.as_str()
}

#[cfg(test)]
mod tests;
