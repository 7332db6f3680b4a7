use serde_json::json;

use crate::sealed::*;
use kubemoor_declare::catalog::Catalog;
use kubemoor_declare::declare::declare;
use kubemoor_helm::release::gvk;

fn id(object: &Value) -> ObjectId {
    let gvk = gvk(object);
    ObjectId {
        group: gvk.group.into(),
        kind: gvk.kind.into(),
        namespace: Some("shop".into()),
        name: "web".into(),
    }
}

/// The paths that are reported, `!` before those that end in a deletion.
#[track_caller]
fn check(manifest: Value, old: Value, new: Value, wanted: &[&str]) {
    let fields = declare(&manifest, Catalog::with_core().schema(&gvk(&manifest)).as_deref());
    let found: Vec<String> = changes(&id(&manifest), &fields, &old, &new)
        .into_iter()
        .map(|change| format!("{}{}", if is_of_owners(&change.path) { "!" } else { "" }, change.path))
        .collect();
    assert_eq!(found, wanted, "{manifest} {old} -> {new}");
}

fn deployment(spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})
}

fn config(more: Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}});
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    object
}

fn owned(uids: &[&str]) -> Value {
    let owners: Vec<_> = uids
        .iter()
        .map(|uid| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": uid}))
        .collect();
    config(json!({"metadata": {"name": "web", "ownerReferences": owners}}))
}

#[test]
fn switching_on_pause_or_suspend_is_sealed_unless_declared() {
    let on = || deployment(json!({"paused": true}));
    check(deployment(json!({"replicas": 1})), deployment(json!({})), on(), &["/spec/paused"]);
    check(deployment(json!({"replicas": 1})), deployment(json!({"paused": false})), on(), &["/spec/paused"]);
    check(deployment(json!({"replicas": 1})), on(), on(), &[]);
    check(deployment(json!({"replicas": 1})), on(), deployment(json!({})), &[]);
    check(on(), deployment(json!({})), on(), &[]);
    check(deployment(json!({"paused": false})), deployment(json!({})), on(), &[]);
    let suspended = deployment(json!({"suspend": true}));
    check(deployment(json!({"replicas": 1})), deployment(json!({})), suspended, &["/spec/suspend"]);
}

#[test]
fn a_switch_that_the_manifest_leaves_null_is_sealed() {
    let on = deployment(json!({"paused": true}));
    check(deployment(json!({"paused": null})), deployment(json!({})), on, &["/spec/paused"]);
    let on = config(json!({"immutable": true}));
    check(config(json!({"immutable": null})), config(json!({})), on, &["/immutable"]);
}

#[test]
fn only_configurations_and_secrets_become_immutable() {
    let on = || config(json!({"immutable": true}));
    check(config(json!({})), config(json!({})), on(), &["/immutable"]);
    check(on(), config(json!({})), on(), &[]);
    let service =
        |more: Value| json!({"apiVersion": "v1", "kind": "Service", "immutable": more, "metadata": {}});
    check(service(json!(null)), service(json!(null)), service(json!(true)), &[]);
}

#[test]
fn a_resource_policy_is_sealed_unless_the_manifest_sets_it() {
    let kept = |policy: &str| {
        config(json!({"metadata": {"name": "web", "annotations": {"helm.sh/resource-policy": policy}}}))
    };
    let path = "/metadata/annotations/helm.sh~1resource-policy";
    check(config(json!({})), config(json!({})), kept("keep"), &[path]);
    check(config(json!({})), kept("delete"), kept("keep"), &[path]);
    check(config(json!({})), kept("keep"), config(json!({})), &[]);
    check(kept("keep"), config(json!({})), kept("keep"), &[]);
}

#[test]
fn a_new_owner_ends_in_a_deletion() {
    let path = "!/metadata/ownerReferences";
    check(config(json!({})), config(json!({})), owned(&["u1"]), &[path]);
    check(config(json!({})), owned(&["u1"]), owned(&["u1", "u2"]), &[path]);
    check(config(json!({})), owned(&["u1", "u2"]), owned(&["u2"]), &[]);
    check(config(json!({})), owned(&["u1", "u2"]), owned(&["u2", "u1"]), &[]);
}

#[test]
fn a_renamed_owner_is_another_one() {
    let owned_by = |field: &str, value: &str| {
        let mut object = owned(&["u1"]);
        object["metadata"]["ownerReferences"][0][field] = json!(value);
        object
    };
    let path = "!/metadata/ownerReferences";
    for (field, value) in [("name", "gone"), ("kind", "Secret"), ("apiVersion", "example.org/v1")] {
        check(config(json!({})), owned(&["u1"]), owned_by(field, value), &[path]);
    }
    // Another version of one group is the same owner.
    let [older, newer] = ["apps/v1beta1", "apps/v1"].map(|version| owned_by("apiVersion", version));
    check(config(json!({})), older, newer, &[]);
    check(config(json!({})), owned(&["u1"]), owned_by("controller", "true"), &[]);
}

#[test]
fn an_owner_that_the_manifest_declares_is_not_sealed() {
    check(owned(&["u1"]), config(json!({})), owned(&["u1"]), &[]);
    check(owned(&["u1"]), config(json!({})), owned(&["u1", "u2"]), &["!/metadata/ownerReferences"]);
    let thing = |uids: &[&str]| {
        let mut object = owned(uids);
        object["apiVersion"] = json!("example.org/v1");
        object["kind"] = json!("Thing");
        object
    };
    check(thing(&["u1"]), thing(&[]), thing(&["u1"]), &[]);
}

fn autoscaler(spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
        "spec": {"maxReplicas": 9, "scaleTargetRef": {"kind": "Deployment", "name": "web"}},
    });
    object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    object
}

