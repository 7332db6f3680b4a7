//! What the webhook adds to a request through the API server, beside the same request in a namespace
//! that it is not asked about, and how many connections the API server opens for it.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use serde_json::json;

use super::in_sync::metric;
use crate::support::{Caller, ControlPlane, Guard, Identity, forged};

/// Rounds, and in each the requests of a kind, so many of them at one time.
const ROUNDS: usize = 15;
const REQUESTS: usize = 400;
const AT_ONCE: [usize; 2] = [1, 8];

/// A namespace whose objects are never sent to the webhook.
const EXEMPT: &str = "kube-system";

const DECLARED: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: declared}\ndata: {declared: value}\n";

/// The objects that are changed: what they are, where they lie, and their names.
const KINDS: [(&str, bool, &str); 3] = [
    ("in a namespace that is not sent", false, "other"),
    ("not declared", true, "other"),
    ("declared, a field that is not", true, "declared"),
];

/// Prints how long requests take with the webhook and without it.
pub(crate) async fn measure() {
    let control_plane = ControlPlane::start();
    control_plane.define_policies();
    let admin = Caller::new(&control_plane, Identity::Admin).await;
    let namespace = control_plane.namespace("admission").await;
    install(&admin, &namespace).await;
    let flags = ["--edits=Deny", "--drift=Report", "--register"];
    let mut guard = Guard::start(&control_plane, &flags).await;
    crate::support::eventually("the webhook refuses", Duration::from_secs(60), || async {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/declared?dryRun=All");
        admin.merge(&path, &json!({"data": {"declared": "other"}})).await.refused("shop")
    })
    .await;
    for at_once in AT_ONCE {
        print_times(&admin, &namespace, at_once).await;
    }
    print_connections(&guard.metrics().await);
    guard.terminate();
}

/// Creates the objects that are changed, and the record of the release that declares one of them.
async fn install(admin: &Caller, namespace: &str) {
    let record = forged(namespace, "shop", 1, "deployed", DECLARED);
    admin
        .post(&format!("/api/v1/namespaces/{namespace}/secrets"), &serde_json::to_value(record).unwrap())
        .await
        .done()
        .unwrap();
    for (_, sent, name) in KINDS {
        let holder = if sent { namespace } else { EXEMPT };
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {
                "name": name, "labels": {"app.kubernetes.io/managed-by": "Helm"},
                "annotations": {"meta.helm.sh/release-name": "shop", "meta.helm.sh/release-namespace": namespace},
            }, "data": {"declared": "value"},
        });
        let path = format!("/api/v1/namespaces/{holder}/configmaps?fieldManager=helm");
        admin.post(&path, &object).await.done().unwrap();
    }
}

async fn print_times(admin: &Caller, namespace: &str, at_once: usize) {
    let mut took = [const { Vec::new() }; KINDS.len()];
    for round in 0..ROUNDS {
        for (kind, (_, sent, name)) in KINDS.into_iter().enumerate() {
            let holder = if sent { namespace } else { EXEMPT };
            let path = format!("/api/v1/namespaces/{holder}/configmaps/{name}");
            took[kind].push(changed(admin, &path, round, at_once).await);
        }
    }
    println!("{at_once} at one time, {ROUNDS} rounds of {REQUESTS} changes; medians over the rounds:");
    for ((what, ..), rounds) in KINDS.into_iter().zip(&took) {
        let ratio =
            |part: f64| median(rounds.iter().zip(&took[0]).map(|(own, none)| at(own, part) / at(none, part)));
        let of = |part: f64| median(rounds.iter().map(|round| at(round, part))) * 1e3;
        println!(
            "  {what}: p50 {:.2} ms ({:.2}), p99 {:.2} ms ({:.2})",
            of(0.5),
            ratio(0.5),
            of(0.99),
            ratio(0.99)
        );
    }
}

fn print_connections(metrics: &str) {
    let open = metric(metrics, "kubemoor_connections_open{port=\"webhook\"}");
    let closed: usize = metrics
        .lines()
        .filter(|line| line.starts_with("kubemoor_connections_total{port=\"webhook\""))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok())
        .sum();
    println!("connections of the API server to the webhook: {open} open, {closed} closed before");
}

/// Changes an object again and again; how long each took, sorted, in seconds.
async fn changed(admin: &Caller, path: &str, round: usize, at_once: usize) -> Vec<f64> {
    let requests = (0..REQUESTS).map(|number| async move {
        let begin = Instant::now();
        let patch = json!({"data": {format!("k{}", number % at_once): format!("{round} {number}")}});
        admin.merge(path, &patch).await.done().unwrap();
        begin.elapsed().as_secs_f64()
    });
    let mut took: Vec<f64> = futures::stream::iter(requests).buffer_unordered(at_once).collect().await;
    took.sort_by(f64::total_cmp);
    took
}

/// The value below which this part of them lies.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
fn at(sorted: &[f64], part: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * part).round() as usize]
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    at(&values, 0.5)
}
