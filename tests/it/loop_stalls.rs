//! Pod templates that were changed: one workload of a release after the other, and none waits for what never comes.

use serde_json::{Value, json};

use crate::support::{SOON, Scene, eventually};

const IMAGE: &str = "/spec/template/spec/containers/0/image";

fn deployment(name: &str, replicas: usize) -> String {
    format!(
        "---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec: {{containers: [{{name: app, image: 'registry.example/{name}:1'}}]}}
"
    )
}

fn path(scene: &Scene, name: &str) -> String {
    format!("/apis/apps/v1/namespaces/{}/deployments/{name}", scene.namespace)
}

/// Changes the image of a Deployment by hand.
async fn change(scene: &Scene, name: &str) {
    let containers = json!([{"name": "app", "image": "evil"}]);
    scene.edit(&path(scene, name), json!({"spec": {"template": {"spec": {"containers": containers}}}})).await;
}

/// What the Deployments say of themselves.
async fn states(scene: &Scene, names: &[&str]) -> String {
    let mut states = Vec::new();
    for name in names {
        let object = scene.alice.get(&path(scene, name)).await.body;
        states.push(format!("{name}: {} {}", object["metadata"]["generation"], object["status"]));
    }
    states.join("; ")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn pod_templates_are_repaired_in_turn_without_ready_pods() {
    // No node is there to run a pod.
    let names = ["one", "two"];
    let scene = Scene::own().install("rolling", &names.map(|name| deployment(name, 2)).concat()).await;
    let guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_confirmed(2).await;
    for name in names {
        eventually("its pods are made", SOON, || async {
            let status = scene.alice.get(&path(&scene, name)).await.done()?["status"].clone();
            if status["updatedReplicas"] == 2 { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
    }
    guard.pause();
    for name in names {
        change(&scene, name).await;
    }
    guard.resume();
    let mut repaired: Vec<Value> = Vec::new();
    for name in names {
        let image = json!(format!("registry.example/{name}:1"));
        // Its turn comes once the guard has seen that the other one's pods do not get ready.
        let object = eventually("the template is put right", SOON * 2, || async {
            let object = scene.alice.get(&path(&scene, name)).await.done()?;
            if object.pointer(IMAGE) == Some(&image) { Ok(object) } else { Err(states(&scene, &names).await) }
        });
        repaired.push(object.await);
    }
    assert!(repaired.iter().all(|object| object["status"]["readyReplicas"].is_null()), "{repaired:?}");
    scene.wait_for_reason("InSync").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn workload_without_pods_delays_no_other_template_repair() {
    let names = ["one", "two"];
    let scene = Scene::own().install("idle", &names.map(|name| deployment(name, 0)).concat()).await;
    let guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_confirmed(2).await;
    // Nobody rolls anything out.
    scene.control_plane.pause_controllers();
    guard.pause();
    for name in names {
        change(&scene, name).await;
    }
    guard.resume();
    for name in names {
        scene.wait_for_value(&path(&scene, name), IMAGE, json!(format!("registry.example/{name}:1"))).await;
    }
    guard.wait_for_log("Deployment/two").await;
}
