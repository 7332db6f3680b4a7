//! Repairs one drift, or reports why it does not.
//!
//! Entry points: `Reconciler::attempt` begins, `go_on_repairing` continues with the outcome of a
//! piece of work. Invariant: the object is read first, then the record, then the object is written:
//! a record that was read earlier could be one that Helm has replaced since. Writes use Helm's own
//! field manager and method, otherwise the next upgrade would conflict. Each repair is one value
//! that waits for one outcome.

mod braking;
mod doubt;
mod notes;
mod outcome;
mod recreate;
mod restore;
mod send;
mod situation;
mod takeback;
mod towards;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

pub(crate) use self::doubt::Doubt;
use self::notes::RecordNotes;
pub(crate) use self::recreate::Recreate;
pub(crate) use self::restore::Restore;
pub(crate) use self::send::Sending;
pub(crate) use self::situation::Situation;
pub(crate) use self::takeback::{Created, TakeBack};
pub(crate) use self::towards::{Astray, Towards};
use super::Reconciler;
use crate::backoff::{Backoff, growing};
use crate::brake::{Brake, Pull};
use crate::drifts::Drift;
use crate::event::{Outcome, Work};
use crate::live::Live;
use crate::occurrence::Occurrence;
use crate::plan::Plan;
use crate::report::DriftKind;
use crate::rollout::Rollouts;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::release::Release;
use kubemoor_policy::order::Ticket;

/// The wait before another look at an object whose release changed meanwhile.
pub(crate) const AGAIN: Duration = Duration::from_millis(100);

/// The wait after a failed attempt.
pub(crate) const RETRY: Duration = Duration::from_secs(5);

/// The longest wait for another try where nothing could be done.
const LONGEST: Duration = Duration::from_secs(300);

/// The wait for a kind that the cluster does not serve: it may be about to appear.
pub(crate) const UNSERVED: Duration = Duration::from_secs(15);

/// The reason of a doubt that a dry run has not settled.
const IN_DOUBT: &str = "a dry run does not tell";

/// The wait before another look at the brake while there is too much drift.
const SLIPPING: Duration = Duration::from_secs(1);

/// The memory of repairs.
#[derive(Default)]
pub(crate) struct Repairs {
    pub(crate) brake: Brake,
    pub(crate) backoff: Backoff,
    pub(crate) rollouts: Rollouts,
    /// The fields of objects that the API server refuses to set.
    fixed: RecordNotes,
    /// The field managers whose fields were returned to Helm once.
    returned: RecordNotes,
    /// Releases that are on hold, of which that was told, and until when.
    held: BTreeMap<ReleaseId, Timestamp>,
    /// The objects that the guard created, and would have taken back if it had not lost the lead.
    pub(super) unwanted: BTreeMap<(ReleaseId, ObjectId), Created>,
}

/// The result for one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// There is nothing left to do.
    Settled,
    /// The object was just repaired.
    Repaired,
    /// Another pass after this time.
    Later(Duration),
    /// Nothing could be done: another pass after this time, and after a longer one each time.
    Again(Duration),
}

/// One object of one release to repair.
#[derive(Clone)]
pub(crate) struct Task {
    pub(crate) id: ReleaseId,
    pub(crate) object: ObjectId,
    /// A person ordered it.
    pub(crate) asked: bool,
    /// The objects that the person may write themself, as checked with the API server.
    pub(crate) ticket: Option<Arc<Ticket>>,
    /// The revision to repair towards, where the last operation failed.
    pub(crate) towards: Option<Arc<Towards>>,
}

/// The next step of a repair.
pub(crate) enum Next {
    /// Do this work, then continue the repair in this state.
    Do(Box<(Work, Repair)>),
    Done(Done),
}

/// The state of a repair that waits for an outcome.
pub(crate) enum Repair {
    Recreate(Recreate),
    TakeBack(TakeBack),
    Restore(Restore),
    Send(Box<Sending>),
    Doubt(Doubt),
    /// Fields are being returned from this manager to Helm.
    GiveBack(Box<Situation>, String),
    /// The object is read, and then the records, to see whether fields are to be given back.
    Return(Box<Situation>, Option<Box<Seen>>),
}

/// An object as it was read, and in which version.
pub(crate) struct Seen {
    pub(crate) live: Live,
    pub(crate) version: String,
}

impl Repairs {
    /// Ends the waits for an object that another writer put right, and lets them lose its fields to Helm once more.
    pub(super) fn forgive(&mut self, object: &ObjectId, now: Timestamp) {
        if self.backoff.forgive(object, now) {
            self.returned.forget(object);
        }
    }

    /// Counts an attempt that could do nothing about a drift, and returns the wait before the next:
    /// `first`, then longer each time.
    pub(super) fn lengthen_wait(drift: Option<&mut Drift>, name: &str, first: Duration) -> Duration {
        let Some(drift) = drift else { return first };
        let wait = growing(first, drift.tries, LONGEST, name);
        drift.tries = drift.tries.saturating_add(1);
        wait
    }
}

impl Seen {
    /// The `apiVersion` in which it was read.
    pub(crate) fn api_version(&self) -> String {
        api_version(&self.live.sighting.id, &self.version)
    }
}

impl Next {
    fn work(work: Work, repair: Repair) -> Self {
        Self::Do(Box::new((work, repair)))
    }

    fn later(delay: Duration) -> Self {
        Self::Done(Done::Later(delay))
    }

