//! Releases whose records lie in another namespace, as Flux's `storageNamespace` has them: guarded like all
//! others where a policy trusts that namespace with them, and not at all where none does.

use std::ops::Deref;

use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};

use crate::support::{
    Answer, Caller, DRIFT_POLICIES, Helm, Identity, POLICED, RELEASE, SOON, Scene, SceneBuilder,
    StorageNamespace, charts, eventually, forged, moor, opened, record_name, sealed,
};

const TEMPLATES: &str = concat!(
    charts::config_map!("settings", r#"{level: {{ .Values.level | default "info" }}}"#),
    "---",
    charts::deployment!(
        r#"{name: app, image: registry.example/shop:1, env: [{name: LEVEL, value: {{ .Values.level | default "info" }}}]}"#
    ),
    "{{- if .Values.extra }}\n---",
    charts::config_map!("extra", "{a: b}"),
    "{{- end }}\n",
);

const SETTINGS: &str = "configmaps/settings";

/// A release in one namespace, and its records in another.
struct Flux {
    scene: Scene,
    storage: String,
    _proxy: StorageNamespace,
}

impl Flux {
    /// Two namespaces with nothing in them.
    async fn new(prefix: &str) -> Self {
        Self::of(Scene::on_cluster(&POLICED), prefix).await
    }

    async fn of(scene: SceneBuilder, prefix: &str) -> Self {
        let mut scene = scene.prepare(prefix, TEMPLATES).await;
        let control_plane = &scene.control_plane;
        let storage = control_plane.namespace(&format!("{prefix}-store")).await;
        let proxy =
            StorageNamespace::start(control_plane, Identity::Deployer, &scene.namespace, &storage).await;
        scene.helm = Helm::with(proxy.kubeconfig());
        Self { scene, storage, _proxy: proxy }
    }

    /// The release, of which the guard knows by a policy.
    async fn guarded(prefix: &str) -> Self {
        let flux = Self::new(prefix).await;
        flux.trust().await;
        flux.install(json!({})).await.unwrap();
        flux.wait_until_guarded().await;
        flux
    }

    /// Has a policy trust the one namespace with the records of the other.
    async fn trust(&self) {
        self.policy_as_is(
            "pair",
            json!({"storage": [{"records": self.storage, "releases": [self.namespace]}]}),
        )
        .await;
    }

    async fn upgrade(&self, values: Value) {
        self.scene.upgrade(json!({"values": values})).await.unwrap();
    }

    async fn wait_until_guarded(&self) {
        self.scene.wait_until_guarded(&self.core(SETTINGS)).await;
        self.scene.wait_until_guarded(&self.deployment("web")).await;
    }

    fn records(&self) -> String {
        format!("/api/v1/namespaces/{}/secrets", self.storage)
    }

    fn record(&self, revision: u32) -> String {
        format!("{}/{}", self.records(), record_name(RELEASE, revision))
    }

    /// An edit that no revision declares.
    async fn edit(&self) -> Answer {
        self.alice.merge(&self.core(SETTINGS), &json!({"data": {"level": "mine"}})).await
    }

    async fn level(&self) -> Value {
        self.alice.get(&self.core(SETTINGS)).await.done().unwrap()["data"]["level"].take()
    }

    /// Waits for what the guard says of a release in a namespace.
    async fn wait_for_reason(&self, namespace: &str, release: &str, reason: &str) -> Value {
        let path = format!("/apis/kubemoor.dev/v1alpha1/namespaces/{namespace}/guardedreleases/{release}");
        eventually(&format!("release {release} in {namespace} is {reason}"), SOON, || async {
            let guarded = self.admin.get(&path).await.done()?;
            let ready = guarded["status"]["conditions"].as_array().into_iter().flatten();
            let found = ready.filter(|it| it["type"] == "Ready").any(|it| it["reason"] == reason);
            if found { Ok(guarded) } else { Err(guarded["status"].to_string()) }
        })
        .await
    }

    /// Puts a record into a namespace, as whoever may write Secrets there can.
    async fn forge(&self, caller: &Caller, namespace: &str, record: &Secret) {
        let path = format!("/api/v1/namespaces/{namespace}/secrets");
        let mut record = serde_json::to_value(record).unwrap();
        record["metadata"]["namespace"] = json!(namespace);
        caller.post(&path, &record).await.done().unwrap();
    }
}

impl Deref for Flux {
    type Target = Scene;

    fn deref(&self) -> &Scene {
        &self.scene
    }
}

/// The manifest of one ConfigMap, as a forged record declares it.
fn settings(namespace: &str, level: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: settings, namespace: {namespace}}}\ndata: {{level: {level}}}\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn release_with_records_elsewhere_is_guarded_and_helm_passes() {
    let flux = Flux::guarded("flux-story").await;
    flux.get(&flux.record(1)).await;
    let answer = flux.edit().await;
    answer.refused(RELEASE).unwrap();
    assert!(answer.to_string().contains(&format!(" -n {} ", flux.namespace)), "{answer}");
    flux.upgrade(json!({"level": "debug", "extra": true})).await;
    assert_eq!(flux.level().await, "debug");
    flux.wait_until_guarded().await;
    flux.edit().await.refused(RELEASE).unwrap();
    flux.alice.delete(&flux.config_map("extra")).await.refused(RELEASE).unwrap();
    flux.helm.rollback(&flux.namespace, RELEASE, json!({"version": 1})).await.unwrap();
    assert_eq!(flux.level().await, "info");
    assert_eq!(flux.alice.get(&flux.config_map("extra")).await.code, 404);
    flux.edit().await.refused(RELEASE).unwrap();
    flux.alice
        .merge(&flux.deployment("web"), &json!({"spec": {"replicas": 5}}))
        .await
        .refused(RELEASE)
        .unwrap();
    let scale = format!("{}/scale", flux.deployment("web"));
    flux.alice.merge(&scale, &json!({"spec": {"replicas": 5}})).await.refused(RELEASE).unwrap();
    flux.helm.uninstall(&flux.namespace, RELEASE, json!({})).await.unwrap();
    assert_eq!(flux.alice.get(&flux.core(SETTINGS)).await.code, 404);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_deleted_object_comes_back_and_the_next_upgrade_passes() {
    let flux = Flux::guarded("flux-repair").await;
    let guarded = flux.wait_for_reason(&flux.namespace, RELEASE, "InSync").await;
    assert_eq!(guarded["status"]["revision"], 1);
    for (path, resource) in [(flux.core(SETTINGS), "configmaps"), (flux.deployment("web"), "deployments")] {
        flux.control_plane.wait_until_listed(resource, 0).await;
        let uid = flux.get(&path).await["metadata"]["uid"].take();
        flux.control_plane.delete_unhindered(&path).await;
        let back = eventually(&format!("{path} is back"), SOON, || async {
            let object = flux.alice.get(&path).await.done()?;
            if object["metadata"]["uid"] == uid { Err("it is the old one".to_owned()) } else { Ok(object) }
        })
        .await;
        let annotations = &back["metadata"]["annotations"];
        assert_eq!(annotations["meta.helm.sh/release-namespace"], json!(flux.namespace));
    }
    flux.upgrade(json!({"level": "debug"})).await;
    assert_eq!(flux.level().await, "debug");
    let containers = flux.get(&flux.deployment("web")).await;
    assert_eq!(containers["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"], "debug");
}

#[tokio::test(flavor = "multi_thread")]
async fn records_count_only_while_a_policy_trusts_their_namespace() {
    let flux = Flux::new("flux-pair").await;
    flux.install(json!({})).await.unwrap();
    let unbelieved = flux.wait_for_reason(&flux.storage, RELEASE, "RecordInvalid").await;
    assert_eq!(unbelieved["status"]["declared"], 0);
    flux.edit().await.done().unwrap();
    flux.alice.merge(&flux.core(SETTINGS), &json!({"data": {"level": "info"}})).await.done().unwrap();

    flux.trust().await;
    flux.wait_until_guarded().await;
    flux.edit().await.refused(RELEASE).unwrap();
    flux.wait_for_reason(&flux.namespace, RELEASE, "InSync").await;
    let path = format!("/apis/kubemoor.dev/v1alpha1/namespaces/{}/guardedreleases/{RELEASE}", flux.storage);
    eventually("nothing is said of a release where only records lie", SOON, || async {
        flux.admin.get(&path).await.code == 404
    })
    .await;

    flux.admin.delete(&format!("{DRIFT_POLICIES}/{}-pair", flux.namespace)).await.done().unwrap();
    eventually("the records count no more", SOON, || async { flux.edit().await.done() }).await;
    flux.wait_for_reason(&flux.storage, RELEASE, "RecordInvalid").await;
    // As Flux does: the field is Alice's by now.
    let options = json!({"values": {"level": "debug"}, "force_conflicts": true});
    flux.scene.upgrade(options).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn the_commands_find_a_release_by_its_own_name() {
    let flux = Flux::guarded("flux-commands").await;
    flux.wait_for_reason(&flux.namespace, RELEASE, "InSync").await;
    let listed = flux.moor(&["get", "releases", "-o", "json"]).json();
    let rows: Vec<_> = listed["items"].as_array().unwrap().iter().collect();
    assert_eq!(rows.len(), 1, "{listed}");
    assert_eq!((&rows[0]["namespace"], &rows[0]["guarded"]), (&json!(flux.namespace), &json!(true)));
    let stored = moor(
        POLICED.control_plane(),
        Identity::Alice,
        &["get", "releases", "-n", flux.storage.as_str(), "-o", "json"],
    );
    assert_eq!(stored.json()["items"], json!([]), "{stored:?}");
    let same = flux.moor(&["diff", RELEASE]);
    assert_eq!(same.code, 0, "{same:?}");
    let explained = flux.moor(&["explain", "configmap/settings", "-o", "json"]);
    assert_eq!(explained.code, 0, "{explained:?}");
    assert!(explained.out.contains(&format!("\"namespace\": \"{}\"", flux.namespace)), "{explained:?}");
    let forecast = flux.moor(&["forecast", RELEASE]);
    assert_eq!(forecast.code, 0, "{forecast:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn records_count_only_for_releases_their_namespace_is_trusted_with() {
    let flux = Flux::guarded("flux-attack").await;
    let third = Flux::guarded("flux-victim").await;
    let bob = Caller::new(POLICED.control_plane(), Identity::Bob).await;
    // By the trusted namespace for somebody else's objects: declared otherwise, and being uninstalled.
    let victim = &third.namespace;
    for (name, status) in [("other", "pending-upgrade"), ("leaving", "uninstalling")] {
        let record = forged(victim, name, 1, status, &settings(victim, "mine"));
        flux.forge(&bob, &flux.storage, &record).await;
        flux.wait_for_reason(&flux.storage, name, "RecordInvalid").await;
    }
    // By a namespace that nobody trusts for objects of a release whose records are trusted elsewhere, under its own name.
    let nobody = POLICED.control_plane().namespace("flux-nobody").await;
    let record = forged(&flux.namespace, RELEASE, 9, "uninstalling", &settings(&flux.namespace, "mine"));
    flux.forge(&bob, &nobody, &record).await;
    flux.wait_for_reason(&nobody, RELEASE, "RecordInvalid").await;
    for attacked in [&flux, &third] {
        attacked.edit().await.refused(RELEASE).unwrap();
        attacked.alice.delete(&attacked.core(SETTINGS)).await.refused(RELEASE).unwrap();
    }
    // Nor do the records of one trusted namespace speak for the releases that another one is trusted with.
    let record = forged(victim, RELEASE, 9, "uninstalling", &settings(victim, "mine"));
    let elsewhere = POLICED.control_plane().namespace("flux-elsewhere").await;
    flux.policy_as_is(
        "elsewhere",
        json!({"storage": [{"records": elsewhere, "releases": [flux.namespace]}]}),
    )
    .await;
    flux.forge(&bob, &elsewhere, &record).await;
    flux.wait_for_reason(&elsewhere, RELEASE, "RecordInvalid").await;
    third.edit().await.refused(RELEASE).unwrap();
    third.alice.delete(&third.core(SETTINGS)).await.refused(RELEASE).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn records_elsewhere_are_protected_by_policy_of_their_release() {
    let flux = Flux::guarded("flux-records").await;
    let refused = |answer: Answer, why: &str| {
        let said = answer.to_string();
        assert!(answer.code == 403 && said.contains(why), "{why}: {said}");
    };
    refused(flux.alice.delete(&flux.record(1)).await, "would remove the last deployed revision");
    let record: Secret = serde_json::from_value(flux.get(&flux.record(1)).await).unwrap();
    let reworded = |change: fn(&mut Value)| {
        let (mut content, mut record) = (opened(&record), record.clone());
        change(&mut content);
        record.data.as_mut().unwrap().get_mut("release").unwrap().0 = sealed(&content);
        serde_json::to_value(record).unwrap()
    };
    let emptied = reworded(|content| content["manifest"] = json!(""));
    refused(flux.alice.put(&flux.record(1), &emptied).await, "manifest of an existing revision");
    let moved = reworded(|content| content["namespace"] = json!("default"));
    refused(flux.alice.put(&flux.record(1), &moved).await, "would no longer agree");

    // The policy is the release's, not that of the namespace in which the records lie.
    let operators = json!({
        "releases": {"namespaces": [flux.namespace]},
        "operators": [{"kind": "User", "name": Identity::Deployer.user()}],
    });
    flux.policy_as_is("operators", operators).await;
    let forged = forged(&flux.namespace, RELEASE, 2, "pending-upgrade", &settings(&flux.namespace, "mine"));
    let mut forged = serde_json::to_value(forged).unwrap();
    forged["metadata"]["namespace"] = json!(flux.storage);
    refused(flux.alice.post(&flux.records(), &forged).await, "names the operators");
    refused(
        flux.alice.merge(&flux.record(1), &json!({"metadata": {"annotations": {"a": "b"}}})).await,
        "operators",
    );
    flux.upgrade(json!({"level": "debug"})).await;
    flux.helm.uninstall(&flux.namespace, RELEASE, json!({})).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn record_of_another_name_in_storage_namespace_is_refused_beside_operators() {
    let flux = Flux::guarded("flux-names").await;
    let operators = json!({
        "releases": {"namespaces": [flux.namespace]},
        "operators": [{"kind": "User", "name": Identity::Deployer.user()}],
    });
    flux.policy_as_is("operators", operators).await;
    let deployer = Caller::new(POLICED.control_plane(), Identity::Deployer).await;
    // Helm reads it for the release that the labels name, whatever its name is and its content says.
    for namespace in [flux.storage.as_str(), &flux.namespace, "elsewhere"] {
        let record = |label: &str| {
            let record = forged(namespace, "other", 9, "pending-upgrade", "");
            let mut record = serde_json::to_value(record).unwrap();
            record["metadata"]["namespace"] = json!(flux.storage);
            record["metadata"]["labels"]["name"] = json!(label);
            record
        };
        let said = flux.alice.post(&flux.records(), &record(RELEASE)).await.refusal().unwrap();
        assert!(said.contains("a policy names the operators"), "{namespace}: {said}");
        let path = format!("{}/{}", flux.records(), record_name("other", 9));
        deployer.post(&flux.records(), &record("other")).await.done().unwrap();
        let relabelled = json!({"metadata": {"labels": {"name": RELEASE}}});
        let said = flux.alice.merge(&path, &relabelled).await.refusal().unwrap();
        assert!(said.contains("a policy names the operators"), "{namespace}: {said}");
        deployer.delete(&path).await.done().unwrap();
    }
    // These operators have no say over a release of that namespace itself.
    let own = forged(&flux.storage, "own", 1, "deployed", "");
    flux.forge(&flux.alice, &flux.storage, &own).await;
    flux.upgrade(json!({"level": "debug"})).await;
    flux.edit().await.refused(RELEASE).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn second_history_of_a_release_blocks_repairs_but_not_helm() {
    let flux = Flux::guarded("flux-twice").await;
    flux.wait_for_reason(&flux.namespace, RELEASE, "InSync").await;
    let bob = Caller::new(POLICED.control_plane(), Identity::Bob).await;
    let rival = forged(&flux.namespace, RELEASE, 1, "deployed", &settings(&flux.namespace, "rival"));
    flux.forge(&bob, &flux.namespace, &rival).await;
    flux.wait_for_reason(&flux.namespace, RELEASE, "RecordInvalid").await;
    flux.edit().await.refused(RELEASE).unwrap();
    flux.upgrade(json!({"level": "debug"})).await;
    assert_eq!(flux.level().await, "debug");
    // Whoever cleans up may.
    bob.delete(&flux.core(&format!("secrets/{}", record_name(RELEASE, 1)))).await.done().unwrap();
    flux.wait_for_reason(&flux.namespace, RELEASE, "InSync").await;
    flux.edit().await.refused(RELEASE).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn restarted_guard_keeps_state_of_release_with_records_elsewhere() {
    let flux = Flux::of(Scene::own(), "flux-again").await;
    let mut guard = flux.start_guard(&["--register", "--edits", "Deny", "--drift", "Repair"]).await;
    flux.trust().await;
    flux.install(json!({})).await.unwrap();
    flux.wait_until_guarded().await;
    flux.wait_for_reason(&flux.namespace, RELEASE, "InSync").await;
    let path = flux.guarded_release(RELEASE);
    flux.admin.merge(&path, &json!({"spec": {"suspend": true}})).await.done().unwrap();
    let before = flux.wait_for_reason(&flux.namespace, RELEASE, "Suspended").await;
    guard.terminate();
    guard.start_again().await;
    flux.wait_until_guarded().await;
    flux.upgrade(json!({"level": "debug"})).await;
    let after = eventually("the guard that started again speaks of revision 2", SOON, || async {
        let guarded = flux.admin.get(&path).await.done()?;
        if guarded["status"]["revision"] == 2 { Ok(guarded) } else { Err(guarded.to_string()) }
    })
    .await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"], "its GuardedRelease was made anew");
    assert_eq!(after["spec"]["suspend"], true);
}
