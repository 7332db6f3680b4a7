//! Random objects for property tests, and changes to them.
//!
//! Entry points: `any_value`, `deployment`, `spelled`, `touched`. Must not be used outside of tests.

mod changes;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

pub(crate) use self::changes::{has_doubled_keys, reordered, spelled, touched};

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
