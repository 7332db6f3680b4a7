//! The loop while the API server is away, overloaded or forgetful, and while kinds, namespaces and rules go and come.

use serde_json::{Value, json};

use crate::support::{
    ControlPlane, Guard, Identity, LaggingWatch, RELEASE, SOON, Scene, add_widgets, charts, data_review,
    eventually, record_name,
};

/// The guard counts a repair when the answer to its write has come, which may be after others see what it wrote.
async fn wait_for_one_repair(guard: &Guard) {
    guard.wait_for_metric("kubemoor_repairs_total{kind=\"changed\",outcome=\"repaired\"} 1\n").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn drift_before_minute_long_api_server_outage_is_repaired_once() {
    let mut scene = Scene::own().install("away", charts::TWO).await;
    let guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_reason("InSync").await;
    let settings = scene.config_map("settings");
    guard.pause();
    scene.edit(&settings, json!({"data": {"level": "mine"}})).await;
    scene.control_plane.kill_apiserver();
    guard.resume();
    guard.wait_for_log("failed to watch").await;
    assert!(guard.is_ready().await, "the last state serves");
    // It says so after half a minute.
    eventually("it is said that the outage lasts", SOON * 2, || async { !guard.is_ready().await }).await;
    scene.control_plane.start_apiserver();
    eventually("it is as declared", SOON, || async {
        let level = scene.alice.get(&settings).await.done()?["data"]["level"].take();
        if level == "info" { Ok(()) } else { Err(level.to_string()) }
    })
    .await;
    scene.wait_for_reason("InSync").await;
    eventually("the guard is ready again", SOON, || async { guard.is_ready().await }).await;
    wait_for_one_repair(&guard).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn edits_are_judged_while_the_loop_still_lists() {
    let scene = Scene::own().install("listing", charts::WORKLOAD).await;
    let proxy = LaggingWatch::start(&scene.control_plane, Identity::Guard).await;
    const LIST: &str = "GET /deployments";
    proxy.stall(&[LIST]);
    let flags = ["--edits=Deny", "--drift=Repair"];
    let mut guard = Guard::begin_through(&scene.control_plane, proxy.kubeconfig(), &flags).await;
    eventually("the list is asked for", SOON, || async { proxy.stalled(LIST) > 0 }).await;
    eventually("the guard is ready", SOON, || async { guard.is_ready().await }).await;

    let [old, new] = ["info", "debug"].map(|level| json!({"level": level}));
    let edit = data_review((&scene.namespace, RELEASE), "settings", &old, &new);
    eventually("the edit is denied", SOON, || async {
        let answer = guard.judge(edit.clone()).await;
        if answer.code == 200 && !answer.passes() { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
    let report = guard.report().await.unwrap();
    assert!(report.contains("[!]loop: "), "{report}");
    proxy.stall(&[]);
    guard.ready().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn throttled_guard_backs_off_and_repairs_once_afterwards() {
    let scene = Scene::own().install("throttled", charts::TWO).await;
    let proxy = LaggingWatch::start(&scene.control_plane, Identity::Guard).await;
    let guard = Guard::start_through(&scene.control_plane, proxy.kubeconfig(), &["--drift", "Repair"]).await;
    scene.wait_for_reason("InSync").await;
    let settings = scene.config_map("settings");
    proxy.throttle(true);
    scene.edit(&settings, json!({"data": {"level": "mine"}})).await;
    eventually("some requests are turned away", SOON, || async { proxy.turned_away() >= 2 }).await;
    assert_eq!(scene.writes("configmaps"), 0);
    proxy.throttle(false);
    scene.wait_for_value(&settings, "/data/level", json!("info")).await;
    scene.wait_for_reason("InSync").await;
    wait_for_one_repair(&guard).await;
    assert!(proxy.turned_away() < 50, "{} requests at a server that asks for patience", proxy.turned_away());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn changes_missed_by_expired_watch_are_found_by_listing() {
    let scene = Scene::own().install("expired", charts::TWO).await;
    let proxy = LaggingWatch::start(&scene.control_plane, Identity::Guard).await;
    let guard = Guard::start_through(&scene.control_plane, proxy.kubeconfig(), &["--drift", "Repair"]).await;
    scene.wait_for_reason("InSync").await;
    let (settings, extra) = (scene.config_map("settings"), scene.config_map("extra"));
    proxy.hold();
    scene.edit(&settings, json!({"data": {"level": "mine"}})).await;
    scene.alice.delete(&extra).await.done().unwrap();
    proxy.expire();
    proxy.release();
    scene.wait_for_value(&settings, "/data/level", json!("info")).await;
    scene.wait_for_value(&extra, "/data/color", json!("blue")).await;
    wait_for_one_repair(&guard).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn hand_edit_after_upgrade_behind_expired_watch_is_reverted() {
    let scene = Scene::own().install("upgraded", charts::TWO).await;
    let proxy = LaggingWatch::start(&scene.control_plane, Identity::Guard).await;
    let flags = ["--register", "--drift", "Repair"];
    let guard = Guard::start_through(&scene.control_plane, proxy.kubeconfig(), &flags).await;
    scene.wait_for_confirmed(2).await;
    let settings = scene.config_map("settings");
    // By the reviews the guard knows what Helm wrote, and the API server asks a new webhook only after a moment.
    eventually("the API server asks the guard", SOON, || async {
        let edit = json!({"data": {"level": "asked"}});
        scene.alice.merge(&format!("{settings}?dryRun=All"), &edit).await.done()?;
        let metrics = guard.metrics().await;
        let is_warned = |line: &str| {
            line.starts_with("kubemoor_verdicts_total{") && line.contains("\"warn\"") && !line.ends_with(" 0")
        };
        if metrics.lines().any(is_warned) { Ok(()) } else { Err(metrics) }
    })
    .await;
    proxy.hold();
    scene.upgrade_to(charts::TWO.replace("info", "debug").as_str(), json!({})).await.unwrap();
    scene.edit(&settings, json!({"data": {"level": "mine"}})).await;
    proxy.expire();
    proxy.release();
    scene.wait_for_value(&settings, "/data/level", json!("debug")).await;
    // The status may still tell of the revision before.
    let is_in_sync =
        |status: &Value| status["revision"] == 2 && status["conditions"][0]["reason"] == "InSync";
    scene.status("that revision 2 is in sync", is_in_sync).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn objects_deleted_with_their_definition_are_reported_until_it_returns() {
    let control_plane = ControlPlane::start_defined();
    let group = "going.example.com";
    let definition = add_widgets(&control_plane, group).await;
    let widget =
        format!("apiVersion: {group}/v1\nkind: Widget\nmetadata: {{name: main}}\nspec: {{replicas: 2}}\n");
    let scene = Scene::on(control_plane).install("undefined", &widget).await;
    let mut guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_confirmed(1).await;
    let admin = &scene.admin;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    admin.delete(&format!("{definitions}/widgets.{group}")).await.done().unwrap();
    let status = scene.wait_for_reason("Drifted").await;
    assert_eq!(status["drifts"][0]["type"], "missing", "{status}");
    // The next guard, to which nobody serves the kind, says it as well.
    guard.kill();
    guard.start_again().await;
    guard.wait_for_log("the cluster does not serve its kind").await;
    scene.wait_for_reason("Drifted").await;
    assert!(scene.writes("widgets") < 10, "{} attempts", scene.writes("widgets"));

    eventually("the definition is gone", SOON, || async {
        admin.post(definitions, &definition).await.done()
    })
    .await;
    let path = format!("/apis/{group}/v1/namespaces/{}/widgets/main", scene.namespace);
    scene.wait_for_value(&path, "/spec/replicas", json!(2)).await;
    scene.wait_for_reason("InSync").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn nothing_comes_back_into_a_namespace_that_goes() {
    let scene = Scene::own().install("ending", charts::TWO).await;
    let guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_reason("InSync").await;
    let (settings, extra) = (scene.config_map("settings"), scene.config_map("extra"));
    // It holds the namespace up.
    scene.edit(&settings, json!({"metadata": {"finalizers": ["example.com/wait"]}})).await;
    let namespace = format!("/api/v1/namespaces/{}", scene.namespace);
    scene.alice.delete(&namespace).await.done().unwrap();
    let gone = |path: String| {
        let alice = &scene.alice;
        async move {
            let answer = alice.get(&path).await;
            if answer.code == 404 { Ok(()) } else { Err(answer.to_string()) }
        }
    };
    eventually("the other object is gone", SOON, || gone(extra.clone())).await;
    scene.edit(&settings, json!({"data": {"level": "mine"}})).await;
    assert_eq!(scene.get(&settings).await["data"]["level"], "mine");
    scene.edit(&settings, json!({"metadata": {"finalizers": null}})).await;
    eventually("the namespace is gone", SOON, || gone(namespace.clone())).await;
    let metrics = guard.metrics().await;
    assert!(!guard.log().contains("could not be repaired"), "{}", guard.log());
    assert!(!metrics.contains("kind=\"changed\",outcome=\"repaired\""), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn repair_rejected_by_api_server_is_reported_with_its_reason() {
    let scene = Scene::own().install("refused", charts::TWO).await;
    let guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_reason("InSync").await;
    let settings = scene.config_map("settings");
    guard.pause();
    scene.edit(&settings, json!({"data": {"level": "mine"}})).await;
    // A rule that came after the release: nobody answers, so everything is refused.
    let rule = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "rule"},
        "webhooks": [{
            "name": "rule.example.com",
            "clientConfig": {"url": "https://127.0.0.1:1/rule"},
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
                "operations": ["CREATE", "UPDATE"],
            }],
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }],
    });
    let rules = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    scene.alice.post(rules, &rule).await.done().unwrap();
    let probe = json!({"metadata": {"labels": {"probe": "x"}}});
    eventually("the rule is in force", SOON, || async {
        let extra = scene.config_map("extra");
        scene.alice.merge(&format!("{extra}?dryRun=All"), &probe).await.code == 500
    })
    .await;
    guard.resume();
    guard.wait_for_log("could not be repaired: ").await;
    let status =
        scene.status("why", |status| status["drifts"].to_string().contains("rule.example.com")).await;
    assert_eq!(status["conditions"][0]["reason"], "Drifted", "{status}");
    scene.alice.delete(&format!("{rules}/rule")).await.done().unwrap();
    scene.wait_for_value(&settings, "/data/level", json!("info")).await;
    scene.wait_for_reason("InSync").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn repairs_wait_for_reconcile_order_after_record_restore() {
    let scene = Scene::own().install("restored", charts::TWO).await;
    let _guard = scene.start_guard(&["--register", "--drift", "Repair"]).await;
    Guard::extend_webhook_timeouts(&scene.control_plane, "Ignore").await;
    scene.wait_for_confirmed(2).await;
    let record = format!("/api/v1/namespaces/{}/secrets/{}", scene.namespace, record_name(RELEASE, 1));
    let (settings, extra) = (scene.config_map("settings"), scene.config_map("extra"));
    let mut backup = Vec::new();
    for path in [&record, &settings, &extra] {
        let mut object = scene.get(path).await;
        for field in ["uid", "resourceVersion", "creationTimestamp"] {
            object["metadata"].as_object_mut().unwrap().remove(field);
        }
        backup.push(object);
    }
    scene.helm.uninstall(&scene.namespace, RELEASE, json!({})).await.unwrap();
    // The record first, then an object as it was at another time.
    backup[1]["data"]["level"] = json!("older");
    for (path, object) in [&record, &settings, &extra].into_iter().zip(&backup) {
        let collection = path.rsplit_once('/').unwrap().0;
        scene.alice.post(collection, object).await.done().unwrap();
    }
    // The guard has forgotten with the release that it saw the object as it is declared. An order says nothing of an
    // object that the guard has not seen yet.
    scene
        .status("the hold", |status| {
            let drifts = status["drifts"].to_string();
            drifts.contains("older") && drifts.contains("may come from a backup")
        })
        .await;
    assert_eq!(scene.get(&settings).await["data"]["level"], "older");
    scene.order("reconcile");
    scene.wait_for_value(&settings, "/data/level", json!("info")).await;
}
