//! The owners of an object. The garbage collector looks for an owner by all of its names: one of another name under the
//! same uid does not exist, and its dependants are deleted.
//!
//! Entry points: [`added_uids`], [`declares_owners`], [`owner_uids`]. Invariant: an owner without a uid counts as
//! none.

use std::collections::HashSet;

use serde_json::Value;

use super::{OWNERS, read};
use kubemoor_declare::fields::Fields;
use kubemoor_declare::path::Segment;

/// Whether the manifest declares an owner of each of these uids.
pub(super) fn declares_owners<'u>(fields: &Fields, mut uids: impl Iterator<Item = &'u str>) -> bool {
    let declared: HashSet<String> = fields
        .leaves()
        .into_iter()
        .filter_map(|(path, value)| match &*path.0 {
            [Segment::Field(metadata), Segment::Field(owners), below @ ..]
                if metadata == "metadata" && owners == "ownerReferences" =>
            {
                Some(declared_uids(below, &value))
            }
            _ => None,
        })
        .flatten()
        .collect();
    uids.all(|uid| declared.contains(uid))
}

/// The uids of the owners of `new` that `old` has not. The garbage collector looks an owner up by its group, kind and
/// name and then compares the uid, so that one of another name is another owner, which may not exist.
pub(super) fn added_uids<'v>(old: &'v Value, new: &'v Value) -> impl Iterator<Item = &'v str> {
    let had: HashSet<_> = owners(old).map(identity).collect();
    owners(new).filter(move |owner| !had.contains(&identity(owner))).filter_map(uid)
}

pub(super) fn owner_uids(object: &Value) -> impl Iterator<Item = &str> {
    owners(object).filter_map(uid)
}

fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    read(object, &OWNERS).and_then(Value::as_array).into_iter().flatten()
}

/// The group, kind, name and uid of an owner.
pub(super) fn identity(owner: &Value) -> [Option<&str>; 4] {
    let text = |name: &str| owner.get(name).and_then(Value::as_str);
    let group = text("apiVersion").map(|version| version.rsplit_once('/').map_or("", |(group, _)| group));
    [group, text("kind"), text("name"), text("uid")]
}

/// The uids of owners that a leaf declares: the list as one value, or one of its elements, which
/// their uids identify.
fn declared_uids(below: &[Segment], value: &Value) -> Vec<String> {
    let uids: Vec<&str> = match below {
        [] => value.as_array().into_iter().flatten().filter_map(uid).collect(),
        [Segment::Key(keys), ..] => {
            keys.iter().filter(|(key, _)| key == "uid").filter_map(|(_, uid)| uid.as_str()).collect()
        }
        _ => Vec::new(),
    };
    uids.into_iter().map(str::to_owned).collect()
}

fn uid(owner: &Value) -> Option<&str> {
    owner.get("uid")?.as_str()
}
