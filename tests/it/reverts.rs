//! Edits under `--edits Revert`: what drifts is set back, the rest passes, and Helm owns what it declares, so that
//! its next upgrade changes the same fields without a conflict.

use std::process::Output;

use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::support::{Caller, Chart, ControlPlane, Guard, Helm, Identity, RELEASE, SOON, eventually, forged};

const TEMPLATES: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: {{ .Values.replicas | default 2 }}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: app
        image: registry.example/shop:{{ .Values.tag | default "one" }}
        env: [{name: LEVEL, value: {{ .Values.level | default "info" }}}]
        resources: {limits: {cpu: 1000m}}
---
apiVersion: v1
kind: Secret
metadata: {name: access}
stringData: {password: {{ .Values.password | default "planted-secret" }}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {level: {{ .Values.level | default "info" }}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: job, image: "registry.example/job:one"}]}
"#;

/// A control plane with a guard that sets edits back.
struct Scene {
    control_plane: ControlPlane,
    guard: Guard,
}

/// A release in a namespace of its own, whose Deployment is guarded.
struct Shop {
    scene: &'static Scene,
    namespace: String,
    helm: Helm,
    chart: Chart,
    alice: Caller,
}

impl Scene {
    async fn get() -> &'static Self {
        static SCENE: OnceCell<Scene> = OnceCell::const_new();
        let start = || async {
            let control_plane = ControlPlane::start();
            let flags = ["--register", "--edits", "Revert", "--drift", "Report"];
            let guard = Guard::start(&control_plane, &flags).await;
            Scene { control_plane, guard }
        };
        SCENE.get_or_init(start).await
    }
}

impl Shop {
    async fn install(options: Value) -> Self {
        let scene = Scene::get().await;
        let namespace = scene.control_plane.namespace("revert").await;
        let chart = Chart::new(RELEASE).template("all.yaml", TEMPLATES);
        let helm = Helm::start(&scene.control_plane, Identity::Deployer);
        helm.install(&namespace, RELEASE, &chart, options).await.unwrap();
        let alice = Caller::new(&scene.control_plane, Identity::Alice).await;
        let shop = Self { scene, namespace, helm, chart, alice };
        for path in [shop.deployment(), shop.core("secrets/access"), shop.core("configmaps/settings")] {
            shop.wait_until_guarded(&path).await;
        }
        shop
    }

    fn core(&self, object: &str) -> String {
        format!("/api/v1/namespaces/{}/{object}", self.namespace)
    }

    fn deployment(&self) -> String {
        format!("/apis/apps/v1/namespaces/{}/deployments/web", self.namespace)
    }

    /// Waits until the API server asks the guard about edits of this object.
    async fn wait_until_guarded(&self, path: &str) {
        let mine = json!({"metadata": {
            "labels": {"app.kubernetes.io/managed-by": "alice"}, "annotations": {"mine": "yes"},
        }});
        eventually(&format!("edits of {path} are set back"), SOON, || async {
            let object = self.alice.merge(&format!("{path}?dryRun=All"), &mine).await.done()?;
            let label = &object["metadata"]["labels"]["app.kubernetes.io/managed-by"];
            if label == "Helm" { Ok(()) } else { Err(format!("it would be {label}")) }
        })
        .await;
    }

    async fn get(&self, path: &str) -> Value {
        self.alice.get(path).await.done().unwrap()
    }

    fn kubectl(&self, arguments: &[&str]) -> Output {
        let arguments = [arguments, &["--namespace", &self.namespace]].concat();
        self.scene.control_plane.kubectl(Identity::Alice, &arguments)
    }

    /// Upgrades without force.
    async fn upgrade(&self, values: Value) {
        let options = json!({"values": values});
        let upgraded = self.helm.upgrade(&self.namespace, RELEASE, &self.chart, options).await;
        if let Err(error) = upgraded {
            panic!("{error}\n{}", self.get(&self.deployment()).await["metadata"]["managedFields"]);
        }
    }
}

/// What kubectl says of a command that succeeded.
fn said(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

fn container(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]["spec"]["containers"][0]
}

