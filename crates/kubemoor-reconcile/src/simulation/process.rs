//! One guard: the loop, and around it what the shell does, in steps that can be
//! held up, come twice, fail or be cut off.

mod agreeing;
mod checks;
mod errands;
mod reads;
mod watches;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use self::reads::Reads;
use super::super::event::{
    ApiWork, Fault, GovernedRelease, LoopAction, LoopEvent, LoopOrder, WorkId, WorkOutcome,
};
use super::super::machine::{LoopSettings, Reconciler};
use super::super::report::LoopReport;
use super::super::scopes::WatchScope;
use super::answers::failed;
use super::flight::Awaited;
use super::plan::LATE;
use super::random::Random;
use super::stored::Fields;
use super::world::{Kept, Records, World};
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::release::{Appearance, Release};
use kubemoor_policy::Policy;
use kubemoor_policy::guarded::{OrderAnswer, OrderResult, SuspendedReleases};
use kubemoor_policy::signing::SigningKey;

/// For how long a leader writes after it has renewed its lease.
const LEAD: SignedDuration = SignedDuration::from_secs(10);

/// After which silence somebody else takes the lease.
const SILENCE: SignedDuration = SignedDuration::from_secs(15);

/// The longest sleep of the loop.
const LONGEST_SLEEP: SignedDuration = SignedDuration::from_secs(60);

/// The most actions that one event may lead to.
const MOST_ACTIONS: usize = 64;

pub(super) struct Guard {
    pub(super) number: usize,
    /// Which process of all guards this is.
    pub(super) process: usize,
    pub(super) machine: Reconciler,
    skew: SignedDuration,
    /// How much of that came by jumps.
    pub(super) jumped: SignedDuration,
    policy: Arc<Policy>,
    /// The policy lets a field differ.
    is_lenient: bool,
    /// The policy has changed since everything was listed.
    is_newly_ruled: bool,
    scope: WatchScope,
    watching: bool,
    cursor: usize,
    records: usize,
    /// The watch of records has not expired.
    follows: bool,
    releases: BTreeMap<ReleaseId, (Records, Arc<Release>)>,
    appearances: BTreeMap<(String, u64), Appearance>,
    /// Handed out and not begun.
    work: VecDeque<(WorkId, ReleaseId, ApiWork)>,
    /// Done and not told.
    done: VecDeque<(WorkId, ReleaseId, Finding)>,
    timer: Option<Timestamp>,
    leads_until: Option<Timestamp>,
    leads: bool,
    /// The lease's renewals, and since when there were no more.
    seen: (u64, Timestamp),
    /// The orders that the watch has told of and that were not answered then.
    open: BTreeMap<ReleaseId, String>,
    /// The orders that were handed over.
    ordered: BTreeSet<String>,
    pub(super) reports: BTreeMap<ReleaseId, LoopReport>,
    /// What the guard was told of objects last and lately.
    lives: BTreeMap<ObjectId, Vec<(Timestamp, Fields)>>,
    /// The writes whose answers are unanswered.
    pub(super) unanswered: Vec<Awaited>,
    /// Pieces of work in this second.
    load: (i64, usize),
    /// When each object was written lately.
    pace: BTreeMap<ObjectId, VecDeque<Timestamp>>,
    reads: Reads,
    /// The releases with work that was begun before the clock was set back, when they were not held.
    decided: BTreeSet<ReleaseId>,
}

/// What came of a piece of work.
enum Finding {
    Outcome(WorkOutcome),
    /// The records of this release were read. What they say is told as it is known by then, as the shell does.
    Records(ReleaseId),
}

impl Guard {
    pub(super) fn new(number: usize, skew: SignedDuration, world: &mut World) -> Self {
        let settings = LoopSettings { key: SigningKey::new([7; 32]), read_only: false, dry_runs: true };
        world.processes += 1;
        let mut guard = Self {
            number,
            process: world.processes,
            machine: Reconciler::new(settings, SuspendedReleases::new()),
            skew,
            jumped: SignedDuration::ZERO,
            policy: world.policy(),
            is_lenient: world.is_lenient,
            is_newly_ruled: false,
            scope: scope(),
            watching: false,
            cursor: world.log.len(),
            records: world.log.len(),
            follows: true,
            releases: BTreeMap::new(),
            appearances: BTreeMap::new(),
            work: VecDeque::new(),
            done: VecDeque::new(),
            timer: None,
            leads_until: None,
            leads: false,
            seen: (world.lease.renewals, world.now),
            open: world.orders.clone(),
            ordered: BTreeSet::new(),
            reports: BTreeMap::new(),
            lives: BTreeMap::new(),
            unanswered: Vec::new(),
            load: (0, 0),
            pace: BTreeMap::new(),
            reads: Reads::default(),
            decided: BTreeSet::new(),
        };
        let listed: Vec<ReleaseId> = world.records.keys().cloned().collect();
        for record in world.records.values().flatten() {
            guard.appearances.insert((record.uid.clone(), record.revision), Appearance::Listed);
        }
        for id in listed {
            let ruled = guard.ruled(&id, world);
            guard.handle(LoopEvent::Release(id, ruled), world);
        }
        let wanted = BTreeSet::from([guard.scope.clone()]);
        guard.handle(LoopEvent::Scopes { wanted, unserved: BTreeSet::new() }, world);
        guard
    }

