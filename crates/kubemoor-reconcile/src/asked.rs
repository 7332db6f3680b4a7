//! Repairs that people have ordered and that are not finished, and the answers to these orders.
//!
//! Entry point: [`Asked`]. Invariant: one order repairs each object at most once, however long
//! other objects of its release keep it waiting, and an order from before another replica led is not
//! carried out: it comes again if nobody has answered it. Pure state.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_policy::guarded::{OrderAnswer, OrderResult};
use kubemoor_policy::order::Ticket;

/// The repairs that people have ordered, and the answers.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    orders: HashMap<ReleaseId, RepairOrder>,
    answers: HashMap<ReleaseId, Answered>,
    /// How often this replica has lost the lead.
    term: u64,
}

/// A repair order for one release.
#[derive(Clone, Debug)]
pub(crate) struct RepairOrder {
    /// The `spec.reconcileAt` of the order.
    pub(crate) at: String,
    /// The objects that could not be repaired at once; `None` if no object was tried yet.
    rest: Option<HashSet<ObjectId>>,
    /// The objects that were repaired.
    pub(crate) repaired: BTreeSet<ObjectId>,
    /// The objects that the person may write themself.
    pub(crate) ticket: Option<Arc<Ticket>>,
    /// The term in which it was given.
    term: u64,
}

/// The answer to an order.
#[derive(Debug)]
struct Answered {
    answer: OrderAnswer,
    /// The term in which the order was given.
    term: u64,
}

impl Asked {
    /// Whether an order has its final answer. A replica that becomes leader again receives an order
    /// once more if its answer was not stored.
    pub(crate) fn is_done(&self, release: &ReleaseId, at: &str) -> bool {
        let is_final =
            |Answered { answer, .. }: &Answered| answer.at == at && answer.result != OrderResult::Waiting;
        self.answers.get(release).is_some_and(is_final)
    }

    /// Records that an order was given again which has its final answer here: nobody else has answered it, so the answer
    /// counts.
    pub(crate) fn renew_answer(&mut self, release: &ReleaseId) {
        let answered = self.answers.get_mut(release).into_iter();
        answered.for_each(|answered| answered.term = self.term);
    }

    /// Records an order to repair a whole release.
    pub(crate) fn all_of(&mut self, release: ReleaseId, at: String, ticket: Option<Arc<Ticket>>) {
        if self.is_done(&release, &at) {
            return;
        }
        self.orders.insert(
            release,
            RepairOrder { at, rest: None, repaired: BTreeSet::new(), ticket, term: self.term },
        );
    }

    /// Drops all orders that are not finished: this replica does not lead any more, and another one may carry them
    /// out or refuse them.
    pub(crate) fn end_term(&mut self) {
        self.term = self.term.saturating_add(1);
        self.orders.clear();
    }

    /// The `spec.reconcileAt` of an order that is not finished yet.
    pub(crate) fn waits(&self, release: &ReleaseId) -> Option<String> {
        self.orders.get(release).map(|order| order.at.clone())
    }

    /// Answers an order that was not taken. After a final answer, the same order is not carried out again.
    pub(crate) fn answered(&mut self, release: &ReleaseId, answer: OrderAnswer) {
        self.answered_in(release, self.term, answer);
    }

    /// Answers an order that was taken, perhaps before another replica led.
    pub(crate) fn answered_by(&mut self, release: &ReleaseId, order: &RepairOrder, answer: OrderAnswer) {
        self.answered_in(release, order.term, answer);
    }

    /// The answer to the last order of a release. None to an order from before another replica led, which may have
    /// answered it, unless it was given again.
    pub(crate) fn answer(&self, release: &ReleaseId) -> Option<OrderAnswer> {
        let answered = self.answers.get(release).filter(|answered| answered.term == self.term)?;
        Some(answered.answer.clone())
    }

    /// Forgets a release that is gone.
    pub(crate) fn forget(&mut self, release: &ReleaseId) {
        self.orders.remove(release);
        self.answers.remove(release);
    }

    /// Whether this replica has led ever since an order was given. Otherwise another one may have answered it.
    pub(crate) fn is_current(&self, order: &RepairOrder) -> bool {
        order.term == self.term
    }

    /// Removes and returns the order for a release.
    pub(crate) fn take(&mut self, release: &ReleaseId) -> Option<RepairOrder> {
        self.orders.remove(release)
    }

    /// Puts back an order of this term of which nothing could be tried yet; a newer order takes precedence.
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

