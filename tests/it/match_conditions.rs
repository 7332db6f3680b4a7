//! The match conditions of the webhooks as an API server that knows them compiles and evaluates them. Nobody listens at
//! the webhooks' address, under `Fail`: whatever the conditions do not skip fails.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use kubemoor_guard::webhook::registration::{
    WebhookAddress, WebhookResource, WebhookSettings, configuration, mutating,
};
use kubemoor_runtime::config::{Endpoint, RecordDriver};

use crate::support::{Answer, Caller, ControlPlane, Identity, SOON, eventually};

/// The first Kubernetes version whose webhooks have match conditions by default.
const CONDITIONS: u32 = 28;

/// Both webhook configurations for some kinds, under `Fail`.
fn configurations() -> [(&'static str, Value); 2] {
    let resource = |group: &str, plural: &str, scale: bool| WebhookResource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        plural: plural.to_owned(),
        scale,
    };
    let resources = BTreeSet::from([
        resource("", "configmaps", false),
        resource("", "services", false),
        resource("apps", "deployments", true),
    ]);
    let endpoint = Endpoint::Url("https://127.0.0.1:1".parse().unwrap());
    let surface = WebhookSettings {
        endpoint: &endpoint,
        address: WebhookAddress::Bare,
        ca_bundle: None,
        own_namespace: Some("kubemoor-system"),
        record_driver: RecordDriver::Secret,
        select_all: false,
        reverts: true,
        conditions: true,
    };
    let validating = serde_json::to_value(configuration(&resources, &surface)).unwrap();
    let mutating = serde_json::to_value(mutating(&resources, &surface)).unwrap();
    [("validatingwebhookconfigurations", validating), ("mutatingwebhookconfigurations", mutating)].map(
        |(plural, mut configuration)| {
            for webhook in configuration["webhooks"].as_array_mut().unwrap() {
                webhook["failurePolicy"] = json!("Fail");
            }
            (plural, configuration)
        },
    )
}

/// An object of a release.
fn object(kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": kind,
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"meta.helm.sh/release-name": "shop", "meta.helm.sh/release-namespace": "shop"},
        },
    })
}

fn secret(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": labels}})
}

/// The webhook was called.
fn called(answer: &Answer) -> Result<(), String> {
    let said = answer.to_string();
    if said.contains("failed calling webhook") && said.contains("connection refused") {
        Ok(())
    } else {
        Err(said)
    }
}

/// Creates the objects whose changes are sent or skipped.
async fn create_objects(alice: &Caller, core: &str) {
    let maps = format!("{core}/configmaps");
    for name in ["edited", "lost", "of-owner", "of-namespace"] {
        alice.post(&maps, &object("ConfigMap", name)).await.done().unwrap();
    }
    let mut held = object("ConfigMap", "held");
    held["metadata"]["finalizers"] = json!(["example.org/held"]);
    alice.post(&maps, &held).await.done().unwrap();
    alice.delete(&format!("{maps}/held")).await.done().unwrap();
    for name in ["web", "bare"] {
        let mut service = object("Service", name);
        service["spec"] = json!({"ports": [{"port": 80}]});
        if name == "bare" {
            service["metadata"]["annotations"] = Value::Null;
        }
        alice.post(&format!("{core}/services"), &service).await.done().unwrap();
    }
    for name in ["record", "old-record"] {
        alice.post(&format!("{core}/secrets"), &secret(name, json!({"owner": "helm"}))).await.done().unwrap();
    }
    let mut held = secret("held-record", json!({"owner": "helm"}));
    held["metadata"]["finalizers"] = json!(["example.org/held"]);
    alice.post(&format!("{core}/secrets"), &held).await.done().unwrap();
    alice.delete(&format!("{core}/secrets/held-record")).await.done().unwrap();
}

async fn assert_only_helms_metadata_is_judged_by_status(alice: &Caller, core: &str) {
    let status = |name: &str| format!("{core}/services/{name}/status");
    let annotated = |key: &str, value: Value| json!({"metadata": {"annotations": {key: value}}});
    let unlabelled = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}});
    for name in ["web", "bare"] {
        alice.merge(&status(name), &annotated("example.org/seen", json!("yes"))).await.done().unwrap();
        called(&alice.merge(&status(name), &unlabelled).await).unwrap();
        called(&alice.merge(&status(name), &annotated("meta.helm.sh/release-name", json!("other"))).await)
            .unwrap();
    }
    called(&alice.merge(&status("web"), &annotated("meta.helm.sh/release-namespace", Value::Null)).await)
        .unwrap();
    called(&alice.merge(&status("web"), &owned()).await).unwrap();
}

