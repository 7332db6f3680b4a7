//! The loop as one value: [`Reconciler::handle`] turns each event into a bounded number of actions. This module handles
//! the events; `pass` goes through the objects of a release, `repair` repairs one object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::brake::DriftTally;
use crate::drifts::{Drifts, LastSeen, ResourceVersion};
use crate::event::{
    ApiWork, Fault, GovernedRelease, LiveObject, LoopAction, LoopEvent, LoopNotice, LoopOrder,
    ObjectWatchEvent, Sighting, WorkId,
};
use crate::judge::{
    LiveComparison, are_additions, as_declared_beside, compare_live, is_autoscaled, is_set_by_another, record,
};
use crate::known::{LoopKnowledge, RecentObjects};
use crate::note_effort;
use crate::orders::RepairOrders;
use crate::pass::Passes;
use crate::repair::Repairs;
use crate::report::DriftKind;
use crate::scopes::{Scopes, WatchScope};
use crate::waits::{Suspensions, Timetable, is_set_back};
use kubemoor_declare::model::{DriftMode, ObjectId, ReleaseId};
use kubemoor_helm::record::ReleaseStatus;
use kubemoor_helm::release::{DeclaredObject, Release};
use kubemoor_helm::state;
use kubemoor_policy::Policy;
use kubemoor_policy::agreement::ObjectSettledValues;
use kubemoor_policy::guarded::SuspendedReleases;
use kubemoor_policy::signing::SigningKey;
use kubemoor_verdict::claims::{self, is_local};
use kubemoor_verdict::drift::{self, DriftContext, LiveVerdict};
use kubemoor_verdict::edit::{DryRunEvidence, ObjectDeclaration};
use kubemoor_verdict::exceptions::ObjectExceptions;

#[derive(Clone)]
pub struct LoopSettings {
    pub key: SigningKey,
    pub read_only: bool,
    /// Whether dry runs at the API server are allowed.
    pub dry_runs: bool,
}

/// The loop. Its whole state is here, and nothing else changes it.
pub struct Reconciler {
    pub(crate) settings: LoopSettings,
    pub(crate) known: LoopKnowledge,
    pub(crate) drifts: Drifts,
    pub(crate) recent: RecentObjects,
    pub(crate) repairs: Repairs,
    pub(crate) scopes: Scopes,
    /// When to compare objects again without an event: a time window opens or closes.
    pub(crate) alarms: Timetable<(ReleaseId, ObjectId)>,
    pub(crate) asked: RepairOrders,
    pub(crate) suspensions: Suspensions,
    pub(crate) leads: bool,
    pub(crate) enforcement_disabled: bool,
    /// The loop is stopping and begins nothing new.
    pub(crate) stopping: bool,
    /// Everything that was declared at the start has been listed.
    pub(crate) listed: bool,
    /// The kinds that the cluster does not serve, by the last [`LoopEvent::Scopes`]; `None` before the first one.
    unserved: Option<BTreeSet<(String, String)>>,
    changed: BTreeSet<ReleaseId>,
    /// The releases whose set of objects has changed since the last [`LoopEvent::Scopes`].
    pub(crate) unscoped: BTreeSet<ReleaseId>,
    /// The releases with objects whose watch has not completed its first list.
    pub(crate) unlisted: BTreeSet<ReleaseId>,
    pub(crate) passes: Passes,
    /// The running work, each with the release that waits for it.
    work: BTreeMap<WorkId, ReleaseId>,
    last_work: u64,
    timer: Option<Timestamp>,
    /// When the oldest drift began, as last reported.
    pub(crate) oldest: Option<Timestamp>,
    pub(crate) now: Timestamp,
    pub(crate) tally: DriftTally,
    out: Vec<LoopAction>,
}

impl Reconciler {
    /// An empty state in which the repairs of these releases are suspended.
    pub fn new(settings: LoopSettings, suspended: SuspendedReleases) -> Self {
        Self {
            drifts: Drifts::new(settings.key.clone()),
            settings,
            known: LoopKnowledge::default(),
            recent: RecentObjects::default(),
            repairs: Repairs::default(),
            scopes: Scopes::default(),
            alarms: Timetable::default(),
            asked: RepairOrders::default(),
            suspensions: Suspensions(suspended),
            leads: false,
            enforcement_disabled: false,
            stopping: false,
            listed: false,
            unserved: None,
            changed: BTreeSet::new(),
            unscoped: BTreeSet::new(),
            unlisted: BTreeSet::new(),
            passes: Passes::default(),
            work: BTreeMap::new(),
            last_work: 0,
            timer: None,
            oldest: None,
            now: Timestamp::UNIX_EPOCH,
            tally: DriftTally::default(),
            out: Vec::new(),
        }
    }

