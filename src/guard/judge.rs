//! Judges objects as they stream by.
//!
//! Entry points: [`observe`] takes an object in, [`weigh`] says how it stands,
//! [`recall`] looks once more at what was just seen.
//! Invariant: the object is dropped afterwards, some after a few seconds; only
//! [`super::drifts::Drifts`] learns what came of it. The loop follows an object's annotations alone: of
//! several releases that declare it, the one that they name. Must not write.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use super::Shared;
use super::blame::{Taken, taken, writer};
use super::drifts::{Agreed, Drift, Drifts, Life, Version};
use super::state::{DriftKind, SHOWN_FIELDS};
use crate::cluster::objects::{Live, Manager, Sighting};
use crate::declaration::equality::Agreement;
use crate::declaration::fields::FieldChange;
use crate::helm::index::Index;
use crate::helm::record::Status;
use crate::helm::release::{Declared, Release};
use crate::helm::state;
use crate::model::{DriftMode, Gvk, ReleaseId};
use crate::policy::Policy;
use crate::verdict::claims::is_local;
use crate::verdict::drift::{self, Subject, findings};
use crate::verdict::edit::{Evidence, Finding};
use crate::verdict::exceptions::{Circumstances, Exceptions};
use crate::verdict::sealed;

/// How an object stands.
pub(super) enum Standing {
    /// The state of the release's record declares no such object.
    Undeclared,
    /// It is as declared; with what it was compared with, if it was.
    AsDeclared(Option<Agreed>),
    /// It is not, and an operation is under way that may change it.
    Underway,
    /// It is not, with the declared paths that are not.
    Drifts(DriftKind, Vec<FieldChange>),
    /// It is as declared, and Helm's next upgrade would fail.
    Taken(Taken, Option<Agreed>),
}

