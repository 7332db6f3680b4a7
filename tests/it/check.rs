//! `kubemoor check`, as a script calls it.

use std::fs;

use serde_json::json;

use crate::support::{Ran, Review, run};

/// What it says of a change of a declared Deployment from 3 replicas to so many.
pub(crate) fn check(replicas: u32, flags: &[&str]) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let [old, new] = [3, replicas].map(|replicas| {
        let metadata = json!({"name": "web", "namespace": "shop"});
        let spec = json!({"replicas": replicas});
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}).to_string()
    });
    let (kind, resource, name) = ("Deployment", "deployments", "web");
    let review = Review { group: "apps", kind, resource, namespace: "shop", name, old: &old, new: &new };
    let [old, review] = [("web.yaml", &old), ("review.json", &review.text())].map(|(file, text)| {
        let path = folder.path().join(file);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    });
    run(&[&["check", "--release", &old, "--review", &review], flags].concat(), "")
}

#[test]
fn the_exit_code_is_the_verdict() {
    assert_eq!(check(3, &[]).code, 0);
    assert_eq!(check(5, &[]).code, 1);
    assert_eq!(check(5, &["--edits", "Warn"]).code, 0);
    assert_eq!(check(5, &["--output", "xml"]).code, 2);
}

#[test]
fn the_verdict_is_a_table_or_json() {
    let table = check(5, &[]).out;
    assert!(table.contains("VERDICT") && table.contains("/spec/replicas"), "{table}");
    let value = check(5, &["-o", "json"]).json();
    assert_eq!((&value["outcome"], &value["reason"]), (&json!("Deny"), &json!("drift")));
    assert_eq!(value["release"], json!({"namespace": "shop", "name": "web"}));
    assert_eq!(value["fields"][0]["declared"], json!("3"));
}
