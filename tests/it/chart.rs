//! The chart by itself, rendered and linted by the real Helm SDK without a cluster.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Map, Value, json};

use crate::support::{Chart, HOME, Helm, folder, helm_python};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Helm, which needs no cluster here.
pub(crate) fn offline() -> (Helm, Chart) {
    (Helm::with(Path::new("/nonexistent")), Chart::shipped("deploy/chart"))
}

/// The text of each template with these values.
async fn rendered(helm: &Helm, chart: &Chart, values: &Value) -> Result<Value, String> {
    helm.template(HOME, "kubemoor", chart, json!({"values": values})).await
}

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

pub(crate) fn cases(file: &str) -> Vec<Value> {
    serde_saphyr::from_str(&read(&format!("tests/it/chart/{file}"))).unwrap()
}

/// The values that a case has at `path`, over `given`.
pub(crate) fn with(given: &Value, path: &str, value: &Value) -> Value {
    let mut values = given.clone();
    let mut place = &mut values;
    for name in path.split('.') {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        place = &mut place[name];
    }
    *place = value.clone();
    values
}

/// The paths of the table in docs/chart-values.md.
fn documented() -> BTreeSet<String> {
    let table = read("docs/chart-values.md");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| row.split('`').next().unwrap().to_owned()).collect()
}

fn leaves(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value.as_object().filter(|map| !map.is_empty()) {
        Some(map) => {
            for (name, value) in map {
                leaves(value, &format!("{path}{}{name}", if path.is_empty() { "" } else { "." }), found);
            }
        }
        None => {
            found.insert(path.to_owned());
        }
    }
}

#[test]
fn files_rendered_from_the_chart_are_up_to_date() {
    let folder = folder("rendered");
    let mut render = Command::new(helm_python());
    render.arg(Path::new(ROOT).join("tests/control-plane/render.py")).arg(&folder);
    let output = render.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let files: Vec<String> = serde_json::from_slice(&output.stdout).unwrap();
    assert!(files.contains(&"deploy/rbac.yaml".to_owned()), "{files:?}");
    for file in files {
        let now = fs::read_to_string(folder.join(&file)).unwrap();
        assert_eq!(read(&file), now, "{file} is old: run `make manifests`");
    }
}

#[test]
fn chart_and_program_have_one_version() {
    let chart: Value = serde_saphyr::from_str(&read("deploy/chart/Chart.yaml")).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!((&chart["version"], &chart["appVersion"]), (&json!(version), &json!(version)));
}

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn lint_finds_nothing() {
    let (helm, chart) = offline();
    let all = cases("values.yaml").iter().fold(json!({"replicas": 1}), |values, case| {
        let (path, value) = (case["path"].as_str().unwrap(), &case["value"]);
        let taken = ["replicas", "certificates.source", "ledger.postgres.existingSecret", "user"];
        if taken.contains(&path) { values } else { with(&values, path, value) }
    });
    for values in [json!({}), all] {
        let found = helm.lint(HOME, &chart, json!({"values": values})).await.unwrap();
        assert_eq!(found["errors"], json!([]), "{found}");
        let messages = found["messages"].as_array().unwrap();
        assert!(messages.iter().all(|message| message["error"] == "icon is recommended"), "{found}");
    }
}

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn every_value_changes_the_rendering_and_is_documented() {
    let (helm, chart) = offline();
    let mut tried = BTreeSet::new();
    for case in cases("values.yaml") {
        let path = case["path"].as_str().unwrap();
        let given = case.get("given").cloned().unwrap_or_else(|| json!({}));
        let before = rendered(&helm, &chart, &given).await.unwrap_or_else(|error| panic!("{case}: {error}"));
        let changed = with(&given, path, &case["value"]);
        let after = rendered(&helm, &chart, &changed).await.unwrap_or_else(|error| panic!("{case}: {error}"));
        let files = |rendered: &Value| {
            let mut files = rendered.as_object().unwrap().clone();
            files.remove("kubemoor/templates/NOTES.txt");
            files
        };
        assert_ne!(files(&before), files(&after), "{path} changes nothing");
        for (file, text) in files(&after) {
            let objects: Result<Vec<Value>, _> = serde_saphyr::from_multiple(text.as_str().unwrap());
            let objects = objects.unwrap_or_else(|error| panic!("{case}: {file}: {error}\n{text}"));
            for object in objects.iter().filter(|object| !object.is_null()) {
                assert!(object["kind"].is_string(), "{case}: {file}: {object}");
            }
        }
        tried.insert(path.to_owned());
    }
    let documented = documented();
    assert_eq!(tried, documented, "each row of docs/chart-values.md needs a case, and each case a row");
    let values: Value = serde_saphyr::from_str(&read("deploy/chart/values.yaml")).unwrap();
    let mut found = BTreeSet::new();
    leaves(&values, "", &mut found);
    for leaf in found {
        let is_told = documented.iter().any(|row| leaf == *row || leaf.starts_with(&format!("{row}.")));
        assert!(is_told, "{leaf} has no comment in values.yaml");
    }
}

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn object_names_do_not_depend_on_the_release() {
    let (helm, chart) = offline();
    let named = async |release: &str| {
        let mut files = helm.template(HOME, release, &chart, json!({})).await.unwrap();
        // They run `helm` commands, and compare this release.
        for file in ["NOTES.txt", "tests/release.yaml"] {
            files.as_object_mut().unwrap().remove(&format!("kubemoor/templates/{file}"));
        }
        files
    };
    assert_eq!(named("kubemoor").await, named("another").await);
}

