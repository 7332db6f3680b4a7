//! One pass over a release: suspects (objects to read again) are read and compared, then drifts are repaired or
//! reported, one object after the other in Helm's install order; at last the repair order is answered.
//!
//! A release has at most one pass at a time, and a pass one request. During a Helm operation nothing is read or
//! written. A replica that is not the leader reads and never writes.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::drifts::{ObjectDrift, Suspect};
use crate::event::{ApiWork, Fault, WorkFailure, WorkOutcome};
use crate::machine::Reconciler;
use crate::orders::{RepairOrder, answer};
use crate::plan::install_order;
use crate::repair::{AGAIN, RETRY, RepairState, RepairStep, Task, UNSERVED};
use crate::report::DriftKind;
use crate::restore::{RepairTarget, TargetError};
use crate::waits::{Timetable, backoff_delay, elapsed};
use kubemoor_declare::model::{DriftMode, ObjectId, ReleaseId};
use kubemoor_helm::record::ReleaseStatus;
use kubemoor_helm::release::Release;
use kubemoor_policy::guarded::{OrderAnswer, OrderResult};
use kubemoor_verdict::health::{RecordHealth, RecordState};

/// The maximum number of concurrent passes.
const RELEASES_AT_ONCE: usize = 8;

/// The maximum number of passes that one event starts: other events are handled in between.
const BEGUN_AT_ONCE: usize = 64;

/// The first wait after a read for which the guard lacks the permission.
const FORBIDDEN: Duration = Duration::from_secs(60);

/// The longest such wait, and the longest after any other failure.
const LONGEST_FORBIDDEN: Duration = Duration::from_secs(900);
const LONGEST: Duration = Duration::from_secs(300);

/// An object counts as unread after this number of outdated answers.
const OLD_ANSWERS: u32 = 4;

#[derive(Default)]
pub(crate) struct Passes {
    working: BTreeMap<ReleaseId, ReleasePass>,
    /// Those of `working` that need another pass afterwards.
    again: BTreeSet<ReleaseId>,
    waiting: VecDeque<ReleaseId>,
    /// The same as `waiting`, as a set.
    queued: HashSet<ReleaseId>,
    /// When to start a pass of a release without an event.
    pub(crate) agenda: Timetable<ReleaseId>,
}

struct ReleasePass {
    release: Arc<Release>,
    /// The second phase: all suspects have been read, and drifts are repaired.
    is_repairing: bool,
    /// The objects still to be read or, in the second phase, repaired.
    queue: VecDeque<ObjectId>,
    order: Option<RepairOrder>,
    unfinished: HashSet<ObjectId>,
    /// The delay until another pass.
    again: Option<Duration>,
    towards: Option<Arc<RepairTarget>>,
    /// The step that waits for the outcome of its work.
    job: Option<Job>,
    /// Whether the pass handed out any work.
    worked: bool,
}

/// What a pass waits for: the read of a suspect, the revision to repair towards (for an order after a failed
/// operation), or a repair.
enum Job {
    Look { object: ObjectId, suspect: Suspect },
    Choose,
    Repair { task: Task, repair: Box<RepairState> },
}

#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
enum PassStep {
    HandOut(ApiWork, Job),
    GoOn,
    /// The pass ends at once and leaves its order unanswered for another pass or replica.
    Leave,
    Finish,
}

impl Passes {
    pub(crate) fn may_begin(&self) -> bool {
        self.working.len() < RELEASES_AT_ONCE
            && self.waiting.iter().any(|release| !self.working.contains_key(release))
    }
}

impl ReleasePass {
    /// Requests another pass after that time at the latest.
    fn request_again(&mut self, delay: Duration) {
        self.again = Some(self.again.map_or(delay, |again| again.min(delay)));
    }
}

impl Reconciler {
    pub(crate) fn enqueue(&mut self, release: &ReleaseId) {
        if self.passes.working.contains_key(release) {
            self.passes.again.insert(release.clone());
        } else if self.passes.queued.insert(release.clone()) {
            self.passes.waiting.push_back(release.clone());
        }
    }

    pub(crate) fn begin_passes(&mut self) {
        if self.stopping {
            return self.publish_waiting();
        }
        for _ in 0..self.passes.waiting.len().min(BEGUN_AT_ONCE) {
            if self.passes.working.len() >= RELEASES_AT_ONCE {
                return;
            }
            let Some(release) = self.passes.waiting.pop_front() else { return };
            self.passes.queued.remove(&release);
            // It was queued during a step of its running pass.
            if self.passes.working.contains_key(&release) {
                self.passes.again.insert(release);
                continue;
            }
            match self.begin(&release) {
                Some(pass) => self.advance(&release, pass, None),
                None => self.publish(&release),
            }
        }
    }

