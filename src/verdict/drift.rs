//! The verdict on a live object: how it stands to what its release declares.
//!
//! Entry point: [`compare`]. Invariant: the same comparison and the same
//! exceptions as for edits, without an editor: what [`super::judge`] would let
//! anybody write is no drift, and what it would refuse is, sealed fields
//! included. What the manifest opts out and what is being
//! deleted is none either. Must not say what is done about it.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::additions;
use super::circumstances::{Circumstances, DeclaredObject};
use super::difference::Values;
use super::edit::{Evidence, Finding, Reason};
use super::exceptions::Exceptions;
use super::ownership::Owners;
use super::sealed;
use crate::declaration::equality::Agreement;
use crate::declaration::fields::{FieldChange, Fields};
use crate::declaration::path::{Path, Segment};
use crate::helm::record::Status;
use crate::helm::release::Declared;
use crate::helm::state::Standing;
use crate::model::ObjectId;
use crate::policy::Policy;

/// A declared object, and all that decides about it.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a, 'r> {
    /// The object.
    pub object: &'a ObjectId,
    /// What its release says of it.
    pub standing: &'a Standing<'r>,
    /// The policy of that release.
    pub policy: &'a Policy,
    /// What else is known of the object.
    pub circumstances: &'a Circumstances,
    /// The time.
    pub now: Timestamp,
}

/// How a live object stands to its declaration.
#[derive(Clone, Debug)]
pub enum Live<'r> {
    /// The manifest opts it out.
    OptedOut,
    /// It is being deleted.
    BeingDeleted,
    /// It is absent, and a Helm operation that is under way, or that failed before it
    /// created the object, accounts for that.
    Awaited,
    /// It is absent, as an open allowance permits.
    Allowed,
    /// It is absent.
    Missing,
    /// Every declared field is as declared, or may be as it is; with what it
    /// agrees with, unless nothing is declared.
    AsDeclared(Option<Agreed<'r>>),
    /// It is as the manifest declares it that a Helm operation under way comes
    /// from, and not yet as the one that it goes to.
    AsBefore,
    /// Some fields are not, or may not be, as declared.
    Drifted(Drift<'r>),
}

/// What a live object agrees with.
#[derive(Clone, Debug)]
pub struct Agreed<'r> {
    /// The declaration.
    pub declared: &'r Arc<Declared>,
    /// The declared paths at which the object is not, or may not be, as declared,
    /// and may be as it is.
    pub spared: Vec<Path>,
    /// Whether an allowance covers something of that.
    pub allowed: bool,
    /// Whether it holds additions below sealed paths that an allowance permits.
    pub has_additions: bool,
}

/// What of a live object is not as declared.
#[derive(Clone, Debug)]
pub struct Drift<'r> {
    /// The declaration that it is held to: of several the one that it is
    /// nearest to.
    pub declared: &'r Arc<Declared>,
    /// The declared paths at which it is not, or may not be, as declared. In
    /// each, `new` is the live value; `old` is none.
    pub changes: Vec<FieldChange>,
}

/// Holds `live`, the object in the version of the manifest (`None`: it is
/// absent), against its declarations; agreeing with one is enough.
///
/// What is in doubt is settled by `evidence`, which is about the first of the
/// declarations; without any it stays among the changes.
pub fn compare<'r>(subject: &Subject<'_, 'r>, live: Option<&Value>, evidence: Evidence<'_>) -> Live<'r> {
    let standing = subject.standing;
    let before = before(subject);
    if standing.alternatives.iter().chain(&before).any(|declared| declared.opted_out) {
        return Live::OptedOut;
    }
    let Some(live) = live else { return absent(subject) };
    if live.pointer("/metadata/deletionTimestamp").is_some() {
        return Live::BeingDeleted;
    }
    let mut nearest: Option<Drift<'r>> = None;
    let sides = standing.alternatives.iter().copied().map(|declared| (declared, false));
    for (index, (declared, is_before)) in sides.chain(before.map(|it| (it, true))).enumerate() {
        let evidence = if index == 0 { evidence } else { Evidence::None };
        let Compared { changes, spared, allowed, has_additions } = changes(subject, declared, live, evidence);
        let drift = Drift { declared, changes };
        if drift.changes.is_empty() {
            return if is_before {
                Live::AsBefore
            } else {
                Live::AsDeclared(Some(Agreed { declared, spared, allowed, has_additions }))
            };
        }
        if nearest.as_ref().is_none_or(|nearest| drift.weight() < nearest.weight()) {
            nearest = Some(drift);
        }
    }
    nearest.map_or(Live::AsDeclared(None), Live::Drifted)
}

