//! Where policies that match one release disagree, and which of two counts.
//!
//! Entry point: [`conflicts`]. Invariant: of two values the one counts that the resolver takes. Lists are unions, so one
//! rule takes something away from another only where a policy ignores fields that another one seals. Pure.

use std::fmt;

use super::compile::Compiled;
use super::mask::Mask;
use super::pattern::{Pattern, Step};
use super::target::Target;

/// Two policies that say different things about the same release.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// What they disagree about: `spec.edits`.
    pub field: &'static str,
    /// The policy that counts, and what it says.
    pub policy: String,
    /// What it says.
    pub says: String,
    /// The policy that does not.
    pub over: String,
    /// What that one says.
    pub otherwise: String,
    /// Why.
    pub why: Why,
}

/// Why one of two policies counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// It has the higher priority; both are named, its own first.
    Priority(i32, i32),
    /// Both have this priority, and its name comes first.
    Name(i32),
    /// It ignores fields.
    Ignored,
}

/// A single value of a policy, and how it is written.
type Value = (&'static str, fn(&Compiled) -> Option<String>);

const VALUES: [Value; 5] = [
    ("spec.edits", |it| it.edits.map(|mode| format!("{mode:?}"))),
    ("spec.drift", |it| it.drift.map(|mode| format!("{mode:?}"))),
    ("spec.repair.rbac", |it| it.repair.rbac.map(|is_set| is_set.to_string())),
    ("spec.repair.clusterScoped", |it| it.repair.cluster_scoped.map(|is_set| is_set.to_string())),
    ("spec.autoscalers", |it| it.autoscalers.map(|which| format!("{which:?}"))),
];

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Priority(own, other) => write!(f, "priority {own} against {other}"),
            Self::Name(priority) => write!(f, "both have priority {priority}, and its name comes first"),
            Self::Ignored => f.write_str(
                "an ignored field is never compared, whatever the priorities; this is so for objects that both rules select",
            ),
        }
    }
}

/// The conflicts of each two of these policies, which match one release and stand in order of precedence.
pub fn conflicts<'p>(matching: impl IntoIterator<Item = &'p Compiled>) -> Vec<Conflict> {
    let matching: Vec<&Compiled> = matching.into_iter().collect();
    let mut found = Vec::new();
    for (place, first) in matching.iter().enumerate() {
        for second in matching.iter().skip(place + 1) {
            found.extend(VALUES.iter().filter_map(|value| of_value(value, first, second)));
            found.extend(of_seals(first, second));
            found.extend(of_seals(second, first));
        }
    }
    found
}

/// The disagreement about a single value, of which that of `first` counts.
fn of_value((field, says): &Value, first: &Compiled, second: &Compiled) -> Option<Conflict> {
    let (own, other) = (says(first)?, says(second)?);
    let why = match first.priority == second.priority {
        true => Why::Name(first.priority),
        false => Why::Priority(first.priority, second.priority),
    };
    (own != other).then(|| Conflict {
        field,
        policy: first.name.clone(),
        says: own,
        over: second.name.clone(),
        otherwise: other,
        why,
    })
}

/// What `sealing` seals and `ignoring` ignores, one conflict for each sealed path.
fn of_seals<'p>(ignoring: &'p Compiled, sealing: &'p Compiled) -> impl Iterator<Item = Conflict> + 'p {
    let sealed = sealing.seal.iter().flat_map(|(target, mask)| mask.0.iter().map(move |path| (target, path)));
    sealed.filter_map(|(target, path)| {
        let ignored = ignored(&ignoring.ignore, target, path)?;
        Some(Conflict {
            field: "spec.seal",
            policy: ignoring.name.clone(),
            says: format!("ignores {ignored}"),
            over: sealing.name.clone(),
            otherwise: format!("seals {path}"),
            why: Why::Ignored,
        })
    })
}

/// The first path that is ignored at, above or below a path, of objects that the target may select.
fn ignored<'p>(rules: &'p [(Target, Mask)], target: &Target, path: &Pattern) -> Option<&'p Pattern> {
    let rules = rules.iter().filter(|(other, _)| other.may_meet(target));
    rules.flat_map(|(_, mask)| &mask.0).find(|other| meet(other, path))
}