#[test]
fn a_declared_autoscaler_is_judged_by_all_that_it_does() {
    let declared = || autoscaler(json!({}));
    let minimum = |count: Value| autoscaler(json!({"minReplicas": count}));
    check(declared(), minimum(json!(1)), minimum(json!(9)), &["/spec/minReplicas"]);
    check(declared(), declared(), minimum(json!(9)), &["/spec/minReplicas"]);
    check(declared(), minimum(json!(9)), minimum(json!(5)), &["/spec/minReplicas"]);
    // By default it is one.
    check(declared(), minimum(json!(9)), minimum(json!(1)), &[]);
    check(declared(), minimum(json!(9)), declared(), &[]);
    check(declared(), declared(), minimum(json!(1)), &[]);
    check(declared(), minimum(json!(9)), minimum(json!(9)), &[]);
    // A declared one is compared with the declaration.
    check(minimum(json!(2)), minimum(json!(2)), minimum(json!(9)), &[]);
    let target = |version: &str| {
        let target = json!({"apiVersion": version, "kind": "Deployment", "name": "web"});
        autoscaler(json!({"scaleTargetRef": target}))
    };
    check(declared(), target("apps/v1"), target("example.org/v1"), &["/spec/scaleTargetRef/apiVersion"]);
    let metrics = || autoscaler(json!({"targetCPUUtilizationPercentage": 5}));
    check(declared(), declared(), metrics(), &[]);
    let deployed = || deployment(json!({"replicas": 1}));
    check(deployed(), deployed(), deployment(json!({"replicas": 1, "minReplicas": 5})), &[]);
}

#[test]
fn a_declared_scaled_object_is_judged_by_all_that_it_does() {
    let scaled = |spec: Value, annotations: Value| {
        json!({
            "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
            "metadata": {"name": "web", "annotations": annotations}, "spec": spec,
        })
    };
    let declared = || scaled(json!({"scaleTargetRef": {"name": "web"}}), json!({}));
    for (field, value) in
        [("minReplicaCount", json!(9)), ("maxReplicaCount", json!(9)), ("idleReplicaCount", json!(0))]
    {
        let mut new = declared();
        new["spec"][field] = value;
        check(declared(), declared(), new, &[&format!("/spec/{field}")]);
    }
    for (name, value) in [
        ("paused", "true"),
        ("paused-replicas", "0"),
        ("paused-scale-in", "true"),
        ("paused-scale-out", "true"),
    ] {
        let annotation = format!("autoscaling.keda.sh/{name}");
        let path = format!("/metadata/annotations/autoscaling.keda.sh~1{name}");
        check(declared(), declared(), scaled(json!({}), json!({annotation: value})), &[&path]);
    }
    let defaults = json!({"minReplicaCount": 0, "maxReplicaCount": 100});
    check(declared(), declared(), scaled(defaults, json!({})), &[]);
}

