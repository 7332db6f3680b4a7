//! Takes in objects as they stream by.
//!
//! Entry points: [`observe`] takes an object in, [`recall`] looks once more at
//! what was just seen. Invariant: the object is dropped afterwards, some after a
//! few seconds; only [`Drifts`](crate::reconcile::drifts::Drifts) learns what came
//! of it. The loop follows an object's annotations alone: of several releases that
//! declare it, the one that they name. Must not write.

use std::sync::Arc;

use jiff::Timestamp;

use super::Shared;
use crate::helm::index::Index;
use crate::helm::release::Release;
use crate::helm::state;
use crate::model::{Gvk, ReleaseId};
use crate::reconcile::drifts::{Agreed, Life, Version};
use crate::reconcile::judge::{Standing, are_additions, as_declared_beside, record, weigh};
use crate::reconcile::live::{Live, Sighting};
use crate::reconcile::report::DriftKind;
use crate::verdict::claims::is_local;
use crate::verdict::drift::{self, Subject};
use crate::verdict::edit::Evidence;
use crate::verdict::exceptions::Exceptions;

/// Who tells of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A watch, which tells everything in its order.
    Watch,
    /// An answer to a question, which what a watch has told may overtake.
    Answer,
}

/// Takes in an object that was read in `version`, as a watch or an answer told
/// of it; gives the releases of which something has changed by that. None where
/// an answer is older than what is known by now: what it says counts for nothing.
pub(super) fn observe(
    shared: &Shared,
    live: &Live,
    version: &str,
    told_by: Source,
) -> Option<Vec<ReleaseId>> {
    let object = &live.sighting.id;
    if object.name.is_empty() {
        return Some(Vec::new());
    }
    let (held_to, release, is_first, is_new, mut concerned) = {
        let index = shared.guard.releases.index().read();
        let mut drifts = shared.drifts.lock();
        let before = drifts.life(object);
        if told_by == Source::Answer && drifts.is_overtaken(object, version_of(live)) {
            return None;
        }
        let Some(life) = life(&index, &live.sighting, before) else {
            drifts.forget(object);
            return Some(Vec::new());
        };
        // That it was seen alive is told on. Of the first listing all is told at its end.
        let is_known = before.is_some_and(|before| before.vouched && before.release == life.release);
        let is_new = life.vouched && !is_known && *shared.guard.listed.borrow();
        let release = index.release(&life.release).cloned();
        let stays = before.is_some_and(|before| before.release == life.release);
        // Whoever else declares it says that it is another's.
        let others = index.claims(object).iter().filter(|claim| !stays && claim.id != life.release);
        let others: Vec<ReleaseId> = others.map(|claim| claim.id.clone()).collect();
        // What an earlier guard has seen, this one has not.
        let is_first = before.is_none_or(|before| !before.alive);
        let held_to = life.vouched.then(|| life.release.clone());
        drifts.lives(object.clone(), life);
        (held_to, release, is_first, is_new, others)
    };
    let is_known = release.as_ref().is_some_and(|release| release.declared(object).is_some());
    if let (Some(id), Some(value), false) = (held_to, &live.object, is_known) {
        // Its record may be on its way.
        shared.recent.lock().keep((&id, object), version, value, Timestamp::now());
    }
    if let (true, Some(release)) = (is_first, &release) {
        shared.inherit_replicas(release, live);
    }
    concerned.extend(release.and_then(|release| judged(shared, &release, live, version, is_new)));
    Some(concerned)
}

/// The version of an object as it was seen.
pub(super) fn version_of(live: &Live) -> Version {
    Version::of(&live.sighting.resource_version)
}

