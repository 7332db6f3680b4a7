//! Random edits of a live object. Entry point: [`EditSteps::draw`].
//!
//! Left alone is what the API server sets itself, what the guard judges by other rules (its own and Helm's metadata,
//! sealed fields), and what only one object of a cluster may have.

use json_patch::diff;
use serde_json::{Value, json};

use super::draw::Draw;
use super::kinds::ChartKind;
use super::values::{emptied, put, share, target_port, text, words};

/// Ways in which one step changes an object.
const STYLES: &[(&str, Style)] = &[
    ("change", change),
    ("change", change),
    ("drop", drop_field),
    ("make", make),
    ("make", make),
    ("insert", insert),
    ("double", double),
    ("remove", remove),
    ("reorder", reorder),
    ("respell", respell),
    ("null", null),
    ("type", retype),
    ("move", move_key),
    ("empty", empty),
    ("exchange", exchange),
];

type Style = fn(&mut Draw, &ChartKind, &mut Value) -> Option<()>;

/// Values of which one can often take the other's place.
const CHOICES: &[&[&str]] = &[
    &["TCP", "UDP"],
    &["Always", "IfNotPresent", "Never"],
    &["ClusterIP", "NodePort", "LoadBalancer"],
    &["None", "ClientIP"],
    &["Prefix", "Exact", "ImplementationSpecific"],
    &["HTTP", "HTTPS"],
    &["NoSchedule", "NoExecute"],
    &["RollingUpdate", "OnDelete", "Recreate"],
    &["Allow", "Forbid", "Replace"],
    &["get", "list", "watch", "*"],
    &["In", "NotIn"],
    &["DoNotSchedule", "ScheduleAnyway"],
    &["Equal", "Exists"],
    &["Ingress", "Egress"],
];

/// Spellings of one quantity.
pub(super) const QUANTITIES: &[&[&str]] = &[
    &["1", "1000m", "1.0", "1e0"],
    &["500m", "0.5", "0.50"],
    &["100m", "0.1"],
    &["1Gi", "1024Mi", "1073741824"],
    &["64Mi", "65536Ki"],
    &["1G", "1e9", "1000M"],
    &["4Gi", "4096Mi"],
];

/// Fields of which the API server takes only one: the name of a field, that of one that takes its place, and a value of
/// the latter.
const EXCHANGES: &[(&str, &str, Exchange)] = &[
    ("configMap", "emptyDir", |_, _| json!({})),
    ("downwardAPI", "emptyDir", |_, _| json!({})),
    ("emptyDir", "configMap", |_, _| json!({"name": "settings"})),
    ("emptyDir", "hostPath", |_, _| json!({"path": "/cache"})),
    ("exec", "httpGet", |draw, _| json!({"port": target_port(draw)})),
    ("exec", "tcpSocket", |draw, _| json!({"port": target_port(draw)})),
    ("fieldRef", "secretKeyRef", |_, _| json!({"name": "access", "key": "a"})),
    ("hostPath", "emptyDir", |_, _| json!({})),
    ("httpGet", "exec", |draw, _| json!({"command": words(draw)})),
    ("minAvailable", "maxUnavailable", |draw, _| share(draw)),
    ("projected", "secret", |_, _| json!({"secretName": "access"})),
    ("resourceFieldRef", "fieldRef", |_, _| json!({"fieldPath": "metadata.name"})),
    // More than any limit and any request of a chart.
    (
        "resources",
        "resources",
        |_, _| json!({"limits": {"cpu": "8", "memory": "8Gi"}, "requests": {"cpu": "4", "memory": "4Gi"}}),
    ),
    ("secret", "configMap", |_, _| json!({"name": "settings"})),
    ("secretKeyRef", "configMapKeyRef", |_, _| json!({"name": "settings", "key": "a"})),
    ("service", "resource", |_, _| json!({"apiGroup": "a.example", "kind": "Bucket", "name": "b"})),
    ("strategy", "strategy", |_, now| of_other_type(now, "Recreate")),
    ("tcpSocket", "exec", |draw, _| json!({"command": words(draw)})),
    ("updateStrategy", "updateStrategy", |_, now| of_other_type(now, "OnDelete")),
    ("value", "valueFrom", |_, _| json!({"fieldRef": {"fieldPath": "metadata.name"}})),
    ("valueFrom", "value", |draw, _| text(draw)),
];

