//! Equality of values in meaning.
//!
//! Entry points: [`agreement`] compares a declared value with a live one, [`is_same`] compares two values
//! that both come from the API server.
//!
//! Invariant: [`Agreement::Differs`] is never a guess. If only the API server can decide, the result is
//! [`Agreement::Doubt`]. Recursion ends at [`MAX_DEPTH`]: below it `agreement` doubts and `is_same` sees no
//! difference.

use serde_json::{Map, Value};

pub(super) use self::alike::Alike;
pub use self::alike::class_of_scalar as class;
pub(super) use self::edited::is_chosen_late;
pub use self::edited::settled;
pub(super) use self::filled::{Unnamed, is_filled_in};
use self::keys::ByKeys;
pub use self::scalars::is_same_scalar;
pub use self::spot::{Family, Place, Spot};
use self::whole::{Comparison, Sides};
use super::schema::{ListKey, ListKind, MAX_DEPTH, Scalar, Shape, Struct, TypeId, Types};

mod alike;
mod edited;
mod filled;
pub(super) mod keys;
mod known;
mod limits;
mod scalars;
mod spot;
mod whole;
pub(super) mod work;

/// Pairs of list elements up to which elements are matched by trying all.
const MAX_PAIRS: usize = 1 << 16;

/// Whether a live value is the declared one. Ordered from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Agreement {
    /// It is.
    Agrees,
    /// It may be: only the API server knows how it spells the declared value.
    Doubt,
    /// It is not: something was added to it, moved in it or filled into it that
    /// no API server adds. A mutating webhook may have, of what Helm sent.
    Altered,
    /// It is not: something declared is not there. A server drops fields that its
    /// feature gates switch off.
    Missing,
    /// Nothing is declared there, and a policy seals the place. Used for additions only.
    Added,
    /// As [`Self::Added`], within a value that a webhook or the server added: the previous value is unknown.
    Within,
    /// It is not.
    Differs,
}

impl Agreement {
    /// Whether nothing is declared there.
    pub fn is_addition(self) -> bool {
        matches!(self, Self::Added | Self::Within)
    }
}

/// Compares a declared value of type `ty` with the live one; `None` where the live object has none.
///
/// A declared null means absence, and also accepts the server's default. In custom kinds, and in place of
/// granular maps and structs, a null declares nothing. Zero and empty values agree with absence where the API
/// server leaves them out, and are in doubt where it may have filled them. Undeclared live keys inside one
/// declared value agree when they are defaults, differ in free maps, and are in doubt otherwise.
pub fn agreement(
    types: &Types,
    ty: TypeId,
    spot: Spot<'_>,
    declared: &Value,
    live: Option<&Value>,
) -> Agreement {
    let live = held(types.shape(ty), live);
    match live.filter(|value| !value.is_null()) {
        live if declared.is_null() => whole::with_null(types, ty, spot, live),
        None => whole::with_absent(types, ty, spot, declared),
        Some(_) if is_open_empty(types, ty, declared, live) => Agreement::Agrees,
        Some(live) => Comparison::of(types).present(ty, spot, Sides { declared, live, depth: 0 }),
    }
}

/// Whether two values, both as the API server returned them, mean the same. Null, empty lists and empty maps
/// mean absence, because clients that know a kind's types leave them out. An empty struct does not
/// (`emptyDir: {}`, `podSelector: {}`), nor does zero: the server shows a zero only where it matters. Null
/// bytes become empty ones.
pub fn is_same(types: &Types, ty: TypeId, a: Option<&Value>, b: Option<&Value>) -> bool {
    same(types, ty, a, b, 0)
}

/// Whether a value is null, an empty text, list or map.
pub fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Whether a value is an empty list or map.
pub fn is_void(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Whether a value is `false` or `0`.
pub fn is_zero(value: &Value) -> bool {
    match value {
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        _ => false,
    }
}

/// Whether an element has these values at these keys, absent ones being their
/// defaults.
pub(super) fn has_keys(element: &Value, keys: &[ListKey], values: &[Value]) -> bool {
    are_keys(keys.iter().map(|key| key_value(element, key)), values)
}

/// Whether an element whose keys have the values `own` has these.
pub(super) fn are_keys<'v>(own: impl Iterator<Item = Option<&'v Value>>, values: &[Value]) -> bool {
    work::note();
    own.zip(values)
        .all(|(own, wanted)| own.is_some_and(|value| is_same_scalar(Scalar::IntOrString, value, wanted)))
}

/// The value of a key in an element: its own, else the default. An empty text
/// is absence where there is a default.
pub(super) fn key_value<'a>(element: &'a Value, key: &'a ListKey) -> Option<&'a Value> {
    match element.get(&*key.name) {
        Some(Value::Null) | None => key.default.as_deref(),
        Some(Value::String(text)) if text.is_empty() && key.default.is_some() => key.default.as_deref(),
        own => own,
    }
}

