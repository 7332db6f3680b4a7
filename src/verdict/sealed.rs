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
pub(super) struct Change<'v> {
    pub(super) path: Path,
    pub(super) old: Option<&'v Value>,
    pub(super) new: Option<&'v Value>,
    /// The garbage collector would finish the deletion of the object.
    pub(super) deletion: bool,
}

/// The sealed fields that differ between `old` and `new`.
pub(super) fn changes<'v>(
    object: &ObjectId,
    fields: &Fields,
    old: &'v Value,
    new: &'v Value,
) -> Vec<Change<'v>> {
    let mut changes = Vec::new();
    for path in switches(object) {
        let on = |object: &Value| read(object, path) == Some(&Value::Bool(true));
        if on(new) && !on(old) && !declares(fields, path) {
            changes.push(change(path, old, new, false));
        }
    }
    let policy = ["metadata", "annotations", RESOURCE_POLICY];
    // Annotations are text; anything else may be too deep to compare.
    let text = |object| read(object, &policy).and_then(Value::as_str);
    if text(new).is_some() && text(new) != text(old) && !declares(fields, &policy) {
        changes.push(change(&policy, old, new, false));
    }
    let owners = ["metadata", "ownerReferences"];
    let mut added = owner_uids(new).filter(|uid| !owner_uids(old).any(|had| had == *uid)).peekable();
    if added.peek().is_some() && !declares_owners(fields, added) {
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

/// Whether the manifest sets what is at `path`. A null sets nothing.
fn declares(fields: &Fields, path: &[&str]) -> bool {
    (1..=path.len()).any(|length| {
        let Some((above, below)) = path.split_at_checked(length) else { return false };
        fields.get(above).is_some_and(|value| read(&value, below).is_some_and(|value| !value.is_null()))
    })
}

/// Whether the manifest declares an owner of each of these uids.
fn declares_owners<'u>(fields: &Fields, mut uids: impl Iterator<Item = &'u str>) -> bool {
    let declared: Vec<String> = fields
        .leaves()
        .into_iter()
        .filter_map(|(path, value)| match path.0.as_slice() {
            [Segment::Field(metadata), Segment::Field(owners), below @ ..]
                if metadata == "metadata" && owners == "ownerReferences" =>
            {
                Some(declared_uids(below, &value))
            }
            _ => None,
        })
        .flatten()
        .collect();
    uids.all(|uid| declared.iter().any(|declared| declared == uid))
}

/// The uids of owners that a leaf declares: the list as one value, or one of
/// its elements, told apart by their uids.
fn declared_uids(below: &[Segment], value: &Value) -> Vec<String> {
    let uids: Vec<&str> = match below {
        [] => value.as_array().into_iter().flatten().filter_map(uid).collect(),
        [Segment::Key(keys), ..] => {
            keys.iter().filter(|(key, _)| key == "uid").filter_map(|(_, uid)| uid.as_str()).collect()
        }
        _ => Vec::new(),
    };
    uids.into_iter().map(str::to_owned).collect()
}

fn change<'v>(path: &[&str], old: &'v Value, new: &'v Value, deletion: bool) -> Change<'v> {
    Change {
        path: Path(path.iter().map(|name| Segment::Field((*name).to_owned())).collect()),
        old: read(old, path),
        new: read(new, path),
        deletion,
    }
}

fn read<'v>(object: &'v Value, path: &[&str]) -> Option<&'v Value> {
    path.iter().try_fold(object, |value, name| value.get(name))
}

fn owner_uids(object: &Value) -> impl Iterator<Item = &str> {
    let owners = read(object, &["metadata", "ownerReferences"]).and_then(Value::as_array);
    owners.into_iter().flatten().filter_map(uid)
}

fn uid(owner: &Value) -> Option<&str> {
    owner.get("uid")?.as_str()
}

#[cfg(test)]
mod tests;
