//! Setting back what of an edit drifts, so that the rest of it may pass.
//!
//! Entry point: [`plan`]. Invariant: the object that results differs from the
//! one that the editor sent only at the drifting paths, and in who owns these.
//! Planned again for its own result, it has nothing to do. A plan is the
//! editor's own edit made smaller: every declared field in it holds what the
//! editor sent or what was there before, so that a record that somebody forged
//! puts no value of its own into the edit of another.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use json_patch::Patch;
use serde_json::{Map, Value};

use super::additions;
use super::edit::Finding;
use super::ownership::{self, Back, PartUndone};
use super::sealed;
use super::shown::Shown;
use crate::declaration::compare::Move;
use crate::declaration::document::SERVER_METADATA;
use crate::declaration::equality::Agreement;
use crate::declaration::fields::{FieldChange, Fields};
use crate::declaration::lookup::Lookup;
use crate::declaration::path::{Path, Segment};
use crate::helm::release::{Declared, Release};
use crate::model::ObjectId;
use crate::policy::Policy;
use crate::policy::declaration::Declaration;
use crate::policy::mask::Mask;
use crate::policy::pattern::Pattern;
use crate::policy::settled::Settled;

/// The findings up to which an edit is set back; one with more is refused.
const MAX_FINDINGS: usize = 256;

/// Where kubectl notes what it applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// An edit of a declared object, whole.
#[derive(Clone, Copy)]
pub struct Whole<'a> {
    /// The object.
    pub object: &'a ObjectId,
    /// The object before.
    pub old: &'a Value,
    /// The object as the editor wants it.
    pub new: &'a Value,
    /// The field manager that the request names; empty if it names none.
    pub field_manager: &'a str,
    /// What dry runs have settled of the object.
    pub settled: Option<&'a Settled>,
}

/// How an edit is set back.
#[derive(Clone, PartialEq)]
pub struct Plan {
    /// What turns the editor's object into the one that may pass (RFC 6902).
    /// May hold the values of a Secret.
    pub patch: Patch,
    /// What it sets back, in the order of the findings.
    pub set_back: Vec<SetBack>,
}

/// One field that is set back.
#[derive(Clone, Debug, PartialEq)]
pub struct SetBack {
    /// The field.
    pub path: Path,
    /// What the editor wanted; none where they removed it.
    pub wanted: Option<Shown>,
    /// What it is now; none where it is absent.
    pub now: Option<Shown>,
}

/// Why an edit cannot be set back, so that it has to be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Irreversible {
    /// To let it pass would be to say that something was done.
    #[error("nothing else is in this edit")]
    NothingRemains,
    /// Too many fields drift at once.
    #[error("more than {MAX_FINDINGS} fields of this edit would have to be set back")]
    TooMuch,
    /// The object nests deeper than what can be changed.
    #[error("the object is nested too deep")]
    TooDeep,
    /// A field was not as declared before either, so that there is nothing to go back to.
    #[error(
        "a field of it differed from the release before the edit as well; set it to the release's value instead"
    )]
    Drifted,
    /// What drifts is declared by neither record of the release any more.
    #[error("the release has changed meanwhile")]
    Outdated,
}

/// How to set back what `findings`, the verdict's by `release`, say of `edit`.
///
/// Every field becomes what it was before the edit. What `policy` ignores is left
/// alone. The fields so set back are Helm's again.
///
/// # Errors
/// When nothing else would remain of the edit, or it cannot be set back.
pub fn plan(
    edit: Whole<'_>,
    release: &Release,
    policy: &Policy,
    findings: &[Finding],
) -> Result<Plan, Irreversible> {
    if findings.len() > MAX_FINDINGS {
        return Err(Irreversible::TooMuch);
    }
    let (declared, changes) = judged(edit, release, policy, findings).ok_or(Irreversible::Outdated)?;
    let fields = &declared.fields();
    let rules = policy.rules(edit.object, declared);
    let restored = changes.iter().filter(|change| findings.iter().any(|finding| finding.path == change.path));
    let (settled, drift) = before(edit, release, declared);
    if has_drifted(&drift, &rules.ignored, restored) {
        return Err(Irreversible::Drifted);
    }
    let undoing = Undoing { edit, fields, ignored: &rules.ignored, findings, changes: &changes };
    let (result, back) = undoing.undo(&settled);
    if is_same(edit.old, &result) {
        return Err(Irreversible::NothingRemains);
    }
    let undone = PartUndone { old: edit.old, new: edit.new, result: &result, editor: edit.field_manager };
    let owners = ownership::undone(undone, &back, release.state.apply_method);
    let set_back = findings.iter().map(|finding| SetBack {
        path: finding.path.clone(),
        wanted: finding.new.clone(),
        now: shown(edit.object, &finding.path, &result),
    });
    let set_back = set_back.collect();
    let mut patch = json_patch::diff(edit.new, &result);
    patch.0.extend(owners.map(|owners| ownership::replace("managedFields", owners)));
    Ok(Plan { patch, set_back })
}

