//! The alerts and the dashboard of the chart, checked by a real Prometheus that reads the metrics of a real guard.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::{
    Caller, Chart, ControlPlane, Document, Guard, HOME, Helm, Identity, Installed, Prometheus, SOON, Scene,
    charts, eventually, folder, names, root,
};

/// The object of this kind that the chart renders for monitoring.
async fn rendered(kind: &str, values: Value) -> Value {
    let helm = Helm::with(Path::new("/nonexistent"));
    let chart = Chart::shipped("deploy/chart");
    let files = helm.template(HOME, "kubemoor", &chart, json!({"values": values})).await.unwrap();
    let text = files["kubemoor/templates/monitoring.yaml"].as_str().unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    objects.into_iter().find(|object| object["kind"] == kind).unwrap()
}

/// The groups of rules, and the dashboard, as the chart renders them.
async fn rules_and_dashboard() -> (Value, Value) {
    let enabled = |part: &str| json!({part: {"enabled": true}});
    let mut rules = rendered("PrometheusRule", enabled("prometheusRule")).await;
    let dashboard = rendered("ConfigMap", enabled("dashboard")).await;
    let dashboard = dashboard["data"]["kubemoor.json"].as_str().unwrap();
    (rules["spec"].take(), serde_json::from_str(dashboard).unwrap())
}

/// How the ServiceMonitor of the chart has Prometheus read the guard, with these values.
async fn endpoint(mut values: Value) -> Value {
    values["serviceMonitor"] = json!({"enabled": true});
    rendered("ServiceMonitor", values).await["spec"]["endpoints"][0].take()
}

/// How the ServiceMonitor of the chart verifies the guard, with these sources of certificates.
async fn tls_config(certificates: Value) -> Value {
    endpoint(json!({"certificates": certificates})).await["tlsConfig"].take()
}

