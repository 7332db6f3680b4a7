//! Repairs of a release whose last operation failed, towards the revision that was
//! deployed before it.
//!
//! Entry points: [`Towards::question`], [`Towards::of`], `Reconciler::return_ownership`. Invariant:
//! only an order leads here. Must not change an object that agrees with the failed manifest, or
//! write a value that was never seen in the live object.

use std::sync::Arc;

use super::super::Reconciler;
use super::recreate::version_written;
use super::{Done, Next, Repair, Seen, Situation, Task};
use crate::blame::{Taken, returned};
use crate::drifts::Drift;
use crate::event::{Document, Failure, Fault, Outcome, Secret, Work, Write};
use crate::judge::{Standing, Weighing};
use crate::occurrence::Fate;
use crate::plan::Plan;
use crate::report::DriftKind;
use kubemoor_declare::model::{DriftMode, ObjectId};
use kubemoor_helm::release::Release;
use kubemoor_verdict::edit::Evidence;

/// The revision to repair towards.
pub(crate) struct Towards {
    /// The release in its present state.
    failed: Arc<Release>,
    /// The release as it was deployed last.
    deployed: Arc<Release>,
}

/// The reason why there is no revision to repair towards.
pub(crate) enum Astray {
    /// There is none, for this reason.
    Nowhere(String),
    /// It cannot be read now, for this reason.
    Unread(String),
}

impl Towards {
    /// The request that finds the revision that was deployed before the failed operation.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn question(failed: &Release) -> Result<Work, Astray> {
        let declared =
            failed.objects.iter().filter(|(_, it)| it.baseline.is_some()).map(|(object, _)| object);
        let question = failed.baseline.as_ref().zip(declared.min());
        let work = question.map(|(head, object)| Work::ReadDocument {
            revision: head.revision,
            object: ObjectId::clone(object),
        });
        work.ok_or_else(nowhere)
    }

    /// The revision, by the answer to that request.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub(crate) fn of(failed: &Arc<Release>, outcome: Outcome) -> Result<Self, Astray> {
        match outcome {
            Outcome::Document(Document { apply_method, digest, .. }) => {
                let deployed = failed.before(apply_method, digest).ok_or_else(nowhere)?;
                Ok(Self { failed: Arc::clone(failed), deployed: Arc::new(deployed) })
            }
            Outcome::Failed(Failure { fault: Fault::NoRecord, message }) => Err(Astray::Nowhere(message)),
            Outcome::Failed(Failure { message, .. }) => Err(Astray::Unread(message)),
            _ => Err(Astray::Unread("the answer is to another question".to_owned())),
        }
    }

    /// The revision.
    pub(crate) fn revision(&self) -> u64 {
        self.deployed.state.revision
    }

    /// Whether that revision declares an object.
    pub(crate) fn declares(&self, object: &ObjectId) -> bool {
        self.deployed.objects.contains_key(object)
    }

    /// The objects that it declares, in order.
    pub(crate) fn objects(&self) -> Vec<ObjectId> {
        let mut objects: Vec<_> =
            self.deployed.objects.keys().map(|object| ObjectId::clone(object)).collect();
        objects.sort();
        objects
    }

    /// The release as it was deployed last, as long as its state has not changed since the order.
    pub(crate) fn instead_of(&self, now: &Arc<Release>) -> Option<Arc<Release>> {
        Arc::ptr_eq(now, &self.failed).then(|| Arc::clone(&self.deployed))
    }
}

fn nowhere() -> Astray {
    Astray::Nowhere("no revision was deployed before it".to_owned())
}

impl Reconciler {
    /// Returns fields that other managers own to Helm, with the values of the last deployed
    /// revision.
    pub(crate) fn return_ownership(&mut self, task: &Task) -> Next {
        let drift = Drift::new(DriftKind::Ownership, self.now);
        let Some(situation) = self.situation_of(task, drift) else { return Next::settled() };
        if situation.plan != Plan::Repair {
            return Next::settled();
        }
        let version = Arc::clone(&situation.declared.version);
        let work = Work::ReadObject { object: task.object.clone(), version };
        Next::work(work, Repair::Return(Box::new(situation), None))
    }

    pub(super) fn returning(
        &mut self,
        task: &Task,
        situation: Box<Situation>,
        seen: Option<Box<Seen>>,
        outcome: Outcome,
    ) -> Next {
        let seen = match (seen, outcome) {
            (None, Outcome::Object { live: Some(live), version }) => {
                let seen = Box::new(Seen { live: *live, version });
                let work = Work::ReadRecords { release: task.id.clone() };
                return Next::work(work, Repair::Return(situation, Some(seen)));
            }
            (Some(seen), Outcome::Records(ruled)) => {
                self.learn_records(&task.id, ruled);
                seen
            }
            _ => return Next::settled(),
        };
        // A later operation decides.
        if !self.is_in_force(task, &situation) {
            return Next::settled();
        }
        // Ownership is part of the declaration for a user who orders a repair.
        let mut policy = (*situation.policy).clone();
        policy.drift = DriftMode::Repair;
        let Situation { release, circumstances, .. } = &*situation;
        let (live, policy) = (&seen.live, &policy);
        match (Weighing { release, live, policy, circumstances, now: self.now }).weigh(Evidence::None) {
            Standing::Taken(taken, _) => self.give_back(task, *situation, &seen, &taken),
            _ => Next::settled(),
        }
    }

    /// Returns fields to Helm, once for each manager and revision.
    pub(super) fn give_back(
        &mut self,
        task: &Task,
        situation: Situation,
        seen: &Seen,
        taken: &Taken,
    ) -> Next {
        let record = &situation.release.latest.uid;
        // The guard may finish its own incomplete return.
        if taken.by != taken.helm.name && self.repairs.returned.has(&task.object, record, &taken.by) {
            self.say(task, &situation.release, "it was given back once, and was taken again");
            return Next::settled();
        }
        let patch = seen.live.whole().and_then(|whole| returned(&whole, &taken.helm, &taken.paths));
        let Some(patch) = patch else { return Next::settled() };
        let version = Arc::clone(&situation.declared.version);
        let write = Write::Merge { patch: Secret(patch), manager: taken.helm.name.clone() };
        let work = Work::Write { object: task.object.clone(), version, write };
        Next::work(work, Repair::GiveBack(Box::new(situation), taken.by.clone()))
    }

    pub(super) fn given_back(
        &mut self,
        task: &Task,
        situation: &Situation,
        from: String,
        outcome: Outcome,
    ) -> Next {
        match outcome.written() {
            Ok(now) => {
                self.repairs.returned.note(&task.object, &situation.release.latest.uid, [from]);
                let drift = situation.drift.clone();
                self.note_repaired(task, situation, drift, Fate::Repaired { attempts: 1 });
                self.note_restored(task, situation, version_written(&now));
                Next::Done(Done::Repaired)
            }
            Err(Failure { fault: Fault::Conflict, .. }) => Next::again(super::AGAIN),
            Err(failure) => self.fail_by(task, &situation.release, &failure),
        }
    }
}
