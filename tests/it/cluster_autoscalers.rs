//! Autoscalers as the guard follows them on a real API server: whom they scale, how far, and when they go.

use std::collections::BTreeSet;
use std::sync::Arc;

use kubemoor_cluster::client::connection::connect;
use kubemoor_cluster::mirror::Progress;
use kubemoor_cluster::mirror::autoscalers::AutoscalerMirror;
use kubemoor_declare::model::{Autoscaler, ObjectId};
use kubemoor_helm::index::Index;
use parking_lot::RwLock;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{Caller, ControlPlane, Identity, SOON, eventually, soon};

fn deployment(namespace: &str, name: &str) -> ObjectId {
    ObjectId::namespaced("apps", "Deployment", namespace, name)
}

fn autoscaler(name: &str, target: &str, minimum: Option<i32>, maximum: i32) -> Value {
    json!({
        "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
            "minReplicas": minimum, "maxReplicas": maximum,
        },
    })
}

fn scales(minimum: i32, maximum: i32) -> Vec<Autoscaler> {
    vec![Autoscaler { minimum, maximum, by_keda: false, declared_by: Vec::new() }]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn autoscalers_are_known_from_when_they_come_until_they_go() {
    let control_plane = ControlPlane::get();
    let namespace = control_plane.namespace("scaled").await;
    let admin = Caller::new(control_plane, Identity::Admin).await;
    let path = format!("/apis/autoscaling/v1/namespaces/{namespace}/horizontalpodautoscalers");
    // One is there before anybody looks.
    admin.post(&path, &autoscaler("web", "web", None, 5)).await.done().unwrap();

    let client = connect(Some(&control_plane.kubeconfig(Identity::Admin))).await.unwrap().client;
    let autoscalers = AutoscalerMirror::new(client, Vec::new());
    let changes = autoscalers.changes();
    let (following, stop) = (Arc::clone(&autoscalers), CancellationToken::new());
    let stopping = stop.clone();
    let task = tokio::spawn(async move { following.run(&RwLock::default(), stopping).await });
    let mut progress = autoscalers.progress();
    soon("all are listed", progress.wait_for(|it| *it == Progress::Listed)).await.unwrap();

    let index = Index::default();
    let of = |name: &str| autoscalers.of_workload(&deployment(&namespace, name), &index);
    let seen = |name: &'static str, expected: Vec<Autoscaler>| async move {
        eventually(&format!("{name} is scaled by {expected:?}"), SOON, || {
            std::future::ready(of(name) == expected)
        })
        .await;
    };
    assert_eq!(of("web"), scales(1, 5));
    assert_eq!(of("db"), []);

    // A second one has a range of its own, and one that turns to another workload leaves the first.
    admin.post(&path, &autoscaler("more", "web", Some(3), 9)).await.done().unwrap();
    seen("web", [scales(3, 9), scales(1, 5)].concat()).await;
    let turned = json!({"spec": {"scaleTargetRef": {"name": "db"}, "maxReplicas": 4}});
    admin.merge(&format!("{path}/more"), &turned).await.done().unwrap();
    seen("db", scales(3, 4)).await;
    seen("web", scales(1, 5)).await;

    // Gone, it is remembered that there was one.
    admin.delete(&format!("{path}/web")).await.done().unwrap();
    seen("web", Vec::new()).await;
    assert!(autoscalers.departed(&deployment(&namespace, "web")).is_some());
    admin.post(&path, &autoscaler("web", "web", Some(2), 2)).await.done().unwrap();
    seen("web", scales(2, 2)).await;
    assert_eq!(autoscalers.departed(&deployment(&namespace, "web")), None);

    // Each of these was told.
    let mut told = BTreeSet::new();
    while !(told.contains("web") && told.contains("db")) {
        told.insert(soon("a change is told", changes.next()).await.name.to_string());
    }
    stop.cancel();
    task.await.unwrap();
}
