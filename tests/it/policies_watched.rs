//! Policies as they reach the guard: from DriftPolicies, which may not be defined yet, and from files. They hold for a
//! whole cluster, hence a control plane of its own.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{
    Caller, ControlPlane, DRIFT_POLICIES, Guard, Identity, SOON, Scene, charts, data_review, drift_policy,
    eventually, folder, run, token_file,
};

/// The condition of a policy, once it says `reason`.
async fn accepted(admin: &Caller, name: &str, reason: &str) -> Value {
    eventually(&format!("policy {name} says {reason}"), SOON, || async {
        let policy = admin.get(&format!("{DRIFT_POLICIES}/{name}")).await.done()?;
        let condition = policy["status"]["conditions"][0].clone();
        let is_current = condition["observedGeneration"] == policy["metadata"]["generation"]
            && policy["status"]["observedGeneration"] == policy["metadata"]["generation"];
        if condition["reason"] == reason && is_current {
            Ok(condition)
        } else {
            Err(policy["status"].to_string())
        }
    })
    .await
}

/// Waits until a dry run of an edit is refused, or passes.
async fn wait_until_judged(shop: &Scene, refuses: bool) {
    eventually(&format!("an edit is refused: {refuses}"), SOON, || async {
        shop.try_data("settings", json!({"image": "nobody's"})).await.refusal().is_ok() == refuses
    })
    .await;
}

/// How often the guard has written statuses of policies.
fn writes(control_plane: &ControlPlane) -> usize {
    let by_guard = |event: &Value| {
        event["user"]["username"] == Identity::Guard.user()
            && event["objectRef"]["resource"] == "driftpolicies"
            && event["verb"] == "patch"
            && event["responseStatus"]["code"] == 200
    };
    control_plane
        .audit_events(&[Identity::Guard.user(), "driftpolicies"])
        .iter()
        .filter(|event| by_guard(event))
        .count()
}

/// How often the guard has asked for policies where none are defined.
fn asked_in_vain(control_plane: &ControlPlane) -> usize {
    let by_guard = |event: &Value| {
        event["user"]["username"] == Identity::Guard.user()
            && event["objectRef"]["resource"] == "driftpolicies"
            && event["responseStatus"]["code"] == 404
    };
    control_plane
        .audit_events(&[Identity::Guard.user(), "driftpolicies"])
        .iter()
        .filter(|event| by_guard(event))
        .count()
}

/// What does not compile changes nothing, and says where it is wrong.
async fn assert_invalid_policy_changes_nothing(shop: &Scene) {
    let admin = &shop.admin;
    let broken =
        json!({"spec": {"edits": "Allow", "ignore": [{"target": {"kind": "("}, "paths": ["/data"]}]}});
    admin.merge(&format!("{DRIFT_POLICIES}/strict"), &broken).await.done().unwrap();
    let condition = accepted(admin, "strict", "InvalidRegex").await;
    assert_eq!(condition["status"], "False");
    let message = condition["message"].as_str().unwrap();
    assert!(message.contains("spec.ignore[0].target.kind") && message.contains("Generation 1"), "{message}");
    wait_until_judged(shop, true).await;
}

