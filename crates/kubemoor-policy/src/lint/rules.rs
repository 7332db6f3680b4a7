//! Rules of policies that another rule makes useless.
//!
//! Entry point: [`check`]. Invariant: if two rules are equal, only one is reported. Must not look
//! at objects.

use super::cover::{covers, is_for_all_of, takes_in};
use super::{Check, Finding, Ranked, finding, name};
use crate::grant::DELETE;
use crate::mask::Mask;
use crate::pattern::Pattern;
use crate::resource::{AllowRule, DriftPolicy, IgnoreRule, SealRule, TargetSpec};

/// One path of one rule.
struct Place<'p> {
    policy: &'p DriftPolicy,
    /// The rule, such as `spec.ignore[0]`.
    rule: String,
    target: Option<&'p TargetSpec>,
    /// `spec.ignore[0].paths[1]`.
    field: String,
    path: &'p str,
    /// The place of the rule, and of the path in it.
    at: (usize, usize),
    /// Whether the rule applies to every user and at all times.
    is_unconditional: bool,
}

/// Finds the rules of a policy that have no effect because of the others.
pub(super) fn check(policy: &DriftPolicy, ranked: &Ranked<'_>, findings: &mut Vec<Finding>) {
    let others = others(policy, ranked);
    let ignoring = || others.iter().flat_map(|other| ignored(other));
    for place in ignored(policy) {
        if is_helms(place.path) {
            let message = "no rule covers Helm's own label and annotations: remove the path".to_owned();
            findings.push(finding(policy, place.field, Check::Ineffective, message));
            continue;
        }
        let own = ignored(policy).filter(|it| it.stays_beside(&place));
        if let Some(other) = ignoring().chain(own).find(|other| other.decides(&place)) {
            findings.push(place.shadowed(&other, "already ignores these fields: remove this path"));
        }
    }
    for place in allowed(policy) {
        if let Some(other) = ignoring().chain(ignored(policy)).find(|other| other.decides(&place)) {
            let what = "ignores these fields, so nobody needs an exception: remove one of the two";
            findings.push(place.shadowed(&other, what));
            continue;
        }
        let standing = others.iter().flat_map(|other| allowed(other));
        let own = allowed(policy).filter(|it| it.stays_beside(&place));
        let mut standing = standing.chain(own).filter(|it| it.is_unconditional);
        if let Some(other) = standing.find(|other| other.decides(&place)) {
            let what = "allows the same to everybody at all times: remove one of the two";
            findings.push(place.shadowed(&other, what));
        }
    }
    for place in sealed(policy) {
        if let Some(other) = ignoring().chain(ignored(policy)).find(|other| other.decides(&place)) {
            let what = "ignores these fields, so the seal has no effect: remove one of the two";
            findings.push(place.shadowed(&other, what));
        }
    }
}

/// The other policies whose rules are in force wherever those of `policy` are. Of two policies with
/// the same releases, only the one with lower precedence is compared with the other.
fn others<'p>(policy: &DriftPolicy, ranked: &Ranked<'p>) -> Vec<&'p DriftPolicy> {
    let own = ranked.iter().position(|it| name(it) == name(policy));
    let is_beside = |(place, other): &(usize, &&'p DriftPolicy)| {
        Some(*place) != own
            && is_for_all_of(&other.spec, &policy.spec)
            && (!is_for_all_of(&policy.spec, &other.spec) || own.is_some_and(|own| *place < own))
    };
    ranked.iter().enumerate().filter(is_beside).map(|(_, other)| *other).collect()
}

impl<'p> Place<'p> {
    /// Whether this place decides everything that the other one covers.
    fn decides(&self, other: &Place<'_>) -> bool {
        let is_covered = match (self.path, other.path) {
            (DELETE, path) | (path, DELETE) => path == DELETE && self.path == other.path,
            (wide, narrow) => match (Pattern::parse(wide), Pattern::parse(narrow)) {
                (Ok(wide), Ok(narrow)) => covers(&wide, &narrow),
                _ => false,
            },
        };
        is_covered && takes_in(self.target, other.target)
    }

    /// Whether it is another place of the policy, and not the redundant one of two equal places,
    /// which is the later.
    fn stays_beside(&self, other: &Place<'_>) -> bool {
        let is_equal = other.is_unconditional && other.decides(self);
        self.at != other.at && (!is_equal || self.at < other.at)
    }

    fn shadowed(&self, by: &Place<'_>, what: &str) -> Finding {
        let whose = match name(by.policy) == name(self.policy) {
            true => String::new(),
            false => format!(" of the policy {:?}", name(by.policy)),
        };
        let message = format!("{} has no effect here: {}{whose} {what}", self.path, by.rule);
        finding(self.policy, self.field.clone(), Check::Shadowed, message)
    }

    /// Each path of a rule of the list `list`.
    fn all(
        policy: &'p DriftPolicy,
        (list, number): (&'static str, usize),
        target: &'p Option<TargetSpec>,
        paths: &'p [String],
    ) -> impl Iterator<Item = Self> {
        paths.iter().enumerate().map(move |(index, path)| {
            let rule = format!("spec.{list}[{number}]");
            let field = format!("{rule}.paths[{index}]");
            let at = (number, index);
            Self { policy, rule, target: target.as_ref(), field, path, at, is_unconditional: true }
        })
    }
}

fn ignored(policy: &DriftPolicy) -> impl Iterator<Item = Place<'_>> {
    let rules = policy.spec.ignore.iter().enumerate();
    rules.flat_map(move |(number, IgnoreRule { target, paths })| {
        Place::all(policy, ("ignore", number), target, paths)
    })
}

fn sealed(policy: &DriftPolicy) -> impl Iterator<Item = Place<'_>> {
    let rules = policy.spec.seal.iter().enumerate();
    rules.flat_map(move |(number, SealRule { target, paths })| {
        Place::all(policy, ("seal", number), target, paths)
    })
}

fn allowed(policy: &DriftPolicy) -> impl Iterator<Item = Place<'_>> {
    let rules = policy.spec.allow.iter().enumerate();
    rules.flat_map(move |(number, AllowRule { target, paths, schedule, subjects, .. })| {
        let is_unconditional = schedule.is_none() && subjects.is_empty();
        let places = Place::all(policy, ("allow", number), target, paths);
        places.map(move |place| Place { is_unconditional, ..place })
    })
}

/// Whether a path names Helm's own label or one of its annotations.
fn is_helms(path: &str) -> bool {
    Pattern::parse(path).is_ok_and(|pattern| Mask(vec![pattern]).names_helms().next().is_some())
}
