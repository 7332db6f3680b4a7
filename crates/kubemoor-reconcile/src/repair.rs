//! Repairs one drift, or reports why it is not repaired.
//!
//! The object is read first, then the record, then the object is written: a record that was read earlier could be one
//! that Helm has replaced since. Writes use Helm's own field manager and method, otherwise the next upgrade would
//! conflict. A repair is one value that waits for one outcome at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::brake::{Brake, BrakeState, ReleaseTally};
use crate::drifts::{LastSeen, ObjectDrift, ResourceVersion};
use crate::event::{ApiWork, Fault, LiveObject, LoopNotice, ObjectOutcome, WorkFailure, Write};
use crate::machine::Reconciler;
use crate::plan::{NOT_SERVED, RepairPlan, never_repaired_reason, plan};
use crate::recreate::Recreate;
use crate::report::DriftKind;
use crate::restore::{JudgedObject, Purpose, RepairTarget, Restore};
use crate::rollout::Rollouts;
use crate::waits::Backoff;
use kubemoor_declare::equality::FieldAgreement;
use kubemoor_declare::fields::FieldChange;
use kubemoor_declare::model::{DriftMode, ObjectId, ReleaseId};
use kubemoor_declare::path::Path;
use kubemoor_helm::record::{ApplyMethod, ReleaseStatus};
use kubemoor_helm::release::{DeclaredObject, Release};
use kubemoor_policy::Policy;
use kubemoor_policy::agreement::LastAgreement;
use kubemoor_policy::signing::{Ticket, Verb};
use kubemoor_verdict::edit::{ObjectContext, ObjectDeclaration};
use kubemoor_verdict::exceptions::ObjectExceptions;

/// The wait before another try at an object whose release has changed during the repair.
pub(crate) const AGAIN: Duration = Duration::from_millis(100);

pub(crate) const RETRY: Duration = Duration::from_secs(5);

/// The wait for a kind that the cluster does not serve: its definition may be created soon.
pub(crate) const UNSERVED: Duration = Duration::from_secs(15);

/// The reason of a doubt that a dry run has not settled.
const IN_DOUBT: &str = "a dry run could not tell whether it matches";

/// The wait before another check of the brake while there is too much drift.
const SLIPPING: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct Repairs {
    pub(crate) brake: Brake,
    pub(crate) backoff: Backoff,
    pub(crate) rollouts: Rollouts,
    /// The fields of objects that the API server refuses to set.
    fixed: RecordNotes,
    pub(crate) returned: RecordNotes,
    /// Releases that were reported to be on hold, and until when.
    held: BTreeMap<ReleaseId, Timestamp>,
}

#[derive(Clone)]
pub(crate) struct Task {
    pub(crate) id: ReleaseId,
    pub(crate) object: ObjectId,
    pub(crate) asked: bool,
    /// The objects that the user has permission to write, as checked with the API server.
    pub(crate) ticket: Option<Arc<Ticket>>,
    /// The revision to repair towards, where the last operation failed.
    pub(crate) towards: Option<Arc<RepairTarget>>,
}

pub(crate) enum RepairStep {
    /// Do this work, then continue the repair in this state.
    Do(Box<(ApiWork, RepairState)>),
    Settled,
    Repaired,
    /// Another pass follows after this time.
    Later(Duration),
    /// Nothing could be done: another pass follows after this time, which grows with each try.
    Again(Duration),
}

pub(crate) enum RepairState {
    Recreate(Recreate),
    Restore(Restore),
}

/// An object as it was read, and its API version.
pub(crate) struct ObjectRead {
    pub(crate) live: LiveObject,
    pub(crate) version: String,
}

/// What repairs of objects have shown: texts by object, valid for one record of its release (its uid). Notes about
/// another record have no effect, even with the same revision: a reinstalled release begins at revision 1 again.
#[derive(Debug, Default)]
pub(crate) struct RecordNotes(BTreeMap<ObjectId, (String, BTreeSet<String>)>);

impl RecordNotes {
    fn knows(&self, object: &ObjectId) -> bool {
        self.0.contains_key(object)
    }

    /// Whether this text was noted for the object and this record.
    pub(crate) fn has(&self, object: &ObjectId, record: &str, text: &str) -> bool {
        self.0.get(object).is_some_and(|(of, texts)| of == record && texts.contains(text))
    }

