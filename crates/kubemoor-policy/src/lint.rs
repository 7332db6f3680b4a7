//! Finds parts of policies that have no effect, or a different one than they seem to have: from the policies alone
//! ([`lint`]), with the existing releases ([`unmatched_globs`]), and with their objects ([`unmatched_targets`]). Every
//! finding is certain for the given input.

use std::sync::Arc;

use serde::Serialize;

use crate::allowance::DELETE;
use crate::flaw::Flaws;
use crate::pattern::{Pattern, PatternStep};
use crate::resolver::VALUES;
use crate::resource::{
    AllowRule, DriftPolicy, DriftPolicySpec, LabelSelector, SubjectKind, SubjectSpec, TargetSpec,
};
use crate::selector::{Globs, Regexes, RuleTarget};
use crate::spelling::{misspelled, rules, unknown_fields};
use kubemoor_declare::model::ReleaseId;
use kubemoor_helm::release::Release;

/// A part of a policy that a user should check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LintFinding {
    pub policy: String,
    /// Where: `spec.ignore[0].paths[1]`.
    pub field: String,
    pub check: Check,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
pub enum Check {
    /// A subject includes every user.
    Everybody,
    /// A subject includes no user.
    Nobody,
    /// Another policy always sets this value.
    Overridden,
    /// Another rule always decides before this one.
    Shadowed,
    /// The field has no effect.
    Ineffective,
    /// A target names a kind that does not exist.
    UnknownKind,
    /// A path names a field that the kind does not have.
    UnknownField,
    /// No release or no object matches.
    MatchesNothing,
    /// There are too many policies, paths or globs to compare them with each other.
    TooMany,
}

/// The built-in groups that are too wide for an exemption, with their descriptions.
const EVERYBODY: [(&str, &str); 3] = [
    ("system:authenticated", "every user and every service account"),
    ("system:unauthenticated", "every unauthenticated user"),
    ("system:serviceaccounts", "every service account of the cluster"),
];

/// The limits for all policies together, since each is compared with every other one: many times what a cluster needs.
const MAX_POLICIES: usize = 1000;
const MAX_COMPARED_PATHS: usize = 5000;
const MAX_GLOB_BYTES: usize = 20_000;

