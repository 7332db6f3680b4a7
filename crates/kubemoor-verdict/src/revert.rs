//! Reverts the drifting fields of an edit, so that the rest of it can be allowed.
//!
//! The result differs from the object in the request only at the drifting paths, and in their owners; a second plan
//! for it is empty. Every declared field holds the value of the request or the old one, never one of a record, so
//! that a forged record cannot insert a value into the edit of another user.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use json_patch::jsonptr::PointerBuf;
use json_patch::{Patch, PatchOperation, ReplaceOperation};
use serde_json::{Map, Value};

use crate::additions;
use crate::claims::adopts;
use crate::diff::Diff;
use crate::edit::{FieldFinding, ObjectDeclaration};
use crate::ownership::{self, RevertedPath};
use crate::sealed::{self, OWNERS};
use crate::shown::Shown;
use kubemoor_declare::compare::Move;
use kubemoor_declare::declare::SERVER_METADATA;
use kubemoor_declare::equality::FieldAgreement;
use kubemoor_declare::fields::{DeclaredFields, FieldChange};
use kubemoor_declare::model::ObjectId;
use kubemoor_declare::path::{Path, PathLookup, Segment};
use kubemoor_helm::release::{DeclaredObject, Release};
use kubemoor_policy::Policy;
use kubemoor_policy::agreement::ObjectSettledValues;
use kubemoor_policy::mask::Mask;
use kubemoor_policy::pattern::Pattern;

/// The most findings of an edit that is reverted; an edit with more is denied.
const MAX_FINDINGS: usize = 256;

/// The annotation in which kubectl stores the last applied manifest.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// An edit of a declared object, with the whole old and new objects.
#[derive(Clone, Copy)]
pub struct WholeEdit<'a> {
    pub object: &'a ObjectId,
    pub old: &'a Value,
    pub new: &'a Value,
    /// The field manager that the request names; empty if it names none.
    pub field_manager: &'a str,
    /// Values of the object that dry runs have settled.
    pub settled: Option<&'a ObjectSettledValues>,
}

#[derive(Clone, PartialEq)]
pub struct RevertPlan {
    /// The patch that turns the object of the request into the allowed one (RFC 6902). May hold the values of a
    /// Secret.
    pub patch: Patch,
    /// The reverted fields, in the order of the findings.
    pub set_back: Vec<RevertedField>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RevertedField {
    pub path: Path,
    /// The value in the request; `None` if the request removes the field.
    pub wanted: Option<Shown>,
    /// The resulting value; `None` if the field is absent.
    pub now: Option<Shown>,
}

/// The reason why an edit cannot be reverted, so that it has to be denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RevertError {
    /// Nothing else would be left, and an allowed edit would look as if it had an effect.
    #[error("it contains nothing else")]
    NothingRemains,
    #[error("more than {MAX_FINDINGS} of its fields would have to be reverted")]
    TooMuch,
    #[error("the object is nested too deeply")]
    TooDeep,
    /// A field differed before the edit too, so there is no declared value to return to.
    #[error("one of its fields already differed from the release; set it to the release's value instead")]
    Drifted,
    /// The changes of the edit are not known.
    #[error("the release has changed in the meantime")]
    Outdated,
}

/// An edit with its drifting fields reverted.
struct EditRevert<'a> {
    edit: WholeEdit<'a>,
    diff: &'a Diff,
    ignored: &'a Mask,
    findings: &'a [FieldFinding],
}

/// Plans the revert of the `findings` in the verdict of `release` on `edit`, which come from this `diff`.
///
/// Every field gets its value from before the edit. Fields that `policy` ignores are left alone.
/// The reverted fields belong to Helm again.
///
/// # Errors
/// When nothing else would remain of the edit, or it cannot be reverted.
pub fn plan(
    edit: WholeEdit<'_>,
    release: &Release,
    policy: &Policy,
    diff: &Diff,
    findings: &[FieldFinding],
) -> Result<RevertPlan, RevertError> {
    if findings.len() > MAX_FINDINGS {
        return Err(RevertError::TooMuch);
    }
    // An adopted object is judged as a whole, not only by the changes of the edit.
    if adopts(edit.object, release, edit.old, edit.new) {
        return Err(RevertError::Drifted);
    }
    let rules = policy.rules(edit.object, &diff.declared);
    let restored = findings.iter().filter_map(|finding| diff.declared_change(&finding.path));
    let (settled, drift) = before(edit, release, &diff.declared);
    if has_drifted(&drift, &rules.ignored, restored) {
        return Err(RevertError::Drifted);
    }
    let undoing = EditRevert { edit, diff, ignored: &rules.ignored, findings };
    let (result, back) = undoing.undo(&settled);
    if is_same(edit.old, &result) {
        return Err(RevertError::NothingRemains);
    }
    let owners = ownership::managed_fields_after_revert(edit, &result, &back, release.state.apply_method);
    let set_back = findings.iter().map(|finding| RevertedField {
        path: finding.path.clone(),
        wanted: finding.new.clone(),
        now: shown(edit.object, &finding.path, &result),
    });
    let set_back = set_back.collect();
    let mut patch = json_patch::diff(edit.new, &result);
    patch.0.extend(owners.map(|value| {
        let path = PointerBuf::from_tokens(["metadata", "managedFields"]);
        PatchOperation::Replace(ReplaceOperation { path, value })
    }));
    Ok(RevertPlan { patch, set_back })
}

