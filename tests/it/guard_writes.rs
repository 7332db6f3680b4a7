//! What the API server lets the guard's account store, beyond what RBAC can say.

use std::path::Path;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::support::{
    Answer, Caller, ControlPlane, DRIFT_POLICIES, Identity, Member, RbacRule, SOON, drift_policy, eventually,
};

/// The first Kubernetes version that serves ValidatingAdmissionPolicy as v1.
const ADMISSION_POLICIES: u32 = 30;

/// The first Kubernetes version of which webhook configurations were seen to pass through admission policies.
const ADMISSION_OF_WEBHOOKS: u32 = 36;

/// A ConfigMap whose annotations name a release of `namespace`, with Helm's label or without.
fn config_map(name: &str, namespace: &str, has_label: bool) -> Value {
    let annotations =
        json!({"meta.helm.sh/release-name": "shop", "meta.helm.sh/release-namespace": namespace});
    let labels = if has_label { json!({"app.kubernetes.io/managed-by": "Helm"}) } else { json!({}) };
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "annotations": annotations, "labels": labels},
        "data": {"a": "1"},
    })
}

/// Older API servers do not take the policies.
fn assert_policies_are_unknown(control_plane: &ControlPlane) {
    for file in ["writes.yaml", "namespace-writes.yaml", "guard.yaml"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/enforce").join(file);
        let applied = control_plane.kubectl(Identity::Admin, &["apply", "-f", path.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&applied.stderr);
        assert!(said.contains("no matches for kind \"ValidatingAdmissionPolicy\""), "{file}: {said}");
    }
}

#[track_caller]
fn refused(error: kube::Error, wanted: &str) {
    let said = error.to_string();
    assert!(said.contains(wanted), "{said}");
}

/// Newer API servers show webhook configurations to admission policies as well.
async fn assert_only_own_registration_may_be_stored(control_plane: &ControlPlane, guard: &kube::Client) {
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(guard.clone());
    let registration = |name: &str| {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        ValidatingWebhookConfiguration { metadata, webhooks: Some(Vec::new()) }
    };
    let made = configurations.create(&PostParams::default(), &registration("kubemoor")).await.unwrap();
    configurations.replace("kubemoor", &PostParams::default(), &made).await.unwrap();
    let other = configurations.create(&PostParams::default(), &registration("other")).await;
    if control_plane.minor() >= ADMISSION_OF_WEBHOOKS {
        // Both policies refuse it, and either may be the first.
        refused(other.unwrap_err(), "The guard may store");
    } else {
        other.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn api_server_refuses_writes_that_the_guard_never_needs() {
    let control_plane = ControlPlane::start();
    control_plane.apply_deploy(&["namespace.yaml", "rbac.yaml", "enforce/arbiter.yaml"]).await;
    if control_plane.minor() < ADMISSION_POLICIES {
        return assert_policies_are_unknown(&control_plane);
    }
    let (home, admin) = (control_plane.namespace("home").await, control_plane.client(Identity::Admin).await);
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), &home);
    let objects = [("plain", &*home, false), ("declared", &*home, true), ("foreign", "elsewhere", true)];
    for (name, namespace, has_label) in objects {
        let object = serde_json::from_value(config_map(name, namespace, has_label)).unwrap();
        maps.create(&PostParams::default(), &object).await.unwrap();
    }
    let bare = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bare"}});
    maps.create(&PostParams::default(), &serde_json::from_value(bare).unwrap()).await.unwrap();
    control_plane.apply_deploy(&["enforce/writes.yaml", "enforce/namespace-writes.yaml"]).await;

    let guard = control_plane.client(Identity::Guard).await;
    let maps: Api<ConfigMap> = Api::namespaced(guard.clone(), &home);
    let namespaces: Api<Namespace> = Api::all(guard.clone());
    let stored = PatchParams::default();
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    let edit = |value: &str| Patch::Merge(json!({"data": {"a": value}}));
    let label = Patch::Merge(json!({"metadata": {"labels": {"a": "1"}}}));
    // Policies take effect a moment after they are stored.
    eventually("an object without a release is refused", SOON, || async {
        maps.patch("plain", &stored, &edit("2")).await.is_err()
    })
    .await;
    eventually("an object of a foreign release is refused", SOON, || async {
        maps.patch("foreign", &stored, &edit("2")).await.is_err()
    })
    .await;
    let plain = "The guard may store its own objects and objects of Helm releases";
    let beyond = "The guard may store no object of a release outside the namespace of that release";
    refused(maps.patch("plain", &stored, &edit("3")).await.unwrap_err(), plain);
    refused(maps.patch("foreign", &stored, &edit("3")).await.unwrap_err(), beyond);
    let error = namespaces.patch(&home, &stored, &label).await.unwrap_err();
    assert!(error.to_string().contains("The guard may store"), "{error}");

    assert_only_own_registration_may_be_stored(&control_plane, &guard).await;
    maps.patch("plain", &dry_run, &edit("4")).await.unwrap();
    namespaces.patch(&home, &dry_run, &label).await.unwrap();
    maps.patch("declared", &stored, &edit("4")).await.unwrap();
    // Marks that the guard itself adds make no object a release's; one that lost some of them gets them back.
    let marked = |name: &str| Patch::Merge(config_map(name, &home, true));
    refused(maps.patch("bare", &stored, &marked("bare")).await.unwrap_err(), plain);
    maps.patch("plain", &stored, &marked("plain")).await.unwrap();
    let strip = Patch::Merge(json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}}));
    refused(maps.patch("declared", &stored, &strip).await.unwrap_err(), plain);
}

