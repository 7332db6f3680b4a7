//! Updates that make an existing object one of a release's.
//!
//! Entry points: [`adopts`] for one release, [`may_adopt`] for any. Whatever such an object held before,
//! nobody has judged it, so the update is judged as a creation. Must not apply a rule.

use serde_json::Value;

use super::claims::is_local;
use kubemoor_declare::model::{MANAGED_BY, ObjectId, ReleaseId};
use kubemoor_helm::release::Release;

/// Whether an update makes `object` one of `release`'s. Without Helm's label no webhook and no watch
/// selects it. Outside of the release's namespace the release counts only if the object names it.
pub(super) fn adopts(object: &ObjectId, release: &Release, old: &Value, new: &Value) -> bool {
    let names_it = |value: &Value| ReleaseId::named_by(value).is_some_and(|named| named == release.id);
    let is_named = !is_local(release, object) && names_it(new) && !names_it(old);
    labels(old, new) || (is_helms(new) && is_named)
}

/// Whether an update may make an object one of a release's. Both values may lack what the update
/// leaves as it is.
pub fn may_adopt(old: &Value, new: &Value) -> bool {
    labels(old, new) || ReleaseId::named_by(old) != ReleaseId::named_by(new)
}

/// Whether an update sets Helm's label.
fn labels(old: &Value, new: &Value) -> bool {
    is_helms(new) && !is_helms(old)
}

fn is_helms(object: &Value) -> bool {
    let (key, value) = MANAGED_BY;
    let labels = object.get("metadata").and_then(|metadata| metadata.get("labels"));
    labels.and_then(|labels| labels.get(key)).and_then(Value::as_str) == Some(value)
}
