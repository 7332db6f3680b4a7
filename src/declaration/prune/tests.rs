use proptest::prelude::*;
use serde::de::DeserializeSeed;
use serde_json::{Value, json};

use super::Pruned;
use crate::declaration::declare::declare;
use crate::declaration::embedded;
use crate::declaration::fields::Fields;
use crate::declaration::samples::{any_value, deployment};
use crate::declaration::schema::KindSchema;
use crate::model::Gvk;

fn deployments() -> Option<KindSchema> {
    embedded::core().schema(&Gvk::from_api_version("apps/v1", "Deployment"))
}

fn prune(fields: &[&Fields], whole: &Value) -> Value {
    let text = whole.to_string();
    let mut deserializer = serde_json::Deserializer::from_str(&text);
    let pruned = Pruned::new(fields).deserialize(&mut deserializer).unwrap();
    deserializer.end().unwrap();
    pruned
}

fn pair(fields: &[&Fields], old: &Value, new: &Value) -> (Value, Value) {
    let text = |value: &Value| serde_json::value::to_raw_value(value).unwrap();
    Pruned::new(fields).pair(&text(old), &text(new)).unwrap()
}

/// `new` with half of what is in `old`, as an edit leaves most of an object.
fn edited(old: &Value, new: Value, depth: usize) -> Value {
    match (old, new) {
        (Value::Object(old), Value::Object(mut new)) => {
            for (place, (name, value)) in old.iter().enumerate() {
                if (place + depth).is_multiple_of(2) {
                    new.insert(name.clone(), value.clone());
                } else if let Some(own) = new.remove(name) {
                    new.insert(name.clone(), edited(value, own, depth + 1));
                }
            }
            Value::Object(new)
        }
        (_, new) => new,
    }
}

#[test]
fn of_an_update_only_what_differs_is_read() {
    let declared = json!({"spec": {"replicas": 1, "template": {"spec": {"containers": [{"name": "app"}]}}}});
    let fields = declare(&declared, deployments().as_ref());
    let old = json!({
        "metadata": {"name": "a", "uid": "1", "managedFields": [{}]},
        "spec": {"replicas": 1, "paused": false, "template": {"spec": {"containers": [{"name": "app"}]}}},
        "status": {"replicas": 1},
    });
    let mut new = old.clone();
    new["spec"]["replicas"] = json!(2);
    let kept = |replicas: u8| json!({"metadata": {"name": "a", "uid": "1"}, "spec": {"replicas": replicas, "paused": false}});
    assert_eq!(pair(&[&fields], &old, &new), (kept(1), kept(2)));
}

#[test]
fn only_declared_paths_and_what_verdicts_need_are_read() {
    let declared = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
        "spec": {"replicas": 1, "template": {"spec": {"containers": [{"name": "app", "image": "x"}]}}},
    });
    let live = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "a", "uid": "u", "labels": {"x": "y"}, "managedFields": [{"manager": "m"}]},
        "spec": {
            "replicas": 1, "paused": true, "minReadySeconds": 3,
            "template": {"metadata": {}, "spec": {"restartPolicy": "Always", "containers": [
                {"image": "z", "args": ["1"], "name": "proxy"},
                {"image": "x", "args": ["1"], "name": "app"},
                "no container",
            ]}},
        },
        "status": {"replicas": 1},
    });
    let fields = declare(&declared, deployments().as_ref());
    let expected = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "a", "uid": "u", "labels": {"x": "y"}},
        "spec": {
            "replicas": 1, "paused": true,
            "template": {"spec": {"containers": [
                {"name": "proxy"}, {"image": "x", "name": "app"}, "no container",
            ]}},
        },
    });
    assert_eq!(prune(&[&fields], &live), expected);
}

#[test]
fn without_a_declaration_the_identity_stays() {
    let live = json!({"kind": "A", "metadata": {"name": "a"}, "spec": {"suspend": true, "x": 1}, "data": {"a": "b"}});
    let expected = json!({"kind": "A", "metadata": {"name": "a"}, "spec": {"suspend": true}});
    assert_eq!(prune(&[], &live), expected);
}

#[test]
fn a_text_that_is_no_json_is_an_error() {
    let mut deserializer = serde_json::Deserializer::from_str("{\"spec\": {\"x\": [1, }}");
    assert!(Pruned::new(&[]).deserialize(&mut deserializer).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn pruned_objects_compare_as_whole_ones(
        declared in deployment(), other in deployment(), old in deployment(), new in deployment()
    ) {
        let (schema, others) = (deployments(), deployments());
        let (fields, alternative) = (declare(&declared, schema.as_ref()), declare(&other, others.as_ref()));
        let both = [&fields, &alternative];
        let (old_pruned, new_pruned) = (prune(&both, &old), prune(&both, &new));
        for fields in both {
            prop_assert_eq!(fields.changed(&old, &new), fields.changed(&old_pruned, &new_pruned));
            prop_assert_eq!(fields.drift(&new), fields.drift(&new_pruned));
        }
        for new in [edited(&old, new.clone(), 0), edited(&old, new.clone(), 1), old.clone(), new] {
            let (before, after) = pair(&both, &old, &new);
            for fields in both {
                prop_assert_eq!(fields.changed(&old, &new), fields.changed(&before, &after));
            }
        }
    }

    #[test]
    fn any_pruned_json_compares_as_whole(declared in any_value(), old in any_value(), new in any_value()) {
        for schema in [deployments(), None] {
            let fields = declare(&declared, schema.as_ref());
            let (old_pruned, new_pruned) = (prune(&[&fields], &old), prune(&[&fields], &new));
            prop_assert_eq!(fields.changed(&old, &new), fields.changed(&old_pruned, &new_pruned));
            prop_assert_eq!(fields.drift(&new), fields.drift(&new_pruned));
            for new in [edited(&old, new.clone(), 0), edited(&old, new.clone(), 1), new.clone()] {
                let (before, after) = pair(&[&fields], &old, &new);
                prop_assert_eq!(fields.changed(&old, &new), fields.changed(&before, &after));
            }
        }
    }
}