/// Whether one pattern may match a path at, above or below what the other one matches.
fn meet(one: &Pattern, other: &Pattern) -> bool {
    one.0.iter().zip(&*other.0).all(|steps| match steps {
        (Step::Any, _) | (_, Step::Any) => true,
        (Step::Only(left), Step::Only(right)) => steps.0.matches(right) || steps.1.matches(left),
    })
}

#[cfg(test)]
mod tests {
    use super::super::resolver::Labels;
    use super::super::samples::{policies, policy};
    use super::*;
    use kubemoor_declare::model::ReleaseId;

    /// The conflicts of policies with these specs, each as a line.
    #[track_caller]
    fn check(specs: &[(&str, &str)], expected: &[&str]) {
        let policies = policies(specs.iter().map(|(name, spec)| policy(name, spec)));
        let release = ReleaseId { namespace: "shop".into(), name: "web".into() };
        let found = policies.of(&release, &Labels::new()).conflicts();
        let line = |it: &Conflict| {
            let Conflict { field, policy, says, over, otherwise, why } = it;
            format!("{field}: {policy} {says}, not {over} {otherwise}: {why}")
        };
        assert_eq!(found.iter().map(line).collect::<Vec<_>>(), expected, "{specs:?}");
    }

    #[test]
    fn different_values_of_matching_policies_are_conflicts_with_the_one_that_counts() {
        let strict = ("strict", "{edits: Deny, drift: Repair}");
        check(
            &[strict, ("calm", "{priority: 5, edits: Warn}")],
            &["spec.edits: calm Warn, not strict Deny: priority 5 against 0"],
        );
        check(
            &[strict, ("calm", "{edits: Warn, drift: Repair}")],
            &["spec.edits: calm Warn, not strict Deny: both have priority 0, and its name comes first"],
        );
        check(&[strict, ("same", "{edits: Deny}"), ("silent", "{exempt: [{kind: User, name: a}]}")], &[]);
        check(&[strict, ("other", "{edits: Warn, releases: {names: [other]}}")], &[]);
        check(
            &[
                ("a", "{repair: {rbac: true}, autoscalers: Any}"),
                ("b", "{repair: {rbac: false}, autoscalers: Declared}"),
            ],
            &[
                "spec.repair.rbac: a true, not b false: both have priority 0, and its name comes first",
                "spec.autoscalers: a Any, not b Declared: both have priority 0, and its name comes first",
            ],
        );
        // Each two of them.
        let three = [("a", "{edits: Deny}"), ("b", "{edits: Warn}"), ("c", "{priority: 1, edits: Record}")];
        check(
            &three,
            &[
                "spec.edits: c Record, not a Deny: priority 1 against 0",
                "spec.edits: c Record, not b Warn: priority 1 against 0",
                "spec.edits: a Deny, not b Warn: both have priority 0, and its name comes first",
            ],
        );
    }

    #[test]
    fn fields_that_one_policy_ignores_and_another_seals_are_conflicts() {
        let seal = ("seal", "{priority: 9, seal: [{target: {kind: Deployment}, paths: [/spec/template]}]}");
        let ignore =
            |target: &str, path: &str| format!("{{ignore: [{{target: {target}, paths: [{path}]}}]}}");
        let ignored = |path: &str| {
            format!("spec.seal: ignore ignores {path}, not seal seals /spec/template: {}", Why::Ignored)
        };
        for (target, path, is_conflict) in [
            ("{kind: Deployment}", "/spec/template/metadata", true),
            ("{}", "/spec", true),
            ("{kind: Deployment|Job}", "/spec/*/metadata", true),
            ("{kind: Job}", "/spec/template", false),
            ("{kind: Job|CronJob}", "/spec/template", false),
            ("{kind: Deployment}", "/spec/replicas", false),
        ] {
            let expected = ignored(path);
            let expected: &[&str] = if is_conflict { &[expected.as_str()] } else { &[] };
            check(&[seal, ("ignore", ignore(target, path).as_str())], expected);
        }
    }
}
