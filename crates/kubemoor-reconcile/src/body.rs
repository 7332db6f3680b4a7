//! The request bodies that restore an object. No body changes a masked path, and a body for an existing object holds
//! the `resourceVersion` and the uid that it was made for.

use serde_json::{Map, Value};

use kubemoor_declare::compare::Move;
use kubemoor_declare::equality::FieldAgreement;
use kubemoor_declare::fields::{DeclaredFields, FieldChange};
use kubemoor_declare::model::{Cause, ObjectId};
use kubemoor_declare::path::{Path, Segment};
use kubemoor_policy::mask::Mask;
use kubemoor_policy::pattern::Pattern;
use kubemoor_verdict::{additions, sealed};

/// What a merge patch restores: the declared values of `changes`, and the places of `moved` elements.
#[derive(Clone, Copy)]
pub(crate) struct Restoration<'a> {
    pub(crate) object: &'a ObjectId,
    pub(crate) fields: &'a DeclaredFields,
    pub(crate) changes: &'a [FieldChange],
    pub(crate) moved: &'a [Move],
}

impl Restoration<'_> {
    /// The merge patch that prepares an apply: it restores the keys of moved elements, and replaces undeclared fields
    /// that exclude declared ones. An apply alone would keep these beside the fields that it adds, and the API server
    /// rejects both together. `None` if nothing was moved.
    pub(crate) fn making_room(
        &self,
        live: &Value,
        canonical: Option<&Value>,
        masked: &Mask,
    ) -> Option<Value> {
        let is_excluded = |change: &&FieldChange| {
            self.moved.iter().any(|it| it.is_of_field() && change.path.0.starts_with(&it.declared.0))
        };
        let changes: Vec<FieldChange> = self.changes.iter().filter(is_excluded).cloned().collect();
        Restoration { changes: &changes, ..*self }.merged(live, canonical, masked)
    }

    /// The merge patch that restores all of this in `live`, with the values of `canonical` if a dry run returned it.
    /// `None` if nothing would change.
    pub(crate) fn merged(&self, live: &Value, canonical: Option<&Value>, masked: &Mask) -> Option<Value> {
        let Self { object, fields, changes, moved } = *self;
        let mut restored = live.clone();
        DeclaredFields::undo_moves(moved, &mut restored);
        let is_declared =
            |change: &&FieldChange| !is_sealed(object, change) && !change.agreement.is_addition();
        let paths = changes.iter().filter(is_declared).map(|change| &change.path);
        fields.restore(paths, canonical.unwrap_or(&Value::Null), &mut restored);
        restored = take_away(object, changes, &restored);
        // A part of a value that is restored as a whole may be masked.
        masked.carry(live, &mut restored);
        let mut patch = difference(live, &restored)?;
        set_version(&mut patch, live);
        Some(patch)
    }
}

/// The document as it is applied to `live`: masked fields that it declares have their live values, and the write fails
/// if the object has changed since. Other masked fields are left out, because Helm's manager would own them and other
/// appliers would get conflicts. Two kinds are included, because the API server would remove them otherwise: parts of
/// values that server-side apply replaces as a whole, and fields that Helm's manager owns (`abandons` tells whether a
/// body lacks such fields).
pub(crate) fn applied(
    (document, fields): (&Value, &DeclaredFields),
    live: &Value,
    masked: &Mask,
    abandons: impl Fn(&Value) -> bool,
) -> Value {
    let document = &without_masked_texts(document, masked);
    let (mut body, mut whole) = (document.clone(), document.clone());
    masked.carry_present(live, &mut body);
    masked.carry(live, &mut whole);
    if abandons(&body) {
        body = whole;
    } else {
        let atomic = fields.atomic_paths().into_iter();
        let touched = atomic.filter(|path| masked.covers(path) || masked.reaches_below(path));
        let touched = touched.filter_map(|path| Pattern::parse(&path.to_string()).ok());
        Mask(touched.collect()).carry(&whole, &mut body);
    }
    set_version(&mut body, live);
    body
}

