//! What people, policies and earlier guards tell the loop.

use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};

use crate::support::{
    Chart, ControlPlane, Identity, RELEASE, SOON, Scene, charts, eventually, moor, opened, record_name,
    sealed,
};

const NEVER_SEEN: &str = "the guard has never seen it with its release's annotations";

#[tokio::test(flavor = "multi_thread")]
async fn object_deleted_during_downtime_is_recreated_if_manifest_is_unchanged() {
    let scene = Scene::own().install("memory", charts::TWO).await;
    let mut guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_confirmed(2).await;
    guard.kill();
    let (settings, extra) = (scene.config_map("settings"), scene.config_map("extra"));
    scene.alice.delete(&settings).await.done().unwrap();
    guard.start_again().await;
    scene.wait_for_value(&settings, "/data/level", json!("info")).await;
    assert!(!guard.log().contains(NEVER_SEEN), "{}", guard.log());
    scene.wait_for_reason("InSync").await;
    scene.wait_for_confirmed(2).await;

    // Somebody writes into the record what he wants to be created.
    guard.kill();
    let name = record_name(RELEASE, 1);
    let path = format!("/api/v1/namespaces/{}/secrets/{name}", scene.namespace);
    let mut record: Secret = serde_json::from_value(scene.get(&path).await).unwrap();
    let mut content = opened(&record);
    let manifest = content["manifest"].as_str().unwrap().replace("color: blue", "color: black");
    assert_ne!(content["manifest"], manifest);
    content["manifest"] = Value::from(manifest);
    record.data.as_mut().unwrap().get_mut("release").unwrap().0 = sealed(&content);
    scene.alice.put(&path, &serde_json::to_value(&record).unwrap()).await.done().unwrap();
    scene.alice.delete(&extra).await.done().unwrap();
    guard.start_again().await;
    guard.wait_for_log("the manifest of its release's revision has changed").await;
    scene.wait_for_reason("Drifted").await;
    assert_eq!(scene.alice.get(&extra).await.code, 404);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn release_installed_anew_while_no_guard_ran_is_seen_anew() {
    let scene = Scene::own().install("anew", charts::TWO).await;
    let mut guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_confirmed(2).await;
    guard.kill();
    scene.helm.uninstall(&scene.namespace, RELEASE, json!({})).await.unwrap();
    let anew = charts::TWO.replace("level: info", "level: debug");
    let chart = Chart::new(RELEASE).template("all.yaml", &anew);
    scene.helm.install(&scene.namespace, RELEASE, &chart, json!({})).await.unwrap();
    let (settings, extra) = (scene.config_map("settings"), scene.config_map("extra"));
    scene.edit(&settings, json!({"data": {"level": "mine"}})).await;
    scene.alice.delete(&extra).await.done().unwrap();
    guard.start_again().await;
    // What was known of the one before does not count for this one, of which nobody has seen what it declares.
    guard.wait_for_log(NEVER_SEEN).await;
    scene.wait_for_reason("Unconfirmed").await;
    assert!(!guard.log().contains("the manifest of its release's revision has changed"), "{}", guard.log());
    assert_eq!(scene.alice.get(&extra).await.code, 404);
    assert_eq!(scene.get(&settings).await["data"]["level"], "mine");
    assert_eq!(scene.writes("configmaps"), 0);
    // Once it has been as it is declared, it is kept so.
    scene.edit(&settings, json!({"data": {"level": "debug"}})).await;
    scene.status("what was seen", |status| status["confirmed"] == 1).await;
    scene.edit(&settings, json!({"data": {"level": "mine"}})).await;
    scene.wait_for_value(&settings, "/data/level", json!("debug")).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn object_deleted_during_downtime_is_only_reported_without_kubemoor_crds() {
    let scene = Scene::on(ControlPlane::start()).install("forgotten", charts::TWO).await;
    let mut guard = scene.start_guard(&["--drift", "Repair"]).await;
    guard.kill();
    let settings = scene.config_map("settings");
    scene.alice.delete(&settings).await.done().unwrap();
    guard.start_again().await;
    guard.wait_for_log(NEVER_SEEN).await;
    assert_eq!(scene.alice.get(&settings).await.code, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn reported_drift_is_repaired_once_after_reconcile_order() {
    let scene = Scene::own().install("reported", charts::TWO).await;
    scene.control_plane.apply_deploy(&["enforce/arbiter.yaml", "enforce/repair.yaml"]).await;
    let mut guard = scene.start_guard(&["--drift", "Report"]).await;
    let (settings, extra) = (scene.config_map("settings"), scene.config_map("extra"));
    scene.wait_for_confirmed(2).await;
    scene.edit(&settings, json!({"data": {"level": "mine"}})).await;
    scene.alice.delete(&extra).await.done().unwrap();
    let status = scene.status("two drifts", |status| status["drifted"] == 2).await;
    assert!(status["conditions"][0]["message"].as_str().unwrap().contains("kubemoor reconcile"), "{status}");
    // What is missing is not forgotten by the next guard, nor by the one after it.
    for _ in 0..2 {
        guard.kill();
        guard.start_again().await;
        scene.status("two drifts", |status| status["drifted"] == 2).await;
        scene.wait_for_confirmed(2).await;
    }
    assert_eq!(scene.writes("configmaps"), 0);

    scene.order("reconcile");
    scene.wait_for_value(&settings, "/data/level", json!("info")).await;
    scene.wait_for_value(&extra, "/data/color", json!("blue")).await;
    scene.wait_for_reason("InSync").await;
    // Once means once.
    let writes = scene.wait_for_answers("configmaps", 2).await.len();
    scene.edit(&settings, json!({"data": {"level": "again"}})).await;
    scene.wait_for_reason("Drifted").await;
    assert_eq!(scene.writes("configmaps"), writes);
    assert_eq!(scene.get(&settings).await["data"]["level"], "again");
}

#[tokio::test(flavor = "multi_thread")]
async fn suspended_release_is_not_repaired_until_resumed_across_restarts() {
    let scene = Scene::own().install("suspended", charts::TWO).await;
    let mut guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_reason("InSync").await;
    scene.order("suspend");
    scene.wait_for_reason("Suspended").await;
    let settings = scene.config_map("settings");
    scene.edit(&settings, json!({"data": {"level": "mine"}})).await;
    let drifts = |status: &Value| status["drifted"] == 1 && status["conditions"][0]["reason"] == "Suspended";
    scene.status("a drift that stays", drifts).await;
    assert_eq!(scene.writes("configmaps"), 0);
    guard.kill();
    guard.start_again().await;
    scene.edit(&settings, json!({"data": {"level": "mine too"}})).await;
    scene
        .status("the other drift", |status| {
            drifts(status) && status["drifts"].to_string().contains("mine too")
        })
        .await;
    assert_eq!(scene.get(&settings).await["data"]["level"], "mine too");
    assert_eq!(scene.writes("configmaps"), 0, "the next guard was faster than its orders");
    // A person may still ask, once.
    scene.order("reconcile");
    scene.wait_for_value(&settings, "/data/level", json!("info")).await;
    scene.edit(&settings, json!({"data": {"level": "mine again"}})).await;
    scene
        .status("the drift after it", |status| {
            drifts(status) && status["drifts"].to_string().contains("mine again")
        })
        .await;
    assert_eq!(scene.wait_for_answers("configmaps", 1).await, [200]);
    scene.order("resume");
    scene.wait_for_value(&settings, "/data/level", json!("info")).await;
    scene.wait_for_reason("InSync").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn release_is_repaired_when_its_suspension_ends() {
    let scene = Scene::own().install("suspended-for", charts::TWO).await;
    let _guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_reason("InSync").await;
    let suspend = |length: &str| {
        let arguments = ["suspend", RELEASE, "-n", &scene.namespace, "--for", length, "--reason", "moving"];
        moor(&scene.control_plane, Identity::Admin, &arguments)
    };
    let ran = suspend("1h");
    assert!(ran.code == 0 && ran.out.contains("is suspended until 20"), "{ran:?}");
    let status = scene.wait_for_reason("Suspended").await;
    let message = status["conditions"][0]["message"].to_string();
    assert!(
        message.contains("Z (moving), so nothing is repaired until then or `kubemoor resume"),
        "{message}"
    );
    let listed = moor(&scene.control_plane, Identity::Admin, &["get", "releases", "-A", "-o", "json"]).json();
    let row = listed["items"].as_array().unwrap().iter().find(|row| row["name"] == RELEASE).unwrap().clone();
    assert!(row["suspended"]["reason"] == "moving" && row["suspended"]["until"].is_string(), "{row}");
    let settings = scene.config_map("settings");
    scene.edit(&settings, json!({"data": {"level": "mine"}})).await;
    scene.status("a drift that stays", |status| status["drifted"] == 1).await;
    assert_eq!(scene.writes("configmaps"), 0);
    assert_eq!(suspend("1s").code, 0, "a suspension may be cut short");
    scene.wait_for_value(&settings, "/data/level", json!("info")).await;
    scene.wait_for_reason("InSync").await;
    let refused = json!({"spec": {"suspendUntil": "tomorrow"}});
    let refused = scene.admin.merge(&scene.guarded_release(RELEASE), &refused).await.done().unwrap_err();
    assert!(refused.starts_with("422 ") && refused.contains("must be of type date-time"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_release_says_which_of_its_objects_another_release_owns() {
    let scene = Scene::own().install("owned", charts::TWO).await;
    let _guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_reason("InSync").await;
    let foreign = |status: &Value| {
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == "ForeignOwned")
    };
    assert_eq!(foreign(&scene.wait_for_reason("InSync").await), None);

    let settings = charts::TWO.split("---").next().unwrap();
    let chart = Chart::new("other").template("all.yaml", &settings.replace("info", "debug"));
    let taking = json!({"take_ownership": true, "force_conflicts": true});
    scene.helm.install(&scene.namespace, "other", &chart, taking).await.unwrap();
    // It is held to the other one alone.
    let is_spared = |status: &Value| status["drifted"] == 0 && status["conditions"][0]["reason"] == "InSync";
    let status =
        scene.status("the other owner", |status| foreign(status).is_some() && is_spared(status)).await;
    let condition = foreign(&status).unwrap();
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!("ForeignOwned")));
    let message = condition["message"].as_str().unwrap();
    assert!(message.contains("ConfigMap/settings") && message.contains("/other"), "{message}");
    scene.wait_for_value(&scene.config_map("settings"), "/data/level", json!("debug")).await;

    // Taken back.
    let chart = Chart::new(RELEASE).template("all.yaml", charts::TWO);
    let taking = json!({"take_ownership": true, "force_conflicts": true});
    scene.helm.upgrade(&scene.namespace, RELEASE, &chart, taking).await.unwrap();
    scene.status("that it is its own", |status| status["revision"] == 2 && foreign(status).is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn contested_object_stays_contested_after_guard_restart() {
    let scene = Scene::own().install("rival", charts::TWO).await;
    let mut guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_confirmed(2).await;
    let settings = scene.config_map("settings");
    let undoes = async |times: usize| {
        let path = format!("{settings}?fieldManager=rival");
        for _ in 0..times {
            scene.wait_for_value(&settings, "/data/level", json!("info")).await;
            scene.alice.merge(&path, &json!({"data": {"level": "rivals"}})).await.done().unwrap();
        }
    };
    undoes(5).await;
    let status = scene.wait_for_reason("Contested").await;
    assert!(status["conditions"][0]["message"].as_str().unwrap().contains("rival"), "{status}");
    guard.kill();
    scene.edit(&settings, json!({"data": {"level": "rivals too"}})).await;
    guard.start_again().await;
    undoes(3).await;
    scene.wait_for_reason("Contested").await;
    scene.order("reconcile");
    scene.wait_for_value(&settings, "/data/level", json!("info")).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn mass_drift_stops_repairs_until_reconcile_is_requested() {
    let many = "
{{- range $i := until 30 }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: many-{{ $i }}}
data: {a: b}
{{- end }}
";
    let scene = Scene::own().install("braked", many).await;
    let guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_confirmed(30).await;
    // So that it meets all of it at once.
    guard.pause();
    let all = format!(
        "/api/v1/namespaces/{}/configmaps?labelSelector=app.kubernetes.io%2Fmanaged-by%3DHelm",
        scene.namespace
    );
    scene.alice.delete(&all).await.done().unwrap();
    guard.resume();
    scene.wait_for_reason("Braked").await;
    guard.wait_for_log("of 30 declared objects drifted at once, all from releases in namespace").await;
    // What is known before the rest may be repaired.
    assert!(scene.writes("configmaps") <= 10);
    scene.order("reconcile");
    scene.wait_for_reason("InSync").await;
    let back = scene.get(&all).await;
    assert_eq!(back["items"].as_array().unwrap().len(), 30);
    guard.wait_for_log("repairs resumed").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn clusterrole_is_repaired_only_if_policy_and_rights_permit() {
    let role = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "{{ .Release.Namespace }}-reader"}
rules:
- {apiGroups: [""], resources: [nodes], verbs: [get, delete]}
"#;
    let scene = Scene::own().install("granting", role).await;
    scene.control_plane.apply_deploy(&["namespace.yaml", "enforce/privileged.yaml"]).await;
    let guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_confirmed(1).await;
    let path = format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{}-reader", scene.namespace);
    let everything = json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    scene.edit(&path, everything).await;
    guard
        .wait_for_log("objects that grant rights, intercept requests or define kinds are not repaired")
        .await;
    // An event about an object of no namespace is in the one where every API server takes it.
    eventually("the drift has an event", SOON, || async {
        let events = scene.alice.get("/apis/events.k8s.io/v1/namespaces/kube-system/events").await.done()?;
        let is_it = |event: &Value| {
            event["regarding"]["kind"] == "ClusterRole"
                && event["reportingController"] == "kubemoor.dev/guard"
        };
        if events["items"].as_array().unwrap().iter().any(is_it) { Ok(()) } else { Err(events.to_string()) }
    })
    .await;
    scene.policy_for_all(json!({"drift": "Repair", "repair": {"rbac": true, "clusterScoped": true}})).await;
    let object = scene.wait_for_value(&path, "/rules/0/verbs", json!(["get", "delete"])).await;
    scene.alice.delete(&path).await.done().unwrap();
    let back = scene.wait_for_value(&path, "/rules/0/resources", json!(["nodes"])).await;
    assert_ne!(back["metadata"]["uid"], object["metadata"]["uid"]);
    scene.wait_for_reason("InSync").await;
    assert!(!guard.log().contains("could not be repaired"), "{}", guard.log());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn read_only_guard_reports_drift_that_policy_would_repair() {
    let scene = Scene::own().install("reading", charts::TWO).await;
    scene.policy_for_all(json!({"drift": "Repair"})).await;
    let guard = scene.start_guard(&["--read-only"]).await;
    let (settings, extra) = (scene.config_map("settings"), scene.config_map("extra"));
    scene.edit(&settings, json!({"data": {"level": "mine"}})).await;
    scene.alice.delete(&extra).await.done().unwrap();
    eventually("both are reported", SOON, || async {
        let log = guard.log();
        let reported = log.matches("the guard runs with --read-only").count();
        if reported == 2 { Ok(()) } else { Err(log) }
    })
    .await;
    assert!(!guard.log().contains("could not be repaired"), "{}", guard.log());
    assert_eq!(scene.writes("configmaps"), 0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn autoscaled_replicas_stay_after_guard_restart_until_reconcile_order() {
    let deployment = |name: &str| {
        format!(
            "---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec: {{containers: [{{name: app, image: 'registry.example/{name}:1'}}]}}
"
        )
    };
    let scene = Scene::own().install("left", &[deployment("scaled"), deployment("edited")].concat()).await;
    let (scaled, edited) = (scene.deployment("scaled"), scene.deployment("edited"));
    let five = json!({"spec": {"replicas": 5}});
    let mut guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_confirmed(2).await;
    guard.kill();
    // As the API server notes it when an autoscaler scales.
    let path = format!("{scaled}?fieldManager=kube-controller-manager");
    scene.alice.merge(&path, &five).await.done().unwrap();
    scene.edit(&edited, five).await;
    guard.start_again().await;
    scene.wait_for_value(&edited, "/spec/replicas", json!(2)).await;
    scene.wait_for_reason("InSync").await;
    scene.wait_for_value(&scaled, "/spec/replicas", json!(5)).await;
    scene.order("reconcile");
    scene.wait_for_value(&scaled, "/spec/replicas", json!(2)).await;
}
