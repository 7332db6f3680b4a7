//! Changes that pass, about which the API server asks twice because the object changed meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::response::Json;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::support::{Caller, Guard, Identity, SOON, Scene, charts, eventually, serve_hook};

/// A validating webhook that changes an object's status before it answers about the first update by alice.
struct Meddler {
    admin: Caller,
    status: String,
    asked: AtomicUsize,
}

impl Meddler {
    async fn start(scene: &Scene, path: &str) -> Arc<Self> {
        let admin = Caller::new(&scene.control_plane, Identity::Admin).await;
        let meddler = Arc::new(Self { admin, status: format!("{path}/status"), asked: AtomicUsize::new(0) });
        let meddling = Arc::clone(&meddler);
        let answer = move |body: Bytes| {
            let meddling = Arc::clone(&meddling);
            async move { meddling.answer(body).await }
        };
        let (_server, client_config) = serve_hook(Router::new().fallback(answer)).await;
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "meddler"},
            "webhooks": [{
                "name": "meddler.example.org", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "failurePolicy": "Fail", "clientConfig": client_config,
                "rules": [{
                    "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"],
                    "operations": ["UPDATE"],
                }],
            }],
        });
        let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
        scene.admin.post(path, &configuration).await.done().unwrap();
        meddler
    }

    async fn answer(&self, body: Bytes) -> Json<Value> {
        let review: Value = serde_json::from_slice(&body).unwrap();
        let request = &review["request"];
        if request["userInfo"]["username"] == "alice" && self.asked.fetch_add(1, Ordering::SeqCst) == 0 {
            let status = json!({"status": {"unavailableReplicas": 7}});
            self.admin.merge(&self.status, &status).await.done().unwrap();
        }
        Json(json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {"uid": request["uid"], "allowed": true},
        }))
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn retried_update_is_one_row_and_repeated_update_is_two() {
    let scene = Scene::own().install("asked-twice", charts::DEPLOYMENT).await;
    let guard = scene.start_guard(&["--register", "--edits", "Warn", "--drift", "Report"]).await;
    Guard::extend_webhook_timeouts(&scene.control_plane, "Fail").await;
    let web = scene.deployment("web");
    scene.wait_for_confirmed(1).await;
    let meddler = Meddler::start(&scene, &web).await;
    eventually("the API server asks the other webhook", SOON, || async {
        let labels = json!({"metadata": {"labels": {"a": Timestamp::now().as_millisecond().to_string()}}});
        scene.alice.merge(&web, &labels).await.done().unwrap();
        if meddler.asked.load(Ordering::SeqCst) > 0 { Ok(()) } else { Err("not yet") }
    })
    .await;

    meddler.asked.store(0, Ordering::SeqCst);
    // Set back and done again, it is another change.
    for (by, replicas) in [(&scene.alice, 7), (&scene.admin, 2), (&scene.alice, 7), (&scene.alice, 8)] {
        by.merge(&web, &json!({"spec": {"replicas": replicas}})).await.done().unwrap();
        scene.wait_for_cached(&web, "/spec/replicas", json!(replicas)).await;
    }
    assert!(meddler.asked.load(Ordering::SeqCst) > 3, "the API server asks once about each");
    let rows = eventually("the last change is in the ledger", SOON, || async {
        let rows = guard.rows(&["-A", "--verdict", "Warn"]);
        let is_last = |row: &Value| row["fields"][0]["new"].to_string().contains('8');
        if rows.iter().any(is_last) { Ok(rows) } else { Err(format!("{rows:?}")) }
    })
    .await;
    assert_eq!(rows.len(), 3, "{rows:#?}");
}
