//! Publishes what the loop did and found: in the log, in metrics, in the ledger and to the listeners of
//! [`LoopState`](super::state::LoopState). Values appear only as redacted findings; `kubemoor explain -` understands
//! every line of the log.

use jiff::Timestamp;

use super::DriftGuard;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::release::Release;
use kubemoor_ledger::row::{Act, LedgerRow, Repaired, ReviewedEdit, RowChange};
use kubemoor_reconcile::brake::Drifting;
use kubemoor_reconcile::drifts::ObjectDrift;
use kubemoor_reconcile::event::{LoopNotice, ObjectOutcome};
use kubemoor_reconcile::report::{DriftKind, Incident, LoopAnnouncement, LoopReport};
use kubemoor_runtime::metrics::RepairResult;
use kubemoor_runtime::telemetry::traces;
use kubemoor_verdict::edit::FieldFinding;
use kubemoor_verdict::message;

pub(super) fn report(guard: &DriftGuard, report: LoopReport) {
    log_annotation_errors(guard, &report);
    guard.cluster.state.publish(report);
}

pub(super) fn publish(guard: &DriftGuard, told: LoopNotice) {
    match told {
        LoopNotice::Object { release, drift, fate } => publish_object(guard, &release, &drift, fate),
        LoopNotice::Found(kind) => guard.metrics.found(kind.as_str()),
        LoopNotice::DetectedAfter(delay) => guard.metrics.detected_after(delay),
        LoopNotice::Present(kind) => guard.metrics.repaired(kind.as_str(), RepairResult::Present),
        LoopNotice::RepairRejected(kind) => guard.metrics.repaired(kind.as_str(), RepairResult::Failed),
        LoopNotice::Oldest(since) => guard.metrics.oldest(since),
        LoopNotice::Eased { namespace, by } => {
            if let Some(release) = by {
                tracing::info!(release.id = %release, "repairs resumed");
                let detail = format!("by an order to repair Helm release {release}");
                keep_brake(guard, Act::ReleaseBrake, namespace.as_deref(), detail);
            }
            guard.cluster.state.tell(LoopAnnouncement::Eased { namespace });
        }
        LoopNotice::Braked { namespace, drifting } => publish_brake(guard, namespace, &drifting),
        LoopNotice::Held { release, until } => publish_hold(guard, &release, until),
    }
}

fn publish_brake(guard: &DriftGuard, namespace: Option<String>, drifting: &Drifting) {
    let (total, declared) = (drifting.total(), drifting.declared);
    let drifting = match &namespace {
        None => {
            tracing::error!(
                "{total} of {declared} declared objects drifted at once: all repairs are stopped until a user runs kubemoor reconcile"
            );
            total
        }
        Some(namespace) => {
            let there = drifting.in_namespace(namespace);
            tracing::error!(
                release.namespace = %namespace,
                "{there} of {declared} declared objects drifted at once, all from releases in namespace {namespace}: repairs there are stopped until a user runs kubemoor reconcile"
            );
            there
        }
    };
    let detail = format!("{drifting} of {declared} declared objects drift");
    keep_brake(guard, Act::EngageBrake, namespace.as_deref(), detail);
    guard.cluster.state.tell(LoopAnnouncement::Braked { namespace, drifting, declared });
}

/// Records that repairs stop or resume, in one namespace or everywhere.
fn keep_brake(guard: &DriftGuard, act: Act, namespace: Option<&str>, detail: String) {
    let object = ObjectId {
        group: "".into(),
        kind: "Brake".into(),
        namespace: namespace.map(Into::into),
        name: namespace.unwrap_or("cluster").into(),
    };
    let row = LedgerRow::act(Timestamp::now(), ReviewedEdit::watched(object, None), None, act);
    guard.ledger.record(LedgerRow { detail, ..row });
}

/// Logs and records that repairs of a release are on hold.
fn publish_hold(guard: &DriftGuard, release: &Release, until: Timestamp) {
    let ReleaseId { namespace, name } = release.id.clone();
    let object = ObjectId::namespaced("", "Record", &release.storage, &release.latest.secret);
    tracing::info!(release.id = %release.id, "repairs of Helm release {name} in namespace {namespace} are on hold until {until}");
    let detail = format!("until {until}: the release's records may come from a backup");
    let of = Some((release.id.clone(), release.state.revision));
    let row = LedgerRow::act(Timestamp::now(), ReviewedEdit::watched(object, None), of, Act::HoldRepairs);
    let same = Some(format!("{} hold", release.latest.uid));
    guard.ledger.record(LedgerRow { detail, same, ..row });
}

