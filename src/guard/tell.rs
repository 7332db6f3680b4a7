//! Tells of what the loop did and found: in the log, in metrics, in the ledger and
//! to whoever listens to [`State`](super::state::State).
//!
//! Entry points: [`tell`], [`report`]. Invariant: of values only redacted findings.
//! Must not decide anything.

use std::sync::Arc;

use jiff::Timestamp;

use super::Guard;
use crate::helm::release::Release;
use crate::ledger::row::{Change, GuardedObject, Repaired, Row};
use crate::metrics::{DriftFound, Repair};
use crate::model::ObjectId;
use crate::reconcile::brake::{Drifting, Reach};
use crate::reconcile::drifts::Drift;
use crate::reconcile::report::{DriftKind, Happening, Incident, ReleaseReport};
use crate::reconcile::told::{Fate, Told};
use crate::telemetry::traces;
use crate::verdict::edit::Finding;
use crate::verdict::message;

/// Publishes what is known of a release.
pub(super) fn report(guard: &Guard, report: ReleaseReport) {
    complain(guard, &report);
    guard.state.publish(report);
}

/// Tells of one thing.
pub(super) fn tell(guard: &Guard, told: Told) {
    match told {
        Told::Object { release, object, drift, fate } => of_object(guard, &release, &object, &drift, fate),
        Told::Found(kind) => guard.metrics.found(kind.into()),
        Told::DetectedAfter(delay) => guard.metrics.detected_after(delay),
        Told::Present(kind) => guard.metrics.repaired(kind.into(), Repair::Present),
        Told::Untaken(kind) => guard.metrics.repaired(kind.into(), Repair::Failed),
        Told::Oldest(since) => guard.metrics.oldest(since),
        Told::Eased { reach, release } => {
            tracing::info!(release.id = %release, "repairs go on");
            let namespace = (reach == Reach::Namespace).then_some(release.namespace);
            guard.state.tell(Happening::Eased { namespace });
        }
        Told::Braked { reach, namespace, drifting } => of_brake(guard, reach, namespace, &drifting),
    }
}

fn of_brake(guard: &Guard, reach: Reach, namespace: String, drifting: &Drifting) {
    let (total, declared) = (drifting.total(), drifting.declared);
    let (namespace, drifting) = match reach {
        Reach::Cluster => {
            tracing::error!(
                "{total} of {declared} declared objects drift at once: repairs stop until a person asks for one"
            );
            (None, total)
        }
        Reach::Namespace => {
            let there = drifting.of(&namespace);
            tracing::error!(
                release.namespace = %namespace,
                "{there} of {declared} declared objects drift at once, all of releases in namespace {namespace}: their repairs stop until a person asks for one"
            );
            (Some(namespace), there)
        }
    };
    guard.state.tell(Happening::Braked { namespace, drifting, declared });
}

/// Tells what happened to an object.
fn of_object(guard: &Guard, release: &Release, object: &Arc<ObjectId>, drift: &Drift, fate: Fate) {
    let kind = drift.kind.into();
    match fate {
        Fate::Repaired { attempts } | Fate::Partly { attempts } => {
            let is_whole = matches!(fate, Fate::Repaired { .. });
            guard.metrics.repaired(kind, if is_whole { Repair::Repaired } else { Repair::Partly });
            guard.metrics.repaired_after(kind, Timestamp::now().duration_since(drift.since));
            of_incident(guard, release, object, drift);
            trace(release, object, drift, if is_whole { "repaired" } else { "partly" });
            of_repair(release, object, drift, attempts);
        }
        Fate::Failed => {
            guard.metrics.repaired(kind, Repair::Failed);
            trace(release, object, drift, "failed");
            of_incident(guard, release, object, drift);
            let reason = drift.repaired.as_ref().and_then(|it| it.as_ref().err());
            tracing::warn!(
                release.id = %release.id, drift.object = %object, drift.kind = drift.kind.as_str(),
                "{object}, which Helm release {} declares, could not be repaired: {}",
                release.id, reason.map_or("", String::as_str)
            );
        }
        Fate::Reported => {
            guard.metrics.repaired(kind, Repair::Reported);
            of_incident(guard, release, object, drift);
            of_report(release, object, drift);
        }
        Fate::InDoubt => tracing::warn!(
            release.id = %release.id, drift.object = %object,
            "{object} may not be as Helm release {} declares it, and only a dry run could tell: {}{}",
            release.id, kept(drift), fields(&drift.findings)
        ),
        Fate::Contested => {
            let by = drift.by.as_deref().unwrap_or("somebody who left no name");
            tracing::warn!(
                release.id = %release.id, drift.object = %object, drift.by = by,
                "{object} is changed back each time it is repaired, by {by}: the guard waits longer and longer"
            );
        }
        Fate::TakenBack => {
            guard.metrics.repaired(kind, Repair::TakenBack);
            keep(guard, release, object, (Repaired::TakenBack, Vec::new(), "its release dropped it"));
            tracing::info!(release.id = %release.id, drift.object = %object, "{object} is taken back: its release dropped it");
        }
        Fate::CannotTakeBack(error) => tracing::warn!(
            release.id = %release.id, drift.object = %object,
            "{object} was re-created, its release dropped it meanwhile, and it cannot be taken back: {error}"
        ),
        Fate::Unread(error) => tracing::warn!(
            release.id = %release.id, "{object} was re-created, and the records cannot be read again: {error}"
        ),
    }
}