/// The value of a field, from that of the field whose place it takes.
type Exchange = fn(&mut Draw, &Value) -> Value;

/// What the server fills in, what is sealed, and what is one in a cluster.
const SPARED: &[&str] = &[
    "/apiVersion",
    "/kind",
    "/status",
    "/immutable",
    "/globalDefault",
    "/spec/clusterIP",
    "/spec/clusterIPs",
    "/spec/healthCheckNodePort",
    "/spec/paused",
    "/spec/suspend",
    "/spec/template/metadata/labels/controller-uid",
];

/// One or several steps at once.
#[derive(Clone, Debug)]
pub(super) struct EditSteps {
    /// Each step's way and JSON patch, of the object that the steps before have left.
    pub(super) steps: Vec<(&'static str, Value)>,
}

impl EditSteps {
    /// An edit of this object, if the first try finds one.
    pub(super) fn draw(draw: &mut Draw, kind: &ChartKind, live: &Value) -> Option<Self> {
        let steps = if draw.chance(12) { 2 + draw.below(2) } else { 1 };
        let mut object = live.clone();
        let mut made = Vec::new();
        for _ in 0..steps {
            let (name, style) = draw.pick(STYLES);
            let before = object.clone();
            if style(draw, kind, &mut object).is_some() {
                let patch = serde_json::to_value(diff(&before, &object)).unwrap();
                made.push((*name, patch));
            }
        }
        (!made.is_empty()).then_some(Self { steps: made })
    }

    /// A manifest with another value of one of its fields, and that field.
    pub(super) fn changed(draw: &mut Draw, manifest: &Value) -> Option<(Value, String)> {
        let at =
            place(draw, manifest, |at, value| is_scalar(at, value) && !at.starts_with("/metadata/name"))?;
        let mut changed = manifest.clone();
        let value = changed.pointer_mut(&at)?;
        *value = other(draw, value);
        Some((changed, at))
    }

    /// Another value of this field, if the object has it.
    pub(super) fn of(draw: &mut Draw, live: &Value, at: &str) -> Option<Self> {
        let mut object = live.clone();
        let value = object.pointer_mut(at)?;
        *value = other(draw, value);
        Some(Self { steps: vec![("change", serde_json::to_value(diff(live, &object)).unwrap())] })
    }

    /// The same without the ports of nodes, of which a cluster gives each to one Service: those that the edited object has
    /// are free for no other one.
    pub(super) fn without_node_ports(mut self) -> Self {
        fn strip(value: &mut Value) {
            match value {
                Value::Object(map) => {
                    map.remove("nodePort");
                    map.values_mut().for_each(strip);
                }
                Value::Array(items) => items.iter_mut().for_each(strip),
                _ => {}
            }
        }
        for (_, patch) in &mut self.steps {
            let operations = patch.as_array_mut().unwrap();
            operations.retain(|operation| !operation["path"].as_str().unwrap().ends_with("/nodePort"));
            operations.iter_mut().for_each(strip);
        }
        self
    }

    /// The whole as one JSON patch.
    pub(super) fn patch(&self) -> Value {
        let operations = self.steps.iter().flat_map(|(_, patch)| patch.as_array().unwrap().clone());
        Value::Array(operations.collect())
    }

    /// The ways of its steps.
    pub(super) fn way(&self) -> String {
        self.steps.iter().map(|(name, _)| *name).collect::<Vec<_>>().join("+")
    }

