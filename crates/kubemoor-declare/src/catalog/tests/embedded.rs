use super::super::{DATA, core, decode, encode};
use crate::model::Gvk;
use crate::schema::{ListKind, ScalarType, Shape, TypeId, Types};

/// The type at a path of field names; `*` is the element of a list or map.
fn at(api_version: &str, kind: &str, path: &str) -> (Types, TypeId) {
    let schema = core().schema(&Gvk::from_api_version(api_version, kind)).expect("the kind is built in");
    let mut at = schema.root;
    for name in path.split('/') {
        at = match schema.types.shape(at) {
            Shape::Struct(shape) => shape.field(name).unwrap_or_else(|| panic!("{name} of {path}")).ty,
            Shape::List { item: below, .. } | Shape::Map { value: below, .. } if name == "*" => *below,
            other => panic!("{name} of {path} in {other:?}"),
        };
    }
    ((*schema.types).clone(), at)
}

#[track_caller]
fn check_keys(api_version: &str, kind: &str, path: &str, expected: &[&str]) {
    let (types, at) = at(api_version, kind, path);
    let Shape::List { kind: ListKind::Map(keys), .. } = types.shape(at) else {
        panic!("{path}: {:?}", types.shape(at))
    };
    let keys: Vec<String> = keys
        .iter()
        .map(|key| match &key.default {
            Some(default) => format!("{}={default}", key.name),
            None => key.name.to_string(),
        })
        .collect();
    assert_eq!(keys, expected, "{path}");
}

#[test]
fn the_data_file_is_whole() {
    let catalog = decode(DATA).unwrap();
    assert!(catalog.kinds().count() > 50);
    for facts in catalog.kinds() {
        for version in &facts.versions {
            let gvk = Gvk { group: facts.group.clone(), version: version.clone(), kind: facts.kind.clone() };
            let schema = catalog.schema(&gvk).unwrap_or_else(|| panic!("{gvk:?}"));
            assert!(matches!(schema.types.shape(schema.root), Shape::Struct(_)), "{gvk:?}");
        }
    }
}

#[test]
fn kinds_have_their_scope_plural_and_scale() {
    let facts = |group: &str, kind: &str| core().facts(group, kind).cloned().unwrap();
    assert!(facts("apps", "Deployment").namespaced);
    assert_eq!(
        facts("apps", "Deployment").scale_replicas_path.as_ref().unwrap().to_string(),
        "/spec/replicas"
    );
    assert!(facts("apps", "DaemonSet").scale_replicas_path.is_none());
    assert!(!facts("rbac.authorization.k8s.io", "ClusterRole").namespaced);
    assert!(!facts("", "Namespace").namespaced);
    assert_eq!(facts("networking.k8s.io", "NetworkPolicy").plural, "networkpolicies");
    assert_eq!(facts("autoscaling", "HorizontalPodAutoscaler").versions, ["v2", "v1", "v2beta2", "v2beta1"]);
}

#[test]
fn lists_are_told_apart_by_their_keys() {
    let pod = "spec/template/spec";
    for kind in ["Deployment", "StatefulSet", "DaemonSet"] {
        check_keys("apps/v1", kind, &format!("{pod}/containers"), &["name"]);
    }
    check_keys("batch/v1beta1", "CronJob", &format!("spec/jobTemplate/{pod}/initContainers"), &["name"]);
    check_keys("apps/v1", "Deployment", &format!("{pod}/containers/*/env"), &["name"]);
    check_keys("apps/v1", "Deployment", &format!("{pod}/containers/*/volumeMounts"), &["mountPath"]);
    check_keys("apps/v1", "Deployment", &format!("{pod}/volumes"), &["name"]);
    check_keys(
        "apps/v1",
        "Deployment",
        &format!("{pod}/topologySpreadConstraints"),
        &["topologyKey", "whenUnsatisfiable"],
    );
    let port = ["containerPort", "protocol=\"TCP\""];
    check_keys("apps/v1", "Deployment", &format!("{pod}/containers/*/ports"), &port);
    check_keys("v1", "Service", "spec/ports", &["port", "protocol=\"TCP\""]);
    check_keys("v1", "Pod", "metadata/ownerReferences", &["uid"]);
    let webhooks = "admissionregistration.k8s.io/v1";
    check_keys(webhooks, "ValidatingWebhookConfiguration", "webhooks", &["name"]);
}

