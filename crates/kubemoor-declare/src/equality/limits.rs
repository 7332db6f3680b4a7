//! Completes the limits of a LimitRange as the API server does: the only place where it adds entries to maps.
//!
//! Entry point: [`completed`]. Invariant: pure; only limits are completed.

use serde_json::{Map, Value};

use super::{Family, Spot};

/// An element of `limits` as the server completes it, where it does: a limit
/// defaults to the highest one, a request to the limit or to the lowest one.
pub(super) fn completed(spot: Spot<'_>, declared: &Map<String, Value>) -> Option<Map<String, Value>> {
    let is_limit = spot.family == Family::Core && spot.holder() == "limits" && spot.name.is_empty();
    if !is_limit || declared.get("type").and_then(Value::as_str) != Some("Container") {
        return None;
    }
    let map = |name: &str| declared.get(name).and_then(Value::as_object).cloned().unwrap_or_default();
    let mut limits = map("max");
    limits.extend(map("default"));
    let mut requests = map("min");
    requests.extend(limits.clone());
    requests.extend(map("defaultRequest"));
    let mut completed = declared.clone();
    for (name, filled) in [("default", limits), ("defaultRequest", requests)] {
        if !filled.is_empty() {
            completed.insert(name.to_owned(), Value::Object(filled));
        }
    }
    Some(completed)
}
