//! Additions below sealed paths: fields, list elements and map entries that the release does not declare.
//!
//! Content from an `Apply` manager, the API server, a Kubernetes controller or an admission webhook is not an addition.
//! `managedFields` show where it comes from; content from a webhook has no owner. Clients choose the names of field
//! managers, so a name can only make the guard leave a field alone.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value};

use crate::owners::{ManagerOperation, Owners, PathOwners, PathOwnership};
use crate::ownership::is_controller;
use crate::sealed;
use kubemoor_declare::compare::Addition;
use kubemoor_declare::declare;
use kubemoor_declare::equality::{self, FieldAgreement};
use kubemoor_declare::fields::{DeclaredFields, FieldChange};
use kubemoor_declare::model::{self, HELM_MARKS, ObjectId};
use kubemoor_declare::path::{Path, PathLookup, Segment};
use kubemoor_policy::mask::Seal;

/// Labels and annotations that controllers and the API server set: whole names, and prefixes up to a `/`.
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

const METADATA: [&str; 2] = ["labels", "annotations"];

static ABSENT: Value = Value::Null;

/// The additions of an edit from `old` (`None` for a new or adopted object) to `new` below sealed paths.
pub(crate) fn of_edit<'v>(
    object: &ObjectId,
    fields: &DeclaredFields,
    seal: &Seal,
    old: Option<&'v Value>,
    new: &'v Value,
) -> Vec<Addition<'v>> {
    let mut found = candidates(object, fields, seal, old, new);
    if !found.is_empty() {
        let owners = Owners::from_object(new);
        let holdings = PathOwners::new(&owners);
        // A field without an owner was added by a webhook or the API server in this request.
        let is_complete = holdings.is_complete() && new.get("apiVersion").is_some_and(|it| owners.are_of(it));
        let is_nobodys = |by: &[PathOwnership<'_>]| by.is_empty() && is_complete;
        found.retain(|it| {
            let by = holdings.at(&it.path);
            !is_applied(&by) && !is_nobodys(&by)
        });
    }
    found
}

/// Drops additions that the API server or a webhook makes whenever the manifest is applied, as `canonical` shows. In a
/// new object, such an addition may have another value each time; an existing object keeps its value. While an
/// operation is `pending`, an addition that `canonical` has too is dropped whoever owns it.
pub(crate) fn drop_server_additions(
    found: &mut Vec<Addition<'_>>,
    canonical: &Value,
    (operation, pending): (model::Operation, bool),
) {
    if found.is_empty() {
        return;
    }
    let owners = Owners::from_object(canonical);
    let (holdings, mut lookup) = (PathOwners::new(&owners), PathLookup::new(canonical));
    found.retain(|it| {
        let wanted = lookup.get(&it.path);
        let is_same = wanted.contains(&it.new);
        let is_new = operation == model::Operation::Create && !wanted.is_empty();
        let is_servers = (is_same || is_new) && holdings.at(&it.path).is_empty();
        !(is_servers || (pending && is_same))
    });
}

/// The additions of a live object below sealed paths, as far as its `managedFields` show who made them; without
/// `managedFields`, all list elements and map entries that are not declared.
pub fn drift(object: &ObjectId, fields: &DeclaredFields, seal: &Seal, live: &Value) -> Vec<FieldChange> {
    let found = candidates(object, fields, seal, None, live);
    if found.is_empty() {
        return Vec::new();
    }
    let owners = Owners::from_object(live);
    let (holdings, mut lookup) = (PathOwners::new(&owners), PathLookup::new(live));
    let change = |path: Path, new: &Value, agreement: FieldAgreement| FieldChange {
        path,
        declared: None,
        old: None,
        new: Some(new.clone()),
        agreement,
    };
    let mut changes = Vec::new();
    for it in found {
        let is_drift = if owners.is_empty() { it.is_member } else { is_made_by_client(&holdings, &it) };
        if is_drift {
            changes.push(change(it.path, it.new, FieldAgreement::Added));
            continue;
        }
        for path in changed_parts(&holdings, &it) {
            let new = lookup.get(&path);
            changes.extend(new.first().map(|new| change(path, new, FieldAgreement::Within)));
        }
    }
    changes
}

/// Sets the value at `path` to that in `old`.
pub fn undo(path: &Path, old: &Value, object: &mut Value) {
    let before = path.get(old).first().map(|value| (*value).clone());
    set(&path.0, before, old, object);
}

