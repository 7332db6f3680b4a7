//! A custom kind of a test's own group, which the guard has the rights to guard.

use serde_json::{Value, json};

use super::caller::Caller;
use super::control_plane::ControlPlane;
use super::guard::Guard;
use super::identity::Identity;
use super::wait::{SOON, eventually};

/// Defines the kind `Widget` in `group` for the shared guard and returns its definition. It has lists of every type,
/// and the subresources `status` and `scale`.
pub(crate) async fn define_widgets(control_plane: &ControlPlane, group: &str) -> Value {
    // The roles that this one adds to come with the guard.
    let _guard = Guard::shared().await;
    add_widgets(control_plane, group).await
}

/// The same for a guard of a test's own.
pub(crate) async fn add_widgets(control_plane: &ControlPlane, group: &str) -> Value {
    let admin = Caller::new(control_plane, Identity::Admin).await;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": format!("kubemoor-widgets-of-{group}"),
            "labels": {
                "kubemoor.dev/aggregate-to-guard": "true",
                "kubemoor.dev/aggregate-to-arbiter": "true",
            },
        },
        "rules": [{
            "apiGroups": [group],
            "resources": ["widgets"],
            "verbs": ["get", "list", "watch", "create", "patch", "delete"],
        }],
    });
    admin.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await.done().unwrap();
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = definition(group);
    admin.post(definitions, &definition).await.done().unwrap();
    let path = format!("/apis/{group}/v1/widgets");
    eventually("the new kind is served", SOON, || async { admin.get(&path).await.done() }).await;
    definition
}

fn definition(group: &str) -> Value {
    let text = json!({"type": "string"});
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "replicas": {"type": "integer"},
                    "enabled": {"type": "boolean"},
                    "paused": {"type": "boolean"},
                    "port": {"x-kubernetes-int-or-string": true},
                    "colours": {"type": "object", "additionalProperties": text},
                    "parts": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": {
                            "type": "object",
                            "required": ["name"],
                            "properties": {"name": text, "count": {"type": "integer"}},
                        },
                    },
                    "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": text},
                    "steps": {"type": "array", "items": text},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                },
            },
            "status": {
                "type": "object",
                "properties": {"replicas": {"type": "integer"}, "phase": text},
            },
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                },
            }],
        },
    })
}
