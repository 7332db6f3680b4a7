use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::ObjectPruner;
use crate::catalog;
use crate::declare::declare;
use crate::excerpt::Excerpt;
use crate::fields::DeclaredFields;
use crate::model::Gvk;
use crate::samples::{any_value, deployment, spelled, touched};
use crate::schema::KindSchema;

fn deployments() -> Option<Arc<KindSchema>> {
    catalog::core().schema(&Gvk::from_api_version("apps/v1", "Deployment"))
}

fn prune(fields: &[&DeclaredFields], whole: &Value) -> Value {
    let text = whole.to_string();
    ObjectPruner::new(fields).read(&Excerpt::new(&text).unwrap()).unwrap()
}

fn pair(fields: &[&DeclaredFields], old: &Value, new: &Value) -> (Value, Value) {
    pair_of_texts(fields, &old.to_string(), &new.to_string())
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
        (Value::Array(old), Value::Array(new)) => {
            let kept = |(place, new): (usize, Value)| match old.get(place) {
                Some(old) if (place + depth).is_multiple_of(2) => old.clone(),
                Some(old) => edited(old, new, depth + 1),
                None => new,
            };
            new.into_iter().enumerate().map(kept).collect()
        }
        (_, new) => new,
    }
}

/// A text's value, of which the last entry of a name counts.
fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn pair_of_texts(fields: &[&DeclaredFields], old: &str, new: &str) -> (Value, Value) {
    ObjectPruner::new(fields).pair(&Excerpt::new(old).unwrap(), &Excerpt::new(new).unwrap()).unwrap()
}

#[test]
fn only_differing_declared_fields_of_an_update_are_read() {
    let declared = json!({"spec": {"replicas": 1, "template": {"spec": {"containers": [{"name": "app"}]}}}});
    let fields = declare(&declared, deployments().as_deref());
    let old = json!({
        "metadata": {"name": "a", "uid": "1", "managedFields": [{}]},
        "spec": {"replicas": 1, "paused": false, "template": {"spec": {"containers": [{"name": "app"}]}}},
        "status": {"replicas": 1},
    });
    let mut new = old.clone();
    new["spec"]["replicas"] = json!(2);
    let kept = |replicas: u8| json!({"metadata": {"uid": "1"}, "spec": {"replicas": replicas}});
    assert_eq!(pair(&[&fields], &old, &new), (kept(1), kept(2)));
}

#[test]
fn only_differing_list_elements_are_read() {
    let containers = json!([{"name": "a", "image": "x"}, {"name": "b", "image": "x", "env": [
        {"name": "E", "value": "1"}, {"name": "F", "value": "1"},
    ]}]);
    let old = json!({"spec": {"template": {"spec": {"containers": containers}}}});
    let fields = declare(&old, deployments().as_deref());
    let mut new = old.clone();
    new["spec"]["template"]["spec"]["containers"][1]["env"][1]["value"] = json!("2");
    let kept = |value: &str| {
        let env = json!([{"name": "F", "value": value}]);
        json!({"spec": {"template": {"spec": {"containers": [{"name": "b", "env": env}]}}}})
    };
    assert_eq!(pair(&[&fields], &old, &new), (kept("1"), kept("2")));
}

