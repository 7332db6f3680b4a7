//! Takes in changes of releases and policies, and the orders of people.
//!
//! Entry points: `Reconciler::take_in_release`, `rule`, `obey`. Invariant: these change which
//! objects have to be read. Must not write anything.

use std::sync::Arc;

use super::super::drifts::Agreed;
use super::super::event::{Action, GovernedRelease, Order};
use super::super::judge::{are_additions, as_declared_beside};
use super::Reconciler;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::release::Release;
use kubemoor_helm::state;
use kubemoor_policy::Policy;
use kubemoor_policy::settled::Settled;
use kubemoor_verdict::claims::is_local;
use kubemoor_verdict::drift::{self, Subject};
use kubemoor_verdict::edit::Evidence;

impl Reconciler {
    /// A release has changed, came or went.
    pub(super) fn take_in_release(&mut self, id: &ReleaseId, ruled: Option<GovernedRelease>) {
        let before = self.known.release(id).cloned();
        self.known.set(id, ruled);
        self.changed.insert(id.clone());
        let release = self.known.release(id).cloned();
        let objects = |release: &Option<Arc<Release>>| release.as_ref().map(|it| Arc::clone(&it.objects));
        match (objects(&before), objects(&release)) {
            (Some(before), Some(now)) if Arc::ptr_eq(&before, &now) => {}
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

    /// Takes in the records of a release that were just read.
    pub(crate) fn learn_records(&mut self, id: &ReleaseId, ruled: Option<GovernedRelease>) {
        let is_new = match (&ruled, self.known.release(id)) {
            (Some(ruled), Some(known)) => !Arc::ptr_eq(&ruled.release, known),
            (None, None) => false,
            _ => true,
        };
        if is_new {
            self.take_in_release(id, ruled);
            self.attend(id);
        }
    }

    /// Takes in new policies of releases, and whether the emergency switch is off. All objects are
    /// listed again, and so judged again.
    pub(super) fn rule(&mut self, policies: Vec<(ReleaseId, Arc<Policy>)>, open: bool) {
        for (release, policy) in policies {
            self.known.rule(&release, policy);
            self.drifts.touch(&release);
            self.changed.insert(release);
        }
        self.scopes.judge_again();
        self.act(Action::Relist);
        match std::mem::replace(&mut self.open, open) == open {
            true => self.attend_all(),
            false => self.attend_all_releases(),
        }
    }

    /// Carries out an order.
    pub(super) fn obey(&mut self, order: Order) {
        match order {
            Order::Suspend(release, suspension) => {
                self.suspensions.set(release.clone(), suspension);
                self.attend(&release);
            }
            // Its answer is published again.
            Order::Reconcile { release, at, .. } if self.asked.is_done(&release, &at) => {
                self.asked.renew_answer(&release);
                self.attend(&release);
            }
            Order::Reconcile { release, at, ticket } => {
                let eased = self.ease(&release);
                self.asked.all_of(release.clone(), at, ticket);
                if let Some(known) = self.known.release(&release).cloned() {
                    self.take_back_replicas(&known);
                    self.suspect_all(&known);
                }
                self.attend(&release);
                if eased {
                    self.attend_all();
                }
            }
            Order::Settled(object, settled) => {
                if self.known.settle(&object, settled) {
                    self.judge_again([object]);
                }
            }
            Order::Remember { release, first, seen, contested, manager } => {
                // Of one that is gone, nothing is remembered here either.
                let Some(current) = self.known.release(&release).cloned() else { return };
                for seen in &seen {
                    if let Some(settled) = &seen.settled {
                        self.settle(&seen.object, Settled::clone(settled));
                    }
                }
                if !first.is_outlived_by(&current) {
                    contested.iter().for_each(|object| self.repairs.backoff.contest(object, self.now));
                    let seen_before: Vec<_> = seen.iter().map(|seen| Arc::clone(&seen.object)).collect();
                    self.drifts.remember(&current, first, seen);
                    manager.into_iter().for_each(|name| self.drifts.remember_manager(&release, name));
                    self.suspect_absent(&current, &seen_before);
                }
                self.attend(&release);
            }
        }
    }

    /// Takes in values that a dry run has settled, here or in an earlier guard.
    pub(crate) fn settle(&mut self, object: &ObjectId, settled: Settled) {
        if self.known.settle(object, settled.clone()) {
            self.act(Action::Settle(object.clone(), settled));
        }
    }

    /// Whether an object was judged with a result that other circumstances could change.
    pub(super) fn is_judged(&self, object: &ObjectId) -> bool {
        let is_known = |claim: &&Arc<Release>| self.drifts.is_known(&claim.id, object);
        self.listed || self.drifts.life(object).is_some() || self.known.claims(object).iter().any(is_known)
    }

    /// Judges these objects again: an allowance, an autoscaler or a settled value has changed.
    pub(super) fn judge_again(&mut self, objects: impl IntoIterator<Item = ObjectId>) {
        for object in objects {
            let claims: Vec<ReleaseId> = self.known.claims(&object).iter().map(|it| it.id.clone()).collect();
            for release in claims {
                self.drifts.suspect(&release, object.clone(), self.now);
                self.attend(&release);
            }
        }
    }

    /// Looks at every release for which there is something to do.
    pub(super) fn attend_all(&mut self) {
        let mut concerned: Vec<ReleaseId> = self.drifts.concerned().into_iter().collect();
        concerned.sort();
        concerned.iter().for_each(|release| self.attend(release));
    }

    /// Looks at every release.
    pub(super) fn attend_all_releases(&mut self) {
        let all: Vec<ReleaseId> = self.known.releases().map(|release| release.id.clone()).collect();
        all.iter().for_each(|release| self.attend(release));
    }

    /// Marks all objects that a release declares to be judged again.
    fn suspect_all(&mut self, release: &Release) {
        for object in release.objects.keys() {
            self.drifts.suspect(&release.id, Arc::clone(object), self.now);
        }
    }

    /// Marks those of the objects outside of the release's namespace to be read that a listing lacked: only now they are
    /// known to be the release's.
    fn suspect_absent(&mut self, release: &Release, objects: &[Arc<ObjectId>]) {
        for object in objects.iter().filter(|object| !is_local(release, object)) {
            let is_alive = self.drifts.life(object).is_some_and(|life| life.alive);
            if !is_alive && self.scopes.shows(object) && self.may_look(release, object) {
                self.drifts.suspect(&release.id, Arc::clone(object), self.now);
            }
        }
    }

    /// Counts replicas that autoscalers left behind as drift, because a person ordered the release
    /// as it is declared.
    fn take_back_replicas(&mut self, release: &Release) {
        let mut scaled: Vec<ObjectId> = Vec::new();
        for object in release.objects.keys() {
            if self.known.forget_departed(object) {
                scaled.push(ObjectId::clone(object));
            }
        }
        scaled.sort();
        scaled.into_iter().for_each(|object| self.act(Action::TakeBackReplicas(object)));
    }

    /// Records which of the objects that were just seen agree with the present declaration: Helm
    /// may have written them before another change was made.
    fn recall(&mut self, release: &Arc<Release>) {
        let seen = self.recent.take(&release.id, self.now);
        let Some(policy) = self.known.policy(&release.id).cloned() else { return };
        for (object, version, value) in seen {
            let declared = release.declared(&object).filter(|declared| *declared.version == *version);
            let standing = state::standing(release, &object, policy.operation_timeout, self.now);
            let (Some(_), Some(standing)) = (declared, standing) else { continue };
            let circumstances = self.known.circumstances(release, &object);
            let subject = Subject {
                object: &object,
                standing: &standing,
                policy: &policy,
                circumstances: &circumstances,
                now: self.now,
            };
            let agreed = match drift::compare(&subject, Some(&value), Evidence::None) {
                drift::Live::AsDeclared(Some(agreed)) => Some(Agreed::of(agreed)),
                drift::Live::Drifted(drift) if are_additions(&drift.changes) => {
                    as_declared_beside(drift.declared, &value)
                }
                _ => None,
            };
            let Some(mut agreed) = agreed else { continue };
            // Without its managers, not every addition can be recognised.
            agreed.has_additions |= !policy.rules(&object, &agreed.declared).sealed.is_empty();
            self.drifts.record_agreement(release, &object, &agreed);
        }
    }
}
