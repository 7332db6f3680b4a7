//! The settled values of all objects.
//!
//! Entry points: [`Settlements`] for one owner, [`SettledValues`] for all code that judges. Invariant: only values of
//! an object's last declaration are kept. Must not make a dry run.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use super::Settled;
use kubemoor_declare::model::{ObjectId, ReleaseId};

/// The values of all objects that dry runs have settled.
#[derive(Debug, Default)]
pub struct Settlements(HashMap<ObjectId, Arc<Settled>>);

/// The same, shared by all code that judges.
#[derive(Debug, Default)]
pub struct SettledValues(RwLock<Settlements>);

impl Settlements {
    /// The settled values of an object.
    pub fn of(&self, object: &ObjectId) -> Option<Arc<Settled>> {
        self.0.get(object).cloned()
    }

    /// Records values that a dry run has settled, here or in an earlier guard. Returns whether they
    /// are new.
    pub fn learn(&mut self, object: &ObjectId, settled: Settled) -> bool {
        if settled.values.is_empty() {
            return false;
        }
        let settled = match self.0.get(object) {
            Some(before) => settled.after(before),
            None => settled,
        };
        let before = self.0.insert(object.clone(), Arc::new(settled.clone()));
        before.is_none_or(|before| *before != settled)
    }

    /// Forgets the values of an object that a release has ceased to declare.
    pub fn forget(&mut self, release: &ReleaseId, object: &ObjectId) {
        if self.0.get(object).is_some_and(|settled| settled.release == *release) {
            self.0.remove(object);
        }
    }
}

impl SettledValues {
    /// The settled values of an object.
    pub fn of(&self, object: &ObjectId) -> Option<Arc<Settled>> {
        self.0.read().of(object)
    }

    /// Records values that a dry run has settled, here or in an earlier guard. Returns whether they
    /// are new.
    pub fn learn(&self, object: &ObjectId, settled: Settled) -> bool {
        self.0.write().learn(object, settled)
    }

    /// Forgets the values of objects that a release has ceased to declare.
    pub fn forget<'o>(&self, release: &ReleaseId, objects: impl IntoIterator<Item = &'o ObjectId>) {
        let mut settled = self.0.write();
        objects.into_iter().for_each(|object| settled.forget(release, object));
    }
}
