use std::time::Duration;

use serde_json::json;

use super::*;
use crate::helm::record::Status;
use crate::helm::release::Release;
use crate::helm::release::tests::{Given, assembled};
use crate::helm::state;
use crate::policy::pattern::Pattern;

const MANIFEST: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  template:
    spec:
      tolerations: [{operator: Exists}]
      containers: [{name: app, image: "app:1"}]
"#;

fn live(changes: &[(&str, Value)]) -> Value {
    let mut live = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop",
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "shop"}},
        "spec": {"replicas": 2, "template": {"spec": {
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "app", "image": "app:1", "imagePullPolicy": "Always"}]}}},
    });
    for (pointer, value) in changes {
        *live.pointer_mut(pointer).unwrap() = value.clone();
    }
    live
}

/// The paths that drift, with whether each is a doubt.
#[track_caller]
fn check_of(
    release: &Release,
    live: &Value,
    spared: &[&str],
    evidence: Evidence<'_>,
    expected: &[(&str, bool)],
) {
    let object = release.objects.keys().next().unwrap();
    let now = "2026-05-01T12:05:00Z".parse().unwrap();
    let standing = state::standing(release, object, Duration::from_secs(3600), now).unwrap();
    let spared = Mask(spared.iter().map(|path| Pattern::parse(path).unwrap()).collect());
    let drift = drift(&standing, live, &spared, evidence).unwrap();
    let found = findings(object, &drift.changes);
    let found: Vec<_> = found.iter().map(|it| (it.path.to_string(), it.doubt)).collect();
    let expected: Vec<_> = expected.iter().map(|(path, doubt)| ((*path).to_owned(), *doubt)).collect();
    assert_eq!(found, expected);
    assert_eq!(drift.is_none(), expected.is_empty());
}

#[track_caller]
fn check(changes: &[(&str, Value)], spared: &[&str], expected: &[(&str, bool)]) {
    let release = assembled(Given { manifest: MANIFEST, ..Given::default() }, None);
    check_of(&release, &live(changes), spared, Evidence::None, expected);
}

const IMAGE: &str = "/spec/template/spec/containers/0/image";
const IMAGE_PATH: &str = "/spec/template/spec/containers/[name=app]/image";

#[test]
fn only_declared_fields_drift_and_only_by_their_meaning() {
    check(&[], &[], &[]);
    check(&[("/spec/replicas", json!(3))], &[], &[("/spec/replicas", false)]);
    check(&[(IMAGE, json!("app:2"))], &[], &[(IMAGE_PATH, false)]);
    check(&[("/spec/template/spec/containers/0/imagePullPolicy", json!("Never"))], &[], &[]);
    check(
        &[("/metadata/labels/app.kubernetes.io~1managed-by", json!("me"))],
        &[],
        &[("/metadata/labels/app.kubernetes.io~1managed-by", false)],
    );
}

#[test]
fn what_is_left_alone_is_not_compared() {
    let changes = [("/spec/replicas", json!(3)), (IMAGE, json!("app:2"))];
    check(&changes, &["/spec/replicas"], &[(IMAGE_PATH, false)]);
    check(&changes, &["/spec/template/spec/containers/[name=app]"], &[("/spec/replicas", false)]);
    check(&changes, &["*"], &[]);
    // A part of what is compared as one value.
    let tolerations = [("/spec/template/spec/tolerations", json!([{"operator": "Equal"}]))];
    check(&tolerations, &["/spec/template/spec/tolerations/*/operator"], &[]);
    check(
        &tolerations,
        &["/spec/template/spec/tolerations/*/key"],
        &[("/spec/template/spec/tolerations", false)],
    );
}

#[test]
fn a_doubt_stays_one_until_the_arbiter_has_spoken() {
    // A zero that the API server keeps, because its absence means something else.
    let manifest = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 0}\n";
    let release = assembled(Given { manifest, ..Given::default() }, None);
    let mut object = live(&[]);
    object["spec"] = json!({});
    let doubt = [("/spec/replicas", true)];
    check_of(&release, &object, &[], Evidence::None, &doubt);
    check_of(&release, &object, &[], Evidence::Nowhere, &doubt);
    check_of(&release, &object, &[], Evidence::Unavailable, &doubt);
    check_of(&release, &object, &[], Evidence::Canonical(&object), &[]);
    let mut canonical = object.clone();
    canonical["spec"] = json!({"replicas": 0});
    check_of(&release, &object, &[], Evidence::Canonical(&canonical), &[("/spec/replicas", false)]);
}

#[test]
fn of_a_failed_release_either_manifest_will_do() {
    let before = MANIFEST.replace("app:1", "app:0");
    let failed = Given { manifest: MANIFEST, revision: 2, status: Status::Failed, ..Given::default() };
    let baseline = Given { manifest: &before, ..Given::default() };
    let release = assembled(failed, Some(baseline));
    check_of(&release, &live(&[]), &[], Evidence::None, &[]);
    check_of(&release, &live(&[(IMAGE, json!("app:0"))]), &[], Evidence::None, &[]);
    check_of(&release, &live(&[(IMAGE, json!("app:9"))]), &[], Evidence::None, &[(IMAGE_PATH, false)]);
}

#[test]
fn what_the_manifest_opts_out_never_drifts() {
    let manifest = MANIFEST.replace("name: web}", "name: web, annotations: {kubemoor.dev/guard: disabled}}");
    let release = assembled(Given { manifest: &manifest, ..Given::default() }, None);
    check_of(&release, &live(&[("/spec/replicas", json!(3))]), &[], Evidence::None, &[]);
}