/// What is new of an object.
pub(super) struct News {
    /// It drifts now, or otherwise, or no more.
    stands: bool,
    /// It agrees with what it was not seen to agree with before.
    agrees: bool,
}

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
        shared.recent.lock().keep((&id, object), version, value, Instant::now());
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
    let goes_on = live
        .object
        .as_ref()
        .is_some_and(|value| shared.repairer.rollouts.lock().see(&release.id, object, value, Instant::now()));
    let policy = shared.guard.book.of(&release.id);
    let now = Timestamp::now();
    let circumstances = shared.circumstances(release, object);
    let exceptions = Exceptions::new((object, &release.id), declared, &policy, &circumstances, None, now);
    shared.alarms.set(&release.id, object, exceptions.next_change());
    let standing = weigh(release, live, &policy, &circumstances, Evidence::None, now);
    let is_unknown = matches!(&standing, Standing::Drifts(DriftKind::Changed, _) | Standing::Underway);
    if let Some(value) = live.object.as_ref().filter(|_| is_unknown) {
        shared.recent.lock().keep((&release.id, object), version, value, Instant::now());
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
    let seen = shared.recent.lock().take(&release.id, Instant::now());
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

/// How an object stands against what `release` declares of it.
pub(super) fn weigh(
    release: &Release,
    live: &Live,
    policy: &Policy,
    circumstances: &Circumstances,
    evidence: Evidence<'_>,
    now: Timestamp,
) -> Standing {
    let object = &live.sighting.id;
    if policy.drift == DriftMode::Ignore {
        return Standing::Undeclared;
    }
    let Some(standing) = state::standing(release, object, policy.operation_timeout, now) else {
        return Standing::Undeclared;
    };
    let off = |kind, changes| {
        if standing.pending { Standing::Underway } else { Standing::Drifts(kind, changes) }
    };
    let Some(value) = &live.object else {
        return match standing.alternatives.iter().any(|declared| declared.opted_out) {
            true => Standing::AsDeclared(None),
            false if live.sighting.deleting => off(DriftKind::Terminating, Vec::new()),
            false => off(DriftKind::Unreadable, Vec::new()),
        };
    };
    let subject = Subject { object, standing: &standing, policy, circumstances, now };
    // Who has set what is sealed its managers tell.
    let is_sealed = standing.alternatives.iter().any(|it| !policy.rules(object, it).sealed.is_empty());
    let whole = if is_sealed || sealed::is_set(object, value) { live.whole() } else { None };
    let value = whole.as_ref().unwrap_or(value);
    let mut found = drift::compare(&subject, Some(value), evidence);
    if let (drift::Live::Drifted(drift), None) = (&found, &whole)
        && drift.hangs_on_managers()
        && let Some(whole) = live.whole()
    {
        found = drift::compare(&subject, Some(&whole), evidence);
    }
    let agreed = match found {
        drift::Live::OptedOut => return Standing::AsDeclared(None),
        drift::Live::BeingDeleted => return off(DriftKind::Terminating, Vec::new()),
        drift::Live::AsBefore => return Standing::Underway,
        drift::Live::Drifted(drift) => return off(DriftKind::Changed, drift.changes),
        drift::Live::AsDeclared(agreed) => agreed,
        drift::Live::Awaited | drift::Live::Allowed | drift::Live::Missing => None,
    };
    let agreed = agreed.map(Agreed::of);
    if policy.drift != DriftMode::Repair || release.state.status != Status::Deployed {
        return Standing::AsDeclared(agreed);
    }
    let Some(declared) = release.declared(object) else { return Standing::AsDeclared(agreed) };
    let spared = subject.exceptions(declared).mask(value);
    match taken(live, declared, release.state.apply_method, &spared) {
        Some(taken) => Standing::Taken(taken, agreed),
        None => Standing::AsDeclared(agreed),
    }
}

/// Notes how an object stands. Gives what of that is new.
pub(super) fn record(
    drifts: &mut Drifts,
    release: &Release,
    live: &Live,
    standing: Standing,
    now: Timestamp,
) -> News {
    let (id, object, revision) = (&release.id, &live.sighting.id, release.state.revision);
    let agrees = match &standing {
        Standing::AsDeclared(Some(agreed)) | Standing::Taken(_, Some(agreed)) => {
            drifts.agrees(release, object, agreed)
        }
        _ => false,
    };
    let allowed = match &standing {
        Standing::AsDeclared(Some(agreed)) | Standing::Taken(_, Some(agreed)) => agreed.allowed,
        _ => false,
    };
    // That is told on as well.
    let agrees = drifts.allow(object, allowed) || agrees;
    let stands = match standing {
        Standing::Undeclared => drifts.is_undeclared(id, object),
        Standing::AsDeclared(_) => drifts.is_as_declared(id, object, revision),
        Standing::Underway => drifts.is_unsettled(object),
        Standing::Taken(taken, _) => {
            let mut drift = Drift::new(DriftKind::Ownership, now);
            drift.findings = taken.paths.into_iter().map(Finding::untouched).take(SHOWN_FIELDS).collect();
            drift.by = Some(taken.by);
            drifts.drifts(id, object, drift)
        }
        Standing::Drifts(kind, changes) => {
            let is_doubt = |change: &FieldChange| change.agreement == Agreement::Doubt;
            let doubt = !changes.is_empty() && changes.iter().all(is_doubt);
            let helms = drifts.life(object).map(|life| life.managers.clone()).unwrap_or_default();
            drifts.drifts(id, object, seen(live, kind, &changes, &helms, doubt, now))
        }
    };
    News { stands, agrees }
}

/// What an object agrees with that holds more below sealed paths; none where an exception lets a
/// declared field differ, which nobody has seen then.
fn as_declared_beside(declared: &Arc<Declared>, value: &Value) -> Option<Agreed> {
    let is_whole = drift::of_fields(&declared.fields, value, false).is_empty();
    is_whole.then(|| Agreed::but_for_additions(declared))
}

/// Whether all that differs is what somebody added below sealed paths.
fn are_additions(changes: &[FieldChange]) -> bool {
    !changes.is_empty() && changes.iter().all(|change| change.agreement.is_addition())
}

/// A drift as it was seen.
pub(super) fn seen(
    live: &Live,
    kind: DriftKind,
    changes: &[FieldChange],
    helms: &[Manager],
    doubt: bool,
    now: Timestamp,
) -> Drift {
    let mut findings = findings(&live.sighting.id, changes);
    findings.truncate(SHOWN_FIELDS);
    let by = writer(live, changes, helms);
    Drift { findings, by, doubt, ..Drift::new(kind, now) }
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