    fn again(first: Duration) -> Self {
        Self::Done(Done::Again(first))
    }

    fn settled() -> Self {
        Self::Done(Done::Settled)
    }
}

impl Reconciler {
    /// Repairs the object if that is allowed now.
    pub(super) fn attempt(&mut self, task: &Task) -> Next {
        if self.is_held_to_another(task) {
            self.drifts.clear_drift(&task.id, &task.object);
            return Next::settled();
        }
        let Some(situation) = self.situation(task) else { return Next::settled() };
        self.mark_unconfirmed(task, false);
        self.mark_allowed(task, &situation);
        match situation.plan {
            Plan::Wait => match situation.exceptions(&task.object, self.now).next_change() {
                Some(until) => match Duration::try_from(until.duration_since(self.now)) {
                    Ok(left) => Next::later(left),
                    Err(_) => Next::again(AGAIN),
                },
                None => Next::settled(),
            },
            Plan::Hold(left) => {
                self.tell_held(&situation.release, left);
                self.keep(
                    task,
                    Some(
                        "its release's records may come from a backup, so repairs are on hold for 10 minutes",
                    ),
                );
                Next::later(Duration::try_from(left).unwrap_or(RETRY))
            }
            Plan::Report(reason) => self.report(task, &situation, reason),
            Plan::Unconfirmed => self.leave_unconfirmed(task, &situation),
            Plan::Repair if self.settings.read_only => {
                self.report(task, &situation, "the guard was told to write nothing")
            }
            Plan::Repair if self.suspensions.of(&task.id, self.now).is_some() && !task.asked => {
                self.keep(task, Some("repairs of its release are suspended"));
                Next::settled()
            }
            // Drift is not certain yet, and a doubt alone leads to no write. A repair towards an earlier revision
            // settles its doubts itself, because the drift is a difference from another manifest.
            Plan::Repair if situation.drift.doubt && task.towards.is_none() => {
                self.report(task, &situation, IN_DOUBT)
            }
            Plan::Repair => {
                if task.asked {
                    self.repairs.backoff.forget(&task.object);
                } else if let Some(done) = self.wait(task, &situation.drift) {
                    return Next::Done(done);
                }
                if !situation.drift.doubt {
                    self.count_found(task, situation.drift.kind);
                }
                match situation.drift.kind {
                    DriftKind::Missing => Self::begin_recreating(task, &situation),
                    _ => Self::begin_restoring(task, &situation, situation.drift.since, 0),
                }
            }
        }
    }

    /// Continues a repair with the outcome of its piece of work.
    pub(super) fn go_on_repairing(&mut self, task: &Task, repair: Repair, outcome: Outcome) -> Next {
        match repair {
            Repair::Recreate(recreate) => self.recreate(task, recreate, outcome),
            Repair::TakeBack(back) => self.take_back(task, back, outcome),
            Repair::Restore(restore) => self.restore(task, restore, outcome),
            Repair::Send(sending) => self.sent(task, *sending, outcome),
            Repair::Doubt(doubt) => self.settle_doubt(task, doubt, outcome),
            Repair::GiveBack(situation, from) => self.given_back(task, &situation, from, outcome),
            Repair::Return(situation, seen) => self.returning(task, situation, seen, outcome),
        }
    }

    /// Whether the object has named another release that declares it since its drift was found.
    fn is_held_to_another(&self, task: &Task) -> bool {
        self.drifts.life(&task.object).is_some_and(|life| {
            life.vouched && *life.release != task.id && self.known.declares(&life.release, &task.object)
        })
    }

    /// Tells once that repairs of a release are on hold.
    fn tell_held(&mut self, release: &Arc<Release>, left: SignedDuration) {
        let now = self.now;
        let until = now.checked_add(left).unwrap_or(Timestamp::MAX);
        let held = &mut self.repairs.held;
        held.retain(|_, until| *until > now);
        if self.leads && held.insert(release.id.clone(), until).is_none() {
            self.tell(Occurrence::Held { release: Arc::clone(release), until });
        }
    }

    /// The wait that delays the repair of the object; `None` if there is no reason to wait. While
    /// the brake is on, nothing is scheduled: the order that releases it triggers another look at
    /// everything.
    fn wait(&mut self, task: &Task, drift: &Drift) -> Option<Done> {
        match self.pull_brake(&task.id) {
            Pull::Free => {}
            Pull::Slipping => return Some(Done::Later(SLIPPING)),
            Pull::Sets(_) | Pull::On => {
                self.keep(task, Some("too many objects drift at once, so repairs have stopped"));
                return Some(Done::Settled);
            }
        }
        // Fields go back once for each manager and revision, so nobody is fought.
        if drift.kind == DriftKind::Ownership && !matches!(drift.repaired, Some(Err(_))) {
            return None;
        }
        let wait = self.repairs.backoff.until(&task.object, self.now)?;
        if self.repairs.backoff.is_contested(&task.object, self.now) {
            self.contest(task);
        }
        Some(Done::Later(wait))
    }
}

impl Repairs {
    /// Forgets an object that a release has ceased to declare.
    pub(super) fn forget(&mut self, release: &ReleaseId, object: &ObjectId) {
        self.fixed.forget(object);
        self.returned.forget(object);
        self.backoff.forget(object);
        self.rollouts.forget(release, object);
    }
}

/// The `apiVersion` of an object's kind in a version.
fn api_version(object: &ObjectId, version: &str) -> String {
    match object.group.as_str() {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    }
}
