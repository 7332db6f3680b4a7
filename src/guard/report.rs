//! Brings together what the loop knows of a release.
//!
//! Entry point: [`publish`]. Invariant: says what is, decides nothing.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::Shared;
use crate::helm::release::{Declarations, Declared, Release};
use crate::ledger::row::{Change, Repaired, Row};
use crate::metrics::DriftFound;
use crate::model::{ObjectId, ReleaseId};
use crate::policy::flaw::Flaw;
use crate::policy::standing;
use crate::reconcile::drifts::{Drift, Drifts};
use crate::reconcile::report::{DriftKind, Incident, ReleaseReport};
use crate::verdict::health::{Control, RecordFacts, RecordState};
use crate::verdict::health::{ObjectFacts, ObjectState};

/// Publishes what is known of a release, once everything has been listed.
pub(super) fn publish(shared: &Shared, id: &ReleaseId) {
    shared.guard.metrics.oldest(shared.drifts.lock().oldest());
    if !*shared.guard.listed.borrow() {
        return;
    }
    match shared.release(id) {
        Some(release) => {
            let report = of(shared, &release);
            complain(shared, &report);
            shared.guard.state.publish(report);
        }
        None => {
            shared.asked.lock().forget(id);
            shared.guard.state.withdraw(id);
        }
    }
}

/// Tells of one thing that happened to an object, and keeps it.
pub(super) fn tell(shared: &Shared, release: &Release, object: &ObjectId, drift: &Drift) {
    let (repaired, detail) = match (&drift.repaired, drift.kind) {
        (Some(Ok(())), DriftKind::Missing) => (Repaired::Recreated, ""),
        (Some(Ok(())), DriftKind::Ownership) => (Repaired::Restored, "the fields belong to Helm again"),
        (Some(Ok(())), _) => (Repaired::Restored, ""),
        (Some(Err(reason)), _) => (Repaired::Failed, reason.as_str()),
        (None, _) => (Repaired::Reported, drift.kept.as_deref().unwrap_or_default()),
    };
    let by = drift.confirmed_by.as_ref().map(|user| format!("confirmed by {user}"));
    let detail = by.as_deref().unwrap_or(detail);
    keep(shared, release, object, repaired, drift.findings.iter().map(Change::of).collect(), detail);
    shared.guard.state.tell(Incident {
        release: release.id.clone(),
        revision: release.state.revision,
        drifted: drift.shown(object),
    });
}

/// Keeps what was done to an object of a release.
pub(super) fn keep(
    shared: &Shared,
    release: &Release,
    object: &ObjectId,
    repaired: Repaired,
    fields: Vec<Change>,
    detail: &str,
) {
    let release = (&release.id, release.state.revision);
    let row = Row::repair(Timestamp::now(), release, object, repaired, fields, detail);
    shared.guard.ledger.record(row);
}

fn of(shared: &Shared, release: &Release) -> ReleaseReport {
    let id = &release.id;
    let policy = shared.guard.book.of(id);
    let records = RecordFacts::of(release, policy.operation_timeout, Timestamp::now());
    let drifts = shared.drifts.lock();
    let mut drifts_of: Vec<(ObjectId, Drift)> = drifts.of(id);
    drifts_of.sort_by(|(a, _), (b, _)| a.cmp(b));
    let declared = release.objects.values().filter(|it| in_force(it, records.state).is_some()).count();
    let mut seen_alive = drifts.seen_alive(release);
    seen_alive.iter_mut().for_each(|seen| seen.settled = shared.guard.settled.of(&seen.object));
    let (confirmed, mut unconfirmed) = drifts.confirmed(release);
    let drifting = drifts_of.iter().map(|(object, _)| object);
    unconfirmed.extend(drifting.filter(|object| drifts.may_hold_additions(release, object)).cloned());
    unconfirmed.sort();
    unconfirmed.dedup();
    let foreign = drifts.foreign(release);
    let excused = excused(shared, &drifts, release, records.state, &foreign);
    let first = drifts.first(id, records.revision).cloned();
    drop(drifts);
    let digest = first.as_ref().map_or(release.state.digest, |first| first.digest);
    let record = first.and_then(|first| first.uid);
    let control = Control {
        drift: policy.drift,
        open: shared.guard.book.is_open(),
        suspended: shared.suspended.lock().contains(id),
        braked: shared.repairer.brake.lock().is_on(&id.namespace),
    };
    let known: HashSet<&ObjectId> =
        drifts_of.iter().map(|(object, _)| object).chain(excused.iter().map(|it| &it.object)).collect();
    ReleaseReport {
        release: id.clone(),
        record,
        digest,
        declared,
        seen_alive,
        confirmed,
        unconfirmed,
        drifted: drifts_of.iter().map(|(object, drift)| drift.shown(object)).collect(),
        flaws: flaws(release),
        foreign,
        unwatched: shared.watches.unwatched(release, &known),
        excused,
        records,
        control,
        answer: shared.asked.lock().answer(id),
    }
}

