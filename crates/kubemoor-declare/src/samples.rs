//! Random objects for property tests, changes to them, and their spellings as text.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// A value nested `levels` deep, built and dropped without recursion.
pub(crate) struct Deep(pub(crate) Value);

/// Any JSON, a few levels deep.
pub(crate) fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..3).prop_map(Value::from),
        prop_oneof![Just(0.5), Just(1000.0), Just(f64::MAX)].prop_map(Value::from),
        prop_oneof![Just(""), Just("a"), Just("1"), Just("1000m"), Just("true"), Just("YQ==")]
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        let names = prop_oneof![
            Just("name"),
            Just("spec"),
            Just("a"),
            Just("protocol"),
            Just("containers"),
            Just("template"),
            Just("ports"),
            Just("env"),
            Just("port"),
            Just("data"),
            Just("rules"),
            Just("metadata")
        ];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((names, inner), 0..5)
                .prop_map(|pairs| pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
        ]
    })
}

pub(crate) fn texts() -> impl Strategy<Value = Value> {
    proptest::collection::btree_map(text(), text(), 0..4).prop_map(|map| json!(map))
}

/// Deployments that look like real ones, with doubled keys now and then.
pub(crate) fn deployment() -> impl Strategy<Value = Value> {
    let containers = proptest::collection::vec(container(), 0..3).prop_map(Value::from);
    (containers, texts(), texts(), 0..3_u8, proptest::collection::btree_set(text(), 0..3)).prop_map(
        |(containers, labels, selector, replicas, finalizers)| {
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "a", "labels": labels, "finalizers": finalizers},
                "spec": {
                    "replicas": replicas,
                    "selector": {"matchLabels": selector},
                    "template": {"spec": {"containers": containers, "nodeSelector": selector}},
                },
            })
        },
    )
}

impl Deep {
    pub(crate) fn new(levels: usize, innermost: Value) -> Self {
        Self((0..levels).fold(innermost, |value, level| match level % 2 {
            0 => Value::Array(vec![value]),
            _ => {
                let mut map = Map::new();
                map.insert("a".to_owned(), value);
                Value::Object(map)
            }
        }))
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(""), Just("a"), Just("b"), Just("c/d"), Just("[e]"), Just("80")].prop_map(str::to_owned)
}

fn quantity() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!("1")),
        Just(json!("1000m")),
        Just(json!(2)),
        Just(json!("1Gi")),
        Just(json!("1024Mi"))
    ]
}

fn env() -> impl Strategy<Value = Value> {
    let one = (0..4_u8, text()).prop_map(|(n, value)| json!({"name": format!("N{n}"), "value": value}));
    proptest::collection::vec(one, 0..4).prop_map(Value::from)
}

fn ports() -> impl Strategy<Value = Value> {
    let one = (80..83_u16, proptest::option::of(prop_oneof![Just("TCP"), Just("UDP")])).prop_map(
        |(port, protocol)| match protocol {
            Some(protocol) => json!({"containerPort": port, "protocol": protocol}),
            None => json!({"containerPort": port}),
        },
    );
    proptest::collection::vec(one, 0..4).prop_map(Value::from)
}

fn container() -> impl Strategy<Value = Value> {
    (0..3_u8, text(), env(), ports(), quantity(), any::<bool>()).prop_map(
        |(n, image, env, ports, cpu, privileged)| {
            json!({
                "name": format!("c{n}"), "image": image, "env": env, "ports": ports, "args": [image],
                "resources": {"limits": {"cpu": cpu}}, "securityContext": {"privileged": privileged},
            })
        },
    )
}

impl Drop for Deep {
    fn drop(&mut self) {
        let mut rest = vec![self.0.take()];
        while let Some(value) = rest.pop() {
            match value {
                Value::Array(items) => rest.extend(items),
                Value::Object(map) => rest.extend(map.into_iter().map(|(_, value)| value)),
                _ => {}
            }
        }
    }
}

/// The same object, its lists that know no order turned round.
pub(crate) fn reordered(value: &Value, name: &str) -> Value {
    match value {
        Value::Array(items) => {
            let items = items.iter().map(|item| reordered(item, ""));
            match name {
                "containers" | "ports" | "finalizers" => items.rev().collect(),
                _ => items.collect(),
            }
        }
        Value::Object(map) => {
            map.iter().map(|(name, value)| (name.clone(), reordered(value, name))).collect()
        }
        scalar => scalar.clone(),
    }
}

/// Whether some list of the object holds one key twice.
pub(crate) fn has_doubled_keys(value: &Value) -> bool {
    let key = |item: &Value| match item.get("containerPort") {
        Some(port) => format!("{port}/{}", item.get("protocol").and_then(Value::as_str).unwrap_or("TCP")),
        None => item.get("name").map(Value::to_string).unwrap_or_default(),
    };
    match value {
        Value::Array(items) => {
            let keys: std::collections::HashSet<String> = items.iter().map(key).collect();
            let keyed = items.iter().any(Value::is_object);
            (keyed && keys.len() < items.len()) || items.iter().any(has_doubled_keys)
        }
        Value::Object(map) => map.values().any(has_doubled_keys),
        _ => false,
    }
}

/// `value` in JSON's text, as anybody may spell it: `choices` decide on space,
/// on escapes, and on entries and whole values of the same name in front of
/// those that count.
pub(crate) fn spelled(value: &Value, choices: &mut dyn Iterator<Item = u8>) -> String {
    let mut choice = |of: u8| choices.next().map_or(0, |choice| choice % of);
    let space = [" ", "", "", "\n\t"][usize::from(choice(4))];
    match value {
        Value::Object(map) => {
            let mut entries = Vec::new();
            for (name, value) in map {
                let decoy = [None, None, None, Some("\"\\\\\\\"{\""), Some("[{}, \"]\"]"), Some("-1e3")]
                    [usize::from(choices.next().map_or(0, |choice| choice % 6))];
                entries.extend(decoy.map(|decoy| format!("{}{space}:{decoy}", spelled_text(name, 0))));
                let escaped = choices.next().map_or(0, |choice| choice % 4);
                let value = spelled(value, choices);
                entries.push(format!("{}:{space}{value}", spelled_text(name, escaped)));
            }
            format!("{{{space}{}{space}}}", entries.join(","))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| spelled(item, choices)).collect();
            format!("[{}]", items.join(&format!("{space},")))
        }
        Value::String(text) => {
            let escaped = choice(4);
            spelled_text(text, escaped)
        }
        scalar => scalar.to_string(),
    }
}

/// `value` with its scalar number `place` replaced.
pub(crate) fn touched(value: &Value, place: &mut usize, by: &Value) -> Value {
    match value {
        Value::Object(map) => {
            map.iter().map(|(name, value)| (name.clone(), touched(value, place, by))).collect()
        }
        Value::Array(items) => items.iter().map(|item| touched(item, place, by)).collect(),
        scalar => {
            *place = place.wrapping_sub(1);
            if *place == usize::MAX { by.clone() } else { scalar.clone() }
        }
    }
}

/// A string in JSON's text; with `escaped` of one its first character is.
fn spelled_text(text: &str, escaped: u8) -> String {
    let mut rest = text.chars();
    match rest.next() {
        Some(first) if escaped == 1 && first.is_ascii() => {
            let rest = Value::from(rest.as_str()).to_string();
            format!("\"\\u{:04x}{}", u32::from(first), rest.strip_prefix('"').unwrap())
        }
        _ => Value::from(text).to_string(),
    }
}
