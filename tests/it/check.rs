//! `kubemoor check`, as a script calls it.

use std::fs;
use std::process::{Command, Output};

use serde_json::{Value, json};

fn check(replicas: u32, flags: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let (release, review) = (folder.path().join("web.yaml"), folder.path().join("review.json"));
    let object = |replicas: u32| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
               "metadata": {"name": "web", "namespace": "shop"}, "spec": {"replicas": replicas}})
    };
    fs::write(&release, serde_json::to_vec(&object(3)).unwrap()).unwrap();
    let resource = json!({"group": "apps", "version": "v1", "resource": "deployments"});
    let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "1", "operation": "UPDATE", "name": "web", "namespace": "shop", "resource": resource,
        "kind": {"group": "apps", "version": "v1", "kind": "Deployment"}, "userInfo": {"username": "alice"},
        "object": object(replicas), "oldObject": object(3)
    }});
    fs::write(&review, serde_json::to_vec(&body).unwrap()).unwrap();
    Command::new(env!("CARGO_BIN_EXE_kubemoor"))
        .arg("check")
        .args([format!("--release={}", release.display()), format!("--review={}", review.display())])
        .args(flags)
        .output()
        .unwrap()
}

#[test]
fn the_exit_code_is_the_verdict() {
    assert_eq!(check(3, &[]).status.code(), Some(0));
    assert_eq!(check(5, &[]).status.code(), Some(1));
    assert_eq!(check(5, &["--edits", "Warn"]).status.code(), Some(0));
    let unread = check(5, &["--output", "xml"]);
    assert_eq!(unread.status.code(), Some(2));
}

#[test]
fn the_verdict_is_a_table_or_json() {
    let table = String::from_utf8(check(5, &[]).stdout).unwrap();
    assert!(table.contains("VERDICT") && table.contains("/spec/replicas"), "{table}");
    let output = check(5, &["-o", "json"]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&value["outcome"], &value["reason"]), (&json!("Deny"), &json!("drift")));
    assert_eq!(value["release"], json!({"namespace": "shop", "name": "web"}));
    assert_eq!(value["fields"][0]["declared"], json!("3"));
}
