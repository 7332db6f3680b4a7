//! The verdict on a live object: how it compares with its release's declaration.
//!
//! The comparison and the exceptions are those for edits, but without a user: a change that [`crate::judge`] would
//! allow to every user is not drift, and a change that it would deny is, sealed fields included. Objects that the
//! manifest opts out do not drift. Nor is it drift if an object that a failed operation drops is missing: Helm may have
//! deleted it. An object that is being deleted drifts like any other, and also if finalizers block its deletion for
//! some minutes.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::claims;
use crate::diff::{ChangeKind, ChangedField, Diff, ObjectComparison, may_be_rewritten};
use crate::edit::{DryRunEvidence, ObjectContext, ObjectDeclaration, VerdictReason};
use crate::exceptions::ObjectExceptions;
use kubemoor_declare::equality::FieldAgreement;
use kubemoor_declare::fields::FieldChange;
use kubemoor_declare::model::ObjectId;
use kubemoor_declare::path::{Path, Segment};
use kubemoor_helm::record::ReleaseStatus;
use kubemoor_helm::release::DeclaredObject;
use kubemoor_helm::state::ReleaseClaim;
use kubemoor_policy::Policy;

/// A declared object, and everything that its verdict depends on.
#[derive(Clone, Copy, Debug)]
pub struct DriftContext<'a, 'r> {
    pub object: &'a ObjectId,
    pub claim: &'a ReleaseClaim<'r>,
    pub policy: &'a Policy,
    pub circumstances: &'a ObjectContext,
    pub now: Timestamp,
}

/// The result of the comparison of a live object with its declaration.
#[derive(Clone, Debug)]
pub enum LiveVerdict<'r> {
    OptedOut,
    /// It is being deleted, and nothing else certainly differs.
    BeingDeleted,
    /// It is absent, but a Helm operation is running, or failed before it created the object.
    NotCreated,
    /// It is absent, and the manifest of the operation that failed does not declare it.
    Dropped,
    Allowed,
    /// It is absent, and its manifest sets `ttlSecondsAfterFinished`.
    Expired,
    Missing,
    /// Every declared field matches, or is allowed to differ; `None` if there is no declaration.
    AsDeclared(Option<MatchedDeclaration>),
    /// It matches the manifest from before a running Helm operation, and not yet the new one.
    MatchesPrevious,
    Drifted(LiveDrift<'r>),
}

/// The declaration that a live object matches.
#[derive(Clone, Debug)]
pub struct MatchedDeclaration {
    pub declared: Arc<DeclaredObject>,
    /// The declared paths at which the object differs, or possibly differs, as an exception allows.
    pub excepted_paths: Vec<Path>,
    /// The fields at which an allowance permits the object to differ.
    pub permitted: Vec<FieldChange>,
    /// Whether it has additions below sealed paths that an allowance permits.
    pub has_additions: bool,
}

impl MatchedDeclaration {
    /// A match without any exception.
    pub fn new(declared: &Arc<DeclaredObject>) -> Self {
        let (spared, permitted) = (Vec::new(), Vec::new());
        Self { declared: Arc::clone(declared), excepted_paths: spared, permitted, has_additions: false }
    }
}

/// The differences of a live object from its declaration.
#[derive(Clone, Debug)]
pub struct LiveDrift<'r> {
    /// The declaration that it is compared with: among several, the nearest one.
    pub declared: &'r Arc<DeclaredObject>,
    /// The declared paths at which it differs, or possibly differs. In each, `new` is the live value; `old` is
    /// `None`.
    pub changes: Vec<FieldChange>,
}

/// Compares `live`, the object in the version of the manifest (`None`: it is absent), with its declarations; a match
/// with one is enough.
///
/// `evidence` settles uncertain differences from the first declaration; without evidence, they stay among the changes.
pub fn compare<'r>(
    subject: &DriftContext<'_, 'r>,
    live: Option<&Value>,
    evidence: DryRunEvidence<'_>,
) -> LiveVerdict<'r> {
    let standing = subject.claim;
    let before = before(subject);
    if standing.alternatives.iter().chain(&before).any(|declared| declared.opted_out) {
        return LiveVerdict::OptedOut;
    }
    let Some(live) = live else { return absent(subject) };
    let is_being_deleted = claims::is_being_deleted(live);
    let mut nearest: Option<LiveDrift<'r>> = None;
    let sides = standing.alternatives.iter().copied().map(|declared| (declared, false));
    for (index, (declared, is_before)) in sides.chain(before.map(|it| (it, true))).enumerate() {
        let evidence = if index == 0 { evidence } else { DryRunEvidence::None };
        let (changes, matched) = changes(subject, declared, live, evidence);
        let drift = LiveDrift { declared, changes };
        if drift.changes.is_empty() {
            return if is_being_deleted {
                LiveVerdict::BeingDeleted
            } else if is_before {
                LiveVerdict::MatchesPrevious
            } else {
                LiveVerdict::AsDeclared(Some(matched))
            };
        }
        if nearest.as_ref().is_none_or(|nearest| drift.weight() < nearest.weight()) {
            nearest = Some(drift);
        }
    }
    match nearest {
        // An uncertain difference of an object that is being deleted needs no dry run.
        None if is_being_deleted => LiveVerdict::BeingDeleted,
        Some(drift) if is_being_deleted && drift.is_doubt() => LiveVerdict::BeingDeleted,
        Some(drift) => LiveVerdict::Drifted(drift),
        None => LiveVerdict::AsDeclared(None),
    }
}

