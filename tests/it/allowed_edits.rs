//! Edits of declared objects that change nothing which is declared. The guard is asked about each: an edit that is
//! refused comes before and after it.

use serde_json::{Value, json};

use crate::support::charts::SETTINGS;
use crate::support::{Caller, ControlPlane, Identity, RELEASE, SOON, Scene, define_widgets, eventually};

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

const WIDGET: &str = r#"
apiVersion: allowed.example/v1
kind: Widget
metadata: {name: wheel}
spec: {replicas: 3, parts: [{name: spoke, count: 12}], tags: [round]}
"#;

const CONTAINER: &str = "/spec/template/spec/containers/0";

struct Edited {
    shop: Scene,
    path: String,
}

impl Edited {
    /// A release whose object at `object` will be edited.
    async fn new(templates: &str, api: &str, object: &str) -> Self {
        let shop = Scene::shared().install("allowed", templates).await;
        let path = shop.at(api, object);
        shop.wait_until_guarded(&path).await;
        Self { shop, path }
    }

    async fn deployment() -> Self {
        Self::new(DEPLOYMENT, "apis/apps/v1", "deployments/web").await
    }

    async fn widget() -> Self {
        define_widgets_once().await;
        Self::new(WIDGET, "apis/allowed.example/v1", "widgets/wheel").await
    }

    async fn merge(&self, patch: Value) -> Value {
        let object = self.shop.alice.merge(&self.path, &patch).await.done().unwrap();
        self.shop.wait_until_guarded(&self.path).await;
        object
    }

    async fn patch(&self, operation: &str, pointer: &str, value: Value) -> Value {
        let object = self.shop.alice.patch(&self.path, operation, pointer, &value).await.done().unwrap();
        self.shop.wait_until_guarded(&self.path).await;
        object
    }
}

