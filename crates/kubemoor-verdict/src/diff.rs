//! The differences between an object and the declarations of a release, before any rule is applied.
//!
//! One [`Diff`] holds the changes of an edit or the differences of a live object: declared fields, sealed fields and
//! additions below sealed paths, with their declared, old and new (or live) values. Verdicts on edits and live objects,
//! reverts and replays are all derived from it. It does not depend on exceptions or modes, so that other policies can
//! judge it later; but additions are searched for only below paths that a policy seals. The values may include those of
//! Secrets and must not be logged.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::claims::{self, adopts};
use crate::edit::{
    DryRunEvidence, Edit, EvidenceKind, Grounds, ObjectContext, ObjectDeclaration, VerdictReason,
};
use crate::owners::Owners;
use crate::records::RecordFacts;
use crate::sealed;
use crate::{additions, exceptions, identities};
use kubemoor_declare::compare::{Addition, DoubtResolver, is_alternative};
use kubemoor_declare::equality::FieldAgreement;
use kubemoor_declare::fields::{AmbiguousElements, DeclaredFields, FieldChange};
use kubemoor_declare::model::{ObjectId, Operation, ReleaseId};
use kubemoor_declare::path::{Path, Segment};
use kubemoor_helm::record::ApplyMethod;
use kubemoor_helm::release::DeclaredObject;
use kubemoor_helm::state::ReleaseClaim;
use kubemoor_policy::mask::Seal;

/// The effects of an edit of any object.
#[derive(Clone, Debug)]
pub enum JudgedFacts {
    Edit(EditFacts),
    Record(RecordFacts),
}

/// The effects of one edit, as seen by the releases that were consulted.
#[derive(Clone, Debug)]
pub struct EditFacts {
    pub claims: Vec<ClaimFacts>,
    /// The number of claims that were not evaluated: no release is consulted after one that allows the edit.
    pub unevaluated_claims: usize,
    pub circumstances: ObjectContext,
}

/// The effects of one edit, as one release sees it.
#[derive(Clone, Debug)]
pub struct ClaimFacts {
    pub release: ReleaseId,
    pub revision: u64,
    /// A Helm operation is running.
    pub pending: bool,
    /// The edit is a deletion that the state of the record authorises.
    pub authorised: bool,
    /// The dry-run evidence that was available.
    pub evidence: EvidenceKind,
    /// The manifests that the edit was compared with, each with its changes.
    pub alternatives: Vec<Diff>,
    /// The number of manifests that were not compared: none is compared after one that allows the edit.
    pub uncompared_manifests: usize,
}

/// The differences between an object and one manifest's declaration of it: those that an edit makes, or those of a live
/// object.
#[derive(Clone, Debug)]
pub struct Diff {
    pub declared: Arc<DeclaredObject>,
    pub fields: Arc<DeclaredFields>,
    pub changes: Vec<ChangedField>,
    /// The reason why an edit is allowed if nothing differs.
    pub reason: VerdictReason,
    /// The sealed paths below which additions of an edit count, as one text; `None` without sealed paths.
    pub seal: Option<String>,
}

/// One difference from a manifest.
#[derive(Clone, Debug)]
pub struct ChangedField {
    /// The declared value, and the old and new one of an edit; `new` is the live value of a live object.
    pub change: FieldChange,
    pub kind: ChangeKind,
    /// For a list element that an edit adds, removes or repeats: the element before and after, for messages. `None` if
    /// it is not known.
    pub element: Option<Box<ElementValues>>,
}

/// A list element before and after an edit; a list if several elements have its keys.
#[derive(Clone, Debug)]
pub struct ElementValues {
    pub old: Option<Value>,
    pub new: Option<Value>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    #[default]
    Declared,
    /// A declared field in list elements with the same key, which a client-side Helm operation may have merged.
    Merged,
    /// A sealed field is set.
    Sealed,
    /// An owner reference is set, because of which the garbage collector may delete the object.
    Owner,
    /// Something is added below a path that a policy seals.
    Added,
    /// Finalizers have blocked the deletion of a live object for too long.
    Finalizers,
}

/// The most changes for which whole list elements are kept: each one is searched for in its list.
const ELEMENTS: usize = 32;

