//! Re-creates what a release misses, as Helm itself would write it.
//!
//! Entry point: [`pass`]. Invariant: the object is looked for first, then the
//! record is read, then the object is written: a record read before could be
//! one that Helm has left behind since. What Helm dropped meanwhile is taken
//! back by its uid. Helm's own manager and apply method, or the next upgrade
//! meets a conflict.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use super::Shared;
use super::backoff::Backoff;
use super::missing::{Gone, Seen};
use super::plan::{Plan, never, plan};
use crate::cluster::objects::{Target, WriteError};
use crate::helm::record::{ApplyMethod, Status};
use crate::helm::state::{self, Deletion};
use crate::ledger::row::Repaired;
use crate::metrics::Recreation;
use crate::model::{ObjectId, ReleaseId};

/// More missing objects than this, and than [`BRAKE_SHARE`], stop repairs.
const BRAKE: usize = 10;

/// The share of all declared objects, as a divisor: a tenth.
const BRAKE_SHARE: usize = 10;

/// How long a failed attempt waits for the next.
const RETRY: Duration = Duration::from_secs(5);

/// When an object is looked at again whose release moved on meanwhile.
const AGAIN: Duration = Duration::from_millis(100);

/// How often the records are looked at after a write whose look failed.
const SECOND_LOOKS: usize = 3;

/// How long a look at the records may take.
const LOOK: Duration = Duration::from_secs(10);

/// Helm's field manager where the object's own history does not tell: the name
/// of its program.
const HELM: &str = "helm";

/// What repairs remember.
#[derive(Default)]
pub(super) struct Repairer {
    backoff: Mutex<Backoff>,
    /// Whether the brake was on when last looked.
    braked: Mutex<bool>,
}

/// What became of one object.
enum Done {
    /// There is nothing left to do.
    Settled,
    /// Another pass after this time.
    Later(Duration),
}

/// Works on all that `release` misses, one object after the other in Helm's
/// order. Gives the time after which to look again, if any.
pub(super) async fn pass(shared: &Shared, release: &ReleaseId) -> Option<Duration> {
    let mut gone = shared.missing.lock().of(release);
    let current = shared.guard.releases.index().read().release(release).cloned()?;
    gone.retain(|(object, _)| current.declared(object).is_some());
    let order = install_order();
    gone.sort_by_key(|(object, _)| {
        (order.get(object.kind.as_str()).copied().unwrap_or(usize::MAX), object.clone())
    });
    let mut again: Option<Duration> = None;
    for (object, gone) in gone {
        if shared.stop.is_cancelled() {
            return None;
        }
        if let Done::Later(delay) = attempt(shared, release, &object, &gone).await {
            again = Some(again.map_or(delay, |again| again.min(delay)));
        }
    }
    again
}

async fn attempt(shared: &Shared, id: &ReleaseId, object: &ObjectId, gone: &Gone) -> Done {
    let Some(release) = shared.guard.releases.index().read().release(id).cloned() else {
        return Done::Settled;
    };
    let first = shared.missing.lock().first_digest(id, release.state.revision);
    match plan(&release, object, gone.seen.as_ref(), first, &shared.guard.book.of(id), Timestamp::now()) {
        Plan::Wait => Done::Settled,
        Plan::Hold(left) => Done::Later(Duration::try_from(left).unwrap_or(RETRY)),
        Plan::Report(reason) => confirm_and_report(shared, id, object, reason).await,
        Plan::Recreate => {
            let Some(seen) = &gone.seen else { return Done::Settled };
            if braked(shared) {
                return Done::Later(RETRY);
            }
            let now = Instant::now();
            if let Some(wait) = shared.repairer.backoff.lock().until(object, now) {
                return Done::Later(wait);
            }
            recreate(shared, id, object, seen, gone.since).await
        }
    }
}

/// Says once that an object is missing and stays so.
async fn confirm_and_report(shared: &Shared, id: &ReleaseId, object: &ObjectId, reason: &str) -> Done {
    match target(shared, id, object) {
        Some(target) => match shared.guard.objects.sight(&target).await {
            Ok(Some(sighting)) => {
                shared.missing.lock().lives(sighting);
                return Done::Settled;
            }
            Ok(None) => {}
            Err(_) => return Done::Later(RETRY),
        },
        None => return Done::Later(RETRY),
    }
    if shared.missing.lock().report(id, object) {
        shared.guard.metrics.missing();
        shared.guard.metrics.recreated(Recreation::Reported);
        shared.keep(id, object, Repaired::Reported, reason);
        tracing::warn!(
            release.id = %id, drift.object = %object,
            "{object}, which Helm release {id} declares, is missing and is not re-created: {reason}"
        );
    }
    Done::Settled
}

