//! Which kinds the loop watches: each that is declared and may be read, also those that no webhook ever sees.

use serde_json::{Value, json};

use crate::support::charts::SETTINGS;
use crate::support::{Caller, ControlPlane, Identity, SOON, Scene, add_widgets, eventually};

const ACCOUNT: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: shop}
automountServiceAccountToken: false
";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn unreadable_kind_is_reported_once_and_blocks_no_repair() {
    const GROUP: &str = "closed.example.com";
    let control_plane = ControlPlane::start();
    control_plane.define_policies();
    add_widgets(&control_plane, GROUP).await;
    let admin = Caller::new(&control_plane, Identity::Admin).await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let path = format!("{roles}/kubemoor-widgets-of-{GROUP}");
    let mut role = admin.get(&path).await.done().unwrap();
    admin.delete(&path).await.done().unwrap();
    // Nobody would judge the second one either.
    let widget = |metadata: &str| {
        format!("---\napiVersion: {GROUP}/v1\nkind: Widget\nmetadata: {metadata}\nspec: {{replicas: 2}}\n")
    };
    let free = widget("{name: free, annotations: {kubemoor.dev/guard: disabled}}");
    let templates = format!("{SETTINGS}{}{free}", widget("{name: main}"));
    let scene = Scene::on(control_plane).install("closed", &templates).await;
    let guard = scene.start_guard(&["--drift", "Repair"]).await;
    guard.wait_for_log("failed to watch Widget objects; their drift is not detected").await;
    let settings = scene.config_map("settings");
    for level in ["mine", "yours"] {
        scene.edit(&settings, json!({"data": {"level": level}})).await;
        scene.wait_for_value(&settings, "/data/level", json!("info")).await;
    }
    assert_eq!(guard.log().matches("failed to watch Widget objects").count(), 1, "{}", guard.log());
    let status = scene.wait_for_reason("Unwatched").await;
    let [ready, stalled, unwatched] = [0, 1, 2].map(|place| &status["conditions"][place]);
    assert_eq!((&ready["status"], &stalled["status"]), (&json!("Unknown"), &json!("False")), "{status}");
    assert_eq!((&unwatched["type"], &unwatched["status"]), (&json!("Unwatched"), &json!("True")), "{status}");
    let message = unwatched["message"].as_str().unwrap();
    assert!(message.starts_with("1 of 3 objects are not checked: 1 of kind Widget: "), "{status}");
    assert!(message.contains("cannot list resource"), "{status}");
    // As soon as it may, it does.
    role["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    admin.post(roles, &role).await.done().unwrap();
    scene.wait_for_reason("InSync").await;
    let widget = format!("/apis/{GROUP}/v1/namespaces/{}/widgets/main", scene.namespace);
    scene.edit(&widget, json!({"spec": {"replicas": 5}})).await;
    scene.wait_for_value(&widget, "/spec/replicas", json!(2)).await;
    let status = scene.wait_for_reason("InSync").await;
    assert_eq!(status["conditions"].as_array().unwrap().len(), 2, "{status}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn kind_is_watched_only_while_a_release_declares_it() {
    let scene = Scene::own().install("followed", SETTINGS).await;
    let guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_confirmed(1).await;
    let watches = |event: &&Value, stage: &str| {
        event["user"]["username"] == Identity::Guard.user()
            && event["objectRef"]["resource"] == "serviceaccounts"
            && event["verb"] == "watch"
            && event["stage"] == stage
    };
    let count = |stage: &str| {
        scene
            .control_plane
            .audit_events(&[Identity::Guard.user(), "serviceaccounts"])
            .iter()
            .filter(|event| watches(event, stage))
            .count()
    };
    scene.upgrade_to(&format!("{SETTINGS}---{ACCOUNT}"), json!({})).await.unwrap();
    scene.wait_for_confirmed(2).await;
    let account = scene.core("serviceaccounts/shop");
    scene.edit(&account, json!({"automountServiceAccountToken": true})).await;
    scene.wait_for_value(&account, "/automountServiceAccountToken", json!(false)).await;
    assert_eq!(count("ResponseComplete"), 0, "the watch goes on: {}", guard.log());
    scene.upgrade_to(SETTINGS, json!({})).await.unwrap();
    eventually("the watch ends", SOON, || async { count("ResponseComplete") == 1 }).await;
    scene.wait_for_reason("InSync").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn loop_detects_change_of_webhook_configuration_unseen_by_webhooks() {
    let rule = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: "{{ .Release.Namespace }}-rule"}
webhooks:
- name: rule.example.com
  clientConfig: {url: "https://127.0.0.1:1/rule"}
  rules: [{apiGroups: ["example.com"], apiVersions: ["v1"], resources: ["nothing"], operations: ["CREATE"]}]
  failurePolicy: Fail
  sideEffects: None
  admissionReviewVersions: ["v1"]
"#;
    let scene = Scene::own().install("intercepted", rule).await;
    scene.control_plane.apply_deploy(&["namespace.yaml", "enforce/privileged.yaml"]).await;
    let guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_confirmed(1).await;
    let rules = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let path = format!("{rules}/{}-rule", scene.namespace);
    let open = json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]);
    scene.alice.patch_all(&format!("{path}?fieldManager=kubectl-edit"), &open).await.done().unwrap();
    guard
        .wait_for_log("objects that grant rights, intercept requests or define kinds are not repaired")
        .await;
    scene.wait_for_reason("Drifted").await;
    scene.policy_for_all(json!({"drift": "Repair", "repair": {"rbac": true, "clusterScoped": true}})).await;
    scene.wait_for_value(&path, "/webhooks/0/failurePolicy", json!("Fail")).await;
    scene.wait_for_reason("InSync").await;
}
