use serde_json::json;

use super::*;
use crate::record::PackedRecord;

fn source(revision: u64, data: &Value) -> ChartSource {
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": data});
    let release = json!({
        "name": "web", "namespace": "shop", "version": revision, "config": {}, "manifest": format!("---\n{secret}\n"),
        "chart": {"metadata": {"name": "app", "version": "1"}, "values": {}, "templates": []},
    });
    PackedRecord::new(BASE64_STANDARD.encode(release.to_string()), false).source().unwrap()
}

#[track_caller]
fn check(revisions: &[Value], live: &Value, expected: &[(&str, u64)]) {
    let revisions = revisions.iter().zip(1..).map(|(data, revision)| source(revision, data));
    let mut sources: Vec<_> = revisions.collect();
    sources.reverse();
    let encoded = live.as_object().unwrap().iter();
    let data: serde_json::Map<_, _> = encoded
        .map(|(key, value)| (key.clone(), BASE64_STANDARD.encode(value.as_str().unwrap()).into()))
        .collect();
    let object = ObjectId::namespaced("", "Secret", "shop", "key");
    let found = dropped_secret_keys(&sources, &object, &json!({"data": data}));
    let found: Vec<_> = found.iter().map(|it| (it.path.to_string(), it.revision)).collect();
    let expected: Vec<_> = expected.iter().map(|(path, revision)| ((*path).to_owned(), *revision)).collect();
    assert_eq!(found, expected, "{live}");
}

#[test]
fn key_that_a_chart_dropped_from_string_data_is_left_behind() {
    let (both, one) = (json!({"a": "1", "b": "2"}), json!({"a": "1"}));
    check(&[both.clone(), one.clone()], &both, &[("/data/b", 1)]);
    check(&[both.clone(), one.clone(), one.clone()], &both, &[("/data/b", 1)]);
    check(&[both.clone(), both.clone(), one.clone()], &both, &[("/data/b", 2)]);
    // It is gone, is declared, has another value, or never was declared.
    check(&[both.clone(), one.clone()], &one, &[]);
    check(&[one.clone(), both.clone()], &both, &[]);
    check(&[both.clone(), one.clone()], &json!({"a": "1", "b": "mine"}), &[]);
    check(&[one.clone(), one], &both, &[]);
    check(std::slice::from_ref(&both), &json!({"a": "1", "b": "2", "c": "3"}), &[]);
}