    /// Publishes the known state of the waiting releases, because the loop is stopping and reads nothing more. A
    /// running pass publishes at its end.
    fn publish_waiting(&mut self) {
        self.passes.queued.clear();
        for release in std::mem::take(&mut self.passes.waiting) {
            if !self.passes.working.contains_key(&release) {
                self.publish(&release);
            }
        }
    }

    pub(crate) fn resume(&mut self, release: &ReleaseId, outcome: WorkOutcome) {
        if let Some(pass) = self.passes.working.remove(release) {
            self.advance(release, pass, Some(outcome));
        }
    }

    fn begin(&mut self, id: &ReleaseId) -> Option<ReleasePass> {
        let release = Arc::clone(self.known.release(id)?);
        self.answer_at_once(&release);
        if release.state.status.is_pending() || release.state.status == ReleaseStatus::Uninstalling {
            if let Some(left) = self.until_locked(&release) {
                self.schedule_pass(id, left);
            }
            return None;
        }
        let (due, waiting): (Vec<_>, Vec<_>) =
            self.drifts.suspects(id).into_iter().partition(|(_, suspect)| suspect.is_due(self.now));
        let queue = in_order(due.into_iter().map(|(object, _)| object));
        let order = self.asked.take(id);
        let is_asked = |object: &ObjectId| order.as_ref().is_some_and(|order| order.includes(object));
        let open = waiting.into_iter().filter(|(object, suspect)| !suspect.barred && is_asked(object));
        let unfinished = open.map(|(object, _)| object).collect();
        Some(ReleasePass {
            release,
            is_repairing: false,
            queue,
            order,
            unfinished,
            again: None,
            towards: None,
            job: None,
            worked: false,
        })
    }

    fn advance(&mut self, id: &ReleaseId, mut pass: ReleasePass, mut outcome: Option<WorkOutcome>) {
        loop {
            let step = match (pass.job.take(), outcome.take()) {
                (Some(job), Some(outcome)) => self.go_on(&mut pass, job, outcome),
                _ => self.next(&mut pass),
            };
            match step {
                PassStep::HandOut(work, job) if work.is_write() && !self.leads => {
                    pass.job = Some(job);
                    outcome = Some(WorkOutcome::Failed(WorkFailure {
                        fault: Fault::NotLeading,
                        message: "this replica is not the leader, so it writes nothing".to_owned(),
                    }));
                }
                PassStep::HandOut(work, job) => {
                    pass.job = Some(job);
                    pass.worked = true;
                    self.hand_out(id, work);
                    self.passes.working.insert(id.clone(), pass);
                    return;
                }
                PassStep::GoOn => {}
                PassStep::Leave => return self.end(id, &pass, None),
                PassStep::Finish => {
                    if let Some(order) = self.order_of(&mut pass) {
                        let unfinished = std::mem::take(&mut pass.unfinished);
                        self.answer(&pass.release, order, unfinished, pass.towards.as_deref());
                    }
                    let again = pass.again;
                    return self.end(id, &pass, again);
                }
            }
        }
    }

    fn next(&mut self, pass: &mut ReleasePass) -> PassStep {
        if self.stopping {
            return PassStep::Leave;
        }
        let Some(object) = pass.queue.pop_front() else { return self.end_queue(pass) };
        if !pass.is_repairing {
            return self.look(&pass.release, object);
        }
        if !self.leads || pass.order.as_ref().is_some_and(|order| !self.asked.is_current(order)) {
            return PassStep::Leave;
        }
        let mut task =
            Task { id: pass.release.id.clone(), object, asked: false, ticket: None, towards: None };
        if let Some(order) = &pass.order {
            task.asked = order.includes(&task.object);
            task.ticket.clone_from(&order.ticket);
            task.towards = pass.towards.clone().filter(|_| task.asked);
        }
        let next = self.attempt(&task);
        self.go_on_with(pass, task, next)
    }

    fn end_queue(&mut self, pass: &mut ReleasePass) -> PassStep {
        if std::mem::replace(&mut pass.is_repairing, true) {
            return PassStep::Finish;
        }
        if pass.order.is_some() && pass.release.state.status == ReleaseStatus::Failed {
            return match RepairTarget::read_request(&pass.release) {
                Ok(work) => PassStep::HandOut(work, Job::Choose),
                Err(error) => self.end_without_target(pass, error),
            };
        }
        self.begin_repairing(pass)
    }

