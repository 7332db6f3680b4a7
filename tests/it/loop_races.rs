//! Others write between the guard's look and its write: each of these races is provoked by holding the guard's own
//! request up.

use serde_json::json;

use crate::support::{ControlPlane, Guard, Identity, LaggingWatch, RELEASE, SOON, Scene, charts, eventually};

const SETTINGS: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {level: {{ .Values.level | default \"info\" }}, color: blue}
";

/// A guard whose requests can be held up.
async fn slowed(scene: &Scene) -> (LaggingWatch, Guard) {
    let proxy = LaggingWatch::start(&scene.control_plane, Identity::Guard).await;
    let guard = Guard::start_through(&scene.control_plane, proxy.kubeconfig(), &["--drift", "Repair"]).await;
    scene.wait_for_reason("InSync").await;
    (proxy, guard)
}

async fn on_its_way(proxy: &LaggingWatch, request: &str) {
    eventually("the guard's write is on its way", SOON, || async { proxy.stalled(request) == 1 }).await;
}

async fn an_upgrade_in_between_wins(server_side: bool) {
    const WRITE: &str = "PATCH /configmaps/settings";
    let control_plane = ControlPlane::start();
    control_plane.define_policies();
    let options = json!({"server_side_apply": server_side});
    let scene = Scene::on(control_plane).options(options).install("between", SETTINGS).await;
    let (proxy, guard) = slowed(&scene).await;
    let settings = scene.config_map("settings");
    proxy.stall(&[WRITE]);
    scene.edit(&settings, json!({"data": {"level": "mine", "color": "red"}})).await;
    on_its_way(&proxy, WRITE).await;
    let apply = if server_side { "true" } else { "false" };
    let options = |level: &str, force: bool| json!({"values": {"level": level}, "server_side_apply": apply, "force_conflicts": force});
    scene.upgrade_to(SETTINGS, options("debug", server_side)).await.unwrap();
    proxy.stall(&[]);
    eventually("the late write is answered", SOON, || async { proxy.passed(WRITE) >= 1 }).await;
    let answers = scene.wait_for_answers("configmaps", 1).await;
    assert_eq!(answers.first(), Some(&409), "{answers:?}");
    scene.wait_for_value(&settings, "/data/color", json!("blue")).await;
    scene.wait_for_reason("InSync").await;
    let now = scene.get(&settings).await;
    assert_eq!(now["data"]["level"], "debug", "{}", guard.log());
    assert!(!guard.log().contains("could not be repaired"), "{}", guard.log());
    // Helm never noticed: no conflict, no extra revision.
    scene.upgrade_to(SETTINGS, options("warn", false)).await.unwrap();
    assert_eq!(scene.get(&settings).await["data"]["level"], "warn");
    let revisions = scene.helm.history(&scene.namespace, RELEASE).await.unwrap();
    assert_eq!(revisions.as_array().unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn upgrade_during_a_repair_wins_in_server_side_release() {
    an_upgrade_in_between_wins(true).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn upgrade_during_a_repair_wins_in_client_side_release() {
    an_upgrade_in_between_wins(false).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn object_dropped_by_upgrade_during_recreation_is_removed_again() {
    const WRITE: &str = "PATCH /configmaps/extra";
    let scene = Scene::own().install("dropped", charts::TWO).await;
    let (proxy, guard) = slowed(&scene).await;
    let extra = scene.config_map("extra");
    proxy.stall(&[WRITE]);
    scene.alice.delete(&extra).await.done().unwrap();
    on_its_way(&proxy, WRITE).await;
    scene.upgrade_to(charts::TWO.split("---").next().unwrap(), json!({})).await.unwrap();
    proxy.stall(&[]);
    guard.wait_for_log("after re-creating it, because Helm release").await;
    assert_eq!(scene.wait_for_answers("configmaps", 2).await, [201, 200], "made, and deleted again");
    assert_eq!(scene.alice.get(&extra).await.code, 404);
    scene.wait_for_reason("InSync").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn autoscaler_change_during_a_repair_stays() {
    const WRITE: &str = "PATCH /deployments/web";
    let scene = Scene::own().install("scaled", charts::DEPLOYMENT).await;
    let web = scene.deployment("web");
    scene.autoscale("web", "web", (1, 6)).await;
    let (proxy, guard) = slowed(&scene).await;
    let mine = json!([{"name": "app", "image": "mine"}]);
    proxy.stall(&[WRITE]);
    scene.edit(&web, json!({"spec": {"template": {"spec": {"containers": mine}}}})).await;
    on_its_way(&proxy, WRITE).await;
    let path = format!("{web}/scale?fieldManager=horizontal-pod-autoscaler");
    scene.alice.merge(&path, &json!({"spec": {"replicas": 5}})).await.done().unwrap();
    proxy.stall(&[]);
    let image = "/spec/template/spec/containers/0/image";
    let object = scene.wait_for_value(&web, image, json!("registry.example/shop:1")).await;
    assert_eq!(object["spec"]["replicas"], 5, "{}", guard.log());
    let answers = scene.wait_for_answers("deployments", 1).await;
    assert_eq!(answers.first(), Some(&409), "the race was not met");
    scene.wait_for_reason("InSync").await;
    let object = scene.get(&web).await;
    assert_eq!(object["spec"]["replicas"], 5, "{}", guard.log());
}
