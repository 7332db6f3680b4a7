//! Keys of a Secret that an earlier revision set by `stringData` and that are still there, although no revision in force
//! declares them. The API server turns `stringData` into `data` and forgets whose the keys were, so neither an apply nor a
//! merge removes a key that a chart drops.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::manifest;
use super::record::ChartSource;
use kubemoor_declare::model::ObjectId;
use kubemoor_declare::path::{Path, Segment};

/// A key that an upgrade left behind.
#[derive(Clone, Debug, PartialEq)]
pub struct LeftBehind {
    /// The key, below `/data`.
    pub path: Path,
    /// The last revision that declared it.
    pub revision: u64,
}

/// The keys of a live Secret that upgrades left behind, by the latest revision and those before it, newest first. A key
/// with another value than the one that was declared is somebody else's.
pub fn left_behind(sources: &[ChartSource], object: &ObjectId, live: &Value) -> Vec<LeftBehind> {
    let Some((latest, earlier)) = sources.split_first() else { return Vec::new() };
    let Some(Value::Object(data)) = live.get("data").filter(|_| is_secret(object)) else { return Vec::new() };
    let Some(declared) = manifest::written(latest.manifest(), object) else { return Vec::new() };
    let is_declared = |key: &str| {
        let has = |map: &str| declared.object.get(map).is_some_and(|map| map.get(key).is_some());
        has("data") || has("stringData")
    };
    let mut open: Vec<(&String, &Value)> = data.iter().filter(|(key, _)| !is_declared(key)).collect();
    let mut found = Vec::new();
    for source in earlier {
        if open.is_empty() {
            break;
        }
        let Some(before) = manifest::written(source.manifest(), object) else { continue };
        open.retain(|(key, value)| {
            let text = before.object.pointer("/stringData").and_then(|texts| texts.get(key.as_str()));
            let Some(text) = text.and_then(Value::as_str) else { return true };
            if value.as_str() == Some(&BASE64_STANDARD.encode(text)) {
                let path = ["data", key.as_str()].map(|name| Segment::Field(name.to_owned()));
                found.push(LeftBehind { path: Path(path.into_iter().collect()), revision: source.revision });
            }
            false
        });
    }
    found.sort_by_cached_key(|it| it.path.to_string());
    found
}

/// Whether an object can hold such keys.
pub fn is_secret(object: &ObjectId) -> bool {
    object.group.is_empty() && object.kind == "Secret"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::record::Packed;

    fn source(revision: u64, data: &Value) -> ChartSource {
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": data});
        let release = json!({
            "name": "web", "namespace": "shop", "version": revision, "config": {}, "manifest": format!("---\n{secret}\n"),
            "chart": {"metadata": {"name": "app", "version": "1"}, "values": {}, "templates": []},
        });
        Packed::new(BASE64_STANDARD.encode(release.to_string()), false).source().unwrap()
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
        let found = left_behind(&sources, &object, &json!({"data": data}));
        let found: Vec<_> = found.iter().map(|it| (it.path.to_string(), it.revision)).collect();
        let expected: Vec<_> =
            expected.iter().map(|(path, revision)| ((*path).to_owned(), *revision)).collect();
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
}
