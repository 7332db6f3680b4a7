//! Declared fields that another manager owns: the conflicts and effects of the next upgrade, and the return of fields
//! to Helm.
//!
//! Helm 4 uses server-side apply without force: if another manager owns a field and the manifest has another value, the
//! upgrade fails. With an equal value both own the field, so there is no conflict until a chart changes it.

use std::collections::HashSet;
use std::fmt;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::owners::{
    FieldManager, ManagerOperation, Owners, PathOwners, find_helm_manager, prefixes, stands_for_text,
};
use crate::revert::WholeEdit;
use crate::sealed;
use kubemoor_declare::compare::{Move, is_alternative};
use kubemoor_declare::equality::FieldAgreement;
use kubemoor_declare::fields::{DeclaredFields, FieldChange};
use kubemoor_declare::model::ObjectId;
use kubemoor_declare::path::{Path, PathLookup, Segment};
use kubemoor_helm::record::ApplyMethod;
use kubemoor_helm::release::FLUX;
use kubemoor_policy::mask::Mask;

/// A declared field that another field manager than Helm owns.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldConflict {
    /// The field.
    #[schemars(with = "String")]
    pub path: Path,
    /// The field manager that owns it.
    #[serde(flatten)]
    pub manager: FieldManager,
    /// When that manager last wrote any field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Whether the field's value differs from the declared one. If so, every upgrade conflicts;
    /// otherwise only an upgrade that changes the field.
    pub differs: bool,
    /// The path of the live element or field, if the keys of a list element were changed or a field was
    /// set that excludes this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub moved_to: Option<Path>,
}

/// A path that an edit changed and that was reverted.
#[derive(Clone, Debug, PartialEq)]
pub struct RevertedPath {
    pub path: Path,
    /// The declared paths at and below it; empty where the manifest declares nothing there.
    pub declared: Vec<Path>,
}

/// The declared fields on which the next upgrade of a release that Helm writes by `method` will conflict, at once or
/// when it changes them: those with an owner other than `helm`; without a `helm`, those with any owner. Fields below a
/// declared empty map are not declared. Empty for client-side releases, and for Flux, which forces its applies.
pub fn conflicts(
    fields: &DeclaredFields,
    live: &Value,
    owners: &Owners,
    helm: Option<&FieldManager>,
    method: ApplyMethod,
) -> Vec<FieldConflict> {
    if method == ApplyMethod::ClientSide || helm.is_some_and(|helm| helm.name == FLUX) {
        return Vec::new();
    }
    let mut found = owned_by_others(fields, live, owners, helm);
    found.retain(|it| !is_key(&it.path));
    let replaced = replacements(fields, live, owners, helm.map(|helm| helm.name.as_str()));
    let is_empty = |path: &Path| {
        fields.leaves().iter().any(|(leaf, value)| leaf == path && value.as_str().is_some_and(str::is_empty))
    };
    for conflict in move_conflicts(replaced, owners) {
        // A manager that changed a declared field is reported at that field already. An empty string excludes nothing.
        let is_known = |it: &FieldConflict| it.path == conflict.path && it.manager == conflict.manager;
        if !found.iter().any(is_known) && !is_empty(&conflict.path) {
            found.push(conflict);
        }
    }
    found
}

/// The declared fields with an owner other than `helm`, keys of list elements included.
fn owned_by_others(
    fields: &DeclaredFields,
    live: &Value,
    owners: &Owners,
    helm: Option<&FieldManager>,
) -> Vec<FieldConflict> {
    let drift = fields.drift(live);
    let drift = drift.iter().filter(|it| it.agreement > FieldAgreement::Doubt);
    let drift: HashSet<u64> = drift.filter_map(|it| prefixes(&it.path).last()).collect();
    let holdings = PathOwners::new(owners);
    let own = helm.and_then(|helm| owners.entry(helm));
    let (mut found, mut lookup) = (Vec::new(), PathLookup::new(live));
    let empties: HashSet<u64> =
        fields.granular_empties().iter().filter_map(|it| prefixes(it).last()).collect();
    for (path, declared) in fields.leaves() {
        let texts = stands_for_text(&path);
        let sent_as_text = texts.is_some_and(|texts| own.is_some_and(|own| own.owned.owns(&texts)));
        let prefixes: Vec<u64> = prefixes(&path).collect();
        let drifts = prefixes.iter().any(|prefix| drift.contains(prefix));
        let differs = drifts || lookup.get(&path).iter().any(|live| is_applied_anew(&declared, live));
        let is_empty = || prefixes.last().is_some_and(|last| empties.contains(last));
        // A null changes nothing if the field is absent, a map or a list; an empty map changes nothing if there is a
        // map.
        let says_nothing = !differs && (declared.is_null() || is_empty());
        if says_nothing || sent_as_text {
            continue;
        }
        for entry in holdings.entries(&prefixes).filter(|entry| Some(&entry.manager) != helm) {
            found.push(FieldConflict {
                path: path.clone(),
                manager: entry.manager.clone(),
                since: entry.since,
                differs,
                moved_to: None,
            });
        }
    }
    found
}

