//! The sealed fields: fields that undo a release without touching a declared path.
//!
//! For an edit, only the fields that it changes are reported; for a live object, only those that a manager other than
//! Helm set after the creation, and owner references only if Kubernetes' own controllers did not set them. A sealed
//! field that the manifest declares is judged as a declared one instead.

use std::collections::HashSet;

use serde_json::Value;

use crate::claims;
use crate::owners::{Owners, PathOwners};
use crate::ownership::is_controller;
use kubemoor_declare::equality::FieldAgreement;
use kubemoor_declare::fields::{DeclaredFields, FieldChange};
use kubemoor_declare::model::{
    ObjectId, PAUSED, PAUSED_REPLICAS, PAUSED_SCALE_IN, PAUSED_SCALE_OUT, RESOURCE_POLICY,
};
use kubemoor_declare::path::{Path, Segment};

pub(crate) const OWNERS: [&str; 2] = ["metadata", "ownerReferences"];

/// A field that configures an autoscaler.
struct SealedSetting {
    path: &'static [&'static str],
    /// The default value of the API server or the controller; empty if the field has no default.
    default: &'static str,
}

/// The range and the target of a HorizontalPodAutoscaler.
const OF_AUTOSCALER: &[SealedSetting] = &[
    SealedSetting { path: &["spec", "minReplicas"], default: "1" },
    SealedSetting { path: &["spec", "maxReplicas"], default: "" },
    SealedSetting { path: &["spec", "scaleTargetRef", "apiVersion"], default: "" },
    SealedSetting { path: &["spec", "scaleTargetRef", "kind"], default: "" },
    SealedSetting { path: &["spec", "scaleTargetRef", "name"], default: "" },
];

/// The same for a ScaledObject, from which KEDA makes a HorizontalPodAutoscaler.
const OF_SCALED_OBJECT: &[SealedSetting] = &[
    SealedSetting { path: &["spec", "minReplicaCount"], default: "0" },
    SealedSetting { path: &["spec", "maxReplicaCount"], default: "100" },
    SealedSetting { path: &["spec", "idleReplicaCount"], default: "" },
    SealedSetting { path: &["spec", "scaleTargetRef", "apiVersion"], default: "apps/v1" },
    SealedSetting { path: &["spec", "scaleTargetRef", "kind"], default: "Deployment" },
    SealedSetting { path: &["spec", "scaleTargetRef", "name"], default: "" },
    SealedSetting { path: &["metadata", "annotations", PAUSED], default: "false" },
    SealedSetting { path: &["metadata", "annotations", PAUSED_REPLICAS], default: "" },
    SealedSetting { path: &["metadata", "annotations", PAUSED_SCALE_IN], default: "false" },
    SealedSetting { path: &["metadata", "annotations", PAUSED_SCALE_OUT], default: "false" },
];

const POLICY: [&str; 3] = ["metadata", "annotations", RESOURCE_POLICY];

/// The sealed fields that an update changes, although the manifest does not set them.
pub(crate) fn changes(
    object: &ObjectId,
    fields: &DeclaredFields,
    old: &Value,
    new: &Value,
) -> Vec<FieldChange> {
    let mut changes = Vec::new();
    for path in switches(object) {
        let on = |object: &Value| read(object, path) == Some(&Value::Bool(true));
        if on(new) && !on(old) && !declares(fields, path) {
            changes.push(change(path, old, new));
        }
    }
    // Annotations are text; anything else may be too deep to compare.
    let text = |object| read(object, &POLICY).and_then(Value::as_str);
    if text(new).is_some() && text(new) != text(old) && !declares(fields, &POLICY) {
        changes.push(change(&POLICY, old, new));
    }
    for SealedSetting { path, default } in settings(object) {
        let value = |object| setting(read(object, path), default);
        if value(new) != *default && value(new) != value(old) && !declares(fields, path) {
            changes.push(change(path, old, new));
        }
    }
    let mut added = added_uids(old, new).peekable();
    if added.peek().is_some() && !declares_owners(fields, added) {
        changes.push(change(&OWNERS, old, new));
    }
    changes
}

