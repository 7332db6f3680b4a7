//! What is known of kinds, from a real API server.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kubemoor_cluster::client::resource::ApiResource;
use kubemoor_cluster::mirror::kinds::ServedKinds;
use kubemoor_declare::model::{Gvk, ObjectId, ReleaseId};
use serde_json::{Value, json};

use crate::cluster_releases::{Watched, release_id};
use crate::support::{Chart, ControlPlane, Helm, Identity, SOON, eventually};

const SHIP: &str = "\
apiVersion: kinds.test/v1
kind: Ship
metadata:
  name: kontiki
spec:
  sails: [{name: main, size: 1}, {name: jib, size: 2}]
";

fn gvk(group: &str, version: &str, kind: &str) -> Gvk {
    Gvk { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() }
}

fn definition(plural: &str, kind: &str, scope: &str, sails: Value) -> CustomResourceDefinition {
    let spec = json!({"type": "object", "properties": {"crew": {"type": "integer"}, "sails": sails}});
    serde_json::from_value(json!({
        "metadata": {"name": format!("{plural}.kinds.test")},
        "spec": {
            "group": "kinds.test", "scope": scope,
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"scale": {"specReplicasPath": ".spec.crew", "statusReplicasPath": ".status.crew"}, "status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
            }],
        },
    }))
    .unwrap()
}

fn sails(list_type: &str) -> Value {
    let item = json!({"type": "object", "required": ["name"],
        "properties": {"name": {"type": "string"}, "size": {"type": "integer"}}});
    let mut sails = json!({"type": "array", "items": item, "x-kubernetes-list-type": list_type});
    if list_type == "map" {
        sails["x-kubernetes-list-map-keys"] = json!(["name"]);
    }
    sails
}

/// Whether an edit of the mainsail alone is one change, of a field inside the list.
fn is_keyed(watched: &Watched, release: &ReleaseId, ship: &ObjectId) -> Option<bool> {
    let release = watched.release(release)?;
    let declared = release.declared(ship)?;
    let object = |size: u64| {
        json!({"apiVersion": "kinds.test/v1", "kind": "Ship", "metadata": {"name": "kontiki"},
            "spec": {"sails": [{"name": "main", "size": size}, {"name": "jib", "size": 2}]}})
    };
    let changes = declared.fields().changed(&object(1), &object(9));
    let [change] = changes.as_slice() else { panic!("{changes:?}") };
    Some(change.path.to_string() == "/spec/sails/[name=main]/size")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn every_kind_has_its_place() {
    let kinds = ServedKinds::read(ControlPlane::get().client(Identity::Admin).await).await.unwrap();
    let cases = [
        (gvk("apps", "v1", "Deployment"), Some(("v1", "deployments"))),
        (gvk("", "v1", "ConfigMap"), Some(("v1", "configmaps"))),
        (gvk("rbac.authorization.k8s.io", "v1", "ClusterRole"), Some(("v1", "clusterroles"))),
        (gvk("apps", "v1beta1", "Deployment"), Some(("v1", "deployments"))),
        (gvk("extensions.example", "v1", "Deployment"), None),
        (gvk("apps", "v1", "Ship"), None),
    ];
    for (asked, place) in cases {
        let expected =
            place.map(|(version, plural)| ApiResource::new(&asked.group, version, &asked.kind, plural));
        assert_eq!(kinds.resource(&asked), expected, "{asked:?}");
    }
    let catalog = kinds.catalog();
    assert!(catalog.facts("", "ConfigMap").unwrap().namespaced);
    assert!(!catalog.facts("rbac.authorization.k8s.io", "ClusterRole").unwrap().namespaced);
    let scale = catalog.facts("apps", "Deployment").unwrap().scale_replicas_path.clone();
    assert_eq!(scale.unwrap().to_string(), "/spec/replicas");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn custom_kinds_are_learned_when_definitions_appear_or_change() {
    // One of its own: definitions are for the whole cluster.
    let control_plane = ControlPlane::start();
    let namespace = control_plane.namespace("kinds").await;
    let client = control_plane.client(Identity::Admin).await;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let watched = Watched::of(&control_plane, &namespace).await;
    assert_eq!(watched.kinds.resource(&gvk("kinds.test", "v1", "Ship")), None);

    let ships = definition("ships", "Ship", "Cluster", sails("atomic"));
    definitions.create(&PostParams::default(), &ships).await.unwrap();
    let helm = Helm::start(&control_plane, Identity::Deployer);
    let chart = Chart::new("fleet").template("ship.yaml", SHIP);
    eventually("Helm finds the kind", SOON, || async {
        helm.install(&namespace, "fleet", &chart, json!({"replace": true})).await
    })
    .await;
    let fleet = release_id(&namespace, "fleet");
    let ship =
        ObjectId { group: "kinds.test".into(), kind: "Ship".into(), namespace: None, name: "kontiki".into() };
    eventually("the release declares a cluster-scoped object with an atomic list", SOON, || async {
        is_keyed(&watched, &fleet, &ship).ok_or("it is not declared").map(|keyed| assert!(!keyed))
    })
    .await;
    assert_eq!(
        watched.kinds.resource(&gvk("kinds.test", "v1", "Ship")),
        Some(ApiResource::new("kinds.test", "v1", "Ship", "ships"))
    );
    let release = watched.release(&fleet).unwrap();
    let scale = release.declared(&ship).unwrap().scale().cloned();
    assert_eq!(scale.unwrap().to_string(), "/spec/crew");

    let change = json!({"spec": definition("ships", "Ship", "Cluster", sails("map")).spec});
    definitions.patch("ships.kinds.test", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    eventually("the release is read again by the changed schema", SOON, || async {
        is_keyed(&watched, &fleet, &ship).unwrap_or(false)
    })
    .await;
    definitions.delete("ships.kinds.test", &DeleteParams::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_kind_that_comes_after_its_release_is_learned_then() {
    let control_plane = ControlPlane::start();
    let namespace = control_plane.namespace("later").await;
    let client = control_plane.client(Identity::Admin).await;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let boats = || definition("ships", "Ship", "Cluster", sails("map"));
    definitions.create(&PostParams::default(), &boats()).await.unwrap();
    let helm = Helm::start(&control_plane, Identity::Deployer);
    let chart = Chart::new("fleet").template("ship.yaml", SHIP);
    eventually("Helm finds the kind", SOON, || async {
        helm.install(&namespace, "fleet", &chart, json!({"replace": true})).await
    })
    .await;
    definitions.delete("ships.kinds.test", &DeleteParams::default()).await.unwrap();
    eventually("the kind is gone", SOON, || async {
        definitions.get_opt("ships.kinds.test").await.unwrap().is_none()
    })
    .await;

    let watched = Watched::of(&control_plane, &namespace).await;
    let fleet = release_id(&namespace, "fleet");
    let place = |namespace: Option<&str>| ObjectId {
        group: "kinds.test".into(),
        kind: "Ship".into(),
        namespace: namespace.map(Into::into),
        name: "kontiki".into(),
    };
    let declares = |object: &ObjectId| watched.release(&fleet).unwrap().declared(object).is_some();
    assert!(declares(&place(Some(&namespace))), "an unknown kind counts as namespaced");
    definitions.create(&PostParams::default(), &boats()).await.unwrap();
    eventually("the scope of the kind is known", SOON, || async { declares(&place(None)) }).await;
    assert_eq!(is_keyed(&watched, &fleet, &place(None)), Some(true));
}