    /// Notes texts for the object and this record, and drops those for another record.
    pub(crate) fn note(&mut self, object: &ObjectId, record: &str, texts: impl IntoIterator<Item = String>) {
        let (of, noted) = self.0.entry(object.clone()).or_default();
        if of != record {
            (*of, *noted) = (record.to_owned(), BTreeSet::new());
        }
        noted.extend(texts);
    }

    fn forget(&mut self, object: &ObjectId) {
        self.0.remove(object);
    }
}

impl Repairs {
    /// Resets the backoff after another writer reverted a drift, and allows fields to be returned to Helm once more.
    pub(crate) fn forgive(&mut self, object: &ObjectId, now: Timestamp) {
        if self.backoff.reset_after_revert(object, now) {
            self.returned.forget(object);
        }
    }

    /// Forgets an object that a release no longer declares.
    pub(crate) fn forget(&mut self, object: &ObjectId) {
        self.fixed.forget(object);
        self.returned.forget(object);
        self.backoff.forget(object);
        self.rollouts.forget(object);
    }
}

impl ObjectRead {
    pub(crate) fn api_version(&self) -> String {
        api_version(&self.live.sighting.id, &self.version)
    }
}

impl RepairStep {
    pub(crate) fn restore(work: ApiWork, state: Restore) -> Self {
        Self::Do(Box::new((work, RepairState::Restore(state))))
    }

    pub(crate) fn recreate(work: ApiWork, state: Recreate) -> Self {
        Self::Do(Box::new((work, RepairState::Recreate(state))))
    }
}

/// Helm's field manager if no object shows it: the name of its program.
const HELM: &str = "helm";

#[derive(Clone)]
pub(crate) struct RepairContext {
    pub(crate) release: Arc<Release>,
    pub(crate) declared: Arc<DeclaredObject>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) circumstances: ObjectContext,
    pub(crate) life: Option<LastSeen>,
    pub(crate) drift: ObjectDrift,
    pub(crate) plan: RepairPlan,
    /// The digest of the manifest that was first seen of the release's revision.
    pub(crate) first_digest: Option<[u8; 32]>,
    /// An exception permits its deletion, or its own time to live may have removed it.
    pub(crate) may_be_gone: bool,
    pub(crate) is_autoscaled: bool,
    pub(crate) is_unserved: bool,
    /// The agreement of the live object with the declaration; `None` if there never was one.
    pub(crate) agreement: Option<LastAgreement>,
    /// The user who ordered the repair and has permission to write the object.
    pub(crate) ordered_by: Option<String>,
    /// The object was seen without additions below sealed paths.
    pub(crate) was_without_additions: bool,
}

impl RepairContext {
    pub(crate) fn exceptions<'s>(&'s self, object: &'s ObjectId, now: Timestamp) -> ObjectExceptions<'s> {
        let Self { release, declared, policy, circumstances, .. } = self;
        let of = ObjectDeclaration { object, release: &release.id, declared };
        ObjectExceptions::new(of, policy, circumstances, None, now).of_live(of, release)
    }

    /// Whether the declared values of these fields were seen in the live object, or a user with permission to write it
    /// ordered the repair.
    pub(crate) fn confirms(&self, changes: &[FieldChange]) -> bool {
        let paths = || changes.iter().map(|change| &change.path);
        self.ordered_by.is_some() || self.agreement.as_ref().is_some_and(|it| it.confirms(paths()))
    }

    /// Whether the guard may revert a change. An addition is removed only if the object was seen without it, or a user
    /// with permission to write the object ordered it: otherwise it may be older than the seal, or come from Helm's own
    /// operation. A change within an addition stays, because the former value is unknown.
    pub(crate) fn removes(&self, change: &FieldChange) -> bool {
        match change.agreement {
            FieldAgreement::Within => false,
            FieldAgreement::Added => self.ordered_by.is_some() || self.was_without_additions,
            _ => true,
        }
    }

    /// The path of the replicas if a new object is created without them: an autoscaler sets them, and the guard has
    /// never seen the declared value.
    pub(crate) fn left_out(&self) -> Option<&Path> {
        let is_open = self.agreement.as_ref().is_some_and(|agreement| !agreement.confirms_all(None));
        self.declared.scale().filter(|_| is_open && self.ordered_by.is_none())
    }
}