/// The `managedFields` of `live` in which the declared `paths` belong to `helm` and to no other `Update` manager.
/// `Apply` managers keep their fields, because they declare these too. `None` if nothing has to change.
///
/// Meant for fields that have their declared values; if a field has another value, Helm's next apply overwrites it.
pub fn managed_fields_for_helm(live: &Value, helm: &FieldManager, paths: &[Path]) -> Option<Value> {
    let (mut owners, mut lookup) = (Owners::from_object(live), PathLookup::new(live));
    for path in paths.iter().filter(|path| !lookup.get(path).is_empty()) {
        owners.give(Some(helm), path);
    }
    let value = owners.value();
    (live.pointer("/metadata/managedFields") != Some(&value)).then_some(value)
}

/// The `managedFields` that an edit must have after the revert of the paths `back`, which turned it into `result`.
///
/// Reverted fields get back their owners from before the edit; declared ones then belong to Helm, and to no other
/// `Update` manager. If the old object has no `managedFields` (Kubernetes 1.20 sends it like that), the manager that
/// the request names loses the paths even if it applies. `None` if nothing has to change, or the new object has no
/// `managedFields`.
pub(crate) fn managed_fields_after_revert(
    WholeEdit { old, new, field_manager: editor, .. }: WholeEdit<'_>,
    result: &Value,
    back: &[RevertedPath],
    method: ApplyMethod,
) -> Option<Value> {
    let (before, mut owners) = (Owners::from_object(old), Owners::from_object(new));
    if owners.is_empty() {
        return None;
    }
    let known = !before.is_empty();
    let helm = find_helm_manager([&before], method).or_else(|| find_helm_manager([&owners], method));
    let mut lookup = PathLookup::new(result);
    for RevertedPath { path, declared } in back {
        if known {
            owners.as_in(&before, path);
        } else {
            for entry in owners.read_mut().filter(|entry| Some(&entry.manager) != helm.as_ref()) {
                if entry.manager.operation == ManagerOperation::Update || entry.manager.name == editor {
                    entry.owned.remove(path);
                }
            }
        }
        for path in declared.iter().filter(|path| !lookup.get(path).is_empty()) {
            owners.give(helm.as_ref(), path);
        }
        // Also remove parents that the edit created only for this path.
        for length in (2..path.0.len()).rev() {
            let above = Path(path.0.iter().take(length).cloned().collect());
            if !lookup.get(&above).is_empty() {
                break;
            }
            owners.read_mut().for_each(|entry| entry.owned.remove(&above));
        }
    }
    let value = owners.value();
    (new.pointer("/metadata/managedFields") != Some(&value)).then_some(value)
}

/// Whether the API server considers a declared value different from the live one when it checks for conflicts: it
/// compares the value as it was sent, without defaults.
fn is_applied_anew(declared: &Value, live: &Value) -> bool {
    let same = |one: &serde_json::Map<String, Value>, other: &serde_json::Map<String, Value>| {
        one.len() == other.len()
            && one.iter().all(|(name, one)| other.get(name).is_some_and(|other| !is_applied_anew(one, other)))
    };
    match (declared, live) {
        // If a null or an empty value is declared for a map or a list, only the schema tells its
        // meaning.
        (Value::Null, Value::Object(_) | Value::Array(_)) => false,
        (Value::Object(declared), Value::Object(_)) if declared.is_empty() => false,
        (Value::Object(declared), Value::Object(live)) => !same(declared, live),
        (Value::Array(declared), Value::Array(live)) => {
            declared.len() != live.len()
                || declared.iter().zip(live).any(|(declared, live)| is_applied_anew(declared, live))
        }
        (Value::Number(declared), Value::Number(live)) => declared.as_f64() != live.as_f64(),
        (declared, live) => declared != live,
    }
}

/// Whether a path is one of the keys that identify a list element: with another value it would identify another
/// element.
fn is_key(path: &Path) -> bool {
    match &*path.0 {
        [.., Segment::Key(keys), Segment::Field(name)] => keys.iter().any(|(key, _)| key == name),
        _ => false,
    }
}

/// A [`Move`] and the manager that made it.
#[derive(Clone, Debug, PartialEq)]
pub struct Replacement {
    /// The element or field that replaces the declared one.
    pub found: Move,
    /// The manager that set it; `None` if the API server did, or if it is not known.
    pub by: Option<FieldManager>,
    /// Whether a repair may remove it; not if another manager applies it and would set it again.
    pub is_removable: bool,
}

