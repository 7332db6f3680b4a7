//! The changes that this process saw and gave rows in the ledger.
//!
//! Entry point: [`Witnessed`]. Invariant: what was noted once stays noted. Must not read the ledger.

use std::collections::HashSet;

use parking_lot::Mutex;

use crate::model::ObjectId;

/// The subjects of rows that this process has recorded.
#[derive(Default)]
pub(in crate::app) struct Witnessed(Mutex<HashSet<Subject>>);

/// What a row is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::app) struct Subject {
    /// The policy, or the workload.
    pub(in crate::app) object: ObjectId,
    /// The name of the workload's autoscaler; empty for a policy.
    pub(in crate::app) autoscaler: String,
}

impl Witnessed {
    /// Records a subject.
    pub(in crate::app) fn note(&self, subject: Subject) {
        self.0.lock().insert(subject);
    }

    /// Whether this process has recorded a row about the subject.
    pub(in crate::app) fn has(&self, subject: &Subject) -> bool {
        self.0.lock().contains(subject)
    }
}