/// Judges an object of `release`, which may be newly seen alive; gives the
/// release if something has changed.
fn judged(
    shared: &Shared,
    release: &Arc<Release>,
    live: &Live,
    version: &str,
    is_new: bool,
) -> Option<ReleaseId> {
    let object = &live.sighting.id;
    let declared = release.declared(object)?;
    let gvk =
        Gvk { group: object.group.clone(), version: declared.version.to_string(), kind: object.kind.clone() };
    // Of the watches of two versions of a kind, the one of the manifest's.
    if shared.guard.kinds.resource(&gvk).is_some_and(|resource| resource.version != version) {
        return is_new.then(|| release.id.clone());
    }
    // Others of the release may have waited for this one's new pods.
    let goes_on = live.object.as_ref().is_some_and(|value| {
        shared.repairer.rollouts.lock().see(&release.id, object, value, Timestamp::now())
    });
    let policy = shared.guard.book.of(&release.id);
    let now = Timestamp::now();
    let circumstances = shared.circumstances(release, object);
    let exceptions = Exceptions::new((object, &release.id), declared, &policy, &circumstances, None, now);
    shared.alarms.set(&release.id, object, exceptions.next_change());
    let standing = weigh(release, live, &policy, &circumstances, Evidence::None, now);
    let is_unknown = matches!(&standing, Standing::Drifts(DriftKind::Changed, _) | Standing::Underway);
    if let Some(value) = live.object.as_ref().filter(|_| is_unknown) {
        shared.recent.lock().keep((&release.id, object), version, value, Timestamp::now());
    }
    // What is added beside it keeps nothing from having been seen.
    let seen = match (&standing, &live.object) {
        (Standing::Drifts(DriftKind::Changed, changes), Some(value)) if are_additions(changes) => {
            as_declared_beside(declared, value)
        }
        _ => None,
    };
    let news = {
        let index = shared.guard.releases.index().read();
        let mut drifts = shared.drifts.lock();
        if !Arc::ptr_eq(index.release(&release.id)?, release) {
            // Judged by what the release was a moment ago.
            drifts.suspect(&release.id, object.clone(), now);
            return Some(release.id.clone());
        }
        drifts.seal(object, policy.rules(object, declared).seal());
        let mut news = record(&mut drifts, release, live, standing, now);
        if let Some(seen) = seen {
            news.agrees |= drifts.agrees(release, object, &seen);
        }
        news
    };
    if let (true, Some(touched)) = (news.stands, live.sighting.touched) {
        shared.guard.metrics.detected_after(now.duration_since(touched));
    }
    // Of the first listing all is told at its end.
    let is_confirmed = news.agrees && *shared.guard.listed.borrow();
    (news.stands || is_confirmed || is_new || goes_on).then(|| release.id.clone())
}

/// Of what was just seen, notes what agrees with what a release declares by now: it
/// may be what Helm has made of it, before anybody changed it again.
pub(super) fn recall(shared: &Shared, release: &Arc<Release>) {
    let seen = shared.recent.lock().take(&release.id, Timestamp::now());
    let (policy, now) = (shared.guard.book.of(&release.id), Timestamp::now());
    for (object, version, value) in seen {
        let declared = release.declared(&object).filter(|declared| *declared.version == *version);
        let standing = state::standing(release, &object, policy.operation_timeout, now);
        let (Some(_), Some(standing)) = (declared, standing) else { continue };
        let circumstances = shared.circumstances(release, &object);
        let (object, standing) = (&object, &standing);
        let subject = Subject { object, standing, policy: &policy, circumstances: &circumstances, now };
        let mut agreed = match drift::compare(&subject, Some(&value), Evidence::None) {
            drift::Live::AsDeclared(Some(agreed)) => Agreed::of(agreed),
            drift::Live::Drifted(drift) if are_additions(&drift.changes) => {
                let Some(agreed) = as_declared_beside(drift.declared, &value) else { continue };
                agreed
            }
            _ => continue,
        };
        // Without its managers nobody can tell of all that was added.
        agreed.has_additions |= !policy.rules(object, &agreed.declared).sealed.is_empty();
        shared.drifts.lock().agrees(release, object, &agreed);
    }
}

/// The release that an object is held to: the one that its annotations name;
/// where they were taken away, the one that they named before, else one that
/// declares it in its own namespace. None if nobody declares it.
fn life(index: &Index, sighting: &Sighting, before: Option<&Life>) -> Option<Life> {
    let declares = |release: &ReleaseId| {
        index.release(release).is_some_and(|release| release.objects.contains_key(&sighting.id))
    };
    let known = before.filter(|life| life.vouched && declares(&life.release));
    let (release, vouched) = match (&sighting.release, known) {
        (Some(named), Some(_)) if declares(named) => (named.clone(), true),
        (_, Some(known)) => (known.release.clone(), true),
        // Its record may be on its way.
        (Some(named), None) if declares(named) || index.claims(&sighting.id).is_empty() => {
            (named.clone(), true)
        }
        _ => {
            let claim = index.claims(&sighting.id).iter().find(|claim| is_local(claim, &sighting.id))?;
            (claim.id.clone(), false)
        }
    };
    let before = before.filter(|before| before.release == release);
    let managers = match before {
        Some(before) if before.managers[..] == sighting.managers[..] || sighting.managers.is_empty() => {
            before.managers.clone()
        }
        _ => sighting.managers.clone().into(),
    };
    let judged = before.and_then(|before| before.judged);
    let agreed = before.and_then(|before| before.agreed.clone());
    let allowed = before.is_some_and(|before| before.allowed);
    let seal = before.and_then(|before| before.seal.clone());
    let version = Version::of(&sighting.resource_version);
    Some(Life { release, vouched, alive: true, version, managers, judged, allowed, agreed, seal })
}
