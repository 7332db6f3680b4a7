use serde_json::json;

use super::*;

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
