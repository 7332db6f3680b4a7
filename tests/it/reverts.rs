//! Edits under `--edits Revert`: what drifts is set back, the rest passes, and Helm owns what it declares, so that
//! its next upgrade changes the same fields without a conflict.

use std::process::Output;

use serde_json::{Value, json};

use crate::support::charts::WORKLOAD;
use crate::support::{
    Caller, Cluster, ControlPlane, Identity, RELEASE, SOON, Scene, eventually, forged, moor,
};

const JOB: &str = r#"
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: job, image: "registry.example/job:one"}]}
"#;

static REVERTING: Cluster = Cluster::new(&["--register", "--edits", "Revert", "--drift", "Report"]);

fn templates() -> String {
    format!("{WORKLOAD}---{JOB}")
}

/// A release whose objects are guarded.
async fn install(options: Value) -> Scene {
    let shop = Scene::on_cluster(&REVERTING).options(options).install("revert", &templates()).await;
    for path in [shop.deployment("web"), shop.core("secrets/access"), shop.config_map("settings")] {
        wait_until_reverted(&shop, &path).await;
    }
    shop
}

/// Waits until the API server asks the guard about edits of this object.
async fn wait_until_reverted(shop: &Scene, path: &str) {
    let mine = json!({"metadata": {
        "labels": {"app.kubernetes.io/managed-by": "alice"}, "annotations": {"mine": "yes"},
    }});
    eventually(&format!("edits of {path} are set back"), SOON, || async {
        let object = shop.alice.merge(&format!("{path}?dryRun=All"), &mine).await.done()?;
        let label = &object["metadata"]["labels"]["app.kubernetes.io/managed-by"];
        if label == "Helm" { Ok(()) } else { Err(format!("it would be {label}")) }
    })
    .await;
}

/// Upgrades without force.
async fn upgrade(shop: &Scene, values: Value) {
    if let Err(error) = shop.upgrade(json!({"values": values})).await {
        panic!("{error}\n{}", shop.get(&shop.deployment("web")).await["metadata"]["managedFields"]);
    }
}

/// What kubectl says of a command that succeeded.
fn said(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

fn container(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]["spec"]["containers"][0]
}

/// An edit of the image and of a field that nobody declares, made by `edit`.
async fn check_reverted(edit: impl AsyncFnOnce(&Scene) -> String, options: Value) {
    let shop = install(options).await;
    let warnings = edit(&shop).await;
    let deployment = shop.get(&shop.deployment("web")).await;
    assert_eq!(container(&deployment)["image"], "registry.example/shop:one");
    assert_eq!(deployment["spec"]["minReadySeconds"], 3, "the rest of the edit is gone");
    for said in [
        r#"is managed by Helm release "shop""#,
        r#"containers[app].image: "registry.example/mine:1" was reverted to "registry.example/shop:one""#,
    ] {
        assert!(warnings.contains(said), "{said} is not in: {warnings}");
    }
    upgrade(&shop, json!({"tag": "two", "level": "debug"})).await;
    let deployment = shop.get(&shop.deployment("web")).await;
    assert_eq!(container(&deployment)["image"], "registry.example/shop:two");
    assert_eq!(container(&deployment)["env"][0]["value"], "debug");
    assert_eq!(deployment["spec"]["minReadySeconds"], 3);
}

const EDIT: &str = r#"{"spec": {"minReadySeconds": 3, "template": {"spec": {"containers": [
    {"name": "app", "image": "registry.example/mine:1"}]}}}}"#;