impl Check {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The findings about these accepted policies, in the order of the policies.
pub fn lint(policies: &[DriftPolicy]) -> Vec<LintFinding> {
    let mut ranked: Vec<&DriftPolicy> = policies.iter().collect();
    ranked.sort_by(|a, b| b.spec.priority.cmp(&a.spec.priority).then_with(|| name(a).cmp(name(b))));
    let mut findings = Vec::from_iter(too_many(policies));
    let ranked: Vec<_> = match findings.is_empty() {
        true => ranked.into_iter().map(RankedPolicy::new).collect(),
        false => Vec::new(),
    };
    for policy in policies {
        exempt(policy, &mut findings);
        if let Some(place) = ranked.iter().position(|it| name(it.policy) == name(policy)) {
            overridden(policy, ranked.get(..place).unwrap_or_default(), &mut findings);
            check_rules(place, &ranked, &mut findings);
        }
        for (field, message) in misspelled(&policy.spec) {
            findings.push(finding(policy, field, Check::UnknownKind, message));
        }
        for (field, message) in unknown_fields(&policy.spec) {
            findings.push(finding(policy, field, Check::UnknownField, message));
        }
    }
    findings
}

/// A finding about the largest policy if there are too many policies to compare them with each other.
fn too_many(policies: &[DriftPolicy]) -> Option<LintFinding> {
    let paths = |policy: &&DriftPolicy| rules(&policy.spec).map(|(.., paths)| paths.len()).sum::<usize>();
    let globs = |policy: &&DriftPolicy| {
        let releases = policy.spec.releases.iter();
        releases.flat_map(|it| it.names.iter().chain(&it.namespaces)).map(String::len).sum::<usize>()
    };
    let largest = policies.iter().max_by_key(|policy| (paths(policy), globs(policy)))?;
    let counts = [
        ("policies", policies.len(), MAX_POLICIES),
        ("paths", policies.iter().map(|policy| paths(&policy)).sum(), MAX_COMPARED_PATHS),
        ("bytes of globs", policies.iter().map(|policy| globs(&policy)).sum(), MAX_GLOB_BYTES),
    ];
    let (what, count, limit) = counts.into_iter().find(|(_, count, limit)| count > limit)?;
    let message = format!(
        "there are {count} {what} in total, but at most {limit} can be compared: check fewer policies at once"
    );
    Some(finding(largest, "spec".to_owned(), Check::TooMany, message))
}

/// The globs of these policies that match none of these releases.
pub fn unmatched_globs(policies: &[DriftPolicy], releases: &[ReleaseId]) -> Vec<LintFinding> {
    let mut findings = Vec::new();
    for policy in policies {
        let Some(selector) = &policy.spec.releases else { continue };
        let names = releases.iter().map(|it| it.name.as_str()).collect();
        let namespaces = releases.iter().map(|it| it.namespace.as_str()).collect();
        let lists: [(&str, &[String], Vec<&str>); 2] =
            [("names", &selector.names, names), ("namespaces", &selector.namespaces, namespaces)];
        for (list, globs, there) in lists {
            for (index, glob) in globs.iter().enumerate() {
                let Some(compiled) = Globs::parse(std::slice::from_ref(glob)) else { continue };
                if there.iter().any(|name| compiled.matches(name)) {
                    continue;
                }
                let of = if list == "names" { "the name" } else { "the namespace" };
                let message =
                    format!("{glob:?} does not match {of} of any guarded release: correct or remove it");
                findings.push(finding(
                    policy,
                    format!("spec.releases.{list}[{index}]"),
                    Check::MatchesNothing,
                    message,
                ));
            }
        }
    }
    findings
}

pub(crate) fn name(policy: &DriftPolicy) -> &str {
    policy.metadata.name.as_deref().unwrap_or_default()
}

pub(crate) fn finding(policy: &DriftPolicy, field: String, check: Check, message: String) -> LintFinding {
    LintFinding { policy: name(policy).to_owned(), field, check, message }
}

fn exempt(policy: &DriftPolicy, findings: &mut Vec<LintFinding>) {
    for (index, SubjectSpec { kind, name, .. }) in policy.spec.exempt.iter().enumerate() {
        let field = format!("spec.exempt[{index}]");
        let group = EVERYBODY.iter().find(|(group, _)| *kind == SubjectKind::Group && group == name);
        if let Some((_, who)) = group {
            let message = format!(
                "the group {name:?} is {who}, so the guard checks none of their changes: use a smaller \
                 group, or set `edits: Allow`"
            );
            findings.push(finding(policy, field, Check::Everybody, message));
        } else if name.contains('*') {
            let message =
                format!("{name:?} matches nobody: wildcards are not supported here, so use the full name");
            findings.push(finding(policy, field, Check::Nobody, message));
        }
    }
}

/// Single values that another policy always sets.
fn overridden(policy: &DriftPolicy, stronger: &[RankedPolicy<'_>], findings: &mut Vec<LintFinding>) {
    let stronger = stronger.iter().map(|other| other.policy);
    let stronger: Vec<_> = stronger.filter(|other| is_for_all_of(&other.spec, &policy.spec)).collect();
    for (field, says) in VALUES {
        if says(&policy.spec).is_none() {
            continue;
        }
        if let Some(other) = stronger.iter().find(|other| says(&other.spec).is_some()) {
            let message = format!(
                "the policy {:?} sets it for every release of this policy (priority {} against {}): remove it here, or raise the priority",
                name(other),
                other.spec.priority,
                policy.spec.priority
            );
            findings.push(finding(policy, field.to_owned(), Check::Overridden, message));
        }
    }
}

/// Whether a policy applies to every release that the other one applies to, in every cluster.
fn is_for_all_of(wide: &DriftPolicySpec, narrow: &DriftPolicySpec) -> bool {
    let is_empty = |selector: &LabelSelector| *selector == LabelSelector::default();
    let labels = |wide: Option<&LabelSelector>, narrow: Option<&LabelSelector>| {
        wide.is_none_or(|wide| is_empty(wide) || Some(wide) == narrow)
    };
    let none = Default::default();
    let (all, some) = (wide.releases.as_ref().unwrap_or(&none), narrow.releases.as_ref().unwrap_or(&none));
    globs(&all.names, &some.names)
        && globs(&all.namespaces, &some.namespaces)
        && labels(all.namespace_selector.as_ref(), some.namespace_selector.as_ref())
        && labels(wide.cluster_selector.as_ref(), narrow.cluster_selector.as_ref())
}

/// Whether a target selects every object that the other one selects.
fn takes_in(wide: Option<&TargetSpec>, narrow: Option<&TargetSpec>) -> bool {
    let none = TargetSpec::default();
    let (wide, narrow) = (wide.unwrap_or(&none), narrow.unwrap_or(&none));
    wide.parts().zip(narrow.parts()).all(|((_, wide), (_, narrow))| wide.is_empty() || wide == narrow)
}

/// Whether a pattern covers every path that the other one covers.
fn covers(wide: &Pattern, narrow: &Pattern) -> bool {
    let takes = |(wide, narrow): (&PatternStep, &PatternStep)| *wide == PatternStep::Any || wide == narrow;
    wide.0.len() <= narrow.0.len() && wide.0.iter().zip(&*narrow.0).all(takes)
}

/// Whether the `wide` globs match every name that the `narrow` ones match: they are matched with the text of the narrow
/// globs, in which only `*` matches a `*`.
fn globs(wide: &[String], narrow: &[String]) -> bool {
    let is_all = |globs: &[String]| globs.is_empty() || globs.iter().any(|glob| glob == "*");
    is_all(wide)
        || !narrow.is_empty()
            && Globs::parse(wide).is_some_and(|wide| narrow.iter().all(|it| wide.matches(it)))
}

/// A policy in a list by precedence, with the paths of its rules.
struct RankedPolicy<'p> {
    policy: &'p DriftPolicy,
    ignore: Vec<RulePath<'p>>,
    allow: Vec<RulePath<'p>>,
    seal: Vec<RulePath<'p>>,
}

/// One path of one rule.
struct RulePath<'p> {
    policy: &'p DriftPolicy,
    /// The rule, such as `spec.ignore[0]`.
    rule: String,
    target: Option<&'p TargetSpec>,
    /// `spec.ignore[0].paths[1]`.
    field: String,
    path: &'p str,
    /// `None` for `delete`.
    pattern: Option<Pattern>,
    /// The index of the rule, and of the path in it.
    at: (usize, usize),
    /// Whether the rule applies to every user and at all times.
    is_unconditional: bool,
}