/// A manifest's declaration of an object, and everything that settles uncertain differences.
pub(crate) struct ObjectComparison<'a> {
    pub(crate) object: &'a ObjectId,
    pub(crate) claim: &'a ReleaseClaim<'a>,
    pub(crate) declared: &'a Arc<DeclaredObject>,
    pub(crate) circumstances: &'a ObjectContext,
    pub(crate) evidence: DryRunEvidence<'a>,
    pub(crate) seal: &'a Seal,
}

impl EditFacts {
    /// The comparison behind the findings of a consulted release: among its manifests, the one with the fewest changes
    /// that has all these findings.
    pub fn diff(&self, Grounds { release, fields, .. }: &Grounds) -> Option<&Diff> {
        let diffs = self.claims.iter().filter(|it| it.release == *release).flat_map(|it| &it.alternatives);
        let findings: HashSet<&Path> = fields.iter().map(|finding| &finding.path).collect();
        let holds_all = |diff: &&Diff| {
            let changed: HashSet<&Path> = diff.changes.iter().map(|changed| &changed.change.path).collect();
            findings.is_subset(&changed)
        };
        diffs.filter(holds_all).min_by_key(|diff| diff.changes.len())
    }
}

impl Diff {
    /// The change of the declared field at `path`, not of a sealed field or an addition.
    pub(crate) fn declared_change(&self, path: &Path) -> Option<&FieldChange> {
        let is_declared = |it: &&ChangedField| matches!(it.kind, ChangeKind::Declared | ChangeKind::Merged);
        self.changes.iter().filter(is_declared).map(|it| &it.change).find(|change| change.path == *path)
    }

    pub(crate) fn empty(declared: &Arc<DeclaredObject>, reason: VerdictReason, seal: Option<String>) -> Self {
        let fields = declared.fields();
        Self { declared: Arc::clone(declared), fields, changes: Vec::new(), reason, seal }
    }

    fn push(&mut self, change: FieldChange, kind: ChangeKind) {
        self.changes.push(ChangedField { change, kind, element: None });
    }
}