/// The changes as a person may see them.
pub fn findings(object: &ObjectId, changes: &[FieldChange]) -> Vec<Finding> {
    let finding = |change: &FieldChange| {
        let FieldChange { path, declared, new, agreement, .. } = change;
        let values = Values::of(object, path, [declared.as_ref(), None, new.as_ref()]);
        let (doubt, added) = (*agreement == Agreement::Doubt, agreement.is_addition());
        Finding { doubt, added, ..Finding::of(path.clone(), values) }
    };
    changes.iter().map(finding).collect()
}

/// The declared paths at which a live object is not, or may not be, as declared.
///
/// A field that Helm set and nobody took away is not there where the server
/// drops it: that is a doubt. So is, once the release is deployed (`settled`), a
/// field that nobody but Helm has written and that has another value: a mutating
/// webhook may have rewritten it, but never who may do what. `managedFields` tell of it;
/// without any it is a difference.
pub fn of_fields(fields: &Fields, live: &Value, settled: bool) -> Vec<FieldChange> {
    let mut changes = fields.drift(live);
    let settled = settled && !fields.grant_rights();
    let may_be = |change: &FieldChange| {
        change.agreement == Agreement::Missing || (settled && may_be_rewritten(change))
    };
    if changes.iter().any(may_be) {
        let owners = Owners::of(live);
        for change in changes.iter_mut().filter(|change| may_be(change)) {
            let are_helms = match change.agreement {
                Agreement::Missing => owners.are_helms(&change.path),
                _ => owners.are_helms_alone(&change.path),
            };
            if are_helms {
                change.agreement = Agreement::Doubt;
            }
        }
    }
    changes
}

/// Whether a field is there with another value than the declared one.
fn may_be_rewritten(change: &FieldChange) -> bool {
    change.agreement > Agreement::Doubt
        && change.declared.is_some()
        && matches!(change.path.0.last(), Some(Segment::Field(_)))
}

impl<'a> Subject<'a, '_> {
    /// What may differ of the object as one of its manifests declares it.
    pub fn exceptions(&self, declared: &'a Arc<Declared>) -> Exceptions<'a> {
        let of = DeclaredObject { object: self.object, release: &self.standing.release.id, declared };
        Exceptions::new(of, self.policy, self.circumstances, None, self.now)
    }
}

impl Drift<'_> {
    /// Whether nothing is known to differ, and something may.
    pub fn is_doubt(&self) -> bool {
        self.changes.iter().all(|change| change.agreement == Agreement::Doubt)
    }

    /// Whether only the arbiter can tell of something.
    pub fn has_doubt(&self) -> bool {
        self.changes.iter().any(|change| change.agreement == Agreement::Doubt)
    }

    /// Whether it hangs on `managedFields` whether something is in doubt.
    pub fn hangs_on_managers(&self) -> bool {
        self.changes.iter().any(|it| it.agreement == Agreement::Missing || may_be_rewritten(it))
    }

    /// How far an object is from a declaration: what is only in doubt weighs
    /// least.
    fn weight(&self) -> (bool, usize) {
        (!self.is_doubt(), self.changes.len())
    }
}

/// What an operation under way comes from, where that is not among what an edit
/// may agree with.
fn before<'r>(subject: &Subject<'_, 'r>) -> Option<&'r Arc<Declared>> {
    let Standing { release, alternatives, pending, .. } = subject.standing;
    let baseline = release.objects.get(subject.object)?.baseline.as_ref()?;
    (*pending && !alternatives.iter().any(|known| Arc::ptr_eq(known, baseline))).then_some(baseline)
}