    fn begin_repairing(&self, pass: &mut ReleasePass) -> PassStep {
        let drifting = self.drifts.of_release(&pass.release.id);
        if !self.leads && !drifting.is_empty() {
            return PassStep::Leave;
        }
        let mut objects: BTreeSet<ObjectId> =
            drifting.into_iter().map(|drift| ObjectId::clone(&drift.object)).collect();
        // Objects without drift may have fields that other managers have taken.
        if let (Some(towards), Some(order)) = (&pass.towards, &pass.order) {
            let deployed = towards.deployed.objects.keys().filter(|object| order.includes(object));
            objects.extend(deployed.map(|object| ObjectId::clone(object)));
        }
        pass.queue = in_order(objects.into_iter());
        PassStep::GoOn
    }

    /// Continues the step that waited for this outcome.
    fn go_on(&mut self, pass: &mut ReleasePass, job: Job, outcome: WorkOutcome) -> PassStep {
        match job {
            Job::Look { object, suspect } => {
                if let Some(wait) = self.handle_read(&pass.release, &object, suspect, outcome) {
                    pass.request_again(wait);
                    // An object that the guard may not read is shown in the release's status and does not delay an
                    // order.
                    if pass.order.as_ref().is_some_and(|order| order.includes(&object)) {
                        pass.unfinished.insert(object);
                    }
                }
                PassStep::GoOn
            }
            Job::Choose => match RepairTarget::from_outcome(&pass.release, outcome) {
                Ok(towards) => {
                    pass.towards = Some(Arc::new(towards));
                    self.begin_repairing(pass)
                }
                Err(error) => self.end_without_target(pass, error),
            },
            Job::Repair { task, repair } => {
                let next = match *repair {
                    RepairState::Recreate(state) => self.recreate(&task, state, outcome),
                    RepairState::Restore(state) => self.restore(&task, state, outcome),
                };
                self.go_on_with(pass, task, next)
            }
        }
    }

    /// Ends a pass whose order has no revision to repair towards.
    fn end_without_target(&mut self, pass: &mut ReleasePass, error: TargetError) -> PassStep {
        let Some(order) = self.order_of(pass) else { return PassStep::Finish };
        let id = &pass.release.id;
        let (result, message) = match error {
            TargetError::NoneEligible(why) => (
                OrderResult::Refused,
                format!("nothing is repaired: {why}. {}", ways_out(&pass.release, None)),
            ),
            TargetError::Unreadable(why) => {
                (OrderResult::Waiting, format!("the last deployed revision cannot be read yet: {why}"))
            }
        };
        self.asked.set_answer(id, Some(&order), OrderAnswer { at: order.at.clone(), result, message });
        if result == OrderResult::Waiting {
            self.asked.give_back(id, order);
            pass.request_again(RETRY);
        }
        PassStep::Finish
    }

    /// Continues with the next step of a repair, or records its result.
    fn go_on_with(&mut self, pass: &mut ReleasePass, task: Task, next: RepairStep) -> PassStep {
        let is_repaired = matches!(next, RepairStep::Repaired);
        let Task { id, object, asked, .. } = &task;
        // A failed repair counts as carried out: the order demanded one attempt.
        let drift = self.drifts.get_mut(id, object);
        let failed = drift.as_ref().map_or(task.towards.is_some(), |drift| drift.repaired.is_some());
        let wait = match next {
            RepairStep::Do(next) => {
                let (work, repair) = *next;
                return PassStep::HandOut(work, Job::Repair { task, repair: Box::new(repair) });
            }
            RepairStep::Later(wait) => Some(wait),
            RepairStep::Again(first) => {
                Some(drift.map_or(first, |drift| drift.lengthen_wait(&object.name, first)))
            }
            RepairStep::Settled | RepairStep::Repaired => None,
        };
        if *asked && !failed && wait.is_some() {
            pass.unfinished.insert(object.clone());
        } else if let Some(order) = pass.order.as_mut().filter(|_| *asked && is_repaired) {
            let is_first = order.repaired.insert(object.clone());
            if is_first && (task.towards.is_some() || self.drifts.is_known(id, object)) {
                // Other managers may own fields of it that have their declared values.
                pass.queue.push_back(object.clone());
            }
        }
        if let Some(wait) = wait {
            pass.request_again(wait);
        }
        self.forget_undeclared(id, object);
        PassStep::GoOn
    }

    /// Takes the order of a pass, unless its release is gone: a new release of the same name is another one.
    fn order_of(&self, pass: &mut ReleasePass) -> Option<RepairOrder> {
        pass.order.take().filter(|_| self.known.release(&pass.release.id).is_some())
    }

    fn schedule_pass(&mut self, id: &ReleaseId, delay: Duration) {
        self.passes.agenda.schedule_by(id, self.after(delay));
    }

