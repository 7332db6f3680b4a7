//! Brings together what the loop knows of a release.
//!
//! Entry point: [`publish`]. Invariant: says what is, decides nothing.

use jiff::Timestamp;

use super::Shared;
use super::drifts::Drift;
use super::state::{DriftKind, Drifted, Incident, Reason, ReleaseReport, Unwatched};
use crate::helm::record::Status;
use crate::helm::release::Release;
use crate::helm::state::is_locked;
use crate::ledger::row::{Change, Repaired, Row};
use crate::metrics::DriftFound;
use crate::model::{ObjectId, ReleaseId};
use crate::policy::flaw::Flaw;
use crate::policy::standing;

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
        None => shared.guard.state.withdraw(id),
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
    let (id, revision) = (&release.id, release.state.revision);
    let drifts = shared.drifts.lock();
    let mut drifts_of: Vec<(ObjectId, Drift)> = drifts.of(id);
    drifts_of.sort_by(|(a, _), (b, _)| a.cmp(b));
    let declared = release.objects.values().filter(|declarations| declarations.latest.is_some()).count();
    let seen_alive = drifts.seen_alive(release);
    let (confirmed, unconfirmed) = drifts.confirmed(release);
    let foreign = drifts.foreign(release);
    let first = drifts.first(id, revision).cloned();
    drop(drifts);
    let digest = first.as_ref().map_or(release.state.digest, |first| first.digest);
    let record = first.and_then(|first| first.uid);
    let flaws = flaws(release);
    let unwatched = shared.watches.unwatched(release);
    let reason = reason(shared, release, &drifts_of, &unwatched);
    let drifted: Vec<Drifted> = drifts_of.iter().map(|(object, drift)| drift.shown(object)).collect();
    ReleaseReport {
        release: id.clone(),
        revision,
        record,
        digest,
        declared,
        seen_alive,
        confirmed,
        unconfirmed,
        drifted,
        flaws,
        foreign,
        unwatched,
        reason,
    }
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
        release.id = %report.release, release.revision = report.revision, objects = report.flaws.len(),
        "a chart's annotations allow nothing: {object}: {flaw}"
    );
}

fn reason(
    shared: &Shared,
    release: &Release,
    drifts: &[(ObjectId, Drift)],
    unwatched: &[Unwatched],
) -> Reason {
    let timeout = shared.guard.book.of(&release.id).operation_timeout;
    let certain = || drifts.iter().filter(|(_, drift)| drift.is_certain());
    if release.invalid.is_some() {
        Reason::RecordInvalid
    } else if is_locked(release, timeout, Timestamp::now()) {
        Reason::PendingLocked
    } else if release.state.status == Status::Failed {
        Reason::ReleaseFailed
    } else if release.state.status == Status::Uninstalled {
        Reason::ReleaseMissing
    } else if shared.suspended.lock().contains(&release.id) {
        Reason::Suspended
    } else if certain().next().is_none() && drifts.iter().any(|(_, drift)| drift.doubt) {
        Reason::Unsettled
    } else if certain().next().is_none() {
        if unwatched.is_empty() { Reason::InSync } else { Reason::Unwatched }
    } else if shared.repairer.brake.lock().is_on(&release.id.namespace) {
        Reason::Braked
    } else if certain().any(|(_, drift)| drift.unconfirmed) {
        Reason::Unconfirmed
    } else if certain().any(|(_, drift)| drift.contested) {
        Reason::Contested
    } else {
        Reason::Drifted
    }
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
