use serde_json::json;

use super::{Catalog, KindFacts, priority};
use crate::model::Gvk;

mod embedded;

fn gvk(api_version: &str, kind: &str) -> Gvk {
    Gvk::from_api_version(api_version, kind)
}

#[test]
fn a_kind_is_found_by_its_resource() {
    let catalog = Catalog::with_core();
    assert_eq!(catalog.kind_of_resource("apps", "deployments").map(|f| &*f.kind), Some("Deployment"));
    assert_eq!(catalog.kind_of_resource("", "deployments"), None);
    assert_eq!(catalog.facts("example.org", "Thing"), None);
}

#[test]
fn types_of_another_version_stand_in() {
    let catalog = Catalog::with_core();
    let root = |api_version: &str| catalog.schema(&gvk(api_version, "CronJob")).map(|schema| schema.root);
    assert_ne!(root("batch/v1"), root("batch/v1beta1"));
    assert_eq!(root("batch/v2alpha1"), root("batch/v1"));
    assert_eq!(root("example.org/v1"), None);
}

#[test]
fn versions_are_ordered_as_kubernetes_orders_them() {
    let sorted = ["v10", "v2", "v1", "v11beta2", "v3beta1", "v12alpha1", "v11alpha2"];
    assert!(sorted.is_sorted_by(|a, b| priority(a) > priority(b)));
    assert!(priority("foo") < priority("v1alpha1"));
}

#[test]
fn later_facts_replace_earlier_ones() {
    let mut catalog = Catalog::with_core();
    let facts = KindFacts {
        versions: vec!["v9".to_owned()],
        ..KindFacts::clone(catalog.facts("apps", "Deployment").unwrap())
    };
    catalog.insert(facts.clone());
    assert_eq!(catalog.facts("apps", "Deployment").map(|it| &**it), Some(&facts));
}

#[test]
fn a_definition_states_the_facts_of_its_kind() {
    let crd = json!({
        "spec": {
            "group": "example.org", "scope": "Cluster", "names": {"kind": "Thing", "plural": "things"},
            "versions": [
                {"name": "v1alpha1", "served": false, "storage": false},
                {"name": "v1beta1", "served": true, "storage": false},
                {"name": "v1", "served": true, "storage": true,
                 "subresources": {"scale": {"specReplicasPath": ".spec.size.count"}}},
            ],
        },
    });
    let facts = KindFacts::from_crd(&crd).unwrap();
    assert_eq!((&*facts.group, &*facts.kind, &*facts.plural), ("example.org", "Thing", "things"));
    assert!(!facts.namespaced);
    assert_eq!(facts.versions, ["v1", "v1beta1"]);
    assert_eq!(facts.scale_replicas_path.unwrap().to_string(), "/spec/size/count");
    assert_eq!(KindFacts::from_crd(&json!({"spec": {"group": "a"}})), None);
}

#[test]
fn unserved_api_version_falls_back_to_the_preferred_version() {
    let facts = |versions: &[&str]| KindFacts {
        group: "autoscaling".to_owned(),
        kind: "HorizontalPodAutoscaler".to_owned(),
        plural: "horizontalpodautoscalers".to_owned(),
        namespaced: true,
        versions: versions.iter().map(|&version| version.to_owned()).collect(),
        scale_replicas_path: None,
    };
    assert_eq!(facts(&["v2", "v1"]).served("v1"), Some("v1"));
    assert_eq!(facts(&["v2", "v1"]).served("v2beta2"), Some("v2"));
    assert_eq!(facts(&[]).served("v1"), None);
}