/// Gives a user the role that the chart has for Prometheus.
async fn let_read_metrics(control_plane: &ControlPlane, user: Identity) {
    control_plane.apply_deploy(&["people.yaml"]).await;
    let binding = json!({
        "metadata": {"name": "prometheus"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kubemoor-metrics-reader",
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user.user()}],
    });
    let admin = Caller::new(control_plane, Identity::Admin).await;
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    admin.post(bindings, &binding).await.done().unwrap();
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
#[ignore = "slow: make test-all"]
async fn prometheus_answers_every_query_of_alerts_and_dashboard() {
    let (rules, dashboard) = rules_and_dashboard().await;
    let file = folder("rules").join("alerts.yaml");
    fs::write(&file, rules.to_string()).unwrap();
    let checked = Prometheus::check_rules(&file);
    assert!(checked.status.success(), "{checked:?}");
    let alerts: usize = list(&rules, "groups").iter().map(|group| list(group, "rules").len()).sum();
    let found = format!("SUCCESS: {alerts} rules found");
    assert!(String::from_utf8_lossy(&checked.stdout).contains(&found), "{checked:?}");

    let scene = Scene::own().install("scraped", charts::TWO).await;
    let flags = ["--register", "--edits", "Deny", "--drift", "Repair"];
    let guard = Guard::start_with_closed_metrics(&scene.control_plane, &flags).await;
    scene.wait_until_guarded(&scene.config_map("settings")).await;
    scene.wait_for_confirmed(2).await;
    scene.control_plane.delete_unhindered(&scene.config_map("extra")).await;
    guard.wait_for_metric("kubemoor_repairs_total{kind=\"missing\",outcome=\"repaired\"} 1").await;
    let address = guard.admin_url("").replace("https://", "");
    let tls = json!({"ca_file": guard.tls_dir().join("ca.crt")});
    // A user with few rights.
    let scraper = Identity::Autoscaler;
    let prometheus = Prometheus::start(&address, scraper, tls, &[&file]).await;
    eventually("Prometheus is refused", SOON, || async {
        let up = prometheus.query("up").await?;
        if up.len() == 1 && up[0]["value"][1] == "0" { Ok(()) } else { Err(format!("{up:?}")) }
    })
    .await;
    let_read_metrics(&scene.control_plane, scraper).await;
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

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn guard_that_is_never_ready_or_whose_certificate_ends_raises_an_alarm() {
    let (rules, _) = rules_and_dashboard().await;
    let file = folder("firing").join("alerts.yaml");
    fs::write(&file, rules.to_string()).unwrap();
    let day = 24 * 3600;
    // The certificate is valid for ten days from 1970 on.
    let certificate = [
        json!({"series": "kubemoor_certificate_not_before_timestamp_seconds", "values": "0x20000"}),
        json!({"series": "kubemoor_certificate_expiration_timestamp_seconds",
            "values": format!("{}x20000", 10 * day)}),
    ];
    let ready = |first: &str| {
        json!([
            {"series": "kubemoor_ready{pod='a'}", "values": format!("{first}x20000")},
            {"series": "kubemoor_ready{pod='b'}", "values": "0x20000"},
        ])
    };
    let fires = |alert: &str, at: &str, expected: bool| {
        let rule = list(&rules, "groups").iter().flat_map(|group| list(group, "rules"));
        let rule = rule.clone().find(|rule| rule["alert"] == alert).unwrap();
        let fired = json!({"exp_labels": rule["labels"], "exp_annotations": rule["annotations"]});
        let fired: Vec<_> = expected.then_some(fired).into_iter().collect();
        json!({"eval_time": at, "alertname": alert, "exp_alerts": fired})
    };
    let check = |series: &Value, alerts: Value| {
        let test = json!({"interval": "1m", "input_series": series, "alert_rule_test": alerts});
        let tests = file.with_file_name("tests.yaml");
        let text = json!({"rule_files": [file], "evaluation_interval": "1m", "tests": [test]});
        fs::write(&tests, text.to_string()).unwrap();
        let said = Prometheus::test_rules(&tests);
        assert!(said.status.success(), "{alerts}: {said:?}");
    };
    let not_ready = "KubemoorNotReady";
    check(&ready("0"), json!([fires(not_ready, "4m", false), fires(not_ready, "6m", true)]));
    check(&ready("1"), json!([fires(not_ready, "6m", false)]));
    let expires = "KubemoorCertificateExpires";
    // The guard renews it after two thirds of its life, so within the seventh day.
    let alerts = json!([fires(expires, "7d", false), fires(expires, "8d1h", true)]);
    check(&json!(certificate), alerts);
}

#[tokio::test]
async fn service_monitor_shows_a_token_unless_metrics_are_anonymous() {
    let token = "/var/run/secrets/kubernetes.io/serviceaccount/token";
    assert_eq!(endpoint(json!({})).await["bearerTokenFile"], token);
    let anonymous = endpoint(json!({"metrics": {"anonymous": true}})).await;
    assert_eq!(anonymous["bearerTokenFile"], json!(null));
}

#[test]
fn every_alert_of_the_chart_is_documented() {
    let documented = Document::named("docs/metrics.md").table("## Alerts");
    let documented: Vec<_> = documented.iter().map(|row| names(&row[0])[0].to_owned()).collect();
    let text = fs::read_to_string(root().join("deploy/chart/files/alerts.yaml")).unwrap();
    let alerts: Value = serde_saphyr::from_str(&text).unwrap();
    let rules = list(&alerts, "groups").iter().flat_map(|group| list(group, "rules"));
    let alerts: Vec<_> = rules.map(|rule| rule["alert"].as_str().unwrap().to_owned()).collect();
    assert_eq!(documented, alerts);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn service_monitor_verifies_certificate_of_each_source() {
    for (certificates, secret) in [
        (json!({}), "kubemoor-certificate"),
        (json!({"source": "CertManager"}), "kubemoor-tls"),
        (json!({"source": "Secret", "existingSecret": "own"}), "own"),
    ] {
        let ca = json!({"secret": {"name": secret, "key": "ca.crt"}});
        let expected = json!({"serverName": format!("kubemoor.{HOME}.svc"), "ca": ca});
        assert_eq!(tls_config(certificates).await, expected, "{secret}");
    }

    let control_plane = ControlPlane::start();
    let chart = Installed::new(&control_plane).await;
    chart.install(json!({"edits": "Deny"})).await.unwrap();
    let pods = chart.start(1).await;
    // As the Prometheus operator translates it.
    let verified = tls_config(json!({})).await;
    let (ca, name) = (&verified["ca"]["secret"], &verified["serverName"]);
    let secret = format!("/api/v1/namespaces/{HOME}/secrets/{}", ca["name"].as_str().unwrap());
    let secret = chart.admin.get(&secret).await.done().unwrap();
    let authority = secret["data"][ca["key"].as_str().unwrap()].as_str().unwrap();
    let file = folder("scraped").join("ca.crt");
    fs::write(&file, STANDARD.decode(authority).unwrap()).unwrap();
    let (address, tls) =
        (pods[0].admin_url().replace("https://", ""), json!({"ca_file": file, "server_name": name}));
    let prometheus = Prometheus::start(&address, Identity::Alice, tls, &[]).await;
    eventually("Prometheus reads the replica", SOON, || async {
        let up = prometheus.query("up").await?;
        if up.len() == 1 && up[0]["value"][1] == "1" { Ok(()) } else { Err(format!("{up:?}")) }
    })
    .await;
}
