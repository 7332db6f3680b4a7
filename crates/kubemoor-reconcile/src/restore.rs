//! Restores the declared state of a changed object: reads it and the records, settles doubts, writes, compares.
//!
//! A write is based on one version of the object, and on records that were read after it; if the object has changed
//! since, the guard starts over. Dry runs are made only for doubts (fields that only the API server can compare), and
//! once for each.

use std::sync::Arc;

use serde_json::Value;

use crate::body::{self, Restoration};
use crate::drifts::{ObjectDrift, ResourceVersion};
use crate::event::{
    ApiWork, Fault, LoopNotice, ManifestDocument, ObjectOutcome, Secret, WorkFailure, WorkOutcome, Write,
};
use crate::judge::{self, LiveComparison, compare_live, record, returned};
use crate::machine::Reconciler;
use crate::plan::RepairPlan;
use crate::repair::{AGAIN, ObjectRead, RETRY, RepairContext, RepairStep, Task};
use crate::report::DriftKind;
use crate::rollout::touches_template;
use kubemoor_declare::compare::Move;
use kubemoor_declare::declare::{Digest, prepare};
use kubemoor_declare::equality::FieldAgreement;
use kubemoor_declare::fields::FieldChange;
use kubemoor_declare::model::{Cause, DriftMode, ObjectId, ReleaseId};
use kubemoor_declare::path::{Path, Segment};
use kubemoor_helm::record::ApplyMethod;
use kubemoor_helm::release::Release;
use kubemoor_helm::state;
use kubemoor_policy::Policy;
use kubemoor_policy::agreement::ObjectSettledValues;
use kubemoor_policy::mask::Mask;
use kubemoor_policy::pattern::Pattern;
use kubemoor_policy::signing::Declaration;
use kubemoor_verdict::drift::{DriftContext, LiveVerdict, settle_obstructed};
use kubemoor_verdict::edit::DryRunEvidence;
use kubemoor_verdict::owners::{self, ManagerOperation, Owners, apply_removes_fields};
use kubemoor_verdict::ownership::{self, Replacement, TakenFields, undeclared_siblings};
use kubemoor_verdict::sealed;

/// How often a write that the API server rejects is repeated without the rejected fields.
const ROUNDS: usize = 3;

/// Why the guard leaves a sealed field alone.
const LEFT: &str = "undo this by hand, or delete the object and the guard re-creates it";

/// The reason where no dry run is made.
const NO_DRY_RUNS: &str = "the guard's modes do not allow dry runs";

/// The most fields that a reason names.
const NAMED: usize = 5;

/// What a restoration waits for; its phases in order.
pub(crate) enum Restore {
    Reading(Start),
    Records(Start, Box<ObjectRead>),
    /// The records of the release that the object's annotations name are read.
    Owner(Start, Box<ObjectRead>, ReleaseId),
    /// The API server is asked about doubts.
    Asking(Box<JudgedObject>),
    /// The manifest is read, to apply it.
    Manifest(Box<WriteAttempt>),
    Writing(Box<WriteAttempt>, WriteStage),
    /// After the writes, with their result: the manifest is read, to check whether the API server accepts it at all.
    ManifestAgain(Box<WriteAttempt>, Result<Value, WorkFailure>),
    /// The check whether the API server accepts it.
    Probe(Box<WriteAttempt>, Result<Value, WorkFailure>),
    /// Fields are being returned from this manager to Helm.
    GivingBack(Box<RepairContext>, String),
}

/// Why an object is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Restoring,
    /// Only a dry run can tell whether it drifts; the reason to report if that stays so.
    SettlingDoubt(&'static str),
    /// It does not drift, but fields that other managers have taken are returned to Helm.
    ReturningFields,
}

/// The write that waits for an answer.
pub(crate) enum WriteStage {
    /// The patch before the apply; `body` is the apply that follows, `restored` the fields that the patch restores.
    PutBack {
        body: Value,
        restored: Vec<Path>,
    },
    /// The apply, and the fields that a patch before it has restored.
    Applied {
        restored: Vec<Path>,
    },
    /// The fields that the patch restored are assigned to Helm's apply manager.
    Owned,
    Last,
}

/// The start of a restoration, with the release as it was then.
pub(crate) struct Start {
    release: Arc<Release>,
    purpose: Purpose,
}

pub(crate) struct JudgedObject {
    pub(crate) situation: RepairContext,
    pub(crate) seen: ObjectRead,
    pub(crate) changes: Vec<FieldChange>,
    pub(crate) answer: DryRunAnswer,
    purpose: Purpose,
}

/// The answer of the API server about a doubt.
pub(crate) enum DryRunAnswer {
    Unasked,
    Canonical(Arc<Secret>),
    /// The reason why it cannot tell, or must not be asked.
    Unknown(String),
    /// It rejects the manifest for this object, so the value in doubt is a different one; `in_place`: it would accept
    /// the manifest as a new object.
    Refused {
        why: String,
        in_place: bool,
    },
}

impl DryRunAnswer {
    fn read(outcome: WorkOutcome) -> Self {
        match outcome {
            WorkOutcome::Canonical(value) => Self::Canonical(value),
            WorkOutcome::Failed(WorkFailure { fault: Fault::Refused, message: why }) => {
                Self::Refused { why, in_place: false }
            }
            WorkOutcome::Failed(WorkFailure { fault: Fault::Obstructed, message: why }) => {
                Self::Refused { why, in_place: true }
            }
            WorkOutcome::Failed(WorkFailure { message, .. }) => Self::Unknown(message),
            _ => Self::Unknown("the response belongs to another request".to_owned()),
        }
    }

