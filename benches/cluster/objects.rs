//! A release of ten objects as charts have them, of kinds that no controller of
//! the control plane writes to: what is in sync stays in sync.

use serde_json::{Map, Value, json};

/// How many objects a release declares.
pub(crate) const OBJECTS: usize = 10;

/// The objects that the chart of a release renders.
pub(crate) fn declared(release: &str) -> [Value; OBJECTS] {
    let labels = json!({
        "app.kubernetes.io/name": "shop",
        "app.kubernetes.io/instance": release,
        "app.kubernetes.io/version": "1.2.3",
        "helm.sh/chart": "shop-1.2.3",
    });
    let object = |api_version: &str, kind: &str, suffix: &str, body: Value| {
        let mut object = json!({
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"name": format!("{release}-{suffix}"), "labels": labels},
        });
        object.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        object
    };
    let selector = json!({"app.kubernetes.io/instance": release});
    let workload = |suffix: &str| {
        let env =
            |n: usize| json!({"name": format!("SETTING_{n}"), "value": format!("{release}-{suffix}-{n}")});
        json!({"spec": {
            "selector": {"matchLabels": selector},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{
                    "name": suffix,
                    "image": format!("registry.example/shop/{suffix}:1.2.3"),
                    "env": (0..10).map(env).collect::<Vec<_>>(),
                    "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
                    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
                    "livenessProbe": {"httpGet": {"path": "/live", "port": "http"}},
                    "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}},
                }]},
            },
        }})
    };
    let pairs: Map<_, _> =
        (0..10).map(|n| (format!("key-{n}"), json!(format!("value {n} of {release}")))).collect();
    let settings = json!({"data": pairs});
    let authorization = "rbac.authorization.k8s.io";
    [
        object(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            "web",
            json!({"spec": {
                "podSelector": {"matchLabels": selector},
                "policyTypes": ["Ingress"],
                "ingress": [{"ports": [{"port": 8080, "protocol": "TCP"}]}],
            }}),
        ),
        object("v1", "Secret", "keys", json!({"stringData": {"password": format!("secret of {release}")}})),
        object("v1", "ConfigMap", "settings", settings.clone()),
        object("v1", "ConfigMap", "more-settings", settings),
        object(
            "rbac.authorization.k8s.io/v1",
            "Role",
            "reader",
            json!({"rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}]}),
        ),
        object(
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            "reader",
            json!({
                "roleRef": {"apiGroup": authorization, "kind": "Role", "name": format!("{release}-reader")},
                "subjects": [{"kind": "ServiceAccount", "name": format!("{release}-runner"), "namespace": "default"}],
            }),
        ),
        object(
            "v1",
            "Service",
            "web",
            json!({"spec": {
                // The control plane has 254 addresses.
                "clusterIP": "None",
                "selector": selector,
                "ports": [{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}],
            }}),
        ),
        object("apps/v1", "DaemonSet", "web", workload("web")),
        object("apps/v1", "DaemonSet", "worker", workload("worker")),
        object(
            "networking.k8s.io/v1",
            "Ingress",
            "web",
            json!({"spec": {"rules": [{
                "host": format!("{release}.example.org"),
                "http": {"paths": [{
                    "path": "/", "pathType": "Prefix",
                    "backend": {"service": {"name": format!("{release}-web"), "port": {"name": "http"}}},
                }]},
            }]}}),
        ),
    ]
}

/// The manifest of these objects, as a release's record holds it.
pub(crate) fn manifest(declared: &[Value]) -> String {
    declared.iter().map(|object| format!("---\n# Source: shop/templates/all.yaml\n{object}\n")).collect()
}

/// What Helm sends for a declared object.
pub(crate) fn sent(mut object: Value, namespace: &str, release: &str) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.insert("namespace".to_owned(), json!(namespace));
    metadata.insert(
        "annotations".to_owned(),
        json!({"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": namespace}),
    );
    object["metadata"]["labels"]["app.kubernetes.io/managed-by"] = json!("Helm");
    object
}

/// Where the objects of its kind are in the API.
pub(crate) fn collection(object: &Value, namespace: &str) -> String {
    let (api_version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
    let root = if api_version == "v1" { "api" } else { "apis" };
    let plural = match kind {
        "NetworkPolicy" => "networkpolicies".to_owned(),
        "Ingress" => "ingresses".to_owned(),
        _ => format!("{}s", kind.to_lowercase()),
    };
    format!("/{root}/{api_version}/namespaces/{namespace}/{plural}")
}