    pub fn handle(&mut self, event: LoopEvent, now: Timestamp) -> Vec<LoopAction> {
        let is_set_back = is_set_back(self.now, now);
        self.now = now;
        // The clock was set back: otherwise all waits would grow by that amount.
        if is_set_back {
            self.drifts.end_waits();
            self.passes.agenda.bring_all_forward(now);
        }
        match event {
            LoopEvent::Release(id, governed) => {
                self.set_release(&id, governed);
                self.enqueue(&id);
            }
            LoopEvent::Policies { policies, open } => self.on_policies(policies, open),
            LoopEvent::Circumstances(object, surroundings) => {
                self.known.set_context(object.clone(), surroundings);
                // Otherwise no result depends on the circumstances yet.
                let is_drifting = |claim: &&Arc<Release>| self.drifts.is_known(&claim.id, &object);
                if self.listed
                    || self.drifts.last_seen_state(&object).is_some()
                    || self.known.claims(&object).iter().any(is_drifting)
                {
                    self.judge_again([object]);
                }
            }
            LoopEvent::Scopes { wanted, unserved } => self.on_scopes(&wanted, unserved),
            LoopEvent::Watch(scope, news) => self.on_watch_event(&scope, news),
            LoopEvent::Order(order) => self.on_order(order),
            LoopEvent::Leads(leads) => self.on_lead(leads),
            LoopEvent::Due => self.timer = None,
            LoopEvent::Stop => self.stopping = true,
            LoopEvent::Outcome(work, outcome) => {
                if let Some(release) = self.work.remove(&work) {
                    self.resume(&release, outcome);
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
        self.work.is_empty()
    }

    pub(crate) fn act(&mut self, action: LoopAction) {
        self.out.push(action);
    }

    pub(crate) fn tell(&mut self, told: LoopNotice) {
        self.act(LoopAction::Tell(told));
    }

    pub(crate) fn hand_out(&mut self, release: &ReleaseId, work: ApiWork) {
        self.last_work += 1;
        let id = WorkId(self.last_work);
        self.work.insert(id, release.clone());
        self.act(LoopAction::Do(id, release.clone(), work));
    }

    fn wake(&mut self) {
        for (release, object) in self.alarms.take_due(self.now) {
            self.drifts.suspect(&release, object, self.now);
            self.enqueue(&release);
        }
        let due = self.passes.agenda.take_due(self.now);
        for release in self.suspensions.take_ended(self.now).into_iter().chain(due) {
            self.enqueue(&release);
        }
    }

    fn set_timer(&mut self) {
        let at_once = self.passes.may_begin().then_some(self.now);
        let times = [self.alarms.next(), self.passes.agenda.next(), self.suspensions.next_end(), at_once];
        let next = times.into_iter().flatten().min();
        if next != self.timer {
            self.timer = next;
            self.act(LoopAction::SetTimer(next));
        }
    }

    pub(crate) fn after(&self, delay: Duration) -> Timestamp {
        let at = self.now.saturating_add(SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX));
        at.unwrap_or(Timestamp::MAX)
    }

    fn on_lead(&mut self, leads: bool) {
        self.leads = leads;
        if leads {
            self.attend_all();
        } else {
            self.asked.end_term();
            self.release_brake();
        }
    }

    /// Records a release that was added, changed or deleted (`None`).
    fn set_release(&mut self, id: &ReleaseId, governed: Option<GovernedRelease>) {
        let before = self.known.release(id).cloned();
        self.known.set(id, governed);
        self.changed.insert(id.clone());
        let release = self.known.release(id).cloned();
        match (&before, &release) {
            (Some(before), Some(now)) if Arc::ptr_eq(&before.objects, &now.objects) => {}
            (_, Some(_)) => drop(self.unscoped.insert(id.clone())),
            (_, None) => drop(self.unscoped.remove(id)),
        }
        let scopes = &self.scopes;
        let is_same = |a: &Release, b: &Release| {
            Arc::ptr_eq(&a.objects, &b.objects) && a.state.status == b.state.status
        };
        let before = before.filter(|before| release.as_ref().is_none_or(|release| !is_same(before, release)));
        let states = (before.as_deref(), release.as_ref());
        self.drifts.notice(id, states, |object| scopes.shows(object), self.now);
        self.forget_dropped(id, before.as_deref(), release.as_deref());
        if let Some(release) = &release {
            self.recall(release);
        }
    }

    pub(crate) fn learn_records(&mut self, id: &ReleaseId, governed: Option<GovernedRelease>) {
        let is_new = match (&governed, self.known.release(id)) {
            (Some(governed), Some(known)) => !Arc::ptr_eq(&governed.release, known),
            (None, None) => false,
            _ => true,
        };
        if is_new {
            self.set_release(id, governed);
            self.enqueue(id);
        }
    }

    /// Applies new policies of releases, and whether enforcement is disabled. Lists all objects again and so compares
    /// them again.
    fn on_policies(&mut self, policies: Vec<(ReleaseId, Arc<Policy>)>, disabled: bool) {
        for (release, policy) in policies {
            self.known.set_policy(&release, policy);
            self.drifts.touch(&release);
            self.changed.insert(release);
        }
        self.scopes.judge_again();
        self.act(LoopAction::Relist);
        match std::mem::replace(&mut self.enforcement_disabled, disabled) == disabled {
            true => self.attend_all(),
            false => self.attend_all_releases(),
        }
    }

    fn on_order(&mut self, order: LoopOrder) {
        match order {
            LoopOrder::Suspend(release, suspension) => {
                self.suspensions.set(release.clone(), suspension);
                self.enqueue(&release);
            }
            // It was carried out already, so only its answer is published again.
            LoopOrder::Reconcile { release, at, .. } if self.asked.is_done(&release, &at) => {
                self.asked.renew_answer(&release);
                self.enqueue(&release);
            }
            LoopOrder::Reconcile { release, at, ticket } => {
                let eased = self.ease(&release);
                self.asked.add_order(release.clone(), at, ticket);
                if let Some(known) = self.known.release(&release).cloned() {
                    self.take_back_replicas(&known);
                    for object in known.objects.keys() {
                        self.drifts.suspect(&known.id, Arc::clone(object), self.now);
                    }
                }
                self.enqueue(&release);
                if eased {
                    self.attend_all();
                }
            }
            LoopOrder::Settled(object, settled) => {
                if self.known.settle(&object, settled) {
                    self.judge_again([object]);
                }
            }
            LoopOrder::Remember { release, first, seen, contested, manager } => {
                // A deleted or uninstalled release is not restored from memory.
                let current = self.known.release(&release).filter(|it| !it.is_uninstalled());
                let Some(current) = current.cloned() else { return };
                for seen in &seen {
                    if let Some(settled) = &seen.settled {
                        self.settle(&seen.object, ObjectSettledValues::clone(settled));
                    }
                }
                if !first.is_replaced_in(&current) {
                    contested.iter().for_each(|object| self.repairs.backoff.contest(object, self.now));
                    let seen_before: Vec<_> = seen.iter().map(|seen| Arc::clone(&seen.object)).collect();
                    self.drifts.remember(&current, first, seen);
                    manager.into_iter().for_each(|name| self.drifts.remember_manager(&release, name));
                    self.suspect_absent(&current, &seen_before);
                }
                self.enqueue(&release);
            }
        }
    }

    /// Records values that a dry run has settled, in this process or an earlier one.
    pub(crate) fn settle(&mut self, object: &ObjectId, settled: ObjectSettledValues) {
        if self.known.settle(object, settled.clone()) {
            self.act(LoopAction::Settle(object.clone(), settled));
        }
    }

    /// Compares these objects again with all releases that declare them.
    fn judge_again(&mut self, objects: impl IntoIterator<Item = ObjectId>) {
        for object in objects {
            let claims: Vec<ReleaseId> = self.known.claims(&object).iter().map(|it| it.id.clone()).collect();
            for release in claims {
                self.drifts.suspect(&release, object.clone(), self.now);
                self.enqueue(&release);
            }
        }
    }

    pub(crate) fn attend_all(&mut self) {
        let mut concerned: Vec<ReleaseId> = self.drifts.concerned().into_iter().collect();
        concerned.sort();
        concerned.iter().for_each(|release| self.enqueue(release));
    }

    fn attend_all_releases(&mut self) {
        let all: Vec<ReleaseId> = self.known.releases().map(|release| release.id.clone()).collect();
        all.iter().for_each(|release| self.enqueue(release));
    }

    /// Marks for reading the objects outside of the release's namespace that a list lacked: only now are they known to
    /// belong to the release.
    fn suspect_absent(&mut self, release: &Release, objects: &[Arc<ObjectId>]) {
        for object in objects.iter().filter(|object| !is_local(release, object)) {
            let is_alive = self.drifts.last_seen_state(object).is_some_and(|life| life.alive);
            if !is_alive && self.scopes.shows(object) && self.may_look(release, object) {
                self.drifts.suspect(&release.id, Arc::clone(object), self.now);
            }
        }
    }

    /// Treats replica counts that deleted autoscalers left behind as drift, because a user ordered the declared state.
    fn take_back_replicas(&mut self, release: &Release) {
        let mut scaled: Vec<ObjectId> = Vec::new();
        for object in release.objects.keys() {
            if self.known.forget_departed(object) {
                scaled.push(ObjectId::clone(object));
            }
        }
        scaled.sort();
        scaled.into_iter().for_each(|object| self.act(LoopAction::ForgetScaledReplicas(object)));
    }

    /// Records which recently seen objects match the current declaration: Helm may have written them before its record
    /// arrived, and others may have changed them since.
    fn recall(&mut self, release: &Arc<Release>) {
        let seen = self.recent.take(&release.id, self.now);
        let Some(policy) = self.known.policy(&release.id).cloned() else { return };
        for (object, version, value) in seen {
            if release.declared(&object).is_none_or(|declared| *declared.version != *version) {
                continue;
            }
            let agreed = match self.compare(release, &object, Some(&value), &policy, DryRunEvidence::None) {
                Some(LiveVerdict::AsDeclared(agreed)) => agreed,
                Some(LiveVerdict::Drifted(drift)) if are_additions(&drift.changes) => {
                    as_declared_beside(drift.declared, &value)
                }
                _ => None,
            };
            let Some(mut agreed) = agreed else { continue };
            // Without `managedFields`, not every addition can be recognised.
            agreed.has_additions |= !policy.rules(&object, &agreed.declared).sealed.is_empty();
            self.drifts.record_agreement(release, &object, &agreed);
        }
    }

    /// Applies the scopes to watch, and the kinds that the cluster does not serve.
    fn on_scopes(&mut self, wanted: &BTreeSet<WatchScope>, unserved: BTreeSet<(String, String)>) {
        let (opened, closed) = self.scopes.want(wanted);
        self.forget_unwatched(&closed);
        closed.into_iter().for_each(|scope| self.act(LoopAction::Unwatch(scope)));
        opened.into_iter().for_each(|scope| self.act(LoopAction::Watch(scope)));
        self.suspect_unserved(unserved);
        self.unscoped.clear();
        self.note_listed();
    }

    /// Handles a watch event. Events of closed watches are ignored.
    fn on_watch_event(&mut self, scope: &WatchScope, news: ObjectWatchEvent) {
        if !self.scopes.has(scope) {
            return;
        }
        match news {
            ObjectWatchEvent::ListStarted => self.scopes.begin_listing(scope),
            ObjectWatchEvent::Object { live, is_listed } => {
                // All objects are listed again every few minutes, and most are unchanged.
                if is_listed && !self.scopes.list(scope, &live.sighting.id) && self.is_as_known(&live) {
                    return;
                }
                let concerned = self.observe(&live, &scope.version, false);
                concerned.into_iter().flatten().for_each(|release| self.enqueue(&release));
            }
            ObjectWatchEvent::Gone { object, version } => {
                self.record_deleted(&object, ResourceVersion::parse(&version))
            }
            ObjectWatchEvent::ListCompleted => {
                let Some((listed, are_judged)) = self.scopes.end_listing(scope) else { return };
                let mut gone = self.drifts.living(|object| scope.holds(object) && !listed.contains(object));
                gone.sort();
                gone.iter().for_each(|object| self.record_deleted(object, ResourceVersion::default()));
                self.drifts.doubt_reads(|object| scope.holds(object) && !listed.contains(object));
                if are_judged {
                    self.suspect_never_seen(scope);
                }
                self.note_listed();
            }
            ObjectWatchEvent::Established => {
                if self.scopes.permit(scope) {
                    self.attend_declaring(scope);
                }
            }
            ObjectWatchEvent::Failed(failure) => {
                if matches!(failure.fault, Fault::Forbidden)
                    && self.scopes.forbid(scope, failure.message.clone())
                {
                    self.attend_declaring(scope);
                }
                if failure.fault == Fault::Unserved {
                    self.suspect_alive(scope);
                }
                self.scopes.mark_broken(scope);
                self.note_listed();
            }
        }
    }

    fn is_as_known(&self, live: &LiveObject) -> bool {
        let (object, version) = (&live.sighting.id, live.version());
        let is_same = |life: &LastSeen| {
            life.alive && life.version == version && !self.drifts.is_suspect(&life.release, object)
        };
        version != ResourceVersion::default() && self.drifts.last_seen_state(object).is_some_and(is_same)
    }

    /// Forgets undeclared objects that only these watches showed: no watch would report their deletion.
    fn forget_unwatched(&mut self, closed: &[WatchScope]) {
        if closed.is_empty() {
            return;
        }
        let (scopes, known) = (&self.scopes, &self.known);
        let unwatched = self.drifts.living(|object| {
            closed.iter().any(|scope| scope.holds(object))
                && !scopes.is_watched(object)
                && known.claims(object).is_empty()
        });
        unwatched.iter().for_each(|object| self.drifts.forget(object));
    }

    /// Records that a watch no longer shows an object, with its last version. The object is read before it counts as
    /// missing: a watch by label reports the same for an object that lost the label.
    fn record_deleted(&mut self, object: &ObjectId, version: ResourceVersion) {
        let Some(release) = self.drifts.last_seen_state(object).map(|life| life.release.clone()) else {
            return;
        };
        if !self.known.declares(&release, object) {
            self.drifts.forget(object);
        } else if let Some(release) = self.drifts.mark_gone(object, version, self.now) {
            self.enqueue(&release);
        }
    }

    /// Marks for reading all live objects of a kind that is no longer served: they may still exist.
    fn suspect_alive(&mut self, scope: &WatchScope) {
        let releases = self.known.releases().cloned().collect();
        self.suspect_declared(releases, |this, _, object, _| {
            scope.holds(object) && this.drifts.last_seen_state(object).is_some_and(|life| life.alive)
        });
    }

    /// Marks for reading the declared objects of a kind that were absent from its list.
    fn suspect_never_seen(&mut self, scope: &WatchScope) {
        let counts = |release: &Release| {
            matches!(release.state.status, ReleaseStatus::Deployed | ReleaseStatus::Failed)
        };
        let releases = self.known.releases().filter(|release| counts(release)).cloned().collect();
        self.suspect_declared(releases, |this, _, object, _| {
            scope.holds(object) && !this.drifts.last_seen_state(object).is_some_and(|life| life.alive)
        });
    }

    /// Whether the cluster is known not to serve the object's kind.
    pub(crate) fn is_unserved(&self, object: &ObjectId) -> bool {
        let kind = || (object.group.to_string(), object.kind.to_string());
        self.unserved.as_ref().is_some_and(|unserved| !unserved.is_empty() && unserved.contains(&kind()))
    }

    /// Marks for reading the declared objects of kinds that the cluster does not serve, because no watch shows them.
    /// Unchanged releases are skipped unless the served kinds have changed.
    fn suspect_unserved(&mut self, unserved: BTreeSet<(String, String)>) {
        let changed = std::mem::take(&mut self.changed);
        let is_same = self.unserved.as_ref() == Some(&unserved);
        self.unserved = Some(unserved);
        let releases: Vec<_> = match is_same {
            true => changed.iter().filter_map(|id| self.known.release(id)).cloned().collect(),
            false => self.known.releases().cloned().collect(),
        };
        let releases = releases.into_iter().filter(|release| release.state.status == ReleaseStatus::Deployed);
        self.suspect_declared(releases.collect(), |this, release, object, declared| {
            (declared.plural().is_none() || this.is_unserved(object))
                && !this.drifts.is_known(&release.id, object)
        });
    }

    /// Marks for reading the declared objects that `is_meant` selects.
    fn suspect_declared(
        &mut self,
        releases: Vec<Arc<Release>>,
        is_meant: impl Fn(&Self, &Release, &ObjectId, &DeclaredObject) -> bool,
    ) {
        let mut meant: BTreeSet<(ReleaseId, Arc<ObjectId>)> = BTreeSet::new();
        for release in &releases {
            note_effort(release.objects.len());
            for (object, declarations) in release.objects.iter() {
                let declared = declarations.latest.as_ref();
                if declared.is_some_and(|declared| is_meant(self, release, object, declared))
                    && self.may_look(release, object)
                {
                    meant.insert((release.id.clone(), Arc::clone(object)));
                }
            }
        }
        for (release, object) in meant {
            self.drifts.suspect(&release, object, self.now);
            self.enqueue(&release);
        }
    }

    fn attend_declaring(&mut self, scope: &WatchScope) {
        let declares = |release: &Release| release.objects.keys().any(|object| scope.holds(object));
        let declaring = self.known.releases().filter(|release| declares(release));
        let declaring: Vec<ReleaseId> = declaring.map(|release| release.id.clone()).collect();
        for release in declaring {
            // Objects that could not be read may be readable now.
            self.drifts.hurry(&release, |object| scope.holds(object));
            self.enqueue(&release);
        }
    }

    /// Once everything has been listed, publishes a report of each release. Queues releases that waited for the first
    /// list of a watch.
    fn note_listed(&mut self) {
        if self.scopes.are_listed() && !std::mem::replace(&mut self.listed, true) {
            self.act(LoopAction::AllListed);
            self.attend_all_releases();
        }
        std::mem::take(&mut self.unlisted).iter().for_each(|release| self.enqueue(release));
    }

    /// Records and compares a live object in `version`; returns the releases for which something has changed. Watch
    /// events come in order, but the response to a request (`is_answer`) may be older than the known state: then it is
    /// ignored, and the result is `None`.
    fn observe(&mut self, live: &LiveObject, version: &str, is_answer: bool) -> Option<Vec<ReleaseId>> {
        let object = &live.sighting.id;
        if object.name.is_empty() {
            return Some(Vec::new());
        }
        if is_answer && self.drifts.is_overtaken(object, live.version()) {
            return None;
        }
        // Perhaps no watch will report the deletion of an object that no release declares any more.
        if is_answer && self.known.claims(object).is_empty() {
            return Some(Vec::new());
        }
        let before = self.drifts.last_seen_state(object).cloned();
        let Some(life) = next_last_seen(&self.known, &live.sighting, before.as_ref()) else {
            self.drifts.forget(object);
            return Some(Vec::new());
        };
        let stays = before.as_ref().is_some_and(|before| before.release == life.release);
        // A newly seen object is published; objects of the first listing are published at its end.
        let is_known = stays && before.as_ref().is_some_and(|before| before.has_release_annotations);
        let is_new = life.has_release_annotations && !is_known && self.listed;
        // Other releases that declare it report that it belongs to another release.
        let claims = self.known.claims(object).into_iter();
        let others = claims.filter(|claim| !stays && claim.id != life.release);
        let mut concerned: Vec<ReleaseId> = others.map(|claim| claim.id.clone()).collect();
        let release = self.known.release(&life.release).cloned();
        let is_declared = release.as_ref().is_some_and(|release| release.declared(object).is_some());
        if let (true, Some(value), false) = (life.has_release_annotations, &live.object, is_declared) {
            // Its release's record may not have arrived yet.
            self.recent.keep((&life.release, object), version, value, self.now);
        }
        self.drifts.record_life(object.clone(), life);
        // An earlier guard may have seen the object; this one has not.
        if let (true, Some(release)) = (before.is_none_or(|before| !before.alive), &release) {
            self.inherit_replicas(release, live);
        }
        // Other workloads of its release may have waited for this rollout.
        let rollouts = &mut self.repairs.rollouts;
        let is_rolled_out = live.object.as_ref().is_some_and(|it| rollouts.see(object, it, self.now));
        if let Some(release) = release
            && (self.judge(&release, live, version, is_answer, is_new) || is_rolled_out)
        {
            concerned.push(release.id.clone());
        }
        Some(concerned)
    }

    /// Records an object that was read for a release, and queues other releases that it concerns. Returns false if a
    /// newer state is known.
    pub(crate) fn take_in(&mut self, id: &ReleaseId, live: &LiveObject, version: &str) -> bool {
        let Some(concerned) = self.observe(live, version, true) else { return false };
        concerned.iter().filter(|other| *other != id).for_each(|other| self.enqueue(other));
        true
    }

    /// Whether the loop may read a declared object and report on it: it is in the release's namespace, or a watch has
    /// shown it with the release's annotations. A record may declare any object of the cluster, and the release's
    /// status must not reveal whether that object exists or who owns it.
    pub(crate) fn may_look(&self, release: &Release, object: &ObjectId) -> bool {
        let life = || self.drifts.last_seen_state(object);
        is_local(release, object)
            || life().is_some_and(|life| life.has_release_annotations && life.release == release.id)
    }

    /// Records that an object does not exist. It drifts only if its release's declaration, which may have changed while
    /// the object was read, requires it to exist.
    pub(crate) fn note_gone(&mut self, id: &ReleaseId, object: &ObjectId, since: Timestamp) {
        let governed = self.known.release(id).cloned().zip(self.known.policy(id).cloned());
        let Some((release, policy)) = governed else { return };
        let verdict = self.compare(&release, object, None, &policy, DryRunEvidence::None);
        let verdict = verdict.filter(|_| policy.drift != DriftMode::Ignore);
        let drifts = &mut self.drifts;
        // An earlier process may have seen it under this seal, and this one has never seen it alive.
        if let Some(declared) = release.declared(object) {
            drifts.seal(object, policy.rules(object, declared).seal());
        }
        drifts.record_missing(&release.id, object, since);
        match verdict {
            // An object that only the failed operation declares was never created; one that a running operation may
            // still create is compared afterwards.
            None | Some(LiveVerdict::OptedOut | LiveVerdict::Dropped | LiveVerdict::NotCreated) => {
                drifts.clear_drift(&release.id, object);
            }
            Some(verdict) => {
                if let Some(drift) = drifts.get_mut(&release.id, object) {
                    drift.allowed = matches!(verdict, LiveVerdict::Allowed | LiveVerdict::Expired);
                }
            }
        }
    }

    /// Compares an object (`live` is `None` if it is absent) with the release's declarations of it. Returns `None` if
    /// the release does not declare it in its current state.
    pub(crate) fn compare<'r>(
        &self,
        release: &'r Release,
        object: &ObjectId,
        live: Option<&Value>,
        policy: &Policy,
        evidence: DryRunEvidence<'_>,
    ) -> Option<LiveVerdict<'r>> {
        let now = self.now;
        let circumstances = &self.known.circumstances(release, object);
        let standing = &state::current_claim(release, object, policy.operation_timeout, now)?;
        let subject = DriftContext { object, claim: standing, policy, circumstances, now };
        Some(drift::compare(&subject, live, evidence))
    }

