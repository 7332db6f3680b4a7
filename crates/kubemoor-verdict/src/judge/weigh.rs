//! The changes of an edit, compared with the exceptions.
//!
//! Entry point: [`weigh`]. Invariant: every change is a finding, is covered by an allowance, or has
//! a reason why it passes. Must not apply the mode or look at an object.

use super::super::difference::Values;
use super::super::edit::{Finding, Reason};
use super::super::exceptions::Exceptions;
use super::super::facts::{AlternativeFacts, ChangeFacts, ChangeKind};
use kubemoor_declare::equality::Agreement;
use kubemoor_declare::fields::{FieldChange, Fields};
use kubemoor_declare::model::ObjectId;

/// The result.
pub(super) struct Weighed {
    pub(super) findings: Vec<Finding>,
    /// Whether one of them cannot come from a webhook that only adds fields or an API server that
    /// drops unknown ones.
    pub(super) certain: bool,
    /// Whether a dry run could show that all of them match the declaration.
    pub(super) in_doubt: bool,
    /// Whether all of them may come from the merge of a running Helm operation.
    pub(super) merged: bool,
    /// The drift that an allowance covers.
    pub(super) allowed: Vec<Finding>,
    /// These allowances.
    pub(super) allowed_by: Vec<String>,
    /// The reason why the edit is allowed if there is no finding.
    pub(super) reason: Reason,
}

/// Weighs what an edit of `object` changes.
pub(super) fn weigh(object: &ObjectId, facts: &AlternativeFacts, exceptions: &Exceptions<'_>) -> Weighed {
    let mut weighed = Weighed { merged: true, ..Weighed::of_nothing(facts.reason) };
    for it in &facts.changes {
        let ChangeFacts { change, kind, .. } = it;
        // A declared null and a field in the place of a declared one are judged already.
        if !matches!(kind, ChangeKind::Declared | ChangeKind::Merged)
            && weighed.findings.iter().any(|finding| finding.path == change.path)
        {
            continue;
        }
        let excused = match kind {
            ChangeKind::Declared | ChangeKind::Merged => exceptions.of_field(change),
            ChangeKind::Owner => exceptions.of_deletion(),
            ChangeKind::Sealed | ChangeKind::Added => {
                exceptions.of_sealed(&change.path, change.old.as_ref(), change.new.as_ref())
            }
        };
        if excused.is_none() && *kind != ChangeKind::Added {
            weighed.certain |= change.agreement == Agreement::Differs && *kind != ChangeKind::Merged;
            weighed.in_doubt &= matches!(change.agreement, Agreement::Doubt | Agreement::Missing);
        }
        weighed.merged &= excused.is_some() || *kind == ChangeKind::Merged;
        match excused {
            None => weighed.findings.push(finding(object, it, &facts.fields)),
            Some(Reason::Allowed) => {
                weighed.allowed_by.extend(match kind {
                    ChangeKind::Owner => exceptions.naming_deletion(),
                    _ => exceptions.naming(&change.path),
                });
                weighed.allowed.push(finding(object, it, &facts.fields));
            }
            Some(other) => weighed.reason = other,
        }
    }
    weighed
}

fn finding(object: &ObjectId, facts: &ChangeFacts, fields: &Fields) -> Finding {
    let ChangeFacts { change: FieldChange { path, declared, old, new, agreement }, kind, element } = facts;
    let values = match element {
        // A change of an element's existence holds only its keys.
        Some(element) => {
            let declared = fields.element(path);
            Values::of(object, path, [declared.as_ref(), element.old.as_ref(), element.new.as_ref()])
        }
        None => Values::of(object, path, [declared.as_ref(), old.as_ref(), new.as_ref()]),
    };
    let (doubt, added) = (*agreement == Agreement::Doubt, *kind == ChangeKind::Added);
    Finding { doubt, added, ..Finding::of(path.clone(), values) }
}

impl Weighed {
    /// No change, which has this reason.
    pub(super) fn of_nothing(reason: Reason) -> Self {
        let (findings, allowed, allowed_by) = (Vec::new(), Vec::new(), Vec::new());
        Self { findings, certain: false, in_doubt: true, merged: false, allowed, allowed_by, reason }
    }

    /// The distance of the edit from the declaration: doubts weigh least, however many there are.
    pub(super) fn weight(&self) -> (bool, usize) {
        (self.findings.iter().any(|finding| !finding.doubt), self.findings.len())
    }
}
