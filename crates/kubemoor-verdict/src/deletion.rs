//! Objects that are being deleted.
//!
//! Entry points: [`is_underway`], [`finishes`], [`blocked`]. A finalizer keeps such an object alive
//! and at work for as long as its author likes, so its fields are judged like those of any other.
//! Must not apply a rule.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use kubemoor_declare::equality::Agreement;
use kubemoor_declare::fields::FieldChange;
use kubemoor_declare::model::ObjectId;
use kubemoor_declare::path::{Path, Segment};

/// How long finalizers may hold an object before it counts as drift. Controllers release volumes,
/// load balancers and dependants within a few minutes.
const PATIENCE: SignedDuration = SignedDuration::from_mins(5);

/// The finalizers of any object, and those of a namespace, which the namespace controller removes.
const FINALIZERS: [[&str; 2]; 2] = [["metadata", "finalizers"], ["spec", "finalizers"]];

/// Whether an object is being deleted. Only the API server sets a `deletionTimestamp`.
pub fn is_underway(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

/// Whether a change of this field of `object` is a step of its deletion: the removal of a finalizer.
/// The API server accepts no new finalizer of an object that is being deleted.
pub fn finishes(object: &ObjectId, path: &Path) -> bool {
    finalizers(object).any(|names| is_below(path, names))
}

/// The time at which the finalizers of `live` count as drift; `None` without a deletion.
pub fn deadline(live: &Value) -> Option<Timestamp> {
    let since = live.pointer("/metadata/deletionTimestamp")?.as_str()?;
    since.parse::<Timestamp>().ok()?.checked_add(PATIENCE).ok()
}

/// The finalizers that have held the deletion of `live` for too long, as the field that drifts.
pub(super) fn blocked(object: &ObjectId, live: &Value, now: Timestamp) -> Option<FieldChange> {
    if deadline(live)? > now {
        return None;
    }
    finalizers(object).find_map(|names| {
        let [above, name] = names;
        let held = live.get(above)?.get(name)?;
        held.as_array().filter(|held| !held.is_empty())?;
        let path = Path(names.iter().map(|name| Segment::Field((*name).to_owned())).collect());
        let agreement = Agreement::Differs;
        Some(FieldChange { path, declared: None, old: None, new: Some(held.clone()), agreement })
    })
}

fn finalizers(object: &ObjectId) -> impl Iterator<Item = [&'static str; 2]> {
    let is_namespace = object.group.is_empty() && object.kind == "Namespace";
    FINALIZERS.into_iter().filter(move |[above, _]| is_namespace || *above == "metadata")
}

fn is_below(path: &Path, names: [&str; 2]) -> bool {
    names
        .iter()
        .enumerate()
        .all(|(index, name)| matches!(path.0.get(index), Some(Segment::Field(field)) if field == name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(kind: &str) -> ObjectId {
        ObjectId::namespaced("", kind, "shop", "web")
    }

    fn blocking(kind: &str, live: Value, now: &str) -> Option<String> {
        let change = blocked(&object(kind), &live, now.parse().unwrap())?;
        Some(format!("{} {}", change.path, change.new.unwrap()))
    }

    #[test]
    fn finalizers_count_as_drift_five_minutes_after_the_deletion() {
        let live = |finalizers: Value| json!({"metadata": {"deletionTimestamp": "2026-05-01T12:00:00Z", "finalizers": finalizers}});
        let held = || live(json!(["example.org/hold"]));
        let found = Some("/metadata/finalizers [\"example.org/hold\"]".to_owned());
        assert_eq!(blocking("ConfigMap", held(), "2026-05-01T12:05:00Z"), found);
        assert_eq!(blocking("ConfigMap", held(), "2026-05-01T12:04:59Z"), None);
        for ends in [json!([]), json!(null), json!("x")] {
            assert_eq!(blocking("ConfigMap", live(ends), "2026-05-01T13:00:00Z"), None);
        }
        let alive = json!({"metadata": {"finalizers": ["example.org/hold"]}});
        assert_eq!(blocking("ConfigMap", alive, "2026-05-01T13:00:00Z"), None);
    }

    #[test]
    fn a_namespace_is_also_held_by_the_finalizers_of_its_spec() {
        let live = json!({
            "metadata": {"deletionTimestamp": "2026-05-01T12:00:00Z"}, "spec": {"finalizers": ["kubernetes"]},
        });
        let now = "2026-05-01T12:05:00Z";
        let found = Some("/spec/finalizers [\"kubernetes\"]".to_owned());
        assert_eq!(blocking("Namespace", live.clone(), now), found);
        assert_eq!(blocking("ConfigMap", live, now), None);
    }

    #[test]
    fn only_the_removal_of_finalizers_is_a_step_of_a_deletion() {
        let is_step = |kind: &str, path: &str| finishes(&object(kind), &path.parse().unwrap());
        assert!(is_step("ConfigMap", "/metadata/finalizers"));
        assert!(is_step("Namespace", "/spec/finalizers"));
        for path in ["/spec/finalizers", "/metadata/labels/finalizers", "/data/k", "/metadata"] {
            assert!(!is_step("ConfigMap", path), "{path}");
        }
    }
}
