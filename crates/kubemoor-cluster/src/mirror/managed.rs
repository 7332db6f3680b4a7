//! Who wrote an object last, by its `managedFields`.
//!
//! Entry point: [`writer`]. Invariant: pure. Names of managers are whatever clients send.

use jiff::Timestamp;
use serde_json::Value;

/// The last writer of the object's `spec`, and the time. Times are whole seconds, so any writer in the last
/// second may be the one.
pub(super) fn writer(object: &Value) -> Option<(String, Option<Timestamp>)> {
    let managers = object.pointer("/metadata/managedFields")?.as_array()?;
    let writers = managers.iter().filter(|entry| entry.pointer("/fieldsV1/f:spec").is_some());
    let writers = writers.filter_map(|entry| {
        let time = entry.get("time").and_then(Value::as_str);
        Some((entry.get("manager")?.as_str()?, time.and_then(|time| time.parse::<Timestamp>().ok())))
    });
    let writers: Vec<_> = writers.collect();
    let last = writers.iter().map(|(_, time)| *time).max()?;
    let names: Vec<&str> = writers.iter().filter(|(_, time)| *time == last).map(|(name, _)| *name).collect();
    Some((names.join(" or "), last))
}
