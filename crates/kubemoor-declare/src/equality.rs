//! Semantic equality of values: [`agreement`] compares a declared value with a live one, [`is_same`] compares two
//! values that both come from the API server.
//!
//! [`FieldAgreement::Differs`] is never a guess: if only the API server can decide, the result is `Doubt`. Recursion
//! ends at [`MAX_DEPTH`]: below it, `agreement` returns `Doubt` and `is_same` finds no difference.

use serde_json::{Map, Value};

pub use self::elements::class_of_scalar;
pub(super) use self::elements::{ElementIndex, EquivalenceIndex};
pub use self::whole::agreement_after_update;
use self::whole::{DeclaredAndLive, WholeComparison};
pub(super) use self::whole::{UndeclaredField, is_chosen_at_first, is_filled_in};
use super::schema::{ListKey, ListKind, MAX_DEPTH, ScalarType, Shape, Struct, TypeId, Types};

mod elements;
mod known;
mod whole;

/// Counts the steps of a comparison, for the tests which check that it takes linear time. Costs nothing outside of unit
/// tests.
pub(super) mod work {
    #[cfg(test)]
    thread_local! {
        static WORK: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    #[cfg(not(test))]
    #[inline(always)]
    pub(crate) fn note() {}

    #[cfg(test)]
    pub(crate) fn note() {
        WORK.with(|work| work.set(work.get() + 1));
    }

    #[cfg(test)]
    pub(crate) fn count<T>(act: impl FnOnce() -> T) -> u64 {
        let before = WORK.with(std::cell::Cell::get);
        drop(act());
        WORK.with(std::cell::Cell::get) - before
    }
}

/// The maximum number of element pairs for matching two lists by trying all pairs.
const MAX_PAIRS: usize = 1 << 16;

/// Whether a live value is the declared one. Ordered from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FieldAgreement {
    Agrees,
    /// It may agree: only the API server knows how it stores the declared value.
    Doubt,
    /// It differs: something was added, moved or filled in that no API server adds. A mutating webhook may have changed
    /// what Helm sent.
    Altered,
    /// It differs: something declared is absent. A server drops fields whose feature gate is off.
    Missing,
    /// Nothing is declared there, and a policy seals the place. Used for additions only.
    Added,
    /// Like [`Self::Added`], within a value that a webhook or the server added: the previous value is unknown.
    Within,
    Differs,
}

impl FieldAgreement {
    pub fn is_addition(self) -> bool {
        matches!(self, Self::Added | Self::Within)
    }
}

/// Compares a declared value of type `ty` with the live one; `None` where the live object has none.
///
/// A declared null means absence, and also accepts the server's default. In custom kinds, and in place of granular maps
/// and structs, a null declares nothing. Zero and empty values agree with absence if the API server omits them, and
/// give `Doubt` if it may have filled them. Undeclared live keys within one declared value agree if they are defaults,
/// differ in free maps, and give `Doubt` or `Altered` otherwise.
pub fn agreement(
    types: &Types,
    ty: TypeId,
    spot: FieldContext<'_>,
    declared: &Value,
    live: Option<&Value>,
) -> FieldAgreement {
    let live = stored_form(types.shape(ty), live);
    match live.filter(|value| !value.is_null()) {
        live if declared.is_null() => whole::with_null(types, ty, spot, live),
        None => whole::with_absent(types, ty, spot, declared),
        Some(_) if is_open_empty(types, ty, declared, live) => FieldAgreement::Agrees,
        Some(live) => {
            WholeComparison::new(types).present(ty, spot, DeclaredAndLive { declared, live, depth: 0 })
        }
    }
}

/// Whether two values, both as the API server returned them, are equivalent. Null, empty lists and empty maps equal
/// absence, because clients that know a kind's types omit them. An empty struct does not (`emptyDir: {}`,
/// `podSelector: {}`), nor does zero: the server returns a zero only if it matters. Null bytes equal empty ones.
pub fn is_same(types: &Types, ty: TypeId, a: Option<&Value>, b: Option<&Value>) -> bool {
    same(types, ty, a, b, 0)
}

pub fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