    fn canonical(&self) -> Option<&Value> {
        if let Self::Canonical(value) = self { Some(&value.0) } else { None }
    }

    /// Why it does not tell, if it was asked.
    fn unknown(&self) -> Option<&str> {
        match self {
            Self::Unknown(why) | Self::Refused { why, .. } => Some(why),
            Self::Unasked | Self::Canonical(_) => None,
        }
    }

    fn evidence(&self) -> DryRunEvidence<'_> {
        match self {
            Self::Canonical(value) => DryRunEvidence::Canonical(&value.0),
            Self::Refused { .. } => DryRunEvidence::Unavailable,
            Self::Unasked | Self::Unknown(_) => DryRunEvidence::None,
        }
    }
}

pub(crate) struct WriteAttempt {
    judged: JudgedObject,
    fixed: Vec<Path>,
    /// Undeclared fields in the place of declared ones that may not be removed.
    in_the_way: Vec<Replacement>,
    /// Undeclared fields that the API server named when it rejected the first write; removed by the second one.
    suspected: Vec<Move>,
    /// The message of the API server, if it refused the first write.
    refusal: Option<String>,
    tries: usize,
    attempts: u32,
    manager: String,
}

impl WriteAttempt {
    /// The undeclared elements and fields in the place of declared ones: those to remove, and those to leave.
    fn replaced(&self, mask: &Mask) -> (Vec<Move>, Vec<Replacement>) {
        let Some(whole) = self.judged.seen.live.whole() else { return (Vec::new(), Vec::new()) };
        let fields = &self.judged.situation.declared.fields();
        let found =
            ownership::replacements(fields, &whole, &Owners::from_object(&whole), Some(&self.manager));
        let is_excused = |it: &Move| mask.covers(&it.live) || mask.covers(&it.declared);
        let is_open =
            |it: &Move| !it.is_of_field() || self.open().iter().any(|change| it.concerns(&change.path));
        let found = found.into_iter().filter(|it| is_open(&it.found));
        let (removed, left): (Vec<_>, Vec<_>) =
            found.partition(|it| it.is_removable && !is_excused(&it.found));
        (removed.into_iter().map(|it| it.found).collect(), left)
    }

    /// The undeclared elements and fields to remove, with the `suspected` ones.
    fn moved(&self, mask: &Mask) -> Vec<Move> {
        let mut moved = self.replaced(mask).0;
        moved.extend(self.suspected.iter().filter(|it| !mask.covers(&it.live)).cloned());
        moved
    }

    /// The undeclared fields beside the changed ones that another manager has set and that the API server's rejection
    /// names: it does not say which field excludes which.
    fn named_by(&self, causes: &[Cause]) -> Vec<Move> {
        let Some(whole) = self.judged.seen.live.whole() else { return Vec::new() };
        let (fields, owners) = (self.judged.situation.declared.fields(), Owners::from_object(&whole));
        // The message repeats the refused value, with all its fields, before it says why.
        let why = |text: &str| text.rsplit(": ").next().unwrap_or_default().to_owned();
        let last = |field: &str| field.rsplit('.').next().unwrap_or_default().to_owned();
        let texts: Vec<_> = causes.iter().flat_map(|it| [last(&it.field), why(&it.message)]).collect();
        let words = || texts.iter().flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric()));
        let is_named = |it: &Replacement| match it.found.live.0.last() {
            Some(Segment::Field(name)) => words().any(|word| word.eq_ignore_ascii_case(name)),
            _ => false,
        };
        let open = self.open();
        let beside = open
            .iter()
            .flat_map(|it| undeclared_siblings(&fields, &whole, &owners, Some(&self.manager), &it.path));
        beside.filter(is_named).map(|it| it.found).collect()
    }

    /// Whether something that may not be removed is in the place of a changed field or element.
    fn is_excluded(&self, path: &Path) -> bool {
        self.in_the_way.iter().any(|it| it.found.is_exclusive && it.found.concerns(path))
    }

    fn immutable(&self) -> Vec<Path> {
        self.fixed.iter().filter(|path| !self.is_excluded(path)).cloned().collect()
    }

    fn why(&self) -> String {
        let fixed = self.immutable();
        let ways = self.in_the_way.iter().filter(|it| it.found.is_exclusive).map(excluded);
        ways.chain((!fixed.is_empty()).then(|| fixed_fields(&fixed))).collect::<Vec<_>>().join("; ")
    }

    fn open(&self) -> Vec<FieldChange> {
        self.judged.changes.iter().filter(|change| !self.stays(change)).cloned().collect()
    }

    /// Whether a change stays: a doubt alone causes no write.
    fn stays(&self, change: &FieldChange) -> bool {
        is_doubt(change) && self.judged.answer.unknown().is_some() || self.fixed.contains(&change.path)
    }

    fn write(self: Box<Self>, task: &Task, write: Write, stage: WriteStage) -> RepairStep {
        RepairStep::restore(task.write(&self.judged.situation.declared, write), Restore::Writing(self, stage))
    }

    fn merge(self: Box<Self>, task: &Task, patch: Value, stage: WriteStage) -> RepairStep {
        let write = Write::Merge { patch: Secret(patch), manager: self.manager.clone() };
        self.write(task, write, stage)
    }

    fn read_manifest(self: Box<Self>, task: &Task, then: impl FnOnce(Box<Self>) -> Restore) -> RepairStep {
        RepairStep::restore(task.read_manifest(&self.judged.situation.release), then(self))
    }
}

