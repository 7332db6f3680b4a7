use crate::flaw::FlawReason;
use crate::samples::{declared, policies, policy, try_policy};
use kubemoor_declare::model::ObjectId;
use kubemoor_declare::model::ReleaseId;
use kubemoor_declare::path::Path;
use std::sync::Arc;

const CONFIG: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: shop, labels: {tier: web}}, data: {k: v}}";

/// Which of these paths policies of these specs seal in a ConfigMap.
#[track_caller]
fn check(specs: &[&str], wanted: &[&str]) {
    let (object, declared): (ObjectId, _) = declared(CONFIG);
    let declared = Arc::new(declared);
    let compiled = specs.iter().enumerate().map(|(index, spec)| policy(&format!("p{index}"), spec));
    let release = ReleaseId { namespace: "shop".into(), name: "web".into() };
    let resolver = crate::resolver::PolicyResolver::of_policies(policies(compiled));
    let rules = resolver.of(&release).rules(&object, &declared);
    let paths =
        ["/data", "/data/k", "/binaryData", "/metadata/labels/x", "/metadata/annotations/x", "/immutable"];
    let covered = |path: &&str| rules.sealed.covers(&path.parse::<Path>().unwrap());
    assert_eq!(paths.into_iter().filter(covered).collect::<Vec<_>>(), wanted, "{specs:?}");
    assert_eq!(rules.seal().is_some(), !rules.sealed.is_empty());
}

#[test]
fn seals_of_all_policies_count() {
    check(&["{}"], &[]);
    check(&["{seal: [{paths: [/data]}]}"], &["/data", "/data/k"]);
    check(&["{seal: [{target: {kind: Secret}, paths: [/data]}]}"], &[]);
    check(
        &["{seal: [{target: {labelSelector: tier=web}, paths: [/metadata/labels]}]}"],
        &["/metadata/labels/x"],
    );
    let both =
        ["{seal: [{paths: [/data/k]}]}", "{seal: [{target: {kind: ConfigMap}, paths: [/metadata/*]}]}"];
    check(&both, &["/data/k", "/metadata/labels/x", "/metadata/annotations/x"]);
    let all =
        ["/data", "/data/k", "/binaryData", "/metadata/labels/x", "/metadata/annotations/x", "/immutable"];
    check(&["{seal: [{paths: ['*']}]}"], &all);
}

#[test]
fn fields_written_by_controllers_cannot_be_sealed() {
    for path in ["/status", "/status/phase", "/kind", "/metadata/finalizers", "/metadata/managedFields/x"] {
        let flaws = try_policy("p", &format!("{{seal: [{{paths: [/data, {path}]}}]}}")).unwrap_err();
        let [flaw] = flaws.as_slice() else { panic!("{path}: {flaws:?}") };
        assert_eq!((flaw.field.as_str(), flaw.reason), ("spec.seal[0].paths", FlawReason::InvalidPath));
        assert!(flaw.message.starts_with(path) && flaw.message.contains("/metadata/labels"), "{flaw}");
    }
    for path in ["/metadata", "/metadata/*", "/metadata/labels/a", "'*'", "/spec"] {
        assert!(try_policy("p", &format!("{{seal: [{{paths: [{path}]}}]}}")).is_ok(), "{path}");
    }
}