pub fn is_void(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

pub fn is_zero(value: &Value) -> bool {
    match value {
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        _ => false,
    }
}

/// The value of a key in an element: its own, else the default. An empty string counts as absent if there is a default.
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
    let (a, b) = (stored_form(shape, a), stored_form(shape, b));
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
                && (is_same_pairwise(types, item, a, b, depth + 1)
                    || (*kind != ListKind::Atomic
                        && a.len().saturating_mul(b.len()) <= MAX_PAIRS
                        && are_within(types, item, a, b, depth + 1)
                        && are_within(types, item, b, a, depth + 1)
                        && !has_doubled_keys(kind, a)))
        }
        (Value::Array(_) | Value::Object(_), _) | (_, Value::Array(_) | Value::Object(_)) => false,
        _ => match shape {
            Shape::Scalar(kind) => is_same_scalar(*kind, a, b),
            _ => is_same_scalar(ScalarType::Plain, a, b),
        },
    }
}

/// The stored form of a value: the server converts null bytes to empty ones, and shows that only after storing them.
fn stored_form<'v>(shape: &Shape, value: Option<&'v Value>) -> Option<&'v Value> {
    static NO_BYTES: Value = Value::String(String::new());
    match (shape, value) {
        (Shape::Scalar(ScalarType::Bytes), Some(Value::Null)) => Some(&NO_BYTES),
        _ => value,
    }
}

/// Whether a value differs from absence.
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

/// Whether the elements are equivalent pair by pair, up to the end of the shorter list.
fn is_same_pairwise(types: &Types, item: TypeId, a: &[Value], b: &[Value], depth: usize) -> bool {
    a.iter().zip(b).all(|(a, b)| same(types, item, Some(a), Some(b), depth))
}

/// Whether each of `elements` is equivalent to one of `others`.
fn are_within(types: &Types, item: TypeId, elements: &[Value], others: &[Value], depth: usize) -> bool {
    let others = EquivalenceIndex::at(types, item, others, depth);
    elements.iter().all(|element| others.find(element).is_some())
}

/// Whether two elements of a list have the same keys, so that their order matters.
fn has_doubled_keys(kind: &ListKind, items: &[Value]) -> bool {
    let ListKind::Map(keys) = kind else { return false };
    let index = ElementIndex::of_list(items, keys);
    items.iter().any(|item| {
        let values: Option<Vec<&Value>> = keys.iter().map(|key| key_value(item, key)).collect();
        values.is_some_and(|values| index.places(values.into_iter()).len() > 1)
    })
}

/// The place of a declared value: it decides what an absent or empty value means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldPlace {
    /// A field of a struct: the server may leave out zero values and fill in defaults.
    Field,
    /// A field of a template that the server stores unchanged: the defaults are set in the objects created from it,
    /// such as the Jobs of a CronJob.
    Template,
    /// An entry of a map with arbitrary keys, stored as it is.
    Entry,
    /// A field that the schema does not list: the server may drop it.
    Unlisted,
}

/// The origin of a kind: it decides who may add to a value that is declared as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// A built-in kind that grants rights: nothing is added except the API groups of subjects.
    Rights,
    /// Kubernetes' own Pod, to which admission plugins add.
    Pod,
    /// Another built-in kind: a table lists the possible additions.
    Core,
    /// A custom kind: additions follow its schema and the webhooks of its operator.
    #[default]
    Custom,
}

#[derive(Clone, Copy, Debug)]
pub struct FieldContext<'a> {
    /// The name of the field or entry; empty for list elements.
    pub name: &'a str,
    pub place: FieldPlace,
    pub family: Family,
    /// The name of the enclosing field, if it is a part of the same declared value; for list elements, the list's name.
    within: &'a str,
    /// The name of the parent field, if this is a declared value of its own.
    above: &'a str,
}

impl<'a> FieldContext<'a> {
    pub fn new(name: &'a str, place: FieldPlace, family: Family) -> Self {
        Self { name, place, family, within: "", above: "" }
    }

    pub fn held_by(self, above: &'a str) -> Self {
        Self { above, ..self }
    }

    /// The enclosing name for its parts.
    fn holder(self) -> &'a str {
        if self.name.is_empty() { self.within } else { self.name }
    }

    fn part(self, name: &'a str, place: FieldPlace) -> Self {
        Self { name, place, family: self.family, within: self.holder(), above: "" }
    }
}

