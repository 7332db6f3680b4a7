//! Deletions of what releases declare, and of what would take it along; and the controllers, which nothing hinders.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::charts::{DEPLOYMENT, SETTINGS};
use crate::support::{
    Caller, Chart, ControlPlane, Identity, RELEASE, SOON, Scene, define_widgets, eventually,
};

const WIDGET: &str = "
apiVersion: deletions.example/v1
kind: Widget
metadata: {name: wheel}
spec: {replicas: 3}
";

const JOB: &str = r#"
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  backoffLimit: 1
  template:
    spec: {restartPolicy: Never, containers: [{name: job, image: "registry.example/job:1"}]}
"#;

const HELMS: &str = "labelSelector=app.kubernetes.io%2Fmanaged-by%3DHelm";

/// A release with a Deployment and a ConfigMap, both guarded.
async fn install(prefix: &str) -> Scene {
    let shop = Scene::shared().install(prefix, &format!("{DEPLOYMENT}---{SETTINGS}")).await;
    for path in paths(&shop) {
        shop.wait_until_guarded(&path).await;
    }
    shop
}

fn paths(shop: &Scene) -> [String; 2] {
    [shop.deployment("web"), shop.config_map("settings")]
}

fn namespace(name: &str) -> String {
    format!("/api/v1/namespaces/{name}")
}

/// What is in the list at `path`.
async fn items(caller: &Caller, path: &str) -> Vec<Value> {
    let list = caller.get(path).await.done().unwrap();
    list["items"].as_array().unwrap().clone()
}

