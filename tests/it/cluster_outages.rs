//! The index of releases while the API server is away, silent, or younger than it was.

use std::time::Duration;

use kubemoor_cluster::client::call::ClusterError;
use kubemoor_helm::record::ReleaseStatus;
use kubemoor_runtime::config::RecordDriver;
use serde_json::json;

use crate::cluster_releases::{Watched, release_id, settings};
use crate::support::{ControlPlane, Helm, Identity, SOON, eventually, soon};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn the_last_state_serves_while_the_api_server_is_away() {
    let mut control_plane = ControlPlane::start();
    let namespace = control_plane.namespace("outage").await;
    let helm = Helm::start(&control_plane, Identity::Deployer);
    let values = |color: &str| json!({"values": {"color": color}});
    helm.install(&namespace, "web", &settings("web"), values("red")).await.unwrap();
    let watched = Watched::of(&control_plane, &namespace).await;
    let web = release_id(&namespace, "web");

    control_plane.kill_apiserver();
    let mut health = watched.releases.health();
    let broken = soon("the outage is noticed", health.wait_for(|health| health.outage.is_some())).await;
    assert!(broken.unwrap().indexed, "what was indexed stays so");
    assert_eq!(watched.state(&web), Some((1, ReleaseStatus::Deployed)));
    let look = watched.releases.fresh(&web, Duration::from_secs(2)).await;
    assert!(matches!(look, Err(ClusterError::Records { .. })), "{look:?}");

    control_plane.start_apiserver();
    soon("the outage is over", health.wait_for(|health| health.outage.is_none())).await.unwrap();
    let helm = Helm::start(&control_plane, Identity::Deployer);
    helm.upgrade(&namespace, "web", &settings("web"), values("blue")).await.unwrap();
    watched.until(&web, Some((2, ReleaseStatus::Deployed))).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn release_index_waits_if_api_server_is_down_at_start() {
    let mut control_plane = ControlPlane::start();
    let namespace = control_plane.namespace("late").await;
    let helm = Helm::start(&control_plane, Identity::Deployer);
    helm.install(&namespace, "web", &settings("web"), json!({"values": {"color": "red"}})).await.unwrap();
    let kubeconfig = control_plane.kubeconfig(Identity::Admin);
    // The first listing fails; discovery has succeeded just before.
    let watched = Watched::prepare(&kubeconfig, RecordDriver::Secret, &[&namespace]).await;
    control_plane.kill_apiserver();
    let watched = watched.run();
    let mut health = watched.releases.health();
    let broken = soon("the outage is noticed", health.wait_for(|health| health.outage.is_some())).await;
    assert!(!broken.unwrap().indexed);
    control_plane.start_apiserver();
    soon("the index is whole", health.wait_for(|health| health.indexed)).await.unwrap();
    assert_eq!(watched.state(&release_id(&namespace, "web")), Some((1, ReleaseStatus::Deployed)));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_look_at_a_silent_api_server_ends_in_time() {
    let mut control_plane = ControlPlane::start();
    let namespace = control_plane.namespace("silent").await;
    let helm = Helm::start(&control_plane, Identity::Deployer);
    helm.install(&namespace, "web", &settings("web"), json!({"values": {"color": "red"}})).await.unwrap();
    let watched = Watched::of(&control_plane, &namespace).await;
    let web = release_id(&namespace, "web");
    control_plane.pause_apiserver();
    let within = Duration::from_millis(500);
    let look = watched.releases.fresh(&web, within).await;
    let source = Box::new(ClusterError::Late { within });
    assert_eq!(look, Err(ClusterError::Records { release: web.clone(), source }));
    control_plane.resume_apiserver();
    eventually("looks work again", SOON, || async { watched.releases.fresh(&web, within).await }).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_look_sees_a_restored_state_before_the_watch_does() {
    let mut control_plane = ControlPlane::start();
    let namespace = control_plane.namespace("restore-look").await;
    let helm = Helm::start(&control_plane, Identity::Deployer);
    let values = |color: &str| json!({"values": {"color": color}});
    helm.install(&namespace, "web", &settings("web"), values("red")).await.unwrap();
    let snapshot = control_plane.snapshot_etcd();
    let helm = Helm::start(&control_plane, Identity::Deployer);
    helm.upgrade(&namespace, "web", &settings("web"), values("blue")).await.unwrap();
    let watched = Watched::of(&control_plane, &namespace).await;
    let web = release_id(&namespace, "web");
    assert_eq!(watched.state(&web), Some((2, ReleaseStatus::Deployed)));
    control_plane.restore_etcd(&snapshot);
    eventually("a look succeeds", SOON, || async {
        watched.releases.fresh(&web, Duration::from_secs(2)).await
    })
    .await;
    assert_eq!(watched.state(&web), Some((1, ReleaseStatus::Deployed)));
}