impl EditRevert<'_> {
    /// The object without its drift, and the reverted paths. At the paths in `settled`, the old object was spelled
    /// differently from the declaration.
    fn undo(&self, settled: &[Path]) -> (Value, Vec<RevertedPath>) {
        let Self { edit, diff, ignored, findings } = *self;
        let fields = &*diff.fields;
        let (leaves, empties) = (fields.leaves(), fields.granular_empties());
        // Whole elements come first: ignored fields return with them.
        let (elements, moved) = self.put_elements_back();
        let has_elements = findings.iter().any(|finding| is_element(&finding.path));
        let shuffled = match has_elements {
            true => shuffled(edit.old, &elements, diff, &leaves),
            false => Vec::new(),
        };
        let mut result = elements.clone();
        let mut back: Vec<RevertedPath> =
            moved.into_iter().map(|it| RevertedPath { path: it.live, declared: Vec::new() }).collect();
        let mut parts: Vec<&Path> = shuffled.iter().collect();
        for FieldFinding { path, .. } in findings {
            let change = diff.declared_change(path);
            match change {
                Some(_) if is_element(path) => {}
                Some(_) => parts.push(path),
                None if sealed::is_of_owners(path) => remove_new_owners(edit.old, &mut result),
                None => additions::undo(path, edit.old, &mut result),
            }
            // No manager owns the order of a list.
            if change.is_none_or(|change| !is_order(change, &leaves)) {
                // Fields that others set below a declared empty map stay theirs.
                let below = leaves.iter().map(|(leaf, _)| leaf);
                let below = below.filter(|leaf| leaf.0.starts_with(&path.0) && !empties.contains(leaf));
                let declared = if change.is_some() { below.cloned().collect() } else { Vec::new() };
                back.push(RevertedPath { path: path.clone(), declared });
            }
        }
        fields.restore(parts.iter().copied(), edit.old, &mut result);
        // A field that was spelled differently from the manifest returns in its old spelling.
        let settled = settled.iter().filter(|path| parts.contains(path));
        Mask(settled.filter_map(|path| Pattern::parse(&path.to_string()).ok()).collect())
            .carry(edit.old, &mut result);
        ignored.carry(&elements, &mut result);
        (result, back)
    }

    /// The object with its old list elements, and the elements and fields that had replaced them.
    fn put_elements_back(&self) -> (Value, Vec<Move>) {
        let Self { edit, diff, findings, .. } = self;
        let fields = &diff.fields;
        let mut elements = edit.new.clone();
        let moved = moved(*edit, fields, findings, self.ignored);
        let (replaced, keyed): (Vec<Move>, Vec<Move>) = moved.into_iter().partition(Move::is_of_field);
        DeclaredFields::undo_moves(&keyed, &mut elements);
        // Removes a field that replaced another one, and restores the other one with all its content.
        for it in &replaced {
            additions::undo(&it.live, edit.old, &mut elements);
            additions::undo(&it.declared, edit.old, &mut elements);
        }
        let whole = findings.iter().map(|finding| &finding.path).filter(|path| is_element(path));
        fields.restore(whole, edit.old, &mut elements);
        (elements, [keyed, replaced].concat())
    }
}

/// The paths at which the old object was not spelled as declared: those that a dry run has settled, and those that
/// differ.
fn before(
    edit: WholeEdit<'_>,
    release: &Release,
    declared: &Arc<DeclaredObject>,
) -> (Vec<Path>, Vec<FieldChange>) {
    let of = ObjectDeclaration { object: edit.object, release: &release.id, declared };
    let drift = declared.fields().drift(edit.old).into_iter();
    let (settled, mut drift): (Vec<_>, Vec<_>) = drift.partition(|it| of.is_settled(edit.settled, it));
    drift.retain(|it| it.agreement > FieldAgreement::Doubt);
    (settled.into_iter().map(|it| it.path).collect(), drift)
}