/// A Secret without the `stringData` of masked keys, which would overwrite the live `data`.
fn without_masked_texts(document: &Value, masked: &Mask) -> Value {
    let mut document = document.clone();
    let is_masked = |name: &str| masked.covers(&Path::from_names(["data", name]));
    if document.get("kind").is_some_and(|kind| kind == "Secret")
        && let Some(Value::Object(texts)) = document.get_mut("stringData")
    {
        texts.retain(|name, _| !is_masked(name));
    }
    document
}

/// The merge patch that removes those `changes` that are sealed fields or additions below sealed paths; `None` if there
/// are no such changes.
pub(crate) fn unsealed(object: &ObjectId, changes: &[FieldChange], live: &Value) -> Option<Value> {
    let mut patch = difference(live, &take_away(object, changes, live))?;
    set_version(&mut patch, live);
    Some(patch)
}

/// The paths of the `changes` that the API server rejected, by the fields that its causes name.
pub(crate) fn immutable(changes: &[FieldChange], causes: &[Cause]) -> Vec<Path> {
    let refused = |change: &&FieldChange| causes.iter().any(|cause| refuses(cause, &change.path));
    changes.iter().filter(refused).map(|change| change.path.clone()).collect()
}

/// Binds a write to this version of this very object. A server-side apply needs the uid too: with a version alone, the
/// API server creates an object that was deleted meanwhile.
pub(crate) fn set_version(body: &mut Value, live: &Value) {
    for key in ["resourceVersion", "uid"] {
        if let Some(value) = live.pointer(&format!("/metadata/{key}")) {
            set_metadata(body, key, value.clone());
        }
    }
}

/// Makes a server-side apply fail with a conflict if the object exists. The API server compares the version only with
/// that of an existing object, and no object has the version 1: etcd's first write makes 2.
pub(crate) fn set_create_only(body: &mut Value) {
    set_metadata(body, "resourceVersion", Value::from("1"));
}

fn set_metadata(body: &mut Value, key: &str, value: Value) {
    let Value::Object(fields) = body else { return };
    let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(metadata) = metadata {
        metadata.insert(key.to_owned(), value);
    }
}

fn take_away(object: &ObjectId, changes: &[FieldChange], from: &Value) -> Value {
    // A change within an addition stays: without it, a webhook's addition might be invalid.
    let is_taken = |change: &&FieldChange| match change.agreement {
        FieldAgreement::Added => true,
        FieldAgreement::Within => false,
        _ => is_sealed(object, change),
    };
    additions::take_away(changes.iter().filter(is_taken).map(|change| &change.path), from)
}

fn is_sealed(object: &ObjectId, change: &FieldChange) -> bool {
    change.declared.is_none() && sealed::is_sealed(object, &change.path)
}

/// Whether a cause names the field at `path` or a field above or below it.
fn refuses(cause: &Cause, path: &Path) -> bool {
    let named: Vec<&str> =
        cause.field.split(['.', '[']).filter(|name| !name.is_empty() && !name.ends_with(']')).collect();
    let fields: Vec<&str> = path
        .0
        .iter()
        .filter_map(|segment| match segment {
            Segment::Field(name) => Some(name.as_str()),
            Segment::Key(_) | Segment::Element(_) => None,
        })
        .collect();
    let names_it = !named.is_empty() && named.iter().zip(&fields).all(|(named, field)| named == field);
    // "updates to statefulset spec for fields other than 'replicas', 'template' are forbidden"
    let is_exempt = fields.get(named.len()).is_some_and(|field| {
        cause.message.contains("other than") && cause.message.contains(&format!("'{field}'"))
    });
    names_it && !is_exempt
}

/// The merge patch (RFC 7386) that turns `from` into `to`; `None` if they are equal.
fn difference(from: &Value, to: &Value) -> Option<Value> {
    match (from, to) {
        (Value::Object(from), Value::Object(to)) => {
            let mut patch = Map::new();
            for (name, value) in to {
                let changed = match from.get(name) {
                    Some(before) => difference(before, value),
                    None => Some(value.clone()),
                };
                patch.extend(changed.map(|value| (name.clone(), value)));
            }
            let removed = from.keys().filter(|name| !to.contains_key(*name));
            patch.extend(removed.map(|name| (name.clone(), Value::Null)));
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        _ => (from != to).then(|| to.clone()),
    }
}

#[cfg(test)]
mod tests;
