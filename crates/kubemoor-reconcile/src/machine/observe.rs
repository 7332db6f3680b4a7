//! Takes in objects from watches and answers.
//!
//! Entry points: `Reconciler::observe`, `take_in`, `note_gone`. Invariant: the object is dropped
//! afterwards, some after a few seconds. Only an object's annotations decide which of several
//! releases that declare it is its own. Must not write.

use std::sync::Arc;

use jiff::Timestamp;

use super::super::blame::{is_autoscaled, is_set_by_another};
use super::super::drifts::{Drifts, Life, Version};
use super::super::event::Action;
use super::super::judge::{Standing, Weighing, are_additions, as_declared_beside, record};
use super::super::known::Known;
use super::super::live::{Live, Sighting};
use super::super::occurrence::Occurrence;
use super::super::report::DriftKind;
use super::Reconciler;
use kubemoor_declare::model::{DriftMode, ObjectId, ReleaseId};
use kubemoor_helm::release::Release;
use kubemoor_helm::state;
use kubemoor_verdict::circumstances::DeclaredObject;
use kubemoor_verdict::claims::is_local;
use kubemoor_verdict::deletion;
use kubemoor_verdict::drift::{self, Subject};
use kubemoor_verdict::edit::Evidence;
use kubemoor_verdict::exceptions::Exceptions;

/// The source of news about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A watch, which reports all changes in order.
    Watch,
    /// An answer to a request, which may be older than the news of a watch.
    Answer,
}

impl Reconciler {
    /// Takes in an object that was read in `version`; returns the releases for which something has
    /// changed. `None` for an answer that is older than the known state, which has no effect.
    pub(super) fn observe(&mut self, live: &Live, version: &str, told_by: Source) -> Option<Vec<ReleaseId>> {
        let object = &live.sighting.id;
        if object.name.is_empty() {
            return Some(Vec::new());
        }
        if told_by == Source::Answer && self.drifts.is_overtaken(object, version_of(live)) {
            return None;
        }
        // Perhaps no watch tells when an object ends that nobody declares any more.
        if told_by == Source::Answer && self.known.claims(object).is_empty() {
            return Some(Vec::new());
        }
        let before = self.drifts.life(object).cloned();
        let Some(life) = life(&self.known, &live.sighting, before.as_ref()) else {
            self.drifts.forget(object);
            return Some(Vec::new());
        };
        let stays = before.as_ref().is_some_and(|before| before.release == life.release);
        // A newly seen object is published; objects of the first listing are published at its end.
        let is_known = stays && before.as_ref().is_some_and(|before| before.vouched);
        let is_new = life.vouched && !is_known && self.listed;
        // Other releases that declare it report that it is another's.
        let claims = self.known.claims(object).into_iter();
        let others = claims.filter(|claim| !stays && claim.id != *life.release);
        let mut concerned: Vec<ReleaseId> = others.map(|claim| claim.id.clone()).collect();
        let release = self.known.release(&life.release).cloned();
        let is_declared = release.as_ref().is_some_and(|release| release.declared(object).is_some());
        if let (true, Some(value), false) = (life.vouched, &live.object, is_declared) {
            // Its record may be on its way.
            self.recent.keep((&life.release, object), version, value, self.now);
        }
        self.drifts.record_life(object.clone(), life);
        // An earlier guard may have seen the object; this one has not.
        if let (true, Some(release)) = (before.is_none_or(|before| !before.alive), &release) {
            self.inherit_replicas(release, live);
        }
        concerned.extend(release.and_then(|release| self.judged(&release, live, (version, told_by), is_new)));
        Some(concerned)
    }

    /// Takes in an object that was read for a release, and attends to other releases that it
    /// concerns. Returns false if a newer state is known.
    pub(crate) fn take_in(&mut self, id: &ReleaseId, live: &Live, version: &str) -> bool {
        let Some(concerned) = self.observe(live, version, Source::Answer) else { return false };
        concerned.iter().filter(|other| *other != id).for_each(|other| self.attend(other));
        true
    }

