//! Replicas that are replaced one after the other while the API server asks: no request is lost.

use std::sync::Arc;

use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::support::{
    Balancer, Caller, Chart, ControlPlane, Guard, Helm, Identity, Installed, RELEASE, edit,
    wait_until_guarded,
};

const SETTINGS: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {mode: fast}\n";
const RESTARTS: usize = 10;
const REPLICAS: usize = 2;

#[tokio::test(flavor = "multi_thread")]
async fn ten_rolling_restarts_lose_no_request_under_fail() {
    let control_plane = ControlPlane::start_routing();
    let chart = Installed::new(&control_plane).await;
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
    Helm::start(&control_plane, Identity::Deployer)
        .install(&namespace, RELEASE, &release, json!({}))
        .await
        .unwrap();
    let settings = format!("/api/v1/namespaces/{namespace}/configmaps/settings");
    let alice = Arc::new(Caller::new(&control_plane, Identity::Alice).await);
    wait_until_guarded(&alice, RELEASE, &settings).await;
    Guard::extend_webhook_timeouts(&control_plane, "Fail").await;

    let stop = CancellationToken::new();
    let edits = tokio::spawn(edit(alice, settings, stop.clone()));
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
    let told = edits.await.unwrap();
    assert!(told.lost.is_empty(), "{} of {} are lost: {:#?}", told.lost.len(), told.requests, told.lost);
    assert!(told.requests > 1000, "{} requests are no load", told.requests);
    // The last one may have come when all connections stood.
    let connections = balancer.connections();
    let (_, replaced) = connections.split_last().unwrap();
    assert!(replaced.iter().all(|count| *count > 0), "a replica was never asked: {connections:?}");
}