async fn define_widgets_once() {
    static DEFINED: tokio::sync::OnceCell<Value> = tokio::sync::OnceCell::const_new();
    DEFINED.get_or_init(|| define_widgets(ControlPlane::get(), "allowed.example")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn undeclared_annotations_and_labels_are_anybodys() {
    let edited = Edited::deployment().await;
    let mine = json!({"example.org/mine": "yes"});
    let object = edited.merge(json!({"metadata": {"annotations": mine, "labels": mine}})).await;
    assert_eq!(object["metadata"]["annotations"]["example.org/mine"], "yes");
    let other = json!({"example.org/mine": "no"});
    edited.merge(json!({"metadata": {"annotations": other, "labels": other}})).await;
    let none = json!({"example.org/mine": null});
    let object = edited.merge(json!({"metadata": {"annotations": none, "labels": none}})).await;
    assert_eq!(object["metadata"]["labels"]["example.org/mine"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn finalizers_come_and_go() {
    let edited = Edited::new(SETTINGS, "api/v1", "configmaps/settings").await;
    let object = edited.merge(json!({"metadata": {"finalizers": ["example.org/wait"]}})).await;
    assert_eq!(object["metadata"]["finalizers"], json!(["example.org/wait"]));
    let object = edited.merge(json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(object["metadata"]["finalizers"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn status_writes_pass() {
    for (edited, field) in
        [(Edited::deployment().await, "collisionCount"), (Edited::widget().await, "replicas")]
    {
        let patch = json!({"status": {field: 7}});
        let object =
            edited.shop.alice.merge(&format!("{}/status", edited.path), &patch).await.done().unwrap();
        assert_eq!(object["status"][field], 7);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_restart_passes() {
    let edited = Edited::deployment().await;
    let arguments = ["rollout", "restart", "deployment/web", "--namespace", &edited.shop.namespace];
    let output = ControlPlane::get().kubectl(Identity::Alice, &arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let object = edited.shop.get(&edited.path).await;
    let annotations = &object["spec"]["template"]["metadata"]["annotations"];
    assert!(annotations["kubectl.kubernetes.io/restartedAt"].is_string(), "{annotations}");
    edited.shop.wait_until_guarded(&edited.path).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn another_spelling_of_a_quantity_passes() {
    let edited = Edited::deployment().await;
    let spellings = [
        ("limits/cpu", "1000m"),
        ("requests/cpu", "0.5"),
        ("requests/memory", "1024Mi"),
        ("limits/memory", "2147483648"),
    ];
    for (name, spelling) in spellings {
        edited.patch("replace", &format!("{CONTAINER}/resources/{name}"), json!(spelling)).await;
    }
    let other = format!("{CONTAINER}/resources/limits/cpu");
    edited.shop.alice.patch(&edited.path, "replace", &other, &json!("1001m")).await.refused(RELEASE).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extra_container_and_an_extra_variable_pass() {
    let edited = Edited::deployment().await;
    let sidecar = json!({"name": "mesh", "image": "registry.example/mesh:1"});
    let object = edited.patch("add", "/spec/template/spec/containers/-", sidecar).await;
    assert_eq!(object["spec"]["template"]["spec"]["containers"][1]["name"], "mesh");
    let variable = json!({"name": "MINE", "value": "yes"});
    let object = edited.patch("add", &format!("{CONTAINER}/env/-"), variable).await;
    assert_eq!(object["spec"]["template"]["spec"]["containers"][0]["env"][1]["name"], "MINE");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn extra_elements_of_a_custom_resource_pass() {
    let edited = Edited::widget().await;
    edited.patch("add", "/spec/parts/0", json!({"name": "nut", "count": 6})).await;
    let object = edited.patch("add", "/spec/tags/0", json!("light")).await;
    assert_eq!(object["spec"]["tags"], json!(["light", "round"]));
    // And the declared ones may stand in any order.
    edited.patch("replace", "/spec/tags", json!(["round", "light"])).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn an_update_that_changes_nothing_passes() {
    let edited = Edited::deployment().await;
    let mut live = edited.shop.get(&edited.path).await;
    // The controllers write the status meanwhile.
    live["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    edited.shop.alice.put(&edited.path, &live).await.done().unwrap();
    edited.merge(json!({})).await;
    edited.merge(json!({"spec": {"replicas": 2}})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn undeclared_autoscaler_outside_of_the_declared_replicas_scales_nothing() {
    let edited = Edited::deployment().await;
    let (namespace, scale) = (edited.shop.namespace.clone(), format!("{}/scale", edited.path));
    let autoscaler = Caller::new(ControlPlane::get(), Identity::Autoscaler).await;
    let to = |replicas: u32| {
        json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": {"name": "web", "namespace": namespace}, "spec": {"replicas": replicas},
        })
    };
    let autoscalers = format!("/apis/autoscaling/v1/namespaces/{namespace}/horizontalpodautoscalers");
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    // The second one shows that the guard knows the first.
    for (name, fewest, most) in [("fixed", 5, 5), ("holding", 2, 3)] {
        let spec = json!({"scaleTargetRef": target, "minReplicas": fewest, "maxReplicas": most});
        let made = json!({"metadata": {"name": name}, "spec": spec});
        edited.shop.alice.post(&autoscalers, &made).await.done().unwrap();
    }
    eventually("the second autoscaler may scale", SOON, async || autoscaler.put(&scale, &to(3)).await.done())
        .await;
    autoscaler.put(&scale, &to(5)).await.refused(RELEASE).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_autoscaler_may_scale_and_alice_may_scale_back() {
    let edited = Edited::deployment().await;
    let scale = format!("{}/scale", edited.path);
    let autoscaler = Caller::new(ControlPlane::get(), Identity::Autoscaler).await;
    let to = |replicas: u32| {
        json!({
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {"name": "web", "namespace": edited.shop.namespace},
            "spec": {"replicas": replicas},
        })
    };
    // Without an autoscaler there is nothing that it does here.
    autoscaler.put(&scale, &to(4)).await.refused(RELEASE).unwrap();
    let autoscalers =
        format!("/apis/autoscaling/v1/namespaces/{}/horizontalpodautoscalers", edited.shop.namespace);
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let spec = json!({"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 5});
    edited
        .shop
        .alice
        .post(&autoscalers, &json!({"metadata": {"name": "web"}, "spec": spec}))
        .await
        .done()
        .unwrap();
    eventually("the autoscaler may scale", SOON, async || autoscaler.put(&scale, &to(4)).await.done()).await;
    autoscaler.put(&scale, &to(6)).await.refused(RELEASE).unwrap();
    edited.shop.alice.put(&scale, &to(3)).await.refused(RELEASE).unwrap();
    edited.merge(json!({"metadata": {"annotations": {"example.org/mine": "yes"}}})).await;
    edited.shop.alice.put(&scale, &to(2)).await.done().unwrap();
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
