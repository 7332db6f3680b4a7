//! Records that mislead: left over by a Helm that was killed, ahead of the guard's watch, or gone with a restore.

use serde_json::{Value, json};

use crate::helm_scene::{FLAGS, HelmScene, assert_failed, shop, with};
use crate::support::{ControlPlane, Guard, Helm, Identity, LaggingWatch, SOON, eventually};

const OLD: &str = "registry.example/shop:1";
const NEW: &str = "registry.example/shop:2";
const THIRD: &str = "registry.example/shop:3";

fn image(image: &str) -> String {
    json!({"data": {"image": image}}).to_string()
}

/// Starts an operation that waits for ever and kills Helm in the middle of it, all objects being written.
async fn kill_during(scene: &HelmScene<'_>, operation: &str, options: Value, revision: u32) {
    let mut helm = Helm::start(ControlPlane::get(), Identity::Alice);
    let mut options = options;
    // No kubelet runs: the Deployment never becomes ready.
    options["wait"] = "legacy".into();
    options["timeout_seconds"] = 300.into();
    let chart = shop();
    let record = format!("secret/sh.helm.release.v1.shop.v{revision}");
    let wanted = options["values"]["image"].as_str().unwrap().to_owned();
    let written = || async {
        let status = scene.query(&record, ".metadata.labels.status")?;
        let live = scene.query("deployment/web", "..image")?;
        if status.starts_with("pending-") && live == wanted {
            Ok(())
        } else {
            Err(format!("{status} {live}"))
        }
    };
    let working = async {
        match operation {
            "install" => helm.install(&scene.namespace, "shop", &chart, options).await,
            _ => helm.upgrade(&scene.namespace, "shop", &chart, options).await,
        }
    };
    tokio::select! {
        answer = working => panic!("{operation} ended by itself: {answer:?}"),
        () = eventually("Helm waits", SOON, written) => {}
    }
    helm.kill();
}