fn of_repair(release: &Release, object: &ObjectId, drift: &Drift, attempts: u32) {
    tracing::info!(
        release.id = %release.id, release.revision = release.state.revision, drift.object = %object,
        drift.kind = drift.kind.as_str(), drift.by = drift.by.as_deref().unwrap_or_default(), attempts,
        "{object}, which Helm release {} declares, {}{}",
        release.id,
        match drift.kind {
            DriftKind::Missing => "was missing and is re-created",
            DriftKind::Ownership => "was held by another manager and is Helm's again",
            _ => "was changed and is as declared again",
        },
        fields(&drift.findings)
    );
}

fn of_report(release: &Release, object: &ObjectId, drift: &Drift) {
    let (id, reason) = (&release.id, kept(drift));
    match drift.kind {
        DriftKind::Missing => tracing::warn!(
            release.id = %id, drift.object = %object,
            "{object}, which Helm release {id} declares, is missing and is not re-created: {reason}"
        ),
        _ => tracing::warn!(
            release.id = %id, drift.object = %object, drift.kind = drift.kind.as_str(),
            drift.by = drift.by.as_deref().unwrap_or_default(),
            "{object} is not as Helm release {id} declares it and is not repaired: {reason}{}",
            fields(&drift.findings)
        ),
    }
}

/// Tells whoever listens of one thing that happened to an object, and keeps it.
fn of_incident(guard: &Guard, release: &Release, object: &Arc<ObjectId>, drift: &Drift) {
    let (repaired, detail) = match (&drift.repaired, drift.kind) {
        (Some(Ok(())), DriftKind::Missing) => (Repaired::Recreated, ""),
        (Some(Ok(())), DriftKind::Ownership) => (Repaired::Restored, "the fields belong to Helm again"),
        (Some(Ok(())), _) => (Repaired::Restored, ""),
        (Some(Err(reason)), _) => (Repaired::Failed, reason.as_str()),
        (None, _) => (Repaired::Reported, kept(drift)),
    };
    let by = drift.by.as_ref().filter(|_| drift.kind != DriftKind::Missing);
    let by = by.map(|manager| format!("changed by field manager {manager}"));
    let confirmed = drift.confirmed_by.as_ref().map(|user| format!("confirmed by {user}"));
    let detail = (!detail.is_empty()).then(|| detail.to_owned());
    let detail: Vec<String> = [detail, by, confirmed].into_iter().flatten().collect();
    keep(
        guard,
        release,
        object,
        (repaired, drift.findings.iter().map(Change::of).collect(), &detail.join("; ")),
    );
    guard.state.tell(Happening::Object(Box::new(Incident {
        release: release.id.clone(),
        revision: release.state.revision,
        drifted: drift.shown(object),
    })));
}

/// Keeps what was done to an object of a release.
fn keep(
    guard: &Guard,
    release: &Release,
    object: &ObjectId,
    (repaired, fields, detail): (Repaired, Vec<Change>, &str),
) {
    let of = GuardedObject { release: &release.id, revision: release.state.revision, object };
    guard.ledger.record(Row::repair(Timestamp::now(), of, repaired, fields, detail));
}

/// Makes the span of a repair that ended like this.
fn trace(release: &Release, object: &ObjectId, drift: &Drift, outcome: &'static str) {
    let repair = traces::Repair {
        object,
        release: &release.id,
        revision: release.state.revision,
        drift: drift.kind.as_str(),
        since: drift.since,
        outcome,
        is_failure: outcome == "failed",
    };
    repair.ended();
}

fn kept(drift: &Drift) -> &str {
    drift.kept.as_deref().unwrap_or_default()
}

/// A list of fields for the end of a sentence.
fn fields(findings: &[Finding]) -> String {
    let named: Vec<_> = findings.iter().take(8).map(message::live_field).collect();
    match (named.is_empty(), findings.len().saturating_sub(named.len())) {
        (true, _) => String::new(),
        (false, 0) => format!(": {}", named.join("; ")),
        (false, more) => format!(": {}; and {more} more", named.join("; ")),
    }
}

/// Says once what is wrong with a chart's annotations.
fn complain(guard: &Guard, report: &ReleaseReport) {
    let Some((object, flaw)) = report.flaws.first() else { return };
    if guard.state.of(&report.release).is_some_and(|before| before.flaws == report.flaws) {
        return;
    }
    tracing::warn!(
        release.id = %report.release, release.revision = report.records.revision, objects = report.flaws.len(),
        "a chart has an invalid annotation, which has no effect: {object}: {flaw}"
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
