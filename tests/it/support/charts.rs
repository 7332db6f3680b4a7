//! Charts that several files of tests install, and the policies that Kubemoor ships.

use std::fs;
use std::path::Path;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

/// One ConfigMap. Its value: `level`.
pub(crate) const SETTINGS: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {level: {{ .Values.level | default "info" }}}
"#;

/// Two ConfigMaps.
pub(crate) const TWO: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {level: info}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: extra}
data: {color: blue}
";

/// Two ConfigMaps. The value `image` of the first is `a` unless said otherwise.
pub(crate) const IMAGE_AND_COLOR: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {image: '{{ .Values.image | default \"a\" }}'}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: extra}
data: {color: blue}
";

/// A Deployment of two replicas with one container. Its value: `tag`.
pub(crate) const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: app, image: "registry.example/shop:{{ .Values.tag | default "1" }}"}]}
"#;

/// A Deployment, a Secret and a ConfigMap. Its values: `replicas`, `tag`, `level`, `port` and `password`.
pub(crate) const WORKLOAD: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {tier: front}}
spec:
  replicas: {{ .Values.replicas | default 2 }}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: app
        image: registry.example/shop:{{ .Values.tag | default "one" }}
        env: [{name: LEVEL, value: {{ .Values.level | default "info" }}}]
        ports: [{containerPort: 8080, protocol: TCP, name: {{ .Values.port | default "http" }}}]
        resources: {limits: {cpu: 1000m}}
---
apiVersion: v1
kind: Secret
metadata: {name: access}
stringData: {password: {{ .Values.password | default "planted-secret" }}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {level: {{ .Values.level | default "info" }}}
"#;

/// A ConfigMap as a manifest says it.
pub(crate) const MANIFEST: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {image: a}
";

/// A ConfigMap with Helm's label, so that the guard is asked about it, and of no release.
pub(crate) fn labelled(name: &str, data: Value) -> ConfigMap {
    let labels = json!({"app.kubernetes.io/managed-by": "Helm"});
    serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "data": data})).unwrap()
}

/// The spec of the policy in a file of `policies/`.
pub(crate) fn shipped(file: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies").join(file);
    let policy: Value = serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    policy["spec"].clone()
}