    /// Whether the loop may read a declared object and report on it: it lies in the release's namespace, or it was seen
    /// to name the release. A record may declare any object of the cluster, and its status must not tell whether that
    /// exists or whose it is; only a watch shows that it names the release.
    pub(super) fn may_look(&self, release: &Release, object: &ObjectId) -> bool {
        let life = || self.drifts.life(object);
        is_local(release, object) || life().is_some_and(|life| life.vouched && *life.release == release.id)
    }

    /// Records that an object does not exist, if that is drift.
    pub(crate) fn note_gone(&mut self, release: &Release, object: &ObjectId, since: Timestamp) {
        let Some(policy) = self.known.policy(&release.id).cloned() else { return };
        let standing = state::standing(release, object, policy.operation_timeout, self.now);
        let circumstances = self.known.circumstances(release, object);
        let stands = standing.as_ref().filter(|_| policy.drift != DriftMode::Ignore).map(|standing| {
            let subject =
                Subject { object, standing, policy: &policy, circumstances: &circumstances, now: self.now };
            drift::compare(&subject, None, Evidence::None)
        });
        let drifts = &mut self.drifts;
        // An earlier guard may have seen it under this seal, and this one has never seen it alive.
        if let Some(declared) = release.declared(object) {
            drifts.seal(object, policy.rules(object, declared).seal());
        }
        match stands {
            // An object that only the failed operation declares was never created; one that an operation under way may
            // still create is judged after it.
            None | Some(drift::Live::OptedOut | drift::Live::Dropped | drift::Live::Awaited) => {
                record_absent(drifts, &release.id, object, since);
            }
            Some(stands) => {
                drifts.record_missing(&release.id, object, since);
                if let Some(drift) = drifts.get_mut(&release.id, object) {
                    drift.allowed = matches!(stands, drift::Live::Allowed | drift::Live::Expired);
                }
            }
        }
    }

    /// Judges an object of `release`, which may be newly seen alive; returns the release if
    /// something has changed.
    fn judged(
        &mut self,
        release: &Arc<Release>,
        live: &Live,
        (version, told_by): (&str, Source),
        is_new: bool,
    ) -> Option<ReleaseId> {
        let object = &live.sighting.id;
        let Some(declared) = release.declared(object) else {
            // The next revision may declare it as the one before did, by which it was last judged.
            self.drifts.mark_unsettled(object);
            return None;
        };
        // Among watches of two versions of a kind, the manifest's version counts. An answer is
        // taken in any version.
        if told_by == Source::Watch && declared.served() != version {
            return is_new.then(|| release.id.clone());
        }
        let now = self.now;
        // Others of the release may have waited for this one's new pods.
        let rollouts = &mut self.repairs.rollouts;
        let goes_on = live.object.as_ref().is_some_and(|value| rollouts.see(&release.id, object, value, now));
        let policy = Arc::clone(self.known.policy(&release.id)?);
        let circumstances = self.known.circumstances(release, object);
        let of = DeclaredObject { object, release: &release.id, declared };
        let exceptions = Exceptions::new(of, &policy, &circumstances, None, now);
        let blocks = live.object.as_ref().and_then(deletion::deadline).filter(|at| *at > now);
        self.alarms.set(&release.id, object, exceptions.next_change().into_iter().chain(blocks).min());
        let (policy, circumstances) = (&*policy, &circumstances);
        let standing = Weighing { release, live, policy, circumstances, now }.weigh(Evidence::None);
        let is_unknown = matches!(&standing, Standing::Drifts(DriftKind::Changed, _) | Standing::Underway);
        if let Some(value) = live.object.as_ref().filter(|_| is_unknown) {
            self.recent.keep((&release.id, object), version, value, now);
        }
        if standing.agrees() {
            self.note_put_right(release, live);
        }
        // Additions do not prevent an agreement about the declared fields.
        let seen = match (&standing, &live.object) {
            (Standing::Drifts(DriftKind::Changed, changes), Some(value)) if are_additions(changes) => {
                as_declared_beside(declared, value)
            }
            _ => None,
        };
        self.drifts.seal(object, policy.rules(object, declared).seal());
        let mut news = record(&mut self.drifts, release, live, standing, now);
        if let Some(seen) = seen {
            news.agrees |= self.drifts.record_agreement(release, object, &seen);
        }
        if let (true, Some(touched)) = (news.stands, live.sighting.touched) {
            self.tell(Occurrence::DetectedAfter(now.duration_since(touched)));
        }
        // Objects of the first listing are published at its end.
        let is_confirmed = news.agrees && self.listed;
        (news.stands || is_confirmed || is_new || goes_on).then(|| release.id.clone())
    }

