//! The declared fields of an object that are asked about.
//!
//! Entry point: [`of`]. Invariant: a Secret's values are not shown.

use serde::Serialize;
use serde_json::Value;

use crate::declaration::equality::Agreement;
use crate::declaration::fields::FieldChange;
use crate::declaration::path::Path;
use crate::helm::release::Declared;
use crate::model::ObjectId;
use crate::policy::mask::Mask;
use crate::policy::pattern::Pattern;
use crate::verdict::ownership::{Manager, Owners};
use crate::verdict::shown::Shown;

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

/// What spares fields: a name for people, and which.
pub(super) type Sparing = (String, Mask);

/// The declared fields that `patterns` name; without any, those that are not
/// as declared.
pub(super) fn of(
    object: &ObjectId,
    declared: &Declared,
    live: Option<&Value>,
    patterns: &[Pattern],
    sparing: &[Sparing],
) -> Vec<Field> {
    let changes = live.map(|live| declared.fields.drift(live)).unwrap_or_default();
    let owners = live.map(Owners::of).unwrap_or_default();
    let asked =
        |path: &Path| patterns.iter().any(|pattern| pattern.covers(path) || pattern.reaches_below(path));
    let of_change = |change: &FieldChange| {
        let state = match change.agreement {
            Agreement::Doubt => FieldState::InDoubt,
            Agreement::Agrees => FieldState::AsDeclared,
            Agreement::Differs => FieldState::Drifted,
        };
        (change.path.clone(), state, change.declared.clone(), change.new.clone())
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
                found.push((path, state, Some(value), now));
            }
        }
    }
    found
        .into_iter()
        .map(|(path, state, declared, live)| {
            let shown = |value: Option<Value>| value.map(|value| Shown::of(object, &path, &value));
            let covering = sparing.iter().filter(|(_, mask)| mask.covers(&path));
            Field {
                state,
                declared: shown(declared),
                live: shown(live),
                managers: owners.of_path(&path).into_iter().cloned().collect(),
                spared_by: covering.map(|(name, _)| name.clone()).collect(),
                path: path.to_string(),
            }
        })
        .collect()
}
