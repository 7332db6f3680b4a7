//! Reads the records again after a re-creation: Helm may have dropped the object, or begun to
//! uninstall it, during the write.
//!
//! Entry points: `Reconciler::begin_taking_back`, `take_back`; `begin_taking_back_late` once this replica leads again.
//! Invariant: deletes by uid. Must not delete anything but the object that the guard has created.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::super::Reconciler;
use super::{Done, Next, RETRY, Repair, Situation, Task};
use crate::elapsed::elapsed;
use crate::event::{Fault, Outcome, Work, Write};
use crate::occurrence::{Fate, Occurrence};
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::release::Release;
use kubemoor_helm::state::{self, Deletion};

/// The number of tries to read the records after a write.
const LOOKS: usize = 4;

/// For how long an object is taken back after it was created. Later, somebody may rely on it.
const LATE: Duration = Duration::from_secs(600);

/// The state of the check after a write.
pub(crate) enum TakeBack {
    /// It is unknown whether the write was done: the guard looks for the object.
    Looking { release: Arc<Release>, manager: String, done: Done },
    /// The object is read again before it is taken back late: it may belong to somebody else by now.
    LookingLate { created: Created },
    /// The records are read.
    Records { created: Created, looks: usize, done: Done },
    /// The created object is deleted.
    Deleting { created: Created, done: Done },
}

/// An object that the guard has created by a manifest of this release.
pub(crate) struct Created {
    release: Arc<Release>,
    uid: String,
    at: Timestamp,
    /// When it is next to be taken back.
    due: Timestamp,
}

impl Reconciler {
    pub(super) fn begin_taking_back(
        &mut self,
        task: &Task,
        situation: &Situation,
        uid: String,
        done: Done,
    ) -> Next {
        read_records(task, self.created(&situation.release, uid), 1, done)
    }

    pub(super) fn take_back(&mut self, task: &Task, back: TakeBack, outcome: Outcome) -> Next {
        match (back, outcome) {
            (TakeBack::Looking { release, manager, done }, Outcome::Object { live: Some(live), .. }) => {
                let sighting = &live.sighting;
                let is_made = sighting.managers.iter().any(|it| it.name == manager);
                if is_made && sighting.release.as_ref() == Some(&task.id) {
                    return read_records(task, self.created(&release, sighting.uid.clone()), 1, done);
                }
                Next::Done(done)
            }
            (TakeBack::Looking { done, .. }, _) => Next::Done(done),
            (TakeBack::LookingLate { created }, Outcome::Object { live, .. }) => {
                let is_own = live.is_some_and(|live| {
                    live.sighting.uid == created.uid && live.sighting.release.as_ref() == Some(&task.id)
                });
                match is_own {
                    true => read_records(task, created, 1, Done::Settled),
                    false => Next::settled(),
                }
            }
            (TakeBack::LookingLate { created }, _) => self.take_back_later(task, created),
            (TakeBack::Records { created, done, .. }, Outcome::Records(ruled)) => {
                self.learn_records(&task.id, ruled);
                if created.uid.is_empty() || self.is_wanted(task) {
                    return Next::Done(done);
                }
                let version = created.release.declared(&task.object).map(|it| Arc::clone(&it.version));
                let Some(version) = version else { return Next::Done(done) };
                let write = Write::Delete { uid: created.uid.clone() };
                let work = Work::Write { object: task.object.clone(), version, write };
                Next::work(work, Repair::TakeBack(TakeBack::Deleting { created, done: Done::Settled }))
            }
            (TakeBack::Records { created, looks, done }, Outcome::Failed(failure)) => {
                if looks < LOOKS {
                    return read_records(task, created, looks + 1, done);
                }
                self.tell_of_made(task, created.release, Fate::Unread(failure.message));
                Next::Done(done)
            }
            (TakeBack::Deleting { created, done }, outcome) => {
                match outcome.written() {
                    Ok(_) => self.tell_of_made(task, created.release, Fate::TakenBack),
                    Err(failure) if matches!(failure.fault, Fault::NotFound | Fault::Conflict) => {}
                    Err(failure) if failure.fault == Fault::NotLeading => {
                        return self.take_back_later(task, created);
                    }
                    Err(failure) => {
                        self.tell_of_made(task, created.release, Fate::CannotTakeBack(failure.message));
                    }
                }
                Next::Done(done)
            }
            (TakeBack::Records { done, .. }, _) => Next::Done(done),
        }
    }

