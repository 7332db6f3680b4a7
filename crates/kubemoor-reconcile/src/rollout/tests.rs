use serde_json::json;

use super::*;

fn at() -> Timestamp {
    "2026-05-01T12:00:00Z".parse().unwrap()
}

#[track_caller]
fn check(object: &Value, expected: bool) {
    assert_eq!(is_rolled_out(object), expected, "{object}");
}

/// A Deployment of two replicas in its third generation.
fn deployment(observed: i64, updated: i64, there: i64) -> Value {
    json!({"metadata": {"generation": 3}, "spec": {"replicas": 2},
        "status": {"observedGeneration": observed, "updatedReplicas": updated, "replicas": there}})
}

fn web(kind: &str) -> ObjectId {
    ObjectId::namespaced("apps", kind, "shop", "web")
}

#[test]
fn rollout_is_done_when_all_pods_are_updated() {
    check(&json!({}), true);
    check(&json!({"metadata": {"generation": 3}, "spec": {"replicas": 2}}), true);
    check(&deployment(2, 2, 2), false);
    check(&deployment(3, 1, 2), false);
    check(&deployment(3, 2, 2), true);
    // An old one goes when a new one is ready.
    check(&deployment(3, 2, 3), false);
    let mut unready = deployment(3, 2, 2);
    unready["status"]["unavailableReplicas"] = json!(2);
    check(&unready, true);
    let daemons = |observed, updated| {
        json!({"metadata": {"generation": 3},
            "status": {"observedGeneration": observed, "desiredNumberScheduled": 2, "updatedNumberScheduled": updated}})
    };
    check(&daemons(3, 1), false);
    check(&daemons(2, 2), false);
    check(&daemons(3, 2), true);
}

#[test]
fn workload_scaled_to_zero_without_pods_has_no_rollout() {
    let idle = |there: i64| {
        json!({"metadata": {"generation": 3}, "spec": {"replicas": 0},
            "status": {"observedGeneration": 1, "replicas": there}})
    };
    check(&idle(0), true);
    check(&idle(1), false);
}

#[test]
fn paused_or_manual_rollout_blocks_nothing() {
    let with = |spec: Value, updated: i64| {
        json!({"metadata": {"generation": 3}, "spec": spec,
            "status": {"observedGeneration": 3, "updatedReplicas": updated, "replicas": 3}})
    };
    check(&with(json!({"replicas": 3}), 0), false);
    check(&with(json!({"replicas": 3, "paused": true}), 0), true);
    check(&with(json!({"replicas": 3, "updateStrategy": {"type": "OnDelete"}}), 0), true);
    let partition = json!({"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 2}}});
    check(&with(partition.clone(), 0), false);
    check(&with(partition, 1), true);
}

#[test]
fn rollout_that_exceeded_its_progress_deadline_blocks_nothing() {
    let condition = |reason: &str| json!([{"type": "Progressing", "status": "False", "reason": reason}]);
    let mut stuck = deployment(3, 1, 3);
    stuck["status"]["conditions"] = condition("ReplicaSetUpdated");
    check(&stuck, false);
    stuck["status"]["conditions"] = condition("ProgressDeadlineExceeded");
    check(&stuck, true);
    // That was said of the template before.
    stuck["metadata"]["generation"] = json!(4);
    check(&stuck, false);
}

#[test]
fn other_workloads_of_release_wait_until_rollout_is_done() {
    let release = |name: &str| ReleaseId { namespace: "shop".into(), name: name.into() };
    let (shop, object, other) = (release("shop"), web("Deployment"), web("StatefulSet"));
    let now = at();
    let mut rollouts = Rollouts::default();
    rollouts.begin(&shop, &object, &deployment(2, 2, 2), now);
    let waits = |rollouts: &Rollouts| rollouts.of_another(&shop, &other, now) == Some((STALLED, &object));
    assert!(waits(&rollouts));
    assert!(rollouts.of_another(&shop, &object, now).is_none(), "it does not wait for itself");
    assert!(rollouts.of_another(&release("api"), &other, now).is_none());
    // As it was before the repair.
    let mut before = deployment(2, 2, 2);
    before["metadata"]["generation"] = json!(2);
    for seen in [&before, &deployment(3, 1, 2)] {
        assert!(!rollouts.see(&object, seen, now) && waits(&rollouts), "{seen}");
    }
    assert!(!rollouts.see(&other, &deployment(3, 2, 2), now));
    assert!(rollouts.see(&object, &deployment(3, 2, 2), now) && !waits(&rollouts));
    assert!(!rollouts.see(&object, &deployment(3, 2, 2), now), "once");
    rollouts.begin(&shop, &object, &deployment(2, 2, 2), now);
    rollouts.forget(&object);
    assert!(!waits(&rollouts));
}

#[test]
fn stalled_or_long_rollout_delays_no_other_workload() {
    let shop = ReleaseId { namespace: "shop".into(), name: "shop".into() };
    let (object, other) = (web("Deployment"), web("StatefulSet"));
    let start = at();
    let mut rollouts = Rollouts::default();
    rollouts.begin(&shop, &object, &deployment(2, 0, 2), start);
    let waits = |rollouts: &Rollouts, at| rollouts.of_another(&shop, &other, at).is_some();
    let almost = STALLED - Duration::from_secs(1);
    assert!(waits(&rollouts, start + almost) && !waits(&rollouts, start + STALLED));
    rollouts.see(&object, &deployment(3, 1, 3), start + almost);
    rollouts.see(&object, &deployment(3, 1, 3), start + almost * 2);
    assert!(waits(&rollouts, start + almost * 2) && !waits(&rollouts, start + almost + STALLED));
    rollouts.begin(&shop, &object, &deployment(2, 0, 2), start);
    for round in 0..60 {
        let now = start + almost * round;
        rollouts.see(&object, &deployment(3, 1, 3 + i64::from(round)), now);
        assert_eq!(waits(&rollouts, now), now < start + LONGEST, "{round}");
    }
}

#[test]
fn only_the_templates_of_workloads_make_new_pods() {
    let touches = |object: &ObjectId, path: &str| touches_template(object, &path.parse().unwrap());
    let deployment = web("Deployment");
    assert!(touches(&deployment, "/spec/template/spec/containers/[name=app]/image"));
    assert!(touches(&deployment, "/spec/template"));
    assert!(!touches(&deployment, "/spec/replicas") && !touches(&deployment, "/spec"));
    assert!(!touches(&ObjectId { group: "batch".into(), ..web("CronJob") }, "/spec/template/spec"));
}
