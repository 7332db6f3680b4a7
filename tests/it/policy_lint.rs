//! `kubemoor policy lint` against the releases of a cluster.

use serde_json::{Value, json};

use crate::support::{Identity, Scene, charts, moor};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn lint_finds_targets_that_select_no_declared_object() {
    let scene = Scene::policed().install("aimless", charts::DEPLOYMENT).await;
    scene.wait_until_guarded(&scene.deployment("web")).await;
    scene.wait_for_reason("InSync").await;
    let ignore = |target: Value| json!({"target": target, "paths": ["/spec/paused"]});
    let targets =
        [json!({"name": "we."}), json!({"name": "wbe-.*"}), json!({"name": "web", "group": "batch"})];
    scene.policy("aimless", json!({"ignore": targets.map(ignore)})).await;
    let ran = moor(&scene.control_plane, Identity::Admin, &["policy", "lint", "-o", "json"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let found = ran.json()["items"].as_array().unwrap().clone();
    let mut found: Vec<_> = found.iter().filter(|row| row["check"] == "MatchesNothing").collect();
    found.retain(|row| row["policy"].as_str().unwrap().contains("aimless"));
    let fields: Vec<_> = found.iter().map(|row| row["field"].as_str().unwrap()).collect();
    assert_eq!(fields, ["spec.ignore[1].target.name", "spec.ignore[2].target.group"], "{ran:?}");
    let message = found[0]["message"].as_str().unwrap();
    assert!(
        message.starts_with("the name matches no object that releases of this policy declare"),
        "{message}"
    );
}
