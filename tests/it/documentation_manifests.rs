//! The manifests of the documentation: policies as the guard reads them, values as the chart takes them, and all others
//! as a real API server takes them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use kubemoor_notify::file;
use kubemoor_policy::allowance::Allowance;
use kubemoor_policy::compile::{read, typed};
use serde_json::{Value, json};

use crate::support::{
    Chart, ControlPlane, Document, HOME, Helm, HelmLine, Identity, documents, drift_policy, folder, root,
    run, simple_commands,
};

/// Files of other programs, by a key or a kind of theirs.
const FOREIGN: [&str; 2] = [
    // Prometheus reads it.
    "scrape_configs",
    // The API server reads it when it starts; `attacks_door` starts one with such a file.
    "AdmissionConfiguration",
];

struct Judge {
    helm: Helm,
    chart: Chart,
    namespace: String,
}

impl Judge {
    async fn new() -> Self {
        Self {
            helm: Helm::with(Path::new("/nonexistent")),
            chart: Chart::shipped("deploy/chart"),
            namespace: ControlPlane::get().namespace("documentation").await,
        }
    }

    /// Says what a text is that holds manifests, and what is wrong with one of them.
    async fn judge_all(&self, text: &str) -> Result<Vec<&'static str>, String> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| error.to_string())?;
        let mut found = Vec::new();
        for document in documents {
            found.push(self.judge(document).await?);
        }
        Ok(found)
    }

    async fn judge(&self, document: Value) -> Result<&'static str, String> {
        let has = |key: &str| document.get(key).is_some();
        if FOREIGN.iter().any(|name| has(name) || document["kind"] == *name) {
            return Ok("foreign");
        }
        match document["kind"].as_str() {
            Some("DriftPolicy") => judge_policy(&document),
            Some("DriftAllowance") => {
                let allowance = typed(document).map(|resource| Allowance::compile(&resource));
                match allowance {
                    Ok(Ok(_)) => Ok("allowance"),
                    other => Err(format!("{other:?}")),
                }
            }
            Some("PolicyTest") => judge_policy_test(&document),
            Some(_) => self.judge_object(document),
            // Parts of a policy, of the metadata of an object, of the notifiers' file.
            None if has("spec") => judge_policy(&drift_policy("part", &document["spec"])),
            None if has("metadata") => {
                let mut object =
                    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": document["metadata"]});
                object["metadata"]["name"] = json!("part");
                self.judge_object(object)
            }
            None if document["notifiers"].is_array() => judge_notifiers(document),
            None => self.judge_values(&document).await,
        }
    }

    /// Asks the API server, which stores nothing.
    fn judge_object(&self, mut object: Value) -> Result<&'static str, String> {
        if object["metadata"]["namespace"].is_string() {
            object["metadata"]["namespace"] = json!(self.namespace);
        }
        let file = folder("manifest").join("object.json");
        fs::write(&file, object.to_string()).unwrap();
        let arguments =
            ["apply", "--dry-run=server", "--namespace", &self.namespace, "-f", file.to_str().unwrap()];
        let output = ControlPlane::get().kubectl(Identity::Admin, &arguments);
        if output.status.success() { Ok("object") } else { Err(String::from_utf8(output.stderr).unwrap()) }
    }

    /// Renders the chart, which checks the values by the schema.
    async fn judge_values(&self, values: &Value) -> Result<&'static str, String> {
        self.helm.template(HOME, "kubemoor", &self.chart, json!({"values": values})).await?;
        for given in values["policies"].as_array().into_iter().flatten() {
            judge_policy(&drift_policy(given["name"].as_str().unwrap(), &given["spec"]))?;
        }
        Ok("values")
    }
}

fn judge_policy(document: &Value) -> Result<&'static str, String> {
    let flaws = read([("fence", document.to_string().as_str())]).1;
    if flaws.is_empty() { Ok("policy") } else { Err(format!("{flaws:?}")) }
}

