//! Changes that a release itself asks for: values that its own programs fill, and objects that remove themselves.
//!
//! Entry points: [`fills`] for an edit, [`filled_by`] and [`expires`] for live objects. Must not read a policy.

use std::sync::Arc;

use kubemoor_declare::model::{Actor, ObjectId};
use kubemoor_declare::path::{Path, Segment};
use kubemoor_helm::release::{Declared, Release};
use serde_json::Value;

/// Whether the change at `path` is a value of a Secret that is declared empty, and the actor a ServiceAccount of the
/// same release: a certificate rotator.
pub(super) fn fills(
    actor: &Actor,
    release: &Release,
    object: &ObjectId,
    (path, declared): (&Path, Option<&Value>),
) -> bool {
    let is_empty = || declared.and_then(Value::as_str) == Some("");
    is_secret(object)
        && matches!(&*path.0, [Segment::Field(data), Segment::Field(_)] if data == "data")
        && is_empty()
        && accounts(release).any(|(namespace, name)| actor.is_service_account(namespace, name))
}

/// The values of a Secret that are declared empty in a release with a ServiceAccount of its own. A live object does not
/// show which account has filled them.
pub(super) fn filled_by(release: &Release, object: &ObjectId, declared: &Arc<Declared>) -> Vec<Path> {
    if !is_secret(object) || accounts(release).next().is_none() {
        return Vec::new();
    }
    let fields = declared.fields();
    let empty = fields.entries(&["data"]).into_iter().filter(|(_, value)| value.as_str() == Some(""));
    empty.map(|(name, _)| Path(["data", name].map(|name| Segment::Field(name.to_owned())).into())).collect()
}

/// Whether the object is a Job that is declared to be removed some time after it has finished.
pub(super) fn expires(object: &ObjectId, declared: &Declared) -> bool {
    object.group == "batch"
        && object.kind == "Job"
        && declared.fields().get(&["spec", "ttlSecondsAfterFinished"]).is_some_and(|it| it.is_number())
}

fn is_secret(object: &ObjectId) -> bool {
    object.group.is_empty() && object.kind == "Secret"
}

/// The namespaces and names of the ServiceAccounts that a release declares.
fn accounts(release: &Release) -> impl Iterator<Item = (&str, &str)> {
    let is_account = |object: &&Arc<ObjectId>| object.group.is_empty() && object.kind == "ServiceAccount";
    let accounts = release.objects.keys().filter(is_account);
    accounts.filter_map(|object| Some((object.namespace.as_deref()?, object.name.as_str())))
}