    /// The time until a pending operation counts as stuck, plus one second.
    fn until_locked(&self, release: &Release) -> Option<Duration> {
        let policy = self.known.policy(&release.id)?;
        let timeout = SignedDuration::try_from(policy.operation_timeout).ok()?;
        let left = timeout - self.now.duration_since(release.state.last_written.max(release.state.created));
        let left = Duration::try_from(left).ok()?;
        Some(left + Duration::from_secs(1))
    }

    fn end(&mut self, id: &ReleaseId, pass: &ReleasePass, again: Option<Duration>) {
        self.publish(id);
        if let Some(again) = again {
            self.schedule_pass(id, again);
        }
        if let Some(at) = self.drifts.next_look(id) {
            self.passes.agenda.schedule_by(id, at.max(self.after(AGAIN)));
        }
        if self.passes.again.remove(id) {
            match pass.worked {
                true => self.enqueue(id),
                // A pass without work that requested another one has to wait a moment.
                false => self.schedule_pass(id, AGAIN),
            }
        }
    }

    fn look(&mut self, release: &Release, object: ObjectId) -> PassStep {
        let Some(suspect) = self.drifts.suspicion(&release.id, &object) else { return PassStep::GoOn };
        let Some(declared) = release.declared(&object).filter(|_| self.may_look(release, &object)) else {
            self.drifts.clear(&release.id, &object);
            return PassStep::GoOn;
        };
        let work = ApiWork::ReadObject { object: object.clone(), version: Arc::clone(&declared.version) };
        PassStep::HandOut(work, Job::Look { object, suspect })
    }

    /// Handles the response to the read of a suspect. Returns the wait before it is read again.
    fn handle_read(
        &mut self,
        release: &Release,
        object: &ObjectId,
        suspect: Suspect,
        outcome: WorkOutcome,
    ) -> Option<Duration> {
        let id = &release.id;
        match outcome {
            WorkOutcome::Object { live: Some(live), version } => {
                let is_old = self.drifts.has_new_reason(id, object, &suspect);
                if !self.take_in(id, &live, &version) {
                    // Otherwise a newer watch event was enough. Reads are served from etcd, so responses stay old only
                    // after an etcd restore, until the watches list everything again.
                    return self.drifts.is_suspect(id, object).then(|| {
                        let wait = backoff_delay(AGAIN, suspect.tries, LONGEST, &object.name);
                        let is_unread = suspect.tries >= OLD_ANSWERS;
                        self.drifts.defer_read(id, object, self.after(wait), (is_unread, false));
                        wait
                    });
                }
                // No release declares it any more.
                if self.drifts.is_suspect(id, object) {
                    self.drifts.clear(id, object);
                }
                if is_old {
                    // A list that arrived during the read may lack it.
                    self.drifts.suspect(id, object.clone(), self.now);
                    return Some(AGAIN);
                }
                None
            }
            // It may have been created since it was read.
            WorkOutcome::Object { live: None, .. } if self.drifts.has_new_reason(id, object, &suspect) => {
                Some(AGAIN)
            }
            WorkOutcome::Object { live: None, .. } => {
                // Otherwise a watch has reported since that it exists.
                if self.drifts.is_suspect(id, object) {
                    self.note_gone(id, object, suspect.since);
                }
                None
            }
            WorkOutcome::Failed(WorkFailure { fault: Fault::Unserved, .. }) => {
                // A kind that is not served has no objects.
                if elapsed(suspect.since, self.now) < UNSERVED {
                    return self.look_later(id, object, UNSERVED);
                }
                self.note_gone(id, object, suspect.since);
                None
            }
            // If the watch is forbidden too, it reports when the guard gets the permission.
            WorkOutcome::Failed(WorkFailure { fault: Fault::Forbidden, .. }) => {
                let wait = backoff_delay(FORBIDDEN, suspect.tries, LONGEST_FORBIDDEN, &id.name);
                let due = if self.scopes.is_forbidden(object) { Timestamp::MAX } else { self.after(wait) };
                self.drifts.defer_read(id, object, due, (true, true));
                None
            }
            _ => self.look_later(id, object, backoff_delay(RETRY, suspect.tries, LONGEST, &id.name)),
        }
    }

    fn look_later(&mut self, release: &ReleaseId, object: &ObjectId, wait: Duration) -> Option<Duration> {
        self.drifts.defer_read(release, object, self.after(wait), (true, false));
        Some(wait)
    }

