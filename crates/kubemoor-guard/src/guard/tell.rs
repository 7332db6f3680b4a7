//! Tells of what the loop did and found: in the log, in metrics, in the ledger and
//! to the listeners of [`State`](super::state::State).
//!
//! Entry points: [`tell`], [`report`]. Invariant: values appear only as redacted findings. Must not
//! decide anything.

mod log;

use std::sync::Arc;

use jiff::Timestamp;

use super::Guard;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::release::Release;
use kubemoor_ledger::row::{Act, Change, GuardedObject, Repaired, ReviewedEdit, Row};
use kubemoor_reconcile::brake::{Drifting, Reach};
use kubemoor_reconcile::drifts::Drift;
use kubemoor_reconcile::occurrence::{Fate, Occurrence};
use kubemoor_reconcile::report::{DriftKind, Happening, Incident, ReleaseReport};
use kubemoor_runtime::metrics::{DriftFound, Repair};
use kubemoor_runtime::telemetry::traces;

/// Publishes what is known of a release.
pub(super) fn report(guard: &Guard, report: ReleaseReport) {
    complain(guard, &report);
    guard.state.publish(report);
}

/// Reports one finding or repair.
pub(super) fn tell(guard: &Guard, told: Occurrence) {
    match told {
        Occurrence::Object { release, object, drift, fate } => {
            of_object(guard, &release, &object, &drift, fate)
        }
        Occurrence::Found(kind) => guard.metrics.found(drift_found(kind)),
        Occurrence::DetectedAfter(delay) => guard.metrics.detected_after(delay),
        Occurrence::Present(kind) => guard.metrics.repaired(drift_found(kind), Repair::Present),
        Occurrence::Untaken(kind) => guard.metrics.repaired(drift_found(kind), Repair::Failed),
        Occurrence::Oldest(since) => guard.metrics.oldest(since),
        Occurrence::Eased { reach, release } => {
            tracing::info!(release.id = %release, "repairs go on");
            let namespace = (reach == Reach::Namespace).then(|| release.namespace.to_string());
            let detail = format!("by an order to repair Helm release {release}");
            keep_brake(guard, Act::ReleaseBrake, namespace.as_deref(), detail);
            guard.state.tell(Happening::Eased { namespace });
        }
        Occurrence::Unbraked { namespace } => guard.state.tell(Happening::Eased { namespace }),
        Occurrence::Braked { reach, namespace, drifting } => of_brake(guard, reach, namespace, &drifting),
        Occurrence::Held { release, until } => of_hold(guard, &release, until),
    }
}

fn of_brake(guard: &Guard, reach: Reach, namespace: String, drifting: &Drifting) {
    let (total, declared) = (drifting.total(), drifting.declared);
    let (namespace, drifting) = match reach {
        Reach::Cluster => {
            tracing::error!(
                "{total} of {declared} declared objects drift at once: all repairs have stopped until a user runs kubemoor reconcile"
            );
            (None, total)
        }
        Reach::Namespace => {
            let there = drifting.of(&namespace);
            tracing::error!(
                release.namespace = %namespace,
                "{there} of {declared} declared objects drift at once, all of releases in namespace {namespace}: repairs there have stopped until a user runs kubemoor reconcile"
            );
            (Some(namespace), there)
        }
    };
    let detail = format!("{drifting} of {declared} declared objects drift");
    keep_brake(guard, Act::EngageBrake, namespace.as_deref(), detail);
    guard.state.tell(Happening::Braked { namespace, drifting, declared });
}

/// Keeps that repairs stop, or go on: of one namespace or everywhere.
fn keep_brake(guard: &Guard, act: Act, namespace: Option<&str>, detail: String) {
    let object = ObjectId {
        group: "".into(),
        kind: "Brake".into(),
        namespace: namespace.map(Into::into),
        name: namespace.unwrap_or("cluster").into(),
    };
    let row = Row::act(Timestamp::now(), ReviewedEdit::watched(object, None), None, act);
    guard.ledger.record(Row { detail, ..row });
}

