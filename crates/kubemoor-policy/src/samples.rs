//! Policies and declared objects for tests.
//!
//! Entry points: [`policy`], [`policies`], [`declared`]. Invariant: builds values as the program
//! does, and panics on invalid input. Other crates' tests include this file by its path.

use std::sync::Arc;

use serde_json::{Value, json};

use kubemoor_declare::declare::{Digest, declare};
use kubemoor_declare::model::{DriftMode, EditsMode, ObjectId};
use kubemoor_helm::release::{AllowAnnotations, DeclaredObject, gvk};
use kubemoor_policy::Policy;
use kubemoor_policy::compile::{self, CompiledPolicy};
use kubemoor_policy::flaw::Flaw;
use kubemoor_policy::resolver::{Labels, Policies};

/// A policy from the YAML of its spec.
pub(crate) fn policy(name: &str, spec: &str) -> Arc<CompiledPolicy> {
    try_policy(name, spec).unwrap_or_else(|flaws| panic!("{name}: {flaws:?}"))
}

/// A policy, or its flaws.
pub(crate) fn try_policy(name: &str, spec: &str) -> Result<Arc<CompiledPolicy>, Vec<Flaw>> {
    let spec: Value = serde_saphyr::from_str(spec).unwrap();
    compile::policy(json!({
        "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftPolicy", "metadata": {"name": name}, "spec": spec
    }))
    .map(Arc::new)
}

/// Policies with the defaults `Warn` and `Report`.
pub(crate) fn policies(accepted: impl IntoIterator<Item = Arc<CompiledPolicy>>) -> Policies {
    let defaults = Policy::new(EditsMode::Warn, DriftMode::Report, std::time::Duration::from_secs(3600));
    Policies::new(defaults, &Labels::new(), accepted)
}

/// An object as a manifest declares it, from YAML.
pub(crate) fn declared(yaml: &str) -> (ObjectId, DeclaredObject) {
    let document: Value = serde_saphyr::from_str(yaml).unwrap();
    let gvk = gvk(&document);
    let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let object = ObjectId {
        group: gvk.group.clone().into(),
        kind: gvk.kind.clone().into(),
        namespace: text("/metadata/namespace").map(Into::into),
        name: text("/metadata/name").unwrap().into(),
    };
    let declared = DeclaredObject {
        packed: declare(&document, None).into(),
        allow: AllowAnnotations::from_document(&document).map(Box::new),
        version: gvk.version.as_str().into(),
        facts: None,
        keep: false,
        opted_out: false,
        weight: 0,
        digest: Digest::new(&document),
    };
    (object, declared)
}
