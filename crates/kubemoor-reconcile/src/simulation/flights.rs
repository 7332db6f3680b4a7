//! Writes on their way to the API server, and what it refuses.
//!
//! Entry points: `Guard::send_off`, `Run::arrive`, `World::refuse`. Invariant: a guard waits for an answer only while it
//! certainly leads; what it has given up may arrive all the same.

use jiff::{SignedDuration, Timestamp};

use super::super::event::{ApiWork, Fault, WorkId, WorkOutcome};
use super::Run;
use super::answers::failed;
use super::flight::{Awaited, Flight};
use super::plan::REFUSALS;
use super::process::Guard;
use super::world::World;
use super::writes::Sender;
use kubemoor_declare::model::{Cause, ObjectId, ReleaseId};

/// The longest that a write is on its way, and that an answer is waited for.
const ON_ITS_WAY: usize = 10_000;
const PATIENCE: SignedDuration = SignedDuration::from_secs(30);

impl World {
    pub(super) fn has(&self, trouble: u32) -> bool {
        self.trouble & trouble != 0
    }

    /// When the next write arrives.
    pub(super) fn next_arrival(&self) -> Option<Timestamp> {
        self.flights.iter().map(|flight| flight.arrives).min()
    }

    /// The API server takes a write of a guard, or not: somebody has taken the right to it, another webhook denies
    /// it, or a field is not valid.
    pub(super) fn refuse(&mut self, object: &ObjectId) -> Option<WorkOutcome> {
        if !self.has(REFUSALS) || !self.luck.chance(10) {
            return None;
        }
        self.say(|| format!("a write of {} is refused", object.name));
        Some(match self.luck.below(3) {
            0 => failed(Fault::Forbidden, "configmaps is forbidden"),
            1 => failed(Fault::Forbidden, "admission webhook \"other\" denied the request"),
            _ => {
                let causes: Vec<Cause> = Vec::new();
                failed(Fault::Invalid { said: "data: Invalid value".to_owned(), causes }, "it is invalid")
            }
        })
    }
}

impl Guard {
    /// Sends a write that arrives a while later.
    pub(super) fn send_off(
        &mut self,
        (errand, release, work): (WorkId, ReleaseId, ApiWork),
        world: &mut World,
    ) {
        let lead = self.leads_until().filter(|until| world.now < *until);
        let (Some(until), ApiWork::Write { object, write, .. }) = (lead, &work) else {
            return self.answer(
                (errand, release),
                work,
                failed(Fault::NotLeading, "this replica does not lead"),
            );
        };
        let way = i64::try_from(world.luck.below(ON_ITS_WAY)).unwrap_or_default();
        let (arrives, deadline) =
            (world.now + SignedDuration::from_millis(way), until.min(world.now + PATIENCE));
        world.say(|| format!("guard {} sends a write of {}", self.number(), object.name));
        world.flights.push(Flight {
            guard: self.number(),
            process: self.process,
            errand,
            object: object.clone(),
            write: write.clone(),
            arrives,
            deadline,
        });
        self.unanswered.push(Awaited { errand, release, work, deadline });
    }

    /// An answer to a write has come.
    fn hear_answer(&mut self, errand: WorkId, outcome: WorkOutcome) {
        if let Some(place) = self.unanswered.iter().position(|it| it.errand == errand) {
            let Awaited { errand, release, work, .. } = self.unanswered.swap_remove(place);
            self.answer((errand, release), work, outcome);
        }
    }

    /// Gives up what was not answered in time.
    fn give_up(&mut self, now: Timestamp) {
        while let Some(late) = self.unanswered.iter().find(|it| it.deadline < now).map(|it| it.errand) {
            self.hear_answer(late, failed(Fault::Unanswered, "no answer in time"));
        }
    }
}

impl Run {
    /// The writes whose time has come arrive, and guards give up the others.
    pub(super) fn arrive(&mut self) {
        let now = self.world.now;
        let mut flights = std::mem::take(&mut self.world.flights);
        flights.sort_by_key(|flight| flight.arrives);
        for flight in flights {
            if flight.arrives > now {
                self.world.flights.push(flight);
                continue;
            }
            let Flight { guard, process, errand, object, write, arrives, deadline } = flight;
            let sender = Sender { guard, process, is_awaited: arrives <= deadline };
            let outcome = match self.world.refuse(&object) {
                Some(refused) => refused,
                None => self.world.write(sender, &object, &write),
            };
            let waits = |it: &&mut Guard| sender.is_awaited && it.process == process;
            if let Some(guard) = self.guards.iter_mut().find(waits) {
                guard.hear_answer(errand, outcome);
            }
        }
        self.guards.iter_mut().for_each(|guard| guard.give_up(now));
    }
}
