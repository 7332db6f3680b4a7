use serde_json::{Value, json};

use super::*;
use crate::sample_releases::{SampleRecord, assembled};
use crate::sample_verdicts::resolver;
use kubemoor_declare::model::EditsMode;

fn hpa(target: &str, least: i32, most: i32) -> Value {
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "mine", "namespace": "shop", "uid": "u"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
            "minReplicas": least, "maxReplicas": most,
        },
    })
}

fn scaled_object(name: &str) -> Value {
    json!({
        "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
        "metadata": {"name": name, "namespace": "shop", "uid": "k"}, "spec": {"scaleTargetRef": {"name": "web"}},
    })
}

#[test]
fn undeclared_autoscalers_of_guarded_workloads_are_rows_with_the_user() {
    let manifest = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {replicas: 3}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: declared, namespace: shop}
spec: {scaleTargetRef: {name: web}}
";
    let record = SampleRecord { manifest, namespace: "shop", name: "web", ..SampleRecord::default() };
    let mut index = Index::default();
    index.set(assembled(record, None));
    let (index, resolver) = (RwLock::new(index), resolver(EditsMode::Deny));
    for (old, new, expected) in [
        (
            Value::Null,
            hpa("web", 1, 9),
            vec!["StartAutoscaling HorizontalPodAutoscaler \"mine\" sets /spec/replicas from 1 to 9"],
        ),
        (
            Value::Null,
            hpa("web", 9, 9),
            vec![
                "StartAutoscaling without effect: HorizontalPodAutoscaler \"mine\" sets /spec/replicas from 9 to 9",
            ],
        ),
        (
            hpa("web", 1, 9),
            hpa("web", 1, 5),
            vec![
                "ChangeAutoscaling HorizontalPodAutoscaler \"mine\" sets /spec/replicas from 1 to 5 (before: from 1 to 9)",
            ],
        ),
        (hpa("web", 1, 9), hpa("web", 1, 9), vec![]),
        (
            hpa("web", 1, 9),
            hpa("other", 1, 9),
            vec!["StopAutoscaling HorizontalPodAutoscaler \"mine\" no longer sets /spec/replicas"],
        ),
        (hpa("other", 1, 9), Value::Null, vec![]),
        (
            Value::Null,
            scaled_object("mine"),
            vec!["StartAutoscaling ScaledObject \"mine\" sets /spec/replicas from 0 to 100"],
        ),
        (Value::Null, scaled_object("declared"), vec![]),
    ] {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "r", "kind": {"group": "autoscaling", "version": "v2", "kind": "HorizontalPodAutoscaler"},
                "resource": {"group": "autoscaling", "version": "v2", "resource": "horizontalpodautoscalers"},
                "name": "mine", "namespace": "shop", "operation": "UPDATE",
                "userInfo": {"username": "mallory"}, "object": new, "oldObject": old,
            },
        })
        .to_string();
        let request = AdmissionRequest::parse(review.as_bytes()).unwrap();
        let rows = rows(&request, &index, &resolver);
        assert!(rows.iter().all(|row| row.actor.user == "mallory" && row.object.name == "web"), "{rows:?}");
        let told: Vec<_> = rows.iter().map(|row| format!("{} {}", row.verdict, row.detail)).collect();
        assert_eq!(told, expected);
    }
}