/// What is declared of an object while the record stands like this.
fn in_force(declarations: &Declarations, state: RecordState) -> Option<&Arc<Declared>> {
    // Agreeing with either manifest is enough then.
    let or_before = declarations.baseline.as_ref().filter(|_| state == RecordState::Failed);
    declarations.latest.as_ref().or(or_before)
}

/// What neither matches nor drifts: allowed to differ, opted out, another release's, or
/// not created by the operation that failed; in the order of objects.
fn excused(
    shared: &Shared,
    drifts: &Drifts,
    release: &Release,
    state: RecordState,
    foreign: &[(ObjectId, ReleaseId)],
) -> Vec<ObjectFacts> {
    let state_of = |object: &ObjectId, declarations: &Declarations| {
        let declared = in_force(declarations, state)?;
        let life = drifts.life(object);
        if declared.opted_out {
            return Some(ObjectState::OptedOut);
        }
        if foreign.iter().any(|(other, _)| other == object) {
            return Some(ObjectState::Foreign);
        }
        if drifts.is_known(&release.id, object) {
            return None;
        }
        let is_absent = || life.is_none_or(|it| !it.alive) && shared.watches.shows(object);
        if state == RecordState::Failed && declarations.baseline.is_none() && is_absent() {
            return Some(ObjectState::Awaited);
        }
        life.is_some_and(|life| life.alive && life.allowed).then_some(ObjectState::Allowed)
    };
    let objects = release.objects.iter();
    let excused = objects
        .filter_map(|(object, it)| state_of(object, it).map(|state| ObjectFacts::new(object.clone(), state)));
    let mut excused: Vec<_> = excused.collect();
    excused.sort_by(|a, b| a.object.cmp(&b.object));
    excused
}

/// What is wrong with the annotations by which the manifest allows changes.
fn flaws(release: &Release) -> Vec<(ObjectId, Flaw)> {
    let declared = release.objects.iter().filter_map(|(object, it)| Some((object, it.latest.as_ref()?)));
    let flawed = declared.filter_map(|(object, declared)| {
        let flaw = standing::of_manifest(declared).err()?.into_iter().next()?;
        Some((object.clone(), flaw))
    });
    let mut flaws: Vec<_> = flawed.collect();
    flaws.sort_by(|(a, _), (b, _)| a.cmp(b));
    flaws
}

/// Says once what is wrong with a chart's annotations.
fn complain(shared: &Shared, report: &ReleaseReport) {
    let Some((object, flaw)) = report.flaws.first() else { return };
    if shared.guard.state.of(&report.release).is_some_and(|before| before.flaws == report.flaws) {
        return;
    }
    tracing::warn!(
        release.id = %report.release, release.revision = report.records.revision, objects = report.flaws.len(),
        "a chart's annotations allow nothing: {object}: {flaw}"
    );
}

impl From<DriftKind> for DriftFound {
    fn from(kind: DriftKind) -> Self {
        match kind {
            DriftKind::Missing => Self::Missing,
            DriftKind::Changed => Self::Changed,
            DriftKind::Ownership => Self::Ownership,
            DriftKind::Terminating => Self::Terminating,
            DriftKind::Unreadable => Self::Unreadable,
        }
    }
}
