//! Makes a document the object that the API server gets from Helm.
//!
//! Entry points: [`identify`], [`place`], [`own`]. Invariant: the same object as Helm sends, whatever a document's
//! metadata holds.

use serde_json::{Map, Value};

use kubemoor_declare::model::{Gvk, MANAGED_BY, ObjectId, RELEASE_NAME, RELEASE_NAMESPACE, ReleaseId};

/// The identity of `object` in the cluster. `namespaced` is the scope of its kind; an unknown kind counts as
/// namespaced.
///
/// As in Helm, a cluster-scoped object never has a namespace, whatever its manifest says, and a namespaced
/// one without a namespace gets the release's.
pub fn identify(object: &Value, release: &ReleaseId, namespaced: Option<bool>) -> ObjectId {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let gvk = Gvk::from_api_version(text("/apiVersion"), text("/kind"));
    let namespace = match (namespaced, text("/metadata/namespace")) {
        (Some(false), _) => None,
        (_, "") => Some(release.namespace.clone()),
        (_, explicit) => Some(explicit.into()),
    };
    ObjectId {
        group: gvk.group.into(),
        kind: gvk.kind.into(),
        namespace,
        name: text("/metadata/name").into(),
    }
}

/// Sets `metadata.namespace` to where `id` says the object is, as Helm does
/// before it sends it.
pub fn place(object: &mut Value, id: &ObjectId) {
    let Some(metadata) = child(object, "metadata") else { return };
    match &id.namespace {
        Some(namespace) => metadata.insert("namespace".to_owned(), Value::String(namespace.to_string())),
        None => metadata.remove("namespace"),
    };
}

/// Sets the label and the two annotations that Helm forces on every object of
/// a release, over the manifest's own values. A label or annotation that is
/// null becomes "", as in Helm.
pub fn own(object: &mut Value, release: &ReleaseId) {
    let Some(metadata) = child(object, "metadata") else { return };
    force(metadata, "labels", &[MANAGED_BY]);
    force(metadata, "annotations", &[(RELEASE_NAME, &release.name), (RELEASE_NAMESPACE, &release.namespace)]);
}

/// Sets `entries` in the map of strings that `metadata` has at `field`.
fn force(metadata: &mut Map<String, Value>, field: &str, entries: &[(&str, &str)]) {
    let mut texts = match metadata.remove(field) {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    };
    for value in texts.values_mut().filter(|value| value.is_null()) {
        *value = Value::String(String::new());
    }
    for (key, value) in entries {
        texts.insert((*key).to_owned(), Value::String((*value).to_owned()));
    }
    metadata.insert(field.to_owned(), Value::Object(texts));
}

/// The map that `object` has at `field`, made when it is not there.
fn child<'a>(object: &'a mut Value, field: &str) -> Option<&'a mut Map<String, Value>> {
    object.as_object_mut()?.entry(field).or_insert_with(|| Value::Object(Map::new())).as_object_mut()
}
