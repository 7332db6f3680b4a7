//! Kinds of custom resources whose objects may hold anything.

use serde_json::json;

use super::caller::Caller;
use super::wait::{SOON, eventually};

/// A kind that a test defines.
pub(crate) struct TestKind {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    /// `Namespaced` or `Cluster`.
    pub(crate) scope: &'static str,
}

impl TestKind {
    /// Defines the kind, and waits until it is served.
    pub(crate) async fn define(&self, admin: &Caller) {
        let Self { group, version, kind, plural, scope } = self;
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let (singular, list) = (kind.to_lowercase(), format!("{kind}List"));
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "scope": scope,
                "names": {"plural": plural, "singular": singular, "kind": kind, "listKind": list},
                "versions": [
                    {"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}},
                ],
            },
        });
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        admin.post(definitions, &definition).await.done().unwrap();
        let path = format!("/apis/{group}/{version}/{plural}");
        eventually(&format!("{plural} are served"), SOON, || async { admin.get(&path).await.done() }).await;
    }
}
