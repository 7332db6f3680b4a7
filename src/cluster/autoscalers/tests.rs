use serde_json::json;

use super::*;

fn hpa(name: &str, spec: Value, owners: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "shop", "ownerReferences": owners}, "spec": spec})
}

fn deployment(name: &str) -> ObjectId {
    ObjectId {
        group: "apps".to_owned(),
        kind: "Deployment".to_owned(),
        namespace: Some("shop".to_owned()),
        name: name.to_owned(),
    }
}

fn spec(target: &str, minimum: Option<i32>, maximum: i32) -> Value {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": target});
    json!({"scaleTargetRef": target, "minReplicas": minimum, "maxReplicas": maximum})
}

#[test]
fn an_autoscaler_names_its_workload_and_how_far_it_scales() {
    let (id, scales) = read(&hpa("web", spec("web", Some(2), 9), json!([]))).unwrap();
    assert_eq!((id.group.as_str(), id.name.as_str()), ("autoscaling", "web"));
    assert_eq!((scales.target, scales.minimum, scales.maximum), (deployment("web"), 2, 9));
}

#[test]
fn without_a_minimum_one_replica_is_the_fewest() {
    let (_, scales) = read(&hpa("web", spec("web", None, 9), json!([]))).unwrap();
    assert_eq!(scales.minimum, 1);
}

#[test]
fn only_the_controller_among_the_owners_made_it() {
    let owners = json!([
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "1"},
        {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "web", "uid": "2", "controller": true},
    ]);
    let maker = read(&hpa("keda-hpa-web", spec("web", None, 9), owners)).unwrap().1.maker.unwrap();
    assert_eq!(
        (maker.group.as_str(), maker.kind.as_str(), maker.name.as_str()),
        ("keda.sh", "ScaledObject", "web")
    );
}

#[test]
fn what_is_no_autoscaler_is_left_out() {
    for object in [json!({}), json!({"metadata": {"name": "web", "namespace": "shop"}}), json!([1])] {
        assert_eq!(read(&object), None, "{object}");
    }
}

#[test]
fn a_workload_is_departed_from_with_the_last_of_its_autoscalers() {
    let mut known = Known::default();
    for name in ["a", "b"] {
        let (id, scales) = read(&hpa(name, spec("web", None, 3), json!([]))).unwrap();
        known.targets.entry(scales.target.clone()).or_default().insert(id.clone());
        known.autoscalers.insert(id, scales);
    }
    let id = |name| read(&hpa(name, spec("web", None, 3), json!([]))).unwrap().0;
    assert_eq!(known.take(&id("a")), Some(deployment("web")));
    assert!(known.departed.is_empty());
    assert_eq!(known.take(&id("b")), Some(deployment("web")));
    assert!(known.departed.contains_key(&deployment("web")));
    assert_eq!(known.take(&id("b")), None);
}

#[test]
fn what_is_remembered_of_departed_autoscalers_is_bounded() {
    let mut known = Known::default();
    for number in 0..REMEMBERED + 3 {
        known.depart(deployment(&number.to_string()));
    }
    assert_eq!(known.departed.len(), REMEMBERED);
    assert!(known.departed.contains_key(&deployment(&(REMEMBERED + 2).to_string())));
}