impl ObjectComparison<'_> {
    /// The declared fields that an edit changes, then the sealed ones, then what it adds below sealed paths.
    pub(crate) fn of_edit(&self, edit: &Edit<'_>, new: &Value) -> Diff {
        let Self { object, claim: standing, declared, seal, .. } = *self;
        let mut diff = Diff::empty(declared, VerdictReason::AsDeclared, seal.written());
        // The release manages the object from this edit on. While an operation runs, Helm itself may adopt an object:
        // it sets its label and annotations, but no fields that are the same in its old and new manifests.
        let is_adopted = !edit.scale
            && !standing.pending
            && edit.old.is_some_and(|old| adopts(object, standing.release, old, new));
        // The earlier fields of an adopted object were never judged.
        let (fields, judged) = (Arc::clone(&diff.fields), edit.old.filter(|_| !is_adopted));
        let changed = judged.map_or_else(|| fields.drift(new), |old| fields.changed(old, new));
        let sealed = edit.old.map(|old| sealed::changes(object, &fields, old, new)).unwrap_or_default();
        let none = Seal::default();
        let searched = if identities::is_built_in(edit.actor) { &none } else { seal };
        let added = additions::of_edit(object, &fields, searched, judged, new);
        if changed.is_empty() && !is_adopted {
            diff.reason = VerdictReason::Unchanged;
        }
        self.add_declared(edit, new, changed, &mut diff);
        for change in sealed {
            let is_owner = sealed::is_of_owners(&change.path);
            if identities::writes(edit.actor, object, &change.path)
                || (is_owner && edit.old.is_some_and(|old| standing.deletion.covers(old)))
            {
                diff.reason = VerdictReason::InBand;
                continue;
            }
            diff.push(change, if is_owner { ChangeKind::Owner } else { ChangeKind::Sealed });
        }
        for Addition { path, old, new, .. } in self.wanted_additions(edit.operation, added) {
            let (old, new, agreement) = (old.cloned(), Some(new.clone()), FieldAgreement::Added);
            diff.push(FieldChange { path, declared: None, old, new, agreement }, ChangeKind::Added);
        }
        diff
    }

    /// The declared fields at which a live object differs, or possibly differs, then the sealed ones, then the
    /// finalizers that block its deletion, then additions.
    pub(crate) fn of_live(&self, live: &Value, now: Timestamp) -> Diff {
        let Self { object, claim: standing, declared, seal, evidence, .. } = *self;
        let mut diff = Diff::empty(declared, VerdictReason::Unchanged, None);
        let fields = &*Arc::clone(&diff.fields);
        let mut settler = self.settler(fields);
        // A running operation may still write the field. After it, a value that only Helm wrote may be the API server's
        // form of the declared one, unless the API server refuses the manifest.
        let may_be_rewritten = !standing.pending && !matches!(evidence, DryRunEvidence::Unavailable);
        let is_being_deleted = claims::is_being_deleted(live);
        for mut change in of_fields(fields, live, may_be_rewritten) {
            if is_being_deleted && claims::is_of_finalizers(object, &change.path) {
                continue;
            }
            if let (FieldAgreement::Doubt, Some(settler)) = (change.agreement, &mut settler) {
                change.agreement = settler.settle(&change);
            }
            if change.agreement != FieldAgreement::Agrees && !self.have_settled(&change) {
                diff.push(change, ChangeKind::Declared);
            }
        }
        for change in sealed::drift(object, fields, live) {
            let is_owner = sealed::is_of_owners(&change.path);
            diff.push(change, if is_owner { ChangeKind::Owner } else { ChangeKind::Sealed });
        }
        if let Some(change) = claims::blocking_finalizers(object, live, now) {
            diff.push(change, ChangeKind::Finalizers);
        }
        for change in additions::drift(object, fields, seal, live) {
            diff.push(change, ChangeKind::Added);
        }
        diff
    }

    fn add_declared(&self, edit: &Edit<'_>, new: &Value, changed: Vec<FieldChange>, diff: &mut Diff) {
        let Self { object, claim: standing, .. } = *self;
        let fields = Arc::clone(&diff.fields);
        let mut settler = self.settler(&fields);
        let is_being_deleted = edit.old.is_some_and(claims::is_being_deleted);
        let mut ambiguous = None;
        for change in changed {
            if is_being_deleted && claims::is_of_finalizers(object, &change.path) {
                diff.reason = VerdictReason::BeingDeleted;
                continue;
            }
            let place = (&change.path, change.declared.as_ref());
            if identities::writes(edit.actor, object, &change.path)
                || exceptions::fills(edit.actor, standing.release, object, place)
            {
                diff.reason = VerdictReason::Identity;
                continue;
            }
            let agreement = settled(&change, standing, settler.as_mut());
            if agreement == FieldAgreement::Agrees || self.have_settled(&change) {
                continue;
            }
            let ambiguous = ambiguous.get_or_insert_with(|| self.ambiguous(edit.old, &fields));
            let is_merged = ambiguous.as_mut().is_some_and(|it| it.has_path(&change.path));
            let kind = if is_merged { ChangeKind::Merged } else { ChangeKind::Declared };
            let element = if diff.changes.len() < ELEMENTS { element(&change, edit.old, new) } else { None };
            let change = FieldChange { agreement, ..change };
            diff.changes.push(ChangedField { change, kind, element });
        }
    }

    /// Drops additions that the user did not make: a dry run shows those that a webhook or the API server always makes,
    /// and the API server may restore fields that a Helm operation drops.
    fn wanted_additions<'v>(&self, operation: Operation, mut found: Vec<Addition<'v>>) -> Vec<Addition<'v>> {
        let Self { object, claim: standing, evidence, .. } = self;
        if let DryRunEvidence::Canonical(canonical) = evidence {
            additions::drop_server_additions(&mut found, canonical, (operation, standing.pending));
        }
        let baseline = standing.release.objects.get(*object).and_then(|it| it.baseline.as_ref());
        if let Some(baseline) = baseline.filter(|_| standing.pending && !found.is_empty()) {
            let fields = baseline.fields();
            found.retain(|it| it.is_member || !fields.covers(&it.path, it.new));
        }
        found
    }

    /// Whether an earlier dry run has settled that the new value of a field is the declared one.
    fn have_settled(&self, change: &FieldChange) -> bool {
        let Self { object, claim: standing, declared, circumstances, .. } = *self;
        let of = ObjectDeclaration { object, release: &standing.release.id, declared };
        of.is_settled(circumstances.settled.as_deref(), change)
    }

    /// The list elements that the merge of a running client-side operation cannot tell apart: Helm merges the previous
    /// manifest, this one and the live object.
    fn ambiguous<'o>(
        &self,
        old: Option<&'o Value>,
        fields: &DeclaredFields,
    ) -> Option<AmbiguousElements<'o>> {
        let Self { object, claim: standing, .. } = self;
        let old = old.filter(|_| standing.pending)?;
        let release = standing.release;
        if release.state.apply_method != ApplyMethod::ClientSide {
            return None;
        }
        let before = release.objects.get(*object).and_then(|it| it.baseline.as_ref());
        let before = before.map(|declared| declared.fields());
        Some(AmbiguousElements::new([fields].into_iter().chain(before.as_deref()), old))
    }

    fn settler<'s>(&'s self, fields: &'s DeclaredFields) -> Option<DoubtResolver<'s>> {
        match self.evidence {
            DryRunEvidence::Canonical(canonical) => Some(fields.settler(canonical)),
            DryRunEvidence::None | DryRunEvidence::Unavailable | DryRunEvidence::Nowhere => None,
        }
    }
}

