//! Exceptions from the declaration: fields that an ignore rule, an open allowance, an autoscaler or a program of the
//! release itself covers.
//!
//! Edits and live objects get the same answer, except that an allowance or an autoscaler must also match the user of an
//! edit. Rules select by the manifest alone, because users control the live object.

use std::borrow::{Borrow, Cow};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::diff::{ChangeKind, ChangedField};
use crate::edit::{DepartedAutoscaler, ObjectContext, ObjectDeclaration, VerdictReason};
use crate::identities;
use kubemoor_declare::equality;
use kubemoor_declare::fields::FieldChange;
use kubemoor_declare::model::{Actor, Autoscaler, EditsMode, ObjectId, ReleaseId};
use kubemoor_declare::path::{Path, Segment};
use kubemoor_helm::chart_source::is_secret;
use kubemoor_helm::release::{DeclaredObject, Release};
use kubemoor_policy::allowance::{Allowance, Grant, StandingAllowance};
use kubemoor_policy::mask::{Mask, Seal};
use kubemoor_policy::pattern::{Pattern, PatternTrie};
use kubemoor_policy::resource::{AllowedAutoscalers, SubjectKind, SubjectSpec};
use kubemoor_policy::{ObjectRules, Policy};

#[derive(Clone, Copy, Debug)]
pub enum ExceptionSource<'e> {
    Ignored(&'e Mask),
    Standing(&'e StandingAllowance),
    /// An open allowance, and the fields of this object that it covers.
    Allowance(&'e Allowance, &'e Mask),
    /// An autoscaler, which sets the replicas at this path.
    Autoscaler(&'e Autoscaler, &'e Path),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ScalingRight {
    Never,
    /// Only if its range holds the declared replicas.
    WithinRange,
    Always,
}

impl ScalingRight {
    /// The right of an autoscaler that these releases declare.
    fn new(policy: &Policy, of: ObjectDeclaration<'_>, declared_by: &[ReleaseId]) -> Self {
        // Records of other namespaces do not count here, except for that of the object's own release.
        let has_say =
            |by: &ReleaseId| by == of.release || of.object.namespace.as_ref() == Some(&by.namespace);
        let is_declared = || declared_by.iter().any(has_say);
        match policy.autoscalers {
            Some(AllowedAutoscalers::Any) => Self::Always,
            _ if is_declared() => Self::Always,
            Some(AllowedAutoscalers::Declared) => Self::Never,
            // Otherwise a user who may create an autoscaler could scale the workload to any number.
            None if policy.edits >= EditsMode::Revert => Self::WithinRange,
            None => Self::Always,
        }
    }

    /// Whether an autoscaler with this range, if it is known, may set the replicas.
    fn admits(self, declared: &DeclaredObject, range: Option<(i32, i32)>) -> bool {
        let holds = |range| declared_count(declared).is_none_or(|count| is_within(range, count));
        match self {
            Self::Never => false,
            Self::WithinRange => range.is_none_or(holds),
            Self::Always => true,
        }
    }
}

/// Whether an autoscaler with this range, which these releases declare, may set the replicas of an object.
pub fn may_scale(
    policy: &Policy,
    of: ObjectDeclaration<'_>,
    declared_by: &[ReleaseId],
    range: (i32, i32),
) -> bool {
    ScalingRight::new(policy, of, declared_by).admits(of.declared, Some(range))
}

fn is_within((fewest, most): (i32, i32), count: i64) -> bool {
    (i64::from(fewest)..=i64::from(most)).contains(&count)
}

/// The exceptions of one object as one manifest declares it.
pub struct ObjectExceptions<'a> {
    rules: Arc<ObjectRules>,
    /// The open allowances, each with the fields of this object that it covers.
    grants: Vec<(&'a Allowance, Cow<'a, Mask>)>,
    /// An index of the fields that these allowances may cover.
    reach: PatternTrie,
    autoscalers: Vec<(&'a Autoscaler, ScalingRight)>,
    departed: bool,
    replicas: Option<&'a Path>,
    /// The paths of Secret values that programs of the release may have filled in.
    outputs: Vec<Path>,
    /// Whether the object may be missing because its time to live is over. This does not allow anybody to delete it.
    pub may_have_expired: bool,
    actor: Option<&'a Actor>,
    now: Timestamp,
}

impl<'a> ObjectExceptions<'a> {
    /// The exceptions of an object; with an actor, only those for this actor.
    pub fn new(
        of: ObjectDeclaration<'a>,
        policy: &Policy,
        circumstances: &'a ObjectContext,
        actor: Option<&'a Actor>,
        now: Timestamp,
    ) -> Self {
        let ObjectDeclaration { object, release, declared } = of;
        let counts = |allowance: &&Allowance| allowance.is_active(now) && allowance.is_for(object, release);
        let right = |declared_by: &[ReleaseId]| ScalingRight::new(policy, of, declared_by);
        let scalers = circumstances.autoscalers.iter().map(|it| (it, right(&it.declared_by)));
        let scales = |(it, right): &(&Autoscaler, ScalingRight)| {
            right.admits(declared, Some((it.minimum, it.maximum)))
        };
        let autoscalers: Vec<_> = scalers.filter(scales).collect();
        let left = |it: &DepartedAutoscaler| right(&it.declared_by).admits(declared, it.range);
        let granted = circumstances.allowances.iter().map(Arc::as_ref).filter(counts);
        let grants: Vec<_> = granted
            .map(|allowance| (allowance, allowance.grant.mask.with_list_keys(&declared.fields())))
            .collect();
        let patterns = grants.iter().enumerate();
        let patterns = patterns.flat_map(|(index, (_, mask))| mask.0.iter().map(move |it| (index, it)));
        Self {
            rules: policy.rules(object, declared),
            reach: patterns.collect(),
            grants,
            departed: autoscalers.is_empty() && circumstances.departed.as_ref().is_some_and(left),
            autoscalers,
            replicas: declared.scale(),
            outputs: Vec::new(),
            may_have_expired: expires(object, declared),
            actor,
            now,
        }
    }

    /// The same for a live object of `release`, whose programs may have filled in values.
    pub fn of_live(self, of: ObjectDeclaration<'_>, release: &Release) -> Self {
        Self { outputs: filled_by(release, of.object, of.declared), ..self }
    }

    /// The reason why a field may differ; `None` if it may not.
    pub fn of_field(&self, change: &FieldChange) -> Option<VerdictReason> {
        let FieldChange { path, declared, old, new, .. } = change;
        let (declared, old, new) = (declared.as_ref(), old.as_ref(), new.as_ref());
        let (ignored, standing) = self.rules.about(path);
        if covers([&ignored].into_iter(), path, declared, old, new) {
            return Some(VerdictReason::Ignored);
        }
        if self.is_scaled(path, declared, new) {
            return Some(VerdictReason::Autoscaled);
        }
        if is_filled(new) && self.outputs.contains(path) {
            return Some(VerdictReason::Identity);
        }
        // One rule may cover a part that another leaves open.
        let standing = standing.into_iter().filter(|standing| self.holds(standing));
        let granted = self.reach.at(path).into_iter().filter_map(|index| self.grants.get(index));
        let masks = standing.map(|standing| &standing.grant.mask).chain(granted.map(|(_, mask)| &**mask));
        covers([&ignored].into_iter().chain(masks), path, declared, old, new)
            .then_some(VerdictReason::Allowed)
    }

    /// These differences of one [`Diff`](crate::diff::Diff), each with the reason why it is allowed, if it is. Drops
    /// sealed fields and additions whose path already has a declared difference that is not allowed: a declared null,
    /// or a field that replaces a declared one.
    pub(crate) fn excuse<D: Borrow<ChangedField>>(
        &self,
        diffs: impl IntoIterator<Item = D>,
    ) -> Vec<(D, Option<VerdictReason>)> {
        let mut judged: Vec<(D, Option<VerdictReason>)> = Vec::new();
        for diff in diffs {
            let ChangedField { change, kind, .. } = diff.borrow();
            let is_open = |(known, excused): &(D, Option<VerdictReason>)| {
                excused.is_none() && known.borrow().change.path == change.path
            };
            let is_declared = matches!(kind, ChangeKind::Declared | ChangeKind::Merged);
            if !is_declared && judged.iter().any(is_open) {
                continue;
            }
            let excused = match kind {
                ChangeKind::Owner => self.of_deletion(),
                ChangeKind::Finalizers => self.of_deletion().or_else(|| self.of_field(change)),
                ChangeKind::Declared | ChangeKind::Merged | ChangeKind::Sealed | ChangeKind::Added => {
                    self.of_field(change)
                }
            };
            judged.push((diff, excused));
        }
        judged
    }

    pub fn sealed(&self) -> &Seal {
        &self.rules.sealed
    }

    /// The reason why the object may be deleted or missing; `None` if it may not.
    pub fn of_deletion(&self) -> Option<VerdictReason> {
        let granted =
            |standing: &Arc<StandingAllowance>| standing.grant.allows_delete && self.holds(standing);
        (self.rules.standing.iter().any(granted)
            || self.grants.iter().any(|(allowance, _)| allowance.grant.allows_delete))
        .then_some(VerdictReason::Allowed)
    }

    /// The names of the allowances that cover a field or a part of it; with `None`, of those that allow the deletion of
    /// the object.
    pub fn allowance_names(&self, path: Option<&Path>) -> Vec<String> {
        let is_meant = |grant: &Grant, mask: &Mask| match path {
            Some(path) => mask.covers(path) || mask.reaches_below(path),
            None => grant.allows_delete,
        };
        let standing = self.open().filter(|it| is_meant(&it.grant, &it.grant.mask));
        let granted = self.grants.iter().filter(|(allowance, mask)| is_meant(&allowance.grant, mask));
        let standing = standing.map(|it| it.origin.to_string());
        standing.chain(granted.map(|(allowance, _)| named(allowance))).collect()
    }

    /// All exceptions, whether any field uses them or not.
    pub fn sources(&self) -> Vec<ExceptionSource<'_>> {
        let ignored =
            (!self.rules.ignored.is_empty()).then_some(ExceptionSource::Ignored(&self.rules.ignored));
        let standing = self.open().map(ExceptionSource::Standing);
        let allowances =
            self.grants.iter().map(|(allowance, mask)| ExceptionSource::Allowance(allowance, mask));
        let scaled = self
            .replicas
            .into_iter()
            .flat_map(|path| self.autoscalers.iter().map(|(it, _)| ExceptionSource::Autoscaler(it, path)));
        ignored.into_iter().chain(standing).chain(allowances).chain(scaled).collect()
    }

    /// The fields of `live` that are allowed to differ, which a repair leaves unchanged.
    pub fn mask(&self, live: &Value) -> Mask {
        let mut mask = Mask(self.masks().flat_map(|mask| &mask.0).cloned().collect());
        if let Some(path) = self.replicas
            && self.is_scaled(path, None, path.get(live).first().copied())
        {
            mask.0.extend(Pattern::parse(&path.to_string()));
        }
        let filled = self.outputs.iter().filter(|path| is_filled(path.get(live).first().copied()));
        mask.0.extend(filled.filter_map(|path| Pattern::parse(&path.to_string()).ok()));
        mask
    }

    /// Whether the values at `path`, not only the path, decide if it may differ.
    pub fn depends_on_values(&self, path: &Path) -> bool {
        self.masks().any(|mask| mask.reaches_below(path)) && !self.masks().any(|mask| mask.covers(path))
    }

    /// Whether the positions of list elements in the manifest decide if `path` may differ.
    pub fn depends_on_positions(&self, path: &Path) -> bool {
        let meets = |mask: &Mask| mask.0.iter().any(|pattern| pattern.may_match_by_position(path));
        // Few rules name positions, so check for these before the schedules.
        let standing = self.rules.standing.iter().map(|standing| &standing.grant.mask);
        let granted = self.grants.iter().map(|(_, mask)| &**mask);
        let mut all = [&self.rules.ignored].into_iter().chain(standing).chain(granted);
        all.any(meets) && self.masks().any(meets) && !self.masks().any(|mask| mask.covers(path))
    }

    /// Whether a user's groups decide what may differ.
    pub fn depends_on_groups(&self) -> bool {
        let names_group = |subject: &SubjectSpec| subject.kind == SubjectKind::Group;
        self.rules.standing.iter().any(|standing| standing.subjects.iter().any(names_group))
    }

    pub fn is_autoscaled(&self) -> bool {
        !self.autoscalers.is_empty()
    }

    /// The time at which these answers change without an event: a window opens or closes, or an allowance ends.
    /// `None` if they never do.
    pub fn next_change(&self) -> Option<Timestamp> {
        let standing = self.rules.standing.iter().filter_map(|standing| standing.next_change(self.now));
        standing.chain(self.grants.iter().map(|(allowance, _)| allowance.until)).min()
    }

    /// All fields that may differ now, for the actor.
    fn masks(&self) -> impl Iterator<Item = &Mask> {
        let standing = self.open().map(|standing| &standing.grant.mask);
        [&self.rules.ignored].into_iter().chain(standing).chain(self.grants.iter().map(|(_, mask)| &**mask))
    }

    fn open(&self) -> impl Iterator<Item = &StandingAllowance> {
        self.rules.standing.iter().filter(|standing| self.holds(standing)).map(Arc::as_ref)
    }

    fn holds(&self, standing: &StandingAllowance) -> bool {
        standing.is_active(self.now) && self.actor.is_none_or(|actor| standing.applies_to(actor))
    }

    /// Whether these replicas come from an autoscaler. In an edit, only replicas that the autoscaler itself sets within
    /// its range; replicas that a user sets are always judged. In a live object, also replicas that it has yet to move
    /// into a new range, or that it left when it was removed.
    fn is_scaled(&self, path: &Path, declared: Option<&Value>, new: Option<&Value>) -> bool {
        if self.replicas != Some(path) {
            return false;
        }
        // A recorded declaration has no replicas; the change has.
        let count = declared.and_then(Value::as_i64);
        let holds = |it: &Autoscaler| count.is_none_or(|count| is_within((it.minimum, it.maximum), count));
        let counting = || {
            let all = self.autoscalers.iter();
            all.filter(|(it, right)| *right == ScalingRight::Always || holds(it)).map(|(it, _)| *it)
        };
        let Some(actor) = self.actor else {
            let brings_in = |count| counting().any(|it| it.brings_in(count));
            return self.departed || new.and_then(Value::as_i64).is_some_and(brings_in);
        };
        let sets = |count| counting().any(|it| it.can_set(count) && identities::autoscales(actor, it));
        new.and_then(Value::as_i64).is_some_and(sets)
    }
}

/// The declared number of replicas, if it is at a path of plain names.
fn declared_count(declared: &DeclaredObject) -> Option<i64> {
    let mut names = Vec::new();
    for segment in declared.scale()?.0.iter() {
        let Segment::Field(name) = segment else { return None };
        names.push(name.as_str());
    }
    declared.fields().get(&names)?.as_i64()
}

/// The entry of a policy's `exempt` that matches this actor, as text; `None` if no entry does.
pub fn matching_exemption(policy: &Policy, actor: &Actor) -> Option<String> {
    let subject = policy.exempt.iter().find(|subject| subject.matches(actor))?;
    Some(format!("exempt: {subject}"))
}

fn is_filled(value: Option<&Value>) -> bool {
    value.is_some_and(|value| !equality::is_empty(value))
}

fn named(Allowance { name, reason, .. }: &Allowance) -> String {
    let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
    format!("DriftAllowance {name}{reason}")
}

/// Whether `masks` cover all differences of the value at `path` from the declaration, or from the old value. If they
/// cover only a part of a value, such as of an atomic list, the rest must equal the declared or the old value; the
/// existence of a list element is covered only with the whole element.
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

/// Whether the change at `path` sets a Secret value that is declared empty, and the actor is a ServiceAccount of the
/// same release, such as a certificate rotator.
pub(crate) fn fills(
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

/// The values of a Secret that a release with a ServiceAccount of its own declares empty. A live object does not show
/// which account has filled them in.
pub(crate) fn filled_by(release: &Release, object: &ObjectId, declared: &Arc<DeclaredObject>) -> Vec<Path> {
    if !is_secret(object) || accounts(release).next().is_none() {
        return Vec::new();
    }
    let fields = declared.fields();
    let empty = fields.entries(&["data"]).into_iter().filter(|(_, value)| value.as_str() == Some(""));
    empty.map(|(name, _)| Path::from_names(["data", name])).collect()
}

/// Whether the object is a Job that declares `ttlSecondsAfterFinished`.
pub(crate) fn expires(object: &ObjectId, declared: &DeclaredObject) -> bool {
    object.group == "batch"
        && object.kind == "Job"
        && declared.fields().get(&["spec", "ttlSecondsAfterFinished"]).is_some_and(|it| it.is_number())
}

/// The namespaces and names of the ServiceAccounts that a release declares.
fn accounts(release: &Release) -> impl Iterator<Item = (&str, &str)> {
    let is_account = |object: &&Arc<ObjectId>| object.group.is_empty() && object.kind == "ServiceAccount";
    let accounts = release.objects.keys().filter(is_account);
    accounts.filter_map(|object| Some((object.namespace.as_deref()?, object.name.as_str())))
}

#[cfg(test)]
mod tests;
