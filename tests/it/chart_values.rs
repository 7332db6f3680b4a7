//! Which chart value sets a field: what the records of charts tell, held against what the real Helm renders.
//!
//! Entry point: [`measure`]. Invariant: the truth of each field is Helm's: a value sets it if Helm, rendering the chart with
//! another value there, renders another field.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kubemoor_declare::model::{Gvk, ObjectId};
use kubemoor_declare::path::{Path, Segment};
use kubemoor_helm::record::{ChartSource, PackedRecord};
use kubemoor_helm::values::{Candidate, ValueQuestion, candidates};
use serde_json::{Value, json};

use crate::support::{Chart, ControlPlane, Helm, Identity, SOON, Scene, eventually, folder};

/// Charts in the styles of popular ones, and the one of `helm create`.
const CHARTS: [&str; 10] = [
    "agent",
    "batch",
    "certs",
    "controller",
    "database",
    "gateway",
    "metrics",
    "site",
    "storefront",
    "umbrella",
];

/// What of the named candidates must be right, and of the fields that values set must be named, in percent.
const PRECISION: usize = 95;
const COVERAGE: usize = 60;

/// A chart with a value for a Deployment and one for a Secret.
const VALUES: &str = "replicaCount: 2\npassword: hunter2\n";

const TEMPLATE: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels: {tier: front}
spec:
  replicas: {{ .Values.replicaCount }}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: app, image: 'app:1'}]}
---
apiVersion: v1
kind: Secret
metadata: {name: access}
stringData: {password: {{ .Values.password }}}
";

/// A field of a rendered object: the object, and the steps to the field.
type Place = (String, Vec<String>);

/// The fields of a rendered chart.
type Rendered = BTreeMap<Place, Value>;

/// What was found for the fields of one chart, or of several.
#[derive(Default)]
struct HintTally {
    /// Fields that a value sets.
    settable: usize,
    /// Fields for which a value was named.
    named: usize,
    /// Those for which it was the right one.
    right: usize,
    /// Commands, and those that set the field to the wanted value.
    commands: usize,
    fulfilled: usize,
    wrong: String,
    /// What nothing was named for.
    missing: String,
}

/// One chart, rendered by Helm.
struct Subject<'a> {
    helm: &'a Helm,
    chart: &'a Chart,
    namespace: &'a str,
    defaults: Value,
    plain: Rendered,
    /// Which fields change with a value.
    known: BTreeMap<Vec<String>, BTreeSet<Place>>,
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn named_chart_value_sets_the_field() {
    let control_plane = ControlPlane::get();
    let helm = Helm::start(control_plane, Identity::Admin);
    let mut total = HintTally::default();
    let created = helm.create(&folder("created"), "plain").await.unwrap();
    let charts = CHARTS.map(|name| (name, Chart::shipped(format!("tests/it/chart_values/charts/{name}"))));
    for (name, chart) in charts.into_iter().chain([("plain", created)]) {
        let tally = measure(&helm, control_plane, &chart).await;
        println!("{name}: {}", tally.text());
        total.add(tally);
    }
    println!("all: {}\n{}\nunnamed:\n{}", total.text(), total.wrong, total.missing);
    assert!(total.right * 100 >= total.named * PRECISION, "{}\n{}", total.text(), total.wrong);
    assert!(total.right * 100 >= total.settable * COVERAGE, "{}\n{}", total.text(), total.wrong);
    assert_eq!(total.fulfilled, total.commands, "{}", total.wrong);
    let page = std::fs::read_to_string("docs/troubleshooting.md").unwrap();
    let said = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let HintTally { settable, named, right, commands, .. } = &total;
    let percent = right * 100 / named;
    let sentence = format!(
        "Of {settable} fields that a value sets it names the right one for {right}; of the {named} that it names, {right} are right ({percent} %). All {commands} commands"
    );
    assert!(said.contains(&sentence), "docs/troubleshooting.md does not say: {sentence}");
}

