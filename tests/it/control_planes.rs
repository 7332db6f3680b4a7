//! Control planes that tests hand on.

use serde_json::json;

use crate::support::{Caller, ControlPlane, Identity, Scene, add_widgets, charts};

/// What a control plane holds that no start explains: namespaces and what they hold, definitions and their objects,
/// what stands in the way of a deletion, rights, webhooks that nobody answers, and what lies in the namespaces of others.
#[tokio::test(flavor = "multi_thread")]
async fn used_one_is_emptied_for_the_next_test() {
    let scene = Scene::on(ControlPlane::start()).install("left", charts::TWO).await;
    let own = scene.control_plane.own();
    add_widgets(&scene.control_plane, "left.test").await;
    let admin = Caller::new(&scene.control_plane, Identity::Admin).await;
    let stuck = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "left-stuck", "finalizers": ["left.test/never"]},
    });
    for namespace in ["default", &scene.namespace] {
        admin.post(&format!("/api/v1/namespaces/{namespace}/configmaps"), &stuck).await.done().unwrap();
    }
    let webhook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "left"},
        "webhooks": [{
            "name": "left.test.dev", "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]}],
        }],
    });
    let webhooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    admin.post(webhooks, &webhook).await.done().unwrap();
    let made = left(own);
    assert!(made.len() > 8, "{made:#?}");
    own.empty().await.unwrap();
    assert_eq!(left(own), Vec::<String>::new());
}

/// Everything that bears the name of the test.
fn left(control_plane: &ControlPlane) -> Vec<String> {
    control_plane.everything().into_iter().filter(|row| row.contains("left")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_whose_own_objects_were_changed_is_not_handed_on() {
    let control_plane = ControlPlane::start();
    let admin = Caller::new(&control_plane, Identity::Admin).await;
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node";
    admin.merge(role, &json!({"rules": []})).await.done().unwrap();
    let said = control_plane.empty().await.unwrap_err();
    assert!(said.starts_with(&format!("{role} has changed")), "{said}");
}