/// Settles the uncertain differences of a live object to which the API server refuses to apply the manifest: something
/// in it does differ. If no difference is certain, all uncertain ones become certain.
pub fn settle_obstructed(changes: &mut [FieldChange]) {
    if changes.iter().all(|change| change.agreement <= FieldAgreement::Doubt) {
        changes.iter_mut().for_each(|change| change.agreement = FieldAgreement::Differs);
    }
}

impl<'a> DriftContext<'a, '_> {
    /// All certain and possible differences between a live object and one of its declarations, allowed or not.
    pub fn diff(&self, declared: &Arc<DeclaredObject>, live: &Value, evidence: DryRunEvidence<'_>) -> Diff {
        let Self { object, claim: standing, circumstances, now, .. } = *self;
        let seal = &self.policy.rules(object, declared).sealed;
        ObjectComparison { object, claim: standing, declared, circumstances, evidence, seal }
            .of_live(live, now)
    }

    pub fn exceptions(&self, declared: &'a Arc<DeclaredObject>) -> ObjectExceptions<'a> {
        let of = ObjectDeclaration { object: self.object, release: &self.claim.release.id, declared };
        let exceptions = ObjectExceptions::new(of, self.policy, self.circumstances, None, self.now);
        exceptions.of_live(of, self.claim.release)
    }
}

impl LiveDrift<'_> {
    pub fn is_doubt(&self) -> bool {
        self.changes.iter().all(|change| change.agreement == FieldAgreement::Doubt)
    }

    /// Whether some difference is uncertain, so that only a dry run can settle it.
    pub fn has_doubt(&self) -> bool {
        self.changes.iter().any(|change| change.agreement == FieldAgreement::Doubt)
    }

    /// Whether `managedFields` decide if a difference is certain.
    pub fn depends_on_managed_fields(&self) -> bool {
        self.changes.iter().any(|it| it.agreement == FieldAgreement::Missing || may_be_rewritten(it))
    }

    /// The distance of an object from a declaration: uncertain differences weigh least.
    fn weight(&self) -> (bool, usize) {
        (!self.is_doubt(), self.changes.len())
    }
}

/// The declaration from before a running operation, unless it is one of the alternatives.
fn before<'r>(subject: &DriftContext<'_, 'r>) -> Option<&'r Arc<DeclaredObject>> {
    let ReleaseClaim { release, alternatives, pending, .. } = subject.claim;
    let baseline = release.objects.get(subject.object)?.baseline.as_ref()?;
    (*pending && !alternatives.iter().any(|known| Arc::ptr_eq(known, baseline))).then_some(baseline)
}

fn absent<'r>(subject: &DriftContext<'_, 'r>) -> LiveVerdict<'r> {
    let standing = subject.claim;
    let release = standing.release;
    let declarations = release.objects.get(subject.object);
    let is_of_baseline = || declarations.is_some_and(|it| it.baseline.is_some());
    if standing.pending || (release.state.status == ReleaseStatus::Failed && !is_of_baseline()) {
        return LiveVerdict::NotCreated;
    }
    // A missing object matches the latest manifest, as an existing one may match the baseline.
    if declarations.is_some_and(|it| it.latest.is_none()) {
        return LiveVerdict::Dropped;
    }
    let exceptions: Vec<_> = standing.alternatives.iter().map(|it| subject.exceptions(it)).collect();
    if exceptions.iter().any(|it| it.of_deletion().is_some()) {
        LiveVerdict::Allowed
    } else if exceptions.iter().any(|it| it.may_have_expired) {
        LiveVerdict::Expired
    } else {
        LiveVerdict::Missing
    }
}

/// The differences that are not allowed, and those that are.
fn changes(
    subject: &DriftContext<'_, '_>,
    declared: &Arc<DeclaredObject>,
    live: &Value,
    evidence: DryRunEvidence<'_>,
) -> (Vec<FieldChange>, MatchedDeclaration) {
    let exceptions = subject.exceptions(declared);
    let diff = subject.diff(declared, live, evidence);
    let mut matched = MatchedDeclaration::new(declared);
    let mut changes = Vec::new();
    for (ChangedField { change, kind, .. }, excused) in exceptions.excuse(diff.changes) {
        let Some(reason) = excused else {
            changes.push(change);
            continue;
        };
        let is_declared = kind == ChangeKind::Declared;
        if is_declared {
            matched.excepted_paths.push(change.path.clone());
        }
        // A rule ignores a field permanently; an allowance ends.
        if reason == VerdictReason::Allowed {
            matched.has_additions |= kind == ChangeKind::Added;
            if is_declared || matched.permitted.iter().all(|known| known.path != change.path) {
                matched.permitted.push(change);
            }
        }
    }
    show_moved(&mut changes, declared, live);
    (changes, matched)
}

/// Adds to missing list elements the keys of the elements that replaced them.
fn show_moved(changes: &mut [FieldChange], declared: &DeclaredObject, live: &Value) {
    let is_missing = |change: &FieldChange| {
        matches!(change.path.0.last(), Some(Segment::Key(_)))
            && change.declared.is_none()
            && change.new.is_none()
    };
    if !changes.iter().any(is_missing) {
        return;
    }
    let moved = declared.fields().moved(live).into_iter();
    let moved: HashMap<String, Path> = moved.map(|it| (it.declared.to_string(), it.live)).collect();
    for change in changes.iter_mut().filter(|change| is_missing(change)) {
        if let Some(Segment::Key(keys)) = moved.get(&change.path.to_string()).and_then(|live| live.0.last()) {
            change.new = Some(Value::Object(keys.iter().cloned().collect()));
        }
    }
}

#[cfg(test)]
mod tests;
