//! Replicas that are replaced one after the other, or die, while the API server asks.

use std::sync::Arc;

use serde_json::json;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::support::{
    Balancer, Caller, Chart, ControlPlane, Guard, Helm, Identity, Installed, Pod, RELEASE, SOON, Told, edit,
    eventually, wait_until_guarded,
};

const SETTINGS: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {mode: fast}\n";
const RESTARTS: usize = 10;
const REPLICAS: usize = 2;

/// Two replicas behind one address, and a release whose ConfigMap is edited all the time, while `failurePolicy` is
/// `Fail`.
struct ReplicasUnderEdits<'a> {
    chart: Installed<'a>,
    balancer: Balancer,
    pods: Vec<Pod>,
    edits: JoinHandle<Told>,
    stop: CancellationToken,
}

impl<'a> ReplicasUnderEdits<'a> {
    async fn start(control_plane: &'a ControlPlane) -> Self {
        let chart = Installed::new(control_plane).await;
        chart.install(json!({"edits": "Deny"})).await.unwrap();
        let balancer = Balancer::start().await;
        chart.route_to(&[balancer.port()]).await;
        let mut pods = Vec::new();
        for _ in 0..REPLICAS {
            let mut pod = chart.start_one().await;
            balancer.add(&pod);
            pod.ready().await;
            pods.push(pod);
        }
        let namespace = control_plane.namespace("shop").await;
        let release = Chart::new(RELEASE).template("all.yaml", SETTINGS);
        let helm = Helm::start(control_plane, Identity::Deployer);
        helm.install(&namespace, RELEASE, &release, json!({})).await.unwrap();
        let settings = format!("/api/v1/namespaces/{namespace}/configmaps/settings");
        let alice = Arc::new(Caller::new(control_plane, Identity::Alice).await);
        wait_until_guarded(&alice, RELEASE, &settings).await;
        Guard::extend_webhook_timeouts(control_plane, "Fail").await;
        let stop = CancellationToken::new();
        let edits = tokio::spawn(edit(alice, settings, stop.clone()));
        Self { chart, balancer, pods, edits, stop }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn ten_rolling_restarts_lose_no_request_under_fail() {
    let control_plane = ControlPlane::start();
    let ReplicasUnderEdits { chart, balancer, mut pods, edits, stop } =
        ReplicasUnderEdits::start(&control_plane).await;
    let mut ending = JoinSet::new();
    for _ in 0..RESTARTS * REPLICAS {
        // As a Deployment does it: the next one is ready, then an old one is told to stop, and nobody waits for its end.
        let mut next = chart.start_one().await;
        balancer.add(&next);
        next.ready().await;
        pods.push(next);
        let mut old = pods.remove(0);
        ending.spawn_blocking(move || {
            let status = old.terminate();
            assert!(status.success(), "{status}: {}", old.log());
        });
    }
    while let Some(ended) = ending.join_next().await {
        ended.unwrap();
    }
    stop.cancel();
    edits.await.unwrap().assert_all_served();
    // The last one may have come when all connections stood.
    let connections = balancer.connections();
    let (_, replaced) = connections.split_last().unwrap();
    assert!(replaced.iter().all(|count| *count > 0), "a replica was never asked: {connections:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn death_of_the_leader_costs_requests_only_until_its_address_goes_and_lets_none_pass_unjudged() {
    let control_plane = ControlPlane::start();
    let ReplicasUnderEdits { mut pods, edits, stop, balancer, .. } =
        ReplicasUnderEdits::start(&control_plane).await;
    let mut leads = Vec::new();
    for pod in &pods {
        leads.push(pod.leads().await);
    }
    let leader = leads.iter().position(|leads| *leads).expect("a replica leads");
    let mut dead = pods.remove(leader);
    let [other] = &*pods else { panic!("{} replicas are left", pods.len()) };
    let connections = balancer.connections();
    dead.kill();
    eventually("the other replica leads", SOON, || async { other.leads().await }).await;
    // The balancer has noticed the death long before.
    stop.cancel();
    edits.await.unwrap().assert_recovered("failed calling webhook");
    assert_ne!(balancer.connections(), connections, "no connection was made after the death");
}