impl<'p> RankedPolicy<'p> {
    fn new(policy: &'p DriftPolicy) -> Self {
        let paths = |list| paths_of(policy, list);
        Self { policy, ignore: paths("ignore"), allow: paths("allow"), seal: paths("seal") }
    }
}

/// Finds the rules of the policy at `place` that have no effect because of the others.
fn check_rules(place: usize, ranked: &[RankedPolicy<'_>], findings: &mut Vec<LintFinding>) {
    let Some(RankedPolicy { policy, ignore, allow, seal }) = ranked.get(place) else { return };
    let others = others(place, ranked);
    let ignoring = || others.iter().flat_map(|other| &other.ignore);
    for path in ignore {
        if path.pattern.as_ref().is_some_and(Pattern::is_helms) {
            let message =
                "rules do not apply to Helm's own label and annotations: remove the path".to_owned();
            findings.push(finding(policy, path.field.clone(), Check::Ineffective, message));
            continue;
        }
        let own = ignore.iter().filter(|it| it.can_shadow(path));
        if let Some(other) = ignoring().chain(own).find(|other| other.decides(path)) {
            findings.push(path.shadowed(other, "already ignores these fields: remove this path"));
        }
    }
    for path in allow {
        if let Some(other) = ignoring().chain(ignore).find(|other| other.decides(path)) {
            let what = "ignores these fields, so nobody needs an exception: remove one of the two";
            findings.push(path.shadowed(other, what));
            continue;
        }
        let standing = others.iter().flat_map(|other| &other.allow);
        let own = allow.iter().filter(|it| it.can_shadow(path));
        let mut standing = standing.chain(own).filter(|it| it.is_unconditional);
        if let Some(other) = standing.find(|other| other.decides(path)) {
            let what = "already allows this to everybody at all times: remove one of the two";
            findings.push(path.shadowed(other, what));
        }
    }
    for path in seal {
        if let Some(other) = ignoring().chain(ignore).find(|other| other.decides(path)) {
            let what = "ignores these fields, so the seal has no effect: remove one of the two";
            findings.push(path.shadowed(other, what));
        }
    }
}

/// The other policies that apply wherever the policy at `own` applies. Of two policies for the same releases, only the
/// one with lower precedence is compared with the other.
fn others<'r, 'p>(own: usize, ranked: &'r [RankedPolicy<'p>]) -> Vec<&'r RankedPolicy<'p>> {
    let Some(RankedPolicy { policy, .. }) = ranked.get(own) else { return Vec::new() };
    let is_beside = |(place, other): &(usize, &RankedPolicy<'_>)| {
        *place != own
            && is_for_all_of(&other.policy.spec, &policy.spec)
            && (*place < own || !is_for_all_of(&policy.spec, &other.policy.spec))
    };
    ranked.iter().enumerate().filter(is_beside).map(|(_, other)| other).collect()
}