    /// Answers an order that cannot be carried out in the current state of its release, or at all.
    fn answer_at_once(&mut self, release: &Release) {
        let id = &release.id;
        let Some(at) = self.asked.waits(id) else { return };
        let Some(policy) = self.known.policy(id) else { return };
        let RecordHealth { revision, deployed, state } =
            RecordHealth::new(release, policy.operation_timeout, self.now);
        let (name, namespace) = (&id.name, &id.namespace);
        let (result, message) = match state {
            RecordState::Underway => (
                OrderResult::Waiting,
                format!(
                    "a Helm operation is under way at revision {revision}; the guard carries out the order \
                     when it ends"
                ),
            ),
            RecordState::Locked => (
                OrderResult::Refused,
                format!(
                    "a Helm operation has been under way for too long at revision {revision}; `helm rollback {name} -n {namespace}` ends it"
                ),
            ),
            RecordState::Invalid => (
                OrderResult::Refused,
                "the latest record of the release cannot be read, so nothing is repaired".to_owned(),
            ),
            RecordState::Gone => (OrderResult::Refused, "the release is uninstalled".to_owned()),
            RecordState::Failed if deployed.is_none() => (
                OrderResult::Refused,
                format!(
                    "the installation failed, and there is no deployed revision to repair to; run `helm \
                     upgrade --install {name} CHART -n {namespace}`, or `helm uninstall {name} -n \
                     {namespace}`"
                ),
            ),
            RecordState::Failed | RecordState::Deployed if self.enforcement_disabled => (
                OrderResult::Refused,
                "the emergency is open, so nothing is repaired until `kubemoor emergency close`".to_owned(),
            ),
            RecordState::Failed | RecordState::Deployed if policy.drift == DriftMode::Ignore => (
                OrderResult::Refused,
                "the policy says `drift: Ignore`, so the guard does not check the objects".to_owned(),
            ),
            RecordState::Failed | RecordState::Deployed => return,
        };
        if result == OrderResult::Refused {
            self.asked.take(id);
        }
        self.asked.set_answer(id, None, OrderAnswer { at, result, message });
    }

    /// Answers an order after a pass; the `unfinished` objects have to wait.
    fn answer(
        &mut self,
        release: &Release,
        order: RepairOrder,
        unfinished: HashSet<ObjectId>,
        towards: Option<&RepairTarget>,
    ) {
        let id = &release.id;
        let drifting = self.drifts.of_release(id).into_iter();
        let drifting = drifting.filter(|drift| order.includes(&drift.object) && !drift.allowed);
        let named = drifting.map(|drift| (ObjectId::clone(&drift.object), why(&drift, towards)));
        let mut unread = unfinished.clone();
        let (mut waiting, mut left): (Vec<_>, Vec<_>) = named.partition(|(object, _)| unread.remove(object));
        waiting.extend(unread.into_iter().map(|object| (object, "it could not be read yet".to_owned())));
        waiting.sort();
        left.sort();
        let advice = towards.map(|towards| ways_out(release, Some(towards.deployed.state.revision)));
        let answer = answer(&order.at, order.repaired.len(), &waiting, &left, advice.as_deref());
        self.asked.set_answer(id, Some(&order), answer);
        self.asked.leave(id, order, unfinished);
    }
}

/// Objects in Helm's order of installation.
fn in_order(objects: impl Iterator<Item = ObjectId>) -> VecDeque<ObjectId> {
    let mut objects: Vec<ObjectId> = objects.collect();
    objects.sort_by(|a, b| (install_order(&a.kind), a).cmp(&(install_order(&b.kind), b)));
    objects.into()
}

/// Why an object is not repaired, or not yet.
fn why(drift: &ObjectDrift, towards: Option<&RepairTarget>) -> String {
    match (&drift.unrepaired_reason, &drift.repaired) {
        _ if towards.is_some_and(|towards| !towards.deployed.objects.contains_key(&drift.object)) => {
            "only the failed revision declares it".to_owned()
        }
        (Some(kept), _) => kept.to_string(),
        (None, Some(Err(error))) => error.clone(),
        (None, _) if drift.needs_dry_run => "only a dry run could tell whether it matches".to_owned(),
        (None, _) if drift.kind == DriftKind::Terminating => "it is being deleted".to_owned(),
        (None, _) => "the guard will retry".to_owned(),
    }
}

/// The ways out of a release's failed state.
fn ways_out(release: &Release, deployed: Option<u64>) -> String {
    let (name, namespace) = (&release.id.name, &release.id.namespace);
    let back = deployed
        .map_or_else(String::new, |revision| format!(" or `helm rollback {name} {revision} -n {namespace}`"));
    format!(
        "The release stays failed until `helm upgrade {name} CHART -n {namespace}`{back}; add `--force-conflicts` if Helm reports a conflict"
    )
}
