//! One edit, held against one manifest.
//!
//! Entry point: [`Weighing::weigh`]. Invariant: everything by which the object would differ from
//! the manifest is a finding, is allowed, or has a reason why it passes. Must not decide what the
//! mode makes of it.

use std::sync::Arc;

use serde_json::Value;

use super::super::circumstances::DeclaredObject;
use super::super::difference::Values;
use super::super::edit::{Edit, Evidence, Finding, Reason};
use super::super::exceptions::Exceptions;
use super::super::{additions, identities, sealed};
use crate::declaration::additions::Addition;
use crate::declaration::compare::Settler;
use crate::declaration::equality::Agreement;
use crate::declaration::fields::{FieldChange, Fields};
use crate::helm::release::Declared;
use crate::helm::state::Standing;

/// An edit, and the manifest that it is held against.
pub(super) struct Weighing<'a> {
    pub(super) edit: &'a Edit<'a>,
    /// The object after the edit.
    pub(super) new: &'a Value,
    pub(super) standing: &'a Standing<'a>,
    pub(super) declared: &'a Arc<Declared>,
    /// Its fields.
    pub(super) fields: &'a Fields,
    pub(super) exceptions: Exceptions<'a>,
    pub(super) evidence: Evidence<'a>,
}

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
    /// Why the edit passes if there is no finding.
    pub(super) reason: Reason,
}

impl Weighed {
    /// How far the edit is from what is declared: what is only in doubt weighs
    /// least, however much of it there is.
    pub(super) fn weight(&self) -> (bool, usize) {
        (self.findings.iter().any(|finding| !finding.doubt), self.findings.len())
    }

    /// Takes a difference in, by why it may be; none where it may not.
    fn add(&mut self, finding: Finding, excused: Option<Reason>) {
        match excused {
            None => self.findings.push(finding),
            Some(Reason::Allowed) => self.allowed.push(finding),
            Some(other) => self.reason = other,
        }
    }
}

impl Weighing<'_> {
    /// Weighs the declared fields, then what is sealed, then what is added below sealed paths.
    pub(super) fn weigh(&self) -> Weighed {
        let Edit { old, scale, .. } = *self.edit;
        let changes = match old {
            Some(old) => self.fields.changed(old, self.new),
            None => self.fields.drift(self.new),
        };
        let reason = if changes.is_empty() { Reason::Unchanged } else { Reason::AsDeclared };
        let (findings, allowed) = (Vec::new(), Vec::new());
        let mut weighed = Weighed { findings, certain: false, in_doubt: true, allowed, reason };
        self.add_declared(changes, &mut weighed);
        if let (Some(old), false) = (old, scale) {
            for change in sealed::changes(self.edit.object, self.fields, old, self.new) {
                self.add_sealed(change, old, &mut weighed);
            }
        }
        self.add_additions(&mut weighed);
        weighed
    }

    fn add_declared(&self, changes: Vec<FieldChange>, weighed: &mut Weighed) {
        let Self { edit, standing, declared, .. } = self;
        let of = DeclaredObject { object: edit.object, release: &standing.release.id, declared };
        let mut settler = self.settler();
        for change in changes {
            if identities::writes(edit.actor, edit.object, &change.path) {
                weighed.reason = Reason::Identity;
                continue;
            }
            let agreement = settled(&change, standing, settler.as_mut());
            if agreement == Agreement::Agrees || edit.circumstances.have_settled(of, &change) {
                continue;
            }
            let excused = self.exceptions.of_field(&change);
            if excused.is_none() {
                weighed.certain |= agreement == Agreement::Differs;
                weighed.in_doubt &= matches!(agreement, Agreement::Doubt | Agreement::Missing);
            }
            let FieldChange { path, declared, old, new, .. } = change;
            let values = [declared.as_ref(), old.as_ref(), new.as_ref()];
            let values = Values::of(edit.object, &path, values);
            let doubt = agreement == Agreement::Doubt;
            weighed.add(Finding { doubt, ..Finding::of(path, values) }, excused);
        }
    }

    fn add_sealed(&self, change: sealed::Change<'_>, before: &Value, weighed: &mut Weighed) {
        let edit = self.edit;
        if identities::writes(edit.actor, edit.object, &change.path)
            || (change.deletion && self.standing.deletion.covers(before))
        {
            weighed.reason = Reason::InBand;
            return;
        }
        // A declared null is judged already.
        if weighed.findings.iter().any(|finding| finding.path == change.path) {
            return;
        }
        let excused = match change.deletion {
            true => self.exceptions.of_deletion(),
            false => self.exceptions.of_sealed(&change.path, change.old, change.new),
        };
        if excused.is_none() {
            (weighed.certain, weighed.in_doubt) = (true, false);
        }
        let values = Values::of(edit.object, &change.path, [None, change.old, change.new]);
        weighed.add(Finding::of(change.path, values), excused);
    }

    /// What the edit adds below sealed paths. Whether a webhook or the server adds it to whatever is sent only a dry
    /// run can tell. What a Helm operation drops the server may fill in again.
    fn add_additions(&self, weighed: &mut Weighed) {
        let Self { edit, new, standing, fields, exceptions, evidence, .. } = self;
        let seal = exceptions.sealed();
        if seal.is_empty() || identities::is_built_in(edit.actor) {
            return;
        }
        let mut found = additions::of_edit(edit.object, fields, seal, edit.old, new);
        if let Evidence::Canonical(canonical) = evidence {
            additions::drop_servers(&mut found, canonical, (edit.operation, standing.pending));
        }
        let baseline = standing.release.objects.get(edit.object).and_then(|it| it.baseline.as_ref());
        if let Some(baseline) = baseline.filter(|_| standing.pending) {
            found.retain(|it| it.is_member || !baseline.fields().covers(&it.path, it.new));
        }
        for Addition { path, old, new, .. } in found {
            let excused = exceptions.of_sealed(&path, old, Some(new));
            let values = Values::of(edit.object, &path, [None, old, Some(new)]);
            weighed.add(Finding { added: true, ..Finding::of(path, values) }, excused);
        }
    }

    fn settler(&self) -> Option<Settler<'_, '_>> {
        match self.evidence {
            Evidence::Canonical(canonical) => Some(self.fields.settler(canonical)),
            Evidence::None | Evidence::Unavailable | Evidence::Nowhere => None,
        }
    }
}

/// Whether the value after is the declared one, as far as the evidence goes.
///
/// While an operation is under way the arbiter counts even against a plain
/// difference: a mutating webhook may rewrite what Helm sends, and the dry run
/// passes through the same webhooks.
fn settled(
    change: &FieldChange,
    standing: &Standing<'_>,
    settler: Option<&mut Settler<'_, '_>>,
) -> Agreement {
    match (change.agreement, settler) {
        (Agreement::Doubt | Agreement::Missing, Some(settler)) => settler.settle(change),
        (Agreement::Altered | Agreement::Differs, Some(settler)) if standing.pending => {
            settler.settle(change)
        }
        (agreement, _) => agreement,
    }
}
