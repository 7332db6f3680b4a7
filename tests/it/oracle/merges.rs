//! Upgrades by a client-side Helm between manifests whose lists hold a key twice. Entry point: [`chart`].
//!
//! The judge is Helm's own merge: the guard may refuse nothing of what it makes.

use serde_json::{Value, json};

use super::draw::Draw;
use crate::support::Chart;

/// A chart of one Deployment with random variables and ports, some of them with one name or number.
pub(super) fn chart(draw: &mut Draw) -> Chart {
    let env: Value = (0..draw.below(5))
        .map(|_| json!({"name": draw.pick(&["A", "B", "C"]), "value": draw.below(3).to_string()}))
        .collect();
    let ports: Value = (0..draw.below(4))
        .map(|_| json!({"containerPort": draw.pick(&[53, 80]), "protocol": draw.pick(&["TCP", "UDP"])}))
        .collect();
    let image = draw.pick(&["registry.example/shop:1", "registry.example/shop:2"]);
    let container = json!({"name": "app", "image": image, "env": env, "ports": ports});
    let template = json!({"metadata": {"labels": {"app": "merged"}}, "spec": {"containers": [container]}});
    let manifest = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "merged"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "merged"}}, "template": template},
    });
    Chart::new("merged").template("merged.yaml", &manifest.to_string())
}
