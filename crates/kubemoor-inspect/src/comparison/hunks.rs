//! What changes between two forms of an object, as the hunks of a unified diff.
//!
//! Entry point: [`hunks`]. Invariant: the caller makes sure that nothing secret is in the object.

use serde_json::Value;
use similar::TextDiff;

/// Lines around a change.
const CONTEXT: usize = 3;

/// The changes between two forms of an object; `None` where one of them cannot be written as YAML.
pub(super) fn hunks(live: &Value, declared: &Value) -> Option<String> {
    let yaml = |object: &Value| {
        let mut object = object.clone();
        // Users do not change these, and they are longer than the rest.
        if let Some(metadata) = object.pointer_mut("/metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        serde_saphyr::to_string(&object).ok()
    };
    let (live, declared) = (yaml(live)?, yaml(declared)?);
    Some(TextDiff::from_lines(&live, &declared).unified_diff().context_radius(CONTEXT).to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hunks_go_from_the_live_object_to_the_declared_one() {
        let object = |replicas: u32, manager: &str| {
            json!({
                "kind": "Deployment", "metadata": {"name": "web", "managedFields": [{"manager": manager}]},
                "spec": {"paused": false, "replicas": replicas},
            })
        };
        let hunks = hunks(&object(5, "kubectl"), &object(2, "helm")).unwrap();
        assert!(hunks.contains("\n-  replicas: 5\n+  replicas: 2\n"), "{hunks}");
        assert!(hunks.starts_with("@@ ") && !hunks.contains("manager"), "{hunks}");
    }
}