    /// Compares a live object with `release` and records the result. Returns whether something has changed.
    fn judge(
        &mut self,
        release: &Release,
        live: &LiveObject,
        version: &str,
        is_answer: bool,
        is_new: bool,
    ) -> bool {
        let object = &live.sighting.id;
        let Some(declared) = release.declared(object) else {
            // A later revision may declare it again as an earlier one did: then it has to be compared again.
            self.drifts.mark_unsettled(object);
            return false;
        };
        // If a kind is watched in two API versions, only events in the manifest's version count. A response counts in
        // any version.
        if !is_answer && declared.served() != version {
            return is_new;
        }
        let now = self.now;
        let Some(policy) = self.known.policy(&release.id).cloned() else { return false };
        let circumstances = self.known.circumstances(release, object);
        let of = ObjectDeclaration { object, release: &release.id, declared };
        let exceptions = ObjectExceptions::new(of, &policy, &circumstances, None, now);
        let blocks = live.object.as_ref().and_then(claims::finalizer_deadline).filter(|at| *at > now);
        let again = exceptions.next_change().into_iter().chain(blocks).min();
        self.alarms.set(&(release.id.clone(), object.clone()), again);
        let (policy, circumstances) = (&*policy, &circumstances);
        let standing = compare_live(release, live, policy, circumstances, now, DryRunEvidence::None);
        let is_unknown =
            matches!(&standing, LiveComparison::Drifts(DriftKind::Changed, _) | LiveComparison::Underway);
        if let Some(value) = live.object.as_ref().filter(|_| is_unknown) {
            self.recent.keep((&release.id, object), version, value, now);
        }
        if standing.agrees() {
            self.handle_reverted(release, live);
        }
        // Additions do not prevent an agreement about the declared fields.
        let seen = match (&standing, &live.object) {
            (LiveComparison::Drifts(DriftKind::Changed, changes), Some(value)) if are_additions(changes) => {
                as_declared_beside(declared, value)
            }
            _ => None,
        };
        self.drifts.seal(object, policy.rules(object, declared).seal());
        let (has_changed, mut is_confirmed) = record(&mut self.drifts, release, live, standing, now);
        if let Some(seen) = seen {
            is_confirmed |= self.drifts.record_agreement(release, object, &seen);
        }
        if let (true, Some(touched)) = (has_changed, live.sighting.touched) {
            self.tell(LoopNotice::DetectedAfter(now.duration_since(touched)));
        }
        // Objects of the first listing are published at its end.
        has_changed || is_confirmed && self.listed || is_new
    }

