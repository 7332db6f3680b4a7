//! What an edit changes, held against the exceptions.
//!
//! Entry point: [`weigh`]. Invariant: every change is a finding, is allowed, or has a reason why it
//! passes. Must not decide what the mode makes of it, nor look at an object.

use super::super::difference::Values;
use super::super::edit::{Finding, Reason};
use super::super::exceptions::Exceptions;
use super::super::facts::{AlternativeFacts, ChangeFacts, ChangeKind};
use crate::declaration::equality::Agreement;
use crate::declaration::fields::FieldChange;
use crate::model::ObjectId;

/// What came of it.
pub(super) struct Weighed {
    pub(super) findings: Vec<Finding>,
    /// Whether neither a webhook that only adds nor a server that drops what it
    /// does not know can have made one of them.
    pub(super) certain: bool,
    /// Whether a dry run can tell of all of them that they are as declared.
    pub(super) in_doubt: bool,
    /// What drifts and may, since an allowance covers it.
    pub(super) allowed: Vec<Finding>,
    /// The allowances that do.
    pub(super) allowed_by: Vec<String>,
    /// Why the edit passes if there is no finding.
    pub(super) reason: Reason,
}

/// Weighs what an edit of `object` changes.
pub(super) fn weigh(object: &ObjectId, facts: &AlternativeFacts, exceptions: &Exceptions<'_>) -> Weighed {
    let (findings, allowed, allowed_by, reason) = (Vec::new(), Vec::new(), Vec::new(), facts.reason);
    let mut weighed = Weighed { findings, certain: false, in_doubt: true, allowed, allowed_by, reason };
    for ChangeFacts { change, kind } in &facts.changes {
        // A declared null is judged already.
        if matches!(kind, ChangeKind::Sealed | ChangeKind::Owner)
            && weighed.findings.iter().any(|finding| finding.path == change.path)
        {
            continue;
        }
        let excused = match kind {
            ChangeKind::Declared => exceptions.of_field(change),
            ChangeKind::Owner => exceptions.of_deletion(),
            ChangeKind::Sealed | ChangeKind::Added => {
                exceptions.of_sealed(&change.path, change.old.as_ref(), change.new.as_ref())
            }
        };
        if excused.is_none() && *kind != ChangeKind::Added {
            weighed.certain |= change.agreement == Agreement::Differs;
            weighed.in_doubt &= matches!(change.agreement, Agreement::Doubt | Agreement::Missing);
        }
        match excused {
            None => weighed.findings.push(finding(object, change, *kind)),
            Some(Reason::Allowed) => {
                weighed.allowed_by.extend(match kind {
                    ChangeKind::Owner => exceptions.naming_deletion(),
                    _ => exceptions.naming(&change.path),
                });
                weighed.allowed.push(finding(object, change, *kind));
            }
            Some(other) => weighed.reason = other,
        }
    }
    weighed
}

fn finding(object: &ObjectId, change: &FieldChange, kind: ChangeKind) -> Finding {
    let FieldChange { path, declared, old, new, agreement } = change;
    let values = Values::of(object, path, [declared.as_ref(), old.as_ref(), new.as_ref()]);
    let (doubt, added) = (*agreement == Agreement::Doubt, kind == ChangeKind::Added);
    Finding { doubt, added, ..Finding::of(path.clone(), values) }
}

impl Weighed {
    /// How far the edit is from what is declared: what is only in doubt weighs
    /// least, however much of it there is.
    pub(super) fn weight(&self) -> (bool, usize) {
        (self.findings.iter().any(|finding| !finding.doubt), self.findings.len())
    }
}
