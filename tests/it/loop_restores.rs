//! The loop of a guard that is restarted because etcd went back to an older state.

use serde_json::json;

use crate::support::{RELEASE, Scene, charts};

/// The second revision: another value, one object less, one more.
const NEXT: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {level: debug}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: late}
data: {color: red}
";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn an_older_state_is_repaired_by_what_it_declares() {
    let mut scene = Scene::own().install("older", charts::TWO).await;
    let guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_confirmed(2).await;
    let snapshot = scene.control_plane.snapshot_etcd();
    scene.upgrade_to(NEXT, json!({})).await.unwrap();
    scene.wait_until_seen(2).await;
    let other = "\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n";
    scene.helm.install(&scene.namespace, "newcomer", &other.into(), json!({})).await.unwrap();
    scene
        .status_of("newcomer", "that it is in sync", |status| status["conditions"][0]["reason"] == "InSync")
        .await;

    drop(guard);
    scene.control_plane.restore_etcd(&snapshot);
    let guard = scene.start_guard(&["--drift", "Repair"]).await;
    // What is edited before the guard looks again, it has not seen as it is declared. The older status says that it
    // has; a new one is written when it looked.
    scene.admin.delete(&scene.guarded_release(RELEASE)).await.done().unwrap();
    scene.wait_until_seen(1).await;
    let (settings, extra) = (scene.config_map("settings"), scene.config_map("extra"));
    // What the older state has and the newer one had not, in objects and in values.
    scene.control_plane.delete_unhindered(&extra).await;
    scene.wait_for_value(&extra, "/data/color", json!("blue")).await;
    scene.edit(&settings, json!({"data": {"level": "debug"}})).await;
    scene.wait_for_value(&settings, "/data/level", json!("info")).await;
    let status = scene.wait_for_reason("InSync").await;
    assert_eq!((&status["revision"], &status["declared"]), (&json!(1), &json!(2)), "{status}");
    // What the older state never had does not come back.
    let metrics = guard.metrics().await;
    assert!(metrics.contains("kubemoor_releases{state=\"deployed\"} 1\n"), "{metrics}");
    let gone = [scene.config_map("late"), scene.config_map("other"), scene.guarded_release("newcomer")];
    for path in gone {
        assert_eq!(scene.alice.get(&path).await.code, 404, "{path}\n{}", guard.log());
    }
    // And the next revision, which has a number that there was before, is another one.
    scene.upgrade_to(NEXT.replace("debug", "trace").as_str(), json!({})).await.unwrap();
    scene.wait_until_seen(2).await;
    scene.edit(&settings, json!({"data": {"level": "debug"}})).await;
    scene.wait_for_value(&settings, "/data/level", json!("trace")).await;
}