/// Whether a granular value is declared empty, which declares only its existence, and the live object has it.
pub(super) fn is_open_empty(types: &Types, ty: TypeId, declared: &Value, live: Option<&Value>) -> bool {
    is_granular(types, ty)
        && declared.as_object().is_some_and(Map::is_empty)
        && live.is_some_and(Value::is_object)
}

/// Whether server-side apply merges objects of that type when they are not empty; an empty one is one value.
pub(super) fn is_granular(types: &Types, ty: TypeId) -> bool {
    match types.shape(ty) {
        Shape::Struct(Struct { atomic, .. }) | Shape::Map { atomic, .. } => !atomic,
        Shape::Any => true,
        Shape::Scalar(_) | Shape::List { .. } => false,
    }
}

fn same(types: &Types, ty: TypeId, a: Option<&Value>, b: Option<&Value>, depth: usize) -> bool {
    work::note();
    let shape = types.shape(ty);
    let (a, b) = (held(shape, a), held(shape, b));
    let counts = |value: &&Value| counts(shape, value);
    let (a, b) = match (a.filter(counts), b.filter(counts)) {
        (None, None) => return true,
        (Some(a), Some(b)) => (a, b),
        _ => return false,
    };
    if depth >= MAX_DEPTH {
        return true;
    }
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            a.iter()
                .all(|(name, value)| same(types, member(shape, name), Some(value), b.get(name), depth + 1))
                && b.iter()
                    .filter(|(name, _)| !a.contains_key(*name))
                    .all(|(name, value)| same(types, member(shape, name), None, Some(value), depth + 1))
        }
        (Value::Array(a), Value::Array(b)) => {
            let (item, kind) = match shape {
                Shape::List { item, kind } => (*item, kind),
                _ => (TypeId::ANY, &ListKind::Atomic),
            };
            a.len() == b.len()
                && (in_step(types, item, a, b, depth + 1)
                    || (*kind != ListKind::Atomic
                        && a.len().saturating_mul(b.len()) <= MAX_PAIRS
                        && are_within(types, item, a, b, depth + 1)
                        && are_within(types, item, b, a, depth + 1)
                        && !has_doubled_keys(kind, a)))
        }
        (Value::Array(_) | Value::Object(_), _) | (_, Value::Array(_) | Value::Object(_)) => false,
        _ => match shape {
            Shape::Scalar(kind) => is_same_scalar(*kind, a, b),
            _ => is_same_scalar(Scalar::Plain, a, b),
        },
    }
}

/// The stored form of a value: the server converts null bytes to empty ones, and shows that only after
/// storing them.
fn held<'v>(shape: &Shape, value: Option<&'v Value>) -> Option<&'v Value> {
    static NO_BYTES: Value = Value::String(String::new());
    match (shape, value) {
        (Shape::Scalar(Scalar::Bytes), Some(Value::Null)) => Some(&NO_BYTES),
        _ => value,
    }
}

/// Whether a value is more than absence.
fn counts(shape: &Shape, value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty() || matches!(shape, Shape::Struct(_) | Shape::Any),
        _ => true,
    }
}

/// The type of an entry of a value of this shape.
pub(super) fn member(shape: &Shape, name: &str) -> TypeId {
    match shape {
        Shape::Struct(shape) => shape.field(name).map_or(TypeId::ANY, |field| field.ty),
        Shape::Map { value, .. } => *value,
        _ => TypeId::ANY,
    }
}

/// Whether the elements mean the same pair by pair, up to the end of the shorter list.
fn in_step(types: &Types, item: TypeId, a: &[Value], b: &[Value], depth: usize) -> bool {
    a.iter().zip(b).all(|(a, b)| same(types, item, Some(a), Some(b), depth))
}

/// Whether each of the first elements means the same as one of the others.
fn are_within(types: &Types, item: TypeId, elements: &[Value], others: &[Value], depth: usize) -> bool {
    let others = Alike::at(types, item, others, depth);
    elements.iter().all(|element| others.find(element).is_some())
}

/// Whether two elements of a list have the same keys: then their order has a meaning.
fn has_doubled_keys(kind: &ListKind, items: &[Value]) -> bool {
    let ListKind::Map(keys) = kind else { return false };
    let by_keys = ByKeys::new(items, keys, items.len());
    items.iter().any(|item| {
        let values: Option<Vec<Value>> = keys.iter().map(|key| key_value(item, key).cloned()).collect();
        values.is_some_and(|values| by_keys.first_two(&values)[1].is_some())
    })
}

#[cfg(test)]
mod tests;