    fn answered_in(&mut self, release: &ReleaseId, term: u64, answer: OrderAnswer) {
        let is_given_again = self.orders.get(release).is_some_and(|order| order.at == answer.at);
        let is_final = answer.result != OrderResult::Waiting;
        if is_given_again && is_final {
            self.orders.remove(release);
        }
        let term = if is_given_again { self.term } else { term };
        self.answers.insert(release.clone(), Answered { answer, term });
    }
}

impl RepairOrder {
    /// Whether the order includes an object.
    pub(crate) fn means(&self, object: &ObjectId) -> bool {
        self.rest.as_ref().is_none_or(|rest| rest.contains(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_from_before_another_replica_led_is_not_carried_out() {
        let release = ReleaseId { namespace: "n".into(), name: "shop".into() };
        let mut asked = Asked::default();
        asked.all_of(release.clone(), "1".to_owned(), None);
        asked.end_term();
        assert!(asked.take(&release).is_none());
        // Nor is one that was under way.
        asked.all_of(release.clone(), "2".to_owned(), None);
        let order = asked.take(&release).unwrap();
        asked.end_term();
        asked.give_back(&release, order);
        assert!(asked.take(&release).is_none());
        // It is given again to whoever leads then.
        asked.all_of(release.clone(), "2".to_owned(), None);
        let order = asked.take(&release).unwrap();
        asked.give_back(&release, order);
        assert!(asked.take(&release).is_some());
    }

    #[test]
    fn answer_from_before_another_replica_led_counts_once_its_order_is_given_again() {
        let release = ReleaseId { namespace: "n".into(), name: "shop".into() };
        let answer = |result| OrderAnswer { at: "1".to_owned(), result, message: String::new() };
        // Never, after the answer, and while it is carried out.
        for given_again in [None, Some(false), Some(true)] {
            let mut asked = Asked::default();
            asked.all_of(release.clone(), "1".to_owned(), None);
            let order = asked.take(&release).unwrap();
            asked.end_term();
            if given_again == Some(true) {
                asked.all_of(release.clone(), "1".to_owned(), None);
            }
            asked.answered_by(&release, &order, answer(OrderResult::Repaired));
            assert!(asked.is_done(&release, "1") && asked.take(&release).is_none());
            if given_again == Some(false) {
                asked.renew_answer(&release);
            }
            assert_eq!(asked.answer(&release).is_some(), given_again.is_some(), "{given_again:?}");
        }
    }

    #[test]
    fn reconcile_request_stays_for_waiting_objects_until_a_new_request() {
        let object = |name: &str| ObjectId::namespaced("", "ConfigMap", "n", name);
        let release = ReleaseId { namespace: "n".into(), name: "shop".into() };
        let mut asked = Asked::default();
        assert!(asked.take(&release).is_none());
        asked.all_of(release.clone(), "1".to_owned(), None);
        assert_eq!(asked.waits(&release).as_deref(), Some("1"));
        let order = asked.take(&release).unwrap();
        assert!(order.means(&object("a")));
        asked.leave(&release, order, HashSet::from([object("b")]));
        let rest = asked.take(&release).unwrap();
        assert!(rest.means(&object("b")) && !rest.means(&object("a")));
        asked.leave(&release, rest.clone(), HashSet::new());
        assert!(asked.take(&release).is_none());
        // Asked for while the first was under way.
        asked.all_of(release.clone(), "2".to_owned(), None);
        asked.leave(&release, rest, HashSet::from([object("b")]));
        assert!(asked.take(&release).is_some_and(|order| order.at == "2" && order.means(&object("a"))));
    }

    #[test]
    fn an_order_that_is_told_again_is_the_same_order() {
        let release = ReleaseId { namespace: "n".into(), name: "shop".into() };
        let answer = |result| OrderAnswer { at: "1".to_owned(), result, message: String::new() };
        let tell = |asked: &mut Asked, at: &str| asked.all_of(release.clone(), at.to_owned(), None);
        let mut asked = Asked::default();
        tell(&mut asked, "1");
        let mut order = asked.take(&release).unwrap();
        order.rest = Some(HashSet::new());
        // While it is carried out, and while some of it waits.
        tell(&mut asked, "1");
        asked.answered(&release, answer(OrderResult::Waiting));
        asked.give_back(&release, order);
        assert!(asked.take(&release).is_some_and(|order| order.rest.is_some()));
        tell(&mut asked, "1");
        asked.answered(&release, answer(OrderResult::Repaired));
        assert!(asked.take(&release).is_none());
        // After it was answered.
        tell(&mut asked, "1");
        assert!(asked.take(&release).is_none());
        tell(&mut asked, "2");
        assert!(asked.take(&release).is_some());
    }
}
