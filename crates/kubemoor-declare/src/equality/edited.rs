//! The agreement of a value that replaced another.
//!
//! Entry points: [`settled`], [`is_chosen_late`]. Invariant: the old value only settles doubts; it never makes a value
//! agree that clearly differs.

use serde_json::Value;

use super::super::schema::{TypeId, Types};
use super::{Agreement, Family, Place, Spot, agreement, is_empty, known};

/// The agreement of `new`, which replaced `old`, where `new` alone leaves a doubt. Both are as the API server
/// returned them.
///
/// The API server fills in defaults whenever it returns an object, so `old` has all possible defaults. An
/// `old` that agrees is the canonical form, so any difference from it is a change. If `old` itself leaves a
/// doubt, then something was added to it or changed in it. A `new` with fewer keys than that is closer to the
/// declaration.
pub fn settled(
    types: &Types,
    (ty, spot): (TypeId, Spot<'_>),
    declared: &Value,
    old: Option<&Value>,
    new: Option<&Value>,
) -> Agreement {
    let Some(before) = old.filter(|old| !old.is_null()) else {
        return agreement(types, ty, spot, declared, new);
    };
    let agrees = |live| agreement(types, ty, spot, declared, live);
    match agrees(new) {
        Agreement::Doubt => match agrees(old) {
            Agreement::Agrees => Agreement::Altered,
            Agreement::Doubt if new.is_some_and(|new| is_part(new, before)) => Agreement::Agrees,
            Agreement::Doubt => Agreement::Altered,
            Agreement::Altered
            | Agreement::Missing
            | Agreement::Added
            | Agreement::Within
            | Agreement::Differs => Agreement::Doubt,
        },
        // The server has kept it until now.
        Agreement::Missing if new.is_none_or(Value::is_null) || agrees(old) < Agreement::Missing => {
            Agreement::Differs
        }
        // Of several values that may be the default the old one was it.
        Agreement::Agrees if is_filled_otherwise(spot, declared, new) && agrees(old) == Agreement::Agrees => {
            Agreement::Altered
        }
        agreement => agreement,
    }
}

/// Whether an edit has chosen what is declared empty, and nobody chooses explicitly for an object that is
/// there.
pub(crate) fn is_chosen_late(spot: Spot<'_>, declared: &Value, new: Option<&Value>) -> bool {
    spot.family == Family::Core
        && spot.place == Place::Field
        && is_empty(declared)
        && known::is_chosen_at_first(spot.name)
        && new.is_some_and(|new| !is_empty(new) || is_chosen_empty(spot.name, declared, new))
}

/// Whether an empty value is a choice, where null leaves the choice to others: a claim of class `""` gets no default.
fn is_chosen_empty(name: &str, declared: &Value, new: &Value) -> bool {
    known::keeps_zero(name) && declared.is_null() && !new.is_null()
}

/// Whether the server has filled in its own value, and nothing else has.
fn is_filled_otherwise(spot: Spot<'_>, declared: &Value, new: Option<&Value>) -> bool {
    let is_own = |value: &Value| match value {
        Value::Null | Value::Object(_) => false,
        Value::Array(_) => known::fills_list(spot.name),
        _ => !known::is_others(spot.name),
    };
    spot.place == Place::Field
        && matches!(spot.family, Family::Rights | Family::Core)
        && (declared.is_null() || declared.as_str() == Some(""))
        && new.is_some_and(is_own)
}

/// Whether `value` equals `whole` without some of its keys.
fn is_part(value: &Value, whole: &Value) -> bool {
    match (value, whole) {
        (Value::Object(map), Value::Object(whole)) => {
            map.iter().all(|(name, value)| whole.get(name).is_some_and(|whole| is_part(value, whole)))
        }
        (Value::Array(items), Value::Array(whole)) => {
            items.len() == whole.len() && items.iter().zip(whole).all(|(item, whole)| is_part(item, whole))
        }
        _ => value == whole,
    }
}