#[test]
fn elements_that_share_their_keys_are_compared_together() {
    let list = |ports: &str| {
        format!(r#"{{"spec":{{"template":{{"spec":{{"containers":[{{"name":"a","ports":{ports}}}]}}}}}}}}"#)
    };
    let declared = read(&list(r#"[{"containerPort":80,"name":"http"}]"#));
    let fields = declare(&declared, deployments().as_deref());
    let lists = [
        r#"[{"containerPort":80,"name":"x"},{"containerPort":80,"protocol":"TCP","name":"x"}]"#,
        r#"[{"containerPort":80,"name":"http"},{"containerPort":80,"protocol":"TCP","name":"x"}]"#,
        r#"[{"containerPort":80,"name":"x"},{"containerPort":80,"protocol":"TCP","name":"http"}]"#,
        r#"[{"containerPort":80.0,"name":"x"},{"containerPort":80,"protocol":"","name":"http"}]"#,
        r#"[{"containerPort":81,"name":"x"},{"containerPort":80,"protocol":"UDP","name":"http"}]"#,
        r#"[{"containerPort":8,"containerPort":80,"name":"x"},{"containerPort":80,"name":"http"}]"#,
        r#"[{"containerPort":80,"name":"x"}]"#,
        r#"["http",{"containerPort":80,"protocol":null,"name":"x"}]"#,
        "[]",
        "{}",
    ];
    for (old, new) in lists.iter().flat_map(|old| lists.iter().map(move |new| (list(old), list(new)))) {
        let (before, after) = pair_of_texts(&[&fields], &old, &new);
        let expected = fields.changed(&read(&old), &read(&new));
        assert_eq!(fields.changed(&before, &after), expected, "{old}\n{new}");
    }
}

#[test]
fn elements_with_escaped_or_duplicate_names_are_compared_together() {
    let list = |env: &str| {
        format!(r#"{{"spec":{{"template":{{"spec":{{"containers":[{{"name":"a","env":{env}}}]}}}}}}}}"#)
    };
    let declared = read(&list(r#"[{"name":"KEY","value":"1"},{"name":"1e+30","value":"1"}]"#));
    let fields = declare(&declared, deployments().as_deref());
    let lists = [
        r#"[{"name":"KEY","value":"1"},{"name":"K\u0045Y","value":"1"}]"#,
        r#"[{"name":"KEY","value":"2"},{"name":"K\u0045Y","value":"1"}]"#,
        r#"[{"name":"KEY","value":"1"},{"name":"OTHER","value":"KEY"}]"#,
        r#"[{"name":"KEY","value":"2"},{"name":"OTHER","value":"KEY"}]"#,
        r#"[{"name":"KEY","value":"2"},{"name":"OTHER","value":"1"}]"#,
        r#"[{"name":"KEY","value":"1"},{"value":"1"}]"#,
        r#"[{"name":"KEY","value":"2"},{"value":"1"}]"#,
        r#"[{"name":"KEY","value":"2"},"OTHER"]"#,
        r#"[{"name":"1e+30","value":"1"},{"name":1E30,"value":"1"}]"#,
        r#"[{"name":"1e+30","value":"2"},{"name":1E30,"value":"1"}]"#,
        r#"[{"name":"1e+30","value":"2"},{"name":1e30,"value":"1"}]"#,
    ];
    for (old, new) in lists.iter().flat_map(|old| lists.iter().map(move |new| (list(old), list(new)))) {
        let (before, after) = pair_of_texts(&[&fields], &old, &new);
        let expected = fields.changed(&read(&old), &read(&new));
        assert_eq!(fields.changed(&before, &after), expected, "{old}\n{new}");
    }
}

#[test]
fn last_duplicate_json_key_wins() {
    let declared = json!({"spec": {"replicas": 1, "paused": false}});
    let fields = declare(&declared, deployments().as_deref());
    let specs = [
        r#""replicas":1,"replicas":2"#,
        r#""replicas":1,"replicas":3"#,
        r#""replicas":2,"replicas":1"#,
        r#""replicas":3,"replicas":1"#,
        r#""replicas":3,"re\u0070licas":1"#,
        r#""replicas":1,"paused":true,"replicas":2"#,
        r#""replicas":2,"paused":true,"paused":false"#,
    ];
    for (old, new) in specs.iter().flat_map(|old| specs.iter().map(move |new| (old, new))) {
        let (old, new) = (format!("{{\"spec\":{{{old}}}}}"), format!("{{\"spec\":{{{new}}}}}"));
        let (before, after) = pair_of_texts(&[&fields], &old, &new);
        let expected = fields.changed(&read(&old), &read(&new));
        assert_eq!(fields.changed(&before, &after), expected, "{old}\n{new}");
    }
}

#[test]
fn pruning_fails_when_either_object_cannot_be_read() {
    let declared = json!({"spec": {"replicas": 1}});
    let fields = declare(&declared, deployments().as_deref());
    let right = r#"{"spec":{"replicas":1}}"#;
    let deep = format!(r#"{{"spec":{{"replicas":{}1{}}}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    for wrong in [r#"{"spec":{"replicas":1e999}}"#, &deep] {
        for (old, new) in [(right, wrong), (wrong, right)] {
            let (old, new) = (Excerpt::new(old).unwrap(), Excerpt::new(new).unwrap());
            assert_eq!(ObjectPruner::new(&[&fields]).pair(&old, &new), None, "{wrong}");
        }
    }
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
    let fields = declare(&declared, deployments().as_deref());
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

/// Deployments with fields that exclude one another, sometimes with two of them.
fn excluding() -> impl Strategy<Value = Value> {
    let some = |values: Value| {
        let values: Vec<Value> = values.as_array().cloned().unwrap_or_default();
        proptest::sample::select(values)
    };
    let source = |path: &str| json!({"fieldRef": {"apiVersion": "v1", "fieldPath": path}});
    let strategy = some(json!([
        null, {"type": "Recreate"}, {"type": "RollingUpdate"}, {"rollingUpdate": {"maxSurge": 1}},
        {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2}}, {"type": "Recreate", "rollingUpdate": null},
        {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}},
    ]));
    let variable = some(json!([
        {"name": "A"}, {"name": "A", "value": ""}, {"name": "A", "value": "x"}, {"name": "A", "valueFrom": source("a")},
        {"name": "A", "valueFrom": source("b")}, {"name": "A", "value": "", "valueFrom": source("a")},
    ]));
    let probe = some(json!([
        null, {"httpGet": {"path": "", "port": 80}}, {"httpGet": {"path": "/", "port": 80}, "exec": null},
        {"exec": {"command": ["x"]}, "periodSeconds": 1}, {"tcpSocket": {"port": 1}},
        {"exec": {"command": ["x"]}, "tcpSocket": {"port": 1}},
    ]));
    let volume = some(json!([
        {"name": "v"}, {"name": "v", "emptyDir": {}}, {"name": "v", "configMap": {"name": "a"}},
        {"name": "v", "configMap": {"name": "b", "defaultMode": 420}}, {"name": "v", "hostPath": {"path": "/"}},
    ]));
    (strategy, variable, probe, volume).prop_map(|(strategy, variable, probe, volume)| {
        let container = json!({"name": "app", "env": [variable], "livenessProbe": probe});
        let template = json!({"spec": {"containers": [container], "volumes": [volume]}});
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
            "spec": {"strategy": strategy, "template": template},
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn pruned_objects_compare_as_whole_ones(
        declared in deployment(), other in deployment(), old in deployment(), new in deployment()
    ) {
        let (schema, others) = (deployments(), deployments());
        let (fields, alternative) = (declare(&declared, schema.as_deref()), declare(&other, others.as_deref()));
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
            let fields = declare(&declared, schema.as_deref());
            let (old_pruned, new_pruned) = (prune(&[&fields], &old), prune(&[&fields], &new));
            prop_assert_eq!(fields.changed(&old, &new), fields.changed(&old_pruned, &new_pruned));
            prop_assert_eq!(fields.drift(&new), fields.drift(&new_pruned));
            for new in [edited(&old, new.clone(), 0), edited(&old, new.clone(), 1), new.clone()] {
                let (before, after) = pair(&[&fields], &old, &new);
                prop_assert_eq!(fields.changed(&old, &new), fields.changed(&before, &after));
            }
        }
    }

    #[test]
    fn pruned_fields_that_exclude_one_another_compare_as_whole_ones(
        declared in excluding(), other in excluding(), old in excluding(), new in excluding()
    ) {
        let schema = deployments();
        let (fields, alternative) = (declare(&declared, schema.as_deref()), declare(&other, schema.as_deref()));
        let both = [&fields, &alternative];
        let (old_pruned, new_pruned) = (prune(&both, &old), prune(&both, &new));
        let (before, after) = pair(&both, &old, &new);
        for fields in both {
            let changes = fields.changed(&old, &new);
            prop_assert_eq!(&changes, &fields.changed(&old_pruned, &new_pruned));
            prop_assert_eq!(&changes, &fields.changed(&before, &after));
            prop_assert_eq!(fields.drift(&new), fields.drift(&new_pruned));
        }
    }

    #[test]
    fn small_edits_compare_as_whole(
        declared in deployment(), other in deployment(), old in deployment(),
        edits in proptest::collection::vec((0_usize..60, any_value()), 0..4), swap in any::<bool>(),
    ) {
        let schema = deployments();
        // An edit of what is declared, or of something else.
        let old = if swap { declared.clone() } else { old };
        let new = edits.iter().fold(old.clone(), |new, (place, by)| touched(&new, &mut place.clone(), by));
        let (fields, alternative) = (declare(&declared, schema.as_deref()), declare(&other, schema.as_deref()));
        let both = [&fields, &alternative];
        let (before, after) = pair(&both, &old, &new);
        for fields in both {
            prop_assert_eq!(fields.changed(&old, &new), fields.changed(&before, &after));
        }
    }

    #[test]
    fn any_spelling_compares_as_whole(
        declared in deployment(), old in deployment(), other in any_value(), place in 0_usize..60,
        spellings in proptest::array::uniform2(proptest::collection::vec(any::<u8>(), 64)),
    ) {
        let fields = declare(&declared, deployments().as_deref());
        let new = touched(&old, &mut place.clone(), &other);
        let [choices, others] = &spellings;
        for (choices, others) in [(choices, choices), (choices, others)] {
            let before = spelled(&old, &mut choices.iter().copied().cycle());
            let after = spelled(&new, &mut others.iter().copied().cycle());
            let (pruned, edited) = pair_of_texts(&[&fields], &before, &after);
            prop_assert_eq!(fields.changed(&old, &new), fields.changed(&pruned, &edited), "{} {}", before, after);
        }
    }
}
