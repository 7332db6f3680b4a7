//! The commands that users give the guard by edits of a GuardedRelease.
//!
//! Entry point: [`acts`]. Invariant: only a change of a field that the guard obeys is an act.
//! Must not judge.

use serde_json::Value;

use kubemoor_ledger::row::Act;

/// The commands in an edit of a GuardedRelease from `old` to `new`, each with its description.
/// `old` is null for a creation, `new` for a deletion.
pub(super) fn acts(old: &Value, new: &Value) -> Vec<(Act, String)> {
    let at = |object: &Value| object.pointer("/spec/reconcileAt").cloned().unwrap_or_default();
    let steered = match (suspension(old), suspension(new)) {
        (before, Some(now)) if before.as_ref() != Some(&now) => Some((Act::Suspend, now)),
        (Some(_), None) => Some((Act::Resume, String::new())),
        _ => None,
    };
    let is_ordered = !at(new).is_null() && at(old) != at(new);
    let ordered = is_ordered.then(|| (Act::Reconcile, String::new()));
    steered.into_iter().chain(ordered).collect()
}

/// The end and the reason of a suspension, as far as they are given; `None` if repairs are not
/// suspended.
fn suspension(object: &Value) -> Option<String> {
    let spec = object.get("spec")?;
    let text = |field: &str| spec.get(field).and_then(Value::as_str);
    let until = text("suspendUntil").map(|until| format!("until {until}"));
    let parts = [until.as_deref(), text("suspendReason")];
    spec.get("suspend")?.as_bool()?.then(|| parts.into_iter().flatten().collect::<Vec<_>>().join(": "))
}

#[cfg(test)]
mod tests;
