//! Declared list elements whose keys were changed.
//!
//! Entry point: [`moved`]. Invariant: only an element that was written by a manager that updates,
//! such as kubectl, counts as moved: an element that a manager applies, or that only Helm has left,
//! is a separate one. Kubernetes 1.20 may name Helm besides the editor. Must not change anything.

use serde_json::Value;

use super::{Conflict, Manager, Operation, Owners};
use kubemoor_declare::compare::Move;
use kubemoor_declare::fields::Fields;

/// The moved elements of `live`, with the managers that moved them.
pub fn moved(fields: &Fields, live: &Value, owners: &Owners, helm: Option<&str>) -> Vec<(Move, Manager)> {
    let by = |found: Move| {
        let managers = owners.of_path(&found.live);
        let by = managers.iter().find(|it| Some(it.name.as_str()) != helm).map(|it| (*it).clone())?;
        managers.iter().all(|it| it.operation == Operation::Update).then_some((found, by))
    };
    fields.moved(live).into_iter().filter_map(by).collect()
}

/// The conflicts of the next upgrade because of these elements: it adds the declared elements
/// beside them, and the API server refuses two elements with the same unique value.
pub(super) fn conflicts(moved: Vec<(Move, Manager)>, owners: &Owners) -> impl Iterator<Item = Conflict> {
    moved.into_iter().map(|(found, manager)| Conflict {
        since: owners.entry(&manager).and_then(|entry| entry.since),
        path: found.declared,
        manager,
        differs: true,
        moved_to: Some(found.live),
    })
}
