//! The arbiter on a real API server.

use std::num::NonZeroU32;
use std::time::Duration;

use kubemoor_cluster::client::call::ClusterError;
use kubemoor_cluster::client::objects::Objects;
use kubemoor_cluster::mirror::arbiter::{Arbiter, DryRunQuestion};
use kubemoor_declare::declare::Digest;
use kubemoor_declare::model::ObjectId;
use serde_json::json;

use crate::cluster_releases::{Watched, config_map, release_id};
use crate::support::{Chart, ControlPlane, Helm, Identity, SOON, charts, eventually};

const DEPLOYMENT: &str = charts::deployment!(
    "{name: app, image: registry.example/web:1, resources: {limits: {cpu: 2000m, memory: 1024Mi}}}"
);

/// What tells the declaration of an object of the release `web`.
fn digest(watched: &Watched, object: &ObjectId, namespace: &str) -> Option<Digest> {
    let index = watched.releases.index().read();
    index.release(&release_id(namespace, "web")).unwrap().declared(object).unwrap().digest
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn dry_run_returns_objects_canonical_form_and_stores_nothing() {
    let control_plane = ControlPlane::start();
    let namespace = control_plane.namespace("arbiter").await;
    let helm = Helm::start(&control_plane, Identity::Deployer);
    let chart = Chart::new("web").template("web.yaml", DEPLOYMENT);
    helm.install(&namespace, "web", &chart, json!({})).await.unwrap();
    let watched = Watched::of(&control_plane, &namespace).await;
    let objects = Objects::new(watched.connection.client.clone(), NonZeroU32::new(10).unwrap());
    let rate = NonZeroU32::new(2).unwrap();
    let arbiter = Arbiter::new(objects.clone(), watched.kinds.clone(), watched.releases.clone(), rate);
    let deployment = ObjectId {
        group: "apps".into(),
        kind: "Deployment".into(),
        namespace: Some(namespace.clone().into()),
        name: "web".into(),
    };
    let target = watched.kinds.target(&deployment, "v1").unwrap();
    let before = objects.sight(&target).await.unwrap().unwrap();
    let question = DryRunQuestion {
        object: deployment.clone(),
        uid: before.uid.clone(),
        release: release_id(&namespace, "web"),
        revision: 1,
        digest: digest(&watched, &deployment, &namespace),
    };
    for _ in 0..5 {
        let answer = arbiter.canonical(&question, SOON).await.unwrap();
        let limits = answer.pointer("/spec/template/spec/containers/0/resources/limits").unwrap();
        assert_eq!(*limits, json!({"cpu": "2", "memory": "1Gi"}));
    }
    let probes = || {
        let events = control_plane.audit_events(&["fieldManager=kubemoor-probe"]);
        let uri = |event: &serde_json::Value| event["requestURI"].as_str().unwrap_or_default().to_owned();
        events.iter().map(uri).filter(|uri| uri.contains("fieldManager=kubemoor-probe")).collect::<Vec<_>>()
    };
    eventually("the dry run is in the audit log", SOON, || async { !probes().is_empty() }).await;
    assert_eq!(probes().len(), 1, "one dry run for five questions: {:?}", probes());
    assert!(probes()[0].contains("dryRun=All"), "{:?}", probes());
    let live = objects.read(&target).await.unwrap().unwrap();
    let managers = live.whole().unwrap()["metadata"]["managedFields"].to_string();
    assert!(!managers.contains("kubemoor-probe"), "{managers}");

    let unknown = DryRunQuestion { object: config_map(&namespace, "nothing"), ..question.clone() };
    let error = arbiter.canonical(&unknown, SOON).await.unwrap_err();
    assert!(matches!(error, ClusterError::NotDeclared { .. }), "{error:?}");
    let rewritten = DryRunQuestion { digest: Digest::new(&json!({})), ..question.clone() };
    let error = arbiter.canonical(&rewritten, SOON).await.unwrap_err();
    assert!(matches!(error, ClusterError::Changed { .. }), "{error:?}");
    let unrecorded = DryRunQuestion { revision: 9, ..question };
    let error = arbiter.canonical(&unrecorded, SOON).await.unwrap_err();
    assert!(matches!(error, ClusterError::NoRecord { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn refused_dry_run_and_timeout_are_distinct_errors() {
    let control_plane = ControlPlane::get();
    let namespace = control_plane.namespace("refused").await;
    let helm = Helm::start(control_plane, Identity::Deployer);
    let chart = Chart::new("web").template("web.yaml", DEPLOYMENT);
    helm.install(&namespace, "web", &chart, json!({})).await.unwrap();
    let watched = Watched::of(control_plane, &namespace).await;
    // This account may not patch Deployments.
    let client = control_plane.client(Identity::Autoscaler).await;
    let objects = Objects::new(client, NonZeroU32::new(10).unwrap());
    let rate = NonZeroU32::new(1).unwrap();
    let arbiter = Arbiter::new(objects, watched.kinds.clone(), watched.releases.clone(), rate);
    let object = ObjectId {
        group: "apps".into(),
        kind: "Deployment".into(),
        namespace: Some(namespace.clone().into()),
        name: "web".into(),
    };
    let release = release_id(&namespace, "web");
    let digest = digest(&watched, &object, &namespace);
    let question = DryRunQuestion { object, uid: "unknown".to_owned(), release, revision: 1, digest };
    let refused = arbiter.canonical(&question, SOON).await.unwrap_err();
    assert!(matches!(refused, ClusterError::DryRun { .. }), "{refused:?}");
    let late = arbiter.canonical(&question, Duration::from_millis(1)).await.unwrap_err();
    assert!(matches!(late, ClusterError::Slow { .. }), "{late:?}");
}
