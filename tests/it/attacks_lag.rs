//! What an editor can get past a replica whose watches lag behind those of the others.

use serde_json::{Value, json};

use crate::support::{Guard, Identity, LaggingWatch, Reply, Review, SOON, Scene, charts, eventually};

const FLAGS: [&str; 2] = ["--service=kubemoor-system/kubemoor", "--edits=Deny"];

/// The answer of a replica to an edit of the ConfigMap from one level to another, by a person.
async fn judge(scene: &Scene, guard: &Guard, from: &str, to: &str) -> Reply {
    let mut object = scene.get(&scene.config_map("settings")).await;
    let mut with_level = |level: &str| {
        object["data"]["level"] = json!(level);
        object.to_string()
    };
    let (before, after) = (with_level(from), with_level(to));
    guard.judge_behind(Review::of_settings(&scene.namespace, &before, &after).text()).await
}

/// Has Helm declare another level, which the replica that does not lag learns.
async fn upgrade(scene: &Scene, prompt: &Guard, from: &str, to: &str) {
    scene.upgrade(json!({"values": {"level": to}})).await.unwrap();
    eventually("the prompt replica judges by the new record", SOON, || async {
        let answer = judge(scene, prompt, to, from).await;
        if answer.passes() { Err(format!("{answer:?}")) } else { Ok(()) }
    })
    .await;
}

#[track_caller]
fn assert_refused_by(answer: &Reply, revision: &str) {
    assert!(answer.refusal().contains(revision), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_whose_watches_lag_allows_only_what_was_allowed_before() {
    let scene = Scene::own().install("lag", charts::SETTINGS).await;
    let prompt = scene.start_guard(&FLAGS).await;
    let proxy = LaggingWatch::start(&scene.control_plane, Identity::Guard).await;
    let lagging = Guard::start_through(&scene.control_plane, proxy.kubeconfig(), &FLAGS).await;
    for guard in [&prompt, &lagging] {
        assert_refused_by(&judge(&scene, guard, "info", "mine").await, "(revision 1)");
        assert_refused_by(&judge(&scene, guard, "info", "debug").await, "(revision 1)");
        assert!(judge(&scene, guard, "mine", "info").await.passes());
    }

    // What the revision before allowed passes, and nothing that neither revision allows.
    proxy.hold();
    upgrade(&scene, &prompt, "info", "debug").await;
    assert!(judge(&scene, &lagging, "debug", "info").await.passes(), "its watches do not lag");
    assert_refused_by(&judge(&scene, &lagging, "debug", "mine").await, "(revision 2)");
    // That refusal has shown it the new record.
    assert_refused_by(&judge(&scene, &lagging, "debug", "info").await, "(revision 2)");

    // What only the new revision allows is not refused, and shows it the record as well.
    upgrade(&scene, &prompt, "debug", "trace").await;
    assert!(judge(&scene, &lagging, "trace", "debug").await.passes(), "its watches do not lag");
    assert!(judge(&scene, &lagging, "mine", "trace").await.passes());
    for level in ["info", "debug", "mine"] {
        assert_refused_by(&judge(&scene, &lagging, "trace", level).await, "(revision 3)");
    }

    // And its watches do, once they catch up.
    upgrade(&scene, &prompt, "trace", "warn").await;
    assert!(judge(&scene, &lagging, "warn", "trace").await.passes(), "its watches do not lag");
    proxy.release();
    eventually("the watches have caught up", SOON, || async {
        let answer = judge(&scene, &lagging, "warn", "trace").await;
        if answer.passes() { Err(format!("{answer:?}")) } else { Ok(()) }
    })
    .await;
    let live: Value = scene.get(&scene.config_map("settings")).await;
    assert_eq!(live["data"]["level"], "warn");
}
