//! What tenants can do to each other by claiming objects: forged claims from other namespaces, claims in other API
//! versions, records that nobody can read, and rights that the guard lacks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Subject};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::helm_scene::{HelmScene, shop, with};
use crate::support::{
    Caller, Chart, ControlPlane, Identity, Review, SOON, Scene, charts, define_widgets, eventually, forged,
    record_name, refusal,
};

/// Enough to use up every look that a verdict may take.
const FORGED: u32 = 9;

/// A tenant who writes Secrets in a namespace of its own and nowhere else.
struct Thief {
    namespace: String,
    secrets: Api<Secret>,
    maps: Api<ConfigMap>,
}

impl Thief {
    async fn new(control_plane: &ControlPlane, prefix: &str) -> Self {
        let client = control_plane.client(Identity::Bob).await;
        let namespace = control_plane.namespace(prefix).await;
        let secrets = Api::namespaced(client.clone(), &namespace);
        let maps = Api::namespaced(client, &namespace);
        maps.create(&PostParams::default(), &charts::labelled("witness", json!({"a": "0"}))).await.unwrap();
        Self { namespace, secrets, maps }
    }

    /// Writes a record that declares these documents, and a witness of its own; waits until the guard knows it.
    async fn forge(&self, release: &str, documents: &str) {
        let namespace = &self.namespace;
        let witness = format!("witness-{release}");
        self.maps
            .create(&PostParams::default(), &charts::labelled(&witness, json!({"a": "0"})))
            .await
            .unwrap();
        let manifest = format!(
            "{documents}---\napiVersion: v1\nkind: ConfigMap\n\
             metadata: {{name: {witness}, namespace: {namespace}}}\ndata: {{a: '1'}}\n"
        );
        let record = forged(namespace, release, 1, "deployed", &manifest);
        self.secrets.create(&PostParams::default(), &record).await.unwrap();
        let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
        let edit = Patch::Merge(json!({"data": {"a": "2"}}));
        eventually("the guard knows the forged release", SOON, || async {
            refusal(self.maps.patch(&witness, &dry_run, &edit).await)
        })
        .await;
    }
}

