use serde_json::{Value, json};

use super::super::read::typed;
use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn compile(spec: Value) -> Result<Allowance, Vec<Flaw>> {
    let resource = json!({
        "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftAllowance", "spec": spec,
        "metadata": {"name": "a", "namespace": "shop", "creationTimestamp": "2026-11-01T00:00:00Z"},
    });
    Allowance::compile(&typed(resource).unwrap())
}

fn object(kind: &str, namespace: Option<&str>) -> ObjectId {
    ObjectId { group: "".into(), kind: kind.into(), namespace: namespace.map(Into::into), name: "web".into() }
}

fn release(namespace: &str) -> ReleaseId {
    ReleaseId { namespace: namespace.into(), name: "web".into() }
}

#[test]
fn an_allowance_says_what_until_when_why_and_who() {
    let allowance = compile(json!({
        "object": {"kind": "Service", "namespace": "shop", "name": "web"}, "paths": ["/spec/ports", "delete"],
        "until": "2026-11-02T00:00:00Z", "reason": "INC-1", "requestedBy": {"user": "alice", "groups": ["dev"]},
    }))
    .unwrap();
    assert!(allowance.open(at("2026-11-01T23:59:59Z")) && !allowance.open(at("2026-11-02T00:00:00Z")));
    assert!(allowance.grant.mask.covers(&"/spec/ports/[port=80]".parse().unwrap()));
    assert!(!allowance.grant.mask.covers(&"/spec/type".parse().unwrap()) && allowance.grant.deletes);
    assert_eq!((allowance.by.user.as_str(), allowance.reason.as_str()), ("alice", "INC-1"));
    assert_eq!((allowance.name.as_str(), allowance.namespace.as_str()), ("a", "shop"));
}

#[test]
fn an_allowance_is_for_its_namespace_and_no_other() {
    let of = |namespace: Value| {
        compile(json!({
            "object": {"kind": "Service", "namespace": namespace, "name": "web"},
            "paths": ["*"], "until": "2026-11-02T00:00:00Z",
        }))
        .unwrap()
    };
    let check = |namespace: Value, object: ObjectId, of_release: &str, expected: bool| {
        let allowance = of(namespace.clone());
        let is_for = allowance.is_for(&object, &release(of_release));
        assert_eq!(is_for, expected, "{namespace}: {object} of a release in {of_release}");
        assert!(!is_for || allowance.objects().contains(&object), "{object} is not found");
    };
    check(json!("shop"), object("Service", Some("shop")), "shop", true);
    check(json!("shop"), object("Service", Some("shop")), "other", true);
    check(json!("shop"), object("Service", Some("other")), "shop", false);
    check(json!("shop"), object("Service", None), "shop", false);
    check(json!(null), object("Service", None), "shop", true);
    check(json!(null), object("Service", None), "other", false);
    check(json!(null), object("Service", Some("shop")), "shop", true);
    check(json!(null), object("Service", Some("other")), "shop", false);
    check(json!("shop"), object("Deployment", Some("shop")), "shop", false);
}

#[test]
fn an_allowance_with_a_flaw_is_none() {
    let check = |change: Value, field: &str, reason: FlawReason| {
        let mut spec = json!({
            "object": {"kind": "Service", "namespace": "shop", "name": "web"},
            "paths": ["/spec/ports"], "until": "2026-11-02T00:00:00Z",
        });
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let flaws = compile(spec).unwrap_err();
        assert_eq!((flaws[0].field.as_str(), flaws[0].reason), (field, reason), "{change}: {flaws:?}");
    };
    let other = json!({"kind": "Service", "namespace": "kube-system", "name": "web"});
    check(json!({"object": other}), "spec.object.namespace", FlawReason::ForeignNamespace);
    check(json!({"object": {"kind": "", "name": "web"}}), "spec.object.kind", FlawReason::Missing);
    check(json!({"paths": []}), "spec.paths", FlawReason::Missing);
    check(json!({"paths": ["/a", "spec"]}), "spec.paths[1]", FlawReason::InvalidPath);
    check(json!({"paths": vec!["/a"; 65]}), "spec.paths", FlawReason::TooMany);
    check(json!({"until": "tomorrow"}), "spec.until", FlawReason::InvalidTime);
    check(json!({"until": "2026-11-02"}), "spec.until", FlawReason::InvalidTime);
    check(json!({"until": "2026-12-03T00:00:00Z"}), "spec.until", FlawReason::TooFar);
    check(json!({"until": "9999-01-01T00:00:00Z"}), "spec.until", FlawReason::TooFar);
    check(json!({"until": "9999-12-31T23:59:59Z"}), "spec.until", FlawReason::InvalidTime);
}

#[test]
fn a_request_by_annotation_is_read_and_bounded() {
    let now = at("2026-11-01T00:00:00Z");
    let check = |until: Option<&str>, expected: Result<&str, FlawReason>| {
        let request = Request::read("/spec/replicas", until, None);
        let found = match request {
            Ok(request) => request.until_from(now).map_err(|flaw| flaw.reason),
            Err(flaws) => Err(flaws[0].reason),
        };
        assert_eq!(found, expected.map(at), "{until:?}");
    };
    check(Some("2026-11-01T02:00:00Z"), Ok("2026-11-01T02:00:00Z"));
    check(None, Err(FlawReason::Missing));
    check(Some("2026-10-31T02:00:00Z"), Err(FlawReason::InvalidTime));
    check(Some("2027-11-01T02:00:00Z"), Err(FlawReason::TooFar));
    check(Some("9999-01-01T00:00:00Z"), Err(FlawReason::TooFar));
    check(Some("soon"), Err(FlawReason::InvalidTime));
}

#[test]
fn commas_within_brackets_part_nothing() {
    let check = |text: &str, expected: &[&str]| {
        let request = Request::read(text, None, None).unwrap_or_else(|flaws| panic!("{text}: {flaws:?}"));
        let paths: Vec<String> = request.grant.mask.0.iter().map(ToString::to_string).collect();
        assert_eq!(paths, expected, "{text}");
    };
    check("/a,/b", &["/a", "/b"]);
    check(" /a , /b ,", &["/a", "/b"]);
    check("/p/[port=80,protocol=TCP]/x,/b", &["/p/[port=80,protocol=TCP]/x", "/b"]);
    check("/p/[name=\"a,]b\"],/b", &["/p/[name=\"a,]b\"]", "/b"]);
    check("/a[b,/c", &["/a[b", "/c"]);
    check("*,delete", &["*"]);
}

#[test]
fn unknown_paths_of_built_in_kinds_are_told() {
    let told = |kind: &str, group: &str, paths: Value| {
        let spec = json!({
            "object": {"group": group, "kind": kind, "name": "web"}, "paths": paths, "until": "2030-01-01T00:00:00Z",
        });
        let mut resource = DriftAllowance::new("a", serde_json::from_value(spec).unwrap());
        resource.metadata.namespace = Some("shop".to_owned());
        let allowance = Allowance::compile(&resource).unwrap();
        allowance.unknown_fields().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let slip = "there is no field /spec/replcas: did you mean replicas?";
    assert_eq!(told("Deployment", "apps", json!(["/spec/replcas", "/spec/paused"])), [slip]);
    for (kind, group, path) in [
        ("Deployment", "apps", "/spec/replicas"),
        ("Deployment", "apps", "delete"),
        ("Deployment", "apps", "*"),
        ("Deployment", "example.org", "/spec/replcas"),
        ("Widget", "example.org", "/spec/x"),
    ] {
        assert_eq!(told(kind, group, json!([path])), [] as [&str; 0], "{kind} {path}");
    }
}
