//! Single objects on a real API server: every way in which a write can fail, told apart.

use std::num::NonZeroU32;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kubemoor_cluster::client::access::own_name;
use kubemoor_cluster::client::call::{ClusterError, RefusalKind};
use kubemoor_cluster::client::connection::connect;
use kubemoor_cluster::client::objects::{ObjectTarget, Objects};
use kubemoor_cluster::client::resource::ApiResource;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_reconcile::event::HelmManager;
use serde_json::{Value, json};

use crate::support::{ControlPlane, Identity, SOON, eventually};

async fn objects(control_plane: &ControlPlane, identity: Identity) -> Objects {
    let connection = connect(Some(&control_plane.kubeconfig(identity))).await.unwrap();
    Objects::new(connection.client, NonZeroU32::new(100).unwrap())
}

fn config_maps() -> ApiResource {
    ApiResource::new("", "v1", "ConfigMap", "configmaps")
}

fn target(resource: ApiResource, namespace: &str, name: &str) -> ObjectTarget {
    ObjectTarget { resource, namespace: Some(namespace.to_owned()), name: name.to_owned() }
}

fn object(namespace: &str, color: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"color": color},
        "metadata": {"name": "settings", "namespace": namespace, "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": namespace}},
    })
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn an_object_is_created_read_and_deleted_by_uid() {
    let control_plane = ControlPlane::get();
    let namespace = control_plane.namespace("objects").await;
    let objects = objects(control_plane, Identity::Admin).await;
    let settings = target(config_maps(), &namespace, "settings");
    assert!(objects.read(&settings).await.unwrap().is_none());
    assert_eq!(objects.sight(&settings).await, Ok(None));

    let created = objects.create(&settings, &object(&namespace, "red"), "helm").await.unwrap();
    let uid = created["metadata"]["uid"].as_str().unwrap().to_owned();
    let read = objects.read(&settings).await.unwrap().unwrap().object.unwrap();
    assert_eq!(read["data"], json!({"color": "red"}));
    let again = objects.create(&settings, &object(&namespace, "red"), "helm").await;
    assert_eq!(again.unwrap_err().refusal(), Some(RefusalKind::AlreadyExists));

    let sighting = objects.sight(&settings).await.unwrap().unwrap();
    assert_eq!(sighting.id, ObjectId::namespaced("", "ConfigMap", &namespace, "settings"));
    assert_eq!(sighting.uid, uid);
    assert_eq!(
        sighting.release,
        Some(ReleaseId { namespace: namespace.as_str().into(), name: "web".into() })
    );
    assert_eq!(sighting.managers, [HelmManager { name: "helm".to_owned(), applies: false }]);
    assert!(!sighting.deleting);

    let stale = objects.delete(&settings, "00000000-0000-4000-8000-000000000000").await;
    assert_eq!(stale.unwrap_err().refusal(), Some(RefusalKind::Conflict));
    objects.delete(&settings, &uid).await.unwrap();
    let gone = objects.delete(&settings, &uid).await;
    assert_eq!(gone.unwrap_err().refusal(), Some(RefusalKind::NotFound));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn api_server_names_an_object_that_does_not_exist() {
    let control_plane = ControlPlane::get();
    let namespace = control_plane.namespace("absent").await;
    let client = connect(Some(&control_plane.kubeconfig(Identity::Admin))).await.unwrap().client;
    for path in [
        format!("/api/v1/namespaces/{namespace}/configmaps/settings"),
        format!("/api/v1/namespaces/{namespace}/secrets/settings"),
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.nobody.example".to_owned(),
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/nobody".to_owned(),
    ] {
        let request = http::Request::get(&path).body(Vec::new()).unwrap();
        let error = ClusterError::from(client.request_text(request).await.unwrap_err());
        assert!(error.proves_absence(), "{path}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn an_apply_keeps_to_field_ownership_unless_it_is_forced() {
    let control_plane = ControlPlane::get();
    let namespace = control_plane.namespace("apply").await;
    let objects = objects(control_plane, Identity::Admin).await;
    let settings = target(config_maps(), &namespace, "settings");
    objects.apply(&settings, &object(&namespace, "red"), "helm", false).await.unwrap();
    let sighting = objects.sight(&settings).await.unwrap().unwrap();
    assert_eq!(sighting.managers, [HelmManager { name: "helm".to_owned(), applies: true }]);

    let conflict = objects.apply(&settings, &object(&namespace, "blue"), "somebody", false).await;
    let Err(ClusterError::Refused { code: 409, message, .. }) = conflict else { panic!("{conflict:?}") };
    assert!(message.contains("conflict with \"helm\""), "{message}");
    let forced = objects.apply(&settings, &object(&namespace, "blue"), "somebody", true).await.unwrap();
    assert_eq!(forced["data"]["color"], "blue");
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_told_apart_with_the_servers_reason() {
    let control_plane = ControlPlane::get();
    let namespace = control_plane.namespace("failures").await;
    let objects = objects(control_plane, Identity::Admin).await;

    let mut bad = object(&namespace, "red");
    bad["data"] = json!({"not a key!": "x"});
    let invalid = objects.create(&target(config_maps(), &namespace, "settings"), &bad, "helm").await;
    let Err(ClusterError::Refused { code: 422, message, causes, .. }) = invalid else {
        panic!("{invalid:?}")
    };
    assert!(message.contains("not a key!"), "{message}");
    assert!(causes.iter().any(|cause| cause.field.contains("data")), "{causes:?}");

    let nowhere = target(config_maps(), "no-such-namespace", "settings");
    let missing = objects.create(&nowhere, &object("no-such-namespace", "red"), "helm").await;
    assert_eq!(missing.unwrap_err().refusal(), Some(RefusalKind::NotFound));

    let unserved = ApiResource::new("nobody.example", "v1", "Thing", "things");
    let unknown = objects.read(&target(unserved, &namespace, "settings")).await;
    assert!(matches!(unknown, Err(ClusterError::Unserved)), "{unknown:?}");
    assert!(!unknown.unwrap_err().proves_absence());

    // The horizontal pod autoscaler's account may not write ConfigMaps.
    let other = self::objects(control_plane, Identity::Autoscaler).await;
    let settings = target(config_maps(), &namespace, "settings");
    let forbidden = other.create(&settings, &object(&namespace, "red"), "helm").await;
    let Err(ClusterError::Refused { code: 403, message, .. }) = forbidden else { panic!("{forbidden:?}") };
    assert!(message.contains("horizontal-pod-autoscaler"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn write_to_terminating_namespace_is_distinct_from_missing_permission() {
    let control_plane = ControlPlane::get();
    let namespace = control_plane.namespace("terminating").await;
    let objects = objects(control_plane, Identity::Admin).await;
    let settings = target(config_maps(), &namespace, "settings");
    // A finalizer keeps the namespace in its last state for as long as the test needs it.
    let mut held = object(&namespace, "red");
    held["metadata"]["name"] = "held".into();
    held["metadata"]["finalizers"] = json!(["kubemoor.dev/test"]);
    let holder = target(config_maps(), &namespace, "held");
    objects.create(&holder, &held, "test").await.unwrap();
    let client = control_plane.client(Identity::Admin).await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.delete(&namespace, &DeleteParams::default()).await.unwrap();

    let refused = eventually("the namespace takes nothing new", SOON, || async {
        objects.create(&settings, &object(&namespace, "red"), "helm").await.err()
    })
    .await;
    assert_eq!(refused.refusal(), Some(RefusalKind::Terminating), "{refused}");
    eventually("the object that holds it is being deleted", SOON, || async {
        objects.sight(&holder).await.unwrap().is_some_and(|sighting| sighting.deleting)
    })
    .await;
    let config_maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(client, &namespace);
    let release = json!({"metadata": {"finalizers": null}});
    config_maps.patch("held", &PatchParams::default(), &Patch::Merge(release)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_error_quotes_a_secrets_values() {
    let control_plane = ControlPlane::get();
    let namespace = control_plane.namespace("quotes").await;
    let objects = objects(control_plane, Identity::Admin).await;
    let secrets = ApiResource::new("", "v1", "Secret", "secrets");
    let place = target(secrets, &namespace, "login");
    let secret = |data: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"}, "data": data});
    for data in [json!({"pin": 424_242}), json!({"pin": "424242!"}), json!("424242")] {
        let by_post = objects.create(&place, &secret(data.clone()), "helm").await.unwrap_err();
        let by_apply = objects.apply(&place, &secret(data.clone()), "helm", true).await.unwrap_err();
        for error in [by_post, by_apply] {
            let told = format!("{error} {error:?}");
            assert!(!told.contains("424242"), "{data}: {told}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn the_guard_knows_its_own_name() {
    let control_plane = ControlPlane::get();
    let connection = connect(Some(&control_plane.kubeconfig(Identity::Guard))).await.unwrap();
    let name = own_name(&connection.client, connection.claimed.clone()).await.unwrap();
    // An older API server tells it in refusing to.
    assert_eq!(name.as_deref(), Some(Identity::Guard.user()));
}

#[tokio::test]
async fn an_unusable_kubeconfig_is_named() {
    let missing = std::path::Path::new("/no/such/kubeconfig");
    let error = connect(Some(missing)).await.err().unwrap().to_string();
    assert!(error.starts_with("the kubeconfig /no/such/kubeconfig cannot be used: "), "{error}");
}
