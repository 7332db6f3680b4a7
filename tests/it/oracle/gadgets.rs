//! A custom kind with every form that a schema can give a value.

use serde_json::{Value, json};

use super::draw::Draw;
use super::kinds::ChartKind;
use super::values::{Field, count, field, flag, labels, small, target_port, text, texts, words};
use crate::support::{Caller, ControlPlane, Identity, SOON, eventually};

const GROUP: &str = "oracle.example";

/// The kind's API.
pub(super) const API: &str = "oracle.example/v1";

/// The fields of a Gadget.
pub(super) const GADGET: &[Field] = &[
    field("/spec/replicas", small),
    field("/spec/enabled", flag),
    field("/spec/port", target_port),
    field("/spec/ratio", |draw| draw.pick(&[json!(0.5), json!(1), json!(1.0), json!(1e2)]).clone()),
    field("/spec/note", |draw| draw.pick(&[json!("a"), json!(""), Value::Null]).clone()),
    field("/spec/colours", texts),
    field("/spec/marks", labels),
    field("/spec/parts", parts),
    field("/spec/ports", ports),
    field("/spec/tags", |draw| json!(draw.some(&["round", "light", "1", ""]))),
    field("/spec/steps", words),
    field("/spec/endpoints", endpoints),
    field("/spec/size", |draw| draw.pick(&[json!({}), json!({"unit": "cm"}), json!({"value": 3})]).clone()),
    field("/spec/free", |draw| {
        draw.pick(&[
            json!({"depth": {"of": [1, "two", null]}, "ratio": 0.5}),
            json!({"list": [{"a": 1}, {"b": {}}]}),
            json!({"empty": {}, "none": null}),
        ])
        .clone()
    }),
];

/// Whether a patch reaches into what the API server takes for one value although it is a map: Kubernetes 1.20, of a field
/// that keeps what no schema knows, all maps but the outermost one.
pub(super) fn is_one_value(minor: u32, kind: &ChartKind, patch: &Value) -> bool {
    let is_within = |step: &Value| {
        let path = step["path"].as_str().and_then(|path| path.strip_prefix("/spec/free/"));
        path.is_some_and(|path| path.contains('/') || step["value"].is_object())
    };
    minor <= 20 && kind.name == "Gadget" && patch.as_array().is_some_and(|steps| steps.iter().any(is_within))
}

/// Defines the kind and lets a guard read it. A guard that `repairs` may write it as well; others get no more than
/// they need to see it, so that no dry run answers a doubt.
pub(super) async fn define_gadgets(control_plane: &ControlPlane, repairs: bool) {
    let admin = Caller::new(control_plane, Identity::Admin).await;
    let verbs = ["get", "list", "watch", "create", "patch"];
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "kubemoor-gadgets", "labels": {"kubemoor.dev/aggregate-to-guard": "true"}},
        "rules": [{"apiGroups": [GROUP], "resources": ["gadgets"], "verbs": &verbs[..if repairs { 5 } else { 3 }]}],
    });
    admin.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await.done().unwrap();
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    admin.post(definitions, &definition(control_plane.minor())).await.done().unwrap();
    let guard = Caller::new(control_plane, Identity::Guard).await;
    let path = format!("/apis/{API}/gadgets");
    eventually("the guard can read the new kind", SOON, || async { guard.get(&path).await.done() }).await;
}

fn definition(minor: u32) -> Value {
    let (text, number) = (json!({"type": "string"}), json!({"type": "integer"}));
    // Kubernetes 1.20 cannot read a schema that has it for server-side apply, and takes every list as one value then.
    let port = if minor > 20 { json!({"x-kubernetes-int-or-string": true}) } else { text.clone() };
    let texts = json!({"type": "object", "additionalProperties": text});
    let mut marks = texts.clone();
    marks["x-kubernetes-map-type"] = json!("atomic");
    let keyed = |keys: &[&str], required: &[&str], properties: Value| {
        json!({
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys,
            "items": {"type": "object", "required": required, "properties": properties},
        })
    };
    let mode = json!({"type": "string", "default": "auto"});
    let protocol = json!({"type": "string", "default": "TCP"});
    let spec = json!({
        "replicas": {"type": "integer", "default": 1},
        "enabled": {"type": "boolean"},
        "port": port,
        "ratio": {"type": "number"},
        "note": {"type": "string", "nullable": true},
        "colours": texts,
        "marks": marks,
        "parts": keyed(&["name"], &["name"], json!({"name": text, "count": number, "mode": mode})),
        "ports": keyed(&["port", "protocol"], &["port"], json!({"port": number, "protocol": protocol, "name": text})),
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": text},
        "steps": {"type": "array", "items": text},
        "endpoints": {"type": "array", "items": {"type": "object", "properties": {
            "port": text, "interval": {"type": "string", "default": "30s"}, "labels": texts,
        }}},
        "size": {"type": "object", "default": {"unit": "cm"}, "properties": {"unit": text, "value": number}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    });
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("gadgets.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

fn parts(draw: &mut Draw) -> Value {
    let names = draw.some(&["spoke", "nut", "rim"]);
    json!(
        names
            .iter()
            .map(|name| {
                let mut part = json!({"name": name});
                if draw.chance(50) {
                    part["count"] = small(draw);
                }
                if draw.chance(30) {
                    part["mode"] = json!(draw.pick(&["auto", "manual"]));
                }
                part
            })
            .collect::<Vec<_>>()
    )
}

fn ports(draw: &mut Draw) -> Value {
    let ports = draw.some(&[80, 81]);
    json!(
        ports
            .iter()
            .map(|number| {
                let mut port = json!({"port": number, "protocol": draw.pick(&["TCP", "UDP"])});
                if draw.chance(40) {
                    port["name"] = text(draw);
                }
                port
            })
            .collect::<Vec<_>>()
    )
}

fn endpoints(draw: &mut Draw) -> Value {
    let all = [
        json!({"port": "http"}),
        json!({"port": "admin", "interval": draw.pick(&["30s", "10s"])}),
        json!({"labels": {"a": format!("{}", count(draw))}, "port": "http"}),
    ];
    json!(draw.some(&all))
}
