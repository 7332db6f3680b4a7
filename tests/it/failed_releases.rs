//! Releases whose last Helm operation failed, by real Helm 4 with server-side apply: what is said of them, and how an
//! order gets them out of it.

use serde_json::{Value, json};

use crate::support::{
    Chart, ControlPlane, Guard, Helm, Identity, RELEASE, Ran, SOON, Scene, WARNING, charts, eventually, moor,
};

const TEMPLATES: &str = concat!(
    charts::config_map!("settings", "{level: info, color: blue}"),
    "---",
    charts::deployment!("{name: app, image: 'registry.example/web:1'}"),
);

/// No Service listens on port 0: the API server says no.
const BROKEN: &str = "
---
apiVersion: v1
kind: Service
metadata: {name: broken}
spec:
  selector: {app: web}
  ports: [{port: 0, protocol: TCP}]
";

/// The API server refuses it as well, and Helm writes it before all others.
const BROKEN_FIRST: &str = "
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: broken}
spec: {hard: {pods: '-1'}}
";

/// A guard that reports drift, and has the rights to repair what a person orders.
async fn reporting(control_plane: &ControlPlane) -> Guard {
    control_plane.apply_deploy(&["enforce/arbiter.yaml", "enforce/repair.yaml"]).await;
    Guard::start(control_plane, &["--edits", "Warn", "--drift", "Report"]).await
}

fn run(scene: &Scene, arguments: &[&str]) -> Ran {
    moor(&scene.control_plane, Identity::Admin, &[arguments, &["-n", &scene.namespace]].concat())
}

async fn wait_for_drifts(scene: &Scene, objects: usize) {
    scene.status("the drift", |status| status["drifted"] == objects).await;
}

async fn assert_conflict(scene: &Scene, templates: &str) {
    let error = scene.upgrade_to(templates, json!({})).await.expect_err("the upgrade succeeds");
    assert!(error.contains("conflict"), "{error}");
}

