//! The declared fields of an object that are asked about.
//!
//! Entry points: [`of`], [`named`]. Invariant: a Secret's values are not shown.

use serde::Serialize;
use serde_json::Value;

use crate::declaration::equality::Agreement;
use crate::declaration::fields::FieldChange;
use crate::declaration::path::Path;
use crate::helm::release::Declared;
use crate::model::{Autoscaler, ObjectId};
use crate::policy::allowance::Allowance;
use crate::policy::mask::Mask;
use crate::policy::pattern::Pattern;
use crate::policy::standing::Origin;
use crate::verdict::edit::Reason;
use crate::verdict::exceptions::{Exceptions, Source};
use crate::verdict::ownership::{Manager, Owners};
use crate::verdict::sealed;
use crate::verdict::shown::Shown;
use crate::verdict::{additions, drift};

/// One declared field.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Field {
    pub(super) path: String,
    pub(super) state: FieldState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) declared: Option<Shown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) live: Option<Shown>,
    /// Who owns it by `managedFields`.
    pub(super) managers: Vec<Manager>,
    /// The rules and allowances that cover it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) spared_by: Vec<String>,
}

/// How a field stands to its declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum FieldState {
    /// It is as declared.
    AsDeclared,
    /// It is not.
    Drifted,
    /// It may not be.
    InDoubt,
    /// There is no live object.
    Absent,
}

/// What spares fields, in words.
pub(super) fn named(source: Source<'_>) -> String {
    match source {
        Source::Ignored(_) => "ignored by policy".to_owned(),
        Source::Standing(standing) => match &standing.origin {
            Origin::Policy { policy, name } => format!("allowed by policy {policy}, rule {name}"),
            Origin::Manifest { .. } => "allowed by the manifest's own annotation".to_owned(),
        },
        Source::Allowance(Allowance { name, by, until, reason, .. }, _) => {
            let by = if by.user.is_empty() { String::new() } else { format!(" of {}", by.user) };
            let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
            format!("allowance {name}{by} until {until}{reason}")
        }
        Source::Autoscaler(Autoscaler { minimum, maximum, .. }, _) => {
            format!("an autoscaler sets {minimum} to {maximum} replicas")
        }
    }
}

/// The declared fields that `patterns` name; without any, those that are not
/// as declared.
pub(super) fn of(
    object: &ObjectId,
    declared: &Declared,
    live: Option<&Value>,
    patterns: &[Pattern],
    exceptions: &Exceptions<'_>,
    is_deployed: bool,
) -> Vec<Field> {
    let drift = |live| {
        let mut changes = drift::of_fields(&declared.fields, live, is_deployed);
        let sealed = sealed::drift(object, &declared.fields, live).into_iter();
        changes.extend(
            sealed.filter(|it| changes.iter().all(|known| known.path != it.path)).collect::<Vec<_>>(),
        );
        changes.extend(additions::drift(object, &declared.fields, exceptions.sealed(), live));
        changes
    };
    let changes: Vec<FieldChange> = live.map(drift).unwrap_or_default();
    let owners = live.map(Owners::of).unwrap_or_default();
    let asked =
        |path: &Path| patterns.iter().any(|pattern| pattern.covers(path) || pattern.reaches_below(path));
    let of_change = |change: &FieldChange| {
        let state = match change.agreement {
            Agreement::Doubt => FieldState::InDoubt,
            Agreement::Agrees => FieldState::AsDeclared,
            Agreement::Altered
            | Agreement::Missing
            | Agreement::Added
            | Agreement::Within
            | Agreement::Differs => FieldState::Drifted,
        };
        (change.path.clone(), state, change.declared.clone(), change.new.clone(), exceptions.of_field(change))
    };
    let mut found: Vec<_> =
        changes.iter().filter(|change| patterns.is_empty() || asked(&change.path)).map(of_change).collect();
    if !patterns.is_empty() {
        let state = if live.is_some() { FieldState::AsDeclared } else { FieldState::Absent };
        for (path, value) in declared.fields.leaves() {
            // What a change already tells of: the same path, or all below one.
            let told = changes.iter().any(|change| path.0.starts_with(&change.path.0));
            if asked(&path) && !told {
                let now = live.and_then(|live| path.get(live).first().map(|value| (*value).clone()));
                found.push((path, state, Some(value), now, None));
            }
        }
    }
    found
        .into_iter()
        .map(|(path, state, declared, live, excused)| {
            let shown = |value: Option<Value>| value.map(|value| Shown::of(object, &path, &value));
            let changed = matches!(state, FieldState::Drifted | FieldState::InDoubt);
            let covers = |mask: &Mask| mask.covers(&path) || (excused.is_some() && mask.reaches_below(&path));
            let spares = |source: &Source<'_>| match source {
                Source::Ignored(mask) => covers(mask),
                Source::Standing(standing) => covers(&standing.grant.mask),
                Source::Allowance(_, mask) => covers(mask),
                Source::Autoscaler(_, replicas) => {
                    **replicas == path && (!changed || excused == Some(Reason::Autoscaled))
                }
            };
            let sources = exceptions.sources().into_iter().filter(spares);
            Field {
                state,
                declared: shown(declared),
                live: shown(live),
                managers: owners.of_path(&path).into_iter().cloned().collect(),
                spared_by: sources.map(named).collect(),
                path: path.to_string(),
            }
        })
        .collect()
}
