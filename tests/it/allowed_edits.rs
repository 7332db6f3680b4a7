//! Edits of declared objects that change nothing which is declared. The guard is asked about each: an edit that is
//! refused comes before and after it.

use serde_json::{Value, json};

use crate::support::charts::SETTINGS;
use crate::support::{Caller, ControlPlane, Identity, RELEASE, SOON, Scene, eventually};

const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {tier: front}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: app
        image: registry.example/shop:1
        env: [{name: LEVEL, value: info}]
        resources: {requests: {cpu: 500m, memory: 1Gi}, limits: {cpu: "1", memory: 2Gi}}
"#;

const CONTAINER: &str = "/spec/template/spec/containers/0";

struct Edited {
    shop: Scene,
    path: String,
}

impl Edited {
    /// A release whose Deployment will be edited.
    async fn deployment() -> Self {
        let shop = Scene::shared().install("allowed", DEPLOYMENT).await;
        let path = shop.deployment("web");
        shop.wait_until_guarded(&path).await;
        Self { shop, path }
    }

    async fn merge(&self, patch: Value) -> Value {
        let object = self.shop.alice.merge(&self.path, &patch).await.done().unwrap();
        self.shop.wait_until_guarded(&self.path).await;
        object
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_of_what_is_not_declared_pass() {
    let edited = Edited::deployment().await;
    let (alice, path) = (&edited.shop.alice, &edited.path);
    // Annotations, labels and finalizers come, change and go.
    for mine in [json!("yes"), json!("no"), Value::Null] {
        let map = json!({"example.org/mine": mine});
        let finalizers = if mine.is_null() { Value::Null } else { json!(["example.org/wait"]) };
        let metadata = json!({"annotations": map, "labels": map, "finalizers": finalizers});
        let object = edited.merge(json!({"metadata": metadata})).await;
        assert_eq!(object["metadata"]["labels"]["example.org/mine"], mine);
        assert_eq!(object["metadata"]["finalizers"], finalizers);
    }
    let status = json!({"status": {"collisionCount": 7}});
    alice.merge(&format!("{path}/status"), &status).await.done().unwrap();
    // So do an update of nothing, the declared value, and other spellings of it.
    let mut live = edited.shop.get(path).await;
    live["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    alice.put(path, &live).await.done().unwrap();
    edited.merge(json!({})).await;
    edited.merge(json!({"spec": {"replicas": 2}})).await;
    let patch = async |operation: &str, pointer: &str, value: Value| {
        let pointer = format!("{CONTAINER}/{pointer}");
        alice.patch(path, operation, &pointer, &value).await
    };
    for (name, spelling) in [
        ("limits/cpu", "1000m"),
        ("requests/cpu", "0.5"),
        ("requests/memory", "1024Mi"),
        ("limits/memory", "2147483648"),
    ] {
        patch("replace", &format!("resources/{name}"), json!(spelling)).await.done().unwrap();
    }
    patch("replace", "resources/limits/cpu", json!("1001m")).await.refused(RELEASE).unwrap();
    patch("add", "env/-", json!({"name": "MINE", "value": "yes"})).await.done().unwrap();
    let sidecar = json!({"name": "mesh", "image": "registry.example/mesh:1"});
    alice.patch(path, "add", "/spec/template/spec/containers/-", &sidecar).await.done().unwrap();

    let restart = edited.shop.kubectl(&["rollout", "restart", "deployment/web"]);
    assert!(restart.status.success(), "{}", String::from_utf8_lossy(&restart.stderr));
    let object = edited.shop.get(path).await;
    let annotations = &object["spec"]["template"]["metadata"]["annotations"];
    assert!(annotations["kubectl.kubernetes.io/restartedAt"].is_string(), "{annotations}");
    let containers = &object["spec"]["template"]["spec"]["containers"];
    assert_eq!((&containers[0]["env"][1]["name"], &containers[1]["name"]), (&json!("MINE"), &json!("mesh")));
    edited.shop.wait_until_guarded(path).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn undeclared_autoscaler_outside_of_the_declared_replicas_scales_nothing() {
    let Edited { shop, path } = Edited::deployment().await;
    let scale = format!("{path}/scale");
    let autoscaler = Caller::new(ControlPlane::get(), Identity::Autoscaler).await;
    let to = async |replicas: u32| autoscaler.put(&scale, &shop.scale("web", replicas)).await;
    // The second one shows that the guard knows the first.
    shop.autoscale("fixed", "web", (5, 5)).await;
    shop.autoscale("holding", "web", (2, 3)).await;
    eventually("the second autoscaler may scale", SOON, async || to(3).await.done()).await;
    to(5).await.refused(RELEASE).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_autoscaler_may_scale_and_alice_may_scale_back() {
    let edited = Edited::deployment().await;
    let scale = format!("{}/scale", edited.path);
    let autoscaler = Caller::new(ControlPlane::get(), Identity::Autoscaler).await;
    let to = async |by: &Caller, replicas: u32| by.put(&scale, &edited.shop.scale("web", replicas)).await;
    // Without an autoscaler there is nothing that it does here.
    to(&autoscaler, 4).await.refused(RELEASE).unwrap();
    edited.shop.autoscale("web", "web", (1, 5)).await;
    eventually("the autoscaler may scale", SOON, async || to(&autoscaler, 4).await.done()).await;
    to(&autoscaler, 6).await.refused(RELEASE).unwrap();
    to(&edited.shop.alice, 3).await.refused(RELEASE).unwrap();
    edited.merge(json!({"metadata": {"annotations": {"example.org/mine": "yes"}}})).await;
    to(&edited.shop.alice, 2).await.done().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_drifted_field_may_be_restored() {
    let templates = format!("{DEPLOYMENT}---{SETTINGS}");
    let scene = Scene::on(ControlPlane::start()).install("restored", &templates).await;
    let (deployment, config_map) = (scene.deployment("web"), scene.config_map("settings"));
    // Nobody guards it yet.
    let image = format!("{CONTAINER}/image");
    scene
        .alice
        .patch(&deployment, "replace", &image, &json!("registry.example/mine:1"))
        .await
        .done()
        .unwrap();
    scene.alice.merge(&config_map, &json!({"data": {"level": null}})).await.done().unwrap();

    let guard = scene.start_guard(&["--register", "--edits", "Deny", "--drift", "Report"]).await;
    for path in [&deployment, &config_map] {
        scene.wait_until_guarded(path).await;
    }
    // What has drifted neither binds other edits nor may drift on.
    scene.alice.merge(&deployment, &json!({"metadata": {"labels": {"mine": "yes"}}})).await.done().unwrap();
    let other = json!("registry.example/mine:2");
    scene.alice.patch(&deployment, "replace", &image, &other).await.refused(RELEASE).unwrap();
    scene.alice.merge(&config_map, &json!({"data": {"level": "debug"}})).await.refused(RELEASE).unwrap();
    let declared = json!("registry.example/shop:1");
    scene.alice.patch(&deployment, "replace", &image, &declared).await.done().unwrap();
    scene.alice.merge(&config_map, &json!({"data": {"level": "info"}})).await.done().unwrap();
    // Restored, they are guarded as before.
    scene.alice.patch(&deployment, "replace", &image, &other).await.refused(RELEASE).unwrap();
    drop(guard);
}