    /// Handles an object that matches its release again. If a writer other than Helm reverted the drift, resets the
    /// backoff and lets the fields that this writer owns now be returned to Helm.
    pub(crate) fn handle_reverted(&mut self, release: &Release, live: &LiveObject) {
        let object = &live.sighting.id;
        let Some(drift) = self.drifts.get_mut(&release.id, object) else { return };
        if drift.kind != DriftKind::Changed || drift.needs_dry_run {
            return;
        }
        let paths: Vec<_> = drift.findings.iter().map(|finding| finding.path.clone()).collect();
        let helm = self.drifts.manager(release, release.state.apply_method);
        let life = self.drifts.last_seen_state(object);
        let is_helm = |name: &str| {
            helm.as_deref() == Some(name)
                || life.is_some_and(|life| life.managers.iter().any(|manager| manager.name == name))
        };
        if is_set_by_another(live, paths.iter(), is_helm) {
            self.repairs.forgive(object, self.now);
        }
    }

    /// Keeps the replicas of an object seen for the first time if an autoscaler set them while no guard ran, or before
    /// this process started.
    fn inherit_replicas(&mut self, release: &Release, live: &LiveObject) {
        let object = &live.sighting.id;
        let is_left = release.declared(object).is_some_and(|declared| is_autoscaled(live, declared));
        if is_left && !self.known.is_scaled(object) {
            self.known.inherit_departed(object, self.now);
            self.act(LoopAction::InheritReplicas(object.clone()));
        }
    }