impl Task {
    pub(crate) fn read_object(&self, declared: &DeclaredObject) -> ApiWork {
        ApiWork::ReadObject { object: self.object.clone(), version: Arc::clone(&declared.version) }
    }

    pub(crate) fn read_records(&self) -> ApiWork {
        ApiWork::ReadRecords { release: self.id.clone() }
    }

    /// Reads the object's document from the manifest of a release's revision.
    pub(crate) fn read_manifest(&self, release: &Release) -> ApiWork {
        ApiWork::ReadDocument { revision: release.state.revision, object: self.object.clone() }
    }

    pub(crate) fn write(&self, declared: &DeclaredObject, write: Write) -> ApiWork {
        ApiWork::Write { object: self.object.clone(), version: Arc::clone(&declared.version), write }
    }

    pub(crate) fn is_to_write(&self, status: ReleaseStatus) -> bool {
        status == ReleaseStatus::Deployed || (self.towards.is_some() && status == ReleaseStatus::Superseded)
    }
}

const ADDED: &str = "the guard has never seen the object without this addition below a sealed path; \
                     `kubemoor reconcile` removes it";

/// Why a change within an addition of a webhook or the API server stays.
const WITHIN: &str = "a field that a webhook or the API server added was changed, and the guard does not \
                      know its former value; undo the change by hand";

const UNCONFIRMED: &str = "the guard has never seen the live object with these values";

impl Reconciler {
    pub(crate) fn attempt(&mut self, task: &Task) -> RepairStep {
        // By now, the object's annotations name another release that declares it.
        if let Some(life) = self.drifts.last_seen_state(&task.object)
            && life.has_release_annotations
            && life.release != task.id
            && self.known.declares(&life.release, &task.object)
        {
            self.drifts.clear_drift(&task.id, &task.object);
            return RepairStep::Settled;
        }
        let Some(situation) = self.situation(task) else { return self.return_ownership(task) };
        self.mark_unconfirmed(task, false);
        self.mark_allowed(task, &situation);
        match situation.plan {
            RepairPlan::Wait => match situation.exceptions(&task.object, self.now).next_change() {
                Some(until) => match Duration::try_from(until.duration_since(self.now)) {
                    Ok(left) => RepairStep::Later(left),
                    Err(_) => RepairStep::Again(AGAIN),
                },
                None => RepairStep::Settled,
            },
            RepairPlan::Hold(left) => {
                self.tell_held(&situation.release, left);
                let why =
                    "its release's records may come from a backup, so repairs are on hold for 10 minutes";
                self.keep(task, why);
                RepairStep::Later(Duration::try_from(left).unwrap_or(RETRY))
            }
            RepairPlan::Report(reason) => self.report(task, &situation, reason),
            RepairPlan::Unconfirmed => self.leave_unconfirmed(task, &situation),
            RepairPlan::Repair if self.settings.read_only => {
                self.report(task, &situation, "the guard runs with --read-only")
            }
            RepairPlan::Repair if self.suspensions.get(&task.id, self.now).is_some() && !task.asked => {
                self.keep(task, "repairs of its release are suspended");
                RepairStep::Settled
            }
            // The drift is not certain yet, and a doubt alone causes no write. A repair towards an earlier revision
            // settles its doubts itself, because the drift is a difference from another manifest.
            RepairPlan::Repair if situation.drift.needs_dry_run && task.towards.is_none() => {
                self.report(task, &situation, IN_DOUBT)
            }
            RepairPlan::Repair => {
                if task.asked {
                    self.repairs.backoff.forget(&task.object);
                } else if let Some(done) = self.wait(task, &situation.drift) {
                    return done;
                }
                if !situation.drift.needs_dry_run {
                    self.count_found(task, situation.drift.kind);
                }
                match situation.drift.kind {
                    DriftKind::Missing => RepairStep::recreate(
                        task.read_object(&situation.declared),
                        Recreate::Reading(situation.release),
                    ),
                    _ => Self::begin_restoring(task, &situation, Purpose::Restoring),
                }
            }
        }
    }

