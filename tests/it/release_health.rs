//! What is said of a release as a whole, by status, `get releases`, `diff` and `explain`: never contradictory, never
//! stale without saying so.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::support::{Identity, RELEASE, Ran, SOON, Scene, charts, eventually, moor};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kubemoor-system/leases/kubemoor";

fn run(scene: &Scene, arguments: &[&str]) -> Ran {
    moor(&scene.control_plane, Identity::Alice, &[arguments, &["-n", &scene.namespace]].concat())
}

/// The row of `get releases`.
fn row(scene: &Scene) -> Value {
    run(scene, &["get", "releases", "-o", "json"]).json()["items"][0].clone()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn statuses_follow_the_emergency_switch() {
    let scene = Scene::own().install("switched", charts::TWO).await;
    let _guard = scene.start_guard(&["--edits", "Deny", "--drift", "Repair"]).await;
    scene.wait_for_reason("InSync").await;
    for (switch, edits, drift) in [("off", "Allow", "Report"), ("on", "Deny", "Repair")] {
        let ran = moor(&scene.control_plane, Identity::Admin, &["emergency", switch]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let status = scene.status(switch, |it| it["edits"] == edits && it["drift"] == drift).await;
        let message = status["conditions"][0]["message"].as_str().unwrap();
        assert_eq!(message.contains("the emergency is open"), switch == "off", "{message}");
        if switch == "off" {
            let ordered = run(&scene, &["reconcile", RELEASE]);
            assert!(ordered.code == 1 && ordered.out.contains("the emergency is open"), "{ordered:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn status_of_a_stopped_guard_is_stale() {
    let scene = Scene::own().install("stopped", charts::TWO).await;
    let flags = ["--service=kubemoor-system/kubemoor", "--drift=Repair"];
    let mut guard = scene.start_guard(&flags).await;
    scene.wait_for_reason("InSync").await;
    assert_eq!((&row(&scene)["ready"], &row(&scene)["reason"]), (&json!("True"), &json!("InSync")));
    guard.kill();
    // As if it had been killed two minutes ago.
    let renewed = Timestamp::now() - SignedDuration::from_mins(2);
    let renewed = renewed.strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string();
    scene.alice.merge(LEASE, &json!({"spec": {"renewTime": renewed}})).await.done().unwrap();
    let shown = row(&scene);
    assert_eq!((&shown["ready"], &shown["reason"]), (&json!("Unknown"), &json!("Stale")), "{shown}");
    let message = shown["message"].as_str().unwrap();
    assert!(
        message.starts_with("stale since ") && message.contains("InSync: all 2 objects match"),
        "{message}"
    );
    for arguments in [&["diff", RELEASE][..], &["explain", "configmap/settings"]] {
        let ran = run(&scene, arguments);
        assert!(ran.code == 0 && ran.out.contains("stale since "), "{ran:?}");
    }
    let ordered = run(&scene, &["reconcile", RELEASE]);
    assert!(ordered.code == 1 && ordered.out.contains("waits for a running guard"), "{ordered:?}");
    // Each command that reads says so first.
    let first = |ran: Ran| ran.error.lines().next().unwrap_or_default().to_owned();
    let said = first(run(&scene, &["get", "releases"]));
    assert!(said.contains("no guard is running") && said.contains("since 20"), "{said}");

    scene.alice.delete(LEASE).await.done().unwrap();
    let said = first(run(&scene, &["get", "allowances"]));
    assert!(said.contains("the Lease does not exist"), "{said}");
    let shown = row(&scene);
    assert!(shown["message"].as_str().unwrap().contains("no guard runs"), "{shown}");
    guard.start_again().await;
    eventually("it is current again", SOON, || async {
        let shown = row(&scene);
        if shown["reason"] == "InSync" { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn in_sync_release_counts_allowed_deletions_and_changes() {
    let scene = Scene::own().install("allowed", charts::TWO).await;
    let guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_confirmed(2).await;
    for allow in [
        ["allow", "configmap/settings", "--path", "/data/level"],
        ["allow", "configmap/extra", "--path", "delete"],
    ] {
        let allowed = run(&scene, &[&allow[..], &["--for", "1h"]].concat());
        assert_eq!(allowed.code, 0, "{allowed:?}");
    }
    eventually("the change stays", SOON, || async {
        scene.edit(&scene.config_map("settings"), json!({"data": {"level": "mine"}})).await;
        let status = scene.status("a status", Value::is_object).await;
        if status["counts"]["allowed"] == 1 { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    scene.alice.delete(&scene.config_map("extra")).await.done().unwrap();
    let status = scene.status("both", |status| status["counts"]["allowed"] == 2).await;
    assert_eq!(
        (&status["drifted"], &status["conditions"][0]["reason"]),
        (&json!(0), &json!("InSync")),
        "{status}"
    );
    let message = status["conditions"][0]["message"].as_str().unwrap();
    assert!(message.starts_with("0 of 2 objects match revision 1; 2 are allowed to differ"), "{message}");
    let diff = run(&scene, &["diff", RELEASE]);
    assert!(diff.code == 0 && diff.out.contains("2 objects, no drift, 2 allowed to differ"), "{diff:?}");
    assert_eq!(row(&scene)["counts"]["allowed"], 2);
    assert!(!guard.log().contains("has been re-created"), "{}", guard.log());
    // When the permission ends, both have drifted, and are repaired.
    for object in ["configmap/settings", "configmap/extra"] {
        assert_eq!(run(&scene, &["revoke", object]).code, 0);
    }
    let status = scene.status("that all matches", |status| status["counts"]["matching"] == 2).await;
    assert_eq!(status["counts"]["allowed"], Value::Null, "{status}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn status_diff_and_explain_report_lost_ownership_as_same_drift() {
    let scene = Scene::own().install("owners", charts::TWO).await;
    let _guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_confirmed(2).await;
    let settings = scene.config_map("settings");
    // Suspended, so that it stays.
    scene.order("suspend");
    scene.wait_for_reason("Suspended").await;
    for level in ["mine", "info"] {
        scene.edit(&settings, json!({"data": {"level": level}})).await;
    }
    let status = scene.status("the lost ownership", |status| status["counts"]["ownership"] == 1).await;
    assert_eq!(
        (&status["drifted"], &status["drifts"][0]["type"]),
        (&json!(1), &json!("ownership")),
        "{status}"
    );
    let diff = run(&scene, &["diff", RELEASE]);
    assert!(diff.code == 1 && diff.out.contains("1 of 2 objects drifted"), "{diff:?}");
    assert!(diff.out.contains("field manager kubectl-edit owns /data/level"), "{diff:?}");
    let explained = run(&scene, &["explain", "configmap/settings"]);
    assert!(explained.out.contains("another field manager owns some of its fields"), "{explained:?}");
    scene.order("resume");
    scene.wait_for_reason("InSync").await;
    assert_eq!(run(&scene, &["diff", RELEASE]).code, 0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn audit_shows_recorded_edits_that_deny_would_refuse() {
    let scene = Scene::own().install("recorded", charts::TWO).await;
    let guard = scene.start_guard(&["--register", "--edits", "Record"]).await;
    eventually("the edit is told of", SOON, || async {
        scene
            .edit(&scene.config_map("settings"), json!({"data": {"level": Timestamp::now().to_string()}}))
            .await;
        let told = json!(guard.rows(&["-A", "--would-deny", "--release", RELEASE])).to_string();
        if told.contains("/data/level") { Ok(()) } else { Err(told) }
    })
    .await;
}
