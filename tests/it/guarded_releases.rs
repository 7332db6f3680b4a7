//! GuardedReleases on a real API server: they come and go with releases, and hand on what people set.

use serde_json::{Value, json};

use crate::support::{
    ControlPlane, Identity, RELEASE, Ran, SOON, Scene, charts, eventually, folder, moor, wait_until_recreated,
};

/// Waits until the scene's release has a GuardedRelease, or none.
async fn wait_until_present(scene: &Scene, there: bool) {
    let path = scene.guarded_release(RELEASE);
    eventually(&format!("{path}: {there}"), SOON, || async {
        let answer = scene.admin.get(&path).await;
        if (answer.code == 200) == there { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn guarded_releases_follow_helm_releases_across_guard_restarts() {
    let early = Scene::on(ControlPlane::start()).install("early", charts::SETTINGS).await;
    let mut guard = early.start_guard(&[]).await;
    guard.wait_for_log("the GuardedRelease CRD is missing").await;
    let listed = moor(&early.control_plane, Identity::Admin, &["get", "releases", "-A", "-o", "json"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    assert_eq!(listed.json()["items"][0]["guarded"], false, "{listed:?}");

    early.control_plane.define_policies();
    wait_until_present(&early, true).await;
    let kept = early.install_beside("kept").await;
    wait_until_present(&kept, true).await;
    // Deleted by hand it comes back.
    let path = kept.guarded_release(RELEASE);
    let uid = kept.get(&path).await["metadata"]["uid"].take();
    kept.admin.delete(&path).await.done().unwrap();
    wait_until_recreated(&kept.admin, &path, &uid).await;

    guard.kill();
    early.helm.uninstall(&early.namespace, RELEASE, json!({})).await.unwrap();
    let late = early.install_beside("late").await;
    guard.start_again().await;
    wait_until_present(&early, false).await;
    wait_until_present(&late, true).await;
    late.helm.uninstall(&late.namespace, RELEASE, json!({})).await.unwrap();
    wait_until_present(&late, false).await;
    wait_until_present(&kept, true).await;
    let all = moor(&early.control_plane, Identity::Admin, &["reconcile", "-A", "-o", "json"]);
    assert_only_reconciled(&all);
}

/// The answer is about one release.
fn assert_only_reconciled(all: &Ran) {
    let items = all.json()["items"].take();
    assert_eq!((all.code, items.as_array().unwrap().len()), (0, 1), "{all:?}");
    assert_eq!((&items[0]["name"], &items[0]["action"]), (&json!(RELEASE), &json!("Reconcile")), "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn suspend_resume_and_reconcile_work_and_report_missing_release() {
    let scene = Scene::shared().install("steered", charts::SETTINGS).await;
    wait_until_present(&scene, true).await;
    let guarded = async || scene.get(&scene.guarded_release(RELEASE)).await;
    let namespace = &scene.namespace;
    let moor = |arguments: &[&str]| {
        moor(&scene.control_plane, Identity::Admin, &[arguments, &["-n", namespace]].concat())
    };
    let suspended = moor(&["suspend", RELEASE, "-o", "json"]).json();
    assert_eq!(suspended, json!({"namespace": namespace, "name": RELEASE, "action": "Suspend"}));
    assert_eq!(guarded().await["spec"]["suspend"], true);
    assert_eq!(moor(&["resume", RELEASE]).code, 0);
    assert_eq!(guarded().await["spec"]["suspend"], Value::Null);
    assert_eq!(moor(&["reconcile", RELEASE]).code, 0);
    assert!(guarded().await["spec"]["reconcileAt"].is_string());
    let waited = moor(&["reconcile", RELEASE, "--wait", "--timeout", "1m"]);
    assert!(waited.code == 0 && waited.out.contains("is in sync"), "{waited:?}");
    assert_only_reconciled(&moor(&["reconcile", "--all", "-o", "json"]));
    moor(&["suspend", "nothing"])
        .assert_failed(&["there is no GuardedRelease nothing", "kubemoor get releases"]);
    assert_eq!(scene.moor(&["get", "releases", "-o", "yaml"]).code, 0);
    let table = moor(&["get", "releases"]);
    assert!(table.out.lines().nth(1).unwrap().contains(RELEASE), "{table:?}");
    // What kubectl remembers of the API is older than the definition.
    let cache = format!("--cache-dir={}", folder("kubectl-cache").display());
    let columns = String::from_utf8(scene.kubectl(&["get", "gr", &cache]).stdout).unwrap();
    let head: Vec<_> = columns.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(head, ["NAME", "READY", "REASON", "REVISION", "DRIFTED", "EDITS", "DRIFT", "AGE"]);

    // What changes nothing that the guard knows has it write nothing.
    let before = scene.writes("guardedreleases");
    for number in 0..10 {
        let touch = json!({"metadata": {"annotations": {"touched": number.to_string()}}});
        scene.admin.merge(&scene.guarded_release(RELEASE), &touch).await.done().unwrap();
    }
    assert_eq!(moor(&["suspend", RELEASE]).code, 0);
    scene.wait_for_reason("Suspended").await;
    let writes = scene.wait_for_answers("guardedreleases", before + 1).await.len() - before;
    assert!(writes < 10, "{writes} writes for one change");
}
