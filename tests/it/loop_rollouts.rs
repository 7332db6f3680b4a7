//! New pods of one workload at a time: repairs of the others of its release wait until these have replaced the old ones.

use serde_json::{Value, json};

use crate::support::{SOON, Scene, eventually};

const WORKLOADS: &str = "
{{- range $name := list \"first\" \"second\" }}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ $name }}}
spec:
  replicas: 1
  selector: {matchLabels: {app: {{ $name }}}}
  template:
    metadata: {labels: {app: {{ $name }}}}
    spec: {containers: [{name: app, image: \"registry.example/shop:1\"}]}
{{- end }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {level: info}
";

const IMAGE: &str = "/spec/template/spec/containers/0/image";
const DECLARED: &str = "registry.example/shop:1";

/// No kubelet runs here: says of each pod of a workload's that it is ready.
async fn wait_until_rolled_out(scene: &Scene, name: &str) {
    let deployment = scene.deployment(name);
    let pods = scene.core("pods");
    eventually(&format!("{name} is rolled out"), SOON, || async {
        let selected = format!("{pods}?labelSelector=app%3D{name}");
        for pod in scene.alice.get(&selected).await.done()?["items"].as_array().unwrap() {
            let path = format!("{pods}/{}/status", pod["metadata"]["name"].as_str().unwrap());
            let ready = json!({"status": {
                "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
            }});
            scene.alice.merge(&path, &ready).await;
        }
        let object = scene.alice.get(&deployment).await.done()?;
        let status = &object["status"];
        let done = status["observedGeneration"] == object["metadata"]["generation"]
            && status["updatedReplicas"] == 1
            && status["readyReplicas"] == 1
            && status["replicas"] == 1;
        if done { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

/// What changes the pods of a workload.
fn other_pods() -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "app", "image": "mine"}]}}}})
}

/// Changes the pods of both workloads by hand, and waits until none of the old ones is left: they would be as declared.
async fn both_change(scene: &Scene) {
    for name in ["first", "second"] {
        scene.edit(&scene.deployment(name), other_pods()).await;
    }
    for name in ["first", "second"] {
        wait_until_rolled_out(scene, name).await;
    }
}

/// Waits until one of them is being rolled out and the other one waits for it; gives both.
async fn one_waits(scene: &Scene) -> (&'static str, &'static str) {
    let status = scene
        .status("that one waits", |status| status["drifts"].to_string().contains("is still rolling out"))
        .await;
    let waits = status["drifts"][0]["object"]["name"].as_str().unwrap().to_owned();
    let (rolls, waits) = if waits == "second" { ("first", "second") } else { ("second", "first") };
    assert_eq!(status["drifted"], 1, "{status}");
    let detail = status["drifts"].to_string();
    assert!(detail.contains(&format!("Deployment/{rolls}")), "{detail}");
    (rolls, waits)
}

async fn image(scene: &Scene, name: &str) -> Value {
    scene.get(&scene.deployment(name)).await.pointer(IMAGE).unwrap().clone()
}

async fn installed(prefix: &str) -> Scene {
    let scene = Scene::own().install(prefix, WORKLOADS).await;
    wait_until_rolled_out(&scene, "first").await;
    wait_until_rolled_out(&scene, "second").await;
    scene
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn workload_repair_waits_for_rollout_of_another_workload() {
    let scene = installed("rolling").await;
    let guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_confirmed(3).await;
    guard.pause();
    both_change(&scene).await;
    guard.resume();
    let (rolls, waits) = one_waits(&scene).await;
    assert_eq!((image(&scene, rolls).await, image(&scene, waits).await), (json!(DECLARED), json!("mine")));
    // Nothing else has to wait.
    let settings = scene.config_map("settings");
    scene.edit(&settings, json!({"data": {"level": "mine"}})).await;
    scene.wait_for_value(&settings, "/data/level", json!("info")).await;
    assert_eq!(image(&scene, waits).await, "mine");
    let writes = scene.wait_for_answers("deployments", 1).await.len();

    wait_until_rolled_out(&scene, rolls).await;
    scene.wait_for_value(&scene.deployment(waits), IMAGE, json!(DECLARED)).await;
    scene.wait_for_reason("InSync").await;
    let all = scene.wait_for_answers("deployments", 2).await.len();
    assert_eq!((writes, all), (1, 2), "{}", guard.log());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn order_waits_for_no_rollout_and_repairs_each_workload_once() {
    let scene = installed("ordered").await;
    scene.control_plane.apply_deploy(&["enforce/arbiter.yaml", "enforce/repair.yaml"]).await;
    let guard = scene.start_guard(&["--drift", "Report"]).await;
    scene.wait_for_confirmed(3).await;
    both_change(&scene).await;
    scene.status("two drifts", |status| status["drifted"] == 2).await;
    scene.order("reconcile");
    // Nobody says that the new pods of the first one are ready.
    for name in ["first", "second"] {
        scene.wait_for_value(&scene.deployment(name), IMAGE, json!(DECLARED)).await;
    }
    scene.wait_for_reason("InSync").await;
    both_change(&scene).await;
    scene.status("two drifts", |status| status["drifted"] == 2).await;
    assert_eq!(scene.wait_for_answers("deployments", 2).await.len(), 2, "{}", guard.log());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn pod_templates_are_repaired_in_turn_without_ready_pods() {
    // No node is there to run a pod.
    let scene = Scene::own().install("stalled", WORKLOADS).await;
    let guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_confirmed(3).await;
    guard.pause();
    for name in ["first", "second"] {
        scene.wait_for_value(&scene.deployment(name), "/status/updatedReplicas", json!(1)).await;
        scene.edit(&scene.deployment(name), other_pods()).await;
    }
    guard.resume();
    // The turn of the second comes once the guard has seen that the other one's pods do not get ready.
    eventually("both templates are put right", SOON * 4, || async {
        let now = [image(&scene, "first").await, image(&scene, "second").await];
        if now == [DECLARED, DECLARED] { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await;
    assert!(scene.get(&scene.deployment("first")).await["status"]["readyReplicas"].is_null());
    scene.wait_for_reason("InSync").await;
}
