//! The alerts and the dashboard of the chart, checked by a real Prometheus that reads the metrics of a real guard.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Chart, HOME, Helm, Prometheus, SOON, Scene, charts, eventually, folder};

/// The groups of rules, and the dashboard, as the chart renders them.
async fn rendered() -> (Value, Value) {
    let helm = Helm::with(Path::new("/nonexistent"));
    let values = json!({"prometheusRule": {"enabled": true}, "dashboard": {"enabled": true}});
    let chart = Chart::shipped("deploy/chart");
    let files = helm.template(HOME, "kubemoor", &chart, json!({"values": values})).await.unwrap();
    let text = files["kubemoor/templates/monitoring.yaml"].as_str().unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    let find = |kind: &str| objects.iter().find(|object| object["kind"] == kind).unwrap().clone();
    let dashboard = find("ConfigMap")["data"]["kubemoor.json"].take();
    (find("PrometheusRule")["spec"].take(), serde_json::from_str(dashboard.as_str().unwrap()).unwrap())
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap()
}

/// The queries of the rules and of the dashboard, as Grafana sends them.
fn queries(rules: &Value, dashboard: &Value) -> Vec<String> {
    let rules = list(rules, "groups").iter().flat_map(|group| list(group, "rules"));
    let targets = list(dashboard, "panels").iter().flat_map(|panel| list(panel, "targets"));
    let text = |it: &Value| it["expr"].as_str().unwrap().replace("$__rate_interval", "5m");
    rules.chain(targets).map(text).collect()
}

/// The metrics that a query asks for, as the guard serves them.
fn metrics(query: &str) -> BTreeSet<&str> {
    let words = query.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let names = words.filter(|word| word.starts_with("kubemoor_"));
    names.map(|name| name.strip_suffix("_bucket").unwrap_or(name)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_answers_every_query_of_alerts_and_dashboard() {
    let (rules, dashboard) = rendered().await;
    let file = folder("rules").join("alerts.yaml");
    fs::write(&file, rules.to_string()).unwrap();
    let checked = Prometheus::check_rules(&file);
    assert!(checked.status.success(), "{checked:?}");
    let alerts: usize = list(&rules, "groups").iter().map(|group| list(group, "rules").len()).sum();
    let found = format!("SUCCESS: {alerts} rules found");
    assert!(String::from_utf8_lossy(&checked.stdout).contains(&found), "{checked:?}");

    let scene = Scene::own().install("scraped", charts::TWO).await;
    let guard = scene.start_guard(&["--register", "--edits", "Deny", "--drift", "Repair"]).await;
    scene.wait_until_guarded(&scene.config_map("settings")).await;
    scene.wait_for_confirmed(2).await;
    scene.control_plane.delete_unhindered(&scene.config_map("extra")).await;
    guard.wait_for_metric("kubemoor_repairs_total{kind=\"missing\",outcome=\"repaired\"} 1").await;
    let address = guard.admin_url("").replace("https://", "");
    let prometheus = Prometheus::start(&address, &guard.tls_dir().join("ca.crt"), &file).await;
    eventually("Prometheus reads the guard", SOON, || async {
        let leading = prometheus.query("sum(kubemoor_leading)").await?;
        if leading.len() == 1 && leading[0]["value"][1] == "1" { Ok(()) } else { Err(format!("{leading:?}")) }
    })
    .await;

    let served = guard.metrics().await;
    let queries = queries(&rules, &dashboard);
    assert!(queries.len() > alerts + 15, "{queries:?}");
    for query in &queries {
        prometheus.query(query).await.unwrap_or_else(|error| panic!("{query}: {error}"));
        let metrics = metrics(query);
        assert!(!metrics.is_empty(), "{query} has no metric");
        for metric in metrics {
            let family = format!("\n# TYPE {} ", metric.trim_end_matches("_total"));
            assert!(served.contains(&family), "{query}: {metric} is not served");
        }
    }
    for wrong in ["sum(kubemoor_leading", "kubemoor_leading{state=on}", "rate(kubemoor_leading)"] {
        prometheus.query(wrong).await.unwrap_err();
    }

    // A counter that is not there before its first event seems to rise by nothing.
    let rising: Vec<_> = queries.iter().filter(|query| query.contains("increase(")).collect();
    assert!(rising.len() > 5, "{rising:?}");
    for query in rising {
        let counter = query.split("increase(").nth(1).unwrap().split('[').next().unwrap();
        let series = prometheus.query(counter).await.unwrap();
        assert!(!series.is_empty(), "{counter} has no series before its first event");
    }

    // Each rule is evaluated, and a guard in good health raises no alarm.
    eventually("every rule is evaluated", SOON, || async {
        let data = prometheus.api("rules").await?;
        let rules = list(&data["groups"][0], "rules");
        let is_quiet = |rule: &Value| rule["health"] == "ok" && rule["state"] == "inactive";
        if rules.len() == alerts && rules.iter().all(is_quiet) { Ok(()) } else { Err(data.to_string()) }
    })
    .await;
}

#[test]
fn queries_for_unknown_metrics_would_be_found() {
    let found: Vec<_> =
        metrics("sum(rate(kubemoor_a_bucket[5m])) / kubemoor_b{c=\"kubemoor\"}").into_iter().collect();
    assert_eq!(found, ["kubemoor_a", "kubemoor_b"]);
}
