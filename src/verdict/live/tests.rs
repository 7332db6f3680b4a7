use serde_json::{Value, json};

use super::*;
use crate::helm::record::Status;
use crate::helm::release::tests::{Given, assembled};
use crate::model::{DriftMode, EditsMode};

const MANIFEST: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {replicas: 2}
"#;

const BEFORE: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {replicas: 1}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: old}
data: {a: b}
"#;

fn web() -> ObjectId {
    ObjectId {
        group: "apps".to_owned(),
        kind: "Deployment".to_owned(),
        namespace: Some("shop".to_owned()),
        name: "web".to_owned(),
    }
}

fn live(replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "web", "namespace": "shop", "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "shop"},
        },
        "spec": {"replicas": replicas},
    })
}

/// The state's name, and the paths that differ.
fn check(status: Status, manifest: &str, object: Option<Value>, wanted: &str) {
    let latest = Given { revision: 2, status, manifest, ..Given::default() };
    let baseline = Given { status: Status::Deployed, manifest: BEFORE, ..Given::default() };
    let release = assembled(latest, (status != Status::Deployed).then_some(baseline));
    let hour = std::time::Duration::from_secs(3600);
    let policy = Policy::new(EditsMode::Warn, DriftMode::Report, hour);
    let now = "2026-05-01T12:05:00Z".parse().unwrap();
    let found = match compare(&release, &web(), object.as_ref(), &policy, &Spared::default(), now) {
        Live::NotDeclared => "not declared".to_owned(),
        Live::OptedOut => "opted out".to_owned(),
        Live::BeingDeleted => "being deleted".to_owned(),
        Live::Awaited => "awaited".to_owned(),
        Live::Allowed => "allowed".to_owned(),
        Live::Missing => "missing".to_owned(),
        Live::InSync => "in sync".to_owned(),
        Live::Drifted { fields, .. } => {
            fields.iter().map(|field| field.path.to_string()).collect::<Vec<_>>().join(" ")
        }
    };
    assert_eq!(found, wanted, "{status}");
}

#[test]
fn a_live_object_is_held_against_the_manifest_in_force() {
    check(Status::Deployed, MANIFEST, Some(live(2)), "in sync");
    check(Status::Deployed, MANIFEST, Some(live(3)), "/spec/replicas");
    check(Status::Deployed, MANIFEST, None, "missing");
    check(Status::Deployed, "", Some(live(3)), "not declared");
    check(Status::Uninstalled, MANIFEST, Some(live(3)), "not declared");
}

#[test]
fn an_operation_under_way_accounts_for_either_manifest_and_for_what_is_not_there_yet() {
    for status in [Status::PendingUpgrade, Status::PendingRollback, Status::Failed] {
        check(status, MANIFEST, Some(live(1)), "in sync");
        check(status, MANIFEST, Some(live(2)), "in sync");
        check(status, MANIFEST, Some(live(3)), "/spec/replicas");
        check(status, MANIFEST, None, "awaited");
    }
}

#[test]
fn what_goes_and_what_is_opted_out_has_not_drifted() {
    let mut going = live(5);
    going["metadata"]["deletionTimestamp"] = json!("2026-05-01T12:00:00Z");
    check(Status::Deployed, MANIFEST, Some(going), "being deleted");
    let opted_out =
        MANIFEST.replace("{name: web}", r#"{name: web, annotations: {kubemoor.dev/guard: disabled}}"#);
    check(Status::Deployed, &opted_out, Some(live(5)), "opted out");
}
