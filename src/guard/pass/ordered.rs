//! What an order of a repair comes to.
//!
//! Entry points: [`answer_at_once`] before anything is done, [`carried_out`] after it.
//! Invariant: every order is answered, also where nothing may be done. Must not repair
//! anything but the ownership of fields after an operation that failed.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::super::Shared;
use super::super::repair::{Task, Towards};
use crate::helm::release::Release;
use crate::model::{DriftMode, ObjectId};
use crate::policy::guarded::OrderResult;
use crate::reconcile::answer::{Outcome, answer, refusal};
use crate::reconcile::asked::Wish;
use crate::reconcile::drifts::Drift;
use crate::reconcile::report::DriftKind;
use crate::verdict::health::{RecordFacts, RecordState};

/// Answers an order that the state of its release lets nobody carry out, now or at all.
pub(super) fn answer_at_once(shared: &Shared, release: &Release) {
    let id = &release.id;
    let Some(at) = shared.asked.lock().waits(id) else { return };
    let policy = shared.guard.book.of(id);
    let RecordFacts { revision, deployed, state } =
        RecordFacts::of(release, policy.operation_timeout, Timestamp::now());
    let (name, namespace) = (&id.name, &id.namespace);
    let (result, message) = match state {
        RecordState::Underway => (
            OrderResult::Waiting,
            format!(
                "a Helm operation is under way at revision {revision}; the guard carries the order out when it ends"
            ),
        ),
        RecordState::Locked => (
            OrderResult::Refused,
            format!(
                "a Helm operation has been under way for too long at revision {revision}; `helm rollback {name} -n {namespace}` ends it"
            ),
        ),
        RecordState::Invalid => (
            OrderResult::Refused,
            "the latest record of the release cannot be read, so nothing is repaired".to_owned(),
        ),
        RecordState::Gone => (OrderResult::Refused, "the release is uninstalled".to_owned()),
        RecordState::Failed if deployed.is_none() => (
            OrderResult::Refused,
            format!(
                "the installation failed, and no revision was ever deployed to repair towards; run `helm upgrade --install {name} CHART -n {namespace}`, or `helm uninstall {name} -n {namespace}`"
            ),
        ),
        RecordState::Failed | RecordState::Deployed if shared.guard.book.is_open() => (
            OrderResult::Refused,
            "the emergency switch is off, so nothing is repaired until `kubemoor emergency on`".to_owned(),
        ),
        RecordState::Failed | RecordState::Deployed if policy.drift == DriftMode::Ignore => (
            OrderResult::Refused,
            "the policy says `drift: Ignore`, so the guard does not look at the objects".to_owned(),
        ),
        RecordState::Failed | RecordState::Deployed => return,
    };
    let mut asked = shared.asked.lock();
    if result == OrderResult::Refused {
        asked.take(id);
    }
    asked.answered(id, refusal(&at, result, message));
}

/// Answers an order of a release whose last operation failed and of which nothing can be
/// repaired.
pub(super) fn refuse(shared: &Shared, release: &Release, at: &str, why: &str) {
    let message = format!("nothing is repaired: {why}. {}", ways_out(release, None));
    shared.asked.lock().answered(&release.id, refusal(at, OrderResult::Refused, message));
}

/// Answers an order of such a release while nobody knows what it led back to, and keeps it.
pub(super) fn postpone(shared: &Shared, release: &Release, wish: Wish, why: &str) {
    let message = format!("the revision that was deployed last cannot be read yet: {why}");
    let mut asked = shared.asked.lock();
    asked.answered(&release.id, refusal(&wish.at, OrderResult::Waiting, message));
    asked.give_back(&release.id, wish);
}

/// Answers an order after its release was gone through; what is `unfinished` waits.
pub(super) async fn carried_out(
    shared: &Arc<Shared>,
    release: &Arc<Release>,
    mut wish: Wish,
    unfinished: HashSet<ObjectId>,
    towards: Option<&Towards>,
) {
    let id = &release.id;
    let left: Vec<(ObjectId, Drift)> = shared.drifts.lock().of(id);
    if let Some(towards) = towards {
        let is_free = |object: &ObjectId| left.iter().all(|(other, _)| other != object);
        let objects = towards.objects().into_iter().filter(|it| wish.means(it) && is_free(it));
        for object in objects.collect::<Vec<_>>() {
            let task =
                Task { shared, id, object: &object, asked: true, ticket: None, towards: Some(towards) };
            if shared.leads() && task.return_ownership().await {
                wish.repaired.insert(object);
            }
        }
    }
    let mut outcome = Outcome { repaired: wish.repaired.len(), ..Outcome::default() };
    let mut waiting = unfinished.clone();
    for (object, drift) in left.into_iter().filter(|(object, drift)| wish.means(object) && !drift.allowed) {
        let is_waiting = waiting.remove(&object);
        let why = why(&object, &drift, towards);
        if is_waiting { outcome.waiting.push((object, why)) } else { outcome.left.push((object, why)) }
    }
    outcome.waiting.extend(waiting.into_iter().map(|object| (object, "it could not be read yet".to_owned())));
    outcome.waiting.sort();
    outcome.left.sort();
    outcome.advice = towards.map(|towards| ways_out(release, Some(towards.revision())));
    let mut asked = shared.asked.lock();
    asked.answered(id, answer(&wish.at, &outcome));
    asked.leave(id, wish, unfinished);
}

/// Why an object is not repaired, or not yet.
fn why(object: &ObjectId, drift: &Drift, towards: Option<&Towards>) -> String {
    match (&drift.kept, &drift.repaired) {
        _ if towards.is_some_and(|towards| !towards.declares(object)) => {
            "only the failed revision declares it".to_owned()
        }
        (Some(kept), _) => kept.clone(),
        (None, Some(Err(error))) => error.clone(),
        (None, _) if drift.doubt => "only a dry run could tell whether it matches".to_owned(),
        (None, _) if drift.kind == DriftKind::Terminating => "it is being deleted".to_owned(),
        (None, _) => "the guard tries again".to_owned(),
    }
}

/// How a release gets out of its failed state.
fn ways_out(release: &Release, deployed: Option<u64>) -> String {
    let (name, namespace) = (&release.id.name, &release.id.namespace);
    let back = deployed
        .map_or_else(String::new, |revision| format!(" or `helm rollback {name} {revision} -n {namespace}`"));
    format!(
        "The release stays failed until `helm upgrade {name} CHART -n {namespace}`{back}; add `--force-conflicts` if Helm reports a conflict"
    )
}