/// The change that gives an object an owner which does not exist.
fn owned() -> Value {
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "no-such-uid"});
    json!({"metadata": {"ownerReferences": [owner]}})
}

async fn assert_only_owners_and_labels_of_a_namespace_are_judged(alice: &Caller, namespace: &str) {
    let annotated = json!({"metadata": {"annotations": {"a": "b"}}});
    alice.merge(namespace, &annotated).await.done().unwrap();
    for path in [namespace.to_owned(), format!("{namespace}/status")] {
        called(&alice.merge(&path, &owned()).await).unwrap();
    }
    called(&alice.merge(namespace, &json!({"metadata": {"labels": {"a": "b"}}})).await).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_skip_exactly_the_requests_that_the_guard_always_allows() {
    let control_plane = ControlPlane::start();
    if control_plane.minor() < CONDITIONS {
        return;
    }
    let namespace = control_plane.namespace("conditions").await;
    let core = format!("/api/v1/namespaces/{namespace}");
    let maps = format!("{core}/configmaps");
    let alice = Caller::new(&control_plane, Identity::Alice).await;
    create_objects(&alice, &core).await;

    // The API server compiles each expression before it takes the configuration.
    for (plural, configuration) in configurations() {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}");
        alice.post(&path, &configuration).await.done().unwrap();
    }
    let change = json!({"data": {"mode": "slow"}});
    let edited = format!("{maps}/edited");
    eventually("the webhooks are called", SOON, || async { called(&alice.merge(&edited, &change).await) })
        .await;

    called(&alice.post(&maps, &object("ConfigMap", "new")).await).unwrap();
    called(&alice.delete(&format!("{maps}/lost")).await).unwrap();
    called(&alice.delete(&format!("{core}/secrets/record")).await).unwrap();
    // A record is what Helm reads as one, by its labels or by its name, also while it is being deleted.
    let secrets = format!("{core}/secrets");
    let name = "sh.helm.release.v1.web.v2";
    called(&alice.post(&secrets, &secret(name, Value::Null)).await).unwrap();
    called(&alice.post(&secrets, &secret("other", json!({"owner": "helm"}))).await).unwrap();
    alice.post(&secrets, &secret("plain", Value::Null)).await.done().unwrap();
    alice.post(&secrets, &secret("owned", json!({"owner": "me"}))).await.done().unwrap();
    let labelled = json!({"metadata": {"labels": {"owner": "helm"}}});
    called(&alice.merge(&format!("{secrets}/plain"), &labelled).await).unwrap();
    let relabelled = json!({"metadata": {"labels": {"name": "web"}}});
    called(&alice.merge(&format!("{secrets}/held-record"), &relabelled).await).unwrap();
    called(&alice.delete(&core).await).unwrap();
    for (identity, name) in
        [(Identity::GarbageCollector, "of-owner"), (Identity::NamespaceController, "of-namespace")]
    {
        let controller = Caller::new(&control_plane, identity).await;
        controller.delete(&format!("{maps}/{name}")).await.done().unwrap();
    }
    let collector = Caller::new(&control_plane, Identity::GarbageCollector).await;
    collector.delete(&format!("{core}/secrets/old-record")).await.done().unwrap();
    // An object that is being deleted may lose its finalizers, and nothing else.
    called(&alice.merge(&format!("{maps}/held"), &change).await).unwrap();
    let labelled = json!({"metadata": {"labels": {"a": "b"}}});
    called(&alice.merge(&format!("{maps}/held"), &labelled).await).unwrap();
    let finalized = json!({"metadata": {"finalizers": null}});
    alice.merge(&format!("{maps}/held"), &finalized).await.done().unwrap();

    assert_only_helms_metadata_is_judged_by_status(&alice, &core).await;
    assert_only_owners_and_labels_of_a_namespace_are_judged(&alice, &core).await;
}