fn absent<'r>(subject: &Subject<'_, 'r>) -> Live<'r> {
    let standing = subject.standing;
    let release = standing.release;
    let is_of_baseline =
        || release.objects.get(subject.object).is_some_and(|declarations| declarations.baseline.is_some());
    if standing.pending || (release.state.status == Status::Failed && !is_of_baseline()) {
        return Live::Awaited;
    }
    let mut declared = standing.alternatives.iter();
    match declared.any(|declared| subject.exceptions(declared).of_deletion().is_some()) {
        true => Live::Allowed,
        false => Live::Missing,
    }
}

/// Where an object is not, or may not be, as declared.
struct Compared {
    /// What it must not differ in.
    changes: Vec<FieldChange>,
    /// What it may differ in.
    spared: Vec<Path>,
    /// Whether an allowance says so.
    allowed: bool,
    /// Whether it holds additions that it may hold.
    has_additions: bool,
}

fn changes(
    subject: &Subject<'_, '_>,
    declared: &Arc<Declared>,
    live: &Value,
    evidence: Evidence<'_>,
) -> Compared {
    let exceptions = subject.exceptions(declared);
    let fields = &*declared.fields();
    let mut settler = match evidence {
        Evidence::Canonical(canonical) => Some(fields.settler(canonical)),
        Evidence::None | Evidence::Unavailable | Evidence::Nowhere => None,
    };
    let (mut changes, mut spared, mut allowed) = (Vec::new(), Vec::new(), false);
    let Standing { release, pending, .. } = subject.standing;
    // What the API server does not take cannot be what it made of the manifest.
    let may_be_rewritten =
        release.state.status == Status::Deployed && !pending && !matches!(evidence, Evidence::Unavailable);
    for mut change in of_fields(fields, live, may_be_rewritten) {
        if let (Agreement::Doubt, Some(settler)) = (change.agreement, &mut settler) {
            change.agreement = settler.settle(&change);
        }
        let of = DeclaredObject { object: subject.object, release: &release.id, declared };
        if change.agreement == Agreement::Agrees || subject.circumstances.have_settled(of, &change) {
            continue;
        }
        match exceptions.of_field(&change) {
            None => changes.push(change),
            Some(reason) => {
                allowed |= reason == Reason::Allowed;
                spared.push(change.path);
            }
        }
    }
    show_moved(&mut changes, declared, live);
    for change in sealed::drift(subject.object, fields, live) {
        let excused = match change.path.0.last() {
            Some(Segment::Field(last)) if last == "ownerReferences" => exceptions.of_deletion(),
            _ => exceptions.of_sealed(&change.path, None, change.new.as_ref()),
        };
        allowed |= excused == Some(Reason::Allowed);
        if excused.is_none() && changes.iter().all(|known: &FieldChange| known.path != change.path) {
            changes.push(change);
        }
    }
    let mut has_additions = false;
    for change in additions::drift(subject.object, fields, exceptions.sealed(), live) {
        let excused = exceptions.of_sealed(&change.path, None, change.new.as_ref());
        allowed |= excused == Some(Reason::Allowed);
        match excused {
            None => changes.push(change),
            // What rules leave alone is left alone for good; an allowance ends.
            Some(reason) => has_additions |= reason == Reason::Allowed,
        }
    }
    Compared { changes, spared, allowed, has_additions }
}

/// Says of list elements that are missing which one stands in their place.
fn show_moved(changes: &mut [FieldChange], declared: &Declared, live: &Value) {
    let is_missing = |change: &FieldChange| {
        matches!(change.path.0.last(), Some(Segment::Key(_)))
            && change.declared.is_none()
            && change.new.is_none()
    };
    if !changes.iter().any(is_missing) {
        return;
    }
    let moved = declared.fields().moved(live).into_iter();
    let moved: HashMap<String, Path> = moved.map(|it| (it.declared.to_string(), it.live)).collect();
    for change in changes.iter_mut().filter(|change| is_missing(change)) {
        if let Some(Segment::Key(keys)) = moved.get(&change.path.to_string()).and_then(|live| live.0.last()) {
            change.new = Some(Value::Object(keys.iter().cloned().collect()));
        }
    }
}

#[cfg(test)]
mod tests;