    /// Ends the waits of objects that the guard created and could not take back, since this replica leads again. Returns
    /// their releases.
    pub(crate) fn hurry_taking_back(&mut self) -> Vec<ReleaseId> {
        let now = self.now;
        self.repairs.unwanted.retain(|_, created| elapsed(created.at, now) <= LATE);
        self.repairs.unwanted.values_mut().for_each(|created| created.due = now);
        self.repairs.unwanted.keys().map(|(release, _)| release.clone()).collect()
    }

    /// The objects of a release that are to be taken back late by now, with the release by which they were created.
    /// None while nothing may be repaired.
    pub(crate) fn unwanted(&self, id: &ReleaseId) -> Option<(Arc<Release>, Vec<ObjectId>)> {
        if !self.leads || self.open || self.suspensions.of(id, self.now).is_some() {
            return None;
        }
        let is_due = |created: &Created| created.due <= self.now && elapsed(created.at, self.now) <= LATE;
        let all = self.repairs.unwanted.iter();
        let due = all.filter(|((release, _), created)| release == id && is_due(created));
        let (release, objects): (Vec<_>, Vec<_>) =
            due.map(|((_, object), created)| (&created.release, object.clone())).unzip();
        Some((Arc::clone(release.first()?), objects))
    }

    /// Begins to take one of them back, unless it belongs to somebody else or a record declares it by now.
    pub(crate) fn begin_taking_back_late(&mut self, task: &Task) -> Next {
        let created = self.repairs.unwanted.remove(&(task.id.clone(), task.object.clone()));
        let Some(created) = created else { return Next::settled() };
        let version = created.release.declared(&task.object).map(|it| Arc::clone(&it.version));
        let Some(version) = version else { return Next::settled() };
        let work = Work::ReadObject { object: task.object.clone(), version };
        Next::work(work, Repair::TakeBack(TakeBack::LookingLate { created }))
    }

    fn created(&self, release: &Arc<Release>, uid: String) -> Created {
        Created { release: Arc::clone(release), uid, at: self.now, due: self.now }
    }

    fn take_back_later(&mut self, task: &Task, created: Created) -> Next {
        let created = Created { due: self.after(RETRY), ..created };
        self.repairs.unwanted.insert((task.id.clone(), task.object.clone()), created);
        Next::later(RETRY)
    }

    /// Whether the release declares the object and no operation of its own drops it.
    fn is_wanted(&self, task: &Task) -> bool {
        let release = self.known.release(&task.id).zip(self.known.policy(&task.id));
        release.is_some_and(|(release, policy)| {
            let standing = state::standing(release, &task.object, policy.operation_timeout, self.now);
            standing.is_some_and(|it| !matches!(it.deletion, Deletion::Dropped | Deletion::Uninstalled))
        })
    }

    fn tell_of_made(&mut self, task: &Task, release: Arc<Release>, fate: Fate) {
        let drift = crate::drifts::Drift::new(super::DriftKind::Missing, self.now);
        let object = self.drifts.name(&task.id, &task.object);
        self.tell(Occurrence::Object { release, object, drift: Box::new(drift), fate });
    }
}

fn read_records(task: &Task, created: Created, looks: usize, done: Done) -> Next {
    let work = Work::ReadRecords { release: task.id.clone() };
    Next::work(work, Repair::TakeBack(TakeBack::Records { created, looks, done }))
}