#[test]
fn atomic_fields_are_known_from_the_embedded_schema() {
    let atomic = |api_version: &str, kind: &str, path: &str| {
        let (types, at) = at(api_version, kind, path);
        match types.shape(at) {
            Shape::Struct(shape) => shape.atomic,
            Shape::Map { atomic, .. } => *atomic,
            Shape::List { kind, .. } => *kind == ListKind::Atomic,
            Shape::Any | Shape::Scalar(_) => false,
        }
    };
    assert!(atomic("apps/v1", "Deployment", "spec/selector"));
    assert!(atomic("v1", "Service", "spec/selector"));
    assert!(atomic("apps/v1", "StatefulSet", "spec/volumeClaimTemplates"));
    assert!(atomic("apps/v1", "Deployment", "spec/template/spec/nodeSelector"));
    assert!(atomic("apps/v1", "Deployment", "spec/template/spec/containers/*/args"));
    assert!(atomic("networking.k8s.io/v1", "NetworkPolicy", "spec/ingress"));
    assert!(!atomic("v1", "ConfigMap", "data"));
    assert!(!atomic("apps/v1", "Deployment", "spec/strategy"));
    assert!(!atomic("v1", "PersistentVolume", "spec/claimRef"));
    assert!(atomic("v1", "PersistentVolume", "spec/csi/nodePublishSecretRef"));
}

#[test]
fn scalars_have_their_spellings() {
    let scalar = |api_version: &str, kind: &str, path: &str| {
        let (types, at) = at(api_version, kind, path);
        types.shape(at).clone()
    };
    let limits = "spec/template/spec/containers/*/resources/limits/*";
    assert_eq!(scalar("apps/v1", "Deployment", limits), Shape::Scalar(ScalarType::Quantity));
    assert_eq!(scalar("v1", "Service", "spec/ports/*/targetPort"), Shape::Scalar(ScalarType::IntOrString));
    assert_eq!(scalar("v1", "Secret", "data/*"), Shape::Scalar(ScalarType::Bytes));
    assert_eq!(scalar("v1", "ConfigMap", "metadata/labels/*"), Shape::Scalar(ScalarType::Text));
    assert_eq!(scalar("v1", "Pod", "metadata/creationTimestamp"), Shape::Scalar(ScalarType::Time));
    assert_eq!(scalar("apps/v1", "Deployment", "spec/replicas"), Shape::Scalar(ScalarType::Plain));
}

#[test]
fn a_catalog_reads_back_as_it_was_written() {
    let catalog = decode(DATA).unwrap();
    let mut facts: Vec<_> = catalog.kinds().cloned().collect();
    facts.sort_by(|a, b| (&a.group, &a.kind).cmp(&(&b.group, &b.kind)));
    let mut schemas = Vec::new();
    for facts in &facts {
        for version in &facts.versions {
            let gvk = Gvk { group: facts.group.clone(), version: version.clone(), kind: facts.kind.clone() };
            let schema = catalog.schema(&gvk).unwrap();
            schemas.push((gvk, crate::schema::KindSchema::clone(&schema)));
        }
    }
    assert!(encode(&facts, &schemas).unwrap() == DATA);
}

#[test]
fn a_text_that_is_no_catalog_says_why() {
    assert!(decode("{").is_err());
    let error = decode(r#"{"kinds": [], "types": ["any", {"scalar": "odd"}]}"#).unwrap_err();
    assert!(error.to_string().starts_with("unknown variant `odd`"), "{error}");
}
