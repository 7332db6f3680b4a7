//! Finds parts of policies that have no effect, or another one than it seems.
//!
//! Entry points: [`lint`] for findings from the policies alone, [`unmatched`] for those that depend
//! on the releases, [`aimless`] for those that depend on the objects of releases. Invariant: a finding is certain for
//! the releases and objects that it was given, and one of [`lint`] whatever exists. Must not know files.

mod cover;
mod rules;
mod targets;

use serde::Serialize;

use self::cover::is_for_all_of;
pub use self::targets::{aimless, targeted};
use super::glob::Globs;
use super::resource::{DriftPolicy, DriftPolicySpec, SubjectKind, SubjectSpec};
use super::target::{misspelled, unknown_fields};
use kubemoor_declare::model::ReleaseId;

/// Something in a policy that a person should look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The policy's name.
    pub policy: String,
    /// Where: `spec.ignore[0].paths[1]`.
    pub field: String,
    /// The kind of finding.
    pub check: Check,
    /// The problem and the remedy.
    pub message: String,
}

/// The kind of finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Check {
    /// A subject includes every user.
    Everybody,
    /// A subject includes no user.
    Nobody,
    /// Another policy always sets this value.
    Overridden,
    /// Another rule always decides before this one.
    Shadowed,
    /// The field has no effect where it stands.
    Ineffective,
    /// A target names a kind that does not exist.
    UnknownKind,
    /// A path names a field that the kind does not have.
    UnknownField,
    /// No release matches, or no object.
    MatchesNothing,
}

/// The groups that include every user, with their descriptions.
const EVERYBODY: [(&str, &str); 3] = [
    ("system:authenticated", "every user and every service account"),
    ("system:unauthenticated", "everybody who is not logged in"),
    ("system:serviceaccounts", "every service account of the cluster"),
];

/// Policies that are in force together, in order of precedence.
pub(super) type Ranked<'p> = [&'p DriftPolicy];

/// A single value, and whether a policy sets it.
type Value = (&'static str, fn(&DriftPolicySpec) -> bool);

impl Check {
    /// The check's name, as in the output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Everybody => "Everybody",
            Self::Nobody => "Nobody",
            Self::Overridden => "Overridden",
            Self::Shadowed => "Shadowed",
            Self::Ineffective => "Ineffective",
            Self::UnknownKind => "UnknownKind",
            Self::UnknownField => "UnknownField",
            Self::MatchesNothing => "MatchesNothing",
        }
    }
}

/// The parts of these accepted policies that have no effect, in order.
pub fn lint(policies: &[DriftPolicy]) -> Vec<Finding> {
    let mut ranked: Vec<&DriftPolicy> = policies.iter().collect();
    ranked.sort_by(|a, b| b.spec.priority.cmp(&a.spec.priority).then_with(|| name(a).cmp(name(b))));
    let mut findings = Vec::new();
    for policy in policies {
        exempt(policy, &mut findings);
        overridden(policy, &ranked, &mut findings);
        rules::check(policy, &ranked, &mut findings);
        for (field, kind, meant) in misspelled(&policy.spec) {
            let message = format!("{kind:?} is no kind of Kubernetes: did you mean {meant}?");
            findings.push(finding(policy, field, Check::UnknownKind, message));
        }
        for (field, message) in unknown_fields(&policy.spec) {
            findings.push(finding(policy, field, Check::UnknownField, message));
        }
    }
    findings
}

/// The globs of these policies that match none of these releases.
pub fn unmatched(policies: &[DriftPolicy], releases: &[ReleaseId]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for policy in policies {
        let Some(selector) = &policy.spec.releases else { continue };
        let names = releases.iter().map(|it| it.name.as_str()).collect();
        let namespaces = releases.iter().map(|it| it.namespace.as_str()).collect();
        let lists: [(&str, &[String], Vec<&str>); 2] =
            [("names", &selector.names, names), ("namespaces", &selector.namespaces, namespaces)];
        for (list, globs, there) in lists {
            for (index, glob) in globs.iter().enumerate() {
                let Ok(compiled) = Globs::parse(std::slice::from_ref(glob)) else { continue };
                if there.iter().any(|name| compiled.matches(name)) {
                    continue;
                }
                let of = if list == "names" { "the name" } else { "the namespace" };
                let message =
                    format!("{glob:?} matches {of} of no release that is guarded now: correct or remove it");
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

const VALUES: [Value; 5] = [
    ("spec.edits", |spec| spec.edits.is_some()),
    ("spec.drift", |spec| spec.drift.is_some()),
    ("spec.repair.rbac", |spec| spec.repair.as_ref().is_some_and(|it| it.rbac.is_some())),
    ("spec.repair.clusterScoped", |spec| spec.repair.as_ref().is_some_and(|it| it.cluster_scoped.is_some())),
    ("spec.autoscalers", |spec| spec.autoscalers.is_some()),
];

pub(super) fn name(policy: &DriftPolicy) -> &str {
    policy.metadata.name.as_deref().unwrap_or_default()
}

pub(super) fn finding(policy: &DriftPolicy, field: String, check: Check, message: String) -> Finding {
    Finding { policy: name(policy).to_owned(), field, check, message }
}

/// Exempt groups that include every user, or no user.
fn exempt(policy: &DriftPolicy, findings: &mut Vec<Finding>) {
    for (index, SubjectSpec { kind, name, .. }) in policy.spec.exempt.iter().enumerate() {
        let field = format!("spec.exempt[{index}]");
        let group = EVERYBODY.iter().find(|(group, _)| *kind == SubjectKind::Group && group == name);
        if let Some((_, who)) = group {
            let message = format!(
                "the group {name:?} is {who}, so the guard judges none of their changes: name a smaller group, or set `edits: Allow`"
            );
            findings.push(finding(policy, field, Check::Everybody, message));
        } else if name.contains('*') {
            let message =
                format!("{name:?} exempts nobody: names are compared whole, so write the whole name");
            findings.push(finding(policy, field, Check::Nobody, message));
        }
    }
}

/// Single values that another policy always sets.
fn overridden(policy: &DriftPolicy, ranked: &Ranked<'_>, findings: &mut Vec<Finding>) {
    let stronger = ranked.iter().take_while(|other| name(other) != name(policy));
    let stronger: Vec<_> = stronger.filter(|other| is_for_all_of(&other.spec, &policy.spec)).collect();
    for (field, says) in VALUES {
        if !says(&policy.spec) {
            continue;
        }
        if let Some(other) = stronger.iter().find(|other| says(&other.spec)) {
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

#[cfg(test)]
mod tests;
