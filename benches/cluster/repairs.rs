//! The time from a drift behind the guard's back to its repair.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Caller, Chart, ControlPlane, Guard, Helm, Identity, eventually};

const RELEASES: usize = 10;
const CONFIG_MAPS: usize = 30;
const DEPLOYMENTS: usize = 20;
const BAR: Duration = Duration::from_secs(2);

const TEMPLATE: &str = "\
{{- range $n := until 30 }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ $.Release.Name }}-{{ $n }}}
data: {a: one, b: two, c: {{ $.Release.Name }}}
{{- end }}
{{- range $n := until 20 }}
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

/// What is done to an object.
#[derive(Clone, Copy, Debug, PartialEq)]
enum InflictedDrift {
    Deleted,
    Changed,
    Unlabelled,
    OtherImage,
}

/// A sequence that looks random and is the same in every run (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % most as u64).unwrap()
    }
}

/// Prints the percentiles over one drift of every object, in random order.
pub(crate) async fn measure() {
    let control_plane = ControlPlane::start();
    let namespace = control_plane.namespace("repairs").await;
    let helm = Helm::start(&control_plane, Identity::Deployer);
    let chart = Chart::new("shop").template("objects.yaml", TEMPLATE);
    for n in 0..RELEASES {
        helm.install(&namespace, &format!("shop{n}"), &chart, json!({})).await.unwrap();
    }
    // No webhook is in the way of the drifts.
    let _guard = Guard::start(&control_plane, &["--edits=Deny", "--drift=Repair"]).await;
    let caller = Caller::new(&control_plane, Identity::Alice).await;
    let mut dice = Dice(7);
    let mut objects: Vec<(bool, String)> = Vec::new();
    for release in 0..RELEASES {
        let path = |kind: &str, n| format!("/{kind}/shop{release}-{n}");
        objects.extend((0..CONFIG_MAPS).map(|n| (false, path("configmaps", n))));
        objects.extend((0..DEPLOYMENTS).map(|n| (true, path("deployments", n))));
    }
    for place in (1..objects.len()).rev() {
        objects.swap(place, dice.below(place + 1));
    }
    let mut took = Vec::new();
    for (is_workload, path) in &objects {
        let root = if *is_workload { "/apis/apps/v1" } else { "/api/v1" };
        let path = format!("{root}/namespaces/{namespace}{path}");
        let drift = match dice.below(if *is_workload { 4 } else { 3 }) {
            0 => InflictedDrift::Deleted,
            1 => InflictedDrift::Changed,
            2 => InflictedDrift::Unlabelled,
            _ => InflictedDrift::OtherImage,
        };
        took.push((drift, until_repaired(&caller, &path, *is_workload, drift).await));
    }
    println!("from a drift to its repair, {RELEASES} releases of {} objects:", CONFIG_MAPS + DEPLOYMENTS);
    let all: Vec<Duration> = took.iter().map(|(_, took)| *took).collect();
    print("all", all, Some(BAR));
    for drift in [
        InflictedDrift::Deleted,
        InflictedDrift::Changed,
        InflictedDrift::Unlabelled,
        InflictedDrift::OtherImage,
    ] {
        let some = took.iter().filter(|(done, _)| *done == drift).map(|(_, took)| *took).collect();
        print(&format!("{drift:?}"), some, None);
    }
}

fn print(what: &str, mut took: Vec<Duration>, bar: Option<Duration>) {
    took.sort();
    let percentile = |percent: usize| took[(took.len() * percent / 100).min(took.len() - 1)];
    let missed = match bar {
        Some(bar) if percentile(99) > bar => format!(" (at most {bar:?}: missed)"),
        Some(bar) => format!(" (at most {bar:?})"),
        None => String::new(),
    };
    println!(
        "  {what}, {}: p50 {:.0?}, p99 {:.0?}{missed}, longest {:.0?}",
        took.len(),
        percentile(50),
        percentile(99),
        percentile(100)
    );
}

/// Does something to an object, and waits until it is as declared again.
async fn until_repaired(caller: &Caller, path: &str, is_workload: bool, drift: InflictedDrift) -> Duration {
    let before = caller.get(path).await.done().unwrap();
    match drift {
        InflictedDrift::Deleted => caller.delete(path).await,
        InflictedDrift::Changed if is_workload => caller.merge(path, &json!({"spec": {"replicas": 1}})).await,
        InflictedDrift::Changed => caller.merge(path, &json!({"data": {"a": "another"}})).await,
        InflictedDrift::Unlabelled => {
            caller.merge(path, &json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}})).await
        }
        InflictedDrift::OtherImage => {
            caller.patch(path, "replace", IMAGE, &json!("registry.example/shop:2")).await
        }
    }
    .done()
    .unwrap();
    let begin = Instant::now();
    eventually(&format!("{path} is repaired after {drift:?}"), Duration::from_secs(60), || async {
        let after = caller.get(path).await.done()?;
        let is_as_before = after["metadata"]["deletionTimestamp"].is_null()
            && (drift != InflictedDrift::Deleted || after["metadata"]["uid"] != before["metadata"]["uid"])
            && declared(&after) == declared(&before);
        if is_as_before { Ok(()) } else { Err("it still drifts".to_owned()) }
    })
    .await;
    begin.elapsed()
}

const IMAGE: &str = "/spec/template/spec/containers/0/image";

/// What the chart declares of an object.
fn declared(object: &Value) -> [Option<&Value>; 4] {
    ["/data", "/spec/replicas", "/metadata/labels", IMAGE].map(|path| object.pointer(path))
}