    /// The first fields or elements that it touches.
    pub(super) fn pointers(&self) -> Vec<String> {
        let patch = self.patch();
        patch.as_array().unwrap().iter().map(|step| step["path"].as_str().unwrap().to_owned()).collect()
    }
}

/// All places below an object that an edit may touch and that `wanted` takes.
fn places(object: &Value, wanted: fn(&str, &Value) -> bool) -> Vec<String> {
    fn walk(value: &Value, at: &str, found: &mut Vec<String>, wanted: fn(&str, &Value) -> bool) {
        if is_spared(at) {
            return;
        }
        if !["", "/metadata", "/metadata/labels", "/metadata/annotations"].contains(&at) && wanted(at, value)
        {
            found.push(at.to_owned());
        }
        match value {
            Value::Object(map) => map.iter().for_each(|(name, value)| {
                walk(value, &format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")), found, wanted);
            }),
            Value::Array(items) => items
                .iter()
                .enumerate()
                .for_each(|(index, item)| walk(item, &format!("{at}/{index}"), found, wanted)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(object, "", &mut found, wanted);
    found
}

fn is_spared(at: &str) -> bool {
    let is_metadata = at.strip_prefix("/metadata/").is_some_and(|rest| {
        !rest.starts_with("labels") && !rest.starts_with("annotations")
            || rest.starts_with("annotations/meta.helm.sh")
            || rest.starts_with("labels/app.kubernetes.io~1managed-by")
            || rest.starts_with("annotations/deprecated.daemonset")
            || rest.starts_with("annotations/autoscaling.alpha")
    });
    is_metadata || SPARED.contains(&at) || at.ends_with("/nodePort")
}

/// One of the places that `wanted` takes.
fn place(draw: &mut Draw, object: &Value, wanted: fn(&str, &Value) -> bool) -> Option<String> {
    draw.pick_if_any(&places(object, wanted)).cloned()
}

fn is_scalar(_: &str, value: &Value) -> bool {
    !value.is_object() && !value.is_array()
}

fn is_list(_: &str, value: &Value) -> bool {
    value.as_array().is_some_and(|items| !items.is_empty())
}

fn parent(at: &str) -> (String, String) {
    let (parent, name) = at.rsplit_once('/').unwrap();
    (parent.to_owned(), name.replace("~1", "/").replace("~0", "~"))
}

fn change(draw: &mut Draw, _: &ChartKind, object: &mut Value) -> Option<()> {
    let at = place(draw, object, is_scalar)?;
    let value = object.pointer_mut(&at)?;
    *value = other(draw, value);
    Some(())
}

/// Another value of the same type.
fn other(draw: &mut Draw, value: &Value) -> Value {
    match value {
        Value::Null => json!("x"),
        Value::Bool(on) => json!(!on),
        Value::Number(number) => match number.as_i64() {
            Some(number) => json!(*draw.pick(&[number + 1, number - 1, 0, number * 2])),
            None => json!(7.25),
        },
        Value::String(text) => {
            let choices = CHOICES.iter().find(|choices| choices.contains(&text.as_str()));
            let quantity = QUANTITIES.iter().any(|same| same.contains(&text.as_str()));
            match choices {
                Some(choices) => json!(draw.pick(choices)),
                None if quantity => json!(draw.pick(draw_of_quantities(text))),
                None if text.ends_with('%') => json!("30%"),
                None if text.ends_with('=') => json!("Y2hhbmdlZA=="),
                None if text.starts_with('/') => json!(format!("{text}x")),
                None => {
                    draw.pick(&[json!(format!("{text}x")), json!("mine"), json!("8081"), json!("")]).clone()
                }
            }
        }
        Value::Array(_) | Value::Object(_) => emptied(value),
    }
}

/// Quantities near this one: of another value.
fn draw_of_quantities(text: &str) -> &'static [&'static str] {
    if text.ends_with(['i', 'G', 'M']) || text.len() > 4 {
        &["2Gi", "96Mi", "2000M"]
    } else {
        &["3", "250m", "1m"]
    }
}

fn drop_field(draw: &mut Draw, _: &ChartKind, object: &mut Value) -> Option<()> {
    let at = place(draw, object, |at, _| {
        at.rsplit('/').next().is_some_and(|name| name.parse::<usize>().is_err())
    })?;
    let (parent, name) = parent(&at);
    object.pointer_mut(&parent)?.as_object_mut()?.remove(&name)?;
    Some(())
}

/// Sets a field of the kind's table, there or not.
fn make(draw: &mut Draw, kind: &ChartKind, object: &mut Value) -> Option<()> {
    let tables = kind.tables();
    let (root, fields) = draw.pick(&tables);
    let mut at = String::new();
    for token in root.split('/').skip(1) {
        if token == "*" {
            let items = object.pointer(&at)?.as_array()?.len();
            at = format!("{at}/{}", draw.below(items.max(1)));
        } else {
            at = format!("{at}/{token}");
        }
    }
    let field = draw.pick_if_any(fields)?;
    let value = (field.make)(draw);
    at.push_str(field.at);
    if is_spared(&at) {
        return None;
    }
    if at.starts_with("/metadata/") {
        // Helm's own stay.
        let mut map = object.pointer(&at).cloned().unwrap_or(json!({}));
        map.as_object_mut()?.extend(value.as_object()?.clone());
        put(object, &at, map);
    } else {
        put(object, &at, value);
    }
    Some(())
}

/// A copy of an element, changed in one place.
fn insert(draw: &mut Draw, _: &ChartKind, object: &mut Value) -> Option<()> {
    let at = place(draw, object, is_list)?;
    let items = object.pointer_mut(&at)?.as_array_mut()?;
    let mut item = draw.pick(items).clone();
    let inner = places(&json!({"item": item}), is_scalar);
    let name = ["/name", "/mountPath", "/containerPort", "/port", "/topologyKey"]
        .iter()
        .find(|name| item.pointer(name).is_some());
    match (name, draw.pick_if_any(&inner)) {
        (Some(name), _) if draw.chance(70) => {
            let value = other(draw, item.pointer(name)?);
            put(&mut item, name, value);
        }
        (_, Some(inner)) => {
            let inner = inner.strip_prefix("/item")?;
            let value = other(draw, item.pointer(inner)?);
            put(&mut item, inner, value);
        }
        _ => {}
    }
    let place = draw.below(items.len() + 1);
    items.insert(place, item);
    Some(())
}

fn double(draw: &mut Draw, _: &ChartKind, object: &mut Value) -> Option<()> {
    let at = place(draw, object, is_list)?;
    let items = object.pointer_mut(&at)?.as_array_mut()?;
    let item = draw.pick(items).clone();
    let place = draw.below(items.len() + 1);
    items.insert(place, item);
    Some(())
}

fn remove(draw: &mut Draw, _: &ChartKind, object: &mut Value) -> Option<()> {
    let at = place(draw, object, is_list)?;
    let items = object.pointer_mut(&at)?.as_array_mut()?;
    items.remove(draw.below(items.len()));
    Some(())
}

fn reorder(draw: &mut Draw, _: &ChartKind, object: &mut Value) -> Option<()> {
    let at = place(draw, object, |_, value| value.as_array().is_some_and(|items| items.len() > 1))?;
    let items = object.pointer_mut(&at)?.as_array_mut()?;
    let (one, other) = (draw.below(items.len()), draw.below(items.len()));
    if one == other {
        items.reverse()
    } else {
        items.swap(one, other)
    }
    Some(())
}

/// The same value, spelled otherwise: some of these the API server refuses or takes for another value.
fn respell(draw: &mut Draw, _: &ChartKind, object: &mut Value) -> Option<()> {
    let at = place(draw, object, is_scalar)?;
    let value = object.pointer_mut(&at)?;
    *value = match value {
        Value::Number(number) => match number.as_i64() {
            Some(whole) => draw.pick(&[json!(whole.to_string()), json!(whole)]).clone(),
            None => json!(number.to_string()),
        },
        Value::Bool(on) => json!(on.to_string()),
        Value::String(text) => match QUANTITIES.iter().find(|same| same.contains(&text.as_str())) {
            Some(same) => json!(draw.pick(same)),
            None if text.ends_with('=') => json!(format!("{text}\n")),
            None => text.parse::<i64>().map_or_else(|_| json!(text.trim()), |number| json!(number)),
        },
        _ => return None,
    };
    Some(())
}

fn null(draw: &mut Draw, _: &ChartKind, object: &mut Value) -> Option<()> {
    let at = place(draw, object, |_, value| !value.is_null())?;
    *object.pointer_mut(&at)? = Value::Null;
    Some(())
}

fn retype(draw: &mut Draw, _: &ChartKind, object: &mut Value) -> Option<()> {
    let at = place(draw, object, |_, _| true)?;
    let value = object.pointer_mut(&at)?;
    let others =
        [json!(1), json!("1"), json!([]), json!({}), json!([value.clone()]), json!({"a": "b"}), json!(true)];
    *value = draw.pick(&others).clone();
    Some(())
}

/// An entry of a map or an element of a list gets another name.
fn move_key(draw: &mut Draw, _: &ChartKind, object: &mut Value) -> Option<()> {
    const KEYS: [&str; 7] = ["name", "containerPort", "port", "mountPath", "topologyKey", "ip", "protocol"];
    let in_list = draw.chance(60);
    if in_list {
        let at = place(draw, object, |at, _| at.rsplit('/').next().is_some_and(|name| KEYS.contains(&name)))?;
        let value = object.pointer_mut(&at)?;
        *value = other(draw, value);
    } else {
        let at = place(draw, object, is_scalar)?;
        let (parent, name) = parent(&at);
        let map = object.pointer_mut(&parent)?.as_object_mut()?;
        let value = map.remove(&name)?;
        map.insert(format!("{name}x"), value);
    }
    Some(())
}

fn empty(draw: &mut Draw, _: &ChartKind, object: &mut Value) -> Option<()> {
    let at = place(draw, object, |_, _| true)?;
    let value = object.pointer_mut(&at)?;
    *value = emptied(value);
    Some(())
}

/// Another field in the place of one that excludes it.
fn exchange(draw: &mut Draw, kind: &ChartKind, object: &mut Value) -> Option<()> {
    if kind.name == "ConfigMap" {
        // A key is in one of its two maps.
        let at = place(draw, object, |at, _| at.starts_with("/data/"))?;
        let (parent, name) = parent(&at);
        object.pointer_mut(&parent)?.as_object_mut()?.remove(&name)?;
        let mut bytes = object.get("binaryData").cloned().unwrap_or(json!({}));
        bytes[name] = json!("YQ==");
        object["binaryData"] = bytes;
        return Some(());
    }
    if kind.name == "Service" {
        // A port of its own gets the name of another one.
        let ports = object.pointer_mut("/spec/ports")?.as_array_mut()?;
        let at = if ports.is_empty() { return None } else { draw.below(ports.len()) };
        let mut own = ports[at].clone();
        let is_tcp = own.get("protocol")? == "TCP";
        own["protocol"] = json!(if is_tcp { "UDP" } else { "TCP" });
        ports[at]["name"] = json!("mine");
        ports.push(own);
        return Some(());
    }
    let is_one = |at: &str, _: &Value| {
        at.rsplit('/').next().is_some_and(|last| EXCHANGES.iter().any(|(name, ..)| *name == last))
    };
    let at = place(draw, object, is_one)?;
    let (parent, name) = parent(&at);
    let others: Vec<_> = EXCHANGES.iter().filter(|(from, ..)| *from == name).collect();
    let (_, other, make) = draw.pick_if_any(&others)?;
    let map = object.pointer_mut(&parent)?.as_object_mut()?;
    let now = map.remove(&name)?;
    map.insert((*other).to_owned(), make(draw, &now));
    Some(())
}

/// A strategy of this type, or a rolling one if it has that type.
fn of_other_type(now: &Value, other: &str) -> Value {
    json!({"type": if now["type"] == other { "RollingUpdate" } else { other }})
}