/// The revision to repair towards: the one that was deployed before the failed operation. Only an order leads here.
pub(crate) struct RepairTarget {
    failed: Arc<Release>,
    /// The release as it was deployed last.
    pub(crate) deployed: Arc<Release>,
}

/// Why there is no revision to repair towards.
pub(crate) enum TargetError {
    NoneEligible(String),
    Unreadable(String),
}

impl RepairTarget {
    /// The request that finds the revision that was deployed before the failed operation.
    pub(crate) fn read_request(failed: &Release) -> Result<ApiWork, TargetError> {
        let declared =
            failed.objects.iter().filter(|(_, it)| it.baseline.is_some()).map(|(object, _)| object);
        let question = failed.baseline.as_ref().zip(declared.min());
        let work = question.map(|(head, object)| ApiWork::ReadDocument {
            revision: head.revision,
            object: ObjectId::clone(object),
        });
        work.ok_or_else(no_revision)
    }

    /// The revision, from the response to that request.
    pub(crate) fn from_outcome(failed: &Arc<Release>, outcome: WorkOutcome) -> Result<Self, TargetError> {
        match outcome {
            WorkOutcome::Document(ManifestDocument { apply_method, digest, .. }) => {
                let deployed = failed.at_baseline(apply_method, digest).ok_or_else(no_revision)?;
                Ok(Self { failed: Arc::clone(failed), deployed: Arc::new(deployed) })
            }
            WorkOutcome::Failed(WorkFailure { fault: Fault::NoRecord, message }) => {
                Err(TargetError::NoneEligible(message))
            }
            WorkOutcome::Failed(WorkFailure { message, .. }) => Err(TargetError::Unreadable(message)),
            _ => Err(TargetError::Unreadable("the response belongs to another request".to_owned())),
        }
    }

    /// The release as it was deployed last, as long as its state has not changed since the order.
    pub(crate) fn release_for(&self, now: &Arc<Release>) -> Option<Arc<Release>> {
        Arc::ptr_eq(now, &self.failed).then(|| Arc::clone(&self.deployed))
    }
}

impl Reconciler {
    pub(crate) fn begin_restoring(task: &Task, situation: &RepairContext, purpose: Purpose) -> RepairStep {
        let start = Start { release: Arc::clone(&situation.release), purpose };
        RepairStep::restore(task.read_object(&situation.declared), Restore::Reading(start))
    }

    pub(crate) fn restore(&mut self, task: &Task, restore: Restore, outcome: WorkOutcome) -> RepairStep {
        match (restore, outcome) {
            (Restore::Reading(start), WorkOutcome::Object { live: Some(live), version }) => {
                let seen = Box::new(ObjectRead { live: *live, version });
                // The records are read after the object, because their current state counts.
                RepairStep::restore(task.read_records(), Restore::Records(start, seen))
            }
            (Restore::Reading(start), WorkOutcome::Object { live: None, .. }) => {
                if start.purpose == Purpose::ReturningFields {
                    return RepairStep::Settled;
                }
                // A watch may have reported since that it was created again: it is read again.
                self.drifts.suspect(&task.id, task.object.clone(), self.now);
                RepairStep::Again(AGAIN)
            }
            (Restore::Records(start, seen), WorkOutcome::Records(governed)) => {
                self.learn_records(&task.id, governed);
                // Helm writes the record first, but the guard may see the object first: an object that another release
                // has just taken over must not be reverted.
                match seen.live.sighting.release.clone().filter(|named| *named != task.id) {
                    Some(named) => {
                        let work = ApiWork::ReadRecords { release: named.clone() };
                        RepairStep::restore(work, Restore::Owner(start, seen, named))
                    }
                    None => self.judge_read(task, start, *seen),
                }
            }
            (Restore::Owner(start, seen, named), WorkOutcome::Records(governed)) => {
                self.learn_records(&named, governed);
                if self.known.declares(&named, &task.object) {
                    // The object now belongs to the named release, so its state is recorded there.
                    if !self.is_told_gone(task) {
                        self.take_in(&task.id, &seen.live, &seen.version);
                    }
                    return RepairStep::Settled;
                }
                self.judge_read(task, start, *seen)
            }
            (Restore::Asking(mut judged), outcome) => {
                judged.answer = DryRunAnswer::read(outcome);
                let standing = self.weigh_answered(task, &judged);
                self.restore_compared(task, judged, standing)
            }
            (Restore::Manifest(sending), WorkOutcome::Document(document)) => {
                self.apply(task, sending, document)
            }
            (Restore::ManifestAgain(sending, result), outcome) => self.probe(task, sending, result, outcome),
            (Restore::Probe(sending, result), outcome) => {
                let is_invalid = |failure: &WorkFailure| matches!(failure.fault, Fault::Invalid { .. });
                let outdated = outcome.written().err().filter(is_invalid).map(|_| {
                    let message = sending.refusal.as_deref().unwrap_or_default();
                    format!("the API server no longer accepts its manifest: {message}")
                });
                self.conclude(task, &sending, result, outdated)
            }
            (Restore::Writing(sending, stage), outcome) => match outcome.written() {
                Ok(now) => self.go_on_sending(task, sending, stage, now),
                Err(failure) => self.retry_without_rejected(task, sending, failure),
            },
            (Restore::GivingBack(situation, from), outcome) => match outcome.written() {
                Ok(now) => {
                    self.repairs.returned.note(&task.object, &situation.release.latest.uid, [from]);
                    let drift = situation.drift.clone();
                    self.note_repaired(&situation, drift, ObjectOutcome::Repaired { attempts: 1 });
                    self.note_restored(task, &situation, ResourceVersion::written(&now));
                    RepairStep::Repaired
                }
                Err(WorkFailure { fault: Fault::Conflict, .. }) => RepairStep::Again(AGAIN),
                Err(failure) => self.fail_by(task, &situation.release, &failure),
            },
            (
                Restore::Reading(start) | Restore::Records(start, _) | Restore::Owner(start, ..),
                WorkOutcome::Failed(failure),
            ) => match start.purpose {
                Purpose::Restoring => self.fail_by(task, &start.release, &failure),
                Purpose::SettlingDoubt(_) => RepairStep::Again(RETRY),
                Purpose::ReturningFields => RepairStep::Settled,
            },
            (_, WorkOutcome::Failed(WorkFailure { fault: Fault::NotLeading, .. })) => {
                RepairStep::Again(RETRY)
            }
            (_, WorkOutcome::Failed(failure)) => self.fail_with(task, &failure),
            _ => RepairStep::Again(AGAIN),
        }
    }

