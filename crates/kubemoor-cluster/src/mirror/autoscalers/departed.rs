//! Remembers deleted autoscalers.
//!
//! Entry point: [`Departed`]. Invariant: pure state, bounded. Must not decide whether their replicas stay.

use std::collections::HashMap;

use jiff::Timestamp;

use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_reconcile::departure::Departure;

/// How many workloads whose autoscaler went are remembered.
pub(super) const REMEMBERED: usize = 10_000;

/// The workloads whose autoscalers went.
#[derive(Default)]
pub(super) struct Departed(HashMap<ObjectId, Departure>);

impl Departed {
    pub(super) fn workloads(&self) -> impl Iterator<Item = &ObjectId> {
        self.0.keys()
    }

    pub(super) fn of(&self, workload: &ObjectId) -> Option<&Departure> {
        self.0.get(workload)
    }

    /// An autoscaler of a workload went that these releases declared. Returns the workload that is forgotten for it.
    pub(super) fn note(
        &mut self,
        workload: &ObjectId,
        declared_by: Vec<ReleaseId>,
        now: Timestamp,
    ) -> Option<ObjectId> {
        let declared = (!declared_by.is_empty()).then_some((now, declared_by));
        if let Some(known) = self.0.get_mut(workload) {
            known.last = now;
            known.declared = declared.or_else(|| known.declared.take());
            return None;
        }
        let is_full = self.0.len() >= REMEMBERED;
        let oldest = self.0.iter().filter(|_| is_full).min_by_key(|(_, it)| it.last);
        let oldest = oldest.map(|(id, _)| id.clone());
        oldest.iter().for_each(|oldest| self.forget(oldest));
        self.0.insert(workload.clone(), Departure { last: now, declared });
        oldest
    }

    /// Notes that a workload is scaled again. An undeclared autoscaler is not a successor of a declared one.
    pub(super) fn succeed(&mut self, workload: &ObjectId, is_declared: bool) {
        if is_declared || self.of(workload).is_some_and(|known| known.declared.is_none()) {
            self.0.remove(workload);
        }
    }

    pub(super) fn forget(&mut self, workload: &ObjectId) {
        self.0.remove(workload);
    }
}

#[cfg(test)]
mod tests;