#[tokio::test(flavor = "multi_thread")]
async fn patch_is_reverted_and_next_upgrade_has_no_conflict() {
    let patch = async |shop: &Scene| said(&shop.kubectl(&["patch", "deployment/web", "--patch", EDIT]));
    check_reverted(patch, json!({})).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn the_same_of_a_client_side_release() {
    let patch = async |shop: &Scene| said(&shop.kubectl(&["patch", "deployment/web", "--patch", EDIT]));
    check_reverted(patch, json!({"server_side_apply": false})).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn forced_apply_is_reverted_and_next_upgrade_has_no_conflict() {
    let apply = async |shop: &Scene| {
        let file = crate::support::folder("apply").join("web.yaml");
        let mut manifest: Value = serde_json::from_str(EDIT).unwrap();
        manifest["apiVersion"] = json!("apps/v1");
        manifest["kind"] = json!("Deployment");
        manifest["metadata"] = json!({"name": "web"});
        std::fs::write(&file, manifest.to_string()).unwrap();
        let file = file.display().to_string();
        said(&shop.kubectl(&[
            "apply",
            "--server-side",
            "--force-conflicts",
            "--validate=false",
            "--filename",
            &file,
        ]))
    };
    check_reverted(apply, json!({})).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn replaced_object_is_reverted_and_next_upgrade_has_no_conflict() {
    let replace = async |shop: &Scene| {
        let file = crate::support::folder("replace").join("web.json");
        let mut object = shop.get(&shop.deployment("web")).await;
        object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        object["spec"]["minReadySeconds"] = json!(3);
        object["spec"]["template"]["spec"]["containers"][0]["image"] = json!("registry.example/mine:1");
        std::fs::write(&file, object.to_string()).unwrap();
        said(&shop.kubectl(&["replace", "--filename", &file.display().to_string()]))
    };
    check_reverted(replace, json!({})).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_new_image_alone_is_refused_and_leaves_nothing_behind() {
    let shop = install(json!({})).await;
    let before = shop.get(&shop.deployment("web")).await;
    let output = shop.kubectl(&["set", "image", "deployment/web", "app=registry.example/mine:1"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("it contains nothing else"), "{error}");
    assert_eq!(shop.get(&shop.deployment("web")).await["spec"], before["spec"]);
    upgrade(&shop, json!({"tag": "two"})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scaling_creating_and_deleting_are_refused() {
    let shop = install(json!({})).await;
    let output = shop.kubectl(&["scale", "deployment/web", "--replicas=5"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("spec.replicas: 2 -> 5 (release: 2)"), "{error}");
    shop.alice.delete(&shop.config_map("settings")).await.refused(RELEASE).unwrap();
    shop.control_plane.delete_unhindered(&shop.config_map("settings")).await;
    let mine = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"level": "mine"}, "metadata": {
        "name": "settings", "labels": {"app.kubernetes.io/managed-by": "Helm"},
    }});
    shop.alice.post(&shop.core("configmaps"), &mine).await.refused(RELEASE).unwrap();
    upgrade(&shop, json!({"level": "debug", "replicas": 3})).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn removed_variable_and_container_return_owned_by_helm() {
    let shop = install(json!({})).await;
    let before = shop.get(&shop.deployment("web")).await;
    let containers = json!([{"name": "mine", "image": "registry.example/mine:1"}]);
    let pointer = "/spec/template/spec/containers";
    let after =
        shop.alice.patch(&shop.deployment("web"), "replace", pointer, &containers).await.done().unwrap();
    let containers = &after["spec"]["template"]["spec"]["containers"];
    assert_eq!(containers[0], *container(&before));
    assert_eq!(containers[1]["name"], "mine");
    let (path, pointer, variables) =
        (shop.deployment("web"), format!("{pointer}/0/env"), json!([{"name": "MINE"}]));
    let after = shop.alice.patch(&path, "replace", &pointer, &variables).await.done().unwrap();
    assert_eq!(container(&after)["env"], json!([{"name": "LEVEL", "value": "info"}, {"name": "MINE"}]));
    upgrade(&shop, json!({"tag": "two", "level": "debug"})).await;
    let after = shop.get(&shop.deployment("web")).await;
    let variables = json!([{"name": "LEVEL", "value": "debug"}, {"name": "MINE"}]);
    assert_eq!(
        (&container(&after)["image"], &container(&after)["env"]),
        (&json!("registry.example/shop:two"), &variables)
    );
    assert_eq!(after["spec"]["template"]["spec"]["containers"][1]["name"], "mine");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn renamed_variable_is_replaced_by_the_declared_one() {
    let shop = install(json!({})).await;
    let mut edit = shop.get(&shop.deployment("web")).await;
    edit["spec"]["minReadySeconds"] = json!(3);
    edit["spec"]["template"]["spec"]["containers"][0]["env"][0]["name"] = json!("MINE");
    let path = format!("{}?fieldManager=kubectl-edit", shop.deployment("web"));
    shop.alice.merge(&path, &json!({"spec": edit["spec"]})).await.done().unwrap();
    let deployment = shop.get(&shop.deployment("web")).await;
    assert_eq!(container(&deployment)["env"], json!([{"name": "LEVEL", "value": "info"}]));
    assert_eq!(deployment["spec"]["minReadySeconds"], 3, "the rest of the edit is gone");
    upgrade(&shop, json!({"level": "debug"})).await;
    let deployment = shop.get(&shop.deployment("web")).await;
    assert_eq!(container(&deployment)["env"], json!([{"name": "LEVEL", "value": "debug"}]));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_sealed_field_is_set_back() {
    let shop = install(json!({})).await;
    let mine = json!({"metadata": {"annotations": {"mine": "yes", "helm.sh/resource-policy": "keep"}},
        "spec": {"paused": true}});
    let after = shop.alice.merge(&shop.deployment("web"), &mine).await.done().unwrap();
    assert_eq!(after["spec"].get("paused"), None);
    assert_eq!(after["metadata"]["annotations"].get("helm.sh/resource-policy"), None);
    assert_eq!(after["metadata"]["annotations"]["mine"], "yes");
    let owned = after["metadata"]["managedFields"].to_string();
    assert!(!owned.contains("f:paused") && !owned.contains("f:helm.sh/resource-policy"), "{owned}");
    let mine = json!({"immutable": true, "data": {"mine": "yes"}});
    let after = shop.alice.merge(&shop.config_map("settings"), &mine).await.done().unwrap();
    assert_eq!((after.get("immutable"), &after["data"]["mine"]), (None, &json!("yes")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_set_back_without_being_told() {
    let shop = install(json!({})).await;
    let path = shop.core("secrets/access");
    let before = shop.get(&path).await;
    let patch = r#"{"stringData": {"password": "mine-secret", "mine": "yes"}}"#;
    let warnings = said(&shop.kubectl(&["patch", "secret/access", "--patch", patch]));
    assert!(warnings.contains("data.password: (redacted) was reverted to (redacted)"), "{warnings}");
    let after = shop.get(&path).await;
    assert_eq!(after["data"]["password"], before["data"]["password"]);
    assert_eq!(after["data"]["mine"], "eWVz");
    upgrade(&shop, json!({"password": "another-secret"})).await;
    assert_eq!(shop.get(&path).await["data"]["password"], "YW5vdGhlci1zZWNyZXQ=");
    let log = shop.guard().log();
    for planted in ["planted-secret", "mine-secret", "bWluZS1zZWNyZXQ", "cGxhbnRlZC1zZWNyZXQ"] {
        assert!(!log.contains(planted), "{planted} is in the log");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_is_never_completed_with_forged_values() {
    let shop = install(json!({})).await;
    let manifest = "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  template:\n    spec:\n      containers: [{name: app, image: registry.example/evil:1}]\n";
    let bob = Caller::new(&shop.control_plane, Identity::Bob).await;
    let record = json!(forged(&shop.namespace, RELEASE, 2, "deployed", manifest));
    bob.post(&shop.core("secrets"), &record).await.done().unwrap();
    eventually("the edit is refused rather than completed", SOON, || async {
        let output = shop.kubectl(&["patch", "deployment/web", "--dry-run=server", "--patch", EDIT]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_refused = said.contains("already differed from the release");
        if is_refused { Ok(()) } else { Err(said) }
    })
    .await;
    let deployment = shop.get(&shop.deployment("web")).await;
    assert_eq!(container(&deployment)["image"], "registry.example/shop:one");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn revert_webhook_exists_only_while_revert_mode_is_configured() {
    let scene = Scene::on(ControlPlane::start()).install("registered", &templates()).await;
    let at =
        |kind: &str| format!("/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/kubemoor");
    let wait_for_webhooks = async |kind: &str, there: bool| {
        eventually(&format!("{kind} is registered: {there}"), SOON, || async {
            (scene.admin.get(&at(kind)).await.code == 200) == there
        })
        .await;
    };
    let flags = |mode| ["--register", "--edits", mode, "--drift", "Report"];
    let wait_for_reverts = async |wanted: bool| {
        eventually(&format!("edits are set back: {wanted}"), SOON, || async {
            let webhooks = scene.admin.get(&at("mutating")).await.done()?["webhooks"].clone();
            let names: Vec<_> =
                webhooks.as_array().into_iter().flatten().map(|webhook| &webhook["name"]).collect();
            // Orders are answered always.
            let is = names.contains(&&json!("orders.kubemoor.dev"))
                && names.contains(&&json!("v1.apps.reverts.kubemoor.dev")) == wanted;
            if is { Ok(()) } else { Err(format!("{names:?}")) }
        })
        .await;
    };
    let guard = scene.start_guard(&flags("Revert")).await;
    wait_for_reverts(true).await;
    drop(guard);

    let guard = scene.start_guard(&flags("Deny")).await;
    wait_for_reverts(false).await;
    wait_for_webhooks("validating", true).await;
    drop(guard);

    let guard = scene.start_guard(&flags("Revert")).await;
    wait_for_reverts(true).await;
    let withdrawn = moor(&scene.control_plane, Identity::Admin, &["uninstall"]);
    assert_eq!(withdrawn.code, 0, "{withdrawn:?}");
    // The guard says so of the one, and does not bring back the other.
    guard.wait_for_log("was withdrawn").await;
    scene.upgrade(json!({"values": {"tag": "two"}})).await.unwrap();
    wait_for_webhooks("mutating", false).await;
    wait_for_webhooks("validating", false).await;
}
