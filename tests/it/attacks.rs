//! What somebody who may write Secrets or send anything can try, and what he does not get by it.

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::support::{
    ControlPlane, Guard, Identity, Review, Victim, bomb, eventually, forged, holding, labelled, record_name,
    refusal,
};

const WITHIN: Duration = Duration::from_secs(30);

/// What a guard may take while it reads the worst of records.
const MEMORY: u64 = 200 << 20;

/// A control plane whose guard takes an operation for dead after a second.
async fn impatient() -> &'static (ControlPlane, Guard) {
    static IMPATIENT: OnceCell<(ControlPlane, Guard)> = OnceCell::const_new();
    let start = || async {
        let control_plane = ControlPlane::start();
        let flags = ["--register", "--edits", "Deny", "--drift", "Repair", "--operation-timeout", "1s"];
        let guard = Guard::start(&control_plane, &flags).await;
        (control_plane, guard)
    };
    IMPATIENT.get_or_init(start).await
}

fn config_map(name: &str, namespace: &str, data: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {namespace}}}\ndata: {data}\n"
    )
}

async fn write(secrets: &Api<Secret>, record: &Secret) {
    secrets.create(&PostParams::default(), record).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_release_is_never_given_the_guards_rights() {
    let (control_plane, guard) = impatient().await;
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

    eventually("the guard says that the binding is missing", WITHIN, || async {
        guard.log().lines().any(|line| line.contains(&name) && line.contains("is not re-created"))
    })
    .await;
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    assert!(bindings.get_opt(&name).await.unwrap().is_none());
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    assert!(maps.get_opt("loot").await.unwrap().is_none());
    let tried = control_plane.audit_events().into_iter().find(|event| {
        event["verb"] == "create"
            && event["user"]["username"] == Identity::Guard.user()
            && event["objectRef"]["resource"] == "clusterrolebindings"
    });
    assert_eq!(tried, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_of_another_namespace_has_no_say_over_an_object() {
    let _guard = Guard::shared().await;
    let control_plane = ControlPlane::get();
    let shop = Victim::install(control_plane, "attack-victim").await;
    shop.wait_until_guarded().await;
    shop.create("free", json!({"a": "0"})).await.unwrap();
    let thief = control_plane.namespace("attack-thief").await;
    let there = &shop.namespace;
    let manifest = config_map("settings", there, "{image: stolen, mine: '1'}")
        + &config_map("free", there, "{a: '1'}")
        + &config_map("witness", &thief, "{a: '1'}");
    let witnesses: Api<ConfigMap> = Api::namespaced(shop.client.clone(), &thief);
    witnesses.create(&PostParams::default(), &labelled("witness", json!({"a": "0"}))).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(shop.client.clone(), &thief);
    write(&secrets, &forged(&thief, "thief", 1, "deployed", &manifest)).await;
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    let edit = Patch::Merge(json!({"data": {"a": "2"}}));
    eventually("the guard knows the second release", WITHIN, || async {
        refusal(witnesses.patch("witness", &dry_run, &edit).await)
    })
    .await;

    // It neither lets through nor refuses.
    let message = refusal(shop.data("settings", json!({"image": "stolen"})).await).unwrap();
    assert!(message.contains(there) && !message.contains(&thief), "{message}");
    shop.data("settings", json!({"mine": "2"})).await.unwrap();
    shop.data("free", json!({"a": "2"})).await.unwrap();
    shop.delete("free").await.unwrap();

    // It re-creates nothing: what goes later is back, by its own release's manifest.
    let collector = control_plane.client(Identity::GarbageCollector).await;
    let maps: Api<ConfigMap> = Api::namespaced(collector, there);
    maps.delete("settings", &DeleteParams::default()).await.unwrap();
    let settings = eventually("the release's own object is back", WITHIN, || async {
        shop.config_maps.get_opt("settings").await.unwrap()
    })
    .await;
    assert_eq!(settings.data, Some([("image".to_owned(), "a".to_owned())].into()));
    assert!(shop.config_maps.get_opt("free").await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_pending_record_lets_through_only_what_agrees_with_it() {
    let _guard = Guard::shared().await;
    let shop = Victim::install(ControlPlane::get(), "attack-pending").await;
    shop.wait_until_guarded().await;
    let manifest = config_map("settings", &shop.namespace, "{image: forged}");
    write(&shop.secrets, &forged(&shop.namespace, "shop", 2, "pending-upgrade", &manifest)).await;

    refusal(shop.data("settings", json!({"image": "neither"})).await).unwrap();
    shop.data("settings", json!({"image": "forged"})).await.unwrap();
    refusal(shop.data("settings", json!({"image": "neither"})).await).unwrap();
    // Only the latest record counts: the deployed one is not the declaration now.
    refusal(shop.data("settings", json!({"image": "a"})).await).unwrap();

    shop.secrets.delete(&record_name("shop", 2), &DeleteParams::default()).await.unwrap();
    refusal(shop.data("settings", json!({"image": "neither"})).await).unwrap();
    shop.data("settings", json!({"image": "a"})).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_record_that_nobody_touches_authorises_no_deletion() {
    let (control_plane, _guard) = impatient().await;
    let shop = Victim::install(control_plane, "attack-locked").await;
    shop.wait_until_guarded().await;
    let manifest = config_map("settings", &shop.namespace, "{image: forged}");
    write(&shop.secrets, &forged(&shop.namespace, "shop", 2, "pending-upgrade", &manifest)).await;
    shop.data("settings", json!({"image": "forged"})).await.unwrap();
    eventually("an edit may agree with the baseline again", WITHIN, || async {
        shop.data("settings", json!({"image": "a"})).await
    })
    .await;
    for name in ["settings", "extra"] {
        let message = refusal(shop.delete(name).await).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(message.contains("would be deleted"), "{message}");
    }
    refusal(shop.data("settings", json!({"image": "neither"})).await).unwrap();
    refusal(shop.data("extra", json!({"color": "red"})).await).unwrap();
    shop.data("settings", json!({"image": "forged"})).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_does_not_exist_is_refused_as_a_deletion_by_detour() {
    let _guard = Guard::shared().await;
    let shop = Victim::install(ControlPlane::get(), "attack-owner").await;
    shop.wait_until_guarded().await;
    let owner = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "nowhere", "uid": "11111111-2222-3333-4444-555555555555",
    });
    let patch = json!({"metadata": {"ownerReferences": [owner]}});
    let message = refusal(shop.patch("settings", patch, false).await).unwrap();
    assert!(message.contains("/metadata/ownerReferences"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_review_beyond_all_bounds_is_refused_for_a_declared_object_and_passes_for_any_other() {
    let guard = Guard::shared().await;
    let shop = Victim::install(ControlPlane::get(), "attack-size").await;
    shop.wait_until_guarded().await;
    let padding = "x".repeat(40 << 20);
    let levels = 100_000;
    let nested = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let object = |name: &str, data: &str| {
        let namespace = &shop.namespace;
        format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","namespace":"{namespace}"}},"data":{data}}}"#
        )
    };
    let check = async |what: &str, name: &str, data: String, passes: bool| {
        let (old, new) = (object(name, r#"{"image":"a"}"#), object(name, &data));
        let namespace = &shop.namespace;
        let review = Review {
            group: "",
            kind: "ConfigMap",
            resource: "configmaps",
            namespace,
            name,
            old: &old,
            new: &new,
        };
        let reply = guard.judge(review.text()).await;
        assert_eq!(reply.passes(), passes, "{what} of {name}: {reply:?}");
    };
    for (name, passes) in [("settings", false), ("undeclared", true)] {
        check("40 MiB", name, format!(r#"{{"image":"{padding}"}}"#), passes).await;
        check("100,000 levels", name, format!(r#"{{"image":{nested}}}"#), passes).await;
        check("100,000 levels first", name, nested.clone(), passes).await;
    }
    // Nobody else notices.
    refusal(shop.data("settings", json!({"image": "b"})).await).unwrap();
    shop.data("settings", json!({"undeclared": "b"})).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_grows_to_gigabytes_costs_one_warning_and_nothing_else() {
    let control_plane = &ControlPlane::start();
    let guard = Guard::start(control_plane, &["--register", "--edits", "Deny", "--drift", "Repair"]).await;
    let (shop, other) =
        (Victim::install(control_plane, "bombed").await, Victim::install(control_plane, "beside").await);
    shop.wait_until_guarded().await;
    other.wait_until_guarded().await;
    // The cap is what bounds the cost: a Secret holds no gzip that grows to more than about 780 MB.
    let record = holding(&shop.namespace, "shop", 2, "deployed", bomb(700_000_000));
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    // A guard that has no time to read it lets it pass, as it does with Helm's own.
    let message = eventually("the webhook refuses the record", WITHIN, || async {
        refusal(shop.secrets.create(&dry_run, &record).await.map(drop))
    })
    .await;
    assert!(message.contains("would disagree"), "{message}");
    look_away_from_records(&Api::all(control_plane.client(Identity::Admin).await)).await;
    eventually("the record is written behind the guard's back", WITHIN, || async {
        shop.secrets.create(&PostParams::default(), &record).await
    })
    .await;
    let warnings = || {
        let log = guard.log();
        log.lines().filter(|line| line.contains(&record_name("shop", 2)) && line.contains("WARN")).count()
    };
    eventually("the guard warns of the record", WITHIN, || async { warnings() > 0 }).await;
    shop.wait_until_guarded().await;
    let message = refusal(shop.data("settings", json!({"image": "b"})).await).unwrap();
    assert!(message.contains("(revision 1)"), "{message}");
    shop.data("settings", json!({"undeclared": "b"})).await.unwrap();
    refusal(other.data("settings", json!({"image": "b"})).await).unwrap();
    other.upgrade("b").await;
    refusal(other.data("settings", json!({"image": "a"})).await).unwrap();
    assert_eq!(warnings(), 1, "{}", guard.log());
    assert!(guard.log().contains("manifest has more than 16777216 bytes"));
    let metrics = guard.metrics().await;
    assert!(metrics.contains(r#"kubemoor_records_undecodable_total{reason="too_large"} 1"#), "{metrics}");
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
