//! What undoes a release without touching a declared field through the object itself: the `scale` subresource, and the
//! sealed fields.

use serde_json::json;

use crate::support::{ControlPlane, Identity, RELEASE, Scene, charts, define_widgets};

const WORKLOADS: &str = concat!(
    charts::deployment!(r#"{name: app, image: "registry.example/shop:1"}"#),
    "---",
    charts::stateful_set!("store", r#"{name: store, image: "registry.example/store:1"}"#),
);

const SETTINGS: &str = concat!(
    charts::config_map!("settings", "{level: info}"),
    "---\napiVersion: v1\nkind: Secret\nmetadata: {name: settings}\nstringData: {password: sesame}\n",
);

const CRON_JOB: &str = r#"
apiVersion: batch/VERSION
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 3 * * *"
  jobTemplate:
    spec:
      template:
        spec: {restartPolicy: Never, containers: [{name: job, image: "registry.example/job:1"}]}
"#;

const WIDGET: &str = r#"
apiVersion: sealed.example/v1
kind: Widget
metadata: {name: wheel}
spec: {replicas: 3}
"#;

const AUTOSCALER: &str = r#"
apiVersion: autoscaling/v1
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, maxReplicas: 9}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_scale_of_a_declared_workload_is_refused() {
    let shop = Scene::shared().install("scale", WORKLOADS).await;
    for (plural, name) in [("deployments", "web"), ("statefulsets", "store")] {
        let path = shop.at("apis/apps/v1", &format!("{plural}/{name}"));
        shop.wait_until_guarded(&path).await;
        let scale = format!("{path}/scale");
        shop.alice.merge(&scale, &json!({"spec": {"replicas": 5}})).await.refused(RELEASE).unwrap();
        shop.alice.put(&scale, &shop.scale(name, 0)).await.refused(RELEASE).unwrap();
        let declared = json!({"spec": {"replicas": if name == "web" { 2 } else { 1 }}});
        shop.alice.merge(&scale, &declared).await.done().unwrap();
        let object = format!("{plural}/{name}");
        let arguments = ["scale", &object, "--replicas=7", "--namespace", &shop.namespace];
        let output = ControlPlane::get().kubectl(Identity::Alice, &arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("denied the request"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn undeclared_minimum_of_a_declared_autoscaler_is_sealed() {
    let shop = Scene::shared().install("ranged", AUTOSCALER).await;
    let path = shop.at("apis/autoscaling/v1", "horizontalpodautoscalers/web");
    shop.wait_until_guarded(&path).await;
    shop.alice.merge(&path, &json!({"spec": {"minReplicas": 9}})).await.refused(RELEASE).unwrap();
    shop.alice.merge(&path, &json!({"spec": {"minReplicas": 1}})).await.done().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_scale_of_a_declared_custom_resource_is_refused() {
    define_widgets(ControlPlane::get(), "sealed.example").await;
    let shop = Scene::shared().install("scale", WIDGET).await;
    let path = shop.at("apis/sealed.example/v1", "widgets/wheel");
    shop.wait_until_guarded(&path).await;
    let scale = format!("{path}/scale");
    shop.alice.merge(&scale, &json!({"spec": {"replicas": 5}})).await.refused(RELEASE).unwrap();
    shop.alice.merge(&scale, &json!({"spec": {"replicas": 3}})).await.done().unwrap();
    let pause = json!({"spec": {"paused": true}});
    shop.alice.merge(&path, &pause).await.refused(RELEASE).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn sealed_fields_of_declared_objects_cannot_be_set() {
    let version = if ControlPlane::get().minor() > 20 { "v1" } else { "v1beta1" };
    let templates = [WORKLOADS, SETTINGS, &CRON_JOB.replace("VERSION", version)].join("---");
    let shop = Scene::shared().install("sealed", &templates).await;
    let cron_job = shop.at(&format!("apis/batch/{version}"), "cronjobs/nightly");
    let (settings, secret) = (shop.config_map("settings"), shop.core("secrets/settings"));
    let owner = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "nowhere", "uid": "7f3d1d5e-0000-4000-8000-000000000000",
    });
    let keep = json!({"helm.sh/resource-policy": "keep"});
    for (path, edit) in [
        (&shop.deployment("web"), json!({"spec": {"paused": true}})),
        (&cron_job, json!({"spec": {"suspend": true}})),
        (&settings, json!({"immutable": true})),
        (&secret, json!({"immutable": true})),
        (&settings, json!({"metadata": {"ownerReferences": [owner]}})),
        (&settings, json!({"metadata": {"annotations": keep}})),
    ] {
        shop.wait_until_guarded(path).await;
        let refused = shop.alice.merge(path, &edit).await.refused(RELEASE);
        refused.unwrap_or_else(|said| panic!("{path}: {edit}: {said}"));
    }
    // What a seal means anyway may be said.
    shop.alice.merge(&shop.deployment("web"), &json!({"spec": {"paused": false}})).await.done().unwrap();
}
