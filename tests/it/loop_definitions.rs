//! Kinds that are defined after the guard has started, or after the releases that declare them.

use serde_json::{Value, json};

use crate::support::{
    Chart, RELEASE, SOON, Scene, TestKind, add_widgets, charts, eventually, forged, wait_until_guarded,
};

fn widget(group: &str) -> String {
    format!("apiVersion: {group}/v1\nkind: Widget\nmetadata: {{name: main}}\nspec: {{replicas: 2}}\n")
}

/// Writes the record of a release as a restore does it: before the objects.
async fn restore_record(scene: &Scene, release: &str, manifest: &str) {
    let record = serde_json::to_value(forged(&scene.namespace, release, 1, "deployed", manifest)).unwrap();
    scene.admin.post(&scene.core("secrets"), &record).await.done().unwrap();
}

/// Creates an object of the release `late`, as Helm marks it.
async fn create(scene: &Scene, path: &str, mut object: Value) {
    object["metadata"] = json!({
        "name": "main", "labels": {"app.kubernetes.io/managed-by": "Helm"},
        "annotations": {
            "meta.helm.sh/release-name": "late", "meta.helm.sh/release-namespace": scene.namespace,
        },
    });
    scene.admin.post(path, &object).await.done().unwrap();
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
    restore_record(&scene, "late", &widget(group)).await;
    let guard = scene.start_guard(&["--drift", "Repair"]).await;
    guard.wait_for_log("the guard has never seen it with its release's annotations").await;
    add_widgets(&scene.control_plane, group).await;
    let object = json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "spec": {"replicas": 2}});
    create(&scene, &scene.at(&format!("apis/{group}/v1"), "widgets"), object).await;
    break_and_wait(&scene, group, "late").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn release_is_followed_if_kind_is_defined_soon_after_start() {
    let (group, never) = ("soon.example.com", "never.example.com");
    let scene = Scene::own().install("soon", "").await;
    // Of a kind that nobody ever serves, for which others need not wait.
    restore_record(&scene, "never", &widget(never)).await;
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

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn cluster_scoped_object_is_guarded_if_its_kind_is_defined_later() {
    let (group, version, kind, plural) = ("ships.example.com", "v1", "Ship", "ships");
    let scene = Scene::shared().prepare("scope", charts::SETTINGS).await;
    let ship = "apiVersion: ships.example.com/v1\nkind: Ship\nmetadata: {name: main}\nspec: {crew: 2}\n";
    restore_record(&scene, "late", ship).await;
    // An unknown kind counts as namespaced.
    scene.status_of("late", "that it is known", |status| status["revision"] == 1).await;
    TestKind { group, version, kind, plural, scope: "Cluster" }.define(&scene.admin).await;
    let ships = format!("/apis/{group}/{version}/{plural}");
    let object = json!({"apiVersion": format!("{group}/{version}"), "kind": kind, "spec": {"crew": 2}});
    create(&scene, &ships, object).await;
    wait_until_guarded(&scene.alice, "late", &format!("{ships}/main")).await;
}
