//! The verdict on a live object: what of it is not as declared.
//!
//! Entry point: [`drift`]. Invariant: the same comparison and the same
//! exceptions as for edits, without an editor: what [`super::judge`] would let
//! anybody write is no drift. Must not say what is done about it.

use serde_json::Value;

use super::edit::{Evidence, Finding};
use super::shown::Shown;
use crate::declaration::equality::Agreement;
use crate::declaration::fields::FieldChange;
use crate::helm::release::Declared;
use crate::helm::state::Standing;
use crate::model::ObjectId;
use crate::policy::mask::Mask;

/// How a live object stands against what its release declares.
#[derive(Clone, Debug)]
pub struct Drift<'r> {
    /// The declaration that it is held to: of several the one that it is
    /// nearest to.
    pub declared: &'r Declared,
    /// The declared paths at which it is not, or may not be, as declared. In
    /// each, `new` is the live value; `old` is none.
    pub changes: Vec<FieldChange>,
}

/// Holds `live`, in the version of the manifest, against the declarations of
/// `standing`; agreeing with one is enough. None if there are none.
///
/// What is in doubt is settled by `evidence`, which is about the first of the
/// declarations; without any it stays among the changes. What `spared` covers
/// is not compared: by an ignore rule, an open allowance or an autoscaler.
pub fn drift<'r>(
    standing: &Standing<'r>,
    live: &Value,
    spared: &Mask,
    evidence: Evidence<'_>,
) -> Option<Drift<'r>> {
    let mut nearest: Option<Drift<'r>> = None;
    for (index, declared) in standing.alternatives.iter().enumerate() {
        let evidence = if index == 0 { evidence } else { Evidence::None };
        let drift = Drift { declared, changes: changes(declared, live, spared, evidence) };
        if nearest.as_ref().is_none_or(|nearest| drift.weight() < nearest.weight()) {
            nearest = Some(drift);
        }
    }
    nearest
}

/// The changes as a person may see them.
pub fn findings(object: &ObjectId, changes: &[FieldChange]) -> Vec<Finding> {
    let shown = |change: &FieldChange, value: &Option<Value>| {
        value.as_ref().map(|value| Shown::of(object, &change.path, value))
    };
    let finding = |change: &FieldChange| Finding {
        path: change.path.clone(),
        declared: shown(change, &change.declared),
        old: None,
        new: shown(change, &change.new),
        doubt: change.agreement == Agreement::Doubt,
    };
    changes.iter().map(finding).collect()
}

impl Drift<'_> {
    /// Whether all is as declared.
    pub fn is_none(&self) -> bool {
        self.changes.is_empty()
    }

    /// Whether nothing is known to differ, and something may.
    pub fn is_doubt(&self) -> bool {
        !self.is_none() && self.changes.iter().all(|change| change.agreement == Agreement::Doubt)
    }

    /// Whether only the arbiter can tell of something.
    pub fn has_doubt(&self) -> bool {
        self.changes.iter().any(|change| change.agreement == Agreement::Doubt)
    }

    fn weight(&self) -> (bool, usize) {
        (!self.is_none() && !self.is_doubt(), self.changes.len())
    }
}

fn changes(declared: &Declared, live: &Value, spared: &Mask, evidence: Evidence<'_>) -> Vec<FieldChange> {
    if declared.opted_out {
        return Vec::new();
    }
    let settled = |mut change: FieldChange| {
        if is_spared(spared, &change) {
            return None;
        }
        if let (Agreement::Doubt, Evidence::Canonical(canonical)) = (change.agreement, evidence) {
            change.agreement = declared.fields.settle(&change, canonical);
        }
        (change.agreement != Agreement::Agrees).then_some(change)
    };
    declared.fields.drift(live).into_iter().filter_map(settled).collect()
}

/// Whether all that differs is left alone. Of a value that is compared as one,
/// only a part may be.
fn is_spared(spared: &Mask, change: &FieldChange) -> bool {
    let FieldChange { path, declared, new, .. } = change;
    spared.covers(path)
        || (spared.reaches_below(path)
            && spared.carry_at(path, new.as_ref(), declared.as_ref()).as_ref() == new.as_ref())
}

#[cfg(test)]
mod tests;