    /// Notes that an object agrees with its release. If somebody other than Helm put it right, nobody contests it any
    /// more, and what they own by that goes back to Helm.
    pub(super) fn note_put_right(&mut self, release: &Release, live: &Live) {
        let object = &live.sighting.id;
        let Some(drift) = self.drifts.get_mut(&release.id, object) else { return };
        if drift.kind != DriftKind::Changed || drift.doubt {
            return;
        }
        let paths: Vec<_> = drift.findings.iter().map(|finding| finding.path.clone()).collect();
        let helm = self.drifts.manager(release, release.state.apply_method);
        let life = self.drifts.life(object);
        let is_helm = |name: &str| {
            helm.as_deref() == Some(name)
                || life.is_some_and(|life| life.managers.iter().any(|manager| manager.name == name))
        };
        if is_set_by_another(live, paths.iter(), is_helm) {
            self.repairs.forgive(object, self.now);
        }
    }

    /// An object is seen for the first time: the replicas that an autoscaler set while no guard
    /// ran, or before this one started, stay.
    fn inherit_replicas(&mut self, release: &Release, live: &Live) {
        let object = &live.sighting.id;
        let is_left = release.declared(object).is_some_and(|declared| is_autoscaled(live, declared));
        if is_left && !self.known.is_scaled(object) {
            self.known.inherit_departed(object, self.now);
            self.act(Action::InheritReplicas(object.clone()));
        }
    }
}

/// The version of a live object.
pub(crate) fn version_of(live: &Live) -> Version {
    Version::of(&live.sighting.resource_version)
}

/// Records that an object does not exist, as its release's records let it.
fn record_absent(drifts: &mut Drifts, release: &ReleaseId, object: &ObjectId, since: Timestamp) {
    drifts.record_missing(release, object, since);
    drifts.clear_drift(release, object);
}

/// The release that an object is compared with: the one that its annotations name; after their
/// removal, the one that they named before, otherwise one that declares it in its own namespace.
/// `None` if no release declares it.
fn life(known: &Known, sighting: &Sighting, before: Option<&Life>) -> Option<Life> {
    let declares = |release: &ReleaseId| known.declares(release, &sighting.id);
    let was_known = before.filter(|life| life.vouched && declares(&life.release));
    let claims = known.claims(&sighting.id);
    let is_claimed = claims.iter().any(|claim| is_local(claim, &sighting.id));
    let (release, vouched) = match (&sighting.release, was_known) {
        (Some(named), Some(_)) if declares(named) => (named.clone(), true),
        (_, Some(before)) => (ReleaseId::clone(&before.release), true),
        // Its record may be on its way, and what others declare elsewhere does not change that.
        (Some(named), None) if declares(named) || !is_claimed => (named.clone(), true),
        _ => {
            let claim = claims.iter().find(|claim| is_local(claim, &sighting.id))?;
            (claim.id.clone(), false)
        }
    };
    let before = before.filter(|before| *before.release == release);
    let managers = match before {
        Some(before) if *before.managers == sighting.managers || sighting.managers.is_empty() => {
            Arc::clone(&before.managers)
        }
        _ => Arc::new(sighting.managers.clone()),
    };
    Some(Life {
        release: Arc::new(release),
        vouched,
        alive: true,
        version: Version::of(&sighting.resource_version),
        managers,
        judged: before.and_then(|before| before.judged),
        allowed: before.is_some_and(|before| before.allowed),
        agreed: before.and_then(|before| before.agreed.clone()),
        seal: before.and_then(|before| before.seal.clone()),
    })
}
