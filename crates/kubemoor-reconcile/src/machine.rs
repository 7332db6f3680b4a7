//! The loop as one value, which turns events into actions.
//!
//! Entry point: [`Reconciler::handle`]. Invariant: the whole state of the loop is here, and nothing
//! else changes it; each event leads to a bounded number of pieces of work; each piece of work is
//! tracked until its outcome arrives or is no longer needed. Must not read a clock or wait.

mod agenda;
mod ending;
mod inform;
mod look;
pub(super) mod observe;
mod order;
mod pass;
mod publish;
pub(crate) mod repair;
mod watch;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use self::pass::Passes;
use self::repair::Repairs;
use super::alarms::Alarms;
use super::asked::Asked;
use super::drifts::Drifts;
use super::elapsed::is_set_back;
use super::event::{Action, Event, Work, WorkId};
use super::known::Known;
use super::occurrence::Occurrence;
use super::recent::Recent;
use super::scopes::Scopes;
use super::suspensions::Suspensions;
use super::tally::Tally;
use kubemoor_declare::model::ReleaseId;
use kubemoor_policy::signing::SigningKey;
use kubemoor_policy::suspension::Suspended;

/// The settings that stay the same while the loop runs.
#[derive(Clone)]
pub struct Settings {
    /// The key that signs agreements.
    pub key: SigningKey,
    /// Whether nothing may be written.
    pub read_only: bool,
    /// Whether the API server may be asked by dry runs.
    pub dry_runs: bool,
}

/// The loop.
pub struct Reconciler {
    pub(super) settings: Settings,
    pub(super) known: Known,
    pub(super) drifts: Drifts,
    pub(super) recent: Recent,
    pub(super) repairs: Repairs,
    pub(super) scopes: Scopes,
    pub(super) alarms: Alarms,
    pub(super) asked: Asked,
    pub(super) suspensions: Suspensions,
    pub(super) leads: bool,
    /// The emergency switch is off.
    pub(super) open: bool,
    /// The loop is stopping and begins nothing new.
    stopping: bool,
    /// Everything that was declared at the start has been listed.
    listed: bool,
    /// The kinds that the cluster did not serve when this was last known.
    unserved: Option<BTreeSet<(String, String)>>,
    /// The releases that have changed since.
    changed: BTreeSet<ReleaseId>,
    /// The releases with other objects since the scopes to watch were last known.
    unscoped: BTreeSet<ReleaseId>,
    /// The releases with objects that only the first listing of a watch will show.
    unlisted: BTreeSet<ReleaseId>,
    passes: Passes,
    errands: BTreeMap<WorkId, ReleaseId>,
    errand: u64,
    timer: Option<Timestamp>,
    oldest: Option<Timestamp>,
    pub(super) now: Timestamp,
    pub(super) tally: Tally,
    out: Vec<Action>,
}

impl Reconciler {
    /// An empty state; the repairs of these releases are suspended until an order resumes them.
    pub fn new(settings: Settings, suspended: Suspended) -> Self {
        Self {
            drifts: Drifts::new(settings.key.clone()),
            settings,
            known: Known::default(),
            recent: Recent::default(),
            repairs: Repairs::default(),
            scopes: Scopes::default(),
            alarms: Alarms::default(),
            asked: Asked::default(),
            suspensions: Suspensions::new(suspended),
            leads: false,
            open: false,
            stopping: false,
            listed: false,
            unserved: None,
            changed: BTreeSet::new(),
            unscoped: BTreeSet::new(),
            unlisted: BTreeSet::new(),
            passes: Passes::default(),
            errands: BTreeMap::new(),
            errand: 0,
            timer: None,
            oldest: None,
            now: Timestamp::UNIX_EPOCH,
            tally: Tally::default(),
            out: Vec::new(),
        }
    }

    /// Processes an event and returns the actions, in order.
    pub fn handle(&mut self, event: Event, now: Timestamp) -> Vec<Action> {
        let is_set_back = is_set_back(self.now, now);
        self.now = now;
        if is_set_back {
            self.end_waits();
        }
        match event {
            Event::Release(id, ruled) => {
                self.take_in_release(&id, ruled);
                self.attend(&id);
            }
            Event::Policies { policies, open } => self.rule(policies, open),
            Event::Circumstances(object, surroundings) => {
                self.known.surround(object.clone(), surroundings);
                if self.is_judged(&object) {
                    self.judge_again([object]);
                }
            }
            Event::Scopes { wanted, unserved } => self.follow(&wanted, &unserved),
            Event::Watch(scope, tidings) => self.hear(&scope, tidings),
            Event::Order(order) => self.obey(order),
            Event::Leads(leads) => {
                self.leads = leads;
                if leads {
                    self.attend_all();
                    let unwanted = self.hurry_taking_back();
                    unwanted.iter().for_each(|release| self.attend(release));
                } else {
                    self.asked.end_term();
                    self.release_brake();
                }
            }
            Event::Due => self.timer = None,
            Event::Stop => self.stopping = true,
            Event::Outcome(errand, outcome) => {
                if let Some(release) = self.errands.remove(&errand) {
                    self.resume(&release, errand, outcome);
                }
            }
        }
        self.wake();
        self.begin_passes();
        self.set_timer();
        std::mem::take(&mut self.out)
    }

    /// Whether no work is running: the loop only waits for timers and events.
    pub fn is_idle(&self) -> bool {
        self.errands.is_empty()
    }

    /// Requests an action.
    pub(super) fn act(&mut self, action: Action) {
        self.out.push(action);
    }

    /// Tells people.
    pub(super) fn tell(&mut self, told: Occurrence) {
        self.act(Action::Tell(told));
    }

    /// Hands out a piece of work for a release.
    fn hand_out(&mut self, release: &ReleaseId, work: Work) -> WorkId {
        self.errand += 1;
        let errand = WorkId(self.errand);
        self.errands.insert(errand, release.clone());
        self.act(Action::Do(errand, release.clone(), work));
        errand
    }

    /// Does everything that is due.
    fn wake(&mut self) {
        for (release, object) in self.alarms.take(self.now) {
            self.drifts.suspect(&release, object, self.now);
            self.attend(&release);
        }
        let due = self.passes.agenda.take_due(self.now);
        for release in self.suspensions.take_ended(self.now).into_iter().chain(due) {
            self.attend(&release);
        }
    }

    fn set_timer(&mut self) {
        let at_once = self.passes.may_begin().then_some(self.now);
        let times = [self.alarms.next(), self.passes.agenda.next(), self.suspensions.next_end(), at_once];
        let next = times.into_iter().flatten().min();
        if next != self.timer {
            self.timer = next;
            self.act(Action::SetTimer(next));
        }
    }
}

#[cfg(test)]
mod tests;