fn deployment(namespace: &str, replicas: u32) -> String {
    format!(
        "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: {namespace}}}\n\
         spec: {{replicas: {replicas}}}\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_foreign_claims_let_no_scale_through() {
    let scene = HelmScene::shared("attack-scaled").await;
    let thief = Thief::new(ControlPlane::get(), "attack-scaler").await;
    // Some claims are there before the release's own, some come after it.
    for number in 0..FORGED {
        thief.forge(&format!("early-{number}"), &deployment(&scene.namespace, 7)).await;
    }
    scene.install("web", &shop(), with(json!({"replicas": 2}))).await;
    scene.assert_refused("deployment/web", r#"{"spec": {"replicas": 9}}"#).await;
    for number in 0..FORGED {
        thief.forge(&format!("late-{number}"), &deployment(&scene.namespace, 7)).await;
    }
    scene.assert_refused_now(&["scale", "deployment/web", "--replicas=7"]);
    scene.assert_refused_now(&["scale", "deployment/web", "--replicas=8"]);
    // Whoever forges claims does not stand in the way of the owner either.
    scene.run(&["scale", "deployment/web", "--replicas=2"]);
    scene.upgrade("web", &shop(), with(json!({"replicas": 3}))).await;
    scene.assert_refused_now(&["scale", "deployment/web", "--replicas=2"]);
    scene.rollback("web", json!({"version": 1})).await;
    scene.assert_as_declared("web").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn scale_of_an_object_in_another_namespace_follows_its_owner() {
    let scene = HelmScene::shared("attack-abroad").await;
    let there = ControlPlane::get().namespace("attack-lodged").await;
    let thief = Thief::new(ControlPlane::get(), "attack-lodger").await;
    thief.forge("early", &deployment(&there, 7)).await;
    let lodger = format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: {there}}}\nspec:\n  replicas: 2\n  \
         selector: {{matchLabels: {{app: web}}}}\n  template:\n    metadata: {{labels: {{app: web}}}}\n    \
         spec: {{containers: [{{name: app, image: registry.example/web}}]}}\n"
    );
    scene.install("lodger", &Chart::new("lodger").template("all.yaml", &lodger), json!({})).await;
    scene.assert_refused_now(&["--namespace", &there, "scale", "deployment/web", "--replicas=7"]);
    scene.run(&["--namespace", &there, "scale", "deployment/web", "--replicas=2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn edit_naming_a_constantly_rewritten_release_is_refused() {
    let shop = Scene::shared().install("attack-named", charts::IMAGE_AND_COLOR).await;
    shop.wait_until_guarded(&shop.config_map("settings")).await;
    let thief = Thief::new(&shop.control_plane, "attack-mover").await;
    thief.forge("moving", "").await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for writer in 0..6 {
        let (stop, secrets) = (Arc::clone(&stop), thief.secrets.clone());
        writers.push(tokio::spawn(async move {
            let mut count = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                count += 1;
                let note = json!({"metadata": {"annotations": {format!("w{writer}"): count.to_string()}}});
                let patch = Patch::Merge(note);
                let _ = secrets.patch(&record_name("moving", 1), &PatchParams::default(), &patch).await;
            }
        }));
    }
    let mut passed = Vec::new();
    for number in 0..60 {
        let name = "moving";
        let annotations =
            json!({"meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": thief.namespace});
        let patch =
            json!({"metadata": {"annotations": annotations}, "data": {"image": format!("mine-{number}")}});
        if let Err(other) =
            shop.alice.merge(&format!("{}?dryRun=All", shop.config_map("settings")), &patch).await.refusal()
        {
            passed.push(format!("{name} {number}: {other}"));
        }
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    assert!(passed.is_empty(), "{} of 60: {passed:#?}", passed.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn uncertain_edit_is_refused_if_guard_may_not_dry_run() {
    let control_plane = ControlPlane::get();
    let group = "no-arbiter.example";
    define_widgets(control_plane, group).await;
    let client = control_plane.client(Identity::Admin).await;
    let roles: Api<ClusterRole> = Api::all(client);
    let reading = json!({"rules": [
        {"apiGroups": [group], "resources": ["widgets"], "verbs": ["get", "list", "watch"]},
    ]});
    let name = format!("kubemoor-widgets-of-{group}");
    roles.patch(&name, &PatchParams::default(), &Patch::Merge(reading)).await.unwrap();
    eventually("the guard may not patch widgets", SOON, || async {
        let widgets = format!("widgets.{group}");
        let asked = control_plane.kubectl(Identity::Guard, &["auth", "can-i", "patch", &widgets]);
        String::from_utf8_lossy(&asked.stdout).starts_with("no")
    })
    .await;
    let scene = HelmScene::shared("attack-doubt").await;
    let text = format!(
        "apiVersion: {group}/v1\nkind: Widget\nmetadata: {{name: web}}\nspec: {{free: {{cpu: 1000m}}, port: 80}}\n"
    );
    scene.install("web", &Chart::new("widgets").template("all.yaml", &text), json!({})).await;
    let target = format!("widgets.{group}/web");
    scene.assert_refused(&target, r#"{"spec": {"port": 81}}"#).await;
    scene.assert_patch_refused_now(&target, r#"{"spec": {"free": {"cpu": "1"}}}"#).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_lost_its_rights_still_refuses() {
    let victim = Scene::on(ControlPlane::start()).install("attack-rightless", charts::IMAGE_AND_COLOR).await;
    let guard = victim.start_guard(&["--register", "--edits", "Deny"]).await;
    let control_plane = &victim.control_plane;
    victim.wait_until_guarded(&victim.config_map("settings")).await;
    let bindings: Api<ClusterRoleBinding> = Api::all(control_plane.client(Identity::Admin).await);
    for binding in bindings.list(&ListParams::default()).await.unwrap() {
        let is_guards = |subject: &Subject| subject.namespace.as_deref() == Some("kubemoor-system");
        if binding.subjects.iter().flatten().any(is_guards) {
            bindings.delete(&binding.metadata.name.unwrap(), &DeleteParams::default()).await.unwrap();
        }
    }
    eventually("the guard may list no records", SOON, || async {
        let asked = control_plane.kubectl(Identity::Guard, &["auth", "can-i", "list", "secrets", "-A"]);
        String::from_utf8_lossy(&asked.stdout).starts_with("no")
    })
    .await;
    let refused = victim.data("settings", json!({"image": "mine"})).await.refusal();
    refused.unwrap_or_else(|other| panic!("{other}\n{}", guard.log()));
    let refused = victim.alice.delete(&victim.config_map("settings")).await.refusal();
    refused.unwrap_or_else(|other| panic!("{other}\n{}", guard.log()));
    // Whether somebody may have an allowance cannot be asked either.
    let wish =
        json!({"kubemoor.dev/allow": "/data/image", "kubemoor.dev/allow-until": "2999-01-01T00:00:00Z"});
    let patch = json!({"metadata": {"annotations": wish}, "data": {"image": "mine"}});
    let refused = victim.alice.merge(&victim.config_map("settings"), &patch).await.refusal();
    refused.unwrap_or_else(|other| panic!("{other}\n{}", guard.log()));
    victim.data("settings", json!({"undeclared": "mine"})).await.done().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_helms_label_through_the_status_is_refused() {
    let shop = Scene::shared().install("attack-status", charts::IMAGE_AND_COLOR).await;
    shop.wait_until_guarded(&shop.config_map("settings")).await;
    let namespace = &shop.namespace;
    let object = |label: &str, release: &str, image: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "settings", "namespace": namespace,
                "labels": {"app.kubernetes.io/managed-by": label},
                "annotations": {
                    "meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": namespace,
                }},
            "data": {"image": image}})
        .to_string()
    };
    let old = object("Helm", "shop", "a");
    let ask = async |new: String| {
        let review = Review::of_settings(namespace, &old, &new);
        let text = review.text().replace(
            r#""name":"settings","namespace""#,
            r#""subResource":"status","name":"settings","namespace""#,
        );
        assert!(text.contains("subResource"));
        shop.guard().judge(text).await
    };
    assert!(!ask(object("me", "shop", "a")).await.passes());
    assert!(!ask(object("Helm", "mine", "a")).await.passes());
    assert!(ask(object("Helm", "shop", "a")).await.passes());

    // A server that knows no conditions would send every status.
    let webhooks: Api<ValidatingWebhookConfiguration> =
        Api::all(shop.control_plane.client(Identity::Alice).await);
    let webhooks = webhooks.get("kubemoor").await.unwrap().webhooks.unwrap();
    let names: Vec<_> = webhooks.iter().map(|webhook| webhook.name.as_str()).collect();
    let statuses = names.iter().any(|name| name.ends_with(".status.kubemoor.dev"));
    assert_eq!(statuses, ControlPlane::get().minor() >= 28, "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn status_update_cannot_remove_managed_by_label_of_service() {
    let scene = HelmScene::shared("attack-by-status").await;
    scene.install("shop", &shop(), with(json!({}))).await;
    let alice = Caller::new(ControlPlane::get(), Identity::Alice).await;
    let status = format!("/api/v1/namespaces/{}/services/web/status?dryRun=All", scene.namespace);
    let drop = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}});
    let harmless = json!({"metadata": {"labels": {"mine": "yes"}}});
    // Where the server knows no conditions, every status would be sent.
    let is_judged = ControlPlane::get().minor() >= 28;
    eventually("the API server has the webhook for statuses", SOON, || async {
        let answer = alice.merge(&status, &drop).await;
        if is_judged { answer.refused("shop") } else { answer.done().map(|_| ()) }
    })
    .await;
    alice.merge(&status, &harmless).await.done().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_creation_shows_values_only_to_who_may_get_the_object() {
    let shop = Scene::policed().install("attack-shown", charts::SETTINGS).await;
    let settings = shop.config_map("settings");
    shop.wait_until_guarded(&settings).await;
    // Somebody who may create objects in the namespace, and read none.
    let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{}", shop.namespace);
    let role = json!({
        "metadata": {"name": "creator"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "update"]}],
    });
    shop.admin.post(&format!("{rbac}/roles"), &role).await.done().unwrap();
    let binding = json!({
        "metadata": {"name": "creator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "creator"},
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": Identity::Autoscaler.user()},
        ],
    });
    shop.admin.post(&format!("{rbac}/rolebindings"), &binding).await.done().unwrap();
    let creator = Caller::new(&shop.control_plane, Identity::Autoscaler).await;

    let mut guess = shop.get(&settings).await;
    guess["metadata"] = json!({
        "name": "settings", "labels": guess["metadata"]["labels"],
        "annotations": guess["metadata"]["annotations"],
    });
    guess["data"] = json!({"level": "guess"});
    let create = shop.core("configmaps?dryRun=All");
    let seen = shop.alice.post(&create, &guess).await.refusal().unwrap();
    assert!(seen.contains(r#"(release: "info")"#), "{seen}");
    let update = format!("{settings}?dryRun=All");
    let refusals = eventually("the right to create counts", SOON, || async {
        let created = creator.post(&create, &guess).await.refusal()?;
        let updated = creator.put(&update, &guess).await.refusal()?;
        Ok::<_, String>([created, updated])
    })
    .await;
    for unseen in refusals {
        assert!(!unseen.contains("info") && unseen.contains("\n  data.level\n"), "{unseen}");
        assert!(unseen.contains("Values are shown only to users who may get the object."), "{unseen}");
    }
}
