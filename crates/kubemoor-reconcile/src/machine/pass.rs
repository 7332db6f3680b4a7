//! One pass over a release: suspects are read and judged, then drifts are repaired or reported, one
//! object after the other in Helm's order.
//!
//! Entry points: `Reconciler::attend` requests a pass, `resume` continues it with the outcome of a
//! piece of work. Invariant: one pass of a release at a time, and one piece of work of a pass;
//! during a Helm operation nothing is read or written; a replica that does not lead reads and never
//! writes; what was ordered before another replica led begins no repair.

mod state;

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub(super) use self::state::Job;
use self::state::{Pass, Phase, in_order};
use super::super::asked::RepairOrder;
use super::super::event::{Failure, Fault, Outcome, Work, WorkId};
use super::Reconciler;
use super::agenda::Agenda;
use super::repair::{AGAIN, Astray, Done, Next, RETRY, Repairs, Task, Towards};
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::record::Status;

/// The number of releases with a pass at the same time.
const RELEASES_AT_ONCE: usize = 8;

/// The most passes that one event begins: other events are handled in between.
const BEGUN_AT_ONCE: usize = 64;

/// The running passes, and the releases that wait for one.
#[derive(Default)]
pub(super) struct Passes {
    working: BTreeMap<ReleaseId, Pass>,
    /// Those of `working` that need another pass afterwards.
    again: BTreeSet<ReleaseId>,
    waiting: VecDeque<ReleaseId>,
    /// Those of `waiting`.
    queued: HashSet<ReleaseId>,
    /// The times of passes without an event.
    pub(super) agenda: Agenda,
}

/// The next step of a pass.
pub(super) enum Step {
    Hand(Work, Job),
    Looked(ObjectId, Done),
    Attempted(Task, Done),
    Nothing,
    /// The pass ends at once, and its order stays open for another pass or replica.
    Leave,
    Finish,
}

impl Passes {
    /// Whether a pass can begin for a waiting release.
    pub(super) fn may_begin(&self) -> bool {
        self.working.len() < RELEASES_AT_ONCE
            && self.waiting.iter().any(|release| !self.working.contains_key(release))
    }
}

impl Reconciler {
    /// Requests a pass of a release; there is one at a time.
    pub(super) fn attend(&mut self, release: &ReleaseId) {
        if self.passes.working.contains_key(release) {
            self.passes.again.insert(release.clone());
        } else if self.passes.queued.insert(release.clone()) {
            self.passes.waiting.push_back(release.clone());
        }
    }

    /// Begins passes while there is room; each waiting release is tried once.
    pub(super) fn begin_passes(&mut self) {
        if self.stopping {
            return self.publish_waiting();
        }
        for _ in 0..self.passes.waiting.len().min(BEGUN_AT_ONCE) {
            if self.passes.working.len() >= RELEASES_AT_ONCE {
                return;
            }
            let Some(release) = self.passes.waiting.pop_front() else { return };
            self.passes.queued.remove(&release);
            // It was asked for while a pass went on.
            if self.passes.working.contains_key(&release) {
                self.passes.again.insert(release);
                continue;
            }
            match self.begin(&release) {
                Some(pass) => self.advance(&release, pass, None),
                None => {
                    self.publish(&release);
                    self.forget_gone(&release);
                }
            }
        }
    }

    /// Publishes what is known of the waiting releases, since the loop ends and reads nothing more. A running pass
    /// publishes at its end.
    fn publish_waiting(&mut self) {
        self.passes.queued.clear();
        for release in std::mem::take(&mut self.passes.waiting) {
            if !self.passes.working.contains_key(&release) {
                self.publish(&release);
                self.forget_gone(&release);
            }
        }
    }

    /// Continues a pass with the outcome of its piece of work.
    pub(super) fn resume(&mut self, release: &ReleaseId, errand: WorkId, outcome: Outcome) {
        let is_awaited = |pass: &Pass| pass.errand == Some(errand);
        if !self.passes.working.get(release).is_some_and(is_awaited) {
            return;
        }
        if let Some(pass) = self.passes.working.remove(release) {
            self.advance(release, pass, Some(outcome));
        }
    }

