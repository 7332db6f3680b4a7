//! An API server that is restarted, that loses its storage, or that vanishes from the line: the guard lives on, and
//! puts right what happened meanwhile.

use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::{
    Caller, DRIFT_POLICIES, Guard, Identity, LaggingWatch, Reply, SOON, Scene, Wire, charts, data_review,
    drift_policy, eventually, wait_until_recreated,
};

const FLAGS: [&str; 3] = ["--service=kubemoor-system/kubemoor", "--edits=Deny", "--drift=Repair"];

/// Longer than a Lease counts.
const LONG: Duration = Duration::from_secs(13);

async fn uid(scene: &Scene, path: &str) -> Value {
    scene.get(path).await["metadata"]["uid"].take()
}

/// Posts an edit of the ConfigMap `settings` of a namespace to a guard: from what is declared to `level`.
async fn edited(guard: &Guard, namespace: &str, release: &str, level: &str) -> Reply {
    let [old, new] = ["info", level].map(|level| json!({"level": level}));
    guard.judge_behind(data_review((namespace, release), "settings", &old, &new)).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn object_lost_during_api_server_outage_is_recreated() {
    let mut scene = Scene::own().install("restarts", charts::TWO).await;
    let mut guard = scene.start_guard(&FLAGS).await;
    scene.wait_for_confirmed(2).await;
    for (name, away) in [("settings", Duration::ZERO), ("extra", LONG)] {
        let path = scene.config_map(name);
        let old = uid(&scene, &path).await;
        if away.is_zero() {
            scene.control_plane.stop_apiserver();
        } else {
            scene.control_plane.kill_apiserver();
        }
        let key = format!("configmaps/{}/{name}", scene.namespace);
        scene.control_plane.delete_in_etcd(&key).await;
        sleep(away).await;
        scene.control_plane.start_apiserver();
        scene.alice = Caller::new(&scene.control_plane, Identity::Alice).await;
        wait_until_recreated(&scene.alice, &path, &old).await;
    }
    assert!(guard.is_ready().await);
    assert!(guard.terminate().success(), "{}", guard.log());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn missing_object_is_recreated_soon_after_long_api_server_throttling() {
    let scene = Scene::own().install("busy", charts::TWO).await;
    let proxy = LaggingWatch::start(&scene.control_plane, Identity::Guard).await;
    let _guard = Guard::start_through(&scene.control_plane, proxy.kubeconfig(), &FLAGS).await;
    scene.wait_for_confirmed(2).await;
    let extra = scene.config_map("extra");
    let old = uid(&scene, &extra).await;
    proxy.throttle(true);
    scene.control_plane.delete_unhindered(&extra).await;
    sleep(LONG).await;
    assert!(proxy.turned_away() > 0, "nothing was asked");
    proxy.throttle(false);
    wait_until_recreated(&scene.alice, &extra, &old).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_guard_outlives_an_etcd_that_stands_still() {
    let scene = Scene::own().install("frozen", charts::TWO).await;
    let guard = scene.start_guard(&FLAGS).await;
    scene.wait_for_confirmed(2).await;
    let extra = scene.config_map("extra");
    let old = uid(&scene, &extra).await;
    scene.control_plane.pause_etcd();
    let controller = Caller::new(&scene.control_plane, Identity::NamespaceController).await;
    let path = extra.clone();
    // It is done once etcd goes on, or given up by then.
    let deletion = tokio::spawn(async move { controller.delete(&path).await });
    // What no release declares passes, and a refusal is left to failurePolicy: nobody says what the records are now.
    let reply = edited(&guard, "elsewhere", "none", "mine").await;
    assert!(reply.passes(), "{reply:?}");
    let reply = edited(&guard, &scene.namespace, "shop", "mine").await;
    assert_eq!(reply.code, 500, "{reply:?}");
    // Nor can it renew its Lease.
    guard.wait_for_metric("kubemoor_leading 0\n").await;
    assert!(guard.https().get(guard.admin_url("/livez")).send().await.unwrap().status() == 200);
    scene.control_plane.resume_etcd();

    eventually("the API server answers", SOON, || async { scene.alice.get(&extra).await.done().map(drop) })
        .await;
    if deletion.await.unwrap().code != 200 {
        // The guard may have been faster.
        scene.control_plane.delete_unhindered(&extra).await;
    }
    wait_until_recreated(&scene.alice, &extra, &old).await;
    assert!(guard.is_ready().await, "{}", guard.log());
    eventually("edits are refused again", SOON, || async {
        let reply = edited(&guard, &scene.namespace, "shop", "mine").await;
        if reply.code == 200 && !reply.passes() { Ok(()) } else { Err(format!("{reply:?}")) }
    })
    .await;
}

/// Waits until an edit of `settings` passes, or is refused.
async fn wait_until_edit(scene: &Scene, guard: &Guard, passes: bool) {
    eventually(&format!("an edit passes: {passes}"), SOON, || async {
        let reply = edited(guard, &scene.namespace, "shop", "mine").await;
        if reply.code == 200 && reply.passes() == passes { Ok(()) } else { Err(format!("{reply:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn connections_that_are_lost_without_a_word_are_noticed() {
    let scene = Scene::own().install("lost", charts::TWO).await;
    let (wire, kubeconfig) = Wire::to_api_server(&scene.control_plane, Identity::Guard).await;
    let guard = Guard::start_through(&scene.control_plane, &kubeconfig, &FLAGS).await;
    scene.wait_for_confirmed(2).await;
    let extra = scene.config_map("extra");
    let old = uid(&scene, &extra).await;
    wire.lose();
    scene.control_plane.delete_unhindered(&extra).await;
    // Each looks up the records over connections that are lost.
    let edits = (0..10).map(|_| edited(&guard, &scene.namespace, "shop", "mine"));
    for reply in join_all(edits).await {
        assert!(reply.code == 200 && !reply.passes(), "{reply:?}\n{}", guard.log());
    }
    // A watch may be silent for more than a minute before it counts as lost.
    eventually("the object is back", SOON * 3, || async {
        let object = scene.alice.get(&extra).await.done()?;
        if object["metadata"]["uid"] == old { Err("it is still the old one".to_owned()) } else { Ok(()) }
    })
    .await;
    assert!(guard.is_ready().await, "{}", guard.log());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn objects_are_guarded_when_an_upgrade_ends_their_api_version() {
    let chart = "\
apiVersion: autoscaling/v1
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 5
";
    let mut scene = Scene::own().install("upgraded", chart).await;
    let mut guard = scene.start_guard(&FLAGS).await;
    scene.wait_for_confirmed(1).await;
    scene.control_plane.kill_apiserver();
    scene.control_plane.start_apiserver_without("autoscaling/v1");
    scene.alice = Caller::new(&scene.control_plane, Identity::Alice).await;
    let served = if scene.control_plane.minor() < 23 { "v2beta2" } else { "v2" };
    let path =
        format!("/apis/autoscaling/{served}/namespaces/{}/horizontalpodautoscalers/web", scene.namespace);
    let old = uid(&scene, &path).await;
    scene.control_plane.delete_unhindered(&path).await;
    wait_until_recreated(&scene.alice, &path, &old).await;
    assert!(guard.is_ready().await, "{}", guard.log());
    assert!(guard.terminate().success(), "{}", guard.log());
}

/// The versions of a restored etcd begin anew, so a watch that goes on from a later one is told of nothing.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn guard_is_right_within_five_minutes_after_a_restore_of_etcd() {
    let mut scene = Scene::own().install("restored", charts::TWO).await;
    scene.control_plane.define_policies();
    let namespace = format!("/api/v1/namespaces/{}", scene.namespace);
    let allowances = format!("/apis/kubemoor.dev/v1alpha1/namespaces/{}/driftallowances", scene.namespace);
    let gold = json!({"namespaceSelector": {"matchLabels": {"tier": "gold"}}});
    let policy = drift_policy("gold", json!({"edits": "Record", "releases": gold}));
    scene.admin.post(DRIFT_POLICIES, &policy).await.done().unwrap();
    let other = "\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\ndata: {level: info}\n";
    scene.helm.install(&scene.namespace, "other", &other.into(), json!({})).await.unwrap();
    let guard = scene.start_guard(&FLAGS).await;
    scene.wait_for_confirmed(2).await;
    wait_until_edit(&scene, &guard, false).await;
    let snapshot = scene.control_plane.snapshot_etcd();

    let until = jiff::Timestamp::now() + Duration::from_secs(3600);
    let allowance = json!({
        "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftAllowance", "metadata": {"name": "level"},
        "spec": {"object": {"kind": "ConfigMap", "name": "settings"}, "paths": ["/data/level"], "until": until.to_string()},
    });
    scene.admin.post(&allowances, &allowance).await.done().unwrap();
    wait_until_edit(&scene, &guard, true).await;
    let tier = json!({"metadata": {"labels": {"tier": "gold"}}});
    scene.admin.merge(&namespace, &tier).await.done().unwrap();
    scene.helm.uninstall(&scene.namespace, "other", json!({})).await.unwrap();
    guard.wait_for_metric("kubemoor_releases{state=\"deployed\"} 1\n").await;
    // So that the restored etcd does not reach the versions that the guard knows.
    let extra = scene.config_map("extra");
    for number in 0..1000 {
        let edit = json!({"metadata": {"annotations": {"example.com/write": number.to_string()}}});
        scene.admin.merge(&extra, &edit).await.done().unwrap();
    }
    scene.control_plane.restore_etcd(&snapshot);
    scene.alice = Caller::new(&scene.control_plane, Identity::Alice).await;

    // The release is there again, and the exception and the label, which let the edit pass, are gone.
    let restored = Duration::from_secs(300) + SOON;
    eventually("all releases are known", restored, || async {
        let metrics = guard.metrics().await;
        if metrics.contains("kubemoor_releases{state=\"deployed\"} 2\n") { Ok(()) } else { Err(metrics) }
    })
    .await;
    eventually("the edit is refused", restored, || async {
        let reply = edited(&guard, &scene.namespace, "shop", "mine").await;
        if reply.code == 200 && !reply.passes() { Ok(()) } else { Err(format!("{reply:?}")) }
    })
    .await;
    let old = uid(&scene, &extra).await;
    scene.control_plane.delete_unhindered(&extra).await;
    eventually("the object is back", restored, || async {
        let object = scene.alice.get(&extra).await.done()?;
        if object["metadata"]["uid"] == old { Err("it is still the old one".to_owned()) } else { Ok(()) }
    })
    .await;
}