#[test]
fn an_autoscaler_that_somebody_has_changed_is_drift() {
    let declared = || autoscaler(json!({}));
    let live = autoscaler(json!({"minReplicas": 9}));
    let set = json!({"f:spec": {"f:minReplicas": {}}});
    drifts(declared(), &managed(live.clone(), "kubectl-edit", set.clone()), &["/spec/minReplicas"]);
    drifts(declared(), &managed(live, "helm", set.clone()), &[]);
    let default = autoscaler(json!({"minReplicas": 1}));
    drifts(declared(), &managed(default, "kubectl-edit", set), &[]);
}

/// Which sealed fields of a live object are drift.
#[track_caller]
fn drifts(manifest: Value, live: &Value, wanted: &[&str]) {
    let fields = declare(&manifest, Catalog::with_core().schema(&gvk(&manifest)).as_deref());
    let found: Vec<String> =
        drift(&id(&manifest), &fields, live).into_iter().map(|change| change.path.to_string()).collect();
    assert_eq!(found, wanted, "{live}");
}

fn managed(mut live: Value, manager: &str, fields: Value) -> Value {
    let helms = json!({"f:metadata": {"f:annotations": {"f:meta.helm.sh/release-name": {}}}, "f:spec": {"f:replicas": {}}});
    live["metadata"]["managedFields"] = json!([
        {"manager": "helm", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": helms},
        {"manager": manager, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields},
    ]);
    live
}

#[test]
fn a_sealed_field_that_somebody_has_set_is_drift() {
    let paused = deployment(json!({"paused": true}));
    let set = json!({"f:spec": {"f:paused": {}}});
    let declared = || deployment(json!({"replicas": 1}));
    // Without managers nothing speaks for it.
    drifts(declared(), &paused, &["/spec/paused"]);
    drifts(declared(), &managed(paused.clone(), "kubectl-edit", set.clone()), &["/spec/paused"]);
    // Anybody may take the name of a program of Kubernetes, and none of these pauses anything.
    for name in ["kube-controller-manager", "kube-evil"] {
        drifts(declared(), &managed(paused.clone(), name, set.clone()), &["/spec/paused"]);
    }
    drifts(declared(), &managed(paused.clone(), "helm", set.clone()), &[]);
    // An admission plugin, when the object was created.
    drifts(declared(), &managed(paused.clone(), "kubectl-edit", json!({"f:spec": {"f:other": {}}})), &[]);
    drifts(paused.clone(), &managed(paused, "kubectl-edit", set), &[]);
    drifts(declared(), &deployment(json!({"paused": false})), &[]);
}

#[test]
fn an_owner_that_somebody_has_added_is_drift() {
    let live = owned(&["a"]);
    let set =
        json!({"f:metadata": {"f:ownerReferences": {".": {}, "k:{\"uid\":\"a\"}": {".": {}, "f:uid": {}}}}});
    drifts(config(json!({})), &live, &["/metadata/ownerReferences"]);
    for name in ["kubectl-edit", "kube-evil", "kube-controller-manager-2"] {
        let live = managed(live.clone(), name, set.clone());
        drifts(config(json!({})), &live, &["/metadata/ownerReferences"]);
    }
    drifts(config(json!({})), &managed(live.clone(), "kube-controller-manager", set), &[]);
    drifts(config(json!({})), &managed(live.clone(), "kubectl-edit", json!({"f:data": {}})), &[]);
    drifts(live.clone(), &live, &[]);
}

#[test]
fn only_what_nothing_else_may_need_is_undone() {
    let stays = |object: &Value, pointer: &str| {
        let path: Path = pointer.parse().unwrap();
        let new = object.pointer(pointer).cloned();
        is_left_to_user(
            &id(object),
            &FieldChange { path, declared: None, old: None, new, agreement: FieldAgreement::Differs },
        )
    };
    assert!(!stays(&deployment(json!({"paused": true})), "/spec/paused"));
    assert!(stays(&deployment(json!({"suspend": true})), "/spec/suspend"));
    assert!(stays(&config(json!({"immutable": true})), "/immutable"));
    assert!(!stays(&owned(&["a"]), "/metadata/ownerReferences"));
    let mut controlled = owned(&["a", "b"]);
    controlled["metadata"]["ownerReferences"][1]["controller"] = json!(true);
    assert!(stays(&controlled, "/metadata/ownerReferences"));
}
