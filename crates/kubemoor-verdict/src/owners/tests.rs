use serde_json::json;

use crate::owners::*;

#[track_caller]
fn check(owned: Value, document: Value, wanted: bool) {
    let entry = |manager, operation, fields: &Value| json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields});
    let everything = json!({"f:spec": {"f:other": {}}});
    let live = json!({"metadata": {"managedFields": [
        entry("helm", "Apply", &owned), entry("helm", "Update", &everything), entry("flux", "Apply", &everything),
    ]}});
    assert_eq!(apply_removes_fields(&live, "helm", &document), wanted, "{owned} {document}");
}

#[test]
fn apply_takes_away_what_its_manager_applied_before() {
    let hard = json!({"f:spec": {"f:hard": {".": {}, "f:pods": {}, "f:services": {}}}});
    check(hard.clone(), json!({"spec": {"hard": {"pods": "3", "services": "1"}}}), false);
    check(hard.clone(), json!({"spec": {"hard": {"pods": "9", "services": null, "secrets": "1"}}}), false);
    check(hard.clone(), json!({"spec": {"hard": {"pods": "3"}}}), true);
    check(hard, json!({"spec": {}}), true);
}

#[test]
fn list_elements_are_told_apart_by_their_keys() {
    let ports =
        json!({"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:name": {}}}});
    check(ports.clone(), json!({"ports": [{"port": 80, "name": "a"}]}), false);
    check(ports.clone(), json!({"ports": [{"port": "80", "protocol": "TCP", "name": "a"}]}), false);
    check(ports.clone(), json!({"ports": [{"port": 80}]}), true);
    check(ports.clone(), json!({"ports": [{"port": 80, "protocol": "UDP", "name": "a"}]}), true);
    check(ports, json!({"ports": []}), true);
    let set = json!({"f:metadata": {"f:finalizers": {"v:\"a\"": {}}}});
    check(set.clone(), json!({"metadata": {"finalizers": ["b", "a"]}}), false);
    check(set, json!({"metadata": {"finalizers": ["b"]}}), true);
}

#[test]
fn texts_of_a_secret_are_its_data() {
    let data = json!({"f:data": {"f:a": {}, "f:b": {}}});
    check(data.clone(), json!({"kind": "Secret", "data": {"a": "MQ=="}, "stringData": {"b": "1"}}), false);
    check(data.clone(), json!({"kind": "Secret", "stringData": {"a": "1"}}), true);
    check(data, json!({"kind": "ConfigMap", "stringData": {"a": "1", "b": "1"}}), true);
}