/// Whether an update gives an object an owner that it did not have. The garbage collector deletes an object whose
/// owners do not exist.
pub fn adds_owner(old: &Value, new: &Value) -> bool {
    added_uids(old, new).next().is_some()
}

/// Whether two owner references are to the same owner.
pub(crate) fn is_same_owner(one: &Value, other: &Value) -> bool {
    identity(one) == identity(other)
}

/// Whether a sealed field of a live object is set, by any manager.
pub fn is_set(object: &ObjectId, live: &Value) -> bool {
    switches(object).iter().any(|path| read(live, path) == Some(&Value::Bool(true)))
        || read(live, &POLICY).is_some()
        || settings(object).iter().any(|it| setting(read(live, it.path), it.default) != it.default)
        || owner_uids(live).next().is_some()
}

/// The sealed fields of a live object that differ from the manifest, as far as its `managedFields` show; without these,
/// all that are set.
pub fn drift(object: &ObjectId, fields: &DeclaredFields, live: &Value) -> Vec<FieldChange> {
    if !is_set(object, live) {
        return Vec::new();
    }
    let owners = Owners::from_object(live);
    let holdings = PathOwners::new(&owners);
    let mut changes = changes(object, fields, &Value::Null, live);
    changes.retain(|change| owners.is_empty() || is_set_later(&holdings, &change.path, live));
    changes
}

/// Whether `path` is that of the owner references.
pub(crate) fn is_of_owners(path: &Path) -> bool {
    *path == Path::from_names(OWNERS)
}

/// Whether `path` is that of a sealed field of the object.
pub fn is_sealed(object: &ObjectId, path: &Path) -> bool {
    paths(object).any(|sealed| sealed == *path)
}

/// Whether a change is one of a declared field, not of a sealed field, an addition or finalizers.
pub fn is_declared(object: &ObjectId, change: &FieldChange) -> bool {
    let is_sealed = change.declared.is_none()
        && (is_sealed(object, &change.path) || claims::is_of_finalizers(object, &change.path));
    !change.agreement.is_addition() && !is_sealed
}

/// The sealed fields of an object.
pub fn paths(object: &ObjectId) -> impl Iterator<Item = Path> {
    let switches = switches(object).iter().map(|names| Path::from_names(names.iter().copied()));
    let settings = settings(object).iter().map(|setting| Path::from_names(setting.path.iter().copied()));
    switches.chain(settings).chain([Path::from_names(OWNERS), Path::from_names(POLICY)])
}

/// Whether the guard leaves the change of a sealed field for a user to revert: the API server does not allow the
/// revert, or the writer of the field knows more about the object than its release.
pub fn is_left_to_user(object: &ObjectId, change: &FieldChange) -> bool {
    let Some(Segment::Field(last)) = change.path.0.last() else { return true };
    match last.as_str() {
        "ownerReferences" => {
            let mut owners = change.new.iter().filter_map(Value::as_array).flatten();
            owners.any(|owner| owner.get("controller") == Some(&Value::Bool(true)))
        }
        "paused" => (object.group.as_str(), object.kind.as_str()) != ("apps", "Deployment"),
        "suspend" => (object.group.as_str(), object.kind.as_str()) != ("batch", "CronJob"),
        "immutable" => true,
        _ => false,
    }
}

/// Whether the value at `path` was set after the creation of the object. Admission plugins that set it at the
/// creation leave it without an owner, or with the creator as owner.
fn is_set_later(holdings: &PathOwners<'_>, path: &Path, live: &Value) -> bool {
    let is_of_owners = is_of_owners(path);
    // Kubernetes' controllers own the objects that they create, but never pause or suspend anything.
    let is_its_work = |name: &str| is_of_owners && is_controller(name);
    let is_anybodys =
        |path: &Path| holdings.at(path).iter().any(|it| !it.is_helms && !is_its_work(&it.manager.name));
    let of_owner = |uid: &str| {
        let key = Segment::Key(vec![("uid".to_owned(), Value::from(uid))]);
        Path(path.0.iter().cloned().chain([key]).collect())
    };
    match is_of_owners {
        true => owner_uids(live).any(|uid| is_anybodys(&of_owner(uid))),
        false => is_anybodys(path),
    }
}

