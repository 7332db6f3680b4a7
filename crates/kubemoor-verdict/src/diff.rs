//! The effects of an edit on an object of a release, before any rule is applied: independent of
//! policies, exceptions and modes, so that other policies can judge the same facts later; only
//! additions are searched just where a policy seals. The values may include those of Secrets and must
//! not be logged.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::claims::adopts;
use crate::edit::{Circumstances, DeclaredObject, DryRunEvidence, Edit, VerdictReason};
use crate::records::RecordFacts;
use crate::{additions, claims, exceptions, identities, sealed};
use kubemoor_declare::additions::Addition;
use kubemoor_declare::ambiguous::AmbiguousElements;
use kubemoor_declare::compare::Settler;
use kubemoor_declare::equality::Agreement;
use kubemoor_declare::fields::{FieldChange, Fields};
use kubemoor_declare::model::ReleaseId;
use kubemoor_declare::path::Segment;
use kubemoor_helm::record::ApplyMethod;
use kubemoor_helm::release::Declared;
use kubemoor_helm::state::Standing;
use kubemoor_policy::mask::Seal;

pub use self::JudgedFacts as Facts; // alias

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
    /// The number of further claims: no release is consulted after one that allows the edit.
    pub unheard: usize,
    pub circumstances: Circumstances,
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
    pub evidence: EvidenceKind,
    /// The manifests that the edit was compared with, each with its changes.
    pub alternatives: Vec<AlternativeFacts>,
    /// The number of further manifests: none is checked after one that allows the edit.
    pub unweighed: usize,
}

/// The changes of one edit, compared with one manifest.
#[derive(Clone, Debug)]
pub struct AlternativeFacts {
    pub declared: Arc<Declared>,
    /// Its fields.
    pub fields: Arc<Fields>,
    /// The differences of the object from it.
    pub changes: Vec<ChangeFacts>,
    /// The reason why the edit is allowed if nothing differs.
    pub reason: VerdictReason,
    /// The paths below which additions were searched, as one text; `None` where they were not.
    pub seal: Option<String>,
}

/// One difference from a manifest.
#[derive(Clone, Debug)]
pub struct ChangeFacts {
    pub change: FieldChange,
    pub kind: ChangeKind,
    /// Of a list element that appears, disappears or is repeated: the element before and after, as messages
    /// show it. `None` where that is not known.
    pub element: Option<Box<ElementValues>>,
}

/// A list element before and after an edit; a list where there are several with its keys.
#[derive(Clone, Debug)]
pub struct ElementValues {
    pub old: Option<Value>,
    pub new: Option<Value>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// A declared field is not as declared.
    #[default]
    Declared,
    /// The same, where a client-side Helm operation may have merged list elements that share a key.
    Merged,
    /// A field that undoes a release is set.
    Sealed,
    /// An owner is set, with which the garbage collector would delete the object.
    Owner,
    /// Something is added below a path that a policy seals.
    Added,
}

/// The evidence that settled doubts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EvidenceKind {
    #[default]
    None,
    Canonical,
    Unavailable,
    Nowhere,
}

impl From<DryRunEvidence<'_>> for EvidenceKind {
    fn from(evidence: DryRunEvidence<'_>) -> Self {
        match evidence {
            DryRunEvidence::None => Self::None,
            DryRunEvidence::Canonical(_) => Self::Canonical,
            DryRunEvidence::Unavailable => Self::Unavailable,
            DryRunEvidence::Nowhere => Self::Nowhere,
        }
    }
}

/// The number of changes of which list elements are kept whole: each is searched for in its list.
const ELEMENTS: usize = 32;

pub(crate) struct Observation<'a> {
    pub(crate) edit: &'a Edit<'a>,
    pub(crate) new: &'a Value,
    pub(crate) standing: &'a Standing<'a>,
    pub(crate) declared: &'a Arc<Declared>,
    pub(crate) evidence: DryRunEvidence<'a>,
    pub(crate) seal: &'a Seal,
}

impl Observation<'_> {
    /// The declared fields that change, then the sealed ones, then what is added below sealed paths.
    pub(crate) fn facts(&self) -> AlternativeFacts {
        let Edit { old, scale, .. } = *self.edit;
        let fields = self.declared.fields();
        let adopts = old.is_some_and(|old| self.adopts(old));
        let changes = match old {
            Some(old) if !adopts => fields.changed(old, self.new),
            _ => fields.drift(self.new),
        };
        let reason =
            if changes.is_empty() && !adopts { VerdictReason::Unchanged } else { VerdictReason::AsDeclared };
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
        let is_being_deleted = edit.old.is_some_and(claims::is_underway);
        let mut ambiguous = None;
        for change in changes {
            if is_being_deleted && claims::finishes(edit.object, &change.path) {
                facts.reason = VerdictReason::BeingDeleted;
                continue;
            }
            let place = (&change.path, change.declared.as_ref());
            if identities::writes(edit.actor, edit.object, &change.path)
                || exceptions::fills(edit.actor, standing.release, edit.object, place)
            {
                facts.reason = VerdictReason::Identity;
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

    fn add_sealed(&self, change: sealed::SealedChange<'_>, before: &Value, facts: &mut AlternativeFacts) {
        let edit = self.edit;
        if identities::writes(edit.actor, edit.object, &change.path)
            || (change.deletion && self.standing.deletion.covers(before))
        {
            facts.reason = VerdictReason::InBand;
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
        if let DryRunEvidence::Canonical(canonical) = evidence {
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
            DryRunEvidence::Canonical(canonical) => Some(fields.settler(canonical)),
            DryRunEvidence::None | DryRunEvidence::Unavailable | DryRunEvidence::Nowhere => None,
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