#[tokio::test]
async fn helm_upgrades_after_record_of_killed_upgrade_is_deleted() {
    let scene = HelmScene::shared("killed-upgrade").await;
    scene.install("shop", &shop(), json!({})).await;
    scene.assert_shop_guarded("shop").await;
    kill_during(&scene, "upgrade", with(json!({"image": NEW, "extra": true})), 2).await;
    assert_eq!(scene.history("shop").await, ["1 deployed", "2 pending-upgrade"]);

    // Somebody at work or not: an edit by hand agrees with no manifest.
    scene.assert_edits_refused().await;
    scene.assert_refused("configmap/extra", &image("mine")).await;
    let answer = scene.helm.upgrade(&scene.namespace, "shop", &shop(), json!({})).await;
    assert_failed(answer, "another operation");

    scene.assert_refused_now(&["delete", "secret/sh.helm.release.v1.shop.v1"]);
    scene.run(&["delete", "secret/sh.helm.release.v1.shop.v2"]);
    scene.assert_edits_refused().await;
    scene.upgrade("shop", &shop(), with(json!({"image": THIRD, "extra": true}))).await;
    assert_eq!(scene.history("shop").await, ["1 superseded", "2 deployed"]);
    scene.assert_shop_guarded("shop").await;
}

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn helm_rolls_a_killed_upgrade_back() {
    let scene = HelmScene::shared("killed-rollback").await;
    scene.install("shop", &shop(), json!({})).await;
    kill_during(&scene, "upgrade", with(json!({"image": NEW, "extra": true})), 2).await;
    scene.rollback("shop", json!({"version": 1})).await;
    assert_eq!(scene.history("shop").await, ["1 superseded", "2 pending-upgrade", "3 deployed"]);
    scene.wait_until_gone("configmap/extra").await;
    // The pending record stays in the history for ever and authorises nothing.
    scene.assert_refused("configmap/settings", &image(NEW)).await;
    scene.assert_shop_guarded("shop").await;
    scene.upgrade("shop", &shop(), with(json!({"image": NEW}))).await;
    scene.assert_shop_guarded("shop").await;
}

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn helm_installs_after_record_of_killed_install_is_deleted() {
    let scene = HelmScene::shared("killed-install").await;
    kill_during(&scene, "install", with(json!({"image": OLD})), 1).await;
    assert_eq!(scene.history("shop").await, ["1 pending-install"]);
    scene.assert_edits_refused().await;
    scene.assert_refused_now(&["delete", "configmap/settings"]);

    scene.run(&["delete", "secret/sh.helm.release.v1.shop.v1"]);
    scene.install("shop", &shop(), with(json!({"image": NEW}))).await;
    scene.assert_shop_guarded("shop").await;
    scene.upgrade("shop", &shop(), with(json!({"image": THIRD}))).await;
    scene.assert_shop_guarded("shop").await;
}

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn helm_uninstalls_what_a_killed_install_left() {
    let scene = HelmScene::shared("killed-uninstall").await;
    kill_during(&scene, "install", with(json!({"image": OLD})), 1).await;
    scene.assert_refused("configmap/settings", &image("mine")).await;
    scene.uninstall("shop", json!({})).await;
    scene.wait_until_shop_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_passes_and_manual_edit_is_refused_while_watch_lags() {
    let control_plane = ControlPlane::start();
    let watch = LaggingWatch::start(&control_plane, Identity::Guard).await;
    let _guard = Guard::start_through(&control_plane, watch.kubeconfig(), &FLAGS).await;
    let scene = HelmScene::of(&control_plane, "lag").await;
    let chart = shop();
    scene.install("shop", &chart, with(json!({"extra": true}))).await;
    scene.assert_shop_guarded("shop").await;
    scene.assert_refused("configmap/extra", &image("mine")).await;

    watch.hold();
    scene.upgrade("shop", &chart, with(json!({"image": NEW, "motto": "hello"}))).await;
    scene.wait_until_gone("configmap/extra").await;
    scene.assert_as_declared("shop").await;
    scene.assert_edits_refused_now().await;
    // What the watch still takes for declared.
    scene.assert_patch_refused_now("configmap/settings", &image(OLD)).await;
    scene.assert_refused_now(&["delete", "configmap/settings"]);

    let fails = json!({"cleanup_on_fail": true, "values": {"image": THIRD, "extra": true, "broken": true}});
    scene.fail_upgrade("shop", &chart, fails, "spec.ports[0].port").await;
    scene.wait_until_gone("configmap/extra").await;
    scene.rollback("shop", json!({"version": 1})).await;
    scene.assert_as_declared("shop").await;
    scene.assert_edits_refused_now().await;
    scene.uninstall("shop", json!({})).await;
    scene.wait_until_gone("deployment/web").await;
    // A release that the watch has not shown yet.
    scene.install("shop", &chart, with(json!({"image": NEW}))).await;
    scene.upgrade("shop", &chart, with(json!({"image": THIRD, "extra": true}))).await;
    scene.assert_as_declared("shop").await;

    watch.release();
    scene.assert_shop_guarded("shop").await;
    scene.assert_refused("configmap/extra", &image("mine")).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_restored_cluster_is_judged_by_what_it_holds() {
    let mut control_plane = ControlPlane::start();
    let guard = Guard::start(&control_plane, &FLAGS).await;
    let namespace = {
        let scene = HelmScene::of(&control_plane, "restore").await;
        scene.install("shop", &shop(), json!({})).await;
        scene.assert_shop_guarded("shop").await;
        scene.namespace
    };
    let snapshot = control_plane.snapshot_etcd();
    {
        let scene = HelmScene::at(&control_plane, namespace.clone()).await;
        scene.upgrade("shop", &shop(), with(json!({"image": NEW, "replicas": 2, "extra": true}))).await;
        scene.assert_shop_guarded("shop").await;
    }
    drop(guard);
    control_plane.restore_etcd(&snapshot);
    let _guard = Guard::start(&control_plane, &FLAGS).await;

    let scene = HelmScene::at(&control_plane, namespace).await;
    assert_eq!(scene.history("shop").await, ["1 deployed"]);
    assert_eq!(scene.value("configmap/settings", ".data.image"), OLD);
    scene.assert_shop_guarded("shop").await;
    // What the guard took for declared before the restore.
    scene.assert_refused("configmap/settings", &image(NEW)).await;
    scene.wait_until_gone("configmap/extra").await;
    scene.upgrade("shop", &shop(), with(json!({"image": THIRD, "replicas": 3}))).await;
    assert_eq!(scene.history("shop").await, ["1 superseded", "2 deployed"]);
    scene.assert_shop_guarded("shop").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn helm_passes_right_after_a_restore() {
    let mut control_plane = ControlPlane::start();
    let watch = LaggingWatch::start(&control_plane, Identity::Guard).await;
    let _guard = Guard::start_through(&control_plane, watch.kubeconfig(), &FLAGS).await;
    let namespace = {
        let scene = HelmScene::of(&control_plane, "restore").await;
        scene.install("shop", &shop(), json!({})).await;
        scene.assert_shop_guarded("shop").await;
        scene.namespace
    };
    let snapshot = control_plane.snapshot_etcd();
    {
        let scene = HelmScene::at(&control_plane, namespace.clone()).await;
        scene.upgrade("shop", &shop(), with(json!({"image": NEW, "extra": true}))).await;
        scene.assert_shop_guarded("shop").await;
    }
    watch.hold();
    control_plane.restore_etcd(&snapshot);
    let scene = HelmScene::at(&control_plane, namespace).await;
    scene.upgrade("shop", &shop(), with(json!({"image": THIRD, "motto": "hello"}))).await;
    scene.assert_shop_guarded("shop").await;
    watch.release();
    scene.upgrade("shop", &shop(), with(json!({"image": NEW}))).await;
    scene.assert_shop_guarded("shop").await;
}
