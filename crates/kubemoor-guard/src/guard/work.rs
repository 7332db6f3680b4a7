//! Carries out one piece of work for the loop: one request to the API server, or one write.
//!
//! Entry point: [`carry_out`]. Invariant: carries out exactly the requested work; a write respects
//! the rate limit and needs the lead, and every outcome is returned. Must not try again, or decide
//! whether to.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::{Guard, News};
use kubemoor_cluster::client::call::{CallError, RefusalKind};
use kubemoor_cluster::client::objects::Target;
use kubemoor_cluster::mirror::arbiter::Question;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_reconcile::event::{Document, Failure, Fault, Outcome, Secret, Work, WorkId, Write};

/// How long a look at the records may take.
const LOOK: Duration = Duration::from_secs(10);

/// Carries out a piece of work for a release, and returns the outcome.
pub(super) async fn carry_out(guard: &Guard, errand: WorkId, release: &ReleaseId, work: Work) -> News {
    let done = match work {
        Work::ReadRecords { release } => match guard.releases.fresh(&release, LOOK).await {
            Ok(_) => return News::Records(errand, release),
            Err(error) => Err(Failure::unanswered(&error.to_string())),
        },
        Work::ReadObject { object, version } => read(guard, &object, &version).await,
        Work::ReadDocument { revision, object } => document(guard, release, revision, &object).await,
        Work::ReadNamespace { name } => namespace(guard, name).await,
        Work::ReadDefinition { object } => definition(guard, &object).await,
        Work::Ask { object, uid, revision, digest } => {
            let question = Question { object, uid, release: release.clone(), revision, digest };
            ask(guard, &question).await
        }
        Work::Probe { object, version, document } => probe(guard, &object, &version, document).await,
        Work::Write { object, version, write } => match target(guard, &object, &version) {
            Ok(target) => self::write(guard, &target, write).await,
            Err(failure) => Err(failure),
        },
    };
    News::Outcome(errand, done.unwrap_or_else(Outcome::Failed))
}

/// The kind of failure of a call without a usable answer.
pub(super) fn fault(error: &CallError) -> Fault {
    match error {
        CallError::Unserved => Fault::Unserved,
        error if error.is_forbidden() => Fault::Forbidden,
        _ => Fault::Unanswered,
    }
}

fn target(guard: &Guard, object: &ObjectId, version: &str) -> Result<Target, Failure> {
    let unserved = || Failure { fault: Fault::Unserved, message: CallError::Unserved.to_string() };
    guard.kinds.target(object, version).ok_or_else(unserved)
}

async fn read(guard: &Guard, object: &ObjectId, version: &str) -> Result<Outcome, Failure> {
    let target = target(guard, object, version)?;
    let live = guard.objects.read(&target).await.map_err(of_call)?;
    Ok(Outcome::Object { live: live.map(Box::new), version: target.resource.version })
}

async fn document(
    guard: &Guard,
    release: &ReleaseId,
    revision: u64,
    object: &ObjectId,
) -> Result<Outcome, Failure> {
    let document = guard.releases.document(release, revision, object, LOOK).await;
    let document = document.map_err(|error| Failure {
        fault: match error {
            CallError::NoRecord { .. } | CallError::Unbelievable { .. } => Fault::NoRecord,
            _ => Fault::Unanswered,
        },
        message: error.to_string(),
    })?;
    Ok(Outcome::Document(Document {
        status: document.status,
        apply_method: document.apply_method,
        digest: document.digest,
        object: document.object.map(Secret),
    }))
}

async fn namespace(guard: &Guard, name: String) -> Result<Outcome, Failure> {
    let deleting = is_being_deleted(guard, "", "Namespace", name).await?;
    Ok(Outcome::Namespace { deleting })
}

async fn definition(guard: &Guard, object: &ObjectId) -> Result<Outcome, Failure> {
    let plural = target(guard, object, "")?.resource.plural;
    let name = format!("{plural}.{}", object.group);
    let deleting = is_being_deleted(guard, "apiextensions.k8s.io", "CustomResourceDefinition", name).await?;
    Ok(Outcome::Definition { deleting })
}

async fn is_being_deleted(guard: &Guard, group: &str, kind: &str, name: String) -> Result<bool, Failure> {
    let object = ObjectId { group: group.into(), kind: kind.into(), namespace: None, name: name.into() };
    let sighting = guard.objects.sight(&target(guard, &object, "v1")?).await.map_err(of_call)?;
    Ok(sighting.is_some_and(|sighting| sighting.deleting))
}

async fn ask(guard: &Guard, question: &Question) -> Result<Outcome, Failure> {
    let Some(arbiter) = &guard.arbiter else { return Err(Failure::unanswered("nobody may be asked")) };
    match arbiter.canonical(question, LOOK).await {
        Ok(canonical) => Ok(Outcome::Canonical(Arc::new(Secret((*canonical).clone())))),
        Err(error) => {
            let error = arbiter.cause(question, error, LOOK).await;
            let fault = match &error {
                CallError::Obstructed { .. } => Fault::Obstructed,
                error if error.is_refusal() => Fault::Refused,
                _ => Fault::Unanswered,
            };
            Err(Failure { fault, message: error.to_string() })
        }
    }
}

async fn probe(
    guard: &Guard,
    object: &ObjectId,
    version: &str,
    Secret(document): Secret,
) -> Result<Outcome, Failure> {
    let target = target(guard, object, version)?;
    guard.objects.dry_run_create(&target, &document).await.map_err(of_write)?;
    Ok(Outcome::Written(Secret(Value::Null)))
}

async fn write(guard: &Guard, target: &Target, write: Write) -> Result<Outcome, Failure> {
    let objects = &guard.objects;
    let written = match write {
        Write::Create { document, manager } => objects.create(target, &document.0, &manager).await,
        Write::Apply { document, manager } => objects.apply(target, &document.0, &manager, true).await,
        Write::Merge { patch, manager } => objects.merge(target, &patch.0, &manager).await,
        Write::Delete { uid } => objects.delete(target, &uid).await.map(|()| Value::Null),
    };
    written.map(|now| Outcome::Written(Secret(now))).map_err(of_write)
}

fn of_call(error: CallError) -> Failure {
    Failure { fault: fault(&error), message: error.to_string() }
}

fn of_write(error: CallError) -> Failure {
    let message = error.to_string();
    let fault = match (error.refusal(), error) {
        (Some(RefusalKind::NotFound), _) => Fault::NotFound,
        (Some(RefusalKind::AlreadyExists), _) => Fault::AlreadyExists,
        (Some(RefusalKind::Conflict), _) => Fault::Conflict,
        (Some(RefusalKind::Forbidden), _) => Fault::Forbidden,
        (Some(RefusalKind::Terminating), _) => Fault::Terminating,
        (_, CallError::Refused { code: 422, message, causes, .. }) => {
            Fault::Invalid { said: message, causes }
        }
        (_, CallError::NotLeading) => Fault::NotLeading,
        (_, CallError::Unserved) => Fault::Unserved,
        _ => Fault::Unanswered,
    };
    Failure { fault, message }
}
