//! Connections to the API server that break in the middle of an answer: what was done is not done again, and what was
//! not heard of is found.

use serde_json::{Value, json};

use crate::support::{Guard, Identity, LaggingWatch, SOON, Scene, charts, eventually};

const SETTINGS: &str = "PATCH /configmaps/settings";

/// A release, and a guard that reaches its API server by a connection that can break.
async fn cut_off(prefix: &str) -> (Scene, LaggingWatch, Guard) {
    let scene = Scene::own().install(prefix, charts::TWO).await;
    let proxy = LaggingWatch::start(&scene.control_plane, Identity::Guard).await;
    let guard = Guard::start_through(&scene.control_plane, proxy.kubeconfig(), &["--drift", "Repair"]).await;
    scene.wait_for_confirmed(2).await;
    (scene, proxy, guard)
}

/// Has the guard repair the other object: whatever it meant to do to the first, it has had its chance.
async fn another_repair(scene: &Scene) {
    let extra = scene.config_map("extra");
    scene.edit(&extra, json!({"data": {"color": "mine"}})).await;
    scene.wait_for_value(&extra, "/data/color", json!("blue")).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_change_whose_answer_never_comes_is_made_once() {
    let (scene, proxy, guard) = cut_off("unanswered").await;
    let settings = scene.config_map("settings");
    proxy.cut(Some(SETTINGS));
    scene.edit(&settings, json!({"data": {"level": "mine"}})).await;
    let object = scene.wait_for_value(&settings, "/data/level", json!("info")).await;
    eventually("the answer is cut", SOON, || async { proxy.answers_cut(SETTINGS) == 1 }).await;
    scene.wait_for_reason("InSync").await;
    proxy.cut(None);
    another_repair(&scene).await;
    assert_eq!(scene.wait_for_answers("configmaps", 2).await, [200, 200], "{}", guard.log());
    let now = scene.get(&settings).await;
    assert_eq!(now["metadata"]["resourceVersion"], object["metadata"]["resourceVersion"]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn guard_without_answer_or_watch_reads_before_writing_again() {
    let (scene, proxy, guard) = cut_off("deaf").await;
    let settings = scene.config_map("settings");
    proxy.stall(&[SETTINGS]);
    scene.edit(&settings, json!({"data": {"level": "mine"}})).await;
    eventually("the repair is on its way", SOON, || async { proxy.stalled(SETTINGS) == 1 }).await;
    proxy.hold();
    proxy.cut(Some(SETTINGS));
    proxy.stall(&[]);
    eventually("the answer is cut", SOON, || async { proxy.answers_cut(SETTINGS) == 1 }).await;
    guard.wait_for_metric("kubemoor_repairs_total{kind=\"changed\",outcome=\"present\"} 1").await;
    proxy.cut(None);
    proxy.release();
    another_repair(&scene).await;
    assert_eq!(scene.wait_for_answers("configmaps", 2).await, [200, 200], "{}", guard.log());
    scene.wait_for_reason("InSync").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn unanswered_recreation_is_undone_if_release_dropped_the_object() {
    let (scene, proxy, guard) = cut_off("orphan").await;
    let extra = scene.config_map("extra");
    const REQUEST: &str = "PATCH /configmaps/extra";
    proxy.stall(&[REQUEST]);
    scene.alice.delete(&extra).await.done().unwrap();
    eventually("the re-creation is on its way", SOON, || async { proxy.stalled(REQUEST) == 1 }).await;
    // Helm drops the object, and finds that it is gone already.
    let settings = charts::TWO.split("---").next().unwrap();
    scene.upgrade_to(settings, json!({})).await.unwrap();
    proxy.cut(Some(REQUEST));
    proxy.stall(&[]);
    eventually("the answer is cut", SOON, || async { proxy.answers_cut(REQUEST) == 1 }).await;
    eventually("nobody's object is gone", SOON, || async {
        let answer = scene.alice.get(&extra).await;
        if answer.code == 404 { Ok(()) } else { Err(format!("{answer}\n{}", guard.log())) }
    })
    .await;
    scene.wait_for_reason("InSync").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn broken_watch_resumes_without_listing_again() {
    let (scene, proxy, guard) = cut_off("severed").await;
    let (settings, extra) = (scene.config_map("settings"), scene.config_map("extra"));
    for round in 0..3 {
        proxy.hold();
        scene.edit(&settings, json!({"data": {"level": format!("mine-{round}")}})).await;
        scene.alice.delete(&extra).await.done().unwrap();
        proxy.sever();
        proxy.release();
        scene.wait_for_value(&settings, "/data/level", json!("info")).await;
        scene.wait_for_value(&extra, "/data/color", json!("blue")).await;
    }
    scene.wait_for_reason("InSync").await;
    let good = |code: &u64| [200, 201].contains(code);
    let answers = scene.wait_for_answers("configmaps", 6).await;
    assert_eq!((answers.len(), answers.iter().all(good)), (6, true), "{answers:?}\n{}", guard.log());
    let listings = |event: &&Value| {
        event["user"]["username"] == Identity::Guard.user()
            && event["objectRef"]["resource"] == "configmaps"
            && event["verb"] == "list"
            // Not the one object that tells which authority vouches for users.
            && event["objectRef"]["namespace"] != "kube-system"
            // Not the question whether the server is where it was.
            && event["requestURI"].as_str().unwrap().contains("limit=50")
    };
    let events = scene.control_plane.audit_events(&[Identity::Guard.user(), "configmaps"]);
    let listed = events.iter().filter(listings).count();
    assert_eq!(listed, 1, "a broken watch needs no listing of everything");
}
