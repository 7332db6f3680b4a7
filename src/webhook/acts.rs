//! What people tell the guard by their edits of a GuardedRelease.
//!
//! Entry point: [`acts`]. Invariant: an edit that changes nothing the guard obeys is
//! no act. Must not judge.

use serde_json::Value;

use crate::ledger::row::Act;

/// What the edit of a GuardedRelease from `old` to `new` tells the guard to do.
pub(super) fn acts(old: &Value, new: &Value) -> Vec<Act> {
    let at = |object: &Value| object.pointer("/spec/reconcileAt").cloned().unwrap_or_default();
    let is_suspended =
        |object: &Value| object.pointer("/spec/suspend").and_then(Value::as_bool) == Some(true);
    let steered = match (is_suspended(old), is_suspended(new)) {
        (false, true) => Some(Act::Suspend),
        (true, false) => Some(Act::Resume),
        _ => None,
    };
    let is_ordered = !at(new).is_null() && at(old) != at(new);
    steered.into_iter().chain(is_ordered.then_some(Act::Reconcile)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn edits_of_a_guarded_release_are_told_by_what_they_change() {
        let check = |old: Value, new: Value, expected: &[Act]| {
            assert_eq!(acts(&json!({"spec": old}), &json!({"spec": new})), expected);
        };
        check(json!({}), json!({"suspend": true}), &[Act::Suspend]);
        check(json!({"suspend": true}), json!({"suspend": true}), &[]);
        check(json!({"suspend": true}), json!({}), &[Act::Resume]);
        check(json!({"suspend": false}), json!({}), &[]);
        check(json!({}), json!({"reconcileAt": "now"}), &[Act::Reconcile]);
        check(json!({"reconcileAt": "now"}), json!({"reconcileAt": "now", "suspend": false}), &[]);
        check(json!({"reconcileAt": "now"}), json!({}), &[]);
        check(json!({"suspend": true}), json!({"reconcileAt": "now"}), &[Act::Resume, Act::Reconcile]);
        check(json!("odd"), json!(null), &[]);
    }
}
