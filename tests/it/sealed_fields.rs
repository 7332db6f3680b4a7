//! What undoes a release without touching a declared field through the object itself: the `scale` subresource, and the
//! sealed fields.

use serde_json::{Value, json};

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

fn scale_of(api_version: &str, kind: &str, shop: &Scene, name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": shop.namespace},
        "spec": {"replicas": replicas},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scale_of_a_declared_workload_is_refused() {
    let shop = Scene::shared().install("scale", WORKLOADS).await;
    for (plural, name) in [("deployments", "web"), ("statefulsets", "store")] {
        let path = shop.at("apis/apps/v1", &format!("{plural}/{name}"));
        shop.wait_until_guarded(&path).await;
        let scale = format!("{path}/scale");
        shop.alice.merge(&scale, &json!({"spec": {"replicas": 5}})).await.refused(RELEASE).unwrap();
        let put = scale_of("autoscaling/v1", "Scale", &shop, name, 0);
        shop.alice.put(&scale, &put).await.refused(RELEASE).unwrap();
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
async fn a_scale_to_the_declared_number_passes() {
    let shop = Scene::shared().install("scale", WORKLOADS).await;
    let path = shop.deployment("web");
    shop.wait_until_guarded(&path).await;
    let scale = format!("{path}/scale");
    shop.alice.merge(&scale, &json!({"spec": {"replicas": 2}})).await.done().unwrap();
    shop.alice.merge(&scale, &json!({"spec": {"replicas": 3}})).await.refused(RELEASE).unwrap();
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
async fn a_pause_of_a_declared_deployment_is_refused() {
    let shop = Scene::shared().install("sealed", WORKLOADS).await;
    let path = shop.deployment("web");
    shop.wait_until_guarded(&path).await;
    shop.alice.merge(&path, &json!({"spec": {"paused": true}})).await.refused(RELEASE).unwrap();
    shop.alice.merge(&path, &json!({"spec": {"paused": false}})).await.done().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_suspension_of_a_declared_cron_job_is_refused() {
    let version = if ControlPlane::get().minor() > 20 { "v1" } else { "v1beta1" };
    let shop = Scene::shared().install("sealed", &CRON_JOB.replace("VERSION", version)).await;
    let path = shop.at(&format!("apis/batch/{version}"), "cronjobs/nightly");
    shop.wait_until_guarded(&path).await;
    shop.alice.merge(&path, &json!({"spec": {"suspend": true}})).await.refused(RELEASE).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_declared_config_map_or_secret_cannot_be_made_immutable() {
    let shop = Scene::shared().install("sealed", SETTINGS).await;
    for path in [shop.config_map("settings"), shop.core("secrets/settings")] {
        shop.wait_until_guarded(&path).await;
        shop.alice.merge(&path, &json!({"immutable": true})).await.refused(RELEASE).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_new_owner_of_a_declared_object_is_refused() {
    let shop = Scene::shared().install("sealed", SETTINGS).await;
    let path = shop.config_map("settings");
    shop.wait_until_guarded(&path).await;
    let owner = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "nowhere",
        "uid": "7f3d1d5e-0000-4000-8000-000000000000",
    });
    let owned = json!({"metadata": {"ownerReferences": [owner]}});
    shop.alice.merge(&path, &owned).await.refused(RELEASE).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_resource_policy_on_a_declared_object_is_refused() {
    let shop = Scene::shared().install("sealed", SETTINGS).await;
    let path = shop.config_map("settings");
    shop.wait_until_guarded(&path).await;
    let keep = json!({"metadata": {"annotations": {"helm.sh/resource-policy": "keep"}}});
    shop.alice.merge(&path, &keep).await.refused(RELEASE).unwrap();
}
