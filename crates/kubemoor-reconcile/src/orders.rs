//! Repair orders of users, and the answers to them.
//!
//! One order repairs each object at most once, even if other objects of its release take longer. Orders are dropped
//! when this replica loses leadership: an order without an answer is given again.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_policy::guarded::{OrderAnswer, OrderResult};
use kubemoor_policy::signing::Ticket;
use kubemoor_verdict::health::named;

#[derive(Debug, Default)]
pub(crate) struct RepairOrders {
    orders: HashMap<ReleaseId, RepairOrder>,
    /// Each with the term in which its order was given.
    answers: HashMap<ReleaseId, (u64, OrderAnswer)>,
    /// How often this replica has lost leadership.
    term: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct RepairOrder {
    pub(crate) at: String,
    /// The objects that could not be repaired at once; `None` if no object was tried yet.
    rest: Option<HashSet<ObjectId>>,
    pub(crate) repaired: BTreeSet<ObjectId>,
    /// The objects that the user has permission to write.
    pub(crate) ticket: Option<Arc<Ticket>>,
    /// The term in which it was given.
    term: u64,
}

impl RepairOrders {
    /// Whether an order has its final answer. A replica that becomes leader again receives an order once more if its
    /// answer was not stored.
    pub(crate) fn is_done(&self, release: &ReleaseId, at: &str) -> bool {
        let answer = self.answers.get(release).map(|(_, answer)| answer);
        answer.is_some_and(|answer| answer.at == at && answer.result != OrderResult::Waiting)
    }

    /// Makes the final answer to an order valid in this term: the order was given again, so no other replica has
    /// answered it.
    pub(crate) fn renew_answer(&mut self, release: &ReleaseId) {
        if let Some((term, _)) = self.answers.get_mut(release) {
            *term = self.term;
        }
    }

    pub(crate) fn add_order(&mut self, release: ReleaseId, at: String, ticket: Option<Arc<Ticket>>) {
        if self.is_done(&release, &at) {
            return;
        }
        self.orders.insert(
            release,
            RepairOrder { at, rest: None, repaired: BTreeSet::new(), ticket, term: self.term },
        );
    }

    /// Drops all unfinished orders: this replica is no longer the leader, and another one may carry them out or refuse
    /// them.
    pub(crate) fn end_term(&mut self) {
        self.term = self.term.saturating_add(1);
        self.orders.clear();
    }

    /// The `spec.reconcileAt` of an order that is not finished yet.
    pub(crate) fn waits(&self, release: &ReleaseId) -> Option<String> {
        self.orders.get(release).map(|order| order.at.clone())
    }

    /// Answers an order: one that was taken, perhaps in an earlier term, or (`None`) one that waits. After a final
    /// answer, the same order is not carried out again.
    pub(crate) fn set_answer(
        &mut self,
        release: &ReleaseId,
        order: Option<&RepairOrder>,
        answer: OrderAnswer,
    ) {
        let is_given_again = self.orders.get(release).is_some_and(|order| order.at == answer.at);
        if is_given_again && answer.result != OrderResult::Waiting {
            self.orders.remove(release);
        }
        let term = order.filter(|_| !is_given_again).map_or(self.term, |order| order.term);
        self.answers.insert(release.clone(), (term, answer));
    }

    /// The answer to the last order of a release. `None` if the order is from an earlier term and was not given again:
    /// another replica may have answered it.
    pub(crate) fn answer(&self, release: &ReleaseId) -> Option<OrderAnswer> {
        let (_, answer) = self.answers.get(release).filter(|(term, _)| *term == self.term)?;
        Some(answer.clone())
    }

    pub(crate) fn forget(&mut self, release: &ReleaseId) {
        self.orders.remove(release);
        self.answers.remove(release);
    }

    /// Whether this replica has been the leader since an order was given. Otherwise another one may have answered it.
    pub(crate) fn is_current(&self, order: &RepairOrder) -> bool {
        order.term == self.term
    }

    pub(crate) fn take(&mut self, release: &ReleaseId) -> Option<RepairOrder> {
        self.orders.remove(release)
    }

    /// Puts back an unfinished order of this term; a newer order takes precedence.
    pub(crate) fn give_back(&mut self, release: &ReleaseId, order: RepairOrder) {
        if self.is_current(&order) && self.orders.get(release).is_none_or(|other| other.at == order.at) {
            self.orders.insert(release.clone(), order);
        }
    }

    /// Keeps the objects of an order that are not repaired yet, unless there is a newer order.
    pub(crate) fn leave(&mut self, release: &ReleaseId, order: RepairOrder, rest: HashSet<ObjectId>) {
        if !rest.is_empty() {
            self.give_back(release, RepairOrder { rest: Some(rest), ..order });
        }
    }
}

impl RepairOrder {
    pub(crate) fn includes(&self, object: &ObjectId) -> bool {
        self.rest.as_ref().is_none_or(|rest| rest.contains(object))
    }
}

/// Objects that an order has not repaired, and why.
type Unrepaired = [(ObjectId, String)];

/// The answer to the order of `at`: how many objects are repaired, which ones wait or are left unchanged, and a
/// sentence of advice about the whole release.
pub(crate) fn answer(
    at: &str,
    repaired: usize,
    waiting: &Unrepaired,
    left: &Unrepaired,
    advice: Option<&str>,
) -> OrderAnswer {
    let clause = |count: usize, one: &str, many: &str| match count {
        1 => format!("1 object {one}"),
        _ => format!("{count} objects {many}"),
    };
    let told = |objects: &Unrepaired| named(objects.iter().map(|(object, why)| format!("{object}: {why}")));
    let mut clauses = Vec::new();
    if repaired > 0 {
        clauses.push(clause(repaired, "is repaired", "are repaired"));
    }
    if !waiting.is_empty() {
        clauses.push(clause(waiting.len(), "has to wait: ", "have to wait: ") + &told(waiting));
    }
    if !left.is_empty() {
        clauses.push(clause(left.len(), "stays as it is: ", "stay as they are: ") + &told(left));
    }
    let result = match (repaired, waiting.is_empty(), left.is_empty()) {
        (_, false, _) => OrderResult::Waiting,
        (_, true, false) => OrderResult::Refused,
        (0, true, true) => OrderResult::NothingToDo,
        (_, true, true) => OrderResult::Repaired,
    };
    let message = match result {
        OrderResult::NothingToDo => "nothing had to be repaired".to_owned(),
        _ => clauses.join("; "),
    };
    let advice = advice.map_or_else(String::new, |advice| format!(". {advice}"));
    OrderAnswer { at: at.to_owned(), result, message: message + &advice }
}

#[cfg(test)]
mod tests;
