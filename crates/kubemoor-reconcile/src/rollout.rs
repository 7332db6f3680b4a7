//! Workloads that still roll out a repaired pod template: other repairs of their release wait for them.
//!
//! A workload that no controller observes, or that needs no pods, has nothing to roll out. A rollout without progress
//! delays nothing: its pods may never become ready.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::waits::elapsed;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_declare::path::{Path, Segment};

/// How long a rollout may delay repairs of other workloads of its release.
const LONGEST: Duration = Duration::from_secs(600);

/// How long it may do so while its status does not change.
const STALLED: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(crate) struct Rollouts(BTreeMap<ObjectId, Rollout>);

#[derive(Debug)]
struct Rollout {
    release: ReleaseId,
    since: Timestamp,
    /// Its `metadata.generation` after the repair: older states of the workload are ignored.
    generation: i64,
    status: Option<Value>,
    /// When the status changed last.
    moved: Timestamp,
}

impl Rollout {
    fn wait(&self, now: Timestamp) -> Duration {
        let left = LONGEST.saturating_sub(elapsed(self.since, now));
        left.min(STALLED.saturating_sub(elapsed(self.moved, now)))
    }
}

impl Rollouts {
    /// Records that the pod template of a workload was repaired, with its state after that.
    pub(crate) fn begin(&mut self, release: &ReleaseId, object: &ObjectId, written: &Value, now: Timestamp) {
        let (release, status) = (release.clone(), written.get("status").cloned());
        let rollout = Rollout { release, since: now, generation: generation(written), status, moved: now };
        self.0.insert(object.clone(), rollout);
        self.see(object, written, now);
    }

    /// Another workload of the release that is being rolled out, and how long to wait for it at most.
    pub(crate) fn of_another(
        &self,
        release: &ReleaseId,
        object: &ObjectId,
        now: Timestamp,
    ) -> Option<(Duration, &ObjectId)> {
        let others = self.0.iter().filter(|(other, it)| it.release == *release && *other != object);
        let waits = others.map(|(other, it)| (it.wait(now), other));
        waits.filter(|(wait, _)| !wait.is_zero()).max()
    }

    /// Records the state of a workload. Returns whether its rollout is now complete.
    pub(crate) fn see(&mut self, object: &ObjectId, live: &Value, now: Timestamp) -> bool {
        let Some(rollout) = self.0.get_mut(object).filter(|it| generation(live) >= it.generation) else {
            return false;
        };
        if rollout.status.as_ref() != live.get("status") {
            (rollout.status, rollout.moved) = (live.get("status").cloned(), now);
        }
        is_rolled_out(live) && self.0.remove(object).is_some()
    }

    pub(crate) fn forget(&mut self, object: &ObjectId) {
        self.0.remove(object);
    }
}

/// Whether a change at `path` creates new pods.
pub(crate) fn touches_template(object: &ObjectId, path: &Path) -> bool {
    let is_field = |at: usize, name: &str| matches!(path.0.get(at), Some(Segment::Field(it)) if it == name);
    object.group == "apps"
        && matches!(object.kind.as_str(), "Deployment" | "StatefulSet" | "DaemonSet")
        && is_field(0, "spec")
        && is_field(1, "template")
}

/// Whether a workload has all its pods, and none of an older template, or no controller continues the rollout: it is
/// paused or `OnDelete`, or has exceeded its progress deadline.
fn is_rolled_out(object: &Value) -> bool {
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64);
    let Some(observed) = number("/status/observedGeneration") else { return true };
    let scheduled = number("/status/desiredNumberScheduled");
    let (wanted, updated) = match scheduled {
        Some(wanted) => (wanted, number("/status/updatedNumberScheduled")),
        None => (number("/spec/replicas").unwrap_or(1), number("/status/updatedReplicas")),
    };
    let (updated, there) = (updated.unwrap_or(0), number("/status/replicas").unwrap_or(0));
    let is_idle = scheduled.is_none() && wanted == 0 && there == 0;
    let by_hand = object.pointer("/spec/updateStrategy/type").is_some_and(|it| it == "OnDelete")
        || object.pointer("/spec/paused").is_some_and(|it| it == true);
    if is_idle || by_hand {
        return true;
    }
    // Pods of a StatefulSet below its partition keep their old template. The last old pod of a Deployment is deleted
    // when the new ones are ready.
    let kept = number("/spec/updateStrategy/rollingUpdate/partition").unwrap_or(0);
    let are_old_gone = scheduled.is_some() || kept > 0 || there <= updated;
    let is_done = updated >= wanted.saturating_sub(kept) && are_old_gone;
    observed >= generation(object) && (is_done || has_failed(object))
}

fn has_failed(object: &Value) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .any(|it| it["type"] == "Progressing" && it["reason"] == "ProgressDeadlineExceeded")
}

fn generation(object: &Value) -> i64 {
    object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default()
}

#[cfg(test)]
mod tests;
