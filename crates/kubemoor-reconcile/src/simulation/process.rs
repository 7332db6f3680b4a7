//! One guard: the loop, and around it what the shell does, in steps that can be
//! held up, come twice, fail or be cut off.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::world::{
    Field, Fields, ManifestKey, Records, Sender, StoredStatus, View, WatchedChange, World, failed, fields,
};
use super::{LATE, REFUSALS, Random, SimulationRun};
use crate::drifts::{FirstManifest, ObjectDrift};
use crate::event::{
    ApiWork, Fault, GovernedRelease, LiveObject, LoopAction, LoopEvent, LoopNotice, LoopOrder, ObjectOutcome,
    ObjectWatchEvent, WorkId, WorkOutcome, Write,
};
use crate::machine::{LoopSettings, Reconciler};
use crate::plan::HOLD;
use crate::report::{DriftKind, LoopReport};
use crate::scopes::WatchScope;
use kubemoor_declare::model::{Cause, ObjectId, ReleaseId};
use kubemoor_helm::record::ReleaseStatus;
use kubemoor_helm::release::{Appearance, Release};
use kubemoor_policy::Policy;
use kubemoor_policy::agreement::ObservedObject;
use kubemoor_policy::guarded::{OrderAnswer, OrderResult, SuspendedReleases};
use kubemoor_policy::signing::SigningKey;
use kubemoor_verdict::health::{HealthReason, ReleaseHealth};

/// For how long a leader writes after it has renewed its lease.
const LEAD: SignedDuration = SignedDuration::from_secs(10);

/// After which silence somebody else takes the lease.
const SILENCE: SignedDuration = SignedDuration::from_secs(15);

/// The longest sleep of the loop.
const LONGEST_SLEEP: SignedDuration = SignedDuration::from_secs(60);

/// The most actions that one event may lead to.
const MOST_ACTIONS: usize = 64;