fn publish_object(guard: &DriftGuard, release: &Release, drift: &ObjectDrift, fate: ObjectOutcome) {
    let (object, kind) = (&drift.object, drift.kind.as_str());
    let of = (&release.id, release.state.revision);
    let trace = |outcome| traces::repair_ended(object, of, kind, drift.since, outcome);
    match fate {
        ObjectOutcome::Repaired { attempts } | ObjectOutcome::Partly { attempts } => {
            let is_whole = matches!(fate, ObjectOutcome::Repaired { .. });
            guard
                .metrics
                .repaired(kind, if is_whole { RepairResult::Repaired } else { RepairResult::Partly });
            guard.metrics.repaired_after(kind, Timestamp::now().duration_since(drift.since));
            publish_incident(guard, release, drift);
            trace(if is_whole { "repaired" } else { "partly" });
            log_repair(release, object, drift, attempts, is_whole);
        }
        ObjectOutcome::Failed => {
            guard.metrics.repaired(kind, RepairResult::Failed);
            trace("failed");
            publish_incident(guard, release, drift);
            log_failure(release, object, drift);
        }
        ObjectOutcome::Reported => {
            guard.metrics.repaired(kind, RepairResult::Reported);
            publish_incident(guard, release, drift);
            log_report(release, object, drift);
        }
        ObjectOutcome::InDoubt => log_doubt(release, object, drift),
        ObjectOutcome::Contested => log_contest(release, object, drift),
        ObjectOutcome::DeletedAgain => {
            guard.metrics.repaired(kind, RepairResult::TakenBack);
            record_repair(
                guard,
                release,
                object,
                (Repaired::TakenBack, Vec::new(), "its release no longer declares it"),
            );
            log_removal(release, object);
        }
        ObjectOutcome::CannotTakeBack(error) => log_failed_removal(release, object, &error),
        ObjectOutcome::RecordsUnreadable(error) => log_unread(release, object, &error),
    }
}

fn publish_incident(guard: &DriftGuard, release: &Release, drift: &ObjectDrift) {
    let (repaired, detail) = match (&drift.repaired, drift.kind) {
        (Some(Ok(())), DriftKind::Missing) => (Repaired::Recreated, ""),
        (Some(Ok(())), DriftKind::Ownership) => (Repaired::Restored, "the fields belong to Helm again"),
        (Some(Ok(())), _) => (Repaired::Restored, ""),
        (Some(Err(reason)), _) => (Repaired::Failed, reason.as_str()),
        (None, _) => (Repaired::Reported, kept_reason(drift)),
    };
    let by = drift.by.as_ref().filter(|_| drift.kind != DriftKind::Missing);
    let by = by.map(|manager| format!("changed by field manager {manager}"));
    let confirmed = drift.confirmed_by.as_ref().map(|user| format!("confirmed by {user}"));
    let detail = (!detail.is_empty()).then(|| detail.to_owned());
    let detail: Vec<String> = [detail, by, confirmed].into_iter().flatten().collect();
    record_repair(
        guard,
        release,
        &drift.object,
        (repaired, drift.findings.iter().map(RowChange::from).collect(), &detail.join("; ")),
    );
    guard.cluster.state.tell(LoopAnnouncement::Object(Box::new(Incident {
        release: release.id.clone(),
        revision: release.state.revision,
        drifted: drift.clone(),
    })));
}

fn record_repair(
    guard: &DriftGuard,
    release: &Release,
    object: &ObjectId,
    (repaired, fields, detail): (Repaired, Vec<RowChange>, &str),
) {
    let of = (&release.id, release.state.revision);
    guard.ledger.record(LedgerRow::repair(Timestamp::now(), of, object, repaired, fields, detail));
}

/// Logs the errors of a chart's annotations once.
fn log_annotation_errors(guard: &DriftGuard, report: &LoopReport) {
    let Some((object, flaw)) = report.flaws.first() else { return };
    if guard.cluster.state.report(&report.release).is_some_and(|before| before.flaws == report.flaws) {
        return;
    }
    tracing::warn!(
        release.id = %report.release, release.revision = report.records.revision, objects = report.flaws.len(),
        "invalid annotation in a chart has no effect: {object}: {flaw}"
    );
}