/// An edit of which all that drifts is undone.
struct Undoing<'a> {
    edit: Whole<'a>,
    /// What the manifest declares.
    fields: &'a Fields,
    ignored: &'a Mask,
    findings: &'a [Finding],
    /// What the edit changes of what is declared.
    changes: &'a [FieldChange],
}

impl Undoing<'_> {
    /// The object without what drifts, and the paths that are Helm's again. `settled` are the paths at which the
    /// object before was spelled otherwise than declared.
    fn undo(&self, settled: &[Path]) -> (Value, Vec<Back>) {
        let Self { edit, fields, ignored, findings, changes } = *self;
        let leaves = fields.leaves();
        // With whole elements first: what is ignored comes back with them.
        let (elements, moved) = self.put_elements_back();
        let has_elements = findings.iter().any(|finding| is_element(&finding.path));
        let shuffled = match has_elements {
            true => shuffled(edit.old, &elements, fields, &leaves, changes),
            false => Vec::new(),
        };
        let mut result = elements.clone();
        let mut back: Vec<Back> =
            moved.into_iter().map(|it| Back { path: it.live, declared: Vec::new() }).collect();
        let mut parts: Vec<&Path> = shuffled.iter().collect();
        for Finding { path, .. } in findings {
            let change = changes.iter().find(|change| change.path == *path);
            match change {
                Some(_) if is_element(path) => {}
                Some(_) => parts.push(path),
                None if sealed::is_sealed(edit.object, path) => unseal(&path.0, edit.old, &mut result),
                None => additions::undo(path, edit.old, &mut result),
            }
            // The order of a list is owned by nobody.
            if change.is_none_or(|change| !is_order(change, &leaves)) {
                let below = leaves.iter().map(|(leaf, _)| leaf).filter(|leaf| leaf.0.starts_with(&path.0));
                let declared = if change.is_some() { below.cloned().collect() } else { Vec::new() };
                back.push(Back { path: path.clone(), declared });
            }
        }
        fields.restore(parts.iter().copied(), edit.old, &mut result);
        // What is spelled otherwise than the manifest has it comes back as it was.
        let settled = settled.iter().filter(|path| parts.contains(path));
        Mask(settled.filter_map(|path| Pattern::parse(&path.to_string()).ok()).collect())
            .carry(edit.old, &mut result);
        ignored.carry(&elements, &mut result);
        (result, back)
    }

    /// The object with its list elements as they were, and those that had been given other keys.
    fn put_elements_back(&self) -> (Value, Vec<Move>) {
        let Self { edit, fields, findings, .. } = self;
        let mut elements = edit.new.clone();
        let moved = moved(*edit, fields, findings, self.ignored);
        Fields::put_back(&moved, &mut elements);
        let whole = findings.iter().map(|finding| &finding.path).filter(|path| is_element(path));
        fields.restore(whole, edit.old, &mut elements);
        (elements, moved)
    }
}

/// Of the manifests that the release may be judged by, the one that these
/// findings come from, with what the edit changes of it.
fn judged<'r>(
    edit: Whole<'_>,
    release: &'r Release,
    policy: &Policy,
    findings: &[Finding],
) -> Option<(&'r Arc<Declared>, Vec<FieldChange>)> {
    let declarations = release.objects.get(edit.object)?;
    let of = |declared: &'r Arc<Declared>| {
        let fields = &*declared.fields();
        let mut changes = fields.changed(edit.old, edit.new);
        changes.retain(|change| change.agreement != Agreement::Agrees);
        let sealed = sealed::changes(edit.object, fields, edit.old, edit.new);
        let seal = &policy.rules(edit.object, declared).sealed;
        let added = additions::of_edit(edit.object, fields, seal, Some(edit.old), edit.new);
        let unknown = |finding: &&Finding| {
            changes.iter().all(|change| change.path != finding.path)
                && sealed.iter().all(|change| change.path != finding.path)
                && added.iter().all(|addition| addition.path != finding.path)
        };
        let strangers = findings.iter().filter(unknown).count();
        (strangers == 0).then_some((declared, changes))
    };
    let candidates = declarations.latest.iter().chain(&declarations.baseline);
    candidates.filter_map(of).min_by_key(|(_, changes)| changes.len())
}