pub(super) struct SimulatedGuard {
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

impl SimulatedGuard {
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
        let is_awaited = |it: &mut Flight| it.process == self.process && it.is_awaited();
        for flight in world.flights.extract_if(.., is_awaited).collect::<Vec<_>>() {
            let outcome = world.land(&flight);
            self.hear_answer(flight.errand, outcome);
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
                    let StoredStatus { first, seen, manager } = kept;
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
                // A person is told to delete it.
                LoopAction::Tell(LoopNotice::Object {
                    drift,
                    fate: ObjectOutcome::CannotTakeBack(_),
                    ..
                }) => {
                    if let Some(stored) = world.objects.get(&*drift.object) {
                        world.made.insert(stored.uid.clone(), 0);
                    }
                }
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
            let first = FirstManifest {
                uid: report.record.clone(),
                revision: report.records.revision,
                digest: report.digest,
            };
            let kept =
                StoredStatus { first, seen: report.seen_alive.clone(), manager: report.manager.clone() };
            // The status of an uninstalled release is deleted, even where its record stays.
            let known = self.machine.known.release(&id);
            match known.is_none_or(|known| known.state.status == ReleaseStatus::Uninstalled) {
                true => drop(world.kept.remove(&id)),
                false => drop(world.kept.insert(id.clone(), kept)),
            }
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

/// The most writes to one object within [`WHILE`] that nobody ordered.
const MOST_WRITES: usize = 40;

const WHILE: SignedDuration = SignedDuration::from_mins(10);

/// The most pieces of work that one second of the world's may lead to.
const MOST_WORK: usize = 600;

impl SimulatedGuard {
    /// Counts a piece of work.
    pub(super) fn count(&mut self, world: &mut World) {
        let second = world.now.as_second();
        if self.load.0 != second {
            self.load = (second, 0);
        }
        self.load.1 += 1;
        if self.load.1 > MOST_WORK {
            world.break_down(format!("guard {} is hot", self.number));
        }
    }

    /// Nobody writes who does not lead, nor again and again.
    pub(super) fn check_write(&mut self, object: &ObjectId, world: &mut World) {
        let (number, now) = (self.number, world.now);
        if !self.leads {
            world.break_down(format!("guard {number} wants to write {} and does not lead", object.name));
        }
        let times = self.pace.entry(object.clone()).or_default();
        times.push_back(now);
        while times.front().is_some_and(|first| now.duration_since(*first) > WHILE) {
            times.pop_front();
        }
        if times.len() > MOST_WRITES {
            world.break_down(format!("guard {number} writes {} again and again", object.name));
        }
    }

    /// What is written was decided on what was read in the right order, and not for a record that
    /// came out of nothing a moment ago.
    pub(super) fn check_decision(
        &mut self,
        release: &ReleaseId,
        object: &ObjectId,
        write: &Write,
        world: &mut World,
    ) {
        let (number, name) = (self.number, &object.name);
        if let Some(fault) = self.reads.fault(release, object, write) {
            world.break_down(format!("guard {number} writes {name} {fault}"));
        }
        // Not what the mirror of the records says by now: the loop has still to be told of that.
        let Some(known) = self.machine.known.release(release) else { return };
        let is_pending = known.state.status.is_pending();
        if is_pending && !matches!(write, Write::Delete { .. }) {
            world.break_down(format!("guard {number} writes {name} and knows that Helm is at work"));
        }
        // What was decided before the clock was set back is finished.
        let is_held = self.is_held(release, world) && !self.decided.contains(release);
        // What the guard has just made itself is taken back all the same.
        if is_held && self.ordered.is_empty() && !matches!(write, Write::Delete { .. }) {
            world.break_down(format!("guard {number} writes {name} for a record that Helm has not made"));
        }
    }

    /// What a leader has seen objects agree with is stored once it has ended: the next one repairs towards nothing else.
    pub(super) fn check_kept(&self, world: &mut World) {
        if !self.leads || world.lease.holder != Some(self.number) {
            return;
        }
        // What this guard has told before it led is stored once it leads, which is not simulated.
        let is_told = |id: &ReleaseId| self.reports.get(id).is_some_and(|report| report.leads);
        let releases = self.machine.known.releases();
        // The status of an uninstalled release is deleted.
        let is_there = |it: &Release| {
            it.state.status != ReleaseStatus::Uninstalled && world.records.contains_key(&it.id)
        };
        let told: Vec<_> = releases.filter(|it| is_told(&it.id) && is_there(it)).collect();
        for release in told {
            let stored = world.kept.get(&release.id).map(|kept| kept.seen.as_slice()).unwrap_or_default();
            let is_stored = |seen: &ObservedObject| {
                let mut stored = stored.iter();
                stored.any(|it| it.object == seen.object && it.agreement == seen.agreement)
            };
            let seen = self.machine.drifts.seen_alive(release);
            if let Some(lost) = seen.iter().find(|seen| !is_stored(seen)) {
                let (number, name) = (self.number, &lost.object.name);
                return world
                    .break_down(format!("guard {number} ends and forgets what it has seen of {name}"));
            }
        }
    }

    /// Whether the loop waits before it acts on a record that came out of nothing a moment ago, by its own clock.
    pub(super) fn is_held(&self, release: &ReleaseId, world: &World) -> bool {
        self.machine.known.release(release).is_some_and(|known| {
            let age = self.now(world).duration_since(known.state.created);
            known.state.appearance == Appearance::Seen(ReleaseStatus::Deployed) && age < HOLD
        })
    }

    /// What is said of a release was so at some time since the watch told last.
    pub(super) fn check_report(&mut self, report: &LoopReport, world: &mut World) {
        self.check_standing(report, world);
    }

    /// An order that was answered is carried out by no leader again. An answer that came too late to be stored stays in
    /// the reports of its guard.
    pub(super) fn check_answer(&self, report: &LoopReport, world: &mut World) {
        let before = self.reports.get(&report.release).and_then(|before| before.answer.as_ref());
        let new = report.answer.as_ref().filter(|answer| before != Some(answer));
        let new = new.filter(|_| self.leads);
        let Some((answer, first)) = new.and_then(|new| Some((new, world.answered.get(&new.at)?))) else {
            return;
        };
        if first != answer {
            let message = format!("{:?} and {:?}", first.message, answer.message);
            world.break_down(format!("guard {} answers {} twice: {message}", self.number, answer.at));
        }
    }

    /// Each object is held to the manifest that the loop knows, after a failed operation to that or the one before:
    /// somebody may have put another one in its place of which no news has come yet.
    fn check_standing(&mut self, report: &LoopReport, world: &mut World) {
        let (id, number, from) = (&report.release, self.number, self.cursor);
        let Some(known) = self.machine.known.release(id) else { return };
        let [latest, baseline] = manifests(known, world);
        let manifests: Vec<_> = match known.state.status {
            ReleaseStatus::Deployed => latest.into_iter().collect(),
            // Before an installation nothing was there.
            ReleaseStatus::Failed if known.baseline.is_none() => {
                latest.into_iter().chain([Arc::default()]).collect()
            }
            ReleaseStatus::Failed if baseline.is_some() => latest.into_iter().chain(baseline).collect(),
            _ => return,
        };
        let view = |is_lenient| View { release: id, manifests: &manifests, from, is_lenient };
        // Under new policies everything is listed and judged anew, and until then stands as by the old ones.
        let views = [self.is_lenient, self.is_lenient ^ self.is_newly_ruled].map(view);
        if is_said_to_match(report) && !views.iter().any(|view| world.was_in_sync(view)) {
            world.break_down(format!("guard {number} says of {id} that it is in sync, and it is not"));
        }
        let certain = report.drifted.iter().filter(|drifted| !drifted.needs_dry_run);
        for ObjectDrift { object, kind, .. } in certain {
            let is_missing = match kind {
                DriftKind::Missing => true,
                DriftKind::Changed => false,
                _ => continue,
            };
            if !views.iter().any(|view| world.was_drifting(object, is_missing, view)) {
                let name = &object.name;
                world.break_down(format!(
                    "guard {number} says that {name} drifts ({kind:?}), and it does not"
                ));
            }
        }
    }
}

/// Whether a report says that each object is as the release declares it, or was never created.
fn is_said_to_match(report: &LoopReport) -> bool {
    let ReleaseHealth { reason, counts, .. } = report.health();
    match reason {
        HealthReason::ReleaseFailed => counts.matching + counts.not_created == counts.declared,
        reason => reason == HealthReason::InSync,
    }
}

impl SimulatedGuard {
    /// The watch of records tells the next change; before that, policies that have changed.
    pub(super) fn hear_record(&mut self, world: &mut World) {
        if self.is_lenient != world.is_lenient {
            (self.is_lenient, self.policy) = (world.is_lenient, world.policy());
            self.is_newly_ruled = true;
            let policies = self.releases.keys().map(|id| (id.clone(), Arc::clone(&self.policy))).collect();
            return self.handle(LoopEvent::Policies { policies, open: false }, world);
        }
        if !self.follows {
            return self.list_records(world);
        }
        while let Some(change) = world.log.get(self.records).cloned() {
            self.records += 1;
            if let WatchedChange::Record(id) = change {
                let ruled = self.ruled(&id, world);
                self.handle(LoopEvent::Release(id, ruled), world);
                return;
            }
        }
    }

    /// The watch of GuardedReleases tells which orders are open by now.
    pub(super) fn hear_orders(&mut self, world: &World) {
        self.open = world.orders.clone();
    }

    /// The watch of objects tells the next change, or lists everything.
    pub(super) fn hear_object(&mut self, world: &mut World) {
        if !self.watching {
            return self.list(world);
        }
        while let Some(change) = world.log.get(self.cursor).cloned() {
            self.cursor += 1;
            let WatchedChange::Object { object, version, stored } = change else { continue };
            let news = match stored.filter(|stored| stored.is_labelled()) {
                Some(stored) => ObjectWatchEvent::Object { live: Box::new(stored.live()), is_listed: false },
                None => ObjectWatchEvent::Gone { object, version: version.to_string() },
            };
            return self.handle(LoopEvent::Watch(self.scope.clone(), news), world);
        }
    }

    /// The watch breaks, and what happened meanwhile is not told.
    pub(super) fn expire(&mut self) {
        self.watching = false;
    }

    /// The watch tells once more what it has told.
    pub(super) fn repeat(&mut self, count: usize) {
        self.cursor = self.cursor.saturating_sub(count);
    }

    /// The watch of records breaks, and what happened meanwhile is not told.
    pub(super) fn expire_records(&mut self) {
        self.follows = false;
    }

    /// The watch of records tells once more what it has told.
    pub(super) fn repeat_records(&mut self, count: usize) {
        self.records = self.records.saturating_sub(count);
    }

    /// Everything is told as it is by now, and what is gone.
    fn list_records(&mut self, world: &mut World) {
        (self.follows, self.records) = (true, world.log.len());
        // A read may have found that the last record of a release has gone, of which the loop knows nothing yet.
        let known = self.machine.known.releases().map(|release| &release.id);
        let known: BTreeSet<_> =
            known.chain(self.releases.keys()).chain(world.records.keys()).cloned().collect();
        for id in known {
            let ruled = self.ruled(&id, world);
            self.handle(LoopEvent::Release(id, ruled), world);
        }
    }

    fn list(&mut self, world: &mut World) {
        self.watching = true;
        let lives: Vec<_> = world
            .objects
            .values()
            .filter(|stored| stored.is_labelled())
            .map(|stored| stored.live())
            .collect();
        self.handle(LoopEvent::Watch(self.scope.clone(), ObjectWatchEvent::ListStarted), world);
        for live in lives {
            let news = ObjectWatchEvent::Object { live: Box::new(live), is_listed: true };
            self.handle(LoopEvent::Watch(self.scope.clone(), news), world);
        }
        self.handle(LoopEvent::Watch(self.scope.clone(), ObjectWatchEvent::ListCompleted), world);
        (self.cursor, self.is_newly_ruled) = (world.log.len(), false);
        self.handle(LoopEvent::Watch(self.scope.clone(), ObjectWatchEvent::Established), world);
    }

    /// Does a piece of work; `faults` says whether it may fail.
    pub(super) fn work(&mut self, world: &mut World, random: &mut Random, faults: bool) {
        let place = random.below(self.work.len());
        let Some(work) = self.work.remove(place) else { return };
        if world.has(LATE) && work.2.is_write() && world.luck.chance(30) {
            return self.send_off(work, world);
        }
        let (lost, unanswered) = (faults && random.chance(4), faults && random.chance(4));
        self.try_to_do(work, world, (lost, unanswered));
    }

    /// Does a piece of work to which no answer comes.
    pub(super) fn work_unanswered(&mut self, world: &mut World) {
        if let Some(work) = self.work.pop_front() {
            self.try_to_do(work, world, (false, true));
        }
    }

    /// A piece of work came to this.
    pub(super) fn answer(
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
            ApiWork::ReadDefinition { .. } => WorkOutcome::Definition { deleting: false },
            ApiWork::Ask { object, uid, revision, digest } => {
                world.canonical(release, (object, uid), ManifestKey { revision: *revision, digest: *digest })
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

/// The reads of each release's passes.
#[derive(Default)]
pub(super) struct Reads {
    count: usize,
    /// When an object was read last, and whether it was there.
    objects: BTreeMap<(ReleaseId, ObjectId), (usize, bool)>,
    /// When a release's records were read last.
    records: BTreeMap<ReleaseId, usize>,
}

impl Reads {
    /// A piece of work for a release came to this.
    pub(super) fn note(&mut self, release: &ReleaseId, work: &ApiWork, outcome: &WorkOutcome) {
        self.count += 1;
        match (work, outcome) {
            (ApiWork::ReadObject { object, .. }, WorkOutcome::Object { live, .. }) => {
                let key = (release.clone(), object.clone());
                self.objects.insert(key, (self.count, live.is_some()));
            }
            (ApiWork::ReadRecords { release: of }, WorkOutcome::Records(_)) if of == release => {
                self.records.insert(release.clone(), self.count);
            }
            _ => {}
        }
    }

    /// What is wrong with a write by what was read before it. A deletion is of what was just made.
    pub(super) fn fault(
        &self,
        release: &ReleaseId,
        object: &ObjectId,
        write: &Write,
    ) -> Option<&'static str> {
        let body = match write {
            Write::Create { document, .. } | Write::Apply { document, .. } => &document.0,
            Write::Merge { patch, .. } => &patch.0,
            Write::Delete { .. } => return None,
        };
        let Some((read_at, was_there)) = self.objects.get(&(release.clone(), object.clone())) else {
            return Some("which it has not read");
        };
        if self.records.get(release).is_none_or(|records_at| records_at < read_at) {
            return Some("on records that it read before the object");
        }
        let is_bound = body.pointer("/metadata/resourceVersion").is_some();
        (*was_there && !is_bound).then_some("whatever its version is")
    }
}

/// The time within which a record is told after the object that Helm has written for it.
const LATELY: SignedDuration = SignedDuration::from_secs(10);

impl SimulatedGuard {
    /// Notes which declared values an event shows in live objects.
    pub(super) fn note_seen(&mut self, event: &LoopEvent, world: &mut World) {
        match event {
            LoopEvent::Watch(_, ObjectWatchEvent::Object { live, .. })
            | LoopEvent::Outcome(_, WorkOutcome::Object { live: Some(live), .. }) => self.see(live, world),
            LoopEvent::Watch(_, ObjectWatchEvent::Gone { object, .. }) => {
                self.remember(object, Fields::new(), world)
            }
            LoopEvent::Release(_, Some(ruled)) | LoopEvent::Outcome(_, WorkOutcome::Records(Some(ruled))) => {
                let objects: Vec<ObjectId> = self.lives.keys().cloned().collect();
                objects.iter().for_each(|object| self.compare(&ruled.release, object, world));
            }
            _ => {}
        }
    }

    fn see(&mut self, live: &LiveObject, world: &mut World) {
        let object = live.sighting.id.clone();
        self.remember(&object, live.object.as_ref().map(fields).unwrap_or_default(), world);
        let known: Vec<Arc<Release>> = self.machine.known.releases().cloned().collect();
        known.iter().for_each(|release| self.compare(release, &object, world));
    }

    /// Keeps what was told of an object last, and lately: Helm's write of it may be told before the record.
    fn remember(&mut self, object: &ObjectId, fields: Fields, world: &World) {
        let now = self.now(world);
        let lives = self.lives.entry(object.clone()).or_default();
        lives.retain(|(at, _)| now.duration_since(*at).abs() <= LATELY);
        lives.push((now, fields));
    }

    /// Notes the values of an object that the records of a release declare, the latest one and the baseline.
    fn compare(&self, release: &Release, object: &ObjectId, world: &mut World) {
        let Some(lives) = self.lives.get(object) else { return };
        for manifest in manifests(release, world).into_iter().flatten() {
            let documents = world.documents(&release.id, &manifest);
            let Some((_, declared)) = documents.iter().find(|(of, _)| of == object) else { continue };
            let is_seen = |live: &Fields, field: &Field, value: &str| {
                live.get(field).map(String::as_str) == Some(world.admitted(value))
            };
            let seen: Vec<_> = declared
                .iter()
                .filter(|(field, value)| lives.iter().any(|(_, live)| is_seen(live, field, value)))
                .map(|(field, value)| (field.clone(), world.admitted(value).to_owned()))
                .collect();
            world.agreed.entry(object.clone()).or_default().extend(seen);
        }
    }
}

/// The manifests of a release as a guard knows it: the latest one and the baseline.
pub(super) fn manifests(release: &Release, world: &World) -> [Option<Arc<str>>; 2] {
    let latest = world.manifests.get(&release.state.digest).cloned();
    let records = world.records.get(&release.id).into_iter().flatten();
    let uid = release.baseline.as_ref().map(|head| head.uid.as_str());
    let mut baseline = records.filter(|record| Some(record.uid.as_str()) == uid);
    [latest, baseline.next().map(|record| Arc::clone(&record.manifest))]
}

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

impl SimulatedGuard {
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

impl SimulationRun {
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
            let outcome = self.world.land(&flight);
            let waits = |it: &&mut SimulatedGuard| flight.is_awaited() && it.process == flight.process;
            if let Some(guard) = self.guards.iter_mut().find(waits) {
                guard.hear_answer(flight.errand, outcome);
            }
        }
        self.guards.iter_mut().for_each(|guard| guard.give_up(now));
    }
}

/// A write on its way.
pub(super) struct Flight {
    pub(super) guard: usize,
    pub(super) process: usize,
    pub(super) errand: WorkId,
    pub(super) object: ObjectId,
    pub(super) write: Write,
    pub(super) arrives: Timestamp,
    /// When its guard gives it up.
    pub(super) deadline: Timestamp,
}

impl Flight {
    /// Whether it arrives before its guard gives it up.
    fn is_awaited(&self) -> bool {
        self.arrives <= self.deadline
    }
}

impl World {
    /// A write of a guard arrives.
    fn land(&mut self, flight: &Flight) -> WorkOutcome {
        let sender = Sender { guard: flight.guard, process: flight.process, is_awaited: flight.is_awaited() };
        match self.refuse(&flight.object) {
            Some(refused) => refused,
            None => self.write(sender, &flight.object, &flight.write),
        }
    }
}

/// A write whose answer a guard awaits.
pub(super) struct Awaited {
    pub(super) errand: WorkId,
    pub(super) release: ReleaseId,
    pub(super) work: ApiWork,
    pub(super) deadline: Timestamp,
}
