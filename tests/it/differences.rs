//! Long and nested values are shown by the first place where they differ, wherever a person or a program reads them.

use serde_json::{Value, json};

use crate::support::{Identity, RELEASE, Ran, SOON, Scene, charts, eventually, moor, run};

const TEMPLATES: &str = concat!(
    charts::config_map!("settings", "{nginx.conf: \"user www;\\nworkers 4;\\nevents {}\\n\"}"),
    "---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec:
  rules:
  - host: shop.example.org
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
",
);

/// Where a value differs.
struct DifferingField {
    pointer: &'static str,
    line: Option<u64>,
    declared: &'static str,
    changed: &'static str,
}

const LINE: DifferingField = DifferingField {
    pointer: "/data/nginx.conf",
    line: Some(2),
    declared: "workers 4;",
    changed: "workers 8;",
};
const NESTED: DifferingField = DifferingField {
    pointer: "/spec/rules/0/http/paths/0/backend/service/name",
    line: None,
    declared: "web",
    changed: "api",
};

/// Asserts that one of the fields has this place, with values by these names.
fn assert_place(fields: &[Value], names: [&str; 2], place: &DifferingField) {
    let DifferingField { pointer, line, declared, changed } = *place;
    let is_it = |field: &&Value| field["difference"]["path"] == pointer;
    let found = fields.iter().find(is_it).unwrap_or_else(|| panic!("{pointer}: {fields:#?}"));
    let place = &found["difference"];
    assert_eq!(place["line"].as_u64(), line, "{place}");
    for (name, value) in names.into_iter().zip([declared, changed]) {
        assert!(place[name].as_str().unwrap().contains(value), "{name}: {place}");
    }
}

/// Asserts that a line of a table tells of the place.
fn assert_line(printed: &Ran, place: &DifferingField) {
    let DifferingField { pointer, line, declared, changed } = *place;
    let at = pointer.to_owned() + &line.map_or_else(String::new, |line| format!(" line {line}"));
    let is_it = |text: &&str| [&at, declared, changed].iter().all(|part| text.contains(*part));
    assert!(printed.out.lines().any(|text| is_it(&text)), "{at}: {printed:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn long_and_nested_values_show_their_difference_in_every_output() {
    let scene = Scene::own().install("differences", TEMPLATES).await;
    let guard = scene.start_guard(&["--register", "--edits", "Warn", "--drift", "Report"]).await;
    scene.wait_for_confirmed(2).await;
    let ingress = scene.at("apis/networking.k8s.io/v1", "ingresses/web");
    let change = async |workers: &str, service: &str| {
        let settings = format!("user www;\nworkers {workers};\nevents {{}}\n");
        let settings = json!({"data": {"nginx.conf": settings}});
        scene.admin.merge(&scene.config_map("settings"), &settings).await.done().unwrap();
        scene.admin.patch(&ingress, "replace", NESTED.pointer, &json!(service)).await.done().unwrap();
    };

    // The ledger.
    let database = guard.database();
    let audit = |format: &str| run(&["audit", &database, "-A", "--verdict", "Warn", "-o", format], "");
    let fields = eventually("both changes are in the ledger", SOON, || async {
        // The API server may not know of the webhook yet.
        change("4", "web").await;
        change("8", "api").await;
        let rows = guard.rows(&["-A", "--verdict", "Warn"]);
        let fields: Vec<_> =
            rows.iter().filter_map(|row| row["fields"].as_array()).flatten().cloned().collect();
        let kinds = ["Ingress", "ConfigMap"];
        let is_there = |kind: &&str| rows.iter().any(|row| row["object"]["kind"] == **kind);
        if kinds.iter().all(is_there) { Ok(fields) } else { Err(format!("{rows:#?}")) }
    })
    .await;
    for place in [&LINE, &NESTED] {
        assert_place(&fields, ["declared", "new"], place);
        for format in ["table", "csv"] {
            assert_line(&audit(format), place);
        }
    }

    // The live objects.
    let ask = |arguments: &[&str]| {
        let scope = ["-n", scene.namespace.as_str()];
        moor(&scene.control_plane, Identity::Admin, &[arguments, &scope].concat())
    };
    let diff = ask(&["diff", RELEASE, "-o", "json"]).items().remove(0);
    let objects = diff["objects"].as_array().unwrap();
    let fields: Vec<_> =
        objects.iter().filter_map(|object| object["fields"].as_array()).flatten().cloned().collect();
    for (object, place) in [("configmap/settings", &LINE), ("ingress/web", &NESTED)] {
        assert_place(&fields, ["declared", "new"], place);
        assert_line(&ask(&["diff", RELEASE]), place);
        let explained = ask(&["explain", object, "-o", "json"]).json();
        assert_place(explained["fields"].as_array().unwrap(), ["declared", "new"], place);
        let explained = ask(&["explain", object]);
        let said = explained.out.lines().find(|line| line.contains("first difference"));
        assert!(said.is_some_and(|line| line.contains(place.pointer)), "{explained:?}");
        for (row, value) in [("  declared", place.declared), ("  live", place.changed)] {
            let is_it = |line: &str| line.starts_with(row) && line.contains(value);
            assert!(explained.out.lines().any(is_it), "{row}: {explained:?}");
        }
    }
}
