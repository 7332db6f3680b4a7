use serde_json::json;

use super::super::*;
use crate::catalog;
use crate::model::Gvk;
use crate::samples::Deep;

#[track_caller]
fn check(document: Value, expected: Option<Value>) {
    assert_eq!(prepare(document, "apps/v1".to_owned()), expected);
}

#[test]
fn document_uses_served_version_and_omits_fields_set_by_server() {
    let metadata = json!({
        "name": "web", "namespace": "shop", "uid": "1", "resourceVersion": "2", "generation": 3, "selfLink": "/x",
        "creationTimestamp": null, "managedFields": [], "labels": {"app": "web"},
    });
    let document = json!({
        "apiVersion": "apps/v1beta1", "metadata": metadata, "spec": {"replicas": 2}, "status": {"replicas": 2},
    });
    let metadata = json!({"name": "web", "namespace": "shop", "labels": {"app": "web"}});
    check(document, Some(json!({"apiVersion": "apps/v1", "metadata": metadata, "spec": {"replicas": 2}})));
}

#[test]
fn rules_that_a_controller_writes_are_not_claimed() {
    let rules = json!([{"verbs": ["get"]}]);
    check(
        json!({"aggregationRule": {}, "rules": rules}),
        Some(json!({"apiVersion": "apps/v1", "aggregationRule": {}})),
    );
    let own = json!({"apiVersion": "apps/v1", "rules": rules});
    check(own.clone(), Some(own));
}

#[test]
fn non_object_json_yields_no_document() {
    check(json!([]), None);
    check(json!("text"), None);
}

#[track_caller]
fn check_filled(mut document: Value, expected: &Value) {
    let text = |name: &str| document[name].as_str().unwrap();
    let gvk = Gvk::from_api_version(text("apiVersion"), text("kind"));
    fill_null_entries(&mut document, catalog::core().schema(&gvk).as_deref());
    assert_eq!(document, *expected);
}

#[test]
fn null_entries_become_zero_values_as_the_server_stores_them() {
    let metadata =
        |l: Value| json!({"name": "a", "namespace": null, "labels": {"l": l}, "annotations": null});
    check_filled(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(json!(null)),
            "data": {"a": null, "b": "1"}, "binaryData": {"c": null}, "immutable": null}),
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(json!("")),
            "data": {"a": "", "b": "1"}, "binaryData": {"c": ""}, "immutable": null}),
    );
    check_filled(
        json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": null}, "stringData": {"b": null}}),
        &json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": ""}, "stringData": {"b": ""}}),
    );
    let pod = |selector: Value, label: Value, cpu: Value| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {
            "selector": {"matchLabels": {"app": label}},
            "template": {"spec": {"nodeSelector": selector, "containers": [
                {"name": "app", "image": null, "args": [null], "resources": {"limits": {"cpu": cpu}}},
            ]}},
        }})
    };
    check_filled(
        pod(json!({"disk": null}), json!(null), json!(null)),
        &pod(json!({"disk": ""}), json!(""), json!("0")),
    );
    check_filled(pod(json!(null), json!("a"), json!("1")), &pod(json!(null), json!("a"), json!("1")));
}

#[test]
fn null_entries_of_custom_kinds_are_filled_in_the_metadata_alone() {
    let thing = |label: Value| {
        json!({"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"labels": {"l": label}},
            "data": {"a": null}, "spec": {"a": {"b": null}}})
    };
    check_filled(thing(json!(null)), &thing(json!("")));
}

#[test]
fn any_document_can_be_filled_on_a_small_stack() {
    let run = || {
        let deep = Deep::new(100_000, json!(null));
        let mut thing = Deep(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"labels": {}}}));
        let mut deep = deep;
        thing.0["data"] = deep.0.take();
        fill_null_entries(&mut thing.0, None);
    };
    std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap().join().unwrap();
    fill_null_entries(&mut json!([null]), None);
}
