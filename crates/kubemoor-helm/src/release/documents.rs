//! The objects of a manifest as Helm sends them.
//!
//! Entry points: [`documents`] for all, [`document`] for one. Invariant: each object is owned by the release and lies in
//! its namespace, as Helm would place it.

use std::ops::ControlFlow;

use serde_json::Value;

use super::super::manifest::{self, Skipped};
use kubemoor_declare::catalog::Catalog;
use kubemoor_declare::model::{Gvk, ObjectId, ReleaseId};

/// The objects of a manifest as Helm sends them: in its order, owned by the
/// release and placed in their namespaces.
pub fn documents(
    id: &ReleaseId,
    manifest: &str,
    catalog: &Catalog,
) -> (Vec<(ObjectId, Value)>, Vec<Skipped>) {
    let parsed = manifest::parse(manifest);
    (parsed.objects.into_iter().map(|object| placed(id, object, catalog)).collect(), parsed.skipped)
}

/// Of the objects of a manifest the last of that name, as Helm sends it: of
/// several it applies the last one last.
pub fn document(id: &ReleaseId, manifest: &str, object: &ObjectId, catalog: &Catalog) -> Option<Value> {
    let mut found = None;
    manifest::each(manifest, |written| {
        let (name, value) = placed(id, written.value, catalog);
        if name == *object {
            found = Some(value);
        }
        ControlFlow::Continue(())
    });
    found
}

/// An object as Helm sends it.
pub(super) fn placed(id: &ReleaseId, mut object: Value, catalog: &Catalog) -> (ObjectId, Value) {
    let gvk = gvk(&object);
    let namespaced = catalog.facts(&gvk.group, &gvk.kind).map(|facts| facts.namespaced);
    let name = manifest::identify(&object, id, namespaced);
    manifest::own(&mut object, id);
    manifest::place(&mut object, &name);
    (name, object)
}

/// The group, version and kind that an object spells.
pub fn gvk(object: &Value) -> Gvk {
    let text = |field| object.get(field).and_then(Value::as_str).unwrap_or_default();
    Gvk::from_api_version(text("apiVersion"), text("kind"))
}
