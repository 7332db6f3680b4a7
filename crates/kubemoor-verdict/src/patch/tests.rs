use serde_json::{Value, json};

use super::*;
use crate::shown::Shown;
use kubemoor_declare::model::ObjectId;
use kubemoor_declare::path::{Path, Segment};

fn finding(kind: &str, path: &[&str], declared: Option<Value>, live: Option<Value>) -> Finding {
    let object = ObjectId::namespaced("", kind, "shop", "x");
    let path = Path(path.iter().map(|name| Segment::Field((*name).into())).collect());
    let shown = |value: Option<Value>| value.map(|value| Shown::of(&object, &path, &value));
    Finding {
        declared: shown(declared),
        old: None,
        new: shown(live),
        path: path.clone(),
        difference: None,
        doubt: false,
        added: false,
    }
}

#[test]
fn each_sort_of_change_is_its_operation() {
    let findings = [
        finding("ConfigMap", &["data", "a"], Some(json!("1")), Some(json!("2"))),
        finding("ConfigMap", &["data", "b"], Some(json!("1")), None),
        finding("ConfigMap", &["data", "c"], None, Some(json!("2"))),
    ];
    assert_eq!(
        patch(&findings, 500),
        r#"[{"op":"replace","path":"/data/a","value":"1"},{"op":"add","path":"/data/b","value":"1"},{"op":"remove","path":"/data/c"}]"#
    );
    assert_eq!(patch(&[], 500), "[]");
}

#[test]
fn a_secret_stays_one_and_a_long_patch_is_cut() {
    let secret = finding("Secret", &["data", "password"], Some(json!("hunter2")), Some(json!("hunter3")));
    let text = patch(&[secret], 500);
    assert!(!text.contains("hunter"), "{text}");
    let long = finding("ConfigMap", &["data", "a"], Some(json!("ü".repeat(100))), None);
    let text = patch(&vec![long; 50], 500);
    assert_eq!(text.chars().count(), 500);
    assert!(text.ends_with('…'));
}
