use std::sync::Arc;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::catalog;
use crate::declare::declare;
use crate::equality::FieldAgreement;
use crate::fields::{DeclaredFields, FieldChange};
use crate::model::Gvk;
use crate::schema::KindSchema;

mod additions;
mod golden;
mod growth;
mod moved;
mod properties;

#[derive(Deserialize)]
struct DriftRow {
    kind: String,
    declared: Value,
    live: Value,
    is: String,
}

#[derive(Deserialize)]
struct ChangeRow {
    kind: String,
    declared: Value,
    old: Value,
    new: Value,
    changes: BTreeMap<String, String>,
}

/// A part of an object, made whole.
fn object(kind: &str, part: &Value) -> Value {
    let (api_version, kind) = kind.split_once(' ').expect("a kind is written `apps/v1 Deployment`");
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}});
    for (name, value) in part.as_object().expect("a part is a map") {
        match (name.as_str(), value) {
            ("metadata", Value::Object(map)) => {
                object["metadata"].as_object_mut().unwrap().extend(map.clone());
            }
            _ => object[name] = value.clone(),
        }
    }
    object
}

fn schema(kind: &str) -> Option<Arc<KindSchema>> {
    let (api_version, kind) = kind.split_once(' ').expect("a kind is written `apps/v1 Deployment`");
    catalog::core().schema(&Gvk::from_api_version(api_version, kind))
}

fn fields(kind: &str, part: &Value) -> DeclaredFields {
    declare(&object(kind, part), schema(kind).as_deref())
}

fn worst(changes: &[FieldChange]) -> FieldAgreement {
    changes.iter().map(|change| change.agreement).max().unwrap_or(FieldAgreement::Agrees)
}

#[test]
fn spellings_are_judged_by_their_meaning() {
    let cases: Vec<DriftRow> = serde_saphyr::from_str(include_str!("drift.yaml")).expect("the table is YAML");
    let mut wrong = Vec::new();
    for (index, case) in cases.iter().enumerate() {
        let found = fields(&case.kind, &case.declared).drift(&object(&case.kind, &case.live));
        if format!("{:?}", worst(&found)) != case.is {
            wrong.push(format!(
                "{index}: {} against {}: {found:?}, not {}",
                case.declared, case.live, case.is
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn edits_show_exactly_the_declared_paths_that_changed() {
    let cases: Vec<ChangeRow> =
        serde_saphyr::from_str(include_str!("changes.yaml")).expect("the table is YAML");
    let mut wrong = Vec::new();
    for (index, case) in cases.iter().enumerate() {
        let fields = fields(&case.kind, &case.declared);
        let found = fields.changed(&object(&case.kind, &case.old), &object(&case.kind, &case.new));
        let found: BTreeMap<String, String> =
            found.iter().map(|c| (c.path.to_string(), format!("{:?}", c.agreement))).collect();
        if found != case.changes {
            wrong.push(format!("{index}: {} to {}: {found:?}, not {:?}", case.old, case.new, case.changes));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn doubtful_change_is_settled_by_the_server_form_of_manifest() {
    let kind = "example.org/v1 Thing";
    let declared = json!({"spec": {"items": [{"a": 1}]}});
    let fields = fields(kind, &declared);
    let live = object(kind, &json!({"spec": {"items": [{"a": 1, "b": 2}]}}));
    let found = fields.drift(&live);
    let doubt = found.iter().find(|c| c.agreement == FieldAgreement::Doubt).expect("one path is in doubt");
    assert_eq!(doubt.path.to_string(), "/spec/items");
    assert_eq!(fields.settler(&live).settle(doubt), FieldAgreement::Agrees);
    assert_eq!(fields.settler(&object(kind, &declared)).settle(doubt), FieldAgreement::Differs);
}

#[test]
fn env_order_is_settled_by_the_order_the_server_keeps() {
    let kind = "v1 Pod";
    let env = |names: &[&str]| {
        let env: Vec<Value> = names.iter().map(|name| json!({"name": name, "value": "x"})).collect();
        json!({"spec": {"containers": [{"name": "app", "env": env}]}})
    };
    let fields = fields(kind, &env(&["A", "B", "C"]));
    let found = fields.drift(&object(kind, &env(&["C", "X", "A", "B"])));
    let [doubt] = found.as_slice() else { panic!("one change, not {found:?}") };
    assert_eq!(doubt.declared, Some(json!(["A", "B", "C"])));
    assert_eq!(doubt.new, Some(json!(["C", "A", "B"])));
    assert_eq!(fields.settler(&object(kind, &env(&["C", "A", "B"]))).settle(doubt), FieldAgreement::Agrees);
    assert_eq!(fields.settler(&object(kind, &env(&["A", "B", "C"]))).settle(doubt), FieldAgreement::Differs);
}

#[test]
fn doubtful_field_is_settled_within_its_own_list_element() {
    let kind = "v1 Pod";
    let pod = |ports: Value| json!({"spec": {"containers": [{"name": "a", "ports": ports}]}});
    let declared = json!([{"containerPort": 80, "hostPort": 0}, {"containerPort": 81}]);
    let fields = fields(kind, &pod(declared));
    let live = |port: u32| {
        let tcp = |port| json!({"containerPort": port, "protocol": "TCP"});
        let mut host = tcp(80);
        host["hostPort"] = json!(port);
        object(kind, &pod(json!([tcp(81), host])))
    };
    let found = fields.drift(&live(30080));
    let [doubt] = found.as_slice() else { panic!("one change, not {found:?}") };
    assert_eq!(
        doubt.path.to_string(),
        "/spec/containers/[name=a]/ports/[containerPort=80,protocol=TCP]/hostPort"
    );
    assert_eq!(fields.settler(&live(30080)).settle(doubt), FieldAgreement::Agrees);
    assert_eq!(fields.settler(&live(30081)).settle(doubt), FieldAgreement::Differs);
}

#[test]
fn change_contains_declared_old_and_new_values() {
    let kind = "apps/v1 Deployment";
    let part = |image: &str| json!({"spec": {"template": {"spec": {"containers": [{"name": "app", "image": image}]}}}});
    let found = fields(kind, &part("a")).changed(&object(kind, &part("b")), &object(kind, &part("c")));
    let [change] = found.as_slice() else { panic!("one change, not {found:?}") };
    assert_eq!(change.declared, Some(json!("a")));
    assert_eq!(change.old, Some(json!("b")));
    assert_eq!(change.new, Some(json!("c")));
}

#[test]
fn long_lists_are_matched_as_short_ones_are() {
    let kind = "v1 Pod";
    let env = |range: std::ops::Range<u32>, value: &str| {
        let env: Vec<Value> = range.map(|n| json!({"name": format!("N{n}"), "value": value})).collect();
        object(kind, &json!({"spec": {"containers": [{"name": "app", "env": env}]}}))
    };
    let fields = declare(&env(0..500, "x"), schema(kind).as_deref());
    assert!(fields.changed(&env(0..500, "x"), &env(0..900, "x")).is_empty());
    assert!(fields.drift(&env(0..900, "x")).is_empty());
    assert_eq!(fields.changed(&env(0..500, "x"), &env(0..500, "y")).len(), 500);
    assert_eq!(fields.drift(&env(499..900, "x")).len(), 499);
}
