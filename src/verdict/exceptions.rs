//! What may differ from the declaration: what an ignore rule, an open
//! allowance or an autoscaler covers.
//!
//! Entry points: [`Exceptions::of_field`], [`Exceptions::of_deletion`], [`exempting`];
//! [`Exceptions::mask`] is the same for repairs, [`Exceptions::next_change`]
//! says until when. Invariant: the same answer for an edit and for a live
//! object, but that an edit has an actor, whom an allowance or an autoscaler has
//! to be for. Selects by what the manifest says and never by the live object,
//! which the editor controls.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::circumstances::{Circumstances, DeclaredObject};
use super::edit::Reason;
use super::identities;
use crate::declaration::fields::FieldChange;
use crate::declaration::path::Path;
use crate::model::{Actor, Autoscaler, ReleaseId};
use crate::policy::allowance::Allowance;
use crate::policy::mask::Mask;
use crate::policy::pattern::Pattern;
use crate::policy::pattern_trie::PatternTrie;
use crate::policy::resource::Autoscalers;
use crate::policy::seal::Seal;
use crate::policy::standing::Standing;
use crate::policy::subject::Subject;
use crate::policy::{ObjectRules, Policy};

/// Patterns of grants above which they are not asked one by one.
const MANY: usize = 64;

/// One of the things by which fields may differ.
#[derive(Clone, Copy, Debug)]
pub enum Source<'e> {
    /// What policies ignore.
    Ignored(&'e Mask),
    /// A standing allowance that is open.
    Standing(&'e Standing),
    /// An allowance that is open, and what it covers of this object.
    Allowance(&'e Allowance, &'e Mask),
    /// An autoscaler, which moves the replicas at this path.
    Autoscaler(&'e Autoscaler, &'e Path),
}

/// What may differ of one object as one manifest declares it.
pub struct Exceptions<'a> {
    rules: Arc<ObjectRules>,
    /// Allowances that hold now, each with what it covers of this object.
    grants: Vec<(&'a Allowance, Cow<'a, Mask>)>,
    /// Which of them may cover a field; only of many.
    reach: Option<PatternTrie>,
    autoscalers: Vec<&'a Autoscaler>,
    departed: bool,
    replicas: Option<&'a Path>,
    actor: Option<&'a Actor>,
    now: Timestamp,
}

