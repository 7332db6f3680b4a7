//! A mutating webhook of somebody else's that rewrites declared values for good, as registry mirrors and policy engines
//! do: what it has made of Helm's own write is the declared value, as long as the API server makes the same of the
//! manifest; nobody else's value is.

use serde_json::{Value, json};

use crate::support::{ControlPlane, Rewriter, SOON, Scene, eventually, wait_until_guarded};

const IMAGE: &str = "/spec/template/spec/containers/0/image";

fn templates(tag: &str) -> String {
    format!(
        "
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      tolerations: [{{key: arm, operator: Exists}}]
      containers: [{{name: app, image: 'registry.example/web:{tag}'}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: settings}}
data: {{level: info}}
"
    )
}

fn mirrored(tag: &str) -> Value {
    json!(format!("mirror.example/registry.example/web:{tag}"))
}

fn image(image: &str) -> Value {
    json!([{"op": "replace", "path": IMAGE, "value": image}])
}

struct Mirrored {
    scene: Scene,
    web: String,
    _rewriter: Rewriter,
}

impl Mirrored {
    /// A release that Helm has installed through a webhook that rewrites.
    async fn install(prefix: &str, options: Value) -> Self {
        let control_plane = ControlPlane::start();
        control_plane.define_policies();
        let rewriter = Rewriter::start(&control_plane).await;
        let scene = Scene::on(control_plane).options(options).install(prefix, &templates("1")).await;
        let web = scene.deployment("web");
        let this = Self { scene, web, _rewriter: rewriter };
        this.wait_until_mirrored("1").await;
        this
    }

    async fn wait_until_mirrored(&self, tag: &str) {
        let object = self.scene.wait_for_value(&self.web, IMAGE, mirrored(tag)).await;
        assert_eq!(object["spec"]["template"]["spec"]["tolerations"][1]["key"], "spot");
    }

    /// Changes the image as this field manager.
    async fn edit(&self, manager: &str, tag: &str) {
        let path = format!("{}?fieldManager={manager}", self.web);
        self.scene.alice.patch_all(&path, &image(mirrored(tag).as_str().unwrap())).await.done().unwrap();
    }

    /// Waits until the guard has written the Deployment so many times; what met a conflict was tried again.
    async fn wait_for_writes(&self, times: usize) {
        eventually(&format!("the guard has written it {times} times"), SOON, || async {
            let done = self.scene.answers("deployments").into_iter().filter(|code| *code < 300).count();
            if done == times { Ok(()) } else { Err(done.to_string()) }
        })
        .await;
    }

    fn dry_runs(&self) -> usize {
        self.scene.control_plane.audited("fieldManager=kubemoor-probe")
    }
}

