//! Upgrades by a client-side Helm between manifests whose lists hold a key twice, whose fields exclude each other, and
//! which hold directives of Helm's own patch. The judge is Helm's merge: the guard may refuse nothing of what it makes.

use serde_json::{Value, json};

use super::draw::Draw;
use crate::support::Chart;

/// A chart of one Deployment with random variables, ports, volumes and strategy. Some elements share a key, some hold a
/// directive, and Helm's patch of volumes and strategy names the keys that it retains.
pub(super) fn chart(draw: &mut Draw) -> Chart {
    let env: Value = (0..draw.below(5))
        .map(|_| {
            let mut variable =
                json!({"name": draw.pick(&["A", "B", "C"]), "value": draw.below(3).to_string()});
            if draw.chance(10) {
                variable["$patch"] = json!(draw.pick(&["delete", "replace", "merge"]));
            }
            variable
        })
        .collect();
    let ports: Value = (0..draw.below(4))
        .map(|_| json!({"containerPort": draw.pick(&[53, 80]), "protocol": draw.pick(&["TCP", "UDP"])}))
        .collect();
    let volumes: Value = ["data", "logs"][..draw.below(3)]
        .iter()
        .map(|name| {
            let sources =
                [json!({}), json!({"configMap": {"name": "other"}}), json!({"secret": {"secretName": "s"}})];
            let mut volume = draw.pick(&sources).clone();
            volume["name"] = json!(name);
            volume
        })
        .collect();
    let strategies = [json!({"type": "Recreate"}), json!({"rollingUpdate": {"maxSurge": 2}}), Value::Null];
    let strategy = draw.pick(&strategies).clone();
    let image = draw.pick(&["registry.example/shop:1", "registry.example/shop:2"]);
    let container = json!({"name": "app", "image": image, "env": env, "ports": ports});
    let labels = json!({"app": "merged"});
    let template =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [container], "volumes": volumes}});
    let selector = json!({"matchLabels": labels});
    let spec = json!({"replicas": 0, "strategy": strategy, "selector": selector, "template": template});
    let manifest =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "merged"}, "spec": spec});
    Chart::new("merged").template("merged.yaml", &manifest.to_string())
}