/// The pods of the guard.
fn pod_of(workload: &str) -> Value {
    let objects: Vec<Value> = serde_saphyr::from_multiple(workload).unwrap();
    let mut deployment = objects.into_iter().find(|object| object["kind"] == "Deployment").unwrap();
    deployment["spec"]["template"]["spec"].take()
}

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn rolling_update_spreads_its_new_pods_where_the_cluster_can() {
    let (helm, chart) = offline();
    let check = |workload: &str, version: &str, expected: &Value| {
        let constraints = pod_of(workload)["topologySpreadConstraints"].take();
        let constraints = constraints.as_array().unwrap();
        assert_eq!(constraints.len(), 2, "{version}");
        for constraint in constraints {
            assert_eq!(constraint["matchLabelKeys"], *expected, "{version}: {constraint}");
        }
    };
    let (old, new) = (json!(null), json!(["pod-template-hash"]));
    for (version, expected) in [
        ("v1.20.2", &old),
        ("v1.26.15", &old),
        ("v1.27.0", &new),
        ("v1.27.16-eks-2f46c53", &new),
        ("v1.36.0", &new),
    ] {
        let files = helm.template(HOME, "kubemoor", &chart, json!({"kube_version": version})).await.unwrap();
        check(files["kubemoor/templates/workload.yaml"].as_str().unwrap(), version, expected);
    }
    // Every cluster takes these.
    for file in ["deploy/workload.yaml", "certs/workload.yaml"] {
        check(&read(file), file, &old);
    }
}

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn sqlite_sorts_beside_the_ledger_because_the_root_is_read_only() {
    let (helm, chart) = offline();
    let container = async |values: Value| {
        let files = rendered(&helm, &chart, &values).await.unwrap();
        pod_of(files["kubemoor/templates/workload.yaml"].as_str().unwrap())["containers"][0].take()
    };
    let folder = |container: &Value| {
        let env = container["env"].as_array().unwrap();
        env.iter().find(|it| it["name"] == "SQLITE_TMPDIR").map(|it| it["value"].as_str().unwrap().to_owned())
    };
    let file = container(json!({})).await;
    assert_eq!(file["securityContext"]["readOnlyRootFilesystem"], true);
    let folder_of_file = folder(&file).unwrap();
    let ledger = format!("--ledger=sqlite:{folder_of_file}/ledger.db");
    assert!(file["args"].as_array().unwrap().contains(&json!(ledger)), "{file:#}");
    let mounts = file["volumeMounts"].as_array().unwrap();
    assert!(mounts.iter().any(|it| it["mountPath"] == *folder_of_file && it["readOnly"] != true), "{file:#}");
    let database = container(json!({"ledger": {"postgres": {"existingSecret": "ledger"}}})).await;
    assert_eq!(folder(&database), None);
}

#[tokio::test]
async fn every_pod_of_the_chart_runs_with_the_least_rights() {
    let (helm, chart) = offline();
    let values = json!({"edits": "Deny", "drift": "Repair", "ui": {"enabled": true, "host": "moor.example"}});
    let files = rendered(&helm, &chart, &values).await.unwrap();
    let mut pods = BTreeSet::new();
    for (file, text) in files.as_object().unwrap() {
        let text = text.as_str().unwrap();
        if file.ends_with(".txt") || text.trim().is_empty() {
            continue;
        }
        let objects: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
        for object in objects {
            let pod = match object["kind"].as_str() {
                Some("Pod") => &object["spec"],
                Some("Deployment" | "Job") => &object["spec"]["template"]["spec"],
                _ => continue,
            };
            let name = format!("{} {}", object["kind"].as_str().unwrap(), object["metadata"]["name"]);
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
            assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", "{name}");
            for container in pod["containers"].as_array().unwrap() {
                let context = &container["securityContext"];
                assert_eq!(context["readOnlyRootFilesystem"], true, "{name}");
                assert_eq!(context["allowPrivilegeEscalation"], false, "{name}");
                assert_eq!(context["capabilities"], json!({"drop": ["ALL"]}), "{name}");
            }
            pods.insert(name);
        }
    }
    // The guard, its page, the hook of the uninstallation, and the test.
    assert!(pods.len() >= 4, "{pods:?}");
}

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn bad_values_are_refused() {
    let (helm, chart) = offline();
    for case in cases("refused.yaml") {
        match rendered(&helm, &chart, &case["values"]).await {
            Err(error) => {
                let says = case["says"].as_str().unwrap();
                assert!(error.contains(says), "{case}: {error}");
            }
            Ok(_) => panic!("{case} is taken"),
        }
    }
}