    fn begin(&mut self, id: &ReleaseId) -> Option<Pass> {
        if let Some((release, objects)) = self.unwanted(id) {
            // An ordinary pass follows.
            self.passes.again.insert(id.clone());
            return Some(Pass::new(release, Phase::TakingBack, in_order(objects.into_iter())));
        }
        let release = Arc::clone(self.known.release(id)?);
        self.answer_at_once(&release);
        if release.state.status.is_pending() || release.state.status == Status::Uninstalling {
            if let Some(left) = self.until_locked(&release) {
                self.put_off(id, left);
            }
            return None;
        }
        let (due, waiting): (Vec<_>, Vec<_>) =
            self.drifts.suspects(id).into_iter().partition(|(_, suspect)| suspect.is_due(self.now));
        let queue = in_order(due.into_iter().map(|(object, _)| object));
        let order = self.asked.take(id);
        let is_asked = |object: &ObjectId| order.as_ref().is_some_and(|order| order.means(object));
        let open = waiting.into_iter().filter(|(object, suspect)| !suspect.barred && is_asked(object));
        let unfinished = open.map(|(object, _)| object).collect();
        Some(Pass { order, unfinished, ..Pass::new(release, Phase::Looking, queue) })
    }

    /// Runs a pass until it waits for an outcome or ends.
    fn advance(&mut self, id: &ReleaseId, mut pass: Pass, mut outcome: Option<Outcome>) {
        loop {
            let step = match (pass.job.take(), outcome.take()) {
                (Some(job), Some(outcome)) => self.go_on(&mut pass, job, outcome),
                _ => self.next(&mut pass),
            };
            match step {
                Step::Hand(work, job) if work.is_write() && !self.leads => {
                    pass.job = Some(job);
                    outcome = Some(Outcome::Failed(Failure {
                        fault: Fault::NotLeading,
                        message: "this replica does not lead and writes nothing".to_owned(),
                    }));
                }
                Step::Hand(work, job) => {
                    pass.job = Some(job);
                    pass.worked = true;
                    pass.errand = Some(self.hand_out(id, work));
                    self.passes.working.insert(id.clone(), pass);
                    return;
                }
                Step::Looked(object, done) => pass.note_looked(object, done),
                Step::Attempted(task, done) => self.note_attempted(&mut pass, &task, done),
                Step::Nothing => {}
                Step::Leave => return self.end(id, &pass, None),
                Step::Finish => {
                    self.carry_out(&mut pass);
                    let again = pass.again;
                    return self.end(id, &pass, again);
                }
            }
        }
    }

    /// The next step of a pass that does not wait for an outcome.
    fn next(&mut self, pass: &mut Pass) -> Step {
        if self.stopping {
            return Step::Leave;
        }
        let Some(object) = pass.queue.pop_front() else { return self.next_phase(pass) };
        match pass.phase {
            Phase::Looking => self.look(&pass.release, object),
            Phase::TakingBack | Phase::Repairing | Phase::Returning if !self.leads => Step::Leave,
            Phase::Repairing | Phase::Returning
                if pass.order.as_ref().is_some_and(|order| !self.asked.is_current(order)) =>
            {
                Step::Leave
            }
            Phase::TakingBack => {
                let id = pass.release.id.clone();
                let task = Task { id, object, asked: false, ticket: None, towards: None };
                let next = self.begin_taking_back_late(&task);
                step(task, next)
            }
            Phase::Repairing => {
                let asked = pass.order.as_ref().is_some_and(|order| order.means(&object));
                let task = Task {
                    id: pass.release.id.clone(),
                    object,
                    asked,
                    ticket: pass.order.as_ref().and_then(|order| order.ticket.clone()),
                    towards: pass.towards.clone().filter(|_| asked),
                };
                let next = self.attempt(&task);
                step(task, next)
            }
            Phase::Returning => {
                let towards = pass.towards.clone();
                let task = Task { id: pass.release.id.clone(), object, asked: true, ticket: None, towards };
                let next = self.return_ownership(&task);
                step(task, next)
            }
            Phase::Choosing | Phase::Over => Step::Nothing,
        }
    }

