//! Kinds that are defined after the guard has started, or after the releases that declare them.

use serde_json::{Value, json};

use crate::support::{Chart, RELEASE, SOON, Scene, add_widgets, eventually, forged};

fn widget(group: &str) -> String {
    format!("apiVersion: {group}/v1\nkind: Widget\nmetadata: {{name: main}}\nspec: {{replicas: 2}}\n")
}

/// Waits until a Widget of a release, which was seen and then changed by hand, is as declared.
async fn break_and_wait(scene: &Scene, group: &str, release: &str) {
    scene.status_of(release, "that it was seen", |status| status["confirmed"] == 1).await;
    let path = format!("/apis/{group}/v1/namespaces/{}/widgets/main", scene.namespace);
    scene.edit(&path, json!({"spec": {"replicas": 7}})).await;
    scene.wait_for_value(&path, "/spec/replicas", json!(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn release_is_followed_if_its_kind_is_defined_later() {
    let group = "after.example.com";
    let scene = Scene::own().install("after", "").await;
    let admin = &scene.admin;
    // As a restore brings it: the record first.
    let records = scene.core("secrets");
    let record = forged(&scene.namespace, "late", 1, "deployed", &widget(group));
    admin.post(&records, &serde_json::to_value(record).unwrap()).await.done().unwrap();
    let guard = scene.start_guard(&["--drift", "Repair"]).await;
    guard.wait_for_log("the guard never saw it alive").await;
    add_widgets(&scene.control_plane, group).await;
    let mut object: Value = json!({
        "apiVersion": format!("{group}/v1"), "kind": "Widget", "spec": {"replicas": 2},
        "metadata": {"name": "main", "labels": {"app.kubernetes.io/managed-by": "Helm"}},
    });
    object["metadata"]["annotations"] =
        json!({"meta.helm.sh/release-name": "late", "meta.helm.sh/release-namespace": scene.namespace});
    let widgets = format!("/apis/{group}/v1/namespaces/{}/widgets", scene.namespace);
    admin.post(&widgets, &object).await.done().unwrap();
    break_and_wait(&scene, group, "late").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn release_is_followed_if_kind_is_defined_soon_after_start() {
    let (group, never) = ("soon.example.com", "never.example.com");
    let scene = Scene::own().install("soon", "").await;
    let admin = &scene.admin;
    // Of a kind that nobody ever serves, for which others need not wait.
    let records = scene.core("secrets");
    let record = forged(&scene.namespace, "never", 1, "deployed", &widget(never));
    admin.post(&records, &serde_json::to_value(record).unwrap()).await.done().unwrap();
    let _guard = scene.start_guard(&["--drift", "Repair"]).await;
    add_widgets(&scene.control_plane, group).await;
    let chart = Chart::new(RELEASE).template("widget.yaml", &widget(group));
    eventually("Helm finds the kind", SOON, || async {
        scene.helm.upgrade(&scene.namespace, RELEASE, &chart, json!({})).await
    })
    .await;
    scene.wait_for_confirmed(1).await;
    break_and_wait(&scene, group, RELEASE).await;
}
