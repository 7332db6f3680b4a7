//! The changes that this process saw and gave rows in the ledger, until they have been compared with the ledger.
//!
//! Entry points: [`Witnessed::note`], [`Witnessed::has`], [`Witnessed::close`]. Invariant: what was noted stays noted until
//! the end of the only comparison, within a bounded memory; beyond it everything counts as seen, so no end is recorded
//! twice. Must not read the ledger.

use std::collections::HashSet;

use parking_lot::Mutex;

use kubemoor_declare::model::ObjectId;

/// The most subjects that are noted: a replica may wait for months to lead, while policies and autoscalers of other
/// names come and go.
const MOST: usize = 100_000;

/// The subjects of rows that this process has recorded.
pub(in crate::app) struct Witnessed(Mutex<Noted>);

/// What a row is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::app) struct Subject {
    /// The policy, or the workload.
    pub(in crate::app) object: ObjectId,
    /// The name of the workload's autoscaler; empty for a policy.
    pub(in crate::app) autoscaler: String,
}

enum Noted {
    Some(HashSet<Subject>),
    /// Too many, or nobody asks any more.
    Everything,
}

impl Witnessed {
    /// Records a subject.
    pub(in crate::app) fn note(&self, subject: Subject) {
        let mut noted = self.0.lock();
        if let Noted::Some(subjects) = &mut *noted {
            subjects.insert(subject);
            if subjects.len() > MOST {
                *noted = Noted::Everything;
            }
        }
    }

    /// Whether this process has recorded a row about the subject, as far as it remembers that.
    pub(in crate::app) fn has(&self, subject: &Subject) -> bool {
        match &*self.0.lock() {
            Noted::Some(subjects) => subjects.contains(subject),
            Noted::Everything => true,
        }
    }

    /// Forgets all subjects: nobody asks any more.
    pub(in crate::app) fn close(&self) {
        *self.0.lock() = Noted::Everything;
    }
}

impl Default for Witnessed {
    fn default() -> Self {
        Self(Mutex::new(Noted::Some(HashSet::new())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(number: usize) -> Subject {
        let object = ObjectId {
            group: "kubemoor.dev".into(),
            kind: "DriftPolicy".into(),
            namespace: None,
            name: format!("p{number}").into(),
        };
        Subject { object, autoscaler: String::new() }
    }

    impl Witnessed {
        fn len(&self) -> usize {
            match &*self.0.lock() {
                Noted::Some(subjects) => subjects.len(),
                Noted::Everything => 0,
            }
        }
    }

    #[test]
    fn memory_is_bounded_and_no_end_is_recorded_twice() {
        let witnessed = Witnessed::default();
        (0..MOST).for_each(|number| witnessed.note(subject(number)));
        assert!(witnessed.has(&subject(0)) && !witnessed.has(&subject(MOST)));
        witnessed.note(subject(MOST));
        assert_eq!(witnessed.len(), 0);
        assert!(witnessed.has(&subject(0)) && witnessed.has(&subject(MOST)));
    }

    #[test]
    fn nothing_is_kept_after_the_comparison() {
        let witnessed = Witnessed::default();
        witnessed.note(subject(0));
        witnessed.close();
        witnessed.note(subject(1));
        assert_eq!(witnessed.len(), 0);
    }
}
