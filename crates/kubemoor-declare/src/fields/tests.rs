use serde_json::{Value, json};

use crate::catalog;
use crate::declare::declare;
use crate::fields::DeclaredFields;
use crate::model::Gvk;

mod ambiguous;

fn fields(document: &Value) -> DeclaredFields {
    let text = |name: &str| document[name].as_str().unwrap();
    let schema = catalog::core().schema(&Gvk::from_api_version(text("apiVersion"), text("kind")));
    declare(document, schema.as_deref())
}

fn paths(fields: &DeclaredFields) -> Vec<String> {
    fields.leaves().iter().map(|(path, value)| format!("{path}: {value}")).collect()
}

#[test]
fn leaves_are_what_is_compared_as_one_value() {
    let declared = fields(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"a": "b"}, "finalizers": ["x/y"]},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "strategy": {},
            "template": {"spec": {
                "tolerations": [],
                "imagePullSecrets": [],
                "containers": [{"name": "app", "args": ["a", "b"], "ports": [{"containerPort": 80}]}],
            }},
        },
        "status": {"replicas": 2},
    }));
    let container = "/spec/template/spec/containers/[name=app]";
    assert_eq!(
        paths(&declared),
        [
            "/metadata/finalizers/[=x~1y]: \"x/y\"".to_owned(),
            "/metadata/labels/a: \"b\"".to_owned(),
            "/spec/replicas: 2".to_owned(),
            "/spec/selector: {\"matchLabels\":{\"app\":\"web\"}}".to_owned(),
            "/spec/strategy: {}".to_owned(),
            format!("{container}/args: [\"a\",\"b\"]"),
            format!("{container}/name: \"app\""),
            format!("{container}/ports/[containerPort=80,protocol=TCP]/containerPort: 80"),
            "/spec/template/spec/tolerations: []".to_owned(),
        ]
    );
}

#[test]
fn a_declared_value_is_got_by_plain_names() {
    let declared = fields(&json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "a", "annotations": {"helm.sh/resource-policy": "keep"}},
        "stringData": {"k": "v"},
    }));
    assert_eq!(declared.get(&["metadata", "annotations", "helm.sh/resource-policy"]), Some(json!("keep")));
    assert_eq!(declared.get(&["data", "k"]), Some(json!("dg==")));
    assert_eq!(declared.get(&["metadata", "annotations"]), None);
    assert_eq!(declared.get(&["metadata", "name"]), None);
    assert_eq!(declared.get(&["data", "k", "x"]), None);
}

#[test]
fn no_value_reaches_debug_output() {
    let secret =
        |text: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "stringData": {"k": text}});
    let declared = fields(&secret("sesame"));
    let live = json!({"data": {"k": "b3Blbg=="}});
    let shown = format!("{declared:?} {:?}", declared.changed(&json!({}), &live));
    assert!(shown.contains("/data/k"), "{shown}");
    for value in ["sesame", "c2VzYW1l", "b3Blbg=="] {
        assert!(!shown.contains(value), "{shown}");
    }
}
