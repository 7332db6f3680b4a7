//! The owners of an object. The garbage collector looks for an owner by all of its names: one of another name under the
//! same uid does not exist, and its dependants are deleted.
//!
//! Entry points: [`declares_owners`], [`owner_uids`], [`owners`]. Invariant: an owner without a uid counts as none.

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

/// An owner as the garbage collector knows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ObjectOwner<'v> {
    api_version: &'v str,
    kind: &'v str,
    name: &'v str,
    pub(crate) uid: &'v str,
}

impl<'v> ObjectOwner<'v> {
    /// An element of `ownerReferences`.
    pub(crate) fn of(reference: &'v Value) -> Option<Self> {
        let text = |name| reference.get(name).and_then(Value::as_str).unwrap_or_default();
        Some(Self {
            api_version: text("apiVersion"),
            kind: text("kind"),
            name: text("name"),
            uid: uid(reference)?,
        })
    }
}

/// The owners of an object.
pub(super) fn owners(object: &Value) -> impl Iterator<Item = ObjectOwner<'_>> {
    let references = read(object, &OWNERS).and_then(Value::as_array);
    references.into_iter().flatten().filter_map(ObjectOwner::of)
}

pub(super) fn owner_uids(object: &Value) -> impl Iterator<Item = &str> {
    let owners = read(object, &OWNERS).and_then(Value::as_array);
    owners.into_iter().flatten().filter_map(uid)
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
