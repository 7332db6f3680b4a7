//! Whether a workload has rolled out what its pod template says.
//!
//! Entry points: [`touches_template`], [`is_rolled_out`]. Invariant: total on
//! any JSON; a workload that no controller looks at has nothing to roll out.

use serde_json::Value;

use crate::declaration::path::{Path, Segment};
use crate::model::ObjectId;

/// Whether a change at `path` makes new pods.
pub(super) fn touches_template(object: &ObjectId, path: &Path) -> bool {
    let rolls = matches!(
        (object.group.as_str(), object.kind.as_str()),
        ("apps", "Deployment" | "StatefulSet" | "DaemonSet")
    );
    let names: Vec<_> = path.0.iter().take(2).collect();
    rolls
        && matches!(names.as_slice(), [Segment::Field(spec), Segment::Field(template)] if spec == "spec" && template == "template")
}

/// Whether the pods of a workload are what its template says, and ready. One
/// whose pods somebody else has to replace rolls out nothing.
pub(super) fn is_rolled_out(object: &Value) -> bool {
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64);
    let on_delete =
        object.pointer("/spec/updateStrategy/type").is_some_and(|strategy| strategy == "OnDelete");
    if on_delete || object.pointer("/spec/paused").is_some_and(|paused| *paused == true) {
        return true;
    }
    let Some(observed) = number("/status/observedGeneration") else { return true };
    if number("/metadata/generation").is_some_and(|generation| observed < generation) {
        return false;
    }
    let count = |pointer: &str| number(pointer).unwrap_or(0);
    if let Some(wanted) = number("/status/desiredNumberScheduled") {
        return count("/status/updatedNumberScheduled") >= wanted && count("/status/numberReady") >= wanted;
    }
    let wanted = number("/spec/replicas").unwrap_or(1);
    let kept = count("/spec/updateStrategy/rollingUpdate/partition");
    let updated = count("/status/updatedReplicas");
    // The pods that are ready may be old ones, as long as there are any.
    let are_old_gone = kept > 0 || count("/status/replicas") <= updated;
    updated >= wanted.saturating_sub(kept) && count("/status/readyReplicas") >= wanted && are_old_gone
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(object: Value, expected: bool) {
        assert_eq!(is_rolled_out(&object), expected, "{object}");
    }

    #[test]
    fn a_workload_is_rolled_out_when_all_its_pods_are_new_and_ready() {
        check(json!({}), true);
        check(json!({"metadata": {"generation": 3}, "spec": {"replicas": 2}}), true);
        let deployment = |observed: i64, updated: i64, ready: i64| {
            json!({"metadata": {"generation": 3}, "spec": {"replicas": 2},
                "status": {"observedGeneration": observed, "updatedReplicas": updated, "readyReplicas": ready}})
        };
        check(deployment(2, 2, 2), false);
        check(deployment(3, 1, 2), false);
        check(deployment(3, 2, 1), false);
        check(deployment(3, 2, 2), true);
        check(json!({"spec": {"replicas": 0}, "status": {"observedGeneration": 1}}), true);
        // The new one is not ready, and the old one still is.
        let status =
            json!({"observedGeneration": 3, "replicas": 2, "updatedReplicas": 1, "readyReplicas": 1});
        check(json!({"metadata": {"generation": 3}, "spec": {"replicas": 1}, "status": status}), false);
        check(
            json!({"status": {"observedGeneration": 1, "desiredNumberScheduled": 2, "updatedNumberScheduled": 1, "numberReady": 2}}),
            false,
        );
    }

    #[test]
    fn pods_that_are_to_stay_old_are_not_waited_for() {
        let status =
            json!({"observedGeneration": 1, "replicas": 3, "updatedReplicas": 1, "readyReplicas": 3});
        let with = |spec: Value| json!({"spec": spec, "status": status});
        check(with(json!({"replicas": 3})), false);
        check(with(json!({"replicas": 3, "paused": true})), true);
        check(with(json!({"replicas": 3, "updateStrategy": {"type": "OnDelete"}})), true);
        let partition = |kept: i64| {
            with(json!({"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": kept}}}))
        };
        check(partition(2), true);
        check(partition(1), false);
    }

    #[test]
    fn only_the_templates_of_workloads_make_new_pods() {
        let id = |group: &str, kind: &str| ObjectId {
            group: group.to_owned(),
            kind: kind.to_owned(),
            namespace: None,
            name: "web".to_owned(),
        };
        let touches = |object: &ObjectId, path: &str| touches_template(object, &path.parse().unwrap());
        let deployment = id("apps", "Deployment");
        assert!(touches(&deployment, "/spec/template/spec/containers/[name=app]/image"));
        assert!(touches(&deployment, "/spec/template"));
        assert!(!touches(&deployment, "/spec/replicas") && !touches(&deployment, "/spec"));
        assert!(!touches(&id("batch", "CronJob"), "/spec/template/spec"));
    }
}