    /// Whether a watch event or a list has shown that the object is gone, and it was not read since: the state that a
    /// repair has read may be older.
    fn is_told_gone(&self, task: &Task) -> bool {
        self.drifts.suspicion(&task.id, &task.object).is_some_and(|suspect| suspect.is_deleted)
    }

    fn judge_read(&mut self, task: &Task, start: Start, seen: ObjectRead) -> RepairStep {
        let situation = match start.purpose {
            Purpose::ReturningFields => {
                self.situation_of(task, ObjectDrift::new(task.object.clone(), DriftKind::Ownership, self.now))
            }
            _ => self.situation(task),
        };
        let Some(situation) = situation else { return RepairStep::Settled };
        if self.is_told_gone(task) {
            return RepairStep::Again(AGAIN);
        }
        if !Arc::ptr_eq(&start.release, &situation.release) {
            // Helm may just have written it.
            self.take_in(&task.id, &seen.live, &seen.version);
        }
        match start.purpose {
            Purpose::Restoring if situation.plan != RepairPlan::Repair => return RepairStep::Again(AGAIN),
            Purpose::ReturningFields if situation.plan != RepairPlan::Repair => return RepairStep::Settled,
            Purpose::ReturningFields => {
                // A repair order includes ownership, whatever the policy's drift mode.
                let mut policy = Policy::clone(&situation.policy);
                policy.drift = DriftMode::Repair;
                let RepairContext { release, circumstances, .. } = &situation;
                let none = DryRunEvidence::None;
                return match compare_live(release, &seen.live, &policy, circumstances, self.now, none) {
                    LiveComparison::Taken(taken, _) => self.give_back(task, &situation, &seen, &taken),
                    _ => RepairStep::Settled,
                };
            }
            _ => {}
        }
        let standing = self.weigh(&situation, &seen, DryRunEvidence::None);
        let answer = DryRunAnswer::Unasked;
        let (changes, purpose) = (Vec::new(), start.purpose);
        let mut judged = Box::new(JudgedObject { situation, seen, changes, answer, purpose });
        if standing.changes().iter().any(is_doubt) {
            if self.settings.dry_runs {
                let JudgedObject { situation, seen, .. } = &*judged;
                let work = ApiWork::Ask {
                    object: task.object.clone(),
                    uid: seen.live.sighting.uid.clone(),
                    revision: situation.release.state.revision,
                    digest: situation.declared.digest,
                };
                return RepairStep::restore(work, Restore::Asking(judged));
            }
            judged.answer = DryRunAnswer::Unknown(NO_DRY_RUNS.to_owned());
        }
        self.restore_compared(task, judged, standing)
    }

    /// Restores the object, or reports why its drift stays.
    fn restore_compared(
        &mut self,
        task: &Task,
        mut judged: Box<JudgedObject>,
        standing: LiveComparison,
    ) -> RepairStep {
        if let Purpose::SettlingDoubt(reason) = judged.purpose {
            return self.settle_doubt(task, &judged, standing, reason);
        }
        let JudgedObject { situation, seen, answer, changes, .. } = &mut *judged;
        match standing {
            LiveComparison::Taken(taken, _) => return self.give_back(task, situation, seen, &taken),
            LiveComparison::Drifts(DriftKind::Changed, found) => *changes = found,
            // It no longer has the reported drift.
            _ if task.towards.is_some() => {
                if !self.is_told_gone(task) {
                    self.take_in(&task.id, &seen.live, &seen.version);
                }
                return RepairStep::Settled;
            }
            other => {
                self.note(task, situation, seen, other);
                if self.situation(task).is_none() {
                    self.tell(LoopNotice::Present(situation.drift.kind));
                }
                return RepairStep::Settled;
            }
        }
        if let Some(why) = answer.unknown()
            && changes.iter().all(is_doubt)
        {
            return self.leave(task, &situation.release, why);
        }
        if changes.iter().all(|change| is_left(&task.object, change)) {
            return self.leave(task, &situation.release, LEFT);
        }
        if self.are_known_fixed(task, &judged) {
            let reason = fixed_fields(judged.changes.iter().map(|change| &change.path));
            return self.leave(task, &judged.situation.release, &reason);
        }
        let JudgedObject { situation, changes, .. } = &mut *judged;
        // Other drift is repaired even if an addition stays unconfirmed.
        if changes.iter().all(|change| !situation.removes(change)) {
            return self.leave_additions(task, situation, changes);
        }
        changes.retain(|change| situation.removes(change));
        if !situation.confirms(changes) {
            return self.leave_unconfirmed(task, situation);
        }
        // The pass may have begun for an ownership drift, whose repair does not wait for the backoff.
        if let Some(wait) = self.repairs.backoff.until(&task.object, self.now) {
            return RepairStep::Later(wait);
        }
        if !task.asked
            && changes.iter().any(|change| touches_template(&task.object, &change.path))
            && let Some((wait, other)) = self.repairs.rollouts.of_another(&task.id, &task.object, self.now)
        {
            let why = format!("{other} of the same release is still rolling out");
            self.keep(task, &why);
            return RepairStep::Later(wait);
        }
        self.send(task, *judged)
    }

