use serde_json::json;

use super::*;
use crate::sample_releases::{Given, assembled};

fn hpa(name: &str, spec: Value, owners: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "shop", "ownerReferences": owners}, "spec": spec})
}

fn deployment(name: &str) -> ObjectId {
    ObjectId::namespaced("apps", "Deployment", "shop", name)
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
fn malformed_autoscaler_is_ignored() {
    for object in [json!({}), json!({"metadata": {"name": "web", "namespace": "shop"}}), json!([1])] {
        assert_eq!(read(&object), None, "{object}");
    }
}

/// A release of `namespace` with this manifest, as the index knows it.
fn index(releases: &[(&str, &str)]) -> Index {
    let mut index = Index::default();
    for (namespace, manifest) in releases {
        index.set(assembled(Given { namespace, manifest, ..Given::default() }, None));
    }
    index
}

#[test]
fn autoscaler_is_declared_directly_or_by_a_keda_scaledobject() {
    const HPA: &str = "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: web}\n";
    const SCALED: &str = "apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nmetadata: {name: web}\nspec:\n  scaleTargetRef: {name: web}\n";
    const RENAMED: &str = "  advanced: {horizontalPodAutoscalerConfig: {name: web-hpa}}\n";
    let check = |name: &str, owner: Value, manifest: &str, declared: bool| {
        let (id, scales) = read(&hpa(name, spec("web", None, 9), owner)).unwrap();
        let index = index(&[("shop", manifest)]);
        let autoscaler = scales.autoscaler(&id, |object| claims(&index, object));
        assert_eq!(!autoscaler.declared_by.is_empty(), declared, "{name}: {autoscaler:?}");
    };
    let owner = |api_version: &str, kind: &str, controller: bool| json!([{"apiVersion": api_version, "kind": kind, "name": "web", "uid": "2", "controller": controller}]);
    let kedas = owner("keda.sh/v1alpha1", "ScaledObject", true);
    check("web", json!([]), HPA, true);
    check("other", json!([]), HPA, false);
    check("keda-hpa-web", kedas.clone(), SCALED, true);
    check("keda-hpa-web", kedas.clone(), HPA, false);
    // A user who makes an autoscaler may write any owner, and cannot choose a name that is taken.
    check("mine", kedas.clone(), SCALED, false);
    check("keda-hpa-web", owner("keda.sh/v1alpha1", "ScaledObject", false), SCALED, false);
    check("web-hpa", kedas.clone(), &format!("{SCALED}{RENAMED}"), true);
    check("keda-hpa-web", kedas, &format!("{SCALED}{RENAMED}"), false);
    // What it is declared for is another workload.
    check(
        "keda-hpa-web",
        owner("keda.sh/v1alpha1", "ScaledObject", true),
        &SCALED.replace("Ref: {name: web}", "Ref: {name: api}"),
        false,
    );
    let others = owner("example.com/v1", "Scaler", true);
    let scaler = "apiVersion: example.com/v1\nkind: Scaler\nmetadata: {name: web}\n";
    check("web-scaler", others, scaler, false);
}

#[test]
fn each_autoscaler_that_goes_is_remembered_with_what_declared_it() {
    const HPA: &str = "apiVersion: autoscaling/v1\nkind: HorizontalPodAutoscaler\nmetadata: {name: a}\n";
    let (mut known, declared) = (Known::default(), index(&[("shop", HPA)]));
    let taken_in = |known: &mut Known, name: &str| {
        let (id, scales) = read(&hpa(name, spec("web", None, 3), json!([]))).unwrap();
        known.put(&id, (scales, Life::default()), &declared);
        id
    };
    let left = |known: &Known| {
        let departure = known.departed.of(&deployment("web"));
        departure.map(|it| it.since(Timestamp::UNIX_EPOCH).unwrap().len())
    };
    let (a, b) = (taken_in(&mut known, "a"), taken_in(&mut known, "b"));
    assert_eq!(left(&known), None);
    assert_eq!(known.take(&b, &declared), [deployment("web")]);
    assert_eq!(left(&known), Some(0));
    // Also where its release has dropped it before.
    assert_eq!(known.take(&a, &Index::default()), [deployment("web")]);
    assert_eq!(left(&known), Some(1));
    taken_in(&mut known, "b");
    assert_eq!(left(&known), Some(1));
    taken_in(&mut known, "a");
    assert_eq!(left(&known), None);
    // Known before any release was, and of a release that goes first.
    let mut known = Known::default();
    let (a, scales) = read(&hpa("a", spec("web", None, 3), json!([]))).unwrap();
    known.put(&a, (scales, Life::default()), &Index::default());
    known.autoscalers.get_mut(&a).unwrap().claim(&a, &declared);
    known.take(&a, &Index::default());
    assert_eq!(left(&known), Some(1));
    taken_in(&mut known, "a");
    assert!(!known.take(&a, &declared).is_empty() && known.take(&a, &declared).is_empty());
}