    fn tell_held(&mut self, release: &Arc<Release>, left: SignedDuration) {
        let now = self.now;
        let until = now.checked_add(left).unwrap_or(Timestamp::MAX);
        let held = &mut self.repairs.held;
        held.retain(|_, until| *until > now);
        if self.leads && held.insert(release.id.clone(), until).is_none() {
            self.tell(LoopNotice::Held { release: Arc::clone(release), until });
        }
    }

    /// The wait that delays the repair of the object; `None` if there is no reason to wait. While the brake is on,
    /// nothing is scheduled: the order that releases it starts new passes.
    fn wait(&mut self, task: &Task, drift: &ObjectDrift) -> Option<RepairStep> {
        match self.pull_brake(&task.id) {
            BrakeState::Free => {}
            BrakeState::Pending => return Some(RepairStep::Later(SLIPPING)),
            BrakeState::JustEngaged(_) | BrakeState::On => {
                self.keep(task, "too many objects drift at once, so repairs have stopped");
                return Some(RepairStep::Settled);
            }
        }
        // Fields are returned once for each manager and revision, so there is no endless conflict.
        if drift.kind == DriftKind::Ownership && !matches!(drift.repaired, Some(Err(_))) {
            return None;
        }
        let wait = self.repairs.backoff.until(&task.object, self.now)?;
        if self.repairs.backoff.is_contested(&task.object, self.now) {
            self.contest(task);
        }
        Some(RepairStep::Later(wait))
    }

    /// The current situation of a task; `None` if the object no longer drifts.
    pub(crate) fn situation(&mut self, task: &Task) -> Option<RepairContext> {
        let drift = self.drifts.get_mut(&task.id, &task.object)?.clone();
        self.situation_of(task, drift)
    }

    /// As [`Self::situation`], for a drift that is not recorded.
    pub(crate) fn situation_of(&self, task: &Task, drift: ObjectDrift) -> Option<RepairContext> {
        let Task { id, object, .. } = task;
        let release = self.release_of(task)?;
        let declared = Arc::clone(release.declared(object)?);
        let policy = Arc::clone(self.known.policy(id)?);
        let circumstances = self.known.circumstances(&release, object);
        let of = ObjectDeclaration { object, release: &release.id, declared: &declared };
        let exceptions = ObjectExceptions::new(of, &policy, &circumstances, None, self.now);
        let may_be_gone = exceptions.of_deletion().is_some() || exceptions.may_have_expired;
        let is_autoscaled = exceptions.is_autoscaled();
        drop(exceptions);
        let mut situation = RepairContext {
            life: self.drifts.last_seen_state(object).cloned(),
            first_digest: self.first_digest(task, &release),
            may_be_gone,
            is_autoscaled,
            is_unserved: self.is_unserved(object),
            agreement: self.drifts.agreement(id, object, &declared).cloned(),
            ordered_by: ordered_by(task, &release, drift.kind, self.now),
            was_without_additions: self.drifts.is_seen_without_additions(id, object, &declared),
            plan: RepairPlan::Wait,
            release,
            declared,
            policy,
            circumstances,
            drift,
        };
        situation.plan = plan(task, &situation, self.now);
        Some(situation)
    }

    /// The release that the object is repaired for; `None` if it is gone, or has changed since the order.
    fn release_of(&self, task: &Task) -> Option<Arc<Release>> {
        let now = self.known.release(&task.id)?;
        match &task.towards {
            None => Some(Arc::clone(now)),
            Some(towards) => towards.release_for(now),
        }
    }

    pub(crate) fn is_in_force(&self, task: &Task, situation: &RepairContext) -> bool {
        let is_release = self.release_of(task).is_some_and(|now| Arc::ptr_eq(&now, &situation.release));
        is_release && self.is_governed_alike(&task.object, situation)
    }

    /// Whether the policy, exceptions and autoscalers are still those of a situation.
    pub(crate) fn is_governed_alike(&self, object: &ObjectId, situation: &RepairContext) -> bool {
        let RepairContext { release, policy, circumstances, .. } = situation;
        let now = self.known.circumstances(release, object);
        self.known.policy(&release.id).is_some_and(|now| Arc::ptr_eq(now, policy))
            && now.allowances == circumstances.allowances
            && now.autoscalers == circumstances.autoscalers
            && now.departed == circumstances.departed
    }

