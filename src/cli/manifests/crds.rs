//! The custom resource definitions, from the types that the program reads.
//!
//! Entry point: [`text`]. Invariant: structural schemas that Kubernetes 1.20
//! takes as well: a server that knows no CEL leaves the rules out.

use anyhow::Context;
use kube::CustomResourceExt;
use serde_json::Value;

use kubemoor_policy::guarded::GuardedRelease;
use kubemoor_policy::resource::{DriftAllowance, DriftPolicy};

const HEAD: &str = "# What `kubemoor manifests crds` prints: write it anew, never by hand.\n";

/// The definitions as YAML.
pub(super) fn text() -> anyhow::Result<String> {
    let definitions = [DriftAllowance::crd(), DriftPolicy::crd(), GuardedRelease::crd()];
    let documents = definitions.iter().map(|definition| {
        let mut definition = serde_json::to_value(definition)?;
        if let Some(versions) = definition.pointer_mut("/spec/versions").and_then(Value::as_array_mut) {
            versions.iter_mut().filter_map(|version| version.get_mut("schema")).for_each(open);
        }
        anyhow::Ok(serde_saphyr::to_string(&definition)?)
    });
    let documents: Vec<String> =
        documents.collect::<Result<_, _>>().context("cannot write the definitions as YAML")?;
    Ok(HEAD.to_owned() + &documents.join("---\n"))
}

/// Takes out what a structural schema may not hold: that there are no further
/// properties is the API server's own rule.
fn open(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if map.get("additionalProperties") == Some(&Value::Bool(false)) {
                map.remove("additionalProperties");
            }
            map.values_mut().for_each(open);
        }
        Value::Array(items) => items.iter_mut().for_each(open),
        _ => {}
    }
}
