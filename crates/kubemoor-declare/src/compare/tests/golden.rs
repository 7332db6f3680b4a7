//! Against what real API servers made of the same manifests, see
//! `tests/golden/kinds.py`.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::*;
use crate::openapi::from_crd;
use crate::path::{Path, Segment};

#[derive(Deserialize)]
struct AppliedFields {
    live: Value,
    owned: Value,
}

/// The paths that the API server's own record of an applier names.
fn owned_paths(fields: &Value, at: &Path, found: &mut BTreeSet<String>) {
    let below = fields.as_object().unwrap();
    if below.is_empty() && !at.0.is_empty() {
        found.insert(at.to_string());
    }
    for (name, below) in below.iter().filter(|(name, _)| *name != ".") {
        let segment = match name.split_once(':').unwrap() {
            ("f", name) => Segment::Field(name.to_owned()),
            ("k", keys) => {
                Segment::Key(serde_json::from_str::<Map<String, Value>>(keys).unwrap().into_iter().collect())
            }
            ("v", value) => Segment::Element(serde_json::from_str(value).unwrap()),
            other => panic!("{other:?} is no field of a known form"),
        };
        let path = Path(at.0.iter().cloned().chain([segment]).collect());
        owned_paths(below, &path, found);
    }
}

/// Every document with its fields, and what the server of a version holds.
fn check(held: &str, visit: impl Fn(&Value, &DeclaredFields, &AppliedFields)) {
    let documents: Vec<Value> =
        serde_json::from_str(include_str!("../../../../../tests/golden/kinds.json")).unwrap();
    let held: Vec<AppliedFields> = serde_json::from_str(held).unwrap();
    assert_eq!(documents.len(), held.len());
    let crd = documents.iter().find(|document| document["kind"] == "CustomResourceDefinition").unwrap();
    let mut catalog = catalog::core().clone();
    for (gvk, schema) in from_crd(crd).unwrap() {
        catalog.insert_schema(gvk, schema);
    }
    for (document, held) in documents.iter().zip(&held) {
        // Where an older server serves the kind.
        let mut document = document.clone();
        document["apiVersion"] = held.live["apiVersion"].clone();
        let text = |name: &str| document[name].as_str().unwrap();
        let schema = catalog.schema(&Gvk::from_api_version(text("apiVersion"), text("kind")));
        assert!(schema.is_some(), "{document}");
        visit(&document, &declare(&document, schema.as_deref()), held);
    }
}

#[track_caller]
fn check_drift(held: &str) {
    check(held, |document, fields, held| {
        assert!(fields.changed(&held.live, &held.live).is_empty(), "{document}");
        assert_eq!(fields.drift(&held.live), [], "{document}");
    });
}

#[test]
fn objects_stored_by_kubernetes_1_36_show_no_drift() {
    check_drift(include_str!("../../../../../tests/golden/kinds.1.36.json"));
}

#[test]
fn objects_stored_by_kubernetes_1_20_show_no_drift() {
    check_drift(include_str!("../../../../../tests/golden/kinds.1.20.json"));
}

#[test]
fn declared_paths_match_the_fields_owned_by_the_applier() {
    check(include_str!("../../../../../tests/golden/kinds.1.36.json"), |document, fields, held| {
        let mut owned = BTreeSet::new();
        owned_paths(&held.owned, &Path::default(), &mut owned);
        // Texts become data, and built-in outputs are nobody's declaration.
        let owned: BTreeSet<String> = owned
            .into_iter()
            .map(|path| path.replace("/stringData/", "/data/"))
            .filter(|path| !path.ends_with("/clientConfig/caBundle"))
            .filter(|path| document["aggregationRule"].is_null() || path != "/rules")
            .collect();
        let declared: BTreeSet<String> = fields.leaves().iter().map(|(path, _)| path.to_string()).collect();
        assert_eq!(declared, owned, "{document}");
    });
}

/// The one value at a path, to be changed.
fn place<'v>(root: &'v mut Value, path: &Path) -> Option<&'v mut Value> {
    path.0.iter().try_fold(root, |value, segment| match segment {
        Segment::Field(name) => value.get_mut(name),
        Segment::Key(keys) => value
            .as_array_mut()?
            .iter_mut()
            .find(|item| keys.iter().all(|(key, wanted)| item.get(key) == Some(wanted))),
        Segment::Element(wanted) => value.as_array_mut()?.iter_mut().find(|item| *item == wanted),
    })
}

/// Other values in the place of one.
fn mutants(value: &Value) -> Vec<Value> {
    let other = match value {
        Value::Bool(value) => json!(!value),
        Value::Number(number) => json!(number.as_i64().unwrap() + 7),
        Value::String(text) if text.parse::<u64>().is_ok() => json!("77"),
        Value::String(text) => json!(format!("{text}x")),
        Value::Array(items) => items.iter().cloned().chain([json!("mutant")]).collect(),
        Value::Object(map) => {
            let mut map = map.clone();
            map.insert("mutant".to_owned(), json!("mutant"));
            Value::Object(map)
        }
        Value::Null => json!("mutant"),
    };
    vec![other, Value::Null]
}

#[test]
fn every_declared_value_change_is_found_and_its_undo_agrees() {
    for held in [
        include_str!("../../../../../tests/golden/kinds.1.20.json"),
        include_str!("../../../../../tests/golden/kinds.1.36.json"),
    ] {
        let edits = std::cell::Cell::new(0);
        check(held, |document, fields, held| {
            for (path, declared) in fields.leaves() {
                let Some(live) = path.get(&held.live).first().copied().filter(|live| !live.is_null()) else {
                    continue;
                };
                // Null bytes are empty ones.
                let is_same = |mutant: &Value| mutant.is_null() && *live == json!("");
                // Adding to credentials of a ServiceAccount is allowed.
                let is_shared = document["kind"] == "ServiceAccount" && live.is_array();
                let says_nothing =
                    declared.is_null() || is_shared || declared == json!({}) && live.is_object();
                for mutant in mutants(live).into_iter().filter(|it| !says_nothing && !is_same(it)) {
                    let mut edited = held.live.clone();
                    *place(&mut edited, &path).unwrap() = mutant.clone();
                    let found = fields.changed(&held.live, &edited);
                    let unasked = declared == json!("") || declared == json!([]);
                    let caught = found.iter().any(|c| unasked || c.agreement != FieldAgreement::Agrees);
                    assert!(caught, "{document} {path} to {mutant}: {found:?}");
                    let back = fields.changed(&edited, &held.live);
                    let kept = back.iter().all(|c| c.agreement != FieldAgreement::Differs);
                    assert!(kept, "{document} {path} from {mutant}: {back:?}");
                    edits.set(edits.get() + 1);
                }
            }
        });
        assert!(edits.get() > 300, "only {} edits were tried", edits.get());
    }
}