impl RulePath<'_> {
    /// Whether this path, on the objects of its target, covers everything that the other one covers.
    fn decides(&self, other: &RulePath<'_>) -> bool {
        let is_covered = match (&self.pattern, &other.pattern) {
            (Some(wide), Some(narrow)) => covers(wide, narrow),
            _ => self.path == DELETE && other.path == DELETE,
        };
        is_covered && takes_in(self.target, other.target)
    }

    /// Whether it is another path of the policy that can make `other` redundant: of two equal paths, only the later one
    /// is redundant.
    fn can_shadow(&self, other: &RulePath<'_>) -> bool {
        let is_equal = || other.is_unconditional && other.decides(self);
        self.at < other.at || self.at > other.at && !is_equal()
    }

    fn shadowed(&self, by: &RulePath<'_>, what: &str) -> LintFinding {
        let whose = match name(by.policy) == name(self.policy) {
            true => String::new(),
            false => format!(" of the policy {:?}", name(by.policy)),
        };
        let message = format!("{} has no effect here: {}{whose} {what}", self.path, by.rule);
        finding(self.policy, self.field.clone(), Check::Shadowed, message)
    }
}

/// Each path of the rules of one list: `ignore`, `allow` or `seal`.
fn paths_of<'p>(policy: &'p DriftPolicy, list: &str) -> Vec<RulePath<'p>> {
    let prefix = format!("spec.{list}[");
    let of_list = rules(&policy.spec).filter(|(rule, ..)| rule.starts_with(&prefix));
    let mut found = Vec::new();
    for (number, (rule, target, paths)) in of_list.enumerate() {
        let is_always = |it: &AllowRule| it.schedule.is_none() && it.subjects.is_empty();
        let is_unconditional = list != "allow" || policy.spec.allow.get(number).is_some_and(is_always);
        for (index, path) in paths.iter().enumerate() {
            found.push(RulePath {
                policy,
                field: format!("{rule}.paths[{index}]"),
                rule: rule.clone(),
                target,
                path,
                pattern: Pattern::parse(path).ok(),
                at: (number, index),
                is_unconditional,
            });
        }
    }
    found
}

