//! Helm operations that fail, and what Helm does about them, pass under Deny; hand edits in between do not.

use serde_json::{Value, json};

use crate::helm_scene::{HelmScene, assert_failed, shop, with};

const OLD: &str = "registry.example/shop:1";
const NEW: &str = "registry.example/shop:2";

/// What the API server says of the Service of a broken shop.
const BROKEN: &str = "spec.ports[0].port";

fn broken(mut options: Value) -> Value {
    options["values"]["broken"] = true.into();
    options["values"]["image"] = NEW.into();
    options["values"]["extra"] = true.into();
    options
}

#[tokio::test]
async fn helm_fails_an_upgrade_and_tries_again() {
    let scene = HelmScene::shared("failed-upgrade").await;
    let chart = shop();
    scene.install("shop", &chart, json!({})).await;
    scene.assert_shop_guarded("shop").await;

    scene.fail_upgrade("shop", &chart, broken(json!({})), BROKEN).await;
    assert_eq!(scene.history("shop").await, ["1 deployed", "2 failed"]);
    // Helm had come that far.
    assert_eq!(scene.value("configmap/settings", ".data.image"), NEW);
    assert_eq!(scene.value("configmap/extra", ".data.image"), NEW);
    scene.assert_edits_refused().await;
    scene.assert_refused("configmap/extra", r#"{"data": {"image": "mine"}}"#).await;
    scene.assert_refused_now(&["delete", "configmap/settings"]);
    // Both manifests are declarations for now: the way back is open.
    let back = format!(r#"{{"data": {{"image": "{OLD}"}}}}"#);
    scene.run(&["patch", "configmap/settings", "--type=merge", "--patch", &back, "--dry-run=server"]);

    scene.upgrade("shop", &chart, with(json!({"image": NEW, "replicas": 2}))).await;
    assert_eq!(scene.history("shop").await, ["1 superseded", "2 failed", "3 deployed"]);
    scene.assert_shop_guarded("shop").await;
}

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn upgrade_succeeds_after_one_failed_at_immutable_field() {
    let scene = HelmScene::shared("immutable").await;
    let chart = shop();
    scene.install("shop", &chart, json!({})).await;
    let options = with(json!({"app": "another", "image": NEW}));
    scene.fail_upgrade("shop", &chart, options, "field is immutable").await;
    scene.assert_edits_refused().await;
    scene.upgrade("shop", &chart, with(json!({"image": NEW}))).await;
    scene.assert_shop_guarded("shop").await;
}

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn helm_waits_in_vain_and_tries_again() {
    let scene = HelmScene::shared("timeout").await;
    let chart = shop();
    scene.install("shop", &chart, json!({})).await;
    // No kubelet runs: the Deployment never becomes ready.
    let options = json!({"wait": "legacy", "timeout_seconds": 1, "values": {"image": NEW, "motto": "hello"}});
    scene.fail_upgrade("shop", &chart, options, "deadline").await;
    assert_eq!(scene.history("shop").await, ["1 deployed", "2 failed"]);
    scene.assert_as_declared("shop").await;
    scene.assert_edits_refused().await;
    scene.upgrade("shop", &chart, with(json!({"image": NEW}))).await;
    scene.assert_shop_guarded("shop").await;
}

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn helm_cleans_up_after_a_failed_upgrade() {
    let scene = HelmScene::shared("cleanup").await;
    let chart = shop();
    scene.install("shop", &chart, json!({})).await;
    scene.assert_shop_guarded("shop").await;

    let options = broken(json!({"cleanup_on_fail": true}));
    scene.fail_upgrade("shop", &chart, options, BROKEN).await;
    assert_eq!(scene.history("shop").await, ["1 deployed", "2 failed"]);
    scene.wait_until_gone("configmap/extra").await;
    // What was there before the failed upgrade is not covered by its cleaning up.
    scene.assert_refused("configmap/settings", r#"{"data": {"image": "mine"}}"#).await;
    scene.assert_refused_now(&["delete", "configmap/settings"]);
    scene.assert_refused_now(&["delete", "deployment/web"]);

    scene.upgrade("shop", &chart, with(json!({"image": NEW, "extra": true}))).await;
    scene.assert_shop_guarded("shop").await;
}

#[tokio::test]
async fn helm_rolls_back_on_failure() {
    let scene = HelmScene::shared("atomic").await;
    let chart = shop();
    // Helm waits for what it rolls back to, and no pod runs here.
    scene.install("shop", &chart, with(json!({"replicas": 0}))).await;
    scene.assert_shop_guarded("shop").await;

    let options = json!({
        "rollback_on_failure": true,
        "wait": "hookOnly",
        "timeout_seconds": 20,
        "values": {"replicas": 0},
    });
    scene.fail_upgrade("shop", &chart, broken(options), BROKEN).await;
    assert_eq!(scene.history("shop").await, ["1 superseded", "2 failed", "3 deployed"]);
    scene.wait_until_gone("configmap/extra").await;
    assert_eq!(scene.value("configmap/settings", ".data.image"), OLD);
    scene.assert_shop_guarded("shop").await;
}

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn helm_rolls_back_by_hand_after_a_failed_upgrade() {
    let scene = HelmScene::shared("failed-rollback").await;
    let chart = shop();
    scene.install("shop", &chart, json!({})).await;
    scene.fail_upgrade("shop", &chart, broken(json!({})), BROKEN).await;
    scene.rollback("shop", json!({"version": 1})).await;
    scene.wait_until_gone("configmap/extra").await;
    scene.assert_shop_guarded("shop").await;

    // Back to the broken one, with cleaning up; and out of that again.
    let options = json!({"version": 2, "cleanup_on_fail": true});
    assert_failed(scene.helm.rollback(&scene.namespace, "shop", options).await, BROKEN);
    scene.assert_edits_refused().await;
    scene.upgrade("shop", &chart, with(json!({"image": NEW}))).await;
    scene.assert_shop_guarded("shop").await;
}

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn helm_fails_an_install_and_upgrades_it() {
    let scene = HelmScene::shared("failed-install").await;
    let chart = shop();
    let answer = scene.helm.install(&scene.namespace, "shop", &chart, broken(json!({}))).await;
    assert_failed(answer, BROKEN);
    assert_eq!(scene.history("shop").await, ["1 failed"]);
    scene.assert_refused("configmap/settings", r#"{"data": {"image": "mine"}}"#).await;
    scene.upgrade("shop", &chart, with(json!({"image": OLD}))).await;
    assert_eq!(scene.history("shop").await, ["1 superseded", "2 deployed"]);
    scene.assert_shop_guarded("shop").await;
}

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn helm_fails_an_install_and_replaces_or_removes_it() {
    let scene = HelmScene::shared("failed-replace").await;
    let chart = shop();
    let answer = scene.helm.install(&scene.namespace, "shop", &chart, broken(json!({}))).await;
    assert_failed(answer, BROKEN);
    scene.install("shop", &chart, json!({"replace": true})).await;
    scene.assert_shop_guarded("shop").await;
    scene.uninstall("shop", json!({})).await;
    scene.wait_until_gone("deployment/web").await;

    let options = json!({"rollback_on_failure": true, "wait": "hookOnly", "timeout_seconds": 20});
    let answer = scene.helm.install(&scene.namespace, "shop", &chart, broken(options)).await;
    assert_failed(answer, BROKEN);
    scene.wait_until_gone("configmap/settings").await;
    scene.install("shop", &chart, json!({})).await;
    scene.assert_shop_guarded("shop").await;
}

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn helm_keeps_two_revisions_one_of_them_failed() {
    let scene = HelmScene::shared("history").await;
    let chart = shop();
    let good = |image: &str| json!({"max_history": 2, "values": {"image": image}});
    let bad = || broken(json!({"max_history": 2}));
    scene.install("shop", &chart, json!({})).await;
    scene.fail_upgrade("shop", &chart, bad(), BROKEN).await;
    scene.upgrade("shop", &chart, good(NEW)).await;
    assert_eq!(scene.history("shop").await, ["1 superseded", "3 deployed"]);
    scene.assert_shop_guarded("shop").await;

    scene.fail_upgrade("shop", &chart, bad(), BROKEN).await;
    assert_eq!(scene.history("shop").await, ["3 deployed", "4 failed"]);
    scene.fail_upgrade("shop", &chart, bad(), BROKEN).await;
    assert_eq!(scene.history("shop").await, ["3 deployed", "5 failed"]);
    scene.assert_edits_refused().await;
    scene.upgrade("shop", &chart, good(OLD)).await;
    scene.assert_shop_guarded("shop").await;
    scene.rollback("shop", json!({"version": 3, "max_history": 2})).await;
    scene.assert_shop_guarded("shop").await;
}