/// Where the object before was not spelled as declared: what of that a dry run has
/// settled, and what differs.
fn before(edit: Whole<'_>, release: &Release, declared: &Declared) -> (Vec<Path>, Vec<FieldChange>) {
    let declaration = declared.digest.as_ref().map(|digest| Declaration {
        release: &release.id,
        object: edit.object,
        digest,
        seal: None,
    });
    let is_settled = |it: &FieldChange| {
        let known = edit.settled.zip(declaration.as_ref());
        known.is_some_and(|(settled, declaration)| settled.holds(declaration, &it.path, it.new.as_ref()))
    };
    let (settled, mut drift): (Vec<_>, Vec<_>) =
        declared.fields().drift(edit.old).into_iter().partition(is_settled);
    drift.retain(|it| it.agreement > Agreement::Doubt);
    (settled.into_iter().map(|it| it.path).collect(), drift)
}

/// Whether one of these was not as declared in the object before, and so would
/// become what nobody has seen in it.
fn has_drifted<'c>(
    drift: &[FieldChange],
    ignored: &Mask,
    mut restored: impl Iterator<Item = &'c FieldChange>,
) -> bool {
    let drift: Vec<_> = drift.iter().filter(|it| !ignored.covers(&it.path)).collect();
    restored.any(|change| drift.iter().any(|it| change.path.0.starts_with(&it.path.0)))
}

/// The elements to which this edit gave other keys.
fn moved(edit: Whole<'_>, fields: &Fields, findings: &[Finding], ignored: &Mask) -> Vec<Move> {
    if !findings.iter().any(|finding| is_element(&finding.path)) {
        return Vec::new();
    }
    let mut before = Lookup::new(edit.old);
    let is_set_back = |it: &Move, before: &mut Lookup<'_>| {
        findings.iter().any(|finding| finding.path == it.declared)
            && before.get(&it.live).is_empty()
            && !ignored.covers(&it.live)
    };
    fields.moved(edit.new).into_iter().filter(|it| is_set_back(it, &mut before)).collect()
}

/// The lists that are out of order only since elements of them are back: where one of these was doubled or had other
/// keys, nothing could be said of its place before.
fn shuffled(
    old: &Value,
    new: &Value,
    fields: &Fields,
    leaves: &[(Path, Value)],
    changes: &[FieldChange],
) -> Vec<Path> {
    let mut found = fields.changed(old, new);
    found.retain(|it| it.agreement != Agreement::Agrees && is_order(it, leaves));
    found.retain(|it| changes.iter().all(|change| change.path != it.path));
    found.into_iter().map(|it| it.path).collect()
}

/// Whether a path is that of a list element that is told apart by keys.
fn is_element(path: &Path) -> bool {
    matches!(path.0.last(), Some(Segment::Key(_)))
}

/// Whether a change is one of the order of a list.
fn is_order(change: &FieldChange, leaves: &[(Path, Value)]) -> bool {
    change.path.0.last().is_some_and(|last| matches!(last, Segment::Field(_)))
        && leaves.iter().all(|(leaf, _)| *leaf != change.path)
}

/// Sets a sealed field back. New owners go, and the others stay.
fn unseal(path: &[Segment], old: &Value, new: &mut Value) {
    let Some((segment, below)) = path.split_first() else { return };
    let (Some(name), Some(map)) = (name(segment), new.as_object_mut()) else { return };
    let before = old.get(name);
    match (map.get_mut(name), below) {
        (Some(Value::Array(owners)), []) if name == "ownerReferences" => {
            let had = before.and_then(Value::as_array);
            let uid = |owner: &Value| owner.get("uid").map(Value::to_string);
            let uids: HashSet<String> = had.into_iter().flatten().filter_map(uid).collect();
            owners.retain(|owner| uid(owner).is_some_and(|uid| uids.contains(&uid)));
            if owners.is_empty() && before.is_none() {
                map.remove(name);
            }
        }
        (_, []) => match before {
            Some(before) => drop(map.insert(name.to_owned(), before.clone())),
            None => drop(map.remove(name)),
        },
        (Some(value), below) => {
            unseal(below, before.unwrap_or(&Value::Null), value);
            if value.as_object().is_some_and(Map::is_empty) && before.is_none() {
                map.remove(name);
            }
        }
        (None, below) => {
            if let Some(before) = before.filter(|before| before.is_object()) {
                let mut value = Value::Object(Map::new());
                unseal(below, before, &mut value);
                if value.as_object().is_some_and(|map| !map.is_empty()) {
                    map.insert(name.to_owned(), value);
                }
            }
        }
    }
}

fn name(segment: &Segment) -> Option<&str> {
    if let Segment::Field(name) = segment { Some(name) } else { None }
}

/// Whether nothing is left of an edit but bookkeeping.
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

/// What of `object` may be seen at `path`.
fn shown(id: &ObjectId, path: &Path, object: &Value) -> Option<Shown> {
    let value = path.get(object).into_iter().next()?;
    Some(Shown::of(id, path, value))
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("set_back", &self.set_back).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
