//! The pieces of work that a guard's loop hands out, as they are done against the simulated API server.
//!
//! Entry points: `Guard::work`, `answer`. Invariant: each has one outcome, whether it was done or not. Must not decide
//! what the guard does next.

use super::super::super::event::{ApiWork, Fault, WorkId, WorkOutcome};
use super::super::answers::{Asked, failed};
use super::super::plan::LATE;
use super::super::random::Random;
use super::super::world::World;
use super::super::writes::Sender;
use super::{Finding, Guard};
use kubemoor_declare::model::ReleaseId;

impl Guard {
    /// Does a piece of work; `faults` says whether it may fail.
    pub(in super::super) fn work(&mut self, world: &mut World, random: &mut Random, faults: bool) {
        let place = random.below(self.work.len());
        let Some(work) = self.work.remove(place) else { return };
        if world.has(LATE) && work.2.is_write() && world.luck.chance(30) {
            return self.send_off(work, world);
        }
        let (lost, unanswered) = (faults && random.chance(4), faults && random.chance(4));
        self.try_to_do(work, world, (lost, unanswered));
    }

    /// Does a piece of work to which no answer comes.
    pub(in super::super) fn work_unanswered(&mut self, world: &mut World) {
        if let Some(work) = self.work.pop_front() {
            self.try_to_do(work, world, (false, true));
        }
    }

    /// A piece of work came to this.
    pub(in super::super) fn answer(
        &mut self,
        (errand, release): (WorkId, ReleaseId),
        work: ApiWork,
        outcome: WorkOutcome,
    ) {
        self.reads.note(&release, &work, &outcome);
        let finding = match (work, outcome) {
            (ApiWork::ReadRecords { release }, WorkOutcome::Records(_)) => Finding::Records(release),
            (_, outcome) => Finding::Outcome(outcome),
        };
        self.done.push_back((errand, release, finding));
    }

    fn try_to_do(
        &mut self,
        (errand, release, work): (WorkId, ReleaseId, ApiWork),
        world: &mut World,
        (lost, unanswered): (bool, bool),
    ) {
        let outcome = match lost {
            true => failed(Fault::Unanswered, "the connection broke"),
            false => self.carry_out(&release, &work, world),
        };
        let outcome = match unanswered {
            true => failed(Fault::Unanswered, "no answer"),
            false => outcome,
        };
        self.answer((errand, release), work, outcome);
    }

    fn carry_out(&mut self, release: &ReleaseId, work: &ApiWork, world: &mut World) -> WorkOutcome {
        match work {
            ApiWork::ReadObject { object, .. } => {
                let live = world.objects.get(object).map(|stored| Box::new(stored.live()));
                WorkOutcome::Object { live, version: "v1".to_owned() }
            }
            ApiWork::ReadRecords { release } => WorkOutcome::Records(self.ruled(release, world)),
            ApiWork::ReadDocument { revision, object } => world.document(release, *revision, object),
            ApiWork::ReadNamespace { .. } => WorkOutcome::Namespace { deleting: world.terminating },
            ApiWork::ReadDefinition { .. } => WorkOutcome::Definition { deleting: false },
            ApiWork::Ask { object, uid, revision, digest } => {
                world.canonical(release, (object, uid), Asked { revision: *revision, digest: *digest })
            }
            ApiWork::Probe { .. } => failed(Fault::AlreadyExists, "already exists"),
            ApiWork::Write { object, write, .. } => {
                if self.leads_until.is_none_or(|until| world.now >= until) {
                    return failed(Fault::NotLeading, "this replica does not lead");
                }
                if let Some(refused) = world.refuse(object) {
                    return refused;
                }
                let sender = Sender { guard: self.number, process: self.process, is_awaited: true };
                world.write(sender, object, write)
            }
        }
    }
}
