//! The answers to repair orders.
//!
//! Entry point: [`answer`]. Invariant: every order gets an answer: which objects were repaired,
//! which have to wait, and which stay unchanged and why. Pure. Must not repair anything.

use kubemoor_declare::model::ObjectId;
use kubemoor_policy::guarded::{OrderAnswer, OrderResult};
use kubemoor_verdict::health::named;

/// The result of an order so far.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// How many objects were repaired.
    pub(crate) repaired: usize,
    /// The objects that have to wait, and why.
    pub(crate) waiting: Vec<(ObjectId, String)>,
    /// The objects that stay unchanged, and why.
    pub(crate) left: Vec<(ObjectId, String)>,
    /// Advice about the whole release, as a sentence.
    pub(crate) advice: Option<String>,
}

/// The answer to the order of `at`.
pub(crate) fn answer(at: &str, outcome: &Outcome) -> OrderAnswer {
    let Outcome { repaired, waiting, left, advice } = outcome;
    let told = |objects: &[(ObjectId, String)]| {
        named(objects.iter().map(|(object, why)| format!("{object}: {why}")))
    };
    let mut clauses = Vec::new();
    match (repaired, waiting.is_empty() && left.is_empty()) {
        (0, true) => clauses.push("nothing had to be repaired".to_owned()),
        (0, false) => {}
        (1, _) => clauses.push("1 object is repaired".to_owned()),
        (many, _) => clauses.push(format!("{many} objects are repaired")),
    }
    match waiting.len() {
        0 => {}
        1 => clauses.push(format!("1 object has to wait: {}", told(waiting))),
        many => clauses.push(format!("{many} objects have to wait: {}", told(waiting))),
    }
    match left.len() {
        0 => {}
        1 => clauses.push(format!("1 object stays as it is: {}", told(left))),
        many => clauses.push(format!("{many} objects stay as they are: {}", told(left))),
    }
    let result = match (repaired, waiting.is_empty(), left.is_empty()) {
        (_, false, _) => OrderResult::Waiting,
        (_, true, false) => OrderResult::Refused,
        (0, true, true) => OrderResult::NothingToDo,
        (_, true, true) => OrderResult::Repaired,
    };
    let message = clauses.join("; ") + &advice.as_ref().map_or_else(String::new, |it| format!(". {it}"));
    OrderAnswer { at: at.to_owned(), result, message }
}

/// The answer to an order that cannot be carried out, now or at all.
pub(crate) fn refusal(at: &str, result: OrderResult, message: String) -> OrderAnswer {
    OrderAnswer { at: at.to_owned(), result, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_says_what_was_done_and_what_was_not() {
        let object = |name: &str| ObjectId {
            group: "".into(),
            kind: "ConfigMap".into(),
            namespace: None,
            name: name.into(),
        };
        let some = |name: &str| vec![(object(name), "because".to_owned())];
        for (repaired, waiting, left, result, message) in [
            (0, vec![], vec![], OrderResult::NothingToDo, "nothing had to be repaired"),
            (1, vec![], vec![], OrderResult::Repaired, "1 object is repaired"),
            (
                2,
                vec![],
                some("a"),
                OrderResult::Refused,
                "2 objects are repaired; 1 object stays as it is: ConfigMap/a: because",
            ),
            (
                0,
                some("a"),
                some("b"),
                OrderResult::Waiting,
                "1 object has to wait: ConfigMap/a: because; 1 object stays as it is: ConfigMap/b: because",
            ),
        ] {
            let outcome = Outcome { repaired, waiting, left, advice: None };
            let given = answer("now", &outcome);
            assert_eq!((given.at.as_str(), given.result, given.message.as_str()), ("now", result, message));
        }
    }
}
