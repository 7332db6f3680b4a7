//! Names in targets that do not exist while a similar one does: kinds, and fields of built-in kinds.
//!
//! Entry points: [`misspelled`], [`unknown_fields`]. Invariant: a custom kind and its fields are never reported as
//! misspelled.

use super::super::grant::DELETE;
use super::super::known::Instead;
use super::super::nearest;
use super::super::pattern::Pattern;
use super::super::resource::{DriftPolicySpec, TargetSpec};

/// The kinds of a policy's targets that do not exist while a similar one does: the field, and both
/// names. Regular expressions are not checked, except for their alternatives.
pub(crate) fn misspelled(spec: &DriftPolicySpec) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    for (rule, target, _) in rules(spec) {
        let Some(TargetSpec { kind: Some(kinds), .. }) = target else { continue };
        for kind in kinds.trim_start_matches('(').trim_end_matches(')').split('|') {
            if let Some(meant) = nearest::kind(kind) {
                found.push((format!("{rule}.target.kind"), kind.to_owned(), meant));
            }
        }
    }
    found
}

/// The paths of rules for one built-in kind that no object of the kind has: where they stand, and what is wrong.
/// A custom kind may have the same name, so without a group only slips of known names are found.
pub(crate) fn unknown_fields(spec: &DriftPolicySpec) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (rule, target, paths) in rules(spec) {
        let Some(TargetSpec { kind: Some(kind), group, .. }) = target else { continue };
        let group = group.as_deref().filter(|group| !group.is_empty());
        let schemas = nearest::schemas(group, kind);
        for (index, path) in paths.iter().enumerate().filter(|(_, path)| *path != DELETE) {
            let Ok(pattern) = Pattern::parse(path) else { continue };
            let unknown: Option<Vec<_>> =
                schemas.iter().map(|schema| pattern.unknown_field(schema)).collect();
            let Some(unknown) = unknown.and_then(|unknown| unknown.into_iter().next()) else { continue };
            if group.is_some() || matches!(unknown.instead, Instead::Like(_) | Instead::Element) {
                found.push((format!("{rule}.paths[{index}]"), format!("in {kind} {unknown}")));
            }
        }
    }
    found
}

/// Every rule with objects and paths: where it stands, and both.
pub(crate) fn rules(
    spec: &DriftPolicySpec,
) -> impl Iterator<Item = (String, Option<&TargetSpec>, &[String])> {
    let ignore = spec.ignore.iter().map(|rule| (&rule.target, &rule.paths)).enumerate();
    let allow = spec.allow.iter().map(|rule| (&rule.target, &rule.paths)).enumerate();
    let seal = spec.seal.iter().map(|rule| (&rule.target, &rule.paths)).enumerate();
    let rules = ignore.map(|it| ("ignore", it)).chain(allow.map(|it| ("allow", it)));
    let rules = rules.chain(seal.map(|it| ("seal", it)));
    rules.map(|(list, (index, (target, paths)))| {
        (format!("spec.{list}[{index}]"), target.as_ref(), paths.as_slice())
    })
}
