//! The exceptions of an object in words: the rule and the policy, the end, and the permitted users.
//!
//! Entry points: [`Words::all`], [`Words::of_source`]. Invariant: closed windows are listed too, with the
//! time at which they open.

use std::sync::Arc;

use jiff::Timestamp;

use kubemoor_declare::model::{Autoscaler, ObjectId};
use kubemoor_declare::path::Path;
use kubemoor_helm::release::Declared;
use kubemoor_policy::Policy;
use kubemoor_policy::allowance::Allowance;
use kubemoor_policy::mask::Mask;
use kubemoor_policy::standing::{Origin, Standing};
use kubemoor_verdict::exceptions::{Exceptions, Source};

/// The inputs for the descriptions of exceptions.
#[derive(Clone, Copy)]
pub(crate) struct Words<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) object: &'a ObjectId,
    pub(crate) declared: &'a Arc<Declared>,
    pub(crate) now: Timestamp,
}

impl Words<'_> {
    /// All exceptions of the object, windows that are closed included.
    pub(crate) fn all(&self, exceptions: &Exceptions<'_>) -> Vec<String> {
        let mut told: Vec<String> = self.ignored(None);
        let rules = self.policy.rules(self.object, self.declared);
        told.extend(rules.standing.iter().map(|standing| self.of_standing(standing)));
        let others = exceptions.sources();
        let others = others.into_iter().filter(|it| !matches!(it, Source::Ignored(_) | Source::Standing(_)));
        told.extend(others.flat_map(|source| self.of_source(source, None)));
        told
    }

    /// One exception; for ignored fields of policies only those that cover the path.
    pub(crate) fn of_source(&self, source: Source<'_>, path: Option<&Path>) -> Vec<String> {
        match source {
            Source::Ignored(_) => self.ignored(path),
            Source::Standing(standing) => vec![self.of_standing(standing)],
            Source::Allowance(Allowance { name, by, until, reason, .. }, mask) => {
                let by = if by.user.is_empty() { String::new() } else { format!(" of {}", by.user) };
                let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
                vec![format!("allowance {name}{by} until {until}{reason}{}", at(mask))]
            }
            Source::Autoscaler(Autoscaler { minimum, maximum, .. }, _) => {
                vec![format!("an autoscaler sets {minimum} to {maximum} replicas")]
            }
        }
    }

    fn ignored(&self, path: Option<&Path>) -> Vec<String> {
        let rules = self.policy.ignoring(self.object, self.declared);
        let covers = |mask: &Mask| path.is_none_or(|path| mask.covers(path) || mask.reaches_below(path));
        rules
            .filter(|(_, mask)| covers(mask))
            .map(|(policy, mask)| format!("ignored by policy {policy}{}", at(&mask)))
            .collect()
    }

    fn of_standing(&self, standing: &Standing) -> String {
        let Standing { origin, grant, schedule, until, subjects } = standing;
        let origin = match origin {
            Origin::Policy { policy, name } => format!("allowed by policy {policy}, rule {name}"),
            Origin::Manifest { .. } => "allowed by the chart's own annotation".to_owned(),
        };
        let what =
            if grant.deletes { format!("{} and its deletion", at(&grant.mask)) } else { at(&grant.mask) };
        let names: Vec<_> = subjects.iter().map(ToString::to_string).collect();
        let whom = if names.is_empty() { "everyone".to_owned() } else { names.join(", ") };
        let change = standing.next_change(self.now);
        let when = match (standing.open(self.now), change, until) {
            (true, Some(end), _) => format!("open until {end}"),
            (true, None, _) => "open".to_owned(),
            (false, Some(start), _) => format!("CLOSED, opens at {start}"),
            (false, None, Some(end)) => format!("CLOSED, ended at {end}"),
            (false, None, None) => "CLOSED".to_owned(),
        };
        let window = schedule.as_ref().map_or_else(String::new, |schedule| format!(", window {schedule}"));
        format!("{origin}{what}, for {whom}: {when}{window}")
    }
}

/// The paths of an exception, where there are any.
fn at(mask: &Mask) -> String {
    let paths: Vec<_> = mask.0.iter().take(8).map(ToString::to_string).collect();
    match (paths.is_empty(), mask.0.len().saturating_sub(paths.len())) {
        (true, _) => String::new(),
        (false, 0) => format!(" at {}", paths.join(", ")),
        (false, more) => format!(" at {} and {more} more", paths.join(", ")),
    }
}