    pub(crate) fn manager(&self, release: &Release, method: ApplyMethod) -> String {
        self.drifts.manager(release, method).map_or_else(|| HELM.to_owned(), String::from)
    }

    /// The digest of the first seen manifest of the revision to repair towards. For an earlier deployed revision only
    /// the last digest is known; even then, each value that is written is confirmed.
    fn first_digest(&self, task: &Task, release: &Release) -> Option<[u8; 32]> {
        let first = self.drifts.first(&task.id, release.state.revision).map(|first| first.digest);
        first.or_else(|| task.towards.as_ref().map(|_| release.state.digest))
    }

    fn pull_brake(&mut self, release: &ReleaseId) -> BrakeState {
        if self.repairs.brake.is_on(&release.namespace) {
            return BrakeState::On;
        }
        self.recount();
        let drifting = self.tally.drifting(self.known.objects(), None);
        let pull = self.repairs.brake.update_state(&release.namespace, &drifting, self.now);
        if let BrakeState::JustEngaged(namespace) = &pull {
            self.tell(LoopNotice::Braked { namespace: namespace.clone(), drifting });
        }
        pull
    }

    /// Handles a user's repair order: releases the brake unless there is too much drift outside of `release`. Returns
    /// whether it was released.
    pub(crate) fn ease(&mut self, release: &ReleaseId) -> bool {
        self.recount();
        let drifting = self.tally.drifting(self.known.objects(), Some(release));
        let eased = self.repairs.brake.release_by_order(&release.namespace, &drifting);
        let is_eased = !eased.is_empty();
        for namespace in eased {
            self.tell(LoopNotice::Eased { namespace, by: Some(release.clone()) });
        }
        is_eased
    }

    /// Releases the brake everywhere after a loss of leadership: only the leader repairs.
    pub(crate) fn release_brake(&mut self) {
        let released = self.repairs.brake.release_all();
        if !released.is_empty() {
            released.into_iter().for_each(|namespace| self.tell(LoopNotice::Eased { namespace, by: None }));
            self.attend_all();
        }
    }

    /// Releases the brake of a namespace without releases: a new namespace of the same name starts without it.
    pub(crate) fn forget_brake(&mut self, namespace: &str) {
        let is_left = |release: &Arc<Release>| release.id.namespace == namespace;
        if self.repairs.brake.is_on_in(namespace) && !self.known.releases().any(is_left) {
            self.repairs.brake.forget(namespace);
            self.tell(LoopNotice::Eased { namespace: Some(namespace.to_owned()), by: None });
        }
    }

    pub(crate) fn recount(&mut self) {
        for id in self.drifts.take_touched() {
            let share = ReleaseTally { drifting: self.count_drifting(&id), oldest: self.drifts.oldest(&id) };
            self.tally.set(&id, share);
        }
    }

    fn count_drifting(&self, id: &ReleaseId) -> usize {
        let Some((release, policy)) = self.known.release(id).zip(self.known.policy(id)) else { return 0 };
        if release.state.status != ReleaseStatus::Deployed || policy.drift != DriftMode::Repair {
            return 0;
        }
        self.drifts.count(id, |object, life| {
            let kind = if life.alive { DriftKind::Changed } else { DriftKind::Missing };
            never_repaired_reason(release, object, kind, policy.repair).is_none()
                && release.declared(object).is_some_and(|it| {
                    !it.opted_out && it.plural().is_some() && self.drifts.agreement(id, object, it).is_some()
                })
        })
    }

    pub(crate) fn keep(&mut self, task: &Task, why: &str) {
        self.drifts.set_unrepaired_reason(&task.id, &task.object, why);
    }

    fn count_found(&mut self, task: &Task, kind: DriftKind) {
        let known = self.drifts.get_mut(&task.id, &task.object);
        if known.is_some_and(|known| !std::mem::replace(&mut known.counted, true)) {
            self.tell(LoopNotice::Found(kind));
        }
    }

    pub(crate) fn contest(&mut self, task: &Task) {
        let Some(drift) = self.drifts.get_mut(&task.id, &task.object) else { return };
        if matches!(drift.repaired, Some(Err(_))) || std::mem::replace(&mut drift.contested, true) {
            return;
        }
        let drift = drift.clone();
        if let Some(release) = self.known.release(&task.id).cloned() {
            self.tell(LoopNotice::Object { release, drift: Box::new(drift), fate: ObjectOutcome::Contested });
        }
    }

