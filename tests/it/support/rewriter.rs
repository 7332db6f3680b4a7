//! Mutating webhooks like those of registry mirrors and policy engines: they rewrite what is written to an object.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// Patches objects of one resource on creation and on update. Dropping it ends it, and the API server refuses all
/// writes of them then.
pub(crate) struct Rewriter {
    server: JoinHandle<()>,
    calls: Arc<AtomicUsize>,
}

impl Rewriter {
    /// Starts one that rewrites the images of Deployments and adds a toleration.
    pub(crate) async fn start(control_plane: &ControlPlane) -> Self {
        let patch = |object: &Value, _| mirror(object);
        Self::serve(control_plane, "mirror", ["apps", "deployments"], "Never", patch).await
    }

    /// Starts one and has the API server call it, before or after others by its name. Its patch depends on the object
    /// and on the number of calls before.
    pub(crate) async fn serve(
        control_plane: &ControlPlane,
        name: &str,
        [group, resource]: [&str; 2],
        reinvocation: &str,
        patch: impl Fn(&Value, usize) -> Vec<Value> + Clone + Send + Sync + 'static,
    ) -> Self {
        let calls = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&calls);
        let answer = move |body: Bytes| {
            let review: Value = serde_json::from_slice(&body).unwrap();
            let patch = patch(&review["request"]["object"], counted.fetch_add(1, Ordering::Relaxed));
            async move { patched(&review, patch) }
        };
        let (server, client_config) = serve_hook(Router::new().fallback(answer)).await;
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [{
                "name": format!("{name}.example.org"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "failurePolicy": "Fail", "matchPolicy": "Equivalent", "reinvocationPolicy": reinvocation,
                "clientConfig": client_config,
                "rules": [{
                    "apiGroups": [group], "apiVersions": ["v1"], "resources": [resource],
                    "operations": ["CREATE", "UPDATE"],
                }],
            }],
        });
        let admin = Caller::new(control_plane, Identity::Admin).await;
        let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
        admin.post(path, &configuration).await.done().unwrap();
        Self { server, calls }
    }

    /// How often the API server has called it.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

impl Drop for Rewriter {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn mirror(object: &Value) -> Vec<Value> {
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
    patch
}

/// The answer to a review.
fn patched(review: &Value, patch: Vec<Value>) -> Json<Value> {
    Json(json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {
            "uid": review["request"]["uid"], "allowed": true, "patchType": "JSONPatch",
            "patch": STANDARD.encode(json!(patch).to_string()),
        },
    }))
}