/// The elements and fields of `live` that replace declared ones.
pub fn replacements(
    fields: &DeclaredFields,
    live: &Value,
    owners: &Owners,
    helm: Option<&str>,
) -> Vec<Replacement> {
    let whose = |found: Move| {
        let managers = owners.of_path(&found.live);
        let is_other = |it: &&&FieldManager| Some(it.name.as_str()) != helm;
        let by = managers.iter().find(is_other).map(|it| (*it).clone());
        let applies = managers.iter().filter(is_other).any(|it| it.operation == ManagerOperation::Apply);
        if found.is_of_field() || found.is_exclusive && applies {
            return Some(Replacement { found, by, is_removable: !applies });
        }
        let is_moved = by.is_some() && managers.iter().all(|it| it.operation == ManagerOperation::Update);
        is_moved.then_some(Replacement { found, by, is_removable: true })
    };
    fields.moved(live).into_iter().filter_map(whose).collect()
}

/// Undeclared siblings of the declared field at `path` that `Update` managers have set. One of them may exclude the
/// declared value, as `privileged` excludes `allowPrivilegeEscalation: false`: only an error of the API server shows
/// this.
pub fn undeclared_siblings(
    fields: &DeclaredFields,
    live: &Value,
    owners: &Owners,
    helm: Option<&str>,
    path: &Path,
) -> Vec<Replacement> {
    let Some((Segment::Field(own), above)) = path.0.split_last() else { return Vec::new() };
    let above = Path(above.into());
    let Some(Value::Object(map)) = above.get(live).first().copied() else { return Vec::new() };
    let set = |name: &String| {
        let beside = above.of_field(name);
        let found = Move { declared: path.clone(), live: beside, is_exclusive: false };
        let managers = owners.of_path(&found.live);
        let is_editor = |it: &&FieldManager| {
            it.operation == ManagerOperation::Update && it.subresource.is_empty() && !is_controller(&it.name)
        };
        // Helm may own the value around it, of which a repair has left out every declared field.
        let others: Vec<_> = managers.into_iter().filter(|it| Some(it.name.as_str()) != helm).collect();
        let by = FieldManager::clone(others.first()?);
        others.iter().all(is_editor).then_some(Replacement { found, by: Some(by), is_removable: true })
    };
    let undeclared = map.keys().filter(|name| *name != own && !fields.declares(&above.of_field(name)));
    undeclared.filter_map(set).collect()
}

/// The conflicts of the next upgrade with these replacements: it adds the declared element or field beside each, and
/// the API server refuses both together.
fn move_conflicts(found: Vec<Replacement>, owners: &Owners) -> impl Iterator<Item = FieldConflict> {
    found.into_iter().filter_map(|Replacement { found, by, .. }| {
        let manager = by?;
        Some(FieldConflict {
            since: owners.entry(&manager).and_then(|entry| entry.since),
            path: found.declared,
            manager,
            differs: true,
            moved_to: Some(found.live),
        })
    })
}

/// The field managers of Kubernetes' own programs, which write declared fields only as a part of their work.
const CONTROLLERS: [&str; 3] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];

/// Declared fields of one object that another manager owns.
#[derive(Clone, Debug, PartialEq)]
pub struct TakenFields {
    /// Helm's own manager.
    pub helm: FieldManager,
    pub by: String,
    pub paths: Vec<Path>,
}

/// The declared fields of `live`, a matching object, that an `Update` manager such as kubectl owns, alone or together
/// with Helm, so that Helm's next upgrade may fail; without the fields that `spared` covers. `None` for client-side
/// releases, and for Flux, which forces its applies. Keys of list elements count: their owner owns the element, which
/// then stays after an upgrade that drops it. A field that is spelled differently from the manifest counts too: a dry
/// run has shown that the API server stores the declared value like this.
pub fn find_taken_fields(
    fields: &DeclaredFields,
    live: &Value,
    method: ApplyMethod,
    spared: &Mask,
) -> Option<TakenFields> {
    if method != ApplyMethod::ServerSide {
        return None;
    }
    let owners = Owners::from_object(live);
    let helm = find_helm_manager([&owners], method).filter(|helm| helm.name != FLUX)?;
    let (mut paths, mut by, mut lookup) = (Vec::new(), None, PathLookup::new(live));
    for conflict in owned_by_others(fields, live, &owners, Some(&helm)) {
        let manager = &conflict.manager;
        if manager.operation == ManagerOperation::Update
            && !is_controller(&manager.name)
            && !spared.covers(&conflict.path)
            && !lookup.get(&conflict.path).is_empty()
        {
            paths.push(conflict.path);
            by.get_or_insert(conflict.manager.name);
        }
    }
    paths.dedup();
    // An element is returned with its fields; its keys are named last.
    paths.sort_by_key(is_key);
    // Fields that cannot be returned are not reported.
    by.filter(|_| managed_fields_for_helm(live, &helm, &paths).is_some()).map(|by| TakenFields {
        helm,
        by,
        paths,
    })
}