/// Whether one of these fields differed in the old object too, so that a revert could not restore a value that was
/// seen in it.
fn has_drifted<'c>(
    drift: &[FieldChange],
    ignored: &Mask,
    mut restored: impl Iterator<Item = &'c FieldChange>,
) -> bool {
    let drift: Vec<_> = drift.iter().filter(|it| !ignored.covers(&it.path)).collect();
    restored.any(|change| drift.iter().any(|it| change.path.0.starts_with(&it.path.0)))
}

/// The elements whose keys this edit changed, and the fields with which it replaces others.
fn moved(
    edit: WholeEdit<'_>,
    fields: &DeclaredFields,
    findings: &[FieldFinding],
    ignored: &Mask,
) -> Vec<Move> {
    let (mut before, mut after) = (PathLookup::new(edit.old), PathLookup::new(edit.new));
    let mut is_set_back = |it: &Move| {
        let is_found = |finding: &FieldFinding| match it.is_of_field() {
            true => it.concerns(&finding.path),
            false => finding.path == it.declared,
        };
        let (old, new) = (before.get(&it.live), after.get(&it.live));
        let is_new = if it.is_of_field() { old != new } else { old.is_empty() };
        findings.iter().any(is_found) && is_new && !ignored.covers(&it.live)
    };
    fields.moved(edit.new).into_iter().filter(|it| is_set_back(it)).collect()
}

/// The lists that are out of order only because elements of them were restored: the former position of a doubled or
/// moved element is unknown.
fn shuffled(old: &Value, new: &Value, diff: &Diff, leaves: &[(Path, Value)]) -> Vec<Path> {
    let mut found = diff.fields.changed(old, new);
    found.retain(|it| it.agreement != FieldAgreement::Agrees && is_order(it, leaves));
    found.retain(|it| diff.declared_change(&it.path).is_none());
    found.into_iter().map(|it| it.path).collect()
}

/// Whether a path ends in a list element that keys identify.
fn is_element(path: &Path) -> bool {
    matches!(path.0.last(), Some(Segment::Key(_)))
}

/// Whether a change affects only the order of a list.
fn is_order(change: &FieldChange, leaves: &[(Path, Value)]) -> bool {
    change.declared.is_some()
        && change.path.0.last().is_some_and(|last| matches!(last, Segment::Field(_)))
        && leaves.iter().all(|(leaf, _)| *leaf != change.path)
}

/// Removes owner references that are new, and restores those that the edit changed.
fn remove_new_owners(old: &Value, new: &mut Value) {
    let path = Path::from_names(OWNERS);
    let pointer = path.to_string();
    let Some(Value::Array(owners)) = new.pointer_mut(&pointer) else { return };
    let before = old.pointer(&pointer);
    let uid = |owner: &Value| owner.get("uid").map(Value::to_string);
    let had: HashMap<String, &Value> = before
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|owner| Some((uid(owner)?, owner)))
        .collect();
    // A reference with another name and the same uid is another owner.
    let kept = owners.iter().filter_map(|owner| {
        let before = *had.get(&uid(owner)?)?;
        Some(if sealed::is_same_owner(before, owner) { owner.clone() } else { before.clone() })
    });
    *owners = kept.collect();
    if owners.is_empty() && before.is_none() {
        additions::undo(&path, old, new);
    }
}

/// Whether two objects are equal apart from bookkeeping fields.
fn is_same(old: &Value, new: &Value) -> bool {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return old == new };
    let metadata = |map: &Map<String, Value>| {
        let mut metadata = map.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
        metadata.retain(|name, value| !SERVER_METADATA.contains(&name.as_str()) && !value.is_null());
        if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
            annotations.remove(LAST_APPLIED);
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
        metadata
    };
    let rest = |map: &'_ Map<String, Value>, other: &Map<String, Value>| {
        map.iter().all(|(name, value)| {
            name == "metadata" || value.is_null() || other.get(name).is_some_and(|other| other == value)
        })
    };
    rest(old, new) && rest(new, old) && metadata(old) == metadata(new)
}

/// The visible form of the value at `path` of `object`.
fn shown(id: &ObjectId, path: &Path, object: &Value) -> Option<Shown> {
    let value = path.get(object).into_iter().next()?;
    Some(Shown::new(id, path, value))
}

impl fmt::Debug for RevertPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("set_back", &self.set_back).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
