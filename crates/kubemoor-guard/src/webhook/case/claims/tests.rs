use std::sync::Arc;

use serde_json::{Value, json};

use super::super::Subject;
use super::*;
use crate::sample_releases::{Given, assembled};
use crate::sample_verdicts::resolver;
use crate::webhook::claims::{certain, governing};
use crate::webhook::review;
use kubemoor_declare::model::{EditsMode, ObjectId};
use kubemoor_runtime::config::RecordDriver;

const MANIFEST: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop}
data: {k: v}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec: {maxReplicas: 3}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
";

fn release(namespace: &str, name: &str) -> Release {
    assembled(Given { manifest: MANIFEST, namespace, name, ..Given::default() }, None)
}

/// The foreign claims are seen first.
fn index() -> RwLock<Index> {
    let mut index = Index::default();
    for (namespace, name) in [("thief", "a"), ("thief", "b"), ("shop", "web"), ("shop", "web2")] {
        index.set(release(namespace, name));
    }
    RwLock::new(index)
}

/// An update of an object by a release's annotations before and after.
fn review(group: &str, kind: &str, version: &str, name: &str, owners: [Option<&str>; 2]) -> String {
    let namespace = (kind != "Namespace").then_some("shop");
    let object = |owner: Option<&str>| {
        let (namespace, name) = owner.map(|it| it.split_once('/').unwrap()).unzip();
        json!({"metadata": {"name": "x", "annotations": {RELEASE_NAMESPACE: namespace, RELEASE_NAME: name}}})
    };
    let [old, new] = owners.map(object);
    let resource =
        json!({"group": group, "version": version, "resource": format!("{}s", kind.to_lowercase())});
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "r", "kind": {"group": group, "version": version, "kind": kind}, "resource": resource,
            "name": name, "namespace": namespace, "operation": "UPDATE", "userInfo": {"username": "alice"},
            "object": new, "oldObject": old,
        },
    })
    .to_string()
}

fn names(claims: &[Arc<Release>]) -> Value {
    json!(claims.iter().map(|claim| claim.id.to_string()).collect::<Vec<_>>())
}

fn counting_in(review: &str, index: &RwLock<Index>) -> (Vec<Arc<Release>>, Option<ReleaseId>) {
    let request = review::Request::parse(review.as_bytes()).unwrap();
    let subject = Subject::of(&request.head, &index.read(), RecordDriver::Secret).unwrap();
    let case = Case::of(subject, request, RecordDriver::Secret);
    let claims = case.claims(index, &resolver(EditsMode::Deny));
    let named = case.newly_named(&claims);
    (claims, named)
}

#[test]
fn claims_count_by_namespace_and_owner_with_the_owner_first() {
    let index = index();
    let check = |kind: &str, name: &str, owner: Option<&str>, expected: Value| {
        let (claims, _) = counting_in(&review("", kind, "v1", name, [owner, owner]), &index);
        assert_eq!(names(&claims), expected, "{kind} {owner:?}");
    };
    check("ConfigMap", "settings", None, json!(["shop/web", "shop/web2"]));
    check("ConfigMap", "settings", Some("shop/web2"), json!(["shop/web2", "shop/web"]));
    check("ConfigMap", "settings", Some("thief/b"), json!(["thief/b", "shop/web", "shop/web2"]));
    check("ConfigMap", "settings", Some("thief/none"), json!(["shop/web", "shop/web2"]));
    check("ConfigMap", "other", Some("shop/web"), json!([]));
    check("Namespace", "shop", None, json!([]));
    check("Namespace", "shop", Some("thief/b"), json!(["thief/b"]));
}

#[test]
fn a_release_counts_that_only_the_new_object_names_if_none_else_does() {
    let index = index();
    let check = |kind: &str, name: &str, owners: [Option<&str>; 2], expected: Value| {
        let (claims, _) = counting_in(&review("", kind, "v1", name, owners), &index);
        assert_eq!(names(&claims), expected, "{kind} {owners:?}");
    };
    check("Namespace", "shop", [None, Some("thief/b")], json!(["thief/b"]));
    // Whoever created it could give it the name of a release that does not declare it.
    check("Namespace", "shop", [Some("other/late"), Some("thief/b")], json!(["thief/b"]));
    check("Namespace", "shop", [Some("thief/a"), Some("thief/b")], json!(["thief/a"]));
    check("Namespace", "shop", [Some("thief/b"), Some("other/late")], json!(["thief/b"]));
    check("ConfigMap", "settings", [None, Some("thief/b")], json!(["shop/web", "shop/web2"]));
}

#[test]
fn a_claim_is_heard_in_its_own_version_alone() {
    let index = index();
    let autoscaler = |version| {
        let owner = Some("shop/web");
        let review = review("autoscaling", "HorizontalPodAutoscaler", version, "web", [owner, owner]);
        names(&counting_in(&review, &index).0)
    };
    assert_eq!(autoscaler("v2"), json!(["shop/web", "shop/web2"]));
    assert_eq!(autoscaler("v1"), json!([]));
}

#[test]
fn named_unknown_release_is_read_only_if_it_could_count() {
    let index = index();
    let named = |owners: [Option<&str>; 2]| {
        let review = review("", "ConfigMap", "v1", "settings", owners);
        counting_in(&review, &index).1.map(|release| release.to_string())
    };
    let web = Some("shop/web");
    assert_eq!(named([web, web]), None);
    assert_eq!(named([web, Some("shop/new")]), Some("shop/new".to_owned()));
    assert_eq!(named([web, Some("thief/slow")]), None);
    assert_eq!(named([Some("other/late"), Some("other/late")]), Some("other/late".to_owned()));
    assert_eq!(named([web, None]), None);
}

#[test]
fn without_a_claim_that_counts_the_namespace_decides() {
    let (resolver, index) = (resolver(EditsMode::Warn), index());
    let object = |namespace: Option<&str>, name: &str, kind: &str| ObjectId {
        group: "".into(),
        kind: kind.into(),
        namespace: namespace.map(Into::into),
        name: name.into(),
    };
    let settings = object(Some("shop"), "settings", "ConfigMap");
    let known = certain(&settings, Some("v1"), &index.read());
    assert_eq!(names(&known), json!(["shop/web", "shop/web2"]));
    assert_eq!(names(&certain(&settings, Some("v2"), &index.read())), json!([]));
    let namespace = object(None, "shop", "Namespace");
    assert_eq!(names(&certain(&namespace, Some("v1"), &index.read())), json!([]));
    assert_eq!(governing(&resolver, &namespace, &[]).edits, EditsMode::Warn);
    resolver.set_open(true);
    assert_eq!(governing(&resolver, &namespace, &[]).edits, EditsMode::Allow);
}
