//! Declared list elements that somebody gave other keys.
//!
//! Entry point: [`moved`]. Invariant: only what a manager that updates, as kubectl does, wrote is taken for a moved
//! element: what an applier declares itself, or Helm alone has left, is an element of its own. Kubernetes 1.20 may name
//! Helm beside the editor.

use serde_json::Value;

use super::{Conflict, Manager, Operation, Owners};
use crate::declaration::compare::Move;
use crate::declaration::fields::Fields;

/// The elements of `live` that were moved, with who did it. `helm` is the name of Helm's own manager.
pub fn moved(fields: &Fields, live: &Value, owners: &Owners, helm: Option<&str>) -> Vec<(Move, Manager)> {
    let by = |found: Move| {
        let managers = owners.of_path(&found.live);
        let by = managers.iter().find(|it| Some(it.name.as_str()) != helm).map(|it| (*it).clone())?;
        managers.iter().all(|it| it.operation == Operation::Update).then_some((found, by))
    };
    fields.moved(live).into_iter().filter_map(by).collect()
}

/// The conflicts that these elements make for the next upgrade: it adds what is declared beside them, which the API
/// server refuses where both hold what only one may.
pub(super) fn conflicts(moved: Vec<(Move, Manager)>, owners: &Owners) -> impl Iterator<Item = Conflict> {
    moved.into_iter().map(|(found, manager)| Conflict {
        since: owners.entry(&manager).and_then(|entry| entry.since),
        path: found.declared,
        manager,
        differs: true,
        moved_to: Some(found.live),
    })
}
