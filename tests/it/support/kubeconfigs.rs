//! Kubeconfigs that tests make of those of a control plane.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::control_plane::ControlPlane;
use super::identity::Identity;
use super::process::folder;

fn read(kubeconfig: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(kubeconfig).unwrap()).unwrap()
}

fn write(config: &Value) -> PathBuf {
    let path = folder("kubeconfig").join("kubeconfig");
    fs::write(&path, config.to_string()).unwrap();
    path
}

/// A copy of a kubeconfig with a change.
pub(crate) fn changed(kubeconfig: &Path, change: impl FnOnce(&mut Value)) -> PathBuf {
    let mut config = read(kubeconfig);
    change(&mut config);
    write(&config)
}

/// A copy whose context names a namespace.
pub(crate) fn within(kubeconfig: &Path, namespace: &str) -> PathBuf {
    changed(kubeconfig, |config| config["contexts"][0]["context"]["namespace"] = json!(namespace))
}

/// A user's kubeconfig with a context for each of these clusters, and for each of these servers, which are none.
pub(crate) fn contexts(
    identity: Identity,
    clusters: &[(&str, &ControlPlane)],
    servers: &[(&str, &str)],
) -> PathBuf {
    let first = clusters[0].0;
    let (mut named, mut users, mut contexts) = (Vec::new(), Vec::new(), Vec::new());
    for (name, control_plane) in clusters {
        let own = read(&control_plane.kubeconfig(identity));
        named.push(json!({"name": name, "cluster": own["clusters"][0]["cluster"]}));
        users.push(json!({"name": name, "user": own["users"][0]["user"]}));
        contexts.push(json!({"name": name, "context": {"cluster": name, "user": name}}));
    }
    for (name, server) in servers {
        named.push(json!({"name": name, "cluster": {"server": server}}));
        contexts.push(json!({"name": name, "context": {"cluster": name, "user": first}}));
    }
    write(&json!({
        "apiVersion": "v1", "kind": "Config", "clusters": named, "users": users, "contexts": contexts,
        "current-context": first,
    }))
}