async fn recreate(shared: &Shared, id: &ReleaseId, object: &ObjectId, seen: &Seen, since: Instant) -> Done {
    let Some(target) = target(shared, id, object) else { return Done::Later(RETRY) };
    match shared.guard.objects.sight(&target).await {
        Ok(Some(sighting)) => {
            // Terminating objects are left alone; their end is an event.
            shared.guard.metrics.recreated(Recreation::Present);
            shared.missing.lock().lives(sighting);
            return Done::Settled;
        }
        Ok(None) => {}
        Err(error) => return failed(shared, id, object, &error.to_string()),
    }
    // The records are read after the object: what they say now is what counts.
    if let Err(error) = shared.guard.releases.fresh(id, LOOK).await {
        return failed(shared, id, object, &error.to_string());
    }
    let Some(release) = shared.guard.releases.index().read().release(id).cloned() else {
        return Done::Settled;
    };
    let first = shared.missing.lock().first_digest(id, release.state.revision);
    let still = plan(&release, object, Some(seen), first, &shared.guard.book.of(id), Timestamp::now());
    if still != Plan::Recreate {
        return Done::Later(AGAIN);
    }
    let revision = release.state.revision;
    let documents = match shared.guard.releases.documents(id, revision, LOOK).await {
        Ok(documents) => documents,
        Err(error) => return failed(shared, id, object, &error.to_string()),
    };
    // Of two documents of one object Helm applies the last one last.
    let document = documents.objects.iter().rev().find(|(declared, _)| declared == object);
    let Some((_, document)) = document.filter(|_| documents.status == Status::Deployed) else {
        return Done::Later(AGAIN);
    };
    let attempts = shared.repairer.backoff.lock().attempt(object, Instant::now());
    shared.guard.metrics.missing();
    match write(shared, &target, document, documents.apply_method, seen).await {
        Ok(created) => {
            let uid = created.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
            shared.guard.metrics.recreated(Recreation::Created);
            shared.keep(id, object, Repaired::Recreated, "");
            shared.guard.metrics.back_after(since.elapsed());
            shared.missing.lock().forget(id, object);
            tracing::info!(
                release.id = %id, release.revision = revision, drift.object = %object, attempts,
                "{object}, which Helm release {id} declares, was missing and is re-created"
            );
            take_back_if_dropped(shared, id, object, &target, uid).await
        }
        Err(WriteError::AlreadyExists { .. }) => {
            shared.guard.metrics.recreated(Recreation::Present);
            shared.missing.lock().forget(id, object);
            Done::Settled
        }
        // The namespace takes everything along; nothing comes back into it.
        Err(WriteError::Terminating { .. }) => Done::Later(RETRY),
        Err(error) => failed(shared, id, object, &error.to_string()),
    }
}

async fn write(
    shared: &Shared,
    target: &Target,
    document: &Value,
    apply_method: ApplyMethod,
    seen: &Seen,
) -> Result<Value, WriteError> {
    let applies = apply_method == ApplyMethod::ServerSide;
    let manager = seen.managers.iter().find(|manager| manager.applies == applies);
    let manager = manager.or(seen.managers.first()).map_or(HELM, |manager| manager.name.as_str());
    if applies {
        shared.guard.objects.apply(target, document, manager, true).await
    } else {
        shared.guard.objects.create(target, document, manager).await
    }
}