    /// Forgets objects that a release no longer declares. Other releases that declare them compare them from now on.
    fn forget_dropped(&mut self, id: &ReleaseId, before: Option<&Release>, now: Option<&Release>) {
        let standing = now.filter(|now| !now.is_uninstalled());
        let is_declared = |object: &ObjectId| standing.is_some_and(|it| it.objects.contains_key(object));
        let dropped = before.into_iter().flat_map(|before| before.objects.keys());
        for object in dropped.filter(|object| !is_declared(object)) {
            self.known.settled.forget(id, object);
            self.alarms.set(&(id.clone(), ObjectId::clone(object)), None);
            self.repairs.forget(object);
            if self.known.claims(object).iter().any(|claim| claim.id != *id) {
                self.judge_again([ObjectId::clone(object)]);
            }
        }
        if now.is_none() {
            self.recent.take(id, self.now);
            self.asked.forget(id);
            self.forget_brake(&id.namespace);
        }
    }

    /// Drops the results for an object that its release no longer declares.
    pub(crate) fn forget_undeclared(&mut self, id: &ReleaseId, object: &ObjectId) {
        if !self.known.declares(id, object) {
            self.drifts.clear(id, object);
            self.repairs.forget(object);
        }
    }
}

/// The release that an object is compared with: the one that its annotations name; otherwise the one that they named
/// before, or one that declares the object in its own namespace. `None` if there is no such release.
fn next_last_seen(known: &LoopKnowledge, sighting: &Sighting, before: Option<&LastSeen>) -> Option<LastSeen> {
    let declares = |release: &ReleaseId| known.declares(release, &sighting.id);
    let was_known = before.filter(|life| life.has_release_annotations && declares(&life.release));
    let claims = known.claims(&sighting.id);
    let is_claimed = claims.iter().any(|claim| is_local(claim, &sighting.id));
    let (release, vouched) = match (&sighting.release, was_known) {
        (Some(named), Some(_)) if declares(named) => (named.clone(), true),
        (_, Some(before)) => (before.release.clone(), true),
        // Its record may be on its way, and what others declare elsewhere does not change that.
        (Some(named), None) if declares(named) || !is_claimed => (named.clone(), true),
        _ => {
            let claim = claims.iter().find(|claim| is_local(claim, &sighting.id))?;
            (claim.id.clone(), false)
        }
    };
    let mut life = match before.filter(|before| before.release == release) {
        Some(before) => before.clone(),
        None => LastSeen::new(release, vouched),
    };
    if *life.managers != sighting.managers && !sighting.managers.is_empty() {
        life.managers = Arc::new(sighting.managers.clone());
    }
    (life.has_release_annotations, life.alive, life.version) =
        (vouched, true, ResourceVersion::parse(&sighting.resource_version));
    Some(life)
}

#[cfg(test)]
mod tests;
