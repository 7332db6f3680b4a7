//! A release of ten objects as charts have them, of kinds that no controller of
//! the control plane writes to: what is in sync stays in sync.

use serde_json::{Map, Value, json};

/// How many objects a release declares.
pub(crate) const OBJECTS: usize = 10;

/// The chart's view of a release.
struct RenderedChart<'a> {
    release: &'a str,
    labels: Value,
    selector: Value,
}

/// The objects that the chart of a release renders.
pub(crate) fn declared(release: &str) -> [Value; OBJECTS] {
    let labels = json!({
        "app.kubernetes.io/name": "shop",
        "app.kubernetes.io/instance": release,
        "app.kubernetes.io/version": "1.2.3",
        "helm.sh/chart": "shop-1.2.3",
    });
    let chart = RenderedChart { release, labels, selector: json!({"app.kubernetes.io/instance": release}) };
    let keys = json!({"stringData": {"password": format!("secret of {release}")}});
    [
        chart.network_policy(),
        chart.object("v1", "Secret", "keys", keys),
        chart.config_map("settings"),
        chart.config_map("more-settings"),
        chart.role(),
        chart.role_binding(),
        chart.service(),
        chart.daemon_set("web"),
        chart.daemon_set("worker"),
        chart.ingress(),
    ]
}

impl RenderedChart<'_> {
    fn object(&self, api_version: &str, kind: &str, suffix: &str, body: Value) -> Value {
        let mut object = json!({
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"name": format!("{}-{suffix}", self.release), "labels": self.labels},
        });
        object.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        object
    }

    fn network_policy(&self) -> Value {
        let body = json!({"spec": {
            "podSelector": {"matchLabels": self.selector},
            "policyTypes": ["Ingress"],
            "ingress": [{"ports": [{"port": 8080, "protocol": "TCP"}]}],
        }});
        self.object("networking.k8s.io/v1", "NetworkPolicy", "web", body)
    }

    fn config_map(&self, suffix: &str) -> Value {
        let pairs: Map<_, _> =
            (0..10).map(|n| (format!("key-{n}"), json!(format!("value {n} of {}", self.release)))).collect();
        self.object("v1", "ConfigMap", suffix, json!({"data": pairs}))
    }

    fn role(&self) -> Value {
        let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]});
        self.object("rbac.authorization.k8s.io/v1", "Role", "reader", json!({"rules": [rule]}))
    }

    fn role_binding(&self) -> Value {
        let (group, role) = ("rbac.authorization.k8s.io", format!("{}-reader", self.release));
        let body = json!({
            "roleRef": {"apiGroup": group, "kind": "Role", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": format!("{}-runner", self.release), "namespace": "default"}],
        });
        self.object("rbac.authorization.k8s.io/v1", "RoleBinding", "reader", body)
    }

    fn service(&self) -> Value {
        let body = json!({"spec": {
            // The control plane has 254 addresses.
            "clusterIP": "None",
            "selector": self.selector,
            "ports": [{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}],
        }});
        self.object("v1", "Service", "web", body)
    }

    fn daemon_set(&self, suffix: &str) -> Value {
        let value = |n: usize| format!("{}-{suffix}-{n}", self.release);
        let env = |n: usize| json!({"name": format!("SETTING_{n}"), "value": value(n)});
        let body = json!({"spec": {
            "selector": {"matchLabels": self.selector},
            "template": {
                "metadata": {"labels": self.labels},
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
        }});
        self.object("apps/v1", "DaemonSet", suffix, body)
    }

    fn ingress(&self) -> Value {
        let body = json!({"spec": {"rules": [{
            "host": format!("{}.example.org", self.release),
            "http": {"paths": [{
                "path": "/", "pathType": "Prefix",
                "backend": {"service": {"name": format!("{}-web", self.release), "port": {"name": "http"}}},
            }]},
        }]}});
        self.object("networking.k8s.io/v1", "Ingress", "web", body)
    }
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