#[tokio::test(flavor = "multi_thread")]
async fn denial_and_explanation_name_the_chart_value_and_its_evidence() {
    let chart = Chart::new("web").values(VALUES).template("web.yaml", TEMPLATE);
    let shop = Scene::policed().install("remedy", chart).await;
    let web = shop.deployment("web");
    shop.wait_until_guarded(&web).await;
    let denied = shop.alice.merge(&web, &json!({"spec": {"replicas": 7}})).await;
    let upgrade = format!(
        "change the chart value (probably replicaCount) and upgrade with chart \"web\" version 0.1.0 as CHART: helm upgrade shop CHART -n {} --reuse-values --set replicaCount=7\n",
        shop.namespace
    );
    let message = denied.body["message"].as_str().unwrap();
    assert!(message.contains(&upgrade), "{message}");
    let secret = shop.core("secrets/access");
    shop.wait_until_guarded(&secret).await;
    let hidden = shop.alice.merge(&secret, &json!({"stringData": {"password": "planted-secret"}})).await;
    let message = hidden.body["message"].as_str().unwrap();
    assert!(message.contains("=VALUE") && !message.contains("planted"), "{message}");

    // The same command is one row, however often the API server asks.
    let rows = eventually("both denials are in the ledger", SOON, || async {
        let mut rows = shop.rows(&[]);
        rows.retain(|row| row["verdict"] == "Deny");
        if rows.len() >= 2 { Ok(rows) } else { Err(format!("{rows:?}")) }
    })
    .await;
    assert_eq!(rows.len(), 2, "{rows:#?}");

    shop.upgrade(json!({"values": {"replicaCount": 3}})).await.unwrap();
    let ran = shop.moor(&["explain", "deploy/web", "--path", "/spec/replicas", "-o", "json"]);
    let report = ran.json();
    assert_eq!(report["release"]["chart"], "\"web\" version 0.1.0", "{report}");
    let value = &report["fields"][0]["values"][0];
    assert_eq!(value["value"], "replicaCount", "{report}");
    let kinds: Vec<_> =
        value["evidence"].as_array().unwrap().iter().map(|it| it["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["template", "equalValue", "changedTogether", "similarName"], "{report}");
    let told = shop.moor(&["explain", "deploy/web", "--path", "/spec/replicas"]);
    let line = "replicaCount: templates/web.yaml line 7 names it there, has the same value, changed with the field from revision 1 to 2";
    assert!(told.out.contains(line) && told.out.contains("(probably replicaCount)"), "{told:?}");
}

/// Asks for every field of an installed chart, without and with a wanted value.
async fn measure(helm: &Helm, control_plane: &ControlPlane, chart: &Chart) -> HintTally {
    let namespace = control_plane.namespace("values").await;
    helm.install(&namespace, "shop", chart, json!({"server_side_apply": false})).await.unwrap();
    let client = control_plane.client(Identity::Admin).await;
    let source = source(client, &namespace).await;
    let mut subject = Subject {
        helm,
        chart,
        namespace: &namespace,
        defaults: source.all_values(),
        plain: Rendered::new(),
        known: BTreeMap::new(),
    };
    subject.plain = subject.render(&json!({})).await;
    let mut leaves = Vec::new();
    collect(&subject.defaults, &mut Vec::new(), &mut leaves);
    let mut settable = BTreeSet::new();
    for leaf in leaves {
        settable.extend(subject.set_by(&leaf).await);
    }
    let mut tally = HintTally::default();
    for ((object, steps), declared) in subject.plain.clone() {
        if matches!(steps.first().map(String::as_str), Some("apiVersion" | "kind"))
            || steps == ["metadata", "name"]
        {
            continue;
        }
        let place = (object, steps);
        let is_settable = settable.contains(&place);
        tally.settable += usize::from(is_settable);
        let new = other(&declared);
        let first = ask(&source, &namespace, &place, None).into_iter().next();
        let told = ask(&source, &namespace, &place, Some(&new)).into_iter().next();
        if let Some(Candidate { value, .. }) = &first {
            let path: Vec<String> = unescaped(value);
            let is_right = subject.set_by(&path).await.contains(&place);
            tally.named += 1;
            tally.right += usize::from(is_right);
            if !is_right {
                writeln!(tally.wrong, "{place:?}: {first:?}").unwrap();
            }
        }
        if is_settable && first.is_none() {
            writeln!(tally.missing, "{place:?} {declared}").unwrap();
        }
        if let Some((flag, set)) = told.as_ref().and_then(|told| told.set.as_ref()) {
            let rendered = subject.render(&given(flag, set)).await;
            tally.count_command(&format!("{place:?}: {flag} {set}"), rendered.get(&place), &new);
        }
    }
    tally
}

/// What the first revision was rendered from, as its record says.
async fn source(client: kube::Client, namespace: &str) -> ChartSource {
    let record =
        Api::<Secret>::namespaced(client, namespace).get("sh.helm.release.v1.shop.v1").await.unwrap();
    PackedRecord::from_object(&serde_json::to_value(record).unwrap()).unwrap().source().unwrap()
}

fn ask(
    source: &ChartSource,
    namespace: &str,
    (object, steps): &Place,
    new: Option<&Value>,
) -> Vec<Candidate> {
    let parts: Vec<&str> = object.split(' ').collect();
    let gvk = Gvk::from_api_version(parts[0], parts[1]);
    let object = ObjectId {
        group: gvk.group.into(),
        kind: gvk.kind.into(),
        namespace: Some(namespace.into()),
        name: parts[2].into(),
    };
    let path = Path(steps.iter().cloned().map(Segment::Field).collect());
    candidates(std::slice::from_ref(source), ValueQuestion { object: &object, path: &path, place: None, new })
}

impl Subject<'_> {
    async fn render(&self, values: &Value) -> Rendered {
        let texts = self.helm.template(self.namespace, "shop", self.chart, json!({"values": values})).await;
        let mut rendered = Rendered::new();
        for text in
            texts.unwrap_or_default().as_object().into_iter().flatten().filter_map(|(_, text)| text.as_str())
        {
            for document in text.split("\n---").filter_map(|text| serde_saphyr::from_str::<Value>(text).ok())
            {
                let text = |pointer| document.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
                let object = format!("{} {} {}", text("/apiVersion"), text("/kind"), text("/metadata/name"));
                fields(&document, &object, &mut Vec::new(), &mut rendered);
            }
        }
        rendered
    }

    /// The fields that Helm renders otherwise with another value there.
    async fn set_by(&mut self, path: &[String]) -> BTreeSet<Place> {
        if let Some(known) = self.known.get(path) {
            return known.clone();
        }
        let now = path.iter().try_fold(&self.defaults, |value, name| value.get(name));
        let mut values = other(now.unwrap_or(&Value::Null));
        for name in path.iter().rev() {
            values = json!({ name: values });
        }
        let rendered = self.render(&values).await;
        let changed = |(place, value): &(&Place, &Value)| rendered.get(*place).is_some_and(|it| it != *value);
        let found: BTreeSet<Place> =
            self.plain.iter().filter(changed).map(|(place, _)| place.clone()).collect();
        self.known.insert(path.to_vec(), found.clone());
        found
    }
}

impl HintTally {
    /// Counts a command that should have Helm render `new`.
    fn count_command(&mut self, command: &str, rendered: Option<&Value>, new: &Value) {
        self.commands += 1;
        if rendered.is_some_and(|it| same(it, new)) {
            self.fulfilled += 1;
        } else {
            writeln!(self.wrong, "{command} renders {rendered:?}, not {new}").unwrap();
        }
    }

    fn add(&mut self, other: Self) {
        self.settable += other.settable;
        self.named += other.named;
        self.right += other.right;
        self.commands += other.commands;
        self.fulfilled += other.fulfilled;
        self.wrong.push_str(&other.wrong);
        self.missing.push_str(&other.missing);
    }

    fn text(&self) -> String {
        let Self { settable, named, right, commands, fulfilled, .. } = self;
        format!(
            "{right} of {named} named values are right, of {settable} fields that values set; {fulfilled} of {commands} commands set the wanted value"
        )
    }
}

/// The scalars of an object.
fn fields(value: &Value, object: &str, steps: &mut Vec<String>, found: &mut Rendered) {
    let mut below = |name: String, value: &Value| {
        steps.push(name);
        fields(value, object, steps, found);
        steps.pop();
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(name, value)| below(name.clone(), value)),
        Value::Array(items) => {
            (0..).zip(items).for_each(|(at, value): (usize, _)| below(at.to_string(), value))
        }
        Value::Null => {}
        scalar => drop(found.insert((object.to_owned(), steps.clone()), scalar.clone())),
    }
}