    /// Records what is certain after the dry run; reports what stays in doubt.
    fn settle_doubt(
        &mut self,
        task: &Task,
        judged: &JudgedObject,
        standing: LiveComparison,
        reason: &'static str,
    ) -> RepairStep {
        let JudgedObject { situation, seen, answer, .. } = judged;
        let is_certain = standing.changes().iter().any(|change| !is_doubt(change));
        if let (Some(why), false) = (answer.unknown(), is_certain) {
            return self.leave(task, &situation.release, why);
        }
        if is_certain && task.towards.is_some() {
            // The recorded drift stays a doubt: it is a difference from the manifest that failed.
            return self.leave(task, &situation.release, reason);
        }
        self.note(task, situation, seen, standing);
        // The situation is built again, with the new result.
        match self.situation(task) {
            None => RepairStep::Settled,
            Some(now) if !now.drift.needs_dry_run => RepairStep::Again(AGAIN),
            // Something has changed since: the object is read again.
            Some(_) if self.drifts.is_suspect(&task.id, &task.object) => RepairStep::Again(AGAIN),
            Some(_) => self.leave(task, &situation.release, reason),
        }
    }

    pub(crate) fn weigh(
        &self,
        situation: &RepairContext,
        seen: &ObjectRead,
        evidence: DryRunEvidence<'_>,
    ) -> LiveComparison {
        let RepairContext { release, policy, circumstances, .. } = situation;
        compare_live(release, &seen.live, policy, circumstances, self.now, evidence)
    }

    /// Compares the object with its release, using the dry run's answer.
    fn weigh_answered(&mut self, task: &Task, judged: &JudgedObject) -> LiveComparison {
        let JudgedObject { situation, seen, answer, .. } = judged;
        let mut stands = self.weigh(situation, seen, answer.evidence());
        if let (LiveComparison::Drifts(_, changes), DryRunAnswer::Refused { in_place: true, .. }) =
            (&mut stands, answer)
        {
            settle_obstructed(changes);
        }
        if let DryRunAnswer::Canonical(_) = answer {
            self.settle_answered(task, judged);
        }
        stands
    }

    /// Remembers the values that the dry run's answer has settled: those that are in doubt only without it. Both times
    /// the object is compared with the declaration that the API server was asked about; with the answer, the manifest
    /// from before the operation may be nearer.
    fn settle_answered(&mut self, task: &Task, judged: &JudgedObject) {
        let JudgedObject { situation, seen, answer, .. } = judged;
        let RepairContext { release, declared, policy, circumstances, .. } = situation;
        let (object, now) = (&task.object, self.now);
        let claim = state::current_claim(release, object, policy.operation_timeout, now);
        let (Some(claim), Some(live), Some(digest)) = (claim, seen.live.whole(), &declared.digest) else {
            return;
        };
        let context = DriftContext { object, claim: &claim, policy, circumstances, now };
        let changes =
            |evidence| context.diff(declared, &live, evidence).changes.into_iter().map(|it| it.change);
        let left: Vec<FieldChange> = changes(answer.evidence()).collect();
        let doubts: Vec<FieldChange> = changes(DryRunEvidence::None).filter(is_doubt).collect();
        let settled = doubts.iter().filter(|doubt| left.iter().all(|it| it.path != doubt.path));
        let settled = settled.map(|doubt| (&doubt.path, doubt.new.as_ref()));
        let declaration = Declaration { release: &task.id, object, digest, seal: None };
        let settled = ObjectSettledValues::mark(&self.settings.key, &declaration, settled);
        self.settle(object, settled);
    }

    pub(crate) fn note(
        &mut self,
        task: &Task,
        situation: &RepairContext,
        seen: &ObjectRead,
        standing: LiveComparison,
    ) {
        let release = &situation.release;
        let Some(current) = self.known.release(&release.id) else { return };
        // An object that is suspect again has newer information than this, such as a list without it.
        let is_old = self.drifts.is_overtaken(&task.object, seen.live.version())
            || self.drifts.is_suspect(&task.id, &task.object);
        if !Arc::ptr_eq(current, release) || !self.is_governed_alike(&task.object, situation) || is_old {
            // This result is outdated, or will be soon.
            self.drifts.suspect(&release.id, task.object.clone(), self.now);
            return;
        }
        if standing.agrees() {
            self.handle_reverted(release, &seen.live);
        }
        // An agreement is with the seal under which the object was compared.
        let seal = situation.policy.rules(&task.object, &situation.declared).seal();
        self.drifts.seal(&task.object, seal);
        record(&mut self.drifts, release, &seen.live, standing, self.now);
    }

