//! What may differ from the declaration: what an ignore rule, an open
//! allowance or an autoscaler covers.
//!
//! Entry points: [`Exceptions::of_field`], [`Exceptions::of_deletion`].
//! Invariant: the same answer for an edit and for a live object, but that an
//! edit has an actor, whom an allowance or an autoscaler has to be for. Selects
//! by what the manifest says and never by the live object, which the editor
//! controls.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::edit::Reason;
use super::identities;
use crate::declaration::fields::FieldChange;
use crate::declaration::path::Path;
use crate::helm::release::Declared;
use crate::model::{Actor, Autoscaler, ObjectId, ReleaseId};
use crate::policy::allowance::Allowance;
use crate::policy::mask::Mask;
use crate::policy::resource::Autoscalers;
use crate::policy::standing::Standing;
use crate::policy::{ObjectRules, Policy};

/// What is known of one object at the moment, beside its releases.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Circumstances {
    /// The allowances for it.
    pub allowances: Vec<Arc<Allowance>>,
    /// How far autoscalers may scale it, if any does.
    pub autoscaler: Option<Autoscaler>,
}

/// What may differ of one object as one manifest declares it.
pub struct Exceptions<'a> {
    rules: Arc<ObjectRules>,
    /// Grants that hold now, and for this actor.
    grants: Vec<&'a Allowance>,
    autoscaler: Option<Autoscaler>,
    replicas: Option<&'a Path>,
    actor: Option<&'a Actor>,
    now: Timestamp,
}

impl<'a> Exceptions<'a> {
    /// The exceptions of `object`, which `release` declares; with an actor
    /// those for him alone.
    pub fn new(
        (object, release): (&ObjectId, &ReleaseId),
        declared: &'a Arc<Declared>,
        policy: &Policy,
        circumstances: &'a Circumstances,
        actor: Option<&'a Actor>,
        now: Timestamp,
    ) -> Self {
        let counts = |allowance: &&Allowance| allowance.open(now) && allowance.is_for(object, release);
        let any = |autoscaler: &Autoscaler| match policy.autoscalers {
            Autoscalers::Any => true,
            Autoscalers::Declared => autoscaler.declared,
        };
        Self {
            rules: policy.rules(object, declared),
            grants: circumstances.allowances.iter().map(Arc::as_ref).filter(counts).collect(),
            autoscaler: circumstances.autoscaler.filter(any),
            replicas: declared.scale.as_ref(),
            actor,
            now,
        }
    }

    /// Why a field may be other than declared; none if it may not.
    pub fn of_field(&self, change: &FieldChange) -> Option<Reason> {
        let FieldChange { path, declared, old, new, .. } = change;
        self.of(path, declared.as_ref(), old.as_ref(), new.as_ref())
    }

    /// The same for a field that the manifest does not declare.
    pub fn of_sealed(&self, path: &Path, old: Option<&Value>, new: Option<&Value>) -> Option<Reason> {
        self.of(path, None, old, new)
    }

    /// Why the object may be deleted, or missing; none if it may not.
    pub fn of_deletion(&self) -> Option<Reason> {
        let granted = |standing: &Arc<Standing>| standing.grant.deletes && self.holds(standing);
        (self.rules.standing.iter().any(granted)
            || self.grants.iter().any(|allowance| allowance.grant.deletes))
        .then_some(Reason::Allowed)
    }

    fn of(
        &self,
        path: &Path,
        declared: Option<&Value>,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> Option<Reason> {
        let (ignored, standing) = self.rules.about(path);
        if covers([&ignored].into_iter(), path, declared, old, new) {
            return Some(Reason::Ignored);
        }
        if self.is_scaled(path, new) {
            return Some(Reason::Autoscaled);
        }
        // What one rule leaves, another may cover.
        let standing = standing.into_iter().filter(|standing| self.holds(standing));
        let granted = self.grants.iter().map(|allowance| &allowance.grant);
        let masks = standing.map(|standing| &standing.grant).chain(granted).map(|grant| &grant.mask);
        covers([&ignored].into_iter().chain(masks), path, declared, old, new).then_some(Reason::Allowed)
    }

    fn holds(&self, standing: &Standing) -> bool {
        standing.open(self.now) && self.actor.is_none_or(|actor| standing.admits(actor))
    }

    /// Whether these are replicas that an autoscaler set, within its range.
    /// What a person sets is judged, whatever autoscalers there are.
    fn is_scaled(&self, path: &Path, new: Option<&Value>) -> bool {
        let (Some(autoscaler), Some(count)) = (&self.autoscaler, new.and_then(Value::as_i64)) else {
            return false;
        };
        let minimum = if autoscaler.by_keda { 0 } else { autoscaler.minimum };
        self.replicas == Some(path)
            && (i64::from(minimum)..=i64::from(autoscaler.maximum)).contains(&count)
            && self.actor.is_none_or(|actor| identities::autoscales(actor, autoscaler))
    }
}

/// Whether `masks` cover all by which the value at `path` is not as declared,
/// or is not as it was. A value of which they name only a part, as of a list
/// that is one value, is held to the declaration without that part.
fn covers<'m>(
    masks: impl Iterator<Item = &'m Mask>,
    path: &Path,
    declared: Option<&Value>,
    old: Option<&Value>,
    new: Option<&Value>,
) -> bool {
    let (mut to_declared, mut to_old) = (new.cloned(), new.cloned());
    let mut reached = false;
    for mask in masks {
        if mask.covers(path) {
            return true;
        }
        if mask.reaches_below(path) {
            reached = true;
            to_declared = mask.carry_at(path, declared, to_declared.as_ref());
            to_old = mask.carry_at(path, old, to_old.as_ref());
        }
    }
    reached && (to_declared.as_ref() == declared || (old.is_some() && to_old.as_ref() == old))
}