fn manager_of(object: &Value, field: &str) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let owns = |entry: &&Value| entry["fieldsV1"]["f:spec"].get(field).is_some();
    entries.iter().filter(owns).map(|entry| entry["manager"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn reconcile_order_resolves_conflict_that_blocks_upgrade_and_rollback() {
    let scene = Scene::on_cluster(&WARNING).install("conflict", TEMPLATES).await;
    scene.wait_for_confirmed(2).await;
    let (web, settings) = (scene.deployment("web"), scene.config_map("settings"));
    scene.edit(&web, json!({"spec": {"replicas": 5}})).await;
    scene.edit(&settings, json!({"data": {"level": "mine"}})).await;
    wait_for_drifts(&scene, 2).await;
    let next = TEMPLATES.replace("web:1", "web:2").replace("replicas: 2", "replicas: 3");
    assert_conflict(&scene, &next).await;
    let rollback = scene.helm.rollback(&scene.namespace, RELEASE, json!({"version": 1})).await;
    assert!(rollback.expect_err("the rollback succeeds").contains("conflict"));

    let status = scene.wait_for_reason("ReleaseFailed").await;
    let message = status["conditions"][0]["message"].as_str().unwrap();
    for part in [
        "2 of 2 objects do not match",
        "kubemoor reconcile shop",
        "helm upgrade shop",
        "helm rollback shop 1",
        "--force-conflicts",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(scene.writes("deployments") + scene.writes("configmaps"), 0, "nobody ordered a repair");

    let ordered = run(&scene, &["reconcile", RELEASE, "-o", "json"]);
    assert_eq!(ordered.code, 0, "{ordered:?}");
    let answer = &ordered.json()["answer"];
    assert_eq!(answer["result"], "Repaired", "{ordered:?}");
    assert!(
        answer["message"].as_str().unwrap().starts_with("2 objects are repaired. The release stays failed"),
        "{answer}"
    );
    let object = scene.get(&web).await;
    assert_eq!(object["spec"]["replicas"], 2);
    assert_eq!(manager_of(&object, "f:replicas").len(), 1, "{object}");
    assert_eq!(scene.get(&settings).await["data"]["level"], "info");
    let status = scene.status("that nothing drifts", |status| status["drifted"] == 0).await;
    assert_eq!(status["conditions"][0]["reason"], "ReleaseFailed", "{status}");

    // Without force.
    scene.upgrade_to(&next, json!({})).await.unwrap();
    scene.wait_for_reason("InSync").await;
    assert_eq!(scene.get(&web).await["spec"]["replicas"], 3);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn order_returns_fields_with_declared_values_on_which_upgrade_failed() {
    let scene = Scene::own().install("returned", TEMPLATES).await;
    let _guard = reporting(&scene.control_plane).await;
    scene.wait_for_confirmed(2).await;
    let web = scene.deployment("web");
    scene.edit(&web, json!({"spec": {"replicas": 5}})).await;
    wait_for_drifts(&scene, 1).await;
    scene.edit(&web, json!({"spec": {"replicas": 2}})).await;
    wait_for_drifts(&scene, 0).await;
    let next = TEMPLATES.replace("replicas: 2", "replicas: 3");
    assert_conflict(&scene, &next).await;
    scene.wait_for_reason("ReleaseFailed").await;
    let ordered = run(&scene, &["reconcile", RELEASE]);
    assert!(ordered.code == 0 && ordered.out.contains("1 object is repaired"), "{ordered:?}");
    scene.upgrade_to(&next, json!({})).await.unwrap();
    scene.wait_for_reason("InSync").await;
}

/// Has one upgrade fail after it has written the ConfigMap, and another before that: the value is that of neither the
/// last manifest nor the one that was deployed.
async fn fail_twice(scene: &Scene) {
    let settings = scene.config_map("settings");
    let written = format!("{}{BROKEN}", TEMPLATES.replace("level: info", "level: debug"));
    scene.upgrade_to(&written, json!({})).await.expect_err("the Service is broken");
    assert_eq!(scene.get(&settings).await["data"]["level"], "debug");
    let unwritten = format!("{}{BROKEN_FIRST}", TEMPLATES.replace("level: info", "level: warn"));
    scene.upgrade_to(&unwritten, json!({})).await.expect_err("the ResourceQuota is broken");
    assert_eq!(scene.get(&settings).await["data"]["level"], "debug");
}

/// Waits until a value is in doubt: only Helm has written it, so a webhook could have rewritten it.
async fn wait_for_doubt(scene: &Scene) {
    scene.status("the doubt", |status| status["counts"]["inDoubt"] == 1 && status["drifted"] == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn order_reverts_value_in_doubt_that_a_dry_run_does_not_yield() {
    let scene = Scene::own().install("yielded", TEMPLATES).await;
    let _guard = reporting(&scene.control_plane).await;
    scene.wait_for_confirmed(2).await;
    let unwritten = format!("{}{BROKEN_FIRST}", TEMPLATES.replace("level: info", "level: warn"));
    scene.upgrade_to(&unwritten, json!({})).await.expect_err("the ResourceQuota is broken");
    scene.wait_for_reason("ReleaseFailed").await;
    let settings = scene.config_map("settings");
    let metadata = scene.get(&settings).await["metadata"].take();
    let forged = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"level": "mine", "color": "blue"},
        "metadata": {"labels": metadata["labels"], "annotations": metadata["annotations"]},
    });
    let by_helm = format!("{settings}?fieldManager=helm&force=true");
    scene.alice.apply(&by_helm, &forged).await.done().unwrap();
    wait_for_doubt(&scene).await;
    let ordered = run(&scene, &["reconcile", RELEASE]);
    assert!(ordered.code == 0 && ordered.out.contains("1 object is repaired"), "{ordered:?}");
    assert_eq!(scene.get(&settings).await["data"]["level"], "info");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn order_leaves_value_that_was_confirmed_by_an_earlier_failed_upgrade() {
    let scene = Scene::own().install("confirmed", TEMPLATES).await;
    let _guard = reporting(&scene.control_plane).await;
    scene.wait_for_confirmed(2).await;
    fail_twice(&scene).await;
    wait_for_doubt(&scene).await;
    let ordered = run(&scene, &["reconcile", RELEASE]);
    assert!(ordered.out.contains("1 object stays as it is: ConfigMap/settings"), "{ordered:?}");
    assert!(ordered.out.contains("never seen"), "{ordered:?}");
    assert_eq!(scene.get(&scene.config_map("settings")).await["data"]["level"], "debug");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn reconcile_writes_no_unseen_value_of_failed_release() {
    let scene = Scene::own().install("unseen", TEMPLATES).await;
    let settings = scene.config_map("settings");
    // Before any guard runs: it never sees what the first revision declares of it.
    scene.edit(&settings, json!({"data": {"level": "mine"}})).await;
    let _guard = reporting(&scene.control_plane).await;
    wait_for_drifts(&scene, 1).await;
    assert_conflict(&scene, &TEMPLATES.replace("level: info", "level: debug")).await;
    scene.wait_for_reason("ReleaseFailed").await;
    let ordered = run(&scene, &["reconcile", RELEASE]);
    assert_eq!(ordered.code, 1, "{ordered:?}");
    assert!(ordered.out.contains("1 object stays as it is: ConfigMap/settings"), "{ordered:?}");
    assert!(
        ordered.out.contains("never seen") && ordered.out.contains("helm rollback shop 1"),
        "{ordered:?}"
    );
    assert_eq!(scene.writes("configmaps"), 0);
    assert_eq!(scene.get(&settings).await["data"]["level"], "mine");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn failed_first_install_is_reported_by_status_and_commands() {
    let scene = Scene::own().prepare("first", &format!("{TEMPLATES}{BROKEN}")).await;
    let _guard = reporting(&scene.control_plane).await;
    scene.install(json!({})).await.expect_err("the installation succeeds");

    scene.wait_for_reason("ReleaseFailed").await;
    let status = scene.status("what was not created", |status| status["counts"]["notCreated"] == 1).await;
    let message = status["conditions"][0]["message"].as_str().unwrap();
    assert!(message.contains("the installation failed at revision 1"), "{message}");
    assert!(message.contains("1 was not created: Service/broken"), "{message}");
    assert_eq!((&status["drifted"], &status["counts"]["matching"]), (&json!(0), &json!(2)), "{status}");
    let diff = run(&scene, &["diff", RELEASE]);
    assert_eq!(diff.code, 0, "{diff:?}");
    for part in [
        "the installation failed at revision 1",
        "1 not created",
        "not created: the Helm operation failed",
        "helm uninstall shop",
    ] {
        assert!(diff.out.contains(part), "{part}: {diff:?}");
    }
    assert!(!diff.out.contains("under way"), "{diff:?}");
    let explained = run(&scene, &["explain", "service/broken"]);
    assert!(
        explained.out.contains("its installation failed") && !explained.out.contains("under way"),
        "{explained:?}"
    );
    let ordered = run(&scene, &["reconcile", RELEASE]);
    assert_eq!(ordered.code, 1, "{ordered:?}");
    assert!(
        ordered.out.contains("there is no deployed revision") && ordered.out.contains("helm uninstall"),
        "{ordered:?}"
    );

    scene.upgrade_to(TEMPLATES, json!({})).await.unwrap();
    scene.wait_for_reason("InSync").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn order_during_operation_waits_for_its_end() {
    let scene = Scene::own().install("during", TEMPLATES).await;
    let _guard = reporting(&scene.control_plane).await;
    scene.wait_for_confirmed(2).await;
    let settings = scene.config_map("settings");
    scene.edit(&settings, json!({"data": {"level": "mine"}})).await;
    wait_for_drifts(&scene, 1).await;
    // Helm dies in the middle: it waits for pods, and none runs here.
    let next = Chart::from(&TEMPLATES.replace("web:1", "web:2"));
    let mut other = Helm::start(&scene.control_plane, Identity::Deployer);
    let options = json!({"wait": "legacy", "timeout_seconds": 600, "force_conflicts": true});
    {
        let upgrading = other.upgrade(&scene.namespace, RELEASE, &next, options);
        let underway = scene.wait_for_reason("OperationUnderway");
        tokio::select! {
            ended = upgrading => panic!("Helm does not wait: {ended:?}"),
            _ = underway => {}
        }
    }
    scene.edit(&settings, json!({"data": {"level": "mine again"}})).await;
    let ordered = run(&scene, &["reconcile", RELEASE, "-o", "json"]);
    assert_eq!((ordered.code, &ordered.json()["answer"]["result"]), (0, &json!("Waiting")), "{ordered:?}");
    other.kill();
    let rollback = json!({"version": 1, "force_conflicts": true});
    scene.helm.rollback(&scene.namespace, RELEASE, rollback).await.unwrap();
    eventually("the order is carried out", SOON, || async {
        let status = scene.status("an answer", |status| status["order"].is_object()).await;
        let is_done =
            status["order"]["result"] != "Waiting" && status["lastReconcileAt"] == status["order"]["at"];
        if is_done { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}
