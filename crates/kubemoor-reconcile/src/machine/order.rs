//! The answers to repair orders.
//!
//! Entry points: `Reconciler::answer_at_once` before a pass, `answer` after it. Invariant: every
//! order gets an answer, even where no repair is allowed. Must not repair anything.

use std::collections::HashSet;

use super::super::answer::{Outcome, answer, refusal};
use super::super::asked::RepairOrder;
use super::super::drifts::Drift;
use super::super::report::DriftKind;
use super::Reconciler;
use super::repair::Towards;
use kubemoor_declare::model::{DriftMode, ObjectId};
use kubemoor_helm::release::Release;
use kubemoor_policy::guarded::OrderResult;
use kubemoor_verdict::health::{RecordFacts, RecordState};

impl Reconciler {
    /// Answers an order that cannot be carried out in the present state of its release, or at all.
    pub(super) fn answer_at_once(&mut self, release: &Release) {
        let id = &release.id;
        let Some(at) = self.asked.waits(id) else { return };
        let Some(policy) = self.known.policy(id) else { return };
        let RecordFacts { revision, deployed, state } =
            RecordFacts::of(release, policy.operation_timeout, self.now);
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
            RecordState::Failed | RecordState::Deployed if self.open => (
                OrderResult::Refused,
                "the emergency is open, so nothing is repaired until `kubemoor emergency close`".to_owned(),
            ),
            RecordState::Failed | RecordState::Deployed if policy.drift == DriftMode::Ignore => (
                OrderResult::Refused,
                "the policy says `drift: Ignore`, so the guard does not look at the objects".to_owned(),
            ),
            RecordState::Failed | RecordState::Deployed => return,
        };
        if result == OrderResult::Refused {
            self.asked.take(id);
        }
        self.asked.answered(id, refusal(&at, result, message));
    }

    /// Refuses an order for a release whose last operation failed and that has no repairable
    /// objects.
    pub(super) fn refuse(&mut self, release: &Release, order: &RepairOrder, why: &str) {
        let message = format!("nothing is repaired: {why}. {}", ways_out(release, None));
        self.asked.answered_by(&release.id, order, refusal(&order.at, OrderResult::Refused, message));
    }

    /// Answers such an order with "waiting", and keeps it, while the last deployed revision cannot
    /// be read.
    pub(super) fn postpone(&mut self, release: &Release, order: RepairOrder, why: &str) {
        let message = format!("the revision that was deployed last cannot be read yet: {why}");
        self.asked.answered_by(&release.id, &order, refusal(&order.at, OrderResult::Waiting, message));
        self.asked.give_back(&release.id, order);
    }

    /// Answers an order after a pass; the `unfinished` objects have to wait.
    pub(super) fn answer(
        &mut self,
        release: &Release,
        order: RepairOrder,
        unfinished: HashSet<ObjectId>,
        towards: Option<&Towards>,
    ) {
        let id = &release.id;
        let mut outcome = Outcome { repaired: order.repaired.len(), ..Outcome::default() };
        let mut waiting = unfinished.clone();
        let left = self.drifts.of(id).into_iter();
        for (object, drift) in left.filter(|(object, drift)| order.means(object) && !drift.allowed) {
            let is_waiting = waiting.remove(&object);
            let why = why(&object, &drift, towards);
            let object = ObjectId::clone(&object);
            if is_waiting { outcome.waiting.push((object, why)) } else { outcome.left.push((object, why)) }
        }
        let unread = waiting.into_iter().map(|object| (object, "it could not be read yet".to_owned()));
        outcome.waiting.extend(unread);
        outcome.waiting.sort();
        outcome.left.sort();
        outcome.advice = towards.map(|towards| ways_out(release, Some(towards.revision())));
        self.asked.answered_by(id, &order, answer(&order.at, &outcome));
        self.asked.leave(id, order, unfinished);
    }
}

/// Why an object is not repaired, or not yet.
fn why(object: &ObjectId, drift: &Drift, towards: Option<&Towards>) -> String {
    match (&drift.kept, &drift.repaired) {
        _ if towards.is_some_and(|towards| !towards.declares(object)) => {
            "only the failed revision declares it".to_owned()
        }
        (Some(kept), _) => kept.to_string(),
        (None, Some(Err(error))) => error.clone(),
        (None, _) if drift.doubt => "only a dry run could tell whether it matches".to_owned(),
        (None, _) if drift.kind == DriftKind::Terminating => "it is being deleted".to_owned(),
        (None, _) => "the guard tries again".to_owned(),
    }
}

/// The ways out of a release's failed state.
fn ways_out(release: &Release, deployed: Option<u64>) -> String {
    let (name, namespace) = (&release.id.name, &release.id.namespace);
    let back = deployed
        .map_or_else(String::new, |revision| format!(" or `helm rollback {name} {revision} -n {namespace}`"));
    format!(
        "The release stays failed until `helm upgrade {name} CHART -n {namespace}`{back}; add `--force-conflicts` if Helm reports a conflict"
    )
}
