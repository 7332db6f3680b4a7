//! The time from a deletion behind the guard's back to the object's return.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, PropagationPolicy};
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::support::{Chart, ControlPlane, Guard, Helm, Identity, eventually};

const RELEASES: usize = 10;
const CONFIG_MAPS: usize = 20;
const DEPLOYMENTS: usize = 10;
const BAR: Duration = Duration::from_secs(2);

/// A fixed order that mixes releases and kinds: a step through all objects
/// that shares no factor with their number.
const STRIDE: usize = 113;

const TEMPLATE: &str = "\
{{- range $n := until 20 }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ $.Release.Name }}-{{ $n }}}
data: {a: one, b: two, c: {{ $.Release.Name }}}
{{- end }}
{{- range $n := until 10 }}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ $.Release.Name }}-{{ $n }}}
spec:
  replicas: 0
  selector: {matchLabels: {app: {{ $.Release.Name }}-{{ $n }}}}
  template:
    metadata: {labels: {app: {{ $.Release.Name }}-{{ $n }}}}
    spec:
      containers:
      - name: app
        image: registry.example/shop:1
{{- end }}
";

/// Prints the percentiles over one deletion of every object.
pub(crate) async fn measure() {
    let control_plane = ControlPlane::start();
    let namespace = control_plane.namespace("recreation").await;
    let helm = Helm::start(&control_plane, Identity::Deployer);
    let chart = Chart::new("shop").template("objects.yaml", TEMPLATE);
    for n in 0..RELEASES {
        helm.install(&namespace, &format!("shop{n}"), &chart, json!({})).await.unwrap();
    }
    // No webhook is in the way of the deletions.
    let _guard = Guard::start(&control_plane, &["--edits", "Deny", "--drift", "Repair"]).await;
    let client = control_plane.client(Identity::Admin).await;
    let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let deployments: Api<Deployment> = Api::namespaced(client, &namespace);
    let all = RELEASES * (CONFIG_MAPS + DEPLOYMENTS);
    let mut took = Vec::new();
    for place in 0..all {
        let object = place * STRIDE % all;
        let (release, n) = (object % RELEASES, object / RELEASES);
        took.push(match n.checked_sub(CONFIG_MAPS) {
            None => back_after(&config_maps, &format!("shop{release}-{n}")).await,
            Some(n) => back_after(&deployments, &format!("shop{release}-{n}")).await,
        });
    }
    assert_eq!(
        config_maps
            .list(&ListParams::default().labels("app.kubernetes.io/managed-by=Helm"))
            .await
            .unwrap()
            .items
            .len(),
        RELEASES * CONFIG_MAPS
    );
    took.sort();
    let percentile = |percent: usize| took[(took.len() * percent / 100).min(took.len() - 1)];
    let missed = if percentile(99) > BAR { ": missed" } else { "" };
    println!(
        "from deletion to re-creation, {all} deletions: p50 {:.0?}, p99 {:.0?} (at most {BAR:?}{missed}), longest {:.0?}",
        percentile(50),
        percentile(99),
        percentile(100)
    );
}

/// Deletes an object and waits until another of its name is there.
async fn back_after<K>(api: &Api<K>, name: &str) -> Duration
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let uid = api.get_metadata(name).await.unwrap().uid();
    let parameters =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..DeleteParams::default() };
    api.delete(name, &parameters).await.unwrap();
    let gone = Instant::now();
    eventually(&format!("{name} is back"), Duration::from_secs(60), || async {
        match api.get_metadata_opt(name).await {
            Ok(Some(object)) if object.uid() != uid => Ok(()),
            Ok(_) => Err("it is not there".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    })
    .await;
    gone.elapsed()
}