/// What the loop does about such a release, however Helm writes it.
async fn check_loop(prefix: &str, options: Value) {
    let is_applied = options == json!({});
    let mirrored = Mirrored::install(prefix, options).await;
    let scene = &mirrored.scene;
    let mut guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_reason("InSync").await;
    scene.wait_for_confirmed(2).await;
    assert_eq!(scene.writes("deployments"), 0, "{}", guard.log());
    let asked = mirrored.dry_runs();

    // Edits of other fields are nothing to the guard; others of this field are, whoever they say to be by.
    for (repaired, manager) in ["kubectl-edit", "python3", "helm"].into_iter().enumerate() {
        scene.edit(&mirrored.web, json!({"metadata": {"labels": {"edited-by": manager}}})).await;
        mirrored.edit(manager, "evil").await;
        mirrored.wait_until_mirrored("1").await;
        scene.wait_for_reason("InSync").await;
        mirrored.wait_for_writes(repaired + 1).await;
    }
    assert!(mirrored.dry_runs() <= asked + 1, "one for each life of an object and revision");

    // Nobody edits, and nobody is asked: a new guard knows what the one before knew.
    guard.terminate();
    mirrored.edit("python3", "evil").await;
    guard.start_again().await;
    mirrored.wait_until_mirrored("1").await;
    scene.wait_for_reason("InSync").await;

    // Who sets what the manifest says owns the field beside Helm, until the guard gives it back.
    let path = format!("{}?fieldManager=kubectl-edit", mirrored.web);
    scene.alice.patch_all(&path, &image("registry.example/web:1")).await.done().unwrap();
    mirrored.wait_for_writes(if is_applied { 5 } else { 4 }).await;
    let writes = scene.writes("deployments");
    scene.upgrade_to(&templates("2"), json!({})).await.unwrap();
    mirrored.wait_until_mirrored("2").await;
    scene
        .status("the second revision", |status| {
            status["revision"] == 2
                && status["conditions"][0]["reason"] == "InSync"
                && status["confirmed"] == 2
        })
        .await;
    assert_eq!(scene.writes("deployments"), writes, "{}", guard.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn rewritten_values_of_helm_4_are_canonical_for_the_loop() {
    check_loop("mirror-ssa", json!({})).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn rewritten_values_of_helm_3_are_canonical_for_the_loop() {
    check_loop("mirror-csa", json!({"server_side_apply": false})).await;
}

/// What the webhook says of edits, in this mode.
async fn check_edits(prefix: &str, mode: &str) {
    let mirrored = Mirrored::install(prefix, json!({})).await;
    let scene = &mirrored.scene;
    let guard = scene.start_guard(&["--register", "--edits", mode, "--drift", "Report"]).await;
    scene.wait_for_reason("InSync").await;
    wait_until_guarded(&scene.alice, "shop", &scene.config_map("settings")).await;
    if mode == "Deny" {
        wait_until_guarded(&scene.alice, "shop", &mirrored.web).await;
    }
    let label = json!({"metadata": {"labels": {"edited-by": "alice"}}, "spec": {"minReadySeconds": 3}});
    scene.alice.merge(&mirrored.web, &label).await.done().unwrap();
    mirrored.wait_until_mirrored("1").await;
    for manager in ["kubectl-edit", "python3"] {
        let path = format!("{}?fieldManager={manager}", mirrored.web);
        scene.alice.patch_all(&path, &image("registry.example/web:evil")).await.refused("shop").unwrap();
    }
    let both = json!([
        {"op": "replace", "path": IMAGE, "value": "registry.example/web:evil"},
        {"op": "replace", "path": "/spec/minReadySeconds", "value": 5},
    ]);
    let edited = scene.alice.patch_all(&mirrored.web, &both).await;
    match mode {
        "Deny" => edited.refused("shop").unwrap(),
        _ => assert_eq!(edited.done().unwrap()["spec"]["minReadySeconds"], 5),
    }
    mirrored.wait_until_mirrored("1").await;
    scene.upgrade_to(&templates("2"), json!({})).await.unwrap();
    mirrored.wait_until_mirrored("2").await;
    scene
        .status("the second revision", |status| {
            status["revision"] == 2 && status["conditions"][0]["reason"] == "InSync"
        })
        .await;
    // What the manifest says, and what becomes of it, is what there is.
    scene.alice.patch_all(&mirrored.web, &image("registry.example/web:2")).await.done().unwrap();
    assert_eq!(scene.writes("deployments"), 0, "{}", guard.log());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn edits_of_rewritten_values_are_refused_and_others_pass() {
    check_edits("mirror-deny", "Deny").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn edits_of_rewritten_values_are_reverted_to_what_they_were() {
    check_edits("mirror-revert", "Revert").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn edits_that_bring_a_rewritten_value_back_pass() {
    let mirrored = Mirrored::install("mirror-back", json!({})).await;
    let scene = &mirrored.scene;
    let mut guard = scene.start_guard(&["--register", "--edits", "Deny", "--drift", "Report"]).await;
    scene.wait_for_reason("InSync").await;
    wait_until_guarded(&scene.alice, "shop", &mirrored.web).await;
    guard.terminate();
    mirrored.edit("kubectl-edit", "evil").await;
    guard.start_again().await;
    scene.wait_for_reason("Drifted").await;
    wait_until_guarded(&scene.alice, "shop", &mirrored.web).await;
    mirrored.edit("kubectl-edit", "1").await;
    scene.wait_for_reason("InSync").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn rewritten_values_are_in_doubt_without_the_right_to_patch() {
    let mirrored = Mirrored::install("mirror-doubt", json!({})).await;
    let _guard = mirrored.scene.start_guard(&["--drift", "Report"]).await;
    let status = mirrored.scene.wait_for_reason("Unsettled").await;
    assert_eq!(status["drifts"][0]["object"]["name"], "web", "{status}");
}
