//! An API server that is restarted, that loses its storage, or that vanishes from the line: the guard lives on, and
//! puts right what happened meanwhile.

use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::{
    Caller, DRIFT_POLICIES, EtcdSnapshot, Guard, Identity, LaggingWatch, Reply, Review, SOON, Scene, Wire,
    charts, drift_policy, eventually, wait_until_recreated,
};

const FLAGS: [&str; 3] = ["--service=kubemoor-system/kubemoor", "--edits=Deny", "--drift=Repair"];

/// Longer than a Lease counts.
const LONG: Duration = Duration::from_secs(13);

async fn uid(scene: &Scene, path: &str) -> Value {
    scene.get(path).await["metadata"]["uid"].take()
}

/// Posts an edit of the ConfigMap `settings` of a namespace to a guard: from what is declared to `level`.
async fn edited(guard: &Guard, namespace: &str, release: &str, level: &str) -> Reply {
    let object = |level: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"level": level},
            "metadata": {"name": "settings", "namespace": namespace,
                "labels": {"app.kubernetes.io/managed-by": "Helm"},
                "annotations": {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": namespace}},
        })
        .to_string()
    };
    let (old, new) = (object("info"), object(level));
    guard.judge_behind(Review::of_settings(namespace, &old, &new).text()).await
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

/// The version of an object after a write.
async fn version(scene: &Scene, path: &str, number: u64) -> u64 {
    let edit = json!({"metadata": {"annotations": {"example.com/write": number.to_string()}}});
    let written = scene.admin.merge(path, &edit).await.done().unwrap();
    written["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// Goes back to a snapshot, and writes until the versions have passed those that the guard's watches know, so that none of
/// them notices. The API server answers as soon as `served` is `Ok`.
async fn rewind<E: std::fmt::Display>(
    scene: &mut Scene,
    guard: &Guard,
    snapshot: &EtcdSnapshot,
    served: impl AsyncFn(&Caller) -> Result<(), E>,
) {
    let extra = scene.config_map("extra");
    let known = version(scene, &extra, 0).await;
    guard.pause();
    scene.control_plane.restore_etcd(snapshot);
    scene.admin = Caller::new(&scene.control_plane, Identity::Admin).await;
    // From the version of the first question on, the API server answers watches of the kind.
    eventually("the restored state is served", SOON, || async {
        served(&scene.admin).await.map_err(|error| error.to_string())
    })
    .await;
    let mut number = 1;
    while version(scene, &extra, number).await <= known + 100 {
        number += 1;
    }
    guard.resume();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn exceptions_of_a_restored_etcd_count_though_its_versions_are_higher() {
    let mut scene = Scene::own().install("passed", charts::TWO).await;
    scene.control_plane.define_policies();
    let guard = scene.start_guard(&FLAGS).await;
    scene.wait_for_confirmed(2).await;
    let until = jiff::Timestamp::now() + Duration::from_secs(3600);
    let allowances = format!("/apis/kubemoor.dev/v1alpha1/namespaces/{}/driftallowances", scene.namespace);
    let allowance = json!({
        "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftAllowance", "metadata": {"name": "level"},
        "spec": {"object": {"kind": "ConfigMap", "name": "settings"}, "paths": ["/data/level"], "until": until.to_string()},
    });
    scene.admin.post(&allowances, &allowance).await.done().unwrap();
    wait_until_edit(&scene, &guard, true).await;
    let snapshot = scene.control_plane.snapshot_etcd();
    scene.upgrade_to(&format!("{}\n# again\n", charts::TWO), json!({})).await.unwrap();
    scene.wait_until_seen(2).await;
    scene.admin.delete(&format!("{allowances}/level")).await.done().unwrap();
    wait_until_edit(&scene, &guard, false).await;
    rewind(&mut scene, &guard, &snapshot, async |admin| {
        let listed = admin.get(&allowances).await.done()?;
        let is_there = listed["items"].as_array().is_some_and(|items| items.len() == 1);
        if is_there { Ok(()) } else { Err(listed.to_string()) }
    })
    .await;
    wait_until_edit(&scene, &guard, true).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn namespace_labels_of_a_restored_etcd_count_though_its_versions_are_higher() {
    let mut scene = Scene::own().install("relabelled", charts::TWO).await;
    scene.control_plane.define_policies();
    let gold = json!({"namespaceSelector": {"matchLabels": {"tier": "gold"}}});
    let policy = drift_policy("gold", json!({"edits": "Record", "releases": gold}));
    scene.admin.post(DRIFT_POLICIES, &policy).await.done().unwrap();
    let namespace = format!("/api/v1/namespaces/{}", scene.namespace);
    let tier = |tier: Value| json!({"metadata": {"labels": {"tier": tier}}});
    scene.admin.merge(&namespace, &tier(json!("gold"))).await.done().unwrap();
    let guard = scene.start_guard(&FLAGS).await;
    scene.wait_for_confirmed(2).await;
    wait_until_edit(&scene, &guard, true).await;
    let snapshot = scene.control_plane.snapshot_etcd();
    scene.upgrade_to(&format!("{}\n# again\n", charts::TWO), json!({})).await.unwrap();
    scene.wait_until_seen(2).await;
    scene.admin.merge(&namespace, &tier(Value::Null)).await.done().unwrap();
    wait_until_edit(&scene, &guard, false).await;
    rewind(&mut scene, &guard, &snapshot, async |admin| {
        let live = admin.get(&namespace).await.done()?;
        if live["metadata"]["labels"]["tier"] == "gold" { Ok(()) } else { Err(live.to_string()) }
    })
    .await;
    wait_until_edit(&scene, &guard, true).await;
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

/// Goes back to before `change`, which makes of a cluster with `before` releases one with another number of them. Neither
/// a review nor a write of a record shows the guard that they are `before` again.
async fn check_rewind(name: &str, releases: [usize; 2], change: impl AsyncFn(&Scene)) {
    let [before, after] = releases.map(|count| format!("kubemoor_releases{{state=\"deployed\"}} {count}\n"));
    let mut scene = Scene::own().install(name, charts::TWO).await;
    let other = "\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n";
    scene.helm.install(&scene.namespace, "other", &other.into(), json!({})).await.unwrap();
    let guard = scene.start_guard(&["--edits=Deny"]).await;
    guard.wait_for_metric(&before).await;
    let snapshot = scene.control_plane.snapshot_etcd();
    change(&scene).await;
    guard.wait_for_metric(&after).await;
    let records = format!("/api/v1/namespaces/{}/secrets?labelSelector=owner=helm", scene.namespace);
    rewind(&mut scene, &guard, &snapshot, async |admin| {
        let listed = admin.get(&records).await.done()?;
        if listed["items"].as_array().is_some_and(|items| items.len() == 2) {
            Ok(())
        } else {
            Err(listed.to_string())
        }
    })
    .await;
    guard.wait_for_metric(&before).await;
    assert!(guard.log().contains("etcd went back to a state from before the last change"), "{}", guard.log());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn release_of_after_the_snapshot_is_forgotten_though_versions_are_higher() {
    check_rewind("forgotten", [2, 3], async |scene| {
        let late = "\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: late}\n";
        scene.helm.install(&scene.namespace, "late", &late.into(), json!({})).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn release_that_was_uninstalled_after_the_snapshot_is_back_though_versions_are_higher() {
    check_rewind("resurrected", [2, 1], async |scene| {
        scene.helm.uninstall(&scene.namespace, "other", json!({})).await.unwrap();
    })
    .await;
}