async fn wait_until_gone(caller: &Caller, path: &str) {
    eventually(&format!("{path} is gone"), SOON, || async {
        let answer = caller.get(path).await;
        if answer.code == 404 { Ok(()) } else { Err(answer.body.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_of_a_declared_object_is_refused() {
    let shop = install("delete").await;
    for path in paths(&shop) {
        shop.alice.delete(&path).await.refused(RELEASE).unwrap();
        shop.alice.delete(&format!("{path}?dryRun=All")).await.refused(RELEASE).unwrap();
        let object = shop.get(&path).await;
        assert_eq!(object["metadata"]["deletionTimestamp"], Value::Null);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_of_a_collection_spares_what_is_declared() {
    let shop = install("collection").await;
    let mine = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine"}});
    shop.alice.post(&shop.core("configmaps"), &mine).await.done().unwrap();
    for collection in [shop.at("apis/apps/v1", "deployments"), shop.core("configmaps")] {
        shop.alice.delete(&format!("{collection}?{HELMS}")).await.refused(RELEASE).unwrap();
        shop.alice.delete(&collection).await.refused(RELEASE).unwrap();
    }
    for path in paths(&shop) {
        shop.get(&path).await;
    }
    shop.alice
        .delete(&format!("{}?fieldSelector=metadata.name%3Dmine", shop.core("configmaps")))
        .await
        .done()
        .unwrap();
    assert_eq!(shop.alice.get(&shop.config_map("mine")).await.code, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_of_a_namespace_with_declared_objects_is_refused() {
    let shop = install("namespace").await;
    let path = namespace(&shop.namespace);
    shop.alice.delete(&path).await.refused(RELEASE).unwrap();
    let object = shop.get(&path).await;
    assert_eq!(object["status"]["phase"], "Active");
}

#[tokio::test(flavor = "multi_thread")]
async fn definition_deletion_is_refused_while_releases_declare_its_objects() {
    define_widgets(ControlPlane::get(), "deletions.example").await;
    let shop = Scene::shared().install("definition", WIDGET).await;
    shop.wait_until_guarded(&shop.at("apis/deletions.example/v1", "widgets/wheel")).await;
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.deletions.example";
    shop.alice.delete(path).await.refused(RELEASE).unwrap();
    let object = shop.get(path).await;
    assert_eq!(object["metadata"]["deletionTimestamp"], Value::Null);

    shop.helm.uninstall(&shop.namespace, RELEASE, json!({})).await.unwrap();
    eventually("the definition may be deleted", SOON, || async { shop.alice.delete(path).await.done() })
        .await;
    wait_until_gone(&shop.alice, path).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unlabelled_object_is_adopted_only_with_the_declared_values() {
    // The guard re-creates no Job.
    let shop = Scene::shared().install("adopted", JOB).await;
    let jobs = shop.at("apis/batch/v1", "jobs");
    let path = format!("{jobs}/once");
    shop.wait_until_guarded(&path).await;
    let helms = shop.get(&path).await["metadata"].clone();
    let collector = Caller::new(ControlPlane::get(), Identity::GarbageCollector).await;
    collector.delete(&format!("{path}?propagationPolicy=Background")).await.done().unwrap();
    wait_until_gone(&shop.alice, &path).await;
    // Without Helm's label it is not sent to the guard.
    let container = json!({"name": "job", "image": "registry.example/job:1"});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let bare = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"},
        "spec": {"backoffLimit": 3, "template": template},
    });
    shop.alice.post(&jobs, &bare).await.done().unwrap();
    let labels = json!({"app.kubernetes.io/managed-by": "Helm"});
    let labelled = json!({"metadata": {"labels": labels, "annotations": helms["annotations"]}});
    let message = shop.alice.merge(&path, &labelled).await.refusal().unwrap();
    assert!(message.contains("spec.backoffLimit"), "{message}");
    let as_declared = json!({"metadata": labelled["metadata"], "spec": {"backoffLimit": 1}});
    shop.alice.merge(&path, &as_declared).await.done().unwrap();
}

/// The change that gives an object an owner which does not exist.
fn orphaned() -> Value {
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "no-such-uid"});
    json!({"metadata": {"ownerReferences": [owner]}})
}

#[tokio::test(flavor = "multi_thread")]
async fn new_owner_of_a_namespace_with_declared_objects_is_refused() {
    let shop = install("owned-namespace").await;
    let path = namespace(&shop.namespace);
    shop.alice.merge(&path, &orphaned()).await.refused(RELEASE).unwrap();
    let labelled = json!({"metadata": {"labels": {"tier": "prod"}}});
    shop.alice.merge(&path, &labelled).await.done().unwrap();
    let object = shop.get(&path).await;
    assert_eq!(object["metadata"]["ownerReferences"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_owner_of_a_definition_is_refused_while_releases_declare_its_objects() {
    define_widgets(ControlPlane::get(), "owners.example").await;
    let widget = WIDGET.replace("deletions.example", "owners.example");
    let shop = Scene::shared().install("owned-definition", &widget).await;
    shop.wait_until_guarded(&shop.at("apis/owners.example/v1", "widgets/wheel")).await;
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.owners.example";
    shop.alice.merge(path, &orphaned()).await.refused(RELEASE).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn object_that_a_finalizer_holds_in_deletion_is_still_guarded() {
    let shop = install("held").await;
    let path = shop.config_map("settings");
    let hold = json!({"metadata": {"finalizers": ["example.org/hold"]}});
    shop.alice.merge(&path, &hold).await.done().unwrap();
    let collector = Caller::new(ControlPlane::get(), Identity::GarbageCollector).await;
    collector.delete(&path).await.done().unwrap();
    assert!(shop.get(&path).await["metadata"]["deletionTimestamp"].is_string());

    shop.data("settings", json!({"level": "debug"})).await.refused(RELEASE).unwrap();
    let finalized = json!({"metadata": {"finalizers": null}});
    shop.alice.merge(&path, &finalized).await.done().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_namespace_ends_after_its_release_was_uninstalled() {
    let shop = install("ends").await;
    let path = namespace(&shop.namespace);
    shop.alice.delete(&path).await.refused(RELEASE).unwrap();
    shop.helm.uninstall(&shop.namespace, RELEASE, json!({})).await.unwrap();
    eventually("the namespace may be deleted", SOON, || async { shop.alice.delete(&path).await.done() })
        .await;
    wait_until_gone(&shop.alice, &path).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn namespace_deletion_removes_its_declared_objects() {
    let shop = install("along").await;
    let path = namespace(&shop.namespace);
    // The way that is left open for controllers; from here on the namespace controller runs for real.
    let controller = Caller::new(ControlPlane::get(), Identity::NamespaceController).await;
    controller.delete(&path).await.done().unwrap();
    wait_until_gone(&shop.alice, &path).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dependants_of_uninstalled_objects_are_collected() {
    let shop = install("garbage").await;
    let (sets, pods) = (shop.at("apis/apps/v1", "replicasets"), shop.core("pods"));
    eventually("the rollout is under way", SOON, || async { items(&shop.alice, &pods).await.len() == 2 })
        .await;
    shop.helm.uninstall(&shop.namespace, RELEASE, json!({})).await.unwrap();
    for list in [sets, pods] {
        eventually("the dependants are gone", SOON, || async { items(&shop.alice, &list).await.is_empty() })
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn garbage_collector_deletes_declared_object_after_its_owner_is_gone() {
    let shop = Scene::shared().install("owned", SETTINGS).await;
    shop.wait_until_guarded(&shop.config_map("settings")).await;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}});
    let owner = shop.alice.post(&shop.core("configmaps"), &owner).await.done().unwrap();
    let template = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: owned\n  ownerReferences:\n  \
         - {{apiVersion: v1, kind: ConfigMap, name: owner, uid: {}}}\n",
        owner["metadata"]["uid"]
    );
    let chart = Chart::from(SETTINGS).template("owned.yaml", &template);
    shop.upgrade_to(chart, json!({})).await.unwrap();
    let owned = shop.config_map("owned");
    shop.wait_until_guarded(&owned).await;
    let uid = shop.get(&owned).await["metadata"]["uid"].take();
    shop.alice.delete(&shop.config_map("owner")).await.done().unwrap();
    // What comes back is another object, and the collector takes that too: nobody stands in its way.
    eventually("the declared object is collected", SOON, || async {
        shop.alice.get(&owned).await.body["metadata"]["uid"] != uid
    })
    .await;
    shop.helm.uninstall(&shop.namespace, RELEASE, json!({})).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn rollouts_proceed() {
    let shop = install("rollout").await;
    let pods = shop.core("pods");
    let images = async || -> BTreeSet<String> {
        let pods = items(&shop.alice, &pods).await;
        let image = |pod: &Value| pod["spec"]["containers"][0]["image"].as_str().unwrap().to_owned();
        pods.iter().map(image).collect()
    };
    eventually("the first pods are there", SOON, || async { !images().await.is_empty() }).await;
    let options = json!({"values": {"tag": "2"}});
    shop.upgrade(options).await.unwrap();
    // No kubelet runs, so old pods wait for new ones to become ready.
    eventually("pods of the new revision are there", SOON, || async {
        images().await.contains("registry.example/shop:2")
    })
    .await;
}