/// Looks at the records once more after the write: Helm may have dropped the
/// object, or begun to uninstall it, while it was written.
async fn take_back_if_dropped(
    shared: &Shared,
    id: &ReleaseId,
    object: &ObjectId,
    target: &Target,
    uid: &str,
) -> Done {
    let mut looked = shared.guard.releases.fresh(id, LOOK).await;
    for _ in 0..SECOND_LOOKS {
        if looked.is_ok() {
            break;
        }
        looked = shared.guard.releases.fresh(id, LOOK).await;
    }
    if let Err(error) = looked {
        tracing::warn!(release.id = %id, "{object} was re-created, and the records cannot be read again: {error}");
        return Done::Settled;
    }
    let release = shared.guard.releases.index().read().release(id).cloned();
    let timeout = shared.guard.book.of(id).operation_timeout;
    let wanted = release.as_deref().is_some_and(|release| {
        state::standing(release, object, timeout, Timestamp::now())
            .is_some_and(|standing| !matches!(standing.deletion, Deletion::Dropped | Deletion::Uninstalled))
    });
    if wanted || uid.is_empty() {
        return Done::Settled;
    }
    match shared.guard.objects.delete(target, uid).await {
        Ok(()) => {
            shared.guard.metrics.recreated(Recreation::TakenBack);
            shared.keep(id, object, Repaired::TakenBack, "");
            tracing::info!(release.id = %id, drift.object = %object, "{object} is taken back: its release dropped it");
        }
        Err(WriteError::NotFound { .. } | WriteError::Conflict { .. }) => {}
        Err(error) => {
            tracing::warn!(
                release.id = %id, drift.object = %object,
                "{object} was re-created, its release dropped it meanwhile, and it cannot be taken back: {error}"
            );
        }
    }
    Done::Settled
}

fn failed(shared: &Shared, id: &ReleaseId, object: &ObjectId, reason: &str) -> Done {
    shared.guard.metrics.recreated(Recreation::Failed);
    shared.keep(id, object, Repaired::Failed, reason);
    let wait = {
        let mut backoff = shared.repairer.backoff.lock();
        backoff.attempt(object, Instant::now());
        backoff.until(object, Instant::now()).unwrap_or(RETRY)
    };
    tracing::warn!(
        release.id = %id, drift.object = %object,
        "{object}, which Helm release {id} declares, is missing and could not be re-created: {reason}"
    );
    Done::Later(wait)
}

/// Whether so much is missing at once that repairs stop: somebody is at work on
/// the whole cluster, or the guard is wrong.
fn braked(shared: &Shared) -> bool {
    let (missing, declared) = {
        let index = shared.guard.releases.index().read();
        // What an operation of Helm's takes away, or never comes back, is not missed.
        let in_force = |id: &ReleaseId, object: &ObjectId| {
            index.release(id).is_some_and(|release| {
                release.state.status == Status::Deployed
                    && release.declared(object).is_some()
                    && never(release, object).is_none()
            })
        };
        (shared.missing.lock().count(in_force), index.objects())
    };
    let braked = missing > BRAKE && missing.saturating_mul(BRAKE_SHARE) > declared;
    let was = std::mem::replace(&mut *shared.repairer.braked.lock(), braked);
    if braked && !was {
        tracing::error!(
            "{missing} of {declared} declared objects are missing at once: repairs stop until most of them are back"
        );
    }
    braked
}

fn target(shared: &Shared, id: &ReleaseId, object: &ObjectId) -> Option<Target> {
    let release = shared.guard.releases.index().read().release(id).cloned()?;
    let declared = release.declared(object)?;
    shared.guard.kinds.target(object, &declared.version)
}

/// Where each kind stands in Helm's order of installation.
fn install_order() -> HashMap<&'static str, usize> {
    const ORDER: [&str; 36] = [
        "PriorityClass",
        "Namespace",
        "NetworkPolicy",
        "ResourceQuota",
        "LimitRange",
        "PodSecurityPolicy",
        "PodDisruptionBudget",
        "ServiceAccount",
        "Secret",
        "SecretList",
        "ConfigMap",
        "StorageClass",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "CustomResourceDefinition",
        "ClusterRole",
        "ClusterRoleList",
        "ClusterRoleBinding",
        "ClusterRoleBindingList",
        "Role",
        "RoleList",
        "RoleBinding",
        "RoleBindingList",
        "Service",
        "DaemonSet",
        "Pod",
        "ReplicationController",
        "ReplicaSet",
        "Deployment",
        "HorizontalPodAutoscaler",
        "StatefulSet",
        "Job",
        "CronJob",
        "IngressClass",
        "Ingress",
        "APIService",
    ];
    ORDER.iter().enumerate().map(|(place, kind)| (*kind, place)).collect()
}