impl<'a> Exceptions<'a> {
    /// The exceptions of an object; with an actor those for this one alone.
    pub fn new(
        of: DeclaredObject<'a>,
        policy: &Policy,
        circumstances: &'a Circumstances,
        actor: Option<&'a Actor>,
        now: Timestamp,
    ) -> Self {
        let DeclaredObject { object, release, declared } = of;
        let counts = |allowance: &&Allowance| allowance.open(now) && allowance.is_for(object, release);
        // Records of other namespaces have no say here, but that of the object's own release.
        let has_say = |by: &ReleaseId| by == release || object.namespace.as_ref() == Some(&by.namespace);
        let scales = |declared_by: &[ReleaseId]| match policy.autoscalers {
            Autoscalers::Any => true,
            Autoscalers::Declared => declared_by.iter().any(has_say),
        };
        let autoscalers: Vec<_> =
            circumstances.autoscalers.iter().filter(|it| scales(&it.declared_by)).collect();
        let granted = circumstances.allowances.iter().map(Arc::as_ref).filter(counts);
        let grants: Vec<_> =
            granted.map(|allowance| (allowance, allowance.grant.mask.placed(&declared.fields()))).collect();
        Self {
            rules: policy.rules(object, declared),
            reach: reach(&grants),
            grants,
            departed: autoscalers.is_empty() && circumstances.departed.as_deref().is_some_and(scales),
            autoscalers,
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

    /// Where additions are drift as well.
    pub fn sealed(&self) -> &Seal {
        &self.rules.sealed
    }

    /// Why the object may be deleted, or missing; none if it may not.
    pub fn of_deletion(&self) -> Option<Reason> {
        let granted = |standing: &Arc<Standing>| standing.grant.deletes && self.holds(standing);
        (self.rules.standing.iter().any(granted)
            || self.grants.iter().any(|(allowance, _)| allowance.grant.deletes))
        .then_some(Reason::Allowed)
    }

    /// The allowances that cover a field, or a part of it, as people name them.
    pub fn naming(&self, path: &Path) -> Vec<String> {
        let about = |mask: &Mask| mask.covers(path) || mask.reaches_below(path);
        let standing =
            self.open().filter(|standing| about(&standing.grant.mask)).map(|it| it.origin.to_string());
        let granted =
            self.grants.iter().filter(|(_, mask)| about(mask)).map(|(allowance, _)| named(allowance));
        standing.chain(granted).collect()
    }

    /// The allowances by which the object may be deleted, as people name them.
    pub fn naming_deletion(&self) -> Vec<String> {
        let standing = self.open().filter(|standing| standing.grant.deletes).map(|it| it.origin.to_string());
        let granted = self.grants.iter().filter(|(allowance, _)| allowance.grant.deletes);
        standing.chain(granted.map(|(allowance, _)| named(allowance))).collect()
    }

    /// All that there is, whether anything differs by it or not.
    pub fn sources(&self) -> Vec<Source<'_>> {
        let ignored = (!self.rules.ignored.is_empty()).then_some(Source::Ignored(&self.rules.ignored));
        let standing = self.open().map(Source::Standing);
        let allowances = self.grants.iter().map(|(allowance, mask)| Source::Allowance(allowance, mask));
        let scaled = self
            .replicas
            .into_iter()
            .flat_map(|path| self.autoscalers.iter().map(|it| Source::Autoscaler(it, path)));
        ignored.into_iter().chain(standing).chain(allowances).chain(scaled).collect()
    }

    /// What of `live` is as it may be, so that a repair leaves it as it is.
    pub fn mask(&self, live: &Value) -> Mask {
        let mut mask = Mask(self.masks().flat_map(|mask| &mask.0).cloned().collect());
        if let Some(path) = self.replicas
            && self.is_scaled(path, path.get(live).first().copied())
        {
            mask.0.extend(Pattern::parse(&path.to_string()));
        }
        mask
    }

    /// Whether it hangs on the values at `path` whether it may differ, and not on the path alone.
    pub fn hang_on_values(&self, path: &Path) -> bool {
        !self.masks().any(|mask| mask.covers(path)) && self.masks().any(|mask| mask.reaches_below(path))
    }

    /// Whether it hangs on the places of list elements in the manifest whether `path` may differ.
    pub fn hang_on_places(&self, path: &Path) -> bool {
        let meets = |mask: &Mask| mask.0.iter().any(|pattern| pattern.meets_by_place(path));
        !self.masks().any(|mask| mask.covers(path)) && self.masks().any(meets)
    }

    /// Whether somebody's groups decide what may differ.
    pub fn hang_on_groups(&self) -> bool {
        let names_group = |subject: &Subject| matches!(subject, Subject::Group(_));
        self.rules.standing.iter().any(|standing| standing.subjects.iter().any(names_group))
    }

    /// Whether an autoscaler that is there scales the object.
    pub fn is_autoscaled(&self) -> bool {
        !self.autoscalers.is_empty()
    }

    /// When these answers may change by themselves: a window opens or closes, an
    /// allowance ends. None if they never do.
    pub fn next_change(&self) -> Option<Timestamp> {
        let standing = self.rules.standing.iter().filter_map(|standing| standing.next_change(self.now));
        standing.chain(self.grants.iter().map(|(allowance, _)| allowance.until)).min()
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
        let granted: Vec<&Mask> = match &self.reach {
            None => self.grants.iter().map(|(_, mask)| &**mask).collect(),
            Some(reach) => {
                let reached = reach.at(path).into_iter().filter_map(|index| self.grants.get(index));
                reached.map(|(_, mask)| &**mask).collect()
            }
        };
        let masks = standing.map(|standing| &standing.grant.mask).chain(granted);
        covers([&ignored].into_iter().chain(masks), path, declared, old, new).then_some(Reason::Allowed)
    }

    /// All that may differ now, for the actor.
    fn masks(&self) -> impl Iterator<Item = &Mask> {
        let standing = self.open().map(|standing| &standing.grant.mask);
        [&self.rules.ignored].into_iter().chain(standing).chain(self.grants.iter().map(|(_, mask)| &**mask))
    }

    /// The standing allowances that are open, and for the actor.
    fn open(&self) -> impl Iterator<Item = &Standing> {
        self.rules.standing.iter().filter(|standing| self.holds(standing)).map(Arc::as_ref)
    }

    fn holds(&self, standing: &Standing) -> bool {
        standing.open(self.now) && self.actor.is_none_or(|actor| standing.admits(actor))
    }

    /// Whether these replicas are an autoscaler's: of an edit those that it
    /// sets itself, within its range. What a person sets is judged, whatever
    /// autoscalers there are. Of a live object also those that it has yet to
    /// bring into a range that was just changed, or left behind when it went.
    fn is_scaled(&self, path: &Path, new: Option<&Value>) -> bool {
        if self.replicas != Some(path) {
            return false;
        }
        let Some(actor) = self.actor else {
            let brings_in = |count| self.autoscalers.iter().any(|it| it.brings_in(count));
            return self.departed || new.and_then(Value::as_i64).is_some_and(brings_in);
        };
        let sets =
            |count| self.autoscalers.iter().any(|it| it.sets(count) && identities::autoscales(actor, it));
        new.and_then(Value::as_i64).is_some_and(sets)
    }
}

/// Which of a policy's `exempt` this actor is, as people name it; none where the policy exempts somebody else.
pub fn exempting(policy: &Policy, actor: &Actor) -> Option<String> {
    let subject = policy.exempt.iter().find(|subject| subject.is(actor))?;
    Some(format!("exempt: {subject}"))
}

/// An allowance as people name it.
fn named(Allowance { name, reason, .. }: &Allowance) -> String {
    let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
    format!("DriftAllowance {name}{reason}")
}

/// Which of many grants may cover a field.
fn reach(grants: &[(&Allowance, Cow<'_, Mask>)]) -> Option<PatternTrie> {
    let patterns =
        || grants.iter().enumerate().flat_map(|(index, (_, mask))| mask.0.iter().map(move |it| (index, it)));
    (patterns().nth(MANY).is_some()).then(|| {
        let mut reach = PatternTrie::default();
        patterns().for_each(|(index, pattern)| reach.add(pattern, index));
        reach
    })
}

/// Whether `masks` cover all by which the value at `path` is not as declared,
/// or is not as it was. A value of which they name only a part, as of a list
/// that is one value, is held to the declaration without that part; that a list
/// element is there at all is covered only with the whole element.
fn covers<'m>(
    masks: impl Iterator<Item = &'m Mask>,
    path: &Path,
    declared: Option<&Value>,
    old: Option<&Value>,
    new: Option<&Value>,
) -> bool {
    let is_gone = declared.is_none() && new.is_none();
    let mut carried: Option<(Option<Value>, Option<Value>)> = None;
    for mask in masks {
        if mask.covers(path) {
            return true;
        }
        if !is_gone && mask.reaches_below(path) {
            let (to_declared, to_old) = match &carried {
                Some((to_declared, to_old)) => (to_declared.as_ref(), to_old.as_ref()),
                None => (new, new),
            };
            carried = Some((mask.carry_at(path, declared, to_declared), mask.carry_at(path, old, to_old)));
        }
    }
    carried.is_some_and(|(to_declared, to_old)| {
        to_declared.as_ref() == declared || (old.is_some() && to_old.as_ref() == old)
    })
}

#[cfg(test)]
mod tests;
