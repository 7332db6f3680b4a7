//! Declared list elements and fields whose place something undeclared has taken.
//!
//! Only an element that was written by a manager that updates, such as kubectl, counts as moved: an element that a
//! manager applies, or that only Helm has left, is a separate one. Kubernetes 1.20 may name Helm besides the editor.
//! A field that excludes a declared one is always in its way, and may be removed unless another manager applies it.

use serde_json::Value;

use super::{Conflict, Manager, Operation, Owners, is_controller};
use kubemoor_declare::compare::Move;
use kubemoor_declare::fields::Fields;
use kubemoor_declare::path::{Path, Segment};

/// A [`Move`], and whose it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Replacement {
    /// What takes the place of what is declared.
    pub found: Move,
    /// The manager that put it there; `None` where the API server did, or nobody knows.
    pub by: Option<Manager>,
    /// Whether a repair may remove it: another manager applies it otherwise, and would put it there again.
    pub is_removable: bool,
}

/// What takes the place of declared elements and fields of `live`.
pub fn replacements(fields: &Fields, live: &Value, owners: &Owners, helm: Option<&str>) -> Vec<Replacement> {
    let whose = |found: Move| {
        let managers = owners.of_path(&found.live);
        let is_other = |it: &&&Manager| Some(it.name.as_str()) != helm;
        let by = managers.iter().find(is_other).map(|it| (*it).clone());
        if found.is_of_field() {
            let applies = managers.iter().filter(is_other).any(|it| it.operation == Operation::Apply);
            return Some(Replacement { found, by, is_removable: !applies });
        }
        let is_moved = by.is_some() && managers.iter().all(|it| it.operation == Operation::Update);
        is_moved.then_some(Replacement { found, by, is_removable: true })
    };
    fields.moved(live).into_iter().filter_map(whose).collect()
}

/// Undeclared fields beside the declared one at `path` that managers which update have set. One of them may exclude the
/// declared value, as `privileged` excludes `allowPrivilegeEscalation: false`: only the API server's refusal tells.
pub fn set_beside(
    fields: &Fields,
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
        let found = Move { declared: path.clone(), live: beside };
        let managers = owners.of_path(&found.live);
        let is_editor = |it: &&Manager| {
            it.operation == Operation::Update && it.subresource.is_empty() && !is_controller(&it.name)
        };
        let are_editors = managers.iter().all(is_editor);
        let by = managers.into_iter().find(|it| Some(it.name.as_str()) != helm)?.clone();
        are_editors.then_some(Replacement { found, by: Some(by), is_removable: true })
    };
    let undeclared = map.keys().filter(|name| *name != own && !fields.declares(&above.of_field(name)));
    undeclared.filter_map(set).collect()
}

/// The conflicts of the next upgrade because of these: it adds what is declared beside them, and the API server refuses
/// the two together.
pub(super) fn conflicts(found: Vec<Replacement>, owners: &Owners) -> impl Iterator<Item = Conflict> {
    found.into_iter().filter_map(|Replacement { found, by, .. }| {
        let manager = by?;
        Some(Conflict {
            since: owners.entry(&manager).and_then(|entry| entry.since),
            path: found.declared,
            manager,
            differs: true,
            moved_to: Some(found.live),
        })
    })
}