/// Those of the releases whose objects the targets of policies may select.
pub fn releases_with_targets(policies: &[DriftPolicy], releases: &[ReleaseId]) -> Vec<ReleaseId> {
    let has_target = |policy: &&DriftPolicy| rules(&policy.spec).any(|(_, target, _)| target.is_some());
    let policies: Vec<_> = policies.iter().filter(has_target).collect();
    let is_targeted = |release: &&ReleaseId| policies.iter().any(|policy| may_match(policy, release));
    releases.iter().filter(is_targeted).cloned().collect()
}

/// The targets of these policies that select no object of these releases; a release is `None` if it could not be
/// read.
pub fn unmatched_targets(
    policies: &[DriftPolicy],
    releases: &[(ReleaseId, Option<Arc<Release>>)],
) -> Vec<LintFinding> {
    let mut findings = Vec::new();
    for policy in policies {
        let here =
            releases.iter().filter(|(id, _)| may_match(policy, id)).map(|(_, release)| release.as_ref());
        // No release is a different finding, and a release that could not be read may contain the object.
        let Some(here) = here.collect::<Option<Vec<_>>>().filter(|here| !here.is_empty()) else { continue };
        let unknown: Vec<_> = misspelled(&policy.spec).into_iter().map(|(field, _)| field).collect();
        let mut regexes = Regexes::default();
        for (rule, target, _) in rules(&policy.spec) {
            let Some(target) = target.filter(|_| !unknown.contains(&format!("{rule}.target.kind"))) else {
                continue;
            };
            if selects(target, &here, &mut regexes) {
                continue;
            }
            let parts = target.parts().map(|(part, _)| part);
            let wrong: Vec<_> =
                parts.filter(|part| !selects(&only(target, part), &here, &mut regexes)).collect();
            let mut told = |field: String, what: &str| {
                let message =
                    format!("{what} no object that releases of this policy declare: correct or remove it");
                findings.push(finding(policy, field, Check::MatchesNothing, message));
            };
            for part in &wrong {
                told(format!("{rule}.target.{part}"), &format!("the {part} matches"));
            }
            if wrong.is_empty() {
                told(format!("{rule}.target"), "each part matches an object, but together they match");
            }
        }
    }
    findings
}

/// A target with only one of its parts.
fn only(target: &TargetSpec, part: &str) -> TargetSpec {
    let kept = |name: &str, text: &Option<String>| text.clone().filter(|_| name == part);
    TargetSpec {
        group: kept("group", &target.group),
        version: kept("version", &target.version),
        kind: kept("kind", &target.kind),
        namespace: kept("namespace", &target.namespace),
        name: kept("name", &target.name),
        label_selector: kept("labelSelector", &target.label_selector),
        annotation_selector: kept("annotationSelector", &target.annotation_selector),
    }
}

/// Whether a policy may apply to a release; the labels of its namespace are not known.
fn may_match(policy: &DriftPolicy, release: &ReleaseId) -> bool {
    let Some(selector) = &policy.spec.releases else { return true };
    let is_one = |globs: &[String], name: &str| Globs::parse(globs).is_some_and(|globs| globs.matches(name));
    is_one(&selector.names, &release.name) && is_one(&selector.namespaces, &release.namespace)
}

/// Whether a target selects an object of these releases; `true` if it is invalid, which is a different finding.
fn selects(target: &TargetSpec, releases: &[&Arc<Release>], regexes: &mut Regexes) -> bool {
    let mut flaws = Flaws::default();
    let compiled = RuleTarget::compile(Some(target), "target", regexes, &mut flaws);
    let Ok(compiled) = flaws.or(compiled) else { return true };
    releases.iter().any(|release| {
        let mut objects = release.objects.keys();
        objects
            .any(|object| release.declared(object).is_some_and(|declared| compiled.selects(object, declared)))
    })
}

#[cfg(test)]
mod tests;
