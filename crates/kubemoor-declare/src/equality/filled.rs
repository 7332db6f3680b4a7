//! Undeclared whole values that the API server fills in.
//!
//! Entry point: [`is_filled_in`]. Invariant: a list element or an entry of a free map never counts as filled
//! in. Several fields as one value do not either, except where the server creates such a value. An empty
//! value of a built-in kind always may be filled in.

use serde_json::Value;

use super::{Family, is_empty, is_same, is_zero, known, member};
use crate::schema::{ListKind, MAX_DEPTH, Shape, TypeId, Types};

/// Fields that hold several others, which the server sets where they are absent.
const MADE: &[&str] = &[
    "clientIP",
    "conversion",
    "exempt",
    "limitResponse",
    "persistentVolumeClaimRetentionPolicy",
    "rollingUpdate",
    "scaleDown",
    "scaleUp",
    "sessionAffinityConfig",
    "status",
    "strategy",
    "updateStrategy",
];

/// An undeclared value.
#[derive(Clone, Copy)]
pub(crate) struct Unnamed<'a> {
    pub(crate) ty: TypeId,
    /// The names of its field and of the enclosing one.
    pub(crate) name: &'a str,
    pub(crate) within: &'a str,
    /// The default that the schema names.
    pub(crate) default: Option<&'a Value>,
    /// Whether it had another value before, chosen by the server or a user.
    pub(crate) is_changed: bool,
    /// Whether the object was there before.
    pub(crate) is_of_update: bool,
}

/// Whether the API server may set the field to `value` on its own.
pub(crate) fn is_filled_in(
    types: &Types,
    family: Family,
    field: Unnamed<'_>,
    value: &Value,
    depth: usize,
) -> bool {
    let Unnamed { ty, name, within, default, is_changed, is_of_update } = field;
    if value.is_null() || default.is_some_and(|it| is_same(types, ty, Some(it), Some(value))) {
        return true;
    }
    if depth >= MAX_DEPTH {
        return false;
    }
    let is_own = family != Family::Custom;
    // If the value alone does not identify the server's choice, it is accepted only where there was no value
    // before.
    let is_exact = || !is_changed || !known::takes_any(name);
    let is_filled = || known::is_filled(within, name, value) && is_exact();
    if is_own && (known::is_default(within, name, value) || is_filled()) {
        return true;
    }
    let may_choose = is_own && !is_changed;
    match (types.shape(ty), value) {
        (Shape::Struct(shape), Value::Object(map)) => {
            let is_made = default.is_some() || (is_own && (map.is_empty() || MADE.contains(&name)));
            is_made
                && map.iter().all(|(below, value)| {
                    let default = shape.field(below).and_then(|field| field.default.as_deref());
                    let ty = member(types.shape(ty), below);
                    let field = Unnamed { ty, name: below, within: name, default, ..field };
                    is_filled_in(types, family, field, value, depth + 1)
                })
        }
        (_, value) if is_empty(value) => is_own,
        (Shape::List { kind: ListKind::Map(_), .. }, _) => false,
        (_, value) if is_zero(value) => is_own && !known::keeps_zero(name),
        (_, Value::Array(_)) => may_choose && (known::fills_list(name) || known::completes(name)),
        // The scheduler chooses the node of a Pod, and of no template.
        _ => may_choose && (known::is_chosen(name) || is_chosen_text(name, is_of_update)),
    }
}

/// Whether another component chooses this text. None chooses the node in a template, and some texts are
/// chosen only when an object is created.
fn is_chosen_text(name: &str, is_of_update: bool) -> bool {
    let is_too_late = is_of_update && known::is_chosen_at_first(name);
    known::chooses_text(name) && name != "nodeName" && !is_too_late
}