/// Makes a policy of equal priority with `strict` that disagrees with it in namespaces with a label.
async fn assert_conflict_follows_the_labels(shop: &Scene) {
    let admin = &shop.admin;
    let rival = json!({
        "priority": 5, "edits": "Record", "drift": "Ignore",
        "releases": {"namespaceSelector": {"matchLabels": {"tier": "prod"}}},
    });
    admin.post(DRIFT_POLICIES, &drift_policy("a-rival", rival)).await.done().unwrap();
    accepted(admin, "a-rival", "MatchesNothing").await;
    let namespace = format!("/api/v1/namespaces/{}", shop.namespace);
    admin.merge(&namespace, &json!({"metadata": {"labels": {"tier": "prod"}}})).await.done().unwrap();
    let condition = accepted(admin, "a-rival", "Conflict").await;
    assert!(condition["message"].as_str().unwrap().contains("spec.edits of policy a-rival"), "{condition}");
    wait_until_judged(shop, false).await;
    admin.merge(&namespace, &json!({"metadata": {"labels": {"tier": null}}})).await.done().unwrap();
    accepted(admin, "a-rival", "MatchesNothing").await;
    wait_until_judged(shop, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_is_in_force_from_acceptance_until_deletion() {
    let mut shop = Scene::on(ControlPlane::start()).install("policed", charts::IMAGE_AND_COLOR).await;
    let guard = shop.start_guard(&["--register", "--edits", "Warn"]).await;
    // For the arbiter, which a refusal may need.
    shop.control_plane.apply_deploy(&["enforce/arbiter.yaml"]).await;
    let admin = &shop.admin;
    wait_until_judged(&shop, false).await;
    assert!(asked_in_vain(&shop.control_plane) <= 2, "what is not defined is asked for again and again");

    // The definitions come while the guard runs.
    shop.control_plane.define_policies();
    let strict = json!({"priority": 5, "releases": {"names": ["sh*"]}, "edits": "Deny"});
    let strict = drift_policy("strict", strict);
    eventually("the policy is created", SOON, || async { admin.post(DRIFT_POLICIES, &strict).await.done() })
        .await;
    wait_until_judged(&shop, true).await;
    let condition = accepted(admin, "strict", "DriftStays").await;
    assert_eq!(condition["status"], "True");
    assert!(condition["message"].as_str().unwrap().contains("drift: Repair"), "{condition}");

    assert_invalid_policy_changes_nothing(&shop).await;

    // Also over a restart of the watch.
    shop.control_plane.kill_apiserver();
    shop.control_plane.start_apiserver();
    let others = json!({"releases": {"names": ["nobody"]}});
    eventually("another policy is created", SOON, || async {
        admin.post(DRIFT_POLICIES, &drift_policy("others", others.clone())).await.done()
    })
    .await;
    let condition = accepted(admin, "others", "MatchesNothing").await;
    assert_eq!(condition["status"], "True");
    wait_until_judged(&shop, true).await;

    assert_conflict_follows_the_labels(&shop).await;

    // Whatever happens elsewhere, what is said already is not written again.
    let before = writes(&shop.control_plane);
    shop.upgrade(json!({"values": {"image": "b"}})).await.unwrap();
    admin
        .post(DRIFT_POLICIES, &drift_policy("last", json!({"releases": {"names": ["none"]}})))
        .await
        .done()
        .unwrap();
    accepted(admin, "last", "MatchesNothing").await;
    eventually("the audit log tells of the write", SOON, || async { writes(&shop.control_plane) > before })
        .await;
    assert_eq!(writes(&shop.control_plane), before + 1);

    // Deleted, it ends.
    admin.delete(&format!("{DRIFT_POLICIES}/strict")).await.done().unwrap();
    wait_until_judged(&shop, false).await;
    assert!(guard.is_ready().await);
}

/// Has a guard without a cluster judge an edit of the release's data.
async fn judged(guard: &Guard) -> bool {
    let [old, new] = ["a", "b"].map(|image| json!({"image": image}));
    guard.judge(data_review(("shop", "web"), "settings", &old, &new)).await.passes()
}

fn written(place: &Path, name: &str, edits: &str) {
    let policy = drift_policy(name, json!({"edits": edits, "releases": {"namespaces": ["shop"]}}));
    fs::write(place.join(format!("{name}.yaml")), policy.to_string()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_files_are_followed_without_a_cluster() {
    let (store, policies) = (folder("store"), folder("policies"));
    fs::create_dir(store.join("shop")).unwrap();
    fs::write(store.join("shop").join("web.yaml"), charts::MANIFEST).unwrap();
    written(&policies, "strict", "Deny");
    let flags = [format!("--store=dir:{}", store.display()), format!("--policies={}", policies.display())];
    let mut guard = Guard::launch(&flags.each_ref().map(String::as_str));
    guard.ready().await;
    assert!(!judged(&guard).await);

    written(&policies, "strict", "Record");
    eventually("the changed file is in force", SOON, || judged(&guard)).await;
    written(&policies, "strict", "Deny");
    eventually("the file as it was is in force", SOON, || async { !judged(&guard).await }).await;

    // What cannot be read, or is gone, is said and changes nothing.
    written(&policies, "strict", "Forbid");
    guard.wait_for_log("strict.yaml: policy strict").await;
    assert!(!judged(&guard).await);
    fs::remove_file(policies.join("strict.yaml")).unwrap();
    guard.wait_for_log("policy file was deleted").await;
    assert!(!judged(&guard).await);
    assert!(guard.terminate().success());

    // Without the directory there is nothing to begin with.
    let token = format!("--caller-token-file={}", token_file(&store).display());
    let own = ["--policies=/nowhere", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"];
    let nowhere = run(&[&["serve", &flags[0], &token], &own[..]].concat(), "");
    nowhere.assert_failed(&["/nowhere"]);
}