    /// Reports once that a drift is not repaired. A doubt is settled by a dry run first, if possible.
    pub(crate) fn report(
        &mut self,
        task: &Task,
        situation: &RepairContext,
        reason: &'static str,
    ) -> RepairStep {
        if situation.drift.needs_dry_run {
            return Self::begin_restoring(task, situation, Purpose::SettlingDoubt(reason));
        }
        self.leave(task, &situation.release, reason)
    }

    pub(crate) fn say(&mut self, task: &Task, release: &Arc<Release>, reason: &str) {
        self.drifts.set_unrepaired_reason(&task.id, &task.object, reason);
        let Some(drift) = self.drifts.get_mut(&task.id, &task.object) else { return };
        if std::mem::replace(&mut drift.reported, true) {
            return;
        }
        let drift = drift.clone();
        let fate = if drift.needs_dry_run { ObjectOutcome::InDoubt } else { ObjectOutcome::Reported };
        if fate == ObjectOutcome::Reported {
            self.count_found(task, drift.kind);
        }
        self.tell(LoopNotice::Object { release: Arc::clone(release), drift: Box::new(drift), fate });
    }

    /// Reports once that a drift is not repaired, and ends the repair.
    pub(crate) fn leave(&mut self, task: &Task, release: &Arc<Release>, reason: &str) -> RepairStep {
        self.say(task, release, reason);
        RepairStep::Settled
    }

    /// Reports that the object stays unchanged. A doubt is settled first: an object that turns out to match is thereby
    /// confirmed, and a remaining doubt is reported as one.
    pub(crate) fn leave_unconfirmed(&mut self, task: &Task, situation: &RepairContext) -> RepairStep {
        if situation.drift.needs_dry_run {
            return self.report(task, situation, UNCONFIRMED);
        }
        self.mark_unconfirmed(task, true);
        if task.asked
            && let Some(drift) = self.drifts.get_mut(&task.id, &task.object)
        {
            // Each order is answered.
            drift.reported = false;
        }
        self.leave(task, &situation.release, UNCONFIRMED)
    }

    pub(crate) fn leave_additions(
        &mut self,
        task: &Task,
        situation: &RepairContext,
        changes: &[FieldChange],
    ) -> RepairStep {
        self.mark_unconfirmed(task, true);
        let are_within = changes.iter().all(|change| change.agreement == FieldAgreement::Within);
        self.leave(task, &situation.release, if are_within { WITHIN } else { ADDED })
    }

    /// Records whether the object stays unchanged because a user has to confirm the repair.
    fn mark_unconfirmed(&mut self, task: &Task, unconfirmed: bool) {
        if let Some(drift) = self.drifts.get_mut(&task.id, &task.object) {
            drift.unconfirmed = unconfirmed;
        }
    }

    /// Records whether an exception, or its own time to live, allows the object to be missing.
    fn mark_allowed(&mut self, task: &Task, situation: &RepairContext) {
        let allowed = situation.drift.kind == DriftKind::Missing && situation.may_be_gone;
        let drift = self.drifts.get_mut(&task.id, &task.object);
        if let Some(drift) = drift.filter(|drift| drift.allowed != allowed) {
            drift.allowed = allowed;
            self.drifts.touch(&task.id);
        }
    }

    pub(crate) fn fail_by(
        &mut self,
        task: &Task,
        release: &Arc<Release>,
        failure: &WorkFailure,
    ) -> RepairStep {
        match failure.fault {
            Fault::Unserved => {
                self.say(task, release, NOT_SERVED);
                RepairStep::Again(UNSERVED)
            }
            // The next leader does it, or this one when it leads again.
            Fault::NotLeading => RepairStep::Again(RETRY),
            _ => self.fail_with(task, failure),
        }
    }

    /// Records an attempt that failed at the API server, or did not reach it.
    pub(crate) fn fail_with(&mut self, task: &Task, failure: &WorkFailure) -> RepairStep {
        if failure.fault == Fault::Unanswered {
            self.repairs.backoff.attempt_unanswered(&task.object, self.now);
        } else if self.repairs.backoff.attempt(&task.object, self.now) == 1
            && failure.fault == Fault::NoRecord
        {
            // The release may be gone: the watch of records will report that soon.
            return RepairStep::Again(RETRY);
        }
        self.wait_after(task, &failure.message)
    }