fn log_repair(release: &Release, object: &ObjectId, drift: &ObjectDrift, attempts: u32, is_whole: bool) {
    tracing::info!(
        release.id = %release.id, release.revision = release.state.revision, drift.object = %object,
        drift.kind = drift.kind.as_str(), drift.by = drift.by.as_deref().unwrap_or_default(), attempts,
        "{object} of Helm release {} {}{}",
        release.id,
        match drift.kind {
            DriftKind::Missing => "was missing and has been re-created",
            DriftKind::Ownership => "was owned by another field manager and is owned by Helm again",
            _ if is_whole => "was changed and has been repaired",
            _ => "was changed and has been repaired in part",
        },
        field_list(&drift.findings)
    );
}

/// Logs a drift that is not repaired.
fn log_report(release: &Release, object: &ObjectId, drift: &ObjectDrift) {
    let (id, reason) = (&release.id, kept_reason(drift));
    match drift.kind {
        DriftKind::Missing => tracing::warn!(
            release.id = %id, drift.object = %object,
            "{object} of Helm release {id} is missing and is not re-created: {reason}"
        ),
        _ => tracing::warn!(
            release.id = %id, drift.object = %object, drift.kind = drift.kind.as_str(),
            drift.by = drift.by.as_deref().unwrap_or_default(),
            "{object} does not match Helm release {id} and is not repaired: {reason}{}",
            field_list(&drift.findings)
        ),
    }
}

fn log_failure(release: &Release, object: &ObjectId, drift: &ObjectDrift) {
    let reason = drift.repaired.as_ref().and_then(|it| it.as_ref().err());
    tracing::warn!(
        release.id = %release.id, drift.object = %object, drift.kind = drift.kind.as_str(),
        "{object} of Helm release {} could not be repaired: {}",
        release.id, reason.map_or("", String::as_str)
    );
}

/// Logs that only a dry run could tell whether an object drifts.
fn log_doubt(release: &Release, object: &ObjectId, drift: &ObjectDrift) {
    tracing::warn!(
        release.id = %release.id, drift.object = %object,
        "{object} may not match Helm release {}, and only a dry run could tell: {}{}",
        release.id, kept_reason(drift), field_list(&drift.findings)
    );
}

/// Logs that a field manager undoes each repair.
fn log_contest(release: &Release, object: &ObjectId, drift: &ObjectDrift) {
    let by = drift.by.as_deref().unwrap_or("an unknown field manager");
    tracing::warn!(
        release.id = %release.id, drift.object = %object, drift.by = by,
        "{by} undoes each repair of {object} of Helm release {}; the guard backs off",
        release.id
    );
}

fn log_removal(release: &Release, object: &ObjectId) {
    tracing::info!(
        release.id = %release.id, drift.object = %object,
        "deleted {object} after re-creating it, because Helm release {} no longer declares it", release.id
    );
}

fn log_failed_removal(release: &Release, object: &ObjectId, error: &str) {
    tracing::warn!(
        release.id = %release.id, drift.object = %object,
        "failed to delete {object}, re-created although Helm release {} no longer declares it: {error}",
        release.id
    );
}

/// Logs that an object was re-created and that its release may no longer declare it.
fn log_unread(release: &Release, object: &ObjectId, error: &str) {
    tracing::warn!(
        release.id = %release.id,
        "{object} of Helm release {} was re-created, but the records cannot be re-read: {error}", release.id
    );
}

fn kept_reason(drift: &ObjectDrift) -> &str {
    drift.unrepaired_reason.as_deref().unwrap_or_default()
}

/// The findings as a list for the end of a sentence.
fn field_list(findings: &[FieldFinding]) -> String {
    let named: Vec<_> = findings.iter().take(8).map(message::live_field).collect();
    match (named.is_empty(), findings.len().saturating_sub(named.len())) {
        (true, _) => String::new(),
        (false, 0) => format!(": {}", named.join("; ")),
        (false, more) => format!(": {}; and {more} more", named.join("; ")),
    }
}

#[cfg(test)]
mod tests;
