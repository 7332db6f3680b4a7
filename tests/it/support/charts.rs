//! Charts that several files of tests install, and the policies that Kubemoor ships.

use std::fs;
use std::path::Path;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

/// A ConfigMap of this name and data, as a constant.
macro_rules! config_map {
    ($name:literal, $data:literal) => {
        concat!("\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: ", $name, "}\ndata: ", $data, "\n")
    };
}

/// The Deployment `web` with this container, of two replicas where nothing else is said, as a
/// constant.
macro_rules! deployment {
    ($container:literal) => {
        $crate::support::charts::deployment!(2, $container)
    };
    ($replicas:literal, $container:literal) => {
        concat!(
            "\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: ",
            $replicas,
            "\n  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n",
            "    spec: {containers: [",
            $container,
            "]}\n",
        )
    };
}

/// A StatefulSet of this name with one replica of this container, as a constant.
macro_rules! stateful_set {
    ($name:literal, $container:literal) => {
        concat!(
            "\napiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: ",
            $name,
            "}\nspec:\n  replicas: 1\n  serviceName: ",
            $name,
            "\n  selector: {matchLabels: {app: ",
            $name,
            "}}\n  template:\n    metadata: {labels: {app: ",
            $name,
            "}}\n    spec: {containers: [",
            $container,
            "]}\n",
        )
    };
}

pub(crate) use {config_map, deployment, stateful_set};

/// One ConfigMap. Its value: `level`.
pub(crate) const SETTINGS: &str = config_map!("settings", r#"{level: {{ .Values.level | default "info" }}}"#);

/// Two ConfigMaps.
pub(crate) const TWO: &str =
    concat!(config_map!("settings", "{level: info}"), "---", config_map!("extra", "{color: blue}"));

/// Two ConfigMaps. The value `image` of the first is `a` unless said otherwise.
pub(crate) const IMAGE_AND_COLOR: &str = concat!(
    config_map!("settings", "{image: '{{ .Values.image | default \"a\" }}'}"),
    "---",
    config_map!("extra", "{color: blue}"),
);

/// A Deployment of two replicas with one container. Its value: `tag`.
pub(crate) const DEPLOYMENT: &str =
    deployment!(r#"{name: app, image: "registry.example/shop:{{ .Values.tag | default "1" }}"}"#);

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

/// A StatefulSet that its policy lets people scale.
pub(crate) const JENKINS: &str = stateful_set!("jenkins", "{name: app, image: 'registry.example/jenkins:1'}");

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
