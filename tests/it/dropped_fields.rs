//! Fields that a server takes and does not keep, because a feature gate is off: Helm is not refused for that, and it
//! is no drift.
//!
//! Kubernetes 1.20 drops `ttlSecondsAfterFinished` of Jobs. The guard may not create Jobs, so no dry run tells it what
//! becomes of a new one.

use serde_json::{Value, json};

use crate::support::{Chart, RELEASE, SOON, Scene, eventually, wait_until_guarded};

/// A Job with a field.
fn job(name: &str, field: &str) -> String {
    format!(
        "
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}}}
spec:
  {field}
  template:
    spec:
      restartPolicy: Never
      containers: [{{name: app, image: registry.example/job}}]
"
    )
}

/// Waits until the status of a release says this of a revision.
async fn wait_for_reason(shop: &Scene, release: &str, revision: u64, wanted: &str) {
    let meant =
        |status: &Value| status["revision"] == revision && status["conditions"][0]["reason"] == wanted;
    shop.status_of(release, &format!("revision {revision} is {wanted}"), meant).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_installs_and_keeps_what_the_server_drops_fields_of() {
    // From now on the API server asks about Jobs.
    let shop = Scene::policed().install("dropped", &job("plain", "backoffLimit: 1")).await;
    shop.wait_until_guarded(&shop.at("apis/batch/v1", "jobs/plain")).await;

    let (release, text) = ("dropped", job("dropped", "ttlSecondsAfterFinished: {{ .Values.seconds }}"));
    let chart = Chart::new(release).template("job.yaml", &text);
    let seconds = |seconds: u32| json!({"values": {"seconds": seconds}});
    shop.helm.install(&shop.namespace, release, &chart, seconds(100)).await.unwrap();
    let path = shop.at("apis/batch/v1", "jobs/dropped");
    wait_until_guarded(&shop.alice, release, &path).await;
    wait_for_reason(&shop, release, 1, "InSync").await;
    // The second does not change, so that nothing is done to the object.
    shop.helm.upgrade(&shop.namespace, release, &chart, seconds(100)).await.unwrap();
    wait_for_reason(&shop, release, 2, "InSync").await;
    shop.helm.upgrade(&shop.namespace, release, &chart, seconds(200)).await.unwrap();
    wait_for_reason(&shop, release, 3, "InSync").await;
    shop.helm.rollback(&shop.namespace, release, json!({"version": 1})).await.unwrap();
    wait_for_reason(&shop, release, 4, "InSync").await;
    let job = shop.get(&path).await;
    if job["spec"]["ttlSecondsAfterFinished"] == 100 {
        let without = json!({"spec": {"ttlSecondsAfterFinished": null}});
        shop.alice.merge(&path, &without).await.refused(release).unwrap();
    }
    shop.helm.uninstall(&shop.namespace, release, json!({})).await.unwrap();
    shop.helm.uninstall(&shop.namespace, RELEASE, json!({})).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn removed_field_that_the_server_keeps_is_drift() {
    let shop = Scene::policed().install("kept", &job("kept", "activeDeadlineSeconds: 100")).await;
    let path = shop.at("apis/batch/v1", "jobs/kept");
    shop.wait_until_guarded(&path).await;
    wait_for_reason(&shop, RELEASE, 1, "InSync").await;
    let without = json!({"spec": {"activeDeadlineSeconds": null}});
    shop.alice.merge(&path, &without).await.refused(RELEASE).unwrap();
    shop.policy("record", json!({"priority": 1, "edits": "Record", "drift": "Report"})).await;
    eventually("the edit passes", SOON, || async { shop.alice.merge(&path, &without).await.done() }).await;
    wait_for_reason(&shop, RELEASE, 1, "Drifted").await;
    shop.policy("repair", json!({"priority": 2, "edits": "Record", "drift": "Repair"})).await;
    shop.wait_for_value(&path, "/spec/activeDeadlineSeconds", &json!(100)).await;
}
