//! What somebody who may write Secrets or send anything can try, and what he does not get by it.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::support::{
    Cluster, ControlPlane, Identity, Review, SOON, Scene, bomb, charts, eventually, forged, holding,
    record_name, refusal,
};

/// What a guard may take while it reads the worst of records.
const MEMORY: u64 = 200 << 20;

/// Its guard takes an operation for dead after a second.
static IMPATIENT: Cluster =
    Cluster::new(&["--register", "--edits", "Deny", "--drift", "Repair", "--operation-timeout", "1s"]);

fn config_map(name: &str, namespace: &str, data: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {namespace}}}\ndata: {data}\n"
    )
}

async fn write(secrets: &Api<Secret>, record: &Secret) {
    secrets.create(&PostParams::default(), record).await.unwrap();
}

async fn install(prefix: &str) -> Scene {
    let shop = Scene::shared().install(prefix, charts::IMAGE_AND_COLOR).await;
    shop.wait_until_guarded(&shop.config_map("settings")).await;
    shop
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_release_is_never_given_the_guards_rights() {
    let (control_plane, guard) = (IMPATIENT.control_plane(), IMPATIENT.guard().await);
    let client = control_plane.client(Identity::Alice).await;
    let namespace = control_plane.namespace("attack-rights").await;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let name = format!("{namespace}-gift");
    let binding = format!(
        "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: {name}}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}}\n\
         subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: mallory}}]\n"
    );
    let manifest = binding + &config_map("loot", &namespace, "{a: '1'}");
    // Through a pending status, since what first appears as deployed is left alone for a while anyway.
    write(&secrets, &forged(&namespace, "evil", 1, "pending-install", &manifest)).await;
    let mut record = secrets.get(&record_name("evil", 1)).await.unwrap();
    let honest = forged(&namespace, "evil", 1, "deployed", &manifest);
    (record.metadata.labels, record.data) = (honest.metadata.labels, honest.data);
    secrets.replace(&record_name("evil", 1), &PostParams::default(), &record).await.unwrap();

    let loot = format!("ConfigMap/loot in namespace {namespace}");
    eventually("the guard says that the ConfigMap is missing", SOON, || async {
        guard.log().lines().any(|line| line.contains(&loot) && line.contains("is not re-created"))
    })
    .await;
    // What lies outside of the namespace is not even asked for.
    assert!(!guard.log().contains(&name), "{}", guard.log());
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    assert!(bindings.get_opt(&name).await.unwrap().is_none());
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    assert!(maps.get_opt("loot").await.unwrap().is_none());
    let tried = control_plane
        .audit_events(&[Identity::Guard.user(), "clusterrolebindings"])
        .into_iter()
        .find(|event| {
            event["verb"] == "create"
                && event["user"]["username"] == Identity::Guard.user()
                && event["objectRef"]["resource"] == "clusterrolebindings"
        });
    assert_eq!(tried, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_release_has_no_effect_on_objects_of_another_namespace() {
    let control_plane = ControlPlane::get();
    let shop = install("attack-victim").await;
    let free = charts::labelled("free", json!({"a": "0"}));
    shop.alice.post(&shop.core("configmaps"), &json!(free)).await.done().unwrap();
    let thief = control_plane.namespace("attack-thief").await;
    let client = control_plane.client(Identity::Alice).await;
    let there = &shop.namespace;
    let manifest = config_map("settings", there, "{image: stolen, mine: '1'}")
        + &config_map("free", there, "{a: '1'}")
        + &config_map("witness", &thief, "{a: '1'}");
    let witnesses: Api<ConfigMap> = Api::namespaced(client.clone(), &thief);
    witnesses.create(&PostParams::default(), &charts::labelled("witness", json!({"a": "0"}))).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(client, &thief);
    write(&secrets, &forged(&thief, "thief", 1, "deployed", &manifest)).await;
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    let edit = Patch::Merge(json!({"data": {"a": "2"}}));
    eventually("the guard knows the second release", SOON, || async {
        refusal(witnesses.patch("witness", &dry_run, &edit).await)
    })
    .await;

    // It neither lets through nor refuses.
    let message = shop.data("settings", json!({"image": "stolen"})).await.refusal().unwrap();
    assert!(message.contains(there) && !message.contains(&thief), "{message}");
    shop.data("settings", json!({"mine": "2"})).await.done().unwrap();
    shop.data("free", json!({"a": "2"})).await.done().unwrap();
    shop.alice.delete(&shop.config_map("free")).await.done().unwrap();

    // It re-creates nothing: what goes later is back, by its own release's manifest.
    let collector = control_plane.client(Identity::GarbageCollector).await;
    let maps: Api<ConfigMap> = Api::namespaced(collector, there);
    maps.delete("settings", &DeleteParams::default()).await.unwrap();
    let settings = eventually("the release's own object is back", SOON, || async {
        shop.alice.get(&shop.config_map("settings")).await.done()
    })
    .await;
    assert_eq!(settings["data"], json!({"image": "a"}));
    assert_eq!(shop.alice.get(&shop.config_map("free")).await.code, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_pending_record_permits_only_changes_that_match_it() {
    let shop = install("attack-pending").await;
    let manifest = config_map("settings", &shop.namespace, "{image: forged}");
    write(&shop.secrets().await, &forged(&shop.namespace, "shop", 2, "pending-upgrade", &manifest)).await;

    shop.data("settings", json!({"image": "neither"})).await.refusal().unwrap();
    shop.data("settings", json!({"image": "forged"})).await.done().unwrap();
    shop.data("settings", json!({"image": "neither"})).await.refusal().unwrap();
    // Only the latest record counts: the deployed one is not the declaration now.
    shop.data("settings", json!({"image": "a"})).await.refusal().unwrap();

    shop.alice.delete(&shop.core(&format!("secrets/{}", record_name("shop", 2)))).await.done().unwrap();
    shop.data("settings", json!({"image": "neither"})).await.refusal().unwrap();
    shop.data("settings", json!({"image": "a"})).await.done().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_record_that_nobody_touches_authorises_no_deletion() {
    let shop = Scene::on_cluster(&IMPATIENT).install("attack-locked", charts::IMAGE_AND_COLOR).await;
    shop.wait_until_guarded(&shop.config_map("settings")).await;
    let manifest = config_map("settings", &shop.namespace, "{image: forged}");
    write(&shop.secrets().await, &forged(&shop.namespace, "shop", 2, "pending-upgrade", &manifest)).await;
    shop.data("settings", json!({"image": "forged"})).await.done().unwrap();
    eventually("an edit may agree with the baseline again", SOON, || async {
        shop.data("settings", json!({"image": "a"})).await.done()
    })
    .await;
    for name in ["settings", "extra"] {
        let message = shop
            .alice
            .delete(&shop.config_map(name))
            .await
            .refusal()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(message.contains("Its deletion is not allowed"), "{message}");
    }
    shop.data("settings", json!({"image": "neither"})).await.refusal().unwrap();
    shop.data("extra", json!({"color": "red"})).await.refusal().unwrap();
    shop.data("settings", json!({"image": "forged"})).await.done().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn owner_reference_to_nonexistent_object_is_refused() {
    let shop = install("attack-owner").await;
    let owner = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "nowhere", "uid": "11111111-2222-3333-4444-555555555555",
    });
    let patch = json!({"metadata": {"ownerReferences": [owner]}});
    let message = shop.alice.merge(&shop.config_map("settings"), &patch).await.refusal().unwrap();
    assert!(message.contains("/metadata/ownerReferences"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_or_nested_review_is_refused_only_for_declared_object() {
    let shop = install("attack-size").await;
    let padding = "x".repeat(40 << 20);
    let levels = 100_000;
    let nested = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    // What no parser holds is sent as it is.
    let object = |name: &str, data: &str| {
        let metadata = json!({"name": name, "namespace": shop.namespace});
        format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{metadata},"data":{data}}}"#)
    };
    let check = async |what: &str, name: &str, data: String, passes: bool| {
        let (old, new) = (object(name, r#"{"image":"a"}"#), object(name, &data));
        let review = Review { name, ..Review::of_settings(&shop.namespace, &old, &new) };
        let reply = shop.guard().judge(review.text()).await;
        assert_eq!(reply.passes(), passes, "{what} of {name}: {reply:?}");
    };
    for (name, passes) in [("settings", false), ("undeclared", true)] {
        check("40 MiB", name, format!(r#"{{"image":"{padding}"}}"#), passes).await;
        check("100,000 levels", name, format!(r#"{{"image":{nested}}}"#), passes).await;
        check("100,000 levels first", name, nested.clone(), passes).await;
    }
    // Nobody else notices.
    shop.data("settings", json!({"image": "b"})).await.refusal().unwrap();
    shop.data("settings", json!({"undeclared": "b"})).await.done().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn decompression_bomb_in_record_causes_only_one_warning() {
    let shop = Scene::on(ControlPlane::start()).install("bombed", charts::IMAGE_AND_COLOR).await;
    let guard = shop.start_guard(&["--register", "--edits", "Deny", "--drift", "Repair"]).await;
    let other = shop.install_beside("beside").await;
    shop.wait_until_guarded(&shop.config_map("settings")).await;
    other.wait_until_guarded(&other.config_map("settings")).await;
    // The cap is what bounds the cost: a Secret holds no gzip that grows to more than about 780 MB.
    let record = holding(&shop.namespace, "shop", 2, "deployed", bomb(700_000_000));
    let secrets = shop.secrets().await;
    // A new record may be incomplete, so the webhook lets it pass, whether there is time to read it or not.
    secrets.create(&PostParams::default(), &record).await.unwrap();
    let warnings = || {
        let log = guard.log();
        log.lines().filter(|line| line.contains(&record_name("shop", 2)) && line.contains("WARN")).count()
    };
    eventually("the guard warns of the record", SOON, || async { warnings() > 0 }).await;
    shop.wait_until_guarded(&shop.config_map("settings")).await;
    let message = shop.data("settings", json!({"image": "b"})).await.refusal().unwrap();
    assert!(message.contains("(revision 1)"), "{message}");
    shop.data("settings", json!({"undeclared": "b"})).await.done().unwrap();
    other.data("settings", json!({"image": "b"})).await.refusal().unwrap();
    other.upgrade(json!({"values": {"image": "b"}})).await.unwrap();
    other.data("settings", json!({"image": "a"})).await.refusal().unwrap();
    assert_eq!(warnings(), 1, "{}", guard.log());
    guard.wait_for_log("manifest has more than 16777216 bytes").await;
    guard.wait_for_metric(r#"kubemoor_records_undecodable_total{reason="too_large"} 1"#).await;
    let peak = guard.peak_memory();
    assert!(peak < MEMORY, "the guard took {} MiB", peak >> 20);
}

/// Has the API server ask nobody about records. The guard leaves that setting to the cluster's admin.
pub(crate) async fn look_away_from_records(webhooks: &Api<ValidatingWebhookConfiguration>) {
    let mut configuration = webhooks.get("kubemoor").await.unwrap();
    let nowhere = serde_json::from_value(json!({"matchLabels": {"nowhere": "at-all"}})).unwrap();
    let records = configuration.webhooks.iter_mut().flatten().find(|it| it.name == "records.kubemoor.dev");
    records.unwrap().namespace_selector = Some(nowhere);
    webhooks.replace("kubemoor", &PostParams::default(), &configuration).await.unwrap();
}