    fn send(&mut self, task: &Task, judged: JudgedObject) -> RepairStep {
        let release = &judged.situation.release;
        let mut sending = WriteAttempt {
            attempts: self.repairs.backoff.attempt(&task.object, self.now),
            manager: self.manager(release, release.state.apply_method),
            judged,
            fixed: Vec::new(),
            in_the_way: Vec::new(),
            suspected: Vec::new(),
            refusal: None,
            tries: 0,
        };
        if let Some(live) = &sending.judged.seen.live.object {
            let mask = sending.judged.situation.exceptions(&task.object, self.now).mask(live);
            sending.in_the_way = sending.replaced(&mask).1;
        }
        let changes = || sending.judged.changes.iter();
        let left = changes().filter(|it| is_left(&task.object, it) || sending.is_excluded(&it.path));
        sending.fixed = left.map(|change| change.path.clone()).collect();
        if !sending.fixed.is_empty() && changes().all(|it| sending.is_excluded(&it.path)) {
            return self.fail(task, &sending.why());
        }
        self.send_open(task, Box::new(sending))
    }

    /// Writes the changes of fields that are not `fixed`.
    fn send_open(&mut self, task: &Task, sending: Box<WriteAttempt>) -> RepairStep {
        let JudgedObject { situation, seen, answer, .. } = &sending.judged;
        if situation.release.state.apply_method == ApplyMethod::ServerSide {
            return sending.read_manifest(task, Restore::Manifest);
        }
        // Only the compared declaration is written.
        if !self.is_in_force(task, situation) {
            return RepairStep::Again(AGAIN);
        }
        let Some(live) = &seen.live.object else { return self.conclude_nothing(task) };
        let mask = situation.exceptions(&task.object, self.now).mask(live);
        let moved = sending.moved(&mask);
        let (object, fields, changes) = (&task.object, &*situation.declared.fields(), &sending.open());
        let restoration = Restoration { object, fields, changes, moved: &moved };
        match restoration.merged(live, answer.canonical(), &mask) {
            Some(patch) => sending.merge(task, patch, WriteStage::Last),
            None => self.conclude_nothing(task),
        }
    }

    fn conclude_nothing(&mut self, task: &Task) -> RepairStep {
        self.fail(task, "no write would repair it")
    }

    fn go_on_sending(
        &mut self,
        task: &Task,
        sending: Box<WriteAttempt>,
        stage: WriteStage,
        now: Value,
    ) -> RepairStep {
        let is_over = matches!(stage, WriteStage::Last);
        if !is_over && !self.is_in_force(task, &sending.judged.situation) {
            // The release or its policy has changed since the write before.
            return RepairStep::Again(AGAIN);
        }
        match stage {
            WriteStage::PutBack { mut body, restored } => {
                body::set_version(&mut body, &now);
                let write = Write::Apply { document: Secret(body), manager: sending.manager.clone() };
                sending.write(task, write, WriteStage::Applied { restored })
            }
            WriteStage::Applied { restored } => {
                let name = sending.manager.clone();
                let helm = owners::FieldManager {
                    name,
                    operation: ManagerOperation::Apply,
                    subresource: String::new(),
                };
                // After an apply without a patch, there is nothing to assign.
                let patch = if restored.is_empty() { None } else { returned(&now, &helm, &restored) };
                match patch {
                    Some(patch) => sending.merge(task, patch, WriteStage::Owned),
                    None => self.unseal(task, sending, now),
                }
            }
            WriteStage::Owned => self.unseal(task, sending, now),
            WriteStage::Last => self.finish_sending(task, sending, Ok(now)),
        }
    }

    /// Removes undeclared sealed fields and additions, which no apply removes.
    fn unseal(&mut self, task: &Task, sending: Box<WriteAttempt>, now: Value) -> RepairStep {
        match body::unsealed(&task.object, &sending.open(), &now) {
            Some(patch) => sending.merge(task, patch, WriteStage::Last),
            None => self.finish_sending(task, sending, Ok(now)),
        }
    }

