//! The sealed fields: what undoes a release without touching a declared path.
//!
//! Entry point: [`changes`]. Invariant: only what an update changes is
//! reported, never what an object has had all along. A sealed field that the
//! manifest declares is judged as a declared one instead.

use serde_json::Value;

use crate::declaration::fields::Fields;
use crate::declaration::path::{Path, Segment};
use crate::model::{ObjectId, RESOURCE_POLICY};

/// A sealed field that an update changes away from what the manifest leaves.
pub(super) struct Change {
    pub(super) path: Path,
    pub(super) old: Option<Value>,
    pub(super) new: Option<Value>,
    /// The garbage collector would finish the deletion of the object.
    pub(super) deletion: bool,
}

/// The sealed fields that differ between `old` and `new`.
pub(super) fn changes(object: &ObjectId, fields: &Fields, old: &Value, new: &Value) -> Vec<Change> {
    let mut changes = Vec::new();
    for path in switches(object) {
        let on = |object: &Value| read(object, path) == Some(&Value::Bool(true));
        if on(new) && !on(old) && fields.get(path).is_none() {
            changes.push(change(path, old, new, false));
        }
    }
    let policy = ["metadata", "annotations", RESOURCE_POLICY];
    if read(new, &policy).is_some()
        && read(new, &policy) != read(old, &policy)
        && fields.get(&policy).is_none()
    {
        changes.push(change(&policy, old, new, false));
    }
    let owners = ["metadata", "ownerReferences"];
    if owner_uids(new).any(|uid| !owner_uids(old).any(|had| had == uid)) {
        changes.push(change(&owners, old, new, true));
    }
    changes
}

/// The fields that stop an object from following its release when true.
fn switches(object: &ObjectId) -> &'static [&'static [&'static str]] {
    match (object.group.as_str(), object.kind.as_str()) {
        ("", "ConfigMap" | "Secret") => &[&["immutable"]],
        ("", _) => &[],
        _ => &[&["spec", "paused"], &["spec", "suspend"]],
    }
}

fn change(path: &[&str], old: &Value, new: &Value, deletion: bool) -> Change {
    Change {
        path: Path(path.iter().map(|name| Segment::Field((*name).to_owned())).collect()),
        old: read(old, path).cloned(),
        new: read(new, path).cloned(),
        deletion,
    }
}

fn read<'v>(object: &'v Value, path: &[&str]) -> Option<&'v Value> {
    path.iter().try_fold(object, |value, name| value.get(name))
}

fn owner_uids(object: &Value) -> impl Iterator<Item = &str> {
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().filter_map(|owner| owner.get("uid")?.as_str())
}