/// An edit of the image and of a field that nobody declares, made by `edit`.
async fn check_reverted(edit: impl AsyncFnOnce(&Shop) -> String, options: Value) {
    let shop = Shop::install(options).await;
    let warnings = edit(&shop).await;
    let deployment = shop.get(&shop.deployment()).await;
    assert_eq!(container(&deployment)["image"], "registry.example/shop:one");
    assert_eq!(deployment["spec"]["minReadySeconds"], 3, "the rest of the edit is gone");
    for said in [
        "is declared by Helm release shop",
        "set back",
        r#"/image is "registry.example/shop:one" (this edit: "registry.example/mine:1")."#,
    ] {
        assert!(warnings.contains(said), "{said} is not in: {warnings}");
    }
    shop.upgrade(json!({"tag": "two", "level": "debug"})).await;
    let deployment = shop.get(&shop.deployment()).await;
    assert_eq!(container(&deployment)["image"], "registry.example/shop:two");
    assert_eq!(container(&deployment)["env"][0]["value"], "debug");
    assert_eq!(deployment["spec"]["minReadySeconds"], 3);
}

const EDIT: &str = r#"{"spec": {"minReadySeconds": 3, "template": {"spec": {"containers": [
    {"name": "app", "image": "registry.example/mine:1"}]}}}}"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_is_set_back_and_the_next_upgrade_meets_no_conflict() {
    let patch = async |shop: &Shop| said(&shop.kubectl(&["patch", "deployment/web", "--patch", EDIT]));
    check_reverted(patch, json!({})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_of_a_client_side_release() {
    let patch = async |shop: &Shop| said(&shop.kubectl(&["patch", "deployment/web", "--patch", EDIT]));
    check_reverted(patch, json!({"server_side_apply": false})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forced_apply_is_set_back_and_the_next_upgrade_meets_no_conflict() {
    let apply = async |shop: &Shop| {
        let file = crate::support::folder("apply").join("web.yaml");
        let mut manifest: Value = serde_json::from_str(EDIT).unwrap();
        manifest["apiVersion"] = json!("apps/v1");
        manifest["kind"] = json!("Deployment");
        manifest["metadata"] = json!({"name": "web"});
        std::fs::write(&file, manifest.to_string()).unwrap();
        let file = file.display().to_string();
        said(&shop.kubectl(&[
            "apply",
            "--server-side",
            "--force-conflicts",
            "--validate=false",
            "--filename",
            &file,
        ]))
    };
    check_reverted(apply, json!({})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_object_is_set_back_and_the_next_upgrade_meets_no_conflict() {
    let replace = async |shop: &Shop| {
        let file = crate::support::folder("replace").join("web.json");
        let mut object = shop.get(&shop.deployment()).await;
        object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        object["spec"]["minReadySeconds"] = json!(3);
        object["spec"]["template"]["spec"]["containers"][0]["image"] = json!("registry.example/mine:1");
        std::fs::write(&file, object.to_string()).unwrap();
        said(&shop.kubectl(&["replace", "--filename", &file.display().to_string()]))
    };
    check_reverted(replace, json!({})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_image_alone_is_refused_and_leaves_nothing_behind() {
    let shop = Shop::install(json!({})).await;
    let before = shop.get(&shop.deployment()).await;
    let output = shop.kubectl(&["set", "image", "deployment/web", "app=registry.example/mine:1"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("nothing else is in this edit"), "{error}");
    assert_eq!(shop.get(&shop.deployment()).await["spec"], before["spec"]);
    shop.upgrade(json!({"tag": "two"})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scaling_creating_and_deleting_are_refused() {
    let shop = Shop::install(json!({})).await;
    let output = shop.kubectl(&["scale", "deployment/web", "--replicas=5"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("/spec/replicas (declared 2"), "{error}");
    shop.alice.delete(&shop.core("configmaps/settings")).await.refused(RELEASE).unwrap();
    let controller = Caller::new(&shop.scene.control_plane, Identity::NamespaceController).await;
    controller.delete(&shop.core("configmaps/settings")).await.done().unwrap();
    let mine = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"level": "mine"}, "metadata": {
        "name": "settings", "labels": {"app.kubernetes.io/managed-by": "Helm"},
    }});
    shop.alice.post(&shop.core("configmaps"), &mine).await.refused(RELEASE).unwrap();
    shop.upgrade(json!({"level": "debug", "replicas": 3})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_variable_and_a_removed_container_come_back_and_are_helms() {
    let shop = Shop::install(json!({})).await;
    let before = shop.get(&shop.deployment()).await;
    let containers = json!([{"name": "mine", "image": "registry.example/mine:1"}]);
    let pointer = "/spec/template/spec/containers";
    let after = shop.alice.patch(&shop.deployment(), "replace", pointer, &containers).await.done().unwrap();
    let containers = &after["spec"]["template"]["spec"]["containers"];
    assert_eq!(containers[0], *container(&before));
    assert_eq!(containers[1]["name"], "mine");
    let (path, pointer, variables) =
        (shop.deployment(), format!("{pointer}/0/env"), json!([{"name": "MINE"}]));
    let after = shop.alice.patch(&path, "replace", &pointer, &variables).await.done().unwrap();
    assert_eq!(container(&after)["env"], json!([{"name": "LEVEL", "value": "info"}, {"name": "MINE"}]));
    shop.upgrade(json!({"tag": "two", "level": "debug"})).await;
    let after = shop.get(&shop.deployment()).await;
    let variables = json!([{"name": "LEVEL", "value": "debug"}, {"name": "MINE"}]);
    assert_eq!(
        (&container(&after)["image"], &container(&after)["env"]),
        (&json!("registry.example/shop:two"), &variables)
    );
    assert_eq!(after["spec"]["template"]["spec"]["containers"][1]["name"], "mine");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variable_that_was_renamed_comes_back_in_place_of_the_new_one() {
    let shop = Shop::install(json!({})).await;
    let mut edit = shop.get(&shop.deployment()).await;
    edit["spec"]["minReadySeconds"] = json!(3);
    edit["spec"]["template"]["spec"]["containers"][0]["env"][0]["name"] = json!("MINE");
    let path = format!("{}?fieldManager=kubectl-edit", shop.deployment());
    shop.alice.merge(&path, &json!({"spec": edit["spec"]})).await.done().unwrap();
    let deployment = shop.get(&shop.deployment()).await;
    assert_eq!(container(&deployment)["env"], json!([{"name": "LEVEL", "value": "info"}]));
    assert_eq!(deployment["spec"]["minReadySeconds"], 3, "the rest of the edit is gone");
    shop.upgrade(json!({"level": "debug"})).await;
    let deployment = shop.get(&shop.deployment()).await;
    assert_eq!(container(&deployment)["env"], json!([{"name": "LEVEL", "value": "debug"}]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sealed_field_is_set_back() {
    let shop = Shop::install(json!({})).await;
    let mine = json!({"metadata": {"annotations": {"mine": "yes", "helm.sh/resource-policy": "keep"}},
        "spec": {"paused": true}});
    let after = shop.alice.merge(&shop.deployment(), &mine).await.done().unwrap();
    assert_eq!(after["spec"].get("paused"), None);
    assert_eq!(after["metadata"]["annotations"].get("helm.sh/resource-policy"), None);
    assert_eq!(after["metadata"]["annotations"]["mine"], "yes");
    let owned = after["metadata"]["managedFields"].to_string();
    assert!(!owned.contains("f:paused") && !owned.contains("f:helm.sh/resource-policy"), "{owned}");
    let mine = json!({"immutable": true, "data": {"mine": "yes"}});
    let after = shop.alice.merge(&shop.core("configmaps/settings"), &mine).await.done().unwrap();
    assert_eq!((after.get("immutable"), &after["data"]["mine"]), (None, &json!("yes")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_set_back_without_being_told() {
    let shop = Shop::install(json!({})).await;
    let path = shop.core("secrets/access");
    let before = shop.get(&path).await;
    let patch = r#"{"stringData": {"password": "mine-secret", "mine": "yes"}}"#;
    let warnings = said(&shop.kubectl(&["patch", "secret/access", "--patch", patch]));
    assert!(warnings.contains("/data/password is (redacted) (this edit: (redacted))"), "{warnings}");
    let after = shop.get(&path).await;
    assert_eq!(after["data"]["password"], before["data"]["password"]);
    assert_eq!(after["data"]["mine"], "eWVz");
    shop.upgrade(json!({"password": "another-secret"})).await;
    assert_eq!(shop.get(&path).await["data"]["password"], "YW5vdGhlci1zZWNyZXQ=");
    let log = shop.scene.guard.log();
    for planted in ["planted-secret", "mine-secret", "bWluZS1zZWNyZXQ", "cGxhbnRlZC1zZWNyZXQ"] {
        assert!(!log.contains(planted), "{planted} is in the log");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_nothing_declared_passes_without_a_word() {
    let shop = Shop::install(json!({})).await;
    let patch = r#"{"spec": {"minReadySeconds": 3}, "metadata": {"annotations": {"mine": "yes"}}}"#;
    assert_eq!(said(&shop.kubectl(&["patch", "deployment/web", "--patch", patch])), "");
    let after = shop.get(&shop.deployment()).await;
    assert_eq!(after["spec"]["minReadySeconds"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_is_never_completed_with_forged_values() {
    let shop = Shop::install(json!({})).await;
    let manifest = "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  template:\n    spec:\n      containers: [{name: app, image: registry.example/evil:1}]\n";
    let bob = Caller::new(&shop.scene.control_plane, Identity::Bob).await;
    let record = json!(forged(&shop.namespace, RELEASE, 2, "deployed", manifest));
    bob.post(&shop.core("secrets"), &record).await.done().unwrap();
    eventually("the edit is refused rather than completed", SOON, || async {
        let output = shop.kubectl(&["patch", "deployment/web", "--dry-run=server", "--patch", EDIT]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_refused = said.contains("differed from the release before the edit as well");
        if is_refused { Ok(()) } else { Err(said) }
    })
    .await;
    let deployment = shop.get(&shop.deployment()).await;
    assert_eq!(container(&deployment)["image"], "registry.example/shop:one");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_webhook_that_sets_back_is_there_only_while_a_policy_says_so() {
    let control_plane = ControlPlane::start();
    let namespace = control_plane.namespace("registered").await;
    let helm = Helm::start(&control_plane, Identity::Deployer);
    let chart = Chart::new(RELEASE).template("all.yaml", TEMPLATES);
    helm.install(&namespace, RELEASE, &chart, json!({})).await.unwrap();
    let admin = Caller::new(&control_plane, Identity::Admin).await;
    let at =
        |kind: &str| format!("/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/kubemoor");
    let wait_for_webhooks = async |kind: &str, there: bool| {
        eventually(&format!("{kind} is registered: {there}"), SOON, || async {
            (admin.get(&at(kind)).await.code == 200) == there
        })
        .await;
    };
    let flags = |mode| ["--register", "--edits", mode, "--drift", "Report"];
    let wait_for_reverts = async |wanted: bool| {
        eventually(&format!("edits are set back: {wanted}"), SOON, || async {
            let webhooks = admin.get(&at("mutating")).await.done()?["webhooks"].clone();
            let names: Vec<_> =
                webhooks.as_array().into_iter().flatten().map(|webhook| &webhook["name"]).collect();
            // Orders are answered always.
            let is = names.contains(&&json!("orders.kubemoor.dev"))
                && names.contains(&&json!("v1.apps.reverts.kubemoor.dev")) == wanted;
            if is { Ok(()) } else { Err(format!("{names:?}")) }
        })
        .await;
    };
    let guard = Guard::start(&control_plane, &flags("Revert")).await;
    wait_for_reverts(true).await;
    drop(guard);

    let guard = Guard::start(&control_plane, &flags("Deny")).await;
    wait_for_reverts(false).await;
    wait_for_webhooks("validating", true).await;
    drop(guard);

    let guard = Guard::start(&control_plane, &flags("Revert")).await;
    wait_for_reverts(true).await;
    let kubeconfig = control_plane.kubeconfig(Identity::Admin);
    let withdrawn = std::process::Command::new(env!("CARGO_BIN_EXE_kubemoor"))
        .args(["uninstall", "--kubeconfig"])
        .arg(kubeconfig)
        .output()
        .unwrap();
    assert!(withdrawn.status.success(), "{}", String::from_utf8_lossy(&withdrawn.stderr));
    // The guard says so of the one, and does not bring back the other.
    eventually("the guard stands down", SOON, || async { guard.log().contains("was withdrawn") }).await;
    helm.upgrade(&namespace, RELEASE, &chart, json!({"values": {"tag": "two"}})).await.unwrap();
    wait_for_webhooks("mutating", false).await;
    wait_for_webhooks("validating", false).await;
}