#[tokio::test]
async fn examples_give_values_that_the_chart_takes() {
    let (helm, chart) = offline();
    for (file, values) in [("flux", "/spec/values"), ("argocd", "/spec/source/helm/valuesObject")] {
        let text = read(&format!("examples/{file}.yaml"));
        let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        let values = objects.last().unwrap().pointer(values).unwrap();
        rendered(&helm, &chart, values).await.unwrap();
    }
}

/// Flags that the chart never gives, and why.
const OTHERS: [&str; 11] = [
    // The pod's account and ports are the chart's own.
    "--kubeconfig",
    "--listen",
    "--admin-listen",
    "--webhook-url",
    // A guard without a cluster, or without writes.
    "--store",
    "--read-only",
    // The guard makes token and certificate; the chart keeps their Secrets.
    "--caller-token-file",
    "--tls-dir",
    // Its default suits a Service; extraEnv sets another one.
    "--shutdown-delay",
    "--help",
    "--version",
];

#[tokio::test]
async fn every_flag_of_serve_is_a_value() {
    let (helm, chart) = offline();
    let mut given = String::new();
    for case in cases("values.yaml") {
        let values = with(&case["given"], case["path"].as_str().unwrap(), &case["value"]);
        let files = rendered(&helm, &chart, &values).await.unwrap();
        given += files["kubemoor/templates/workload.yaml"].as_str().unwrap();
    }
    let help = Command::new(env!("CARGO_BIN_EXE_kubemoor")).args(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let named = |line: &str| {
        let line = line.trim();
        let is_flag = line.starts_with("--") || line.starts_with('-') && line.contains(", --");
        let flag = line.split_whitespace().find(|word| word.starts_with("--"));
        flag.filter(|_| is_flag).map(str::to_owned)
    };
    let flags: BTreeSet<_> = help.lines().filter_map(named).collect();
    assert!(flags.contains("--edits"), "{flags:?}");
    for flag in flags {
        let variable = flag.trim_start_matches('-').to_uppercase().replace('-', "_");
        let is_given = given.contains(&format!("- {flag}\n"))
            || given.contains(&format!("{flag}="))
            || given.contains(&format!("name: KUBEMOOR_{variable}\n"));
        assert_eq!(is_given, !OTHERS.contains(&flag.as_str()), "{flag}");
    }
}

/// The labels that a selector asks for, each with its values.
fn selected(selector: &str) -> Vec<(String, Vec<String>)> {
    let label = |part: &str| {
        let (name, value) = part.split_once('=').unwrap();
        let values = value.trim_start_matches('~').trim_matches('"').split('|').map(str::to_owned);
        (name.trim_end_matches('!').to_owned(), values.collect())
    };
    selector.split(',').map(|part| label(part.trim())).collect()
}

/// `docs/metrics.md` is held to what the program serves by a test of its own.
#[test]
fn queries_ask_for_metrics_and_labels_that_the_guard_serves() {
    let files = ["alerts.yaml", "dashboard.json"].map(|file| read(&format!("deploy/chart/files/{file}")));
    let alerts: Value = serde_saphyr::from_str(&files[0]).unwrap();
    let dashboard: Value = serde_json::from_str(&files[1]).unwrap();
    let list = |value: &Value| value.as_array().unwrap().clone();
    let rules = list(&alerts["groups"]).into_iter().flat_map(|group| list(&group["rules"]));
    let targets = list(&dashboard["panels"]).into_iter().flat_map(|panel| list(&panel["targets"]));
    let queries: Vec<String> =
        rules.chain(targets).map(|it| it["expr"].as_str().unwrap().to_owned()).collect();
    assert!(queries.len() > 25, "{queries:?}");
    let (metrics, reasons) = (read("docs/metrics.md"), read("docs/verdict.md"));
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    for query in queries {
        let start = query.find("kubemoor_").unwrap_or_else(|| panic!("{query} has no metric"));
        let name = query[start..].split(|letter| !is_part(letter)).next().unwrap();
        let served = name.strip_suffix("_bucket").unwrap_or(name);
        let row = metrics.lines().find(|line| line.starts_with(&format!("| `{served}` |")));
        let row = row.unwrap_or_else(|| panic!("{query} asks for {name}"));
        let rest = &query[start + name.len()..];
        if let Some((selector, _)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
            for (label, values) in selected(selector) {
                assert!(row.contains(&format!("`{label}`")), "{query}: {label}");
                for value in values {
                    let code = format!("`{value}`");
                    let is_reason = label == "reason" && reasons.contains(&code);
                    assert!(row.contains(&code) || is_reason, "{query}: {value}");
                }
            }
        }
        let groups = query.split("by (").skip(1).flat_map(|rest| rest.split(')').next().unwrap().split(','));
        for label in groups.map(str::trim) {
            let is_bucket = label == "le" && name != served;
            assert!(is_bucket || row.contains(&format!("`{label}`")), "{query}: {label}");
        }
    }
}
