//! The changes of one edit, compared with one manifest.
//!
//! Entry point: [`Observation::facts`]. Invariant: finds all differences of the object from the
//! manifest, whatever the policies say about them. Must not apply a rule.

use std::sync::Arc;

use serde_json::Value;

use super::super::adoption::adopts;
use super::super::circumstances::DeclaredObject;
use super::super::edit::{Edit, Evidence, Reason};
use super::super::facts::{AlternativeFacts, ChangeFacts, ChangeKind, ElementValues};
use super::super::{additions, deletion, identities, outputs, sealed};
use kubemoor_declare::additions::Addition;
use kubemoor_declare::ambiguous::AmbiguousElements;
use kubemoor_declare::compare::Settler;
use kubemoor_declare::equality::Agreement;
use kubemoor_declare::fields::{FieldChange, Fields};
use kubemoor_declare::path::Segment;
use kubemoor_helm::record::ApplyMethod;
use kubemoor_helm::release::Declared;
use kubemoor_helm::state::Standing;
use kubemoor_policy::seal::Seal;

/// The number of changes of which list elements are kept whole: each is searched for in its list.
const ELEMENTS: usize = 32;

/// An edit, and the manifest that it is compared with.
pub(super) struct Observation<'a> {
    pub(super) edit: &'a Edit<'a>,
    /// The object after the edit.
    pub(super) new: &'a Value,
    pub(super) standing: &'a Standing<'a>,
    pub(super) declared: &'a Arc<Declared>,
    pub(super) evidence: Evidence<'a>,
    /// The paths below which additions count.
    pub(super) seal: &'a Seal,
}