    /// Applies the manifest except for masked and fixed fields.
    fn apply(&mut self, task: &Task, sending: Box<WriteAttempt>, document: ManifestDocument) -> RepairStep {
        let JudgedObject { situation, seen, .. } = &sending.judged;
        let Some(live) = &seen.live.object else { return self.conclude_nothing(task) };
        let ManifestDocument { status, digest, object, .. } = document;
        let object = object.map(|Secret(value)| value);
        // The manifest of an earlier revision was not compared with the first seen one.
        let is_other =
            task.towards.is_some() && object.as_ref().map(Digest::new) != Some(situation.declared.digest);
        // Only the compared declaration is written.
        let moved_on = !task.is_to_write(status) || digest != situation.release.state.digest || is_other;
        let is_in_force = self.is_in_force(task, situation);
        let document = object
            .and_then(|object| prepare(object, seen.api_version()))
            .filter(|_| !moved_on && is_in_force);
        let Some(document) = document else { return RepairStep::Again(AGAIN) };
        let mut mask = situation.exceptions(&task.object, self.now).mask(live);
        let moved = sending.moved(&mask);
        let staying = sending.judged.changes.iter().filter(|change| sending.stays(change));
        let excluded = sending.in_the_way.iter().map(|it| &it.found.declared);
        let left = staying.map(|change| &change.path).chain(&sending.fixed).chain(excluded);
        mask.0.extend(left.filter_map(|path| Pattern::parse(&path.to_string()).ok()));
        // Whether the apply would remove fields of Helm's last apply: the guard has not seen Helm remove them.
        let abandons = |body: &Value| {
            seen.live.whole().is_none_or(|whole| apply_removes_fields(&whole, &sending.manager, body))
        };
        let fields = situation.declared.fields();
        let body = body::applied((&document, &fields), live, &mask, abandons);
        if situation.ordered_by.is_none() && abandons(&body) {
            // Nothing was written, so no other writer has undone a repair.
            self.repairs.backoff.forget(&task.object);
            return self.leave_unconfirmed(task, situation);
        }
        let changes = &sending.open();
        let restoration = Restoration { object: &task.object, fields: &fields, changes, moved: &moved };
        // Suspected fields are removed together with everything that the patch restores, or not at all. And API servers
        // before Kubernetes 1.29 cannot apply to an object with a duplicate list element, and know no owners of it.
        let is_doubled = changes.iter().any(FieldChange::is_doubled);
        let is_whole = is_doubled || !sending.suspected.is_empty();
        let canonical = sending.judged.answer.canonical();
        let room = match is_whole {
            true => restoration.merged(live, canonical, &mask),
            false => restoration.making_room(live, canonical, &mask),
        };
        match room {
            Some(patch) => {
                let mut restored: Vec<Path> = moved.into_iter().map(|it| it.declared).collect();
                if is_whole {
                    restored.extend(changes.iter().map(|change| change.path.clone()));
                }
                if is_doubled {
                    let leaves = fields.leaves().into_iter().map(|(path, _)| path);
                    restored.extend(leaves.filter(|path| !mask.covers(path)));
                }
                sending.merge(task, patch, WriteStage::PutBack { body, restored })
            }
            None => {
                let write = Write::Apply { document: Secret(body), manager: sending.manager.clone() };
                sending.write(task, write, WriteStage::Applied { restored: Vec::new() })
            }
        }
    }

    /// Writes again after a rejection: first without the undeclared fields that the API server names beside the changed
    /// ones, then without the fields that it rejects.
    fn retry_without_rejected(
        &mut self,
        task: &Task,
        mut sending: Box<WriteAttempt>,
        failure: WorkFailure,
    ) -> RepairStep {
        let Fault::Invalid { said, causes } = &failure.fault else {
            return self.finish_sending(task, sending, Err(failure));
        };
        if sending.refusal.is_none() {
            sending.refusal = Some(said.clone());
            sending.suspected = sending.named_by(causes);
            if !sending.suspected.is_empty() {
                return self.send_open(task, sending);
            }
        }
        sending.suspected.clear();
        let before = sending.fixed.len();
        for path in body::immutable(&sending.judged.changes, causes) {
            if !sending.fixed.contains(&path) {
                sending.fixed.push(path);
            }
        }
        // A field that stays can make another one invalid.
        sending.tries += 1;
        let is_less = sending.fixed.len() != before && sending.fixed.len() != sending.judged.changes.len();
        if is_less && sending.tries <= ROUNDS {
            return self.send_open(task, sending);
        }
        self.finish_sending(task, sending, Err(failure))
    }

    /// Ends the writes. Where fields could not be changed, the API server may no longer accept the manifest itself.
    fn finish_sending(
        &mut self,
        task: &Task,
        sending: Box<WriteAttempt>,
        result: Result<Value, WorkFailure>,
    ) -> RepairStep {
        if sending.refusal.is_none() || sending.fixed.is_empty() {
            return self.conclude(task, &sending, result, None);
        }
        sending.read_manifest(task, |sending| Restore::ManifestAgain(sending, result))
    }

    /// Checks whether the API server accepts the manifest as a new object.
    fn probe(
        &mut self,
        task: &Task,
        sending: Box<WriteAttempt>,
        result: Result<Value, WorkFailure>,
        outcome: WorkOutcome,
    ) -> RepairStep {
        let document = match outcome {
            WorkOutcome::Document(ManifestDocument { object: Some(Secret(object)), .. }) => {
                prepare(object, sending.judged.seen.api_version())
            }
            _ => None,
        };
        let Some(document) = document else { return self.conclude(task, &sending, result, None) };
        let version = Arc::clone(&sending.judged.situation.declared.version);
        let work = ApiWork::Probe { object: task.object.clone(), version, document: Secret(document) };
        RepairStep::restore(work, Restore::Probe(sending, result))
    }

    fn conclude(
        &mut self,
        task: &Task,
        sending: &WriteAttempt,
        result: Result<Value, WorkFailure>,
        outdated: Option<String>,
    ) -> RepairStep {
        let release = Arc::clone(&sending.judged.situation.release);
        let failure = match result {
            Ok(now) => return self.compare_written(task, sending, &now, outdated),
            Err(failure) => failure,
        };
        match failure.fault {
            Fault::Conflict => {
                self.repairs.backoff.retract(&task.object);
                RepairStep::Again(AGAIN)
            }
            Fault::Invalid { .. } if let Some(reason) = outdated => self.fail(task, &reason),
            Fault::Invalid { said, .. } if !sending.fixed.is_empty() => {
                self.learn_fixed(task, &sending.judged, &sending.immutable());
                self.say(task, &release, &format!("{}: {said}", sending.why()));
                self.tell(LoopNotice::RepairRejected(DriftKind::Changed));
                RepairStep::Settled
            }
            _ => self.fail_by(task, &release, &failure),
        }
    }

