//! Which workload of each release rolls out its pod template because of a repair, and whether it has.
//!
//! A workload that no controller observes, or that has and needs no pods, has nothing to roll out. A stalled roll-out is
//! not waited for: a release whose pods never get ready is repaired all the same.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::waits::elapsed;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_declare::path::{Path, Segment};

/// How long a roll-out may delay repairs of other objects of its release.
const LONGEST: Duration = Duration::from_secs(600);

/// How long it may do so without progress: pods that do not get ready delay a roll-out forever.
const STALLED: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(crate) struct Rollouts(HashMap<ReleaseId, Rollout>);

#[derive(Clone, Debug)]
pub(crate) struct Rollout {
    pub(crate) object: ObjectId,
    pub(crate) since: Timestamp,
    /// Its `metadata.generation` by then.
    generation: i64,
    /// The numbers of its status, and when they changed last.
    numbers: Vec<Option<i64>>,
    moved: Timestamp,
}

impl Rollouts {
    /// Records that the pod template of a workload was repaired, with the workload's present state.
    pub(crate) fn begin(&mut self, release: &ReleaseId, object: &ObjectId, written: &Value, now: Timestamp) {
        if !is_rolled_out(written) {
            let rollout = Rollout {
                object: object.clone(),
                since: now,
                generation: generation(written),
                numbers: numbers(written),
                moved: now,
            };
            self.0.insert(release.clone(), rollout);
        }
    }

    /// A workload of the release other than `object` that may not be rolled out yet and had recent progress.
    pub(crate) fn of_another(
        &self,
        release: &ReleaseId,
        object: &ObjectId,
        now: Timestamp,
    ) -> Option<Rollout> {
        let rollout = self.0.get(release).filter(|rollout| rollout.object != *object)?;
        let waits = elapsed(rollout.since, now) < LONGEST && elapsed(rollout.moved, now) < STALLED;
        waits.then(|| rollout.clone())
    }

    /// Takes in a workload, perhaps in a slightly older state. Returns whether repairs of its release continue by that.
    pub(crate) fn see(
        &mut self,
        release: &ReleaseId,
        object: &ObjectId,
        live: &Value,
        now: Timestamp,
    ) -> bool {
        let Some(rollout) = self.0.get_mut(release).filter(|rollout| rollout.object == *object) else {
            return false;
        };
        if generation(live) < rollout.generation {
            return false;
        }
        if is_rolled_out(live) {
            self.0.remove(release);
            return true;
        }
        let numbers = numbers(live);
        if numbers != rollout.numbers {
            (rollout.numbers, rollout.moved) = (numbers, now);
        }
        false
    }

    pub(crate) fn forget(&mut self, release: &ReleaseId, object: &ObjectId) {
        if self.0.get(release).is_some_and(|rollout| rollout.object == *object) {
            self.end(release);
        }
    }

    pub(crate) fn end(&mut self, release: &ReleaseId) {
        self.0.remove(release);
    }
}

/// Whether a change at `path` makes new pods.
pub(crate) fn touches_template(object: &ObjectId, path: &Path) -> bool {
    let rolls = matches!(
        (object.group.as_str(), object.kind.as_str()),
        ("apps", "Deployment" | "StatefulSet" | "DaemonSet")
    );
    let names: Vec<_> = path.0.iter().take(2).collect();
    rolls
        && matches!(names.as_slice(), [Segment::Field(spec), Segment::Field(template)] if spec == "spec" && template == "template")
}

/// Whether a workload has all its pods, and none of an older template, or no controller works on that: it is left to
/// people, or Kubernetes has given up.
fn is_rolled_out(object: &Value) -> bool {
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64);
    let Some(observed) = number("/status/observedGeneration") else { return true };
    let scheduled = number("/status/desiredNumberScheduled");
    let (wanted, updated) = match scheduled {
        Some(wanted) => (wanted, number("/status/updatedNumberScheduled")),
        None => (number("/spec/replicas").unwrap_or(1), number("/status/updatedReplicas")),
    };
    let is_idle = scheduled.is_none() && wanted == 0 && number("/status/replicas").unwrap_or(0) == 0;
    let by_hand = object.pointer("/spec/updateStrategy/type").is_some_and(|it| it == "OnDelete")
        || object.pointer("/spec/paused").is_some_and(|it| it == true);
    if is_idle || by_hand {
        return true;
    }
    if observed < generation(object) {
        return false;
    }
    // Those of a StatefulSet below its partition keep their old template.
    let kept = number("/spec/updateStrategy/rollingUpdate/partition").unwrap_or(0);
    let updated = updated.unwrap_or(0);
    // The last of the old ones goes when the new ones are ready.
    let are_old_gone = scheduled.is_some() || kept > 0 || number("/status/replicas").unwrap_or(0) <= updated;
    (updated >= wanted.saturating_sub(kept) && are_old_gone) || has_failed(object)
}

fn has_failed(object: &Value) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| {
        let is = |field: &str, wanted: &str| condition.get(field).and_then(Value::as_str) == Some(wanted);
        is("type", "Progressing") && is("reason", "ProgressDeadlineExceeded")
    })
}

fn numbers(object: &Value) -> Vec<Option<i64>> {
    let status = object.get("status").and_then(Value::as_object);
    status.into_iter().flatten().map(|(_, value)| value.as_i64()).collect()
}

fn generation(object: &Value) -> i64 {
    object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default()
}

#[cfg(test)]
mod tests;