/// The paths of all values that are no maps; empty maps are.
fn collect(value: &Value, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    match value.as_object().filter(|map| !map.is_empty()) {
        None => found.push(path.clone()),
        Some(map) => {
            for (name, value) in map {
                path.push(name.clone());
                collect(value, path, found);
                path.pop();
            }
        }
    }
}

/// Another value of the same kind.
fn other(value: &Value) -> Value {
    match value {
        Value::Bool(truth) => json!(!truth),
        Value::Number(number) => {
            number.as_i64().map_or(json!(number.as_f64().unwrap() + 1.0), |it| json!(it + 1))
        }
        Value::String(text) => match text.rsplit_once(':') {
            // Of an image it is the tag.
            Some((name, tag)) if !text.contains('\n') && !tag.contains('/') => {
                json!(format!("{name}:{tag}9"))
            }
            _ => json!(format!("{text}9")),
        },
        Value::Array(items) => Value::Array(items.iter().map(other).collect()),
        Value::Object(map) if map.is_empty() => json!({"probe": "1"}),
        Value::Object(map) => map.iter().map(|(name, value)| (name.clone(), other(value))).collect(),
        Value::Null => json!("probe"),
    }
}

/// The names of a value as `--set` takes them.
fn unescaped(value: &str) -> Vec<String> {
    value.replace("\\.", "\u{1}").split('.').map(|name| name.replace('\u{1}', ".")).collect()
}

/// The values of a flag, as Helm reads it.
fn given(flag: &str, set: &str) -> Value {
    let (path, text) = set.split_once('=').unwrap();
    let number = text.parse::<i64>().ok().filter(|_| text == "0" || !text.starts_with('0'));
    let value = match (flag, number) {
        ("--set", Some(number)) => json!(number),
        ("--set", None) if text == "true" || text == "false" => json!(text == "true"),
        _ => json!(text),
    };
    unescaped(path).into_iter().rev().fold(value, |value, name| json!({ name: value }))
}

/// Whether two values are the same text.
fn same(a: &Value, b: &Value) -> bool {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    text(a) == text(b)
}