    fn compare_written(
        &mut self,
        task: &Task,
        sending: &WriteAttempt,
        now: &Value,
        outdated: Option<String>,
    ) -> RepairStep {
        let JudgedObject { situation, seen, changes, answer, .. } = &sending.judged;
        if changes.iter().any(|change| touches_template(&task.object, &change.path)) {
            self.repairs.rollouts.begin(&task.id, &task.object, now, self.now);
        }
        let evidence = answer.canonical().map_or(DryRunEvidence::None, DryRunEvidence::Canonical);
        let (release, policy) = (&situation.release, &situation.policy);
        let mut left = match self.compare(release, &task.object, Some(now), policy, evidence) {
            Some(LiveVerdict::Drifted(drift)) => drift.changes,
            _ => Vec::new(),
        };
        left.retain(|change| change.agreement > FieldAgreement::Doubt);
        let (left, added): (Vec<_>, Vec<_>) = left.into_iter().partition(|change| situation.removes(change));
        let (known, open): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|it| sending.fixed.contains(&it.path));
        if !open.is_empty() {
            let paths: Vec<String> = open.iter().map(|change| change.path.to_string()).collect();
            let paths = paths.join(", ");
            return self.fail(
                task,
                &format!(
                    "the API server accepted the write, but these fields were reverted at once: {paths}"
                ),
            );
        }
        let contested = self.repairs.backoff.is_contested(&task.object, self.now);
        let helms = situation.life.as_ref().map(|life| Arc::clone(&life.managers)).unwrap_or_default();
        let drift = |changes: &[FieldChange]| {
            let drift = ObjectDrift::new(task.object.clone(), DriftKind::Changed, situation.drift.since);
            judge::seen(&seen.live, changes, &helms, drift)
        };
        let attempts = sending.attempts;
        let told = ObjectDrift { contested, ..drift(&sending.open()) };
        if known.is_empty() && added.is_empty() {
            self.note_repaired(situation, told, ObjectOutcome::Repaired { attempts });
            self.note_restored(task, situation, ResourceVersion::written(now));
            if changes.iter().any(|change| sending.stays(change)) {
                // The dry run was rejected, perhaps only because of the drift that is repaired now.
                self.drifts.suspect(&task.id, task.object.clone(), self.now);
            }
            return RepairStep::Repaired;
        }
        let rest = drift(&[known.as_slice(), &added].concat());
        self.note_repaired(situation, told, ObjectOutcome::Partly { attempts });
        self.drifts.record_drift(&task.id, rest);
        if known.is_empty() {
            return self.leave_additions(task, situation, &added);
        }
        if let Some(reason) = &outdated {
            return self.fail(task, reason);
        }
        self.learn_fixed(task, &sending.judged, &sending.immutable());
        self.leave(task, &Arc::clone(&situation.release), &sending.why())
    }

    /// Returns fields of an object without drift to Helm, for an order towards the last deployed revision.
    pub(crate) fn return_ownership(&mut self, task: &Task) -> RepairStep {
        if task.towards.is_none() {
            return RepairStep::Settled;
        }
        let drift = ObjectDrift::new(task.object.clone(), DriftKind::Ownership, self.now);
        let Some(situation) = self.situation_of(task, drift) else { return RepairStep::Settled };
        if situation.plan != RepairPlan::Repair {
            return RepairStep::Settled;
        }
        Self::begin_restoring(task, &situation, Purpose::ReturningFields)
    }

    /// Returns fields to Helm, once for each manager and revision.
    fn give_back(
        &mut self,
        task: &Task,
        situation: &RepairContext,
        seen: &ObjectRead,
        taken: &TakenFields,
    ) -> RepairStep {
        let record = &situation.release.latest.uid;
        // The guard may finish its own incomplete return.
        if taken.by != taken.helm.name && self.repairs.returned.has(&task.object, record, &taken.by) {
            let why = "its fields were returned to Helm once and taken over again";
            return self.leave(task, &situation.release, why);
        }
        let patch = seen.live.whole().and_then(|whole| returned(&whole, &taken.helm, &taken.paths));
        let Some(patch) = patch else { return RepairStep::Settled };
        let write = Write::Merge { patch: Secret(patch), manager: taken.helm.name.clone() };
        let work = task.write(&situation.declared, write);
        RepairStep::restore(work, Restore::GivingBack(Box::new(situation.clone()), taken.by.clone()))
    }
}

fn no_revision() -> TargetError {
    TargetError::NoneEligible("no revision was deployed before it".to_owned())
}

/// Whether a change is of a sealed field that no repair may undo.
pub(crate) fn is_left(object: &ObjectId, change: &FieldChange) -> bool {
    sealed::is_sealed(object, &change.path)
        && change.declared.is_none()
        && sealed::is_left_to_user(object, change)
}

/// Why the guard leaves fields that the API server does not let it set: they are immutable, or something that it does
/// not name excludes them.
fn fixed_fields<'p>(paths: impl IntoIterator<Item = &'p Path>) -> String {
    let paths: Vec<String> = paths.into_iter().take(NAMED).map(ToString::to_string).collect();
    format!("the API server refuses to set these fields in place: {}", paths.join(", "))
}

fn is_doubt(change: &FieldChange) -> bool {
    change.agreement == FieldAgreement::Doubt
}

/// Why a declared field is not restored: the undeclared field in its place, and its field manager.
fn excluded(Replacement { found, by, .. }: &Replacement) -> String {
    let by = by.as_ref().map_or_else(String::new, |by| format!(" of field manager {}", by.name));
    let what = if let Some(Segment::Key(_)) = found.live.0.last() { "element" } else { "field" };
    let Move { declared, live, .. } = found;
    format!("the undeclared {what} {live}{by} takes the place of {declared}; remove it")
}
