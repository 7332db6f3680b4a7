//! A mutating webhook like those of registry mirrors and policy engines: it rewrites what is written to an object.

use axum::Router;
use axum::body::Bytes;
use axum::response::Json;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::caller::Caller;
use super::control_plane::ControlPlane;
use super::hook::serve_hook;
use super::identity::Identity;

/// Where images come from once it has rewritten them.
const MIRROR: &str = "mirror.example/";

/// Rewrites the images of Deployments and adds a toleration, on creation and on update. Dropping it ends it, and the
/// API server refuses all writes of Deployments then.
pub(crate) struct Rewriter {
    server: JoinHandle<()>,
}

impl Rewriter {
    /// Starts it and has the API server call it.
    pub(crate) async fn start(control_plane: &ControlPlane) -> Self {
        let (server, client_config) = serve_hook(Router::new().fallback(rewrite)).await;
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "mirror"},
            "webhooks": [{
                "name": "mirror.example.org", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "failurePolicy": "Fail", "matchPolicy": "Equivalent",
                "clientConfig": client_config,
                "rules": [{
                    "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"],
                    "operations": ["CREATE", "UPDATE"],
                }],
            }],
        });
        let admin = Caller::new(control_plane, Identity::Admin).await;
        let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
        admin.post(path, &configuration).await.done().unwrap();
        Self { server }
    }
}

impl Drop for Rewriter {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Answers one review.
async fn rewrite(body: Bytes) -> Json<Value> {
    let review: Value = serde_json::from_slice(&body).unwrap();
    let object = &review["request"]["object"];
    let mut patch = Vec::new();
    let containers = object.pointer("/spec/template/spec/containers").and_then(Value::as_array);
    for (index, container) in containers.into_iter().flatten().enumerate() {
        let image = container["image"].as_str().unwrap_or_default();
        if !image.starts_with(MIRROR) {
            let path = format!("/spec/template/spec/containers/{index}/image");
            patch.push(json!({"op": "replace", "path": path, "value": format!("{MIRROR}{image}")}));
        }
    }
    if let Some(tolerations) = object.pointer("/spec/template/spec/tolerations").and_then(Value::as_array) {
        let spot = json!({"key": "spot", "operator": "Exists"});
        if !tolerations.contains(&spot) {
            let path = "/spec/template/spec/tolerations/-";
            patch.push(json!({"op": "add", "path": path, "value": spot}));
        }
    }
    Json(json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {
            "uid": review["request"]["uid"], "allowed": true, "patchType": "JSONPatch",
            "patch": STANDARD.encode(json!(patch).to_string()),
        },
    }))
}