    fn next_phase(&mut self, pass: &mut Pass) -> Step {
        let id = pass.release.id.clone();
        pass.phase = match pass.phase {
            Phase::Looking => Phase::Choosing,
            Phase::Choosing => Phase::Repairing,
            Phase::Repairing => Phase::Returning,
            Phase::TakingBack | Phase::Returning | Phase::Over => Phase::Over,
        };
        match pass.phase {
            Phase::Choosing if pass.order.is_some() && pass.release.state.status == Status::Failed => {
                match Towards::question(&pass.release) {
                    Ok(work) => Step::Hand(work, Job::Choose),
                    Err(astray) => self.go_astray(pass, astray),
                }
            }
            Phase::Repairing => {
                if !self.leads && !self.drifts.of(&id).is_empty() {
                    return Step::Leave;
                }
                pass.queue =
                    in_order(self.drifts.of(&id).into_iter().map(|(object, _)| ObjectId::clone(&object)));
                Step::Nothing
            }
            Phase::Returning => {
                if let (Some(towards), Some(order)) = (&pass.towards, &pass.order) {
                    let is_free = |object: &ObjectId| !self.drifts.is_known(&id, object);
                    let objects = towards.objects().into_iter();
                    pass.queue = objects.filter(|it| order.means(it) && is_free(it)).collect();
                }
                Step::Nothing
            }
            Phase::Over => Step::Finish,
            Phase::TakingBack | Phase::Looking | Phase::Choosing => Step::Nothing,
        }
    }

    fn go_on(&mut self, pass: &mut Pass, job: Job, outcome: Outcome) -> Step {
        match job {
            Job::Look { object, suspect } => {
                let done = self.looked(&pass.release, &object, suspect, outcome);
                Step::Looked(object, done)
            }
            Job::Choose => match Towards::of(&pass.release, outcome) {
                Ok(towards) => {
                    pass.towards = Some(Arc::new(towards));
                    Step::Nothing
                }
                Err(astray) => self.go_astray(pass, astray),
            },
            Job::Repair { task, repair } => {
                let next = self.go_on_repairing(&task, *repair, outcome);
                step(task, next)
            }
        }
    }

    /// There is no revision to repair towards.
    fn go_astray(&mut self, pass: &mut Pass, astray: Astray) -> Step {
        let Some(order) = self.order_of(pass) else { return Step::Finish };
        match astray {
            Astray::Nowhere(why) => self.refuse(&pass.release, &order, &why),
            Astray::Unread(why) => {
                self.postpone(&pass.release, order, &why);
                pass.put_off(RETRY);
            }
        }
        pass.phase = Phase::Over;
        pass.queue.clear();
        Step::Finish
    }

    fn note_attempted(&mut self, pass: &mut Pass, task: &Task, done: Done) {
        let Task { id, object, asked, .. } = task;
        let is_repaired = matches!(done, Done::Repaired);
        // A failed repair counts as tried, as the order demanded.
        let failed = self.drifts.get_mut(id, object).is_some_and(|drift| drift.repaired.is_some());
        let done = match done {
            Done::Again(first) => {
                Done::Later(Repairs::lengthen_wait(self.drifts.get_mut(id, object), &object.name, first))
            }
            done => done,
        };
        if pass.phase == Phase::Repairing && *asked && !failed && matches!(done, Done::Later(_)) {
            pass.unfinished.insert(object.clone());
        } else if let Some(order) = pass.order.as_mut().filter(|_| *asked && is_repaired) {
            order.repaired.insert(object.clone());
        }
        if matches!(pass.phase, Phase::TakingBack | Phase::Repairing) {
            pass.note(&done);
        }
        self.forget_undeclared(id, object);
    }

    /// Takes the order of a pass, unless its release is gone: the next one of this name is another one.
    fn order_of(&self, pass: &mut Pass) -> Option<RepairOrder> {
        pass.order.take().filter(|_| self.known.release(&pass.release.id).is_some())
    }

    /// Answers the order of a pass.
    fn carry_out(&mut self, pass: &mut Pass) {
        if let Some(order) = self.order_of(pass) {
            let unfinished = std::mem::take(&mut pass.unfinished);
            let release = Arc::clone(&pass.release);
            self.answer(&release, order, unfinished, pass.towards.as_deref());
        }
    }

    fn end(&mut self, id: &ReleaseId, pass: &Pass, again: Option<Duration>) {
        self.publish(id);
        self.forget_gone(id);
        if let Some(again) = again {
            self.put_off(id, again);
        }
        if let Some(at) = self.drifts.next_look(id) {
            self.passes.agenda.put_off(id, at.max(self.after(AGAIN)));
        }
        if self.passes.again.remove(id) {
            match pass.worked {
                true => self.attend(id),
                // A pass that requests itself again has to wait a moment.
                false => self.put_off(id, AGAIN),
            }
        }
    }
}

fn step(task: Task, next: Next) -> Step {
    match next {
        Next::Do(next) => {
            let (work, repair) = *next;
            Step::Hand(work, Job::Repair { task, repair: Box::new(repair) })
        }
        Next::Done(done) => Step::Attempted(task, done),
    }
}
