use serde_json::{Value, json};

use super::declare;
use crate::catalog;
use crate::model::Gvk;

mod digest;
mod document;

#[track_caller]
fn check(document: &Value, expected: &[&str]) {
    let text = |name: &str| document[name].as_str().unwrap();
    let schema = catalog::core().schema(&Gvk::from_api_version(text("apiVersion"), text("kind")));
    let fields = declare(document, schema.as_deref());
    let paths: Vec<String> = fields.leaves().iter().map(|(path, _)| path.to_string()).collect();
    assert_eq!(paths, expected);
}

#[test]
fn server_owned_fields_are_not_declared() {
    let metadata = json!({
        "name": "a", "namespace": "b", "uid": "c", "resourceVersion": "1", "generation": 2, "selfLink": "/x",
        "creationTimestamp": null, "managedFields": [{}], "labels": {"x": "y"},
    });
    check(
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": "v"}, "status": {"a": 1}}),
        &["/data/k", "/metadata/labels/x"],
    );
    check(
        &json!({"apiVersion": "example.org/v1", "kind": "Thing", "metadata": metadata, "spec": {"a": [1]}, "status": {}}),
        &["/metadata/labels/x", "/spec/a"],
    );
}

#[test]
fn names_below_the_top_are_declared_as_any_field() {
    check(
        &json!({
            "apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "a"},
            "template": {"metadata": {"name": "b"}, "spec": {"status": "c"}},
        }),
        &["/template/metadata/name", "/template/spec/status"],
    );
}

#[test]
fn rules_under_an_aggregation_rule_are_not_declared() {
    let role = |aggregation: Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "a"},
            "aggregationRule": aggregation, "rules": [{"verbs": ["get"]}],
        })
    };
    check(&role(json!({"clusterRoleSelectors": [{}]})), &["/aggregationRule/clusterRoleSelectors"]);
    check(&role(Value::Null), &["/aggregationRule", "/rules"]);
}

#[test]
fn a_ca_bundle_without_a_certificate_is_not_declared() {
    let service = |bundle: &str| {
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "a"},
            "spec": {"caBundle": bundle},
        })
    };
    check(&service(""), &[]);
    check(&service("Cg=="), &[]);
    check(&service("LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg=="), &["/spec/caBundle"]);
    check(&service("not base64"), &["/spec/caBundle"]);
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "a"},
        "spec": {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"caBundle": "Cg=="}}}},
    });
    check(&crd, &["/spec/conversion/strategy"]);
}

#[test]
fn list_with_duplicate_or_missing_keys_is_one_value() {
    let pod = |env: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "env": env}]}});
    let name = "/spec/containers/[name=c]/name";
    let env = "/spec/containers/[name=c]/env";
    check(&pod(json!([{"name": "A"}, {"name": "A"}])), &[env, name]);
    check(&pod(json!([{"value": "a"}])), &[env, name]);
    check(&pod(json!([{"name": {"deep": [1]}}])), &[env, name]);
    check(&pod(json!({"A": "a"})), &[env, name]);
}

#[test]
fn a_document_that_is_no_object_declares_nothing() {
    for document in [json!(null), json!([1]), json!("a"), json!({})] {
        assert!(declare(&document, None).leaves().is_empty(), "{document}");
    }
}