/// Runs it beside the policies that Kubemoor ships.
fn judge_policy_test(document: &Value) -> Result<&'static str, String> {
    let place = folder("policy-test");
    let tests = place.join("tests");
    fs::create_dir(&tests).unwrap();
    for entry in fs::read_dir(root().join("policies")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, place.join(path.file_name().unwrap())).unwrap();
        }
    }
    let shipped = fs::read_to_string(root().join("policies/tests/jenkins-weekend.yaml")).unwrap();
    let shipped: Value = serde_saphyr::from_str(&shipped).unwrap();
    fs::write(tests.join("jenkins.yaml"), shipped["spec"]["release"]["manifest"].as_str().unwrap()).unwrap();
    fs::write(tests.join("fence.yaml"), document.to_string()).unwrap();
    let ran = run(&["policy", "test", tests.to_str().unwrap()], "");
    if ran.code == 0 { Ok("policy test") } else { Err(format!("{ran:?}")) }
}

/// Reads it as the guard does, but for the files that it names.
fn judge_notifiers(mut document: Value) -> Result<&'static str, String> {
    let place = folder("notifiers");
    fs::write(place.join("token"), "0123456789abcdef0123456789abcdef").unwrap();
    fs::write(place.join("url"), "https://hooks.example/secret").unwrap();
    for notifier in document["notifiers"].as_array_mut().unwrap() {
        for (field, file) in [("urlFile", "url"), ("routingKeyFile", "token")] {
            if notifier[field].is_string() {
                notifier[field] = json!(place.join(file));
            }
        }
        for file in notifier["headerFiles"].as_object_mut().into_iter().flatten() {
            *file.1 = json!(place.join("token"));
        }
    }
    fs::write(place.join("notifiers.yaml"), document.to_string()).unwrap();
    file::read(&place.join("notifiers.yaml")).map(|_| "notifiers").map_err(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_manifest_of_the_documentation_is_accepted() {
    let judge = Judge::new().await;
    let mut seen = BTreeSet::new();
    for document in documents() {
        let below = document.commands().into_iter().filter_map(|statement| statement.input);
        for text in document.fences("yaml").into_iter().chain(below) {
            let kinds = judge.judge_all(&text).await;
            let place = document.path.display();
            seen.extend(kinds.unwrap_or_else(|error| panic!("{place}: {error}\n{text}")));
        }
    }
    let all = ["allowance", "foreign", "notifiers", "object", "policy", "policy test", "values"];
    assert_eq!(seen, BTreeSet::from(all));
}

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn every_value_given_to_the_chart_is_accepted() {
    let judge = Judge {
        helm: Helm::with(Path::new("/nonexistent")),
        chart: Chart::shipped("deploy/chart"),
        namespace: String::new(),
    };
    for document in documents() {
        let files = document.files();
        for words in document.commands().iter().flat_map(|statement| simple_commands(&statement.line)) {
            if words[0] != "helm" {
                continue;
            }
            // Those of other charts may have any flags.
            let Ok(line) = HelmLine::read(&words, &files) else { continue };
            if line.is_of_the_chart() {
                let judged = judge.judge_values(&line.values).await;
                judged.unwrap_or_else(|error| panic!("{}: {words:?}: {error}", document.path.display()));
            }
        }
    }
}

/// Whether a span of code names a value of the chart: `ledger.age`, `ledger.age=720h`.
fn named_value<'a>(span: &'a str, tops: &BTreeSet<&str>) -> Option<&'a str> {
    let path = span.split(['=', ':']).next().unwrap_or_default();
    let is_path =
        path.split('.').all(|name| !name.is_empty() && name.chars().all(|it| it.is_ascii_alphabetic()));
    let is_file = [".md", ".db", ".json", ".rs", ".yaml"].iter().any(|end| path.ends_with(end));
    let top = path.split_once('.')?.0;
    (is_path && !is_file && tops.contains(top)).then_some(path)
}

#[test]
fn every_value_named_in_a_sentence_exists() {
    let table = Document::named("docs/chart-values.md").text;
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let known: BTreeSet<&str> = rows.map(|row| row.split('`').next().unwrap()).collect();
    let tops = known.iter().map(|path| path.split('.').next().unwrap()).collect();
    let exists = |path: &str| {
        known.iter().any(|row| {
            let is_below =
                |short: &str, long: &str| long.strip_prefix(short).is_some_and(|it| it.starts_with('.'));
            path == *row || is_below(path, row) || is_below(row, path)
        })
    };
    assert!(named_value("ledger.ages=720h", &tops).is_some_and(|path| !exists(path)));
    let mut seen = 0;
    for document in documents() {
        for span in document.code() {
            if let Some(path) = named_value(&span, &tops) {
                assert!(exists(path), "{}: the chart has no value {path}", document.path.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "only {seen} values were found");
}