    /// When something is due by this guard's clock, in the world's time.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.timer.map(|at| at - self.skew)
    }

    pub(super) fn number(&self) -> usize {
        self.number
    }

    pub(super) fn leads_until(&self) -> Option<Timestamp> {
        self.leads_until
    }

    /// The clock of the guard's machine is set.
    pub(super) fn jump(&mut self, by: SignedDuration, world: &mut World) {
        let is_decided = |id: &ReleaseId| self.is_at_work_on(id) && !self.is_held(id, world);
        let decided: Vec<_> = world.records.keys().filter(|id| is_decided(id)).cloned().collect();
        self.decided.extend(decided);
        self.skew += by;
        self.jumped += by;
        let number = self.number;
        world.say(|| format!("the clock of guard {number} jumps by {by:?}"));
        // The shell sleeps no longer than this, whatever the clock says.
        let soon = self.now(world) + LONGEST_SLEEP;
        self.timer = self.timer.map(|at| at.min(soon));
    }

    /// Whether it is this that the guard does next.
    pub(super) fn is_next(&self, is: impl Fn(&ApiWork) -> bool) -> bool {
        self.work.iter().any(|(_, _, work)| is(work))
    }

    pub(super) fn has_work(&self) -> bool {
        !self.work.is_empty() || !self.done.is_empty()
    }

    pub(super) fn is_behind(&self, world: &World) -> bool {
        self.is_lenient != world.is_lenient
            || !self.watching
            || !self.follows
            || self.cursor < world.log.len()
            || self.records < world.log.len()
    }

    /// Nothing happens by it unless something else does.
    pub(super) fn is_at_rest(&self, world: &World) -> bool {
        !self.has_work() && self.unanswered.is_empty() && !self.is_behind(world)
    }

    pub(super) fn wake(&mut self, world: &mut World) {
        let now = self.now(world);
        if self.timer.take_if(|at| *at <= now).is_some() {
            self.handle(LoopEvent::Due, world);
        }
    }

    /// Whether an order has its final answer here, which may not be stored.
    pub(super) fn has_answered(&self, id: &ReleaseId, at: &str) -> bool {
        self.machine.asked.is_done(id, at)
    }

    /// What came of a piece of work is told.
    pub(super) fn tell(&mut self, world: &mut World, random: &mut Random) {
        let place = random.below(self.done.len());
        let Some((errand, id, finding)) = self.done.remove(place) else { return };
        let outcome = match finding {
            Finding::Outcome(outcome) => outcome,
            Finding::Records(id) => WorkOutcome::Records(self.releases.get(&id).map(|(_, release)| {
                GovernedRelease { release: Arc::clone(release), policy: Arc::clone(&self.policy) }
            })),
        };
        self.handle(LoopEvent::Outcome(errand, outcome), world);
        if !self.is_at_work_on(&id) {
            self.decided.remove(&id);
        }
    }

    /// Renews the lease or takes it, if that is due; hands over what people want.
    pub(super) fn lead(&mut self, world: &mut World) {
        let now = world.now;
        if world.lease.renewals != self.seen.0 {
            self.seen = (world.lease.renewals, now);
        }
        let is_silent = now.duration_since(self.seen.1) >= SILENCE;
        if world.lease.holder == Some(self.number) || world.lease.holder.is_none() || is_silent {
            world.lease.holder = Some(self.number);
            world.lease.renewals += 1;
            self.seen = (world.lease.renewals, now);
            self.leads_until = Some(now + LEAD);
        }
        self.note_lead(world);
    }

    /// The guard is told to stop: it hears for another moment what watches tell, finishes what is under way, stores what
    /// it knows, and gives up the lead.
    pub(super) fn stop(&mut self, world: &mut World, luck: &mut Random) {
        let number = self.number;
        world.say(|| format!("guard {number} is told to stop"));
        // What is under way has its answer in time.
        let trouble = world.trouble;
        world.trouble &= !LATE;
        self.handle(LoopEvent::Stop, world);
        for _ in 0..luck.below(20) {
            match luck.chance(50) {
                true if self.follows => self.hear_record(world),
                false if self.watching => self.hear_object(world),
                _ => {}
            }
        }
        for Awaited { errand, release, work, .. } in std::mem::take(&mut self.unanswered) {
            self.answer((errand, release), work, failed(Fault::Unanswered, "the guard ends"));
        }
        while self.has_work() && world.violation.is_none() {
            self.work(world, luck, false);
            self.tell(world, luck);
        }
        world.trouble = trouble;
        self.check_kept(world);
        if world.lease.holder == Some(self.number) {
            world.lease.holder = None;
        }
    }

    /// Notices that it leads, or no more.
    pub(super) fn note_lead(&mut self, world: &mut World) {
        let leads = self.leads_until.is_some_and(|until| world.now < until);
        if leads != self.leads {
            self.leads = leads;
            if leads {
                for (release, kept) in world.kept.clone() {
                    let Kept { first, seen, manager } = kept;
                    let order = LoopOrder::Remember { release, first, seen, contested: Vec::new(), manager };
                    self.handle(LoopEvent::Order(order), world);
                }
            } else {
                self.ordered.clear();
            }
            let number = self.number;
            world.say(|| format!("guard {number} leads: {leads}"));
            self.handle(LoopEvent::Leads(leads), world);
        }
        if self.leads {
            if !world.lags {
                self.hear_orders(world);
            }
            for (release, at) in self.open.clone() {
                // It is read again before it is handed over.
                let is_open = world.orders.get(&release) == Some(&at);
                if is_open && self.ordered.insert(at.clone()) {
                    self.pace.clear();
                    let order = LoopOrder::Reconcile { release, at, ticket: None };
                    self.handle(LoopEvent::Order(order), world);
                }
            }
        }
    }

    /// Whether a piece of work for a release has not been told of.
    fn is_at_work_on(&self, id: &ReleaseId) -> bool {
        let begun = self.work.iter().map(|(_, of, _)| of).chain(self.done.iter().map(|(_, of, _)| of));
        begun.chain(self.unanswered.iter().map(|it| &it.release)).any(|of| of == id)
    }

    fn now(&self, world: &World) -> Timestamp {
        world.now + self.skew
    }

    fn handle(&mut self, event: LoopEvent, world: &mut World) {
        self.note_seen(&event, world);
        let now = self.now(world);
        let actions = self.machine.handle(event, now);
        if actions.len() > MOST_ACTIONS {
            world.break_down(format!("guard {}: {} actions for one event", self.number, actions.len()));
        }
        for action in actions {
            match action {
                LoopAction::Do(errand, release, work) => {
                    self.count(world);
                    if let ApiWork::Write { object, write, .. } = &work {
                        self.check_write(object, world);
                        self.check_decision(&release, object, write, world);
                    }
                    if self.is_at_work_on(&release) {
                        world.break_down(format!("guard {} works on {release} twice at once", self.number));
                    }
                    self.work.push_back((errand, release, work));
                }
                LoopAction::SetTimer(at) => self.timer = at,
                LoopAction::Report(report) => self.take_report(*report, world),
                LoopAction::Withdraw(release) => drop(self.reports.remove(&release)),
                LoopAction::Relist => self.watching = false,
                _ => {}
            }
        }
    }

    /// The leader stores what it knows.
    fn take_report(&mut self, report: LoopReport, world: &mut World) {
        let id = report.release.clone();
        self.check_report(&report, world);
        self.check_answer(&report, world);
        if self.leads && world.lease.holder == Some(self.number) && world.records.contains_key(&id) {
            let first = super::super::drifts::First {
                uid: report.record.clone(),
                revision: report.records.revision,
                digest: report.digest,
            };
            let kept = Kept { first, seen: report.seen_alive.clone(), manager: report.manager.clone() };
            world.kept.insert(id.clone(), kept);
            let answer = report.answer.as_ref().filter(|it| it.result != OrderResult::Waiting);
            // Of an order that another guard has answered meanwhile, nothing more is stored.
            let is_open = |answer: &&OrderAnswer| world.orders.get(&id) == Some(&answer.at);
            if let Some(answer) = answer.filter(is_open) {
                world.orders.remove(&id);
                world.answered.insert(answer.at.clone(), answer.clone());
            }
        }
        self.reports.insert(id, report);
    }

    fn ruled(&mut self, id: &ReleaseId, world: &World) -> Option<GovernedRelease> {
        let state = world.state_of(id);
        let known = self.releases.get(id);
        if let Some((_, release)) = known.filter(|(known, _)| *known == state) {
            return Some(GovernedRelease { release: Arc::clone(release), policy: Arc::clone(&self.policy) });
        }
        for record in world.records.get(id).into_iter().flatten() {
            let key = (record.uid.clone(), record.revision);
            self.appearances.entry(key).or_insert(Appearance::Seen(record.status));
        }
        let previous = known.map(|(_, release)| Arc::clone(release));
        match world.release(id, previous.as_deref(), &self.appearances) {
            Some(release) => {
                let release = Arc::new(release);
                self.releases.insert(id.clone(), (state, Arc::clone(&release)));
                Some(GovernedRelease { release, policy: Arc::clone(&self.policy) })
            }
            None => {
                self.releases.remove(id);
                None
            }
        }
    }
}

pub(super) fn scope() -> WatchScope {
    WatchScope {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: None,
    }
}