/// The fields that, if true, stop an object from following its release.
fn switches(object: &ObjectId) -> &'static [&'static [&'static str]] {
    match (object.group.as_str(), object.kind.as_str()) {
        ("", "ConfigMap" | "Secret") => &[&["immutable"]],
        ("", _) => &[],
        _ => &[&["spec", "paused"], &["spec", "suspend"]],
    }
}

/// The fields that configure an autoscaler. Its release may leave some of them at their defaults; a user who sets these
/// changes the scaling that the release intends.
fn settings(object: &ObjectId) -> &'static [SealedSetting] {
    match (object.group.as_str(), object.kind.as_str()) {
        ("autoscaling", "HorizontalPodAutoscaler") => OF_AUTOSCALER,
        ("keda.sh", "ScaledObject") => OF_SCALED_OBJECT,
        _ => &[],
    }
}

/// The value of a setting as text. All settings are numbers or strings; anything else may be too deep to compare.
fn setting(value: Option<&Value>, default: &str) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::Null) | None => default.to_owned(),
        Some(_) => "other".to_owned(),
    }
}

/// Whether the manifest sets the value at `path`. A null sets nothing.
fn declares(fields: &DeclaredFields, path: &[&str]) -> bool {
    (1..=path.len()).any(|length| {
        let Some((above, below)) = path.split_at_checked(length) else { return false };
        fields.get(above).is_some_and(|value| read(&value, below).is_some_and(|value| !value.is_null()))
    })
}

fn change(path: &[&str], old: &Value, new: &Value) -> FieldChange {
    let value = |object| read(object, path).cloned();
    let (path, agreement) = (Path::from_names(path.iter().copied()), FieldAgreement::Differs);
    FieldChange { old: value(old), new: value(new), path, declared: None, agreement }
}

fn read<'v>(object: &'v Value, path: &[&str]) -> Option<&'v Value> {
    path.iter().try_fold(object, |value, name| value.get(name))
}

/// Whether the manifest declares an owner of each of these uids.
fn declares_owners<'u>(fields: &DeclaredFields, mut uids: impl Iterator<Item = &'u str>) -> bool {
    let declared: HashSet<String> = fields
        .leaves()
        .into_iter()
        .filter_map(|(path, value)| match &*path.0 {
            [Segment::Field(metadata), Segment::Field(owners), below @ ..]
                if metadata == "metadata" && owners == "ownerReferences" =>
            {
                Some(declared_uids(below, &value))
            }
            _ => None,
        })
        .flatten()
        .collect();
    uids.all(|uid| declared.contains(uid))
}

/// The uids of the owners of `new` that `old` does not have. The garbage collector looks up an owner by its group, kind
/// and name and then compares the uid, so a reference with another name is another owner, which may not exist.
fn added_uids<'v>(old: &'v Value, new: &'v Value) -> impl Iterator<Item = &'v str> {
    let had: HashSet<_> = owners(old).map(identity).collect();
    owners(new).filter(move |owner| !had.contains(&identity(owner))).filter_map(uid)
}

fn owner_uids(object: &Value) -> impl Iterator<Item = &str> {
    owners(object).filter_map(uid)
}

fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    read(object, &OWNERS).and_then(Value::as_array).into_iter().flatten()
}

/// The group, kind, name and uid of an owner.
fn identity(owner: &Value) -> [Option<&str>; 4] {
    let text = |name: &str| owner.get(name).and_then(Value::as_str);
    let group = text("apiVersion").map(|version| version.rsplit_once('/').map_or("", |(group, _)| group));
    [group, text("kind"), text("name"), text("uid")]
}

/// The uids of owners that a leaf declares: the list as one value, or one of its elements, which their uids identify.
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

fn uid(owner: &Value) -> Option<&str> {
    owner.get("uid")?.as_str()
}

#[cfg(test)]
mod tests;