/// What belongs to the guard: the address of its collection, and the object.
fn of_the_guard() -> Vec<(String, Value)> {
    let home = "namespaces/kubemoor-system";
    let named = |name: &str, rest: Value| {
        let mut object = json!({"metadata": {"name": name}});
        object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        object
    };
    let labels = json!({"app": "kubemoor"});
    let pod =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "i"}]}});
    let spec = json!({"spec": {"selector": {"matchLabels": labels}, "template": pod}});
    let service = json!({"spec": {"selector": labels, "ports": [{"port": 443}]}});
    vec![
        (format!("/api/v1/{home}/secrets"), named("kubemoor-caller", json!({}))),
        (format!("/api/v1/{home}/services"), named("kubemoor", service)),
        (format!("/apis/coordination.k8s.io/v1/{home}/leases"), named("kubemoor", json!({}))),
        (format!("/apis/apps/v1/{home}/deployments"), named("kubemoor", spec)),
        (DRIFT_POLICIES.to_owned(), drift_policy("production", json!({"edits": "Deny"}))),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn guard_is_changed_only_by_who_may_administer_it() {
    let control_plane = ControlPlane::start_defined();
    if control_plane.minor() < ADMISSION_POLICIES {
        return;
    }
    let mallory = Member::new(&control_plane).await;
    let rights = [
        "create,get,patch,delete,deletecollection secrets",
        "create,get,patch,delete,deletecollection services",
        "get,patch,delete namespaces",
        "get,patch,delete customresourcedefinitions.apiextensions.k8s.io",
        "create,get,patch,delete,deletecollection leases.coordination.k8s.io",
        "create,get,patch,delete,deletecollection deployments.apps",
        "create,get,patch,delete,deletecollection driftpolicies.kubemoor.dev",
        "create,get,patch,delete,deletecollection validatingwebhookconfigurations.admissionregistration.k8s.io",
    ];
    mallory.may(&rights.map(RbacRule::parse), None).await;
    let (mallory, admin) = (mallory.caller().await, Caller::new(&control_plane, Identity::Admin).await);
    control_plane.apply_deploy(&["namespace.yaml", "enforce/guard.yaml"]).await;
    let refused = |answer: Answer| {
        let said = answer.to_string();
        if said.contains("This belongs to Kubemoor") { Ok(()) } else { Err(said) }
    };
    let mut objects = of_the_guard();
    if control_plane.minor() >= ADMISSION_OF_WEBHOOKS {
        let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
        objects.push((path.to_owned(), json!({"metadata": {"name": "kubemoor"}, "webhooks": []})));
    }
    let note = json!({"metadata": {"annotations": {"example.org/note": "x"}}});
    for (collection, object) in &objects {
        let path = format!("{collection}/{}", object["metadata"]["name"].as_str().unwrap());
        // Policies take effect a moment after they are stored, and rights too.
        eventually(&format!("nobody else creates {path}"), SOON, || async {
            refused(mallory.post(&format!("{collection}?dryRun=All"), object).await)
        })
        .await;
        admin.post(collection, object).await.done().unwrap();
        refused(mallory.merge(&path, &note).await).unwrap();
        refused(mallory.delete(&path).await).unwrap();
        refused(mallory.delete(collection).await).unwrap();
        admin.merge(&path, &note).await.done().unwrap();
    }
    // Without its namespace or its definitions there is no guard.
    let namespace = "/api/v1/namespaces/kubemoor-system";
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/driftpolicies.kubemoor.dev";
    for path in [namespace, definition] {
        refused(mallory.delete(&format!("{path}?dryRun=All")).await).unwrap();
        let owner = json!({"apiVersion": "v1", "kind": "Namespace", "name": "gone", "uid": "no-such-uid"});
        let owned = json!({"metadata": {"ownerReferences": [owner]}});
        refused(mallory.merge(&format!("{path}?dryRun=All"), &owned).await).unwrap();
    }
    mallory.merge(namespace, &note).await.done().unwrap();
    // What is not the guard's stays theirs.
    let secrets = format!("{}/kubemoor-notes", of_the_guard()[0].0);
    let other = json!({"metadata": {"name": "kubemoor-notes"}});
    mallory.post(&of_the_guard()[0].0, &other).await.done().unwrap();
    mallory.delete(&secrets).await.done().unwrap();
}