pub fn is_same_scalar(kind: ScalarType, a: &Value, b: &Value) -> bool {
    if a == b {
        return true;
    }
    match kind {
        // Most values are list keys: strings that are compared with another element's.
        ScalarType::Plain | ScalarType::Text | ScalarType::IntOrString if a.is_string() && b.is_string() => {
            false
        }
        ScalarType::Plain => same_number(a, b),
        ScalarType::Text => same_text(a, b),
        ScalarType::IntOrString => same_number(a, b) || same_text(a, b),
        ScalarType::Quantity => match (quantity(a), quantity(b)) {
            (Some(a), Some(b)) => a == b,
            _ => false,
        },
        ScalarType::Bytes => match (a, b) {
            (Value::String(a), Value::String(b)) => base64_digits(a).eq(base64_digits(b)),
            _ => false,
        },
        ScalarType::Time => match (a, b) {
            (Value::String(a), Value::String(b)) => {
                matches!((a.parse::<jiff::Timestamp>(), b.parse::<jiff::Timestamp>()), (Ok(a), Ok(b)) if a == b)
            }
            _ => false,
        },
    }
}

fn base64_digits(text: &str) -> impl Iterator<Item = u8> + '_ {
    text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n'))
}

fn same_text(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::String(text), other) | (other, Value::String(text)) => {
            let spelled = match other {
                Value::Number(number) => number.to_string(),
                Value::Bool(value) => value.to_string(),
                _ => return false,
            };
            *text == spelled
        }
        _ => same_number(a, b),
    }
}

fn same_number(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) if a.is_f64() || b.is_f64() => a.as_f64() == b.as_f64(),
        (Value::Number(a), Value::Number(b)) => a == b,
        _ => false,
    }
}

/// The size of a quantity in billionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity(i128);

/// The maximum number of significant digits: with every suffix, these fit into a u128.
const MAX_DIGITS: usize = 19;

/// 2^63 - 1 in billionths: Kubernetes caps every quantity there.
const CAP: u128 = (i64::MAX as u128) * 1_000_000_000;

/// Reads a quantity from a JSON string or number, as the API server does.
pub fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => parse_quantity(text),
        Value::Number(number) => parse_quantity(&number.to_string()),
        _ => None,
    }
}

/// Reads a quantity: sign, decimal number, and a suffix of powers of ten (`n u m k M G T P E`), of 1024 (`Ki` ...
/// `Ei`), or an exponent (`e3`). `None` if the text is not a quantity, or has more than nineteen significant digits.
pub fn parse_quantity(text: &str) -> Option<Quantity> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at_checked(end)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        scale(suffix)?;
        return Some(Quantity(0));
    }
    let significant = digits.trim_end_matches('0');
    if significant.len() > MAX_DIGITS {
        return None;
    }
    let zeros = i64::try_from(digits.len() - significant.len()).ok()?;
    let places = i64::try_from(fraction.len()).ok()?;
    let (tens, doublings) = scale(suffix)?;
    let mantissa = significant.parse::<u128>().ok()?.checked_mul(1 << doublings)?;
    let size = i128::try_from(billionths(mantissa, zeros - places + tens + 9)).ok()?;
    Some(Quantity(if negative { -size } else { size }))
}

fn scale(suffix: &str) -> Option<(i64, u32)> {
    Some(match suffix {
        "n" => (-9, 0),
        "u" => (-6, 0),
        "m" => (-3, 0),
        "" => (0, 0),
        "k" => (3, 0),
        "M" => (6, 0),
        "G" => (9, 0),
        "T" => (12, 0),
        "P" => (15, 0),
        "E" => (18, 0),
        "Ki" => (0, 10),
        "Mi" => (0, 20),
        "Gi" => (0, 30),
        "Ti" => (0, 40),
        "Pi" => (0, 50),
        "Ei" => (0, 60),
        _ => (i64::from(suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?), 0),
    })
}

/// `mantissa` times ten to `tens`, rounded up and capped as Kubernetes does.
fn billionths(mantissa: u128, tens: i64) -> u128 {
    let factor = u32::try_from(tens.unsigned_abs()).ok().and_then(|n| 10_u128.checked_pow(n));
    let exact = match (factor, tens >= 0) {
        (Some(factor), true) => mantissa.checked_mul(factor),
        (Some(factor), false) => Some(mantissa.div_ceil(factor)),
        (None, true) => None,
        (None, false) => Some(1),
    };
    exact.unwrap_or(CAP).min(CAP)
}

#[cfg(test)]
mod tests;