/// The list element that the edit adds, removes or repeats, before and after it.
fn element(change: &FieldChange, old: Option<&Value>, new: &Value) -> Option<Box<ElementValues>> {
    let is_element = matches!(change.path.0.last(), Some(Segment::Key(_)));
    if change.declared.is_some() || !is_element {
        return None;
    }
    let all = |object: &Value| match change.path.get(object).as_slice() {
        [] => None,
        [element] => Some((*element).clone()),
        elements => Some(elements.iter().map(|element| (*element).clone()).collect()),
    };
    Some(Box::new(ElementValues { old: old.and_then(all), new: all(new) }))
}

/// How the new value compares with the declared one, according to the evidence.
///
/// During a Helm operation, the dry run overrides even a certain difference: a mutating webhook may rewrite Helm's
/// request, and the dry run passes through the same webhooks.
fn settled(
    change: &FieldChange,
    standing: &ReleaseClaim<'_>,
    settler: Option<&mut DoubtResolver<'_>>,
) -> FieldAgreement {
    match (change.agreement, settler) {
        (FieldAgreement::Doubt | FieldAgreement::Missing, Some(settler)) => settler.settle(change),
        (FieldAgreement::Altered | FieldAgreement::Differs, Some(settler)) if standing.pending => {
            settler.settle(change)
        }
        (agreement, _) => agreement,
    }
}

/// The declared paths at which a live object differs, or possibly differs.
///
/// An absent field that Helm owns only possibly differs: the API server may have dropped it. If no operation is running
/// (`settled`) and the kind grants no permissions, the same holds for another value that only Helm has written, which a
/// mutating webhook may have rewritten, and for an undeclared field in place of a declared one that no manager owns.
/// Without `managedFields`, all these are differences.
pub fn of_fields(fields: &DeclaredFields, live: &Value, settled: bool) -> Vec<FieldChange> {
    let mut changes = fields.drift(live);
    let settled = settled && !fields.is_rbac();
    let may_be = |change: &FieldChange| {
        change.agreement == FieldAgreement::Missing || (settled && may_be_rewritten(change))
    };
    if changes.iter().any(may_be) {
        let owners = Owners::from_object(live);
        for change in changes.iter_mut().filter(|change| may_be(change)) {
            let are_helms = match change.agreement {
                FieldAgreement::Missing => owners.are_helms(&change.path),
                _ if is_alternative(change) => !owners.is_empty() && owners.of_path(&change.path).is_empty(),
                _ => owners.are_helms_alone(&change.path),
            };
            if are_helms {
                change.agreement = FieldAgreement::Doubt;
            }
        }
    }
    changes
}

/// Whether a field has another value than the declared one, or replaces a declared one.
pub(crate) fn may_be_rewritten(change: &FieldChange) -> bool {
    let is_field = || matches!(change.path.0.last(), Some(Segment::Field(_)));
    change.agreement > FieldAgreement::Doubt
        && (is_alternative(change) || (change.declared.is_some() && is_field()))
}
