//! Values that several kinds share, in the spellings in which charts have them.

use serde_json::{Map, Value, json};

use super::draw::Draw;

/// A place in an object, and how a value for it is made.
pub(super) struct Field {
    /// A JSON Pointer from the table's own root.
    pub(super) at: &'static str,
    pub(super) make: fn(&mut Draw) -> Value,
}

/// A field of a table.
pub(super) const fn field(at: &'static str, make: fn(&mut Draw) -> Value) -> Field {
    Field { at, make }
}

/// An object with about a third of these fields, some of them null or empty.
pub(super) fn object(draw: &mut Draw, fields: &[Field]) -> Value {
    let mut made = json!({});
    for field in fields {
        if !draw.chance(35) {
            continue;
        }
        let mut value = (field.make)(draw);
        match draw.below(25) {
            0 => value = Value::Null,
            1 => value = emptied(&value),
            _ => {}
        }
        put(&mut made, field.at, value);
    }
    made
}

/// The empty or zero value of the same type.
pub(super) fn emptied(value: &Value) -> Value {
    match value {
        Value::Null => Value::Null,
        Value::Bool(_) => json!(false),
        Value::Number(_) => json!(0),
        Value::String(_) => json!(""),
        Value::Array(_) => json!([]),
        Value::Object(_) => json!({}),
    }
}

/// Sets a value, making the maps above it, unless one of them is something else.
pub(super) fn put(object: &mut Value, pointer: &str, value: Value) {
    let mut place = object;
    for token in pointer.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        place = match place {
            Value::Array(items) => match token.parse().ok().and_then(|index: usize| items.get_mut(index)) {
                Some(item) => item,
                None => return,
            },
            Value::Object(map) => map.entry(token).or_insert(json!({})),
            _ => return,
        };
    }
    *place = value;
}

pub(super) fn flag(draw: &mut Draw) -> Value {
    json!(draw.chance(50))
}

pub(super) fn small(draw: &mut Draw) -> Value {
    json!(draw.below(4))
}

pub(super) fn count(draw: &mut Draw) -> Value {
    json!(1 + draw.below(5))
}

pub(super) fn seconds(draw: &mut Draw) -> Value {
    json!(draw.pick(&[0, 1, 5, 10, 30, 600]))
}

pub(super) fn word(draw: &mut Draw) -> Value {
    json!(draw.pick(&["alpha", "beta", "gamma", "delta", "web", "true", "1"]))
}

pub(super) fn text(draw: &mut Draw) -> Value {
    json!(draw.pick(&["", "a", "true", "1", "x y", "one\ntwo\n", "info", "{}", "null"]))
}

pub(super) fn image(draw: &mut Draw) -> Value {
    json!(draw.pick(&["registry.example/shop:1", "registry.example/shop:2", "shop", "shop:latest"]))
}

pub(super) fn port(draw: &mut Draw) -> Value {
    json!(draw.pick(&[80, 8080, 443, 9090, 53]))
}

/// A port by number, by a number in quotes or by name.
pub(super) fn target_port(draw: &mut Draw) -> Value {
    draw.pick(&[json!(80), json!("80"), json!("http"), json!(8080), json!("8080"), json!("dns")]).clone()
}

pub(super) fn share(draw: &mut Draw) -> Value {
    draw.pick(&[json!(1), json!(2), json!("25%"), json!("50%"), json!(0), json!("0%")]).clone()
}

pub(super) fn protocol(draw: &mut Draw) -> Value {
    json!(draw.pick(&["TCP", "TCP", "UDP"]))
}

pub(super) fn cpu(draw: &mut Draw) -> Value {
    json!(draw.pick(&["100m", "0.1", "1", "1000m", "1.0", "2", "0.5", "500m", "1e0", "0", "0.10"]))
}

pub(super) fn memory(draw: &mut Draw) -> Value {
    json!(draw.pick(&["64Mi", "65536Ki", "67108864", "1Gi", "1024Mi", "1G", "1e9", "128M", "0", "1.5Gi"]))
}

/// A map of names to words.
pub(super) fn labels(draw: &mut Draw) -> Value {
    let names = draw.some(&["app", "tier", "example.org/team", "zone"]);
    map(names.into_iter().map(|name| (name, word(draw))))
}

/// A map of names to texts.
pub(super) fn texts(draw: &mut Draw) -> Value {
    let names = draw.some(&["level", "app.properties", "mode", "a", "b"]);
    map(names.into_iter().map(|name| (name, text(draw))))
}

/// A map of which some entries may be null, as charts write keys without a value.
pub(super) fn unset(draw: &mut Draw, make: fn(&mut Draw) -> Value) -> Value {
    let mut made = make(draw);
    if let Value::Object(map) = &mut made {
        map.values_mut().filter(|_| draw.chance(20)).for_each(|value| *value = Value::Null);
    }
    made
}

/// A map of names to bytes.
pub(super) fn bytes(draw: &mut Draw) -> Value {
    let names = draw.some(&["logo", "key", "password"]);
    map(names.into_iter().map(|name| (name, json!(draw.pick(&["aGVsbG8=", "YQ==", "", "c2VjcmV0"])))))
}

pub(super) fn words(draw: &mut Draw) -> Value {
    json!(draw.some(&["serve", "--port=8080", "-v", "", "all", "serve"]))
}

pub(super) fn names(draw: &mut Draw) -> Value {
    let names = draw.some(&["registry", "mirror", "backup"]);
    json!(names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>())
}

/// A selector of pods.
pub(super) fn selector(draw: &mut Draw) -> Value {
    match draw.below(4) {
        0 => json!({}),
        1 => json!({"matchExpressions": [{"key": "app", "operator": "In", "values": words_of_labels(draw)}]}),
        2 => {
            json!({"matchExpressions": [{"key": "tier", "operator": "Exists"}], "matchLabels": labels(draw)})
        }
        _ => json!({"matchLabels": labels(draw)}),
    }
}

pub(super) fn words_of_labels(draw: &mut Draw) -> Value {
    json!(draw.some(&["alpha", "beta", "gamma"]))
}

pub(super) fn resources(draw: &mut Draw) -> Value {
    let mut made = json!({});
    if draw.chance(70) {
        // Below every limit here.
        made["requests"] = json!({"cpu": draw.pick(&["100m", "0.1", "0", "0.10"]), "memory": draw.pick(&["64Mi", "65536Ki"])});
    }
    if draw.chance(60) {
        made["limits"] =
            json!({"cpu": cpu_limit(draw), "memory": draw.pick(&["1Gi", "1024Mi", "1G", "1e9"])});
    }
    made
}

fn cpu_limit(draw: &mut Draw) -> Value {
    json!(draw.pick(&["1", "1000m", "1.0", "2", "0.5", "500m"]))
}

/// Hard limits that count pods alone, so that no other object of the chart meets them.
pub(super) fn quotas(draw: &mut Draw) -> Value {
    let names = draw.some(&["pods", "requests.cpu", "limits.cpu", "requests.memory", "limits.memory"]);
    map(names.into_iter().map(|name| {
        (
            name,
            if name == "pods" {
                json!(draw.pick(&["10", "1k", "0"]))
            } else if name.ends_with("cpu") {
                cpu(draw)
            } else {
                memory(draw)
            },
        )
    }))
}

pub(super) fn map<'n>(entries: impl Iterator<Item = (&'n str, Value)>) -> Value {
    Value::Object(entries.map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>())
}