fn candidates<'v>(
    object: &ObjectId,
    fields: &DeclaredFields,
    seal: &Seal,
    old: Option<&'v Value>,
    new: &'v Value,
) -> Vec<Addition<'v>> {
    if seal.is_empty() {
        return Vec::new();
    }
    let mut found = fields.additions(&seal.scope(), old, new);
    found.retain(|it| {
        let is_output = || declare::is_undeclared_output(object, fields, &it.path);
        is_judged(&it.path) && !sealed::is_sealed(object, &it.path) && !is_output()
    });
    found
}

/// Whether a release can manage this path.
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
            !HELM_MARKS.iter().any(|[.., mark]| name == mark)
                && !CONTROLLERS_OWN.iter().any(|own| is_named(own, name))
        }
        _ => true,
    }
}

fn is_named(own: &str, name: &str) -> bool {
    if own.ends_with('/') { name.starts_with(own) } else { name == own }
}

fn is_applied(by: &[PathOwnership<'_>]) -> bool {
    by.iter().any(|it| it.manager.operation == ManagerOperation::Apply)
}

/// Whether a manager other than a Kubernetes controller made the addition by an update. A field that only Helm owns
/// does not count: the API server attributes the defaults that it fills in to Helm.
fn is_made_by_client(holdings: &PathOwners<'_>, addition: &Addition<'_>) -> bool {
    let mut by = holdings.at(&addition.path);
    if is_applied(&by) {
        return false;
    }
    // Owners of only a part of a list element or map entry do not count.
    if addition.is_member || !is_owned_throughout(holdings, &addition.path, addition.new) {
        by.retain(|it| !it.is_in_parts);
    }
    let is_controllers = || by.iter().all(|it| is_controller(&it.manager.name));
    let is_helms = || by.iter().all(|it| it.is_helms);
    !by.is_empty() && !is_controllers() && (addition.is_member || !is_helms())
}

/// Whether each part of a value has an owner.
fn is_owned_throughout(holdings: &PathOwners<'_>, path: &Path, value: &Value) -> bool {
    let by = holdings.at(path);
    let is_below = |map: &Map<String, Value>| {
        map.iter().all(|(name, below)| is_owned_throughout(holdings, &path.of_field(name), below))
    };
    match value {
        _ if by.iter().any(|it| !it.is_in_parts) => true,
        Value::Object(map) => !by.is_empty() && is_below(map),
        _ => !by.is_empty(),
    }
}

/// The changed parts of an addition that has no owner as a whole.
fn changed_parts(holdings: &PathOwners<'_>, addition: &Addition<'_>) -> Vec<Path> {
    let by = holdings.at(&addition.path);
    if by.iter().any(|it| !it.is_in_parts) || is_applied(&by) {
        return Vec::new();
    }
    let parts = holdings.parts(&addition.path).into_iter();
    let parts = parts.filter(|(_, manager)| !is_controller(&manager.name));
    let by_text: BTreeMap<String, Path> = parts.map(|(path, _)| (path.to_string(), path)).collect();
    by_text.into_values().collect()
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
                set(below, before, had.unwrap_or(&ABSENT), value);
                // Also remove a parent that was created only for this value.
                if !old.is_null() && had.is_none() && equality::is_void(value) {
                    map.remove(name);
                }
            }
        }
        (segment, Value::Array(items)) => {
            let is = |item: &Value| segment.selects(item);
            let old = old.as_array().and_then(|old| old.iter().find(|item| is(item))).unwrap_or(&ABSENT);
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

/// A copy of `object` without the values at these paths.
#[must_use]
pub fn take_away<'p>(paths: impl IntoIterator<Item = &'p Path>, object: &Value) -> Value {
    let mut lookup = PathLookup::new(object);
    let taken: HashSet<usize> = paths.into_iter().flat_map(|path| lookup.get(path)).map(place).collect();
    without(object, &taken)
}

/// A copy of a value without the parts at these addresses.
fn without(value: &Value, taken: &HashSet<usize>) -> Value {
    let is_left = |below: &Value| !taken.contains(&place(below));
    match value {
        Value::Object(map) => {
            let left = map.iter().filter(|(_, below)| is_left(below));
            left.map(|(name, below)| (name.clone(), without(below, taken))).collect()
        }
        Value::Array(items) => {
            items.iter().filter(|item| is_left(item)).map(|item| without(item, taken)).collect()
        }
        scalar => scalar.clone(),
    }
}

/// The memory address of a value, used as its identity.
fn place(value: &Value) -> usize {
    std::ptr::from_ref(value).addr()
}

#[cfg(test)]
mod tests;