/// Whether a field manager is a program of Kubernetes itself.
pub fn is_controller(name: &str) -> bool {
    CONTROLLERS.contains(&name)
}

/// The groups below `k8s.io` whose types Helm knows. For other kinds in a group with a dot, client-side Helm makes its
/// patch without the live object.
const KNOWN: [&str; 15] = [
    "admissionregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// The state that an upgrade would find in one object.
#[derive(Clone, Debug)]
pub struct NextUpgrade {
    object: ObjectId,
    conflicts: Vec<FieldConflict>,
    /// The empty maps that the manifest declares; the upgrade keeps what others set below them.
    empties: Vec<Path>,
    method: ApplyMethod,
    /// Flux applies with force and meets no conflict.
    is_forced: bool,
    /// Client-side Helm sends only the fields that the chart changes.
    is_generic: bool,
}

/// What the next upgrade does to a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Sets,
    Leaves,
    /// It leaves a changed value until the chart changes the field.
    LeavesUntilChanged,
    /// It fails: this field manager owns the field, with another value.
    Fails(String),
    /// It passes, and fails once the chart changes the field: this field manager owns it too.
    FailsOnceChanged(String),
    /// It passes, and fails once somebody changes the live value.
    FailsOnceEdited,
}

impl NextUpgrade {
    /// The state of `live` for an upgrade of a release that Helm writes by `method`, as the field manager `helm`.
    pub fn new(
        object: &ObjectId,
        fields: &DeclaredFields,
        live: &Value,
        (helm, method): (Option<&FieldManager>, ApplyMethod),
    ) -> Self {
        let conflicts = conflicts(fields, live, &Owners::from_object(live), helm, method);
        let group = object.group.as_str();
        let is_forced = helm.is_some_and(|helm| helm.name == FLUX);
        let is_generic = group.contains('.') && !KNOWN.contains(&group);
        Self {
            object: object.clone(),
            conflicts,
            empties: fields.granular_empties(),
            method,
            is_forced,
            is_generic,
        }
    }

    pub fn conflicts(&self) -> &[FieldConflict] {
        &self.conflicts
    }

    pub fn effect(&self, change: &FieldChange) -> Effect {
        let FieldChange { path, declared, new: live, agreement, .. } = change;
        let is_there = |it: &&FieldConflict| it.path.0.starts_with(&path.0) || path.0.starts_with(&it.path.0);
        if !sealed::is_declared(&self.object, change) || is_alternative(change) {
            return Effect::Leaves;
        }
        if let Some(FieldConflict { manager, differs, .. }) =
            self.conflicts.iter().filter(is_there).max_by_key(|it| it.differs)
        {
            return match differs {
                true => Effect::Fails(manager.name.clone()),
                false => Effect::FailsOnceChanged(manager.name.clone()),
            };
        }
        match (self.method, *agreement == FieldAgreement::Agrees) {
            (_, true) if self.empties.contains(path) => Effect::Leaves,
            (ApplyMethod::ServerSide, true) if !self.is_forced => Effect::FailsOnceEdited,
            (ApplyMethod::ClientSide, _) if self.is_generic => Effect::LeavesUntilChanged,
            // A merge adds and changes entries, and removes only those that an older manifest declares.
            (ApplyMethod::ClientSide, false) if is_within(declared.as_ref(), live.as_ref()) => Effect::Leaves,
            _ => Effect::Sets,
        }
    }
}

impl Effect {
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Fails(_))
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const FORCED: &str = "with --force-conflicts it sets the release's value";
        match self {
            Self::Sets => f.write_str("sets the release's value"),
            Self::Leaves => f.write_str("leaves it as it is"),
            Self::LeavesUntilChanged => f.write_str("keeps a changed value until the chart changes it"),
            Self::Fails(manager) => {
                write!(f, "fails with a conflict with field manager {manager}; {FORCED}")
            }
            Self::FailsOnceChanged(manager) => write!(
                f,
                "passes while the value stays; once the chart changes it, fails with a conflict with field manager \
                 {manager}"
            ),
            Self::FailsOnceEdited => {
                write!(f, "fails with a conflict if somebody changes the value before; {FORCED}")
            }
        }
    }
}

/// Whether a live map has all the entries that are declared for it.
fn is_within(declared: Option<&Value>, live: Option<&Value>) -> bool {
    match (declared, live) {
        (Some(Value::Object(declared)), Some(Value::Object(live))) => declared.iter().all(|(name, value)| {
            live.get(name).is_some_and(|live| live == value || is_within(Some(value), Some(live)))
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