/// Keeps that repairs of a release are on hold.
fn of_hold(guard: &Guard, release: &Release, until: Timestamp) {
    let ReleaseId { namespace, name } = release.id.clone();
    let object = ObjectId {
        group: "".into(),
        kind: "Record".into(),
        namespace: Some(release.storage.clone().into()),
        name: release.latest.secret.clone().into(),
    };
    tracing::info!(release.id = %release.id, "repairs of Helm release {name} in namespace {namespace} are on hold until {until}");
    let detail = format!("until {until}: the release's records may come from a backup");
    let of = Some((release.id.clone(), release.state.revision));
    let row = Row::act(Timestamp::now(), ReviewedEdit::watched(object, None), of, Act::HoldRepairs);
    let same = Some(format!("{} hold", release.latest.uid));
    guard.ledger.record(Row { detail, same, ..row });
}

/// Reports what happened to an object.
fn of_object(guard: &Guard, release: &Release, object: &Arc<ObjectId>, drift: &Drift, fate: Fate) {
    let kind = drift_found(drift.kind);
    match fate {
        Fate::Repaired { attempts } | Fate::Partly { attempts } => {
            let is_whole = matches!(fate, Fate::Repaired { .. });
            guard.metrics.repaired(kind, if is_whole { Repair::Repaired } else { Repair::Partly });
            guard.metrics.repaired_after(kind, Timestamp::now().duration_since(drift.since));
            of_incident(guard, release, object, drift);
            trace(release, object, drift, if is_whole { "repaired" } else { "partly" });
            log::of_repair(release, object, drift, attempts);
        }
        Fate::Failed => {
            guard.metrics.repaired(kind, Repair::Failed);
            trace(release, object, drift, "failed");
            of_incident(guard, release, object, drift);
            log::of_failure(release, object, drift);
        }
        Fate::Reported => {
            guard.metrics.repaired(kind, Repair::Reported);
            of_incident(guard, release, object, drift);
            log::of_report(release, object, drift);
        }
        Fate::InDoubt => log::of_doubt(release, object, drift),
        Fate::Contested => log::of_contest(release, object, drift),
        Fate::TakenBack => {
            guard.metrics.repaired(kind, Repair::TakenBack);
            keep(
                guard,
                release,
                object,
                (Repaired::TakenBack, Vec::new(), "its release no longer declares it"),
            );
            log::of_removal(release, object);
        }
        Fate::CannotTakeBack(error) => log::of_failed_removal(release, object, &error),
        Fate::Unread(error) => log::of_unread(release, object, &error),
    }
}

/// Tells all listeners of one thing that happened to an object, and keeps it.
fn of_incident(guard: &Guard, release: &Release, object: &Arc<ObjectId>, drift: &Drift) {
    let (repaired, detail) = match (&drift.repaired, drift.kind) {
        (Some(Ok(())), DriftKind::Missing) => (Repaired::Recreated, ""),
        (Some(Ok(())), DriftKind::Ownership) => (Repaired::Restored, "the fields belong to Helm again"),
        (Some(Ok(())), _) => (Repaired::Restored, ""),
        (Some(Err(reason)), _) => (Repaired::Failed, reason.as_str()),
        (None, _) => (Repaired::Reported, log::kept(drift)),
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

/// Stores a repair of an object in the ledger.
fn keep(
    guard: &Guard,
    release: &Release,
    object: &ObjectId,
    (repaired, fields, detail): (Repaired, Vec<Change>, &str),
) {
    let of = GuardedObject { release: &release.id, revision: release.state.revision, object };
    guard.ledger.record(Row::repair(Timestamp::now(), of, repaired, fields, detail));
}

/// Creates the span of a repair with this outcome.
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

/// Logs the errors of a chart's annotations once.
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

fn drift_found(kind: DriftKind) -> DriftFound {
    match kind {
        DriftKind::Missing => DriftFound::Missing,
        DriftKind::Changed => DriftFound::Changed,
        DriftKind::Ownership => DriftFound::Ownership,
        DriftKind::Terminating => DriftFound::Terminating,
        DriftKind::Unreadable => DriftFound::Unreadable,
    }
}