impl Observation<'_> {
    /// The declared fields that change, then the sealed ones, then what is added below sealed paths.
    pub(super) fn facts(&self) -> AlternativeFacts {
        let Edit { old, scale, .. } = *self.edit;
        let fields = self.declared.fields();
        let adopts = old.is_some_and(|old| self.adopts(old));
        let changes = match old {
            Some(old) if !adopts => fields.changed(old, self.new),
            _ => fields.drift(self.new),
        };
        let reason = if changes.is_empty() && !adopts { Reason::Unchanged } else { Reason::AsDeclared };
        let declared = Arc::clone(self.declared);
        let seal = self.seal.written();
        let mut facts =
            AlternativeFacts { declared, fields: Arc::clone(&fields), changes: Vec::new(), reason, seal };
        let fields = &*fields;
        self.add_declared(changes, fields, &mut facts);
        if let (Some(old), false) = (old, scale) {
            for change in sealed::changes(self.edit.object, fields, old, self.new) {
                self.add_sealed(change, old, &mut facts);
            }
        }
        self.add_additions(fields, &mut facts);
        facts
    }

    /// Whether the object counts as the release's from this edit on. While an operation runs, Helm itself
    /// may adopt an object: it sets its label and annotations without the fields that its manifests do not
    /// change.
    fn adopts(&self, old: &Value) -> bool {
        let Self { edit, new, standing, .. } = self;
        !edit.scale && !standing.pending && adopts(edit.object, standing.release, old, new)
    }

    fn add_declared(&self, changes: Vec<FieldChange>, fields: &Fields, facts: &mut AlternativeFacts) {
        let Self { edit, standing, declared, .. } = self;
        let of = DeclaredObject { object: edit.object, release: &standing.release.id, declared };
        let mut settler = self.settler(fields);
        let is_being_deleted = edit.old.is_some_and(deletion::is_underway);
        let mut ambiguous = None;
        for change in changes {
            if is_being_deleted && deletion::finishes(edit.object, &change.path) {
                facts.reason = Reason::BeingDeleted;
                continue;
            }
            let place = (&change.path, change.declared.as_ref());
            if identities::writes(edit.actor, edit.object, &change.path)
                || outputs::fills(edit.actor, standing.release, edit.object, place)
            {
                facts.reason = Reason::Identity;
                continue;
            }
            let agreement = settled(&change, standing, settler.as_mut());
            if agreement == Agreement::Agrees || edit.circumstances.have_settled(of, &change) {
                continue;
            }
            let ambiguous = ambiguous.get_or_insert_with(|| self.ambiguous(fields));
            let is_merged = ambiguous.as_mut().is_some_and(|it| it.cover(&change.path));
            let kind = if is_merged { ChangeKind::Merged } else { ChangeKind::Declared };
            let element = if facts.changes.len() < ELEMENTS { self.element(&change) } else { None };
            let change = FieldChange { agreement, ..change };
            facts.changes.push(ChangeFacts { change, kind, element });
        }
    }

    fn add_sealed(&self, change: sealed::Change<'_>, before: &Value, facts: &mut AlternativeFacts) {
        let edit = self.edit;
        if identities::writes(edit.actor, edit.object, &change.path)
            || (change.deletion && self.standing.deletion.covers(before))
        {
            facts.reason = Reason::InBand;
            return;
        }
        let kind = if change.deletion { ChangeKind::Owner } else { ChangeKind::Sealed };
        let (old, new) = (change.old.cloned(), change.new.cloned());
        let agreement = Agreement::Differs;
        let change = FieldChange { path: change.path, declared: None, old, new, agreement };
        facts.changes.push(ChangeFacts { change, kind, element: None });
    }

    /// Adds the additions of the edit below sealed paths. Only a dry run can tell whether a webhook
    /// or the API server makes them in any case. The API server may restore fields that a Helm
    /// operation drops.
    fn add_additions(&self, fields: &Fields, facts: &mut AlternativeFacts) {
        let Self { edit, new, standing, evidence, seal, .. } = self;
        if seal.is_empty() || identities::is_built_in(edit.actor) {
            return;
        }
        // Nobody has judged what an adopted object held before.
        let old = edit.old.filter(|old| !self.adopts(old));
        let mut found = additions::of_edit(edit.object, fields, seal, old, new);
        if let Evidence::Canonical(canonical) = evidence {
            additions::drop_servers(&mut found, canonical, (edit.operation, standing.pending));
        }
        let baseline = standing.release.objects.get(edit.object).and_then(|it| it.baseline.as_ref());
        if let Some(baseline) = baseline.filter(|_| standing.pending) {
            found.retain(|it| it.is_member || !baseline.fields().covers(&it.path, it.new));
        }
        for Addition { path, old, new, .. } in found {
            let (old, new, agreement) = (old.cloned(), Some(new.clone()), Agreement::Added);
            let change = FieldChange { path, declared: None, old, new, agreement };
            facts.changes.push(ChangeFacts { change, kind: ChangeKind::Added, element: None });
        }
    }

    /// The list elements that the merge of a running client-side operation cannot tell apart: Helm compares the
    /// manifest before with this one, and with the object as it is.
    fn ambiguous(&self, fields: &Fields) -> Option<AmbiguousElements<'_>> {
        let Self { edit, standing, .. } = self;
        let old = edit.old.filter(|_| standing.pending)?;
        let release = standing.release;
        if release.state.apply_method != ApplyMethod::ClientSide {
            return None;
        }
        let before = release.objects.get(edit.object).and_then(|it| it.baseline.as_ref());
        let before = before.map(|declared| declared.fields());
        Some(AmbiguousElements::new([fields].into_iter().chain(before.as_deref()), old))
    }

    /// A list element whose existence changes, before and after the edit.
    fn element(&self, change: &FieldChange) -> Option<Box<ElementValues>> {
        let is_element = matches!(change.path.0.last(), Some(Segment::Key(_)));
        if change.declared.is_some() || !is_element {
            return None;
        }
        let all = |object: &Value| match change.path.get(object).as_slice() {
            [] => None,
            [element] => Some((*element).clone()),
            elements => Some(elements.iter().map(|element| (*element).clone()).collect()),
        };
        Some(Box::new(ElementValues { old: self.edit.old.and_then(all), new: all(self.new) }))
    }

    fn settler<'s>(&'s self, fields: &'s Fields) -> Option<Settler<'s>> {
        match self.evidence {
            Evidence::Canonical(canonical) => Some(fields.settler(canonical)),
            Evidence::None | Evidence::Unavailable | Evidence::Nowhere => None,
        }
    }
}

/// Whether the new value is the declared one according to the evidence.
///
/// During a Helm operation the arbiter overrides even a plain difference: a mutating webhook may
/// rewrite Helm's request, and the dry run passes through the same webhooks.
fn settled(change: &FieldChange, standing: &Standing<'_>, settler: Option<&mut Settler<'_>>) -> Agreement {
    match (change.agreement, settler) {
        (Agreement::Doubt | Agreement::Missing, Some(settler)) => settler.settle(change),
        (Agreement::Altered | Agreement::Differs, Some(settler)) if standing.pending => {
            settler.settle(change)
        }
        (agreement, _) => agreement,
    }
}
