//! Additions below sealed paths: what an object holds there beyond what its release declares.
//!
//! Entry points: `of_edit` for what an edit adds, [`drift`] for what a live object holds,
//! [`undo`] takes one away. Invariant: what an `Apply` manager, the API server, one of its
//! controllers or an admission webhook put there is no addition. `managedFields` tell: what a
//! webhook adds belongs to nobody. Names of managers are what clients gave themselves, so they only
//! ever let something be.

use serde_json::Value;

use super::ownership::{Operation, Owners, is_controller};
use super::sealed;
use crate::declaration::additions::Addition;
use crate::declaration::equality::Agreement;
use crate::declaration::fields::{FieldChange, Fields};
use crate::declaration::path::{Path, Segment};
use crate::model::{MANAGED_BY, ObjectId, RELEASE_NAME, RELEASE_NAMESPACE};
use crate::policy::seal::Seal;

/// Labels and annotations that controllers and the server set, by how their names begin.
const CONTROLLERS_OWN: &[&str] = &[
    "autoscaling.alpha.kubernetes.io/",
    "batch.kubernetes.io/",
    "control-plane.alpha.kubernetes.io/",
    "controller-uid",
    "deployment.kubernetes.io/",
    "deprecated.daemonset.template.generation",
    "endpoints.kubernetes.io/",
    "job-name",
    "kubectl.kubernetes.io/",
    "kubemoor.dev/",
    "kubernetes.io/metadata.name",
    "pv.kubernetes.io/",
    "volume.beta.kubernetes.io/",
    "volume.kubernetes.io/",
];

/// By what Helm, and the guard, know whose an object is.
const HELMS: [&str; 3] = [MANAGED_BY.0, RELEASE_NAME, RELEASE_NAMESPACE];

/// What of the metadata is looked at.
const METADATA: [&str; 2] = ["labels", "annotations"];

/// What an object was of which nothing is known: whatever may have been there.
static UNKNOWN: Value = Value::Null;

/// What an edit from `old` (none for a new object) to `new` adds below sealed paths.
pub(super) fn of_edit<'v>(
    object: &ObjectId,
    fields: &Fields,
    seal: &Seal,
    old: Option<&'v Value>,
    new: &'v Value,
) -> Vec<Addition<'v>> {
    let mut found = candidates(object, fields, seal, old, new);
    if !found.is_empty() {
        let owners = Owners::of(new);
        found.retain(|it| !is_applied(&owners, &it.path));
    }
    found
}

/// Whether the API server, or a webhook, adds this by itself whenever the manifest is applied, as
/// `canonical` tells.
pub(super) fn is_servers(path: &Path, canonical: &Value) -> bool {
    !path.get(canonical).is_empty() && Owners::of(canonical).of_path(path).is_empty()
}

/// What a live object holds below sealed paths, as far as its `managedFields` tell who put it
/// there: without any, what is a list element or an entry of a map.
pub fn drift(object: &ObjectId, fields: &Fields, seal: &Seal, live: &Value) -> Vec<FieldChange> {
    let found = candidates(object, fields, seal, None, live);
    if found.is_empty() {
        return Vec::new();
    }
    let owners = Owners::of(live);
    let is_drift = |it: &Addition<'_>| match owners.is_empty() {
        true => it.is_member,
        false => is_somebodys(&owners, it),
    };
    let change = |it: Addition<'_>| FieldChange {
        path: it.path,
        declared: None,
        old: None,
        new: Some(it.new.clone()),
        agreement: Agreement::Added,
    };
    found.into_iter().filter(is_drift).map(change).collect()
}

/// Makes what is at `path` what it is in `old`; without one, takes it away.
pub fn undo(path: &Path, old: Option<&Value>, object: &mut Value) {
    let before = old.and_then(|old| path.get(old).first().map(|value| (*value).clone()));
    set(&path.0, before, old.unwrap_or(&UNKNOWN), object);
}

fn candidates<'v>(
    object: &ObjectId,
    fields: &Fields,
    seal: &Seal,
    old: Option<&'v Value>,
    new: &'v Value,
) -> Vec<Addition<'v>> {
    if seal.is_empty() {
        return Vec::new();
    }
    let mut found = fields.additions(&seal.scope(), old, new);
    found.retain(|it| is_judged(&it.path) && !sealed::is_sealed(object, &it.path));
    found
}

/// Whether the place is one that a release has a say in.
fn is_judged(path: &Path) -> bool {
    let names: Vec<&str> = path
        .0
        .iter()
        .map(|segment| if let Segment::Field(name) = segment { name.as_str() } else { "" })
        .collect();
    match names.as_slice() {
        ["apiVersion" | "kind" | "status", ..] | ["metadata"] => false,
        ["metadata", below, ..] if !METADATA.contains(below) => false,
        [.., "metadata", "labels" | "annotations", name] => {
            !HELMS.contains(name) && !CONTROLLERS_OWN.iter().any(|own| name.starts_with(own))
        }
        _ => true,
    }
}

fn is_applied(owners: &Owners, path: &Path) -> bool {
    owners.of_path(path).iter().any(|manager| manager.operation == Operation::Apply)
}

/// Whether somebody put it there by an update who is none of Kubernetes' own programs. Of what Helm
/// left behind, fields count for nothing: the server completes what Helm sends, in Helm's name.
fn is_somebodys(owners: &Owners, addition: &Addition<'_>) -> bool {
    let by = owners.of_path(&addition.path);
    let is_controllers = || by.iter().all(|manager| is_controller(&manager.name));
    let is_helms = || by.iter().all(|manager| owners.is_helm(manager));
    !is_applied(owners, &addition.path)
        && !by.is_empty()
        && !is_controllers()
        && (addition.is_member || !is_helms())
}

fn set(path: &[Segment], before: Option<Value>, old: &Value, object: &mut Value) {
    let Some((segment, below)) = path.split_first() else { return };
    match (segment, object) {
        (Segment::Field(name), Value::Object(map)) => {
            if below.is_empty() {
                match before {
                    Some(before) => drop(map.insert(name.clone(), before)),
                    None => drop(map.remove(name)),
                }
            } else if let Some(value) = map.get_mut(name) {
                let had = old.get(name);
                set(below, before, had.unwrap_or(&UNKNOWN), value);
                // What was made only to hold it goes along.
                if !old.is_null() && had.is_none() && is_void(value) {
                    map.remove(name);
                }
            }
        }
        (segment, Value::Array(items)) => {
            let is = |item: &Value| is_element(segment, item);
            let old = old.as_array().and_then(|old| old.iter().find(|item| is(item))).unwrap_or(&UNKNOWN);
            match (below, before) {
                ([], None) => items.retain(|item| !is(item)),
                ([], Some(before)) => {
                    items.iter_mut().filter(|item| is(item)).for_each(|it| *it = before.clone())
                }
                (_, before) => {
                    items
                        .iter_mut()
                        .filter(|item| is(item))
                        .for_each(|it| set(below, before.clone(), old, it));
                }
            }
        }
        _ => {}
    }
}

fn is_void(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn is_element(segment: &Segment, item: &Value) -> bool {
    match segment {
        Segment::Field(_) => false,
        Segment::Element(wanted) => Segment::alike(item, wanted),
        Segment::Key(keys) => {
            keys.iter().all(|(key, wanted)| item.get(key).is_some_and(|own| Segment::alike(own, wanted)))
        }
    }
}

#[cfg(test)]
mod tests;