    pub(crate) fn fail(&mut self, task: &Task, reason: &str) -> RepairStep {
        self.repairs.backoff.attempt(&task.object, self.now);
        self.wait_after(task, reason)
    }

    pub(crate) fn note_repaired(
        &mut self,
        situation: &RepairContext,
        drift: ObjectDrift,
        fate: ObjectOutcome,
    ) {
        let confirmed_by = situation.ordered_by.clone();
        let drift = ObjectDrift { repaired: Some(Ok(())), unrepaired_reason: None, confirmed_by, ..drift };
        let release = Arc::clone(&situation.release);
        self.tell(LoopNotice::Object { release, drift: Box::new(drift), fate });
    }

    /// Records the version of the guard's own write. If the release or its policy has changed since, the object is read
    /// again. Drift that a watch event has shown in the written object before the response came is left to another
    /// pass.
    pub(crate) fn note_restored(&mut self, task: &Task, situation: &RepairContext, version: ResourceVersion) {
        if !self.is_in_force(task, situation) {
            self.drifts.suspect(&task.id, task.object.clone(), self.now);
        } else if self.drifts.record_restored(&task.id, &task.object, version) {
            self.enqueue(&task.id);
        }
    }

    /// Remembers fields that the API server refuses to set for this record.
    pub(crate) fn learn_fixed(&mut self, task: &Task, judged: &JudgedObject, paths: &[Path]) {
        self.repairs.fixed.note(&task.object, &attempted(judged), paths.iter().map(ToString::to_string));
    }

    /// Whether all changes are of fields that the API server is known to refuse.
    pub(crate) fn are_known_fixed(&self, task: &Task, judged: &JudgedObject) -> bool {
        let fixed = &self.repairs.fixed;
        if !fixed.knows(&task.object) {
            return false;
        }
        let attempted = attempted(judged);
        judged.changes.iter().all(|change| fixed.has(&task.object, &attempted, &change.path.to_string()))
    }

    /// Reports that the attempt failed, and waits for the next one.
    fn wait_after(&mut self, task: &Task, reason: &str) -> RepairStep {
        let wait = self.repairs.backoff.until(&task.object, self.now).unwrap_or(RETRY);
        if let Some(drift) = self.drifts.get_mut(&task.id, &task.object) {
            drift.repaired = Some(Err(reason.to_owned()));
            drift.unrepaired_reason = None;
            let drift = drift.clone();
            if let Some(release) = self.known.release(&task.id).cloned() {
                self.tell(LoopNotice::Object {
                    release,
                    drift: Box::new(drift),
                    fate: ObjectOutcome::Failed,
                });
            }
        }
        RepairStep::Later(wait)
    }
}

pub(crate) fn api_version(object: &ObjectId, version: &str) -> String {
    match object.group.as_str() {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    }
}

/// The user who ordered the repair of such a drift and has permission to write the object.
fn ordered_by(task: &Task, release: &Release, kind: DriftKind, now: Timestamp) -> Option<String> {
    let verb = if kind == DriftKind::Missing { Verb::Create } else { Verb::Update };
    let state = &release.state;
    let ticket = task.ticket.as_ref();
    let ticket = ticket.filter(|it| it.confirms(&task.object, verb, (state.revision, &state.digest)));
    let ticket = ticket.filter(|it| !it.is_expired(now));
    ticket.map(|ticket| ticket.user.clone())
}

/// Identifies the record and the object's content at an attempt: once the content has changed, the next attempt may
/// succeed. The number of replicas makes no difference.
fn attempted(JudgedObject { situation, seen, .. }: &JudgedObject) -> String {
    let mut content = seen.live.object.clone().unwrap_or_default();
    if let Value::Object(content) = &mut content {
        content.retain(|name, _| name != "metadata" && name != "status");
        if let Some(Value::Object(spec)) = content.get_mut("spec") {
            spec.remove("replicas");
        }
    }
    let content = BuildHasherDefault::<DefaultHasher>::default().hash_one(content.to_string());
    format!("{}/{content:x}", situation.release.latest.uid)
}

#[cfg(test)]
mod tests;
