//! So much drifts at once that repairs stop: those of the namespace in which it does, or all.
//! What the guard hears of before it is too much is repaired, so up to [`MOST`] objects come back.

use std::fmt::Write as _;

use serde_json::json;

use crate::support::{Chart, RELEASE, SOON, Scene, charts, eventually};

/// So many drifting objects do not stop repairs yet.
const MOST: usize = 10;

/// So many ConfigMaps.
fn many(objects: usize) -> String {
    (0..objects).fold(String::new(), |mut text, n| {
        let metadata = format!("metadata: {{name: many-{n}}}");
        write!(text, "---\napiVersion: v1\nkind: ConfigMap\n{metadata}\ndata: {{a: b}}\n").unwrap();
        text
    })
}

fn all_of(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps?labelSelector=app.kubernetes.io%2Fmanaged-by%3DHelm")
}

/// Installs the release of another tenant; gives its namespace.
async fn tenant(scene: &Scene, templates: &str) -> String {
    let namespace = scene.control_plane.namespace("tenant").await;
    let chart = Chart::new(RELEASE).template("all.yaml", templates);
    scene.helm.install(&namespace, RELEASE, &chart, json!({})).await.unwrap();
    namespace
}

/// The scene as this tenant sees it.
fn at<'s>(scene: &'s mut Scene, namespace: &str) -> &'s Scene {
    scene.namespace = namespace.to_owned();
    scene
}

async fn count(scene: &Scene, namespace: &str) -> usize {
    let all = scene.get(&all_of(namespace)).await;
    all["items"].as_array().unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn mass_deletion_stops_repairs_only_in_its_own_namespace() {
    let mut scene = Scene::own().install("his", &many(30)).await;
    let (his, others) = (scene.namespace.clone(), tenant(&scene, charts::TWO).await);
    let guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_confirmed(30).await;
    at(&mut scene, &others).wait_for_confirmed(2).await;
    let (settings, extra) = (scene.config_map("settings"), scene.config_map("extra"));
    // So that it meets most of it at once.
    guard.pause();
    scene.alice.delete(&all_of(&his)).await.done().unwrap();
    scene.edit(&settings, json!({"data": {"level": "mine"}})).await;
    guard.resume();
    scene.wait_for_value(&settings, "/data/level", json!("info")).await;
    at(&mut scene, &his).wait_for_reason("Braked").await;
    let back = count(&scene, &his).await;
    assert!(back <= MOST, "{back} came back: {}", guard.log());
    let words = format!("of 32 declared objects drifted at once, all from releases in namespace {his}");
    guard.wait_for_log(&words).await;
    // Nor later on.
    scene.alice.delete(&extra).await.done().unwrap();
    scene.wait_for_value(&extra, "/data/color", json!("blue")).await;
    at(&mut scene, &others).wait_for_reason("InSync").await;
    at(&mut scene, &his).wait_for_reason("Braked").await;
    assert_eq!(count(&scene, &his).await, back, "{}", guard.log());

    // The word of a person counts where he says it.
    at(&mut scene, &others).order("reconcile");
    scene.status("what was asked for", |status| status["lastReconcileAt"].is_string()).await;
    at(&mut scene, &his).wait_for_reason("Braked").await;
    assert!(!guard.log().contains("repairs resumed"));
    scene.order("reconcile");
    scene.wait_for_reason("InSync").await;
    assert_eq!(count(&scene, &his).await, 30);
    guard.wait_for_log("repairs resumed").await;
    for (verdict, part) in [("EngageBrake", "of 32 declared objects drift"), ("ReleaseBrake", "by an order")]
    {
        let rows = guard.rows(&["-n", &his, "--verdict", verdict]);
        assert!(rows.len() == 1 && rows[0]["detail"].as_str().unwrap().contains(part), "{rows:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn mass_drift_in_several_namespaces_stops_all_repairs() {
    let mut scene = Scene::own().install("spanned", &many(25)).await;
    let first = scene.namespace.clone();
    let (second, third) = (tenant(&scene, &many(25)).await, tenant(&scene, charts::TWO).await);
    let guard = scene.start_guard(&["--drift", "Repair"]).await;
    for (namespace, objects) in [(&first, 25), (&second, 25), (&third, 2)] {
        at(&mut scene, namespace).wait_for_confirmed(objects).await;
    }
    guard.pause();
    for namespace in [&first, &second] {
        scene.alice.delete(&all_of(namespace)).await.done().unwrap();
    }
    guard.resume();
    for namespace in [&first, &second] {
        at(&mut scene, namespace).wait_for_reason("Braked").await;
    }
    guard
        .wait_for_log(" of 52 declared objects drifted at once: all repairs are stopped until a user runs kubemoor reconcile")
        .await;
    let settings = at(&mut scene, &third).config_map("settings");
    scene.edit(&settings, json!({"data": {"level": "mine"}})).await;
    scene.wait_for_reason("Braked").await;

    // The rest is too much still, and then it is not.
    at(&mut scene, &first).order("reconcile");
    eventually("what was asked for is back", SOON, || async { count(&scene, &first).await == 25 }).await;
    assert_eq!(scene.get(&settings).await["data"]["level"], "mine");
    at(&mut scene, &second).order("reconcile");
    for namespace in [&first, &second, &third] {
        at(&mut scene, namespace).wait_for_reason("InSync").await;
    }
    assert_eq!(scene.get(&settings).await["data"]["level"], "info");
}
