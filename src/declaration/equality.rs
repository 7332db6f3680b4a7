//! Whether two values mean the same.
//!
//! Entry points: [`agreement`] holds a declared value against a live one,
//! [`is_same`] holds two values that both come from the API server against
//! each other.
//!
//! Invariant: [`Agreement::Differs`] is never a guess. What only the API
//! server can tell is [`Agreement::Doubt`]. Recursion ends at
//! [`MAX_DEPTH`]: below it `agreement` doubts and `is_same` sees no difference.

use std::cmp::max;

use serde_json::{Map, Value};

use super::quantity;
use super::schema::{ListKey, ListKind, MAX_DEPTH, Scalar, Shape, Struct, TypeId, Types};

mod known;

/// Whether a live value is the declared one. Ordered from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Agreement {
    /// It is.
    Agrees,
    /// It may be: only the API server knows how it spells the declared value.
    Doubt,
    /// It is not.
    Differs,
}

/// Where a declared value stands: it decides what an absent or empty value
/// means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A field of a struct: the server may leave out zero values and fill in
    /// defaults.
    Field,
    /// An entry of a free map: kept as it is.
    Entry,
    /// A field that the schema does not list: the server may drop it.
    Unlisted,
}

/// A place together with its name there.
#[derive(Clone, Copy, Debug)]
pub struct Spot<'a> {
    /// The name of the field or entry; empty for list elements.
    pub name: &'a str,
    /// What kind of place it is.
    pub place: Place,
}

/// Pairs of list elements up to which elements are matched by trying all.
const MAX_PAIRS: usize = 1 << 16;

/// Holds a declared value of type `ty` against the live one; `None` where the
/// live object has none.
///
/// Declared null agrees with anything. Zero and empty values agree with
/// absence where the API server leaves them out, and are in doubt where it may
/// have filled them. Inside one declared value, live keys beyond the declared
/// ones agree when they are defaults, differ in free maps, and are in doubt
/// otherwise.
pub fn agreement(
    types: &Types,
    ty: TypeId,
    spot: Spot<'_>,
    declared: &Value,
    live: Option<&Value>,
) -> Agreement {
    match live.filter(|value| !value.is_null()) {
        _ if declared.is_null() => Agreement::Agrees,
        None => with_absent(types, ty, spot, declared),
        Some(_) if is_open_empty(types, ty, declared, live) => Agreement::Agrees,
        Some(live) => Comparison { types }.present(ty, spot, declared, live, 0),
    }
}

/// Whether two values, both as the API server put them out, mean the same.
/// Null and empty lists and maps are absence, but an empty granular struct is
/// not (`emptyDir: {}`), nor is zero: the server shows it only where it counts.
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

/// Whether a value is `false` or `0`.
pub fn is_zero(value: &Value) -> bool {
    match value {
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        _ => false,
    }
}

/// Whether two scalars of that kind mean the same.
pub fn is_same_scalar(kind: Scalar, a: &Value, b: &Value) -> bool {
    if a == b {
        return true;
    }
    match kind {
        Scalar::Plain => same_number(a, b),
        Scalar::Text => same_text(a, b),
        Scalar::IntOrString => same_number(a, b) || same_text(a, b),
        Scalar::Quantity => match (quantity::of(a), quantity::of(b)) {
            (Some(a), Some(b)) => a == b,
            _ => false,
        },
        Scalar::Bytes => match (a, b) {
            (Value::String(a), Value::String(b)) => base64_digits(a).eq(base64_digits(b)),
            _ => false,
        },
        Scalar::Time => match (a, b) {
            (Value::String(a), Value::String(b)) => {
                matches!((a.parse::<jiff::Timestamp>(), b.parse::<jiff::Timestamp>()), (Ok(a), Ok(b)) if a == b)
            }
            _ => false,
        },
    }
}

/// Whether an element has these values at these keys, absent ones being their
/// defaults.
pub(super) fn has_keys(element: &Value, keys: &[ListKey], values: &[Value]) -> bool {
    keys.iter().zip(values).all(|(key, wanted)| {
        key_value(element, key).is_some_and(|value| is_same_scalar(Scalar::IntOrString, value, wanted))
    })
}

/// The value of a key in an element: its own, else the default.
pub(super) fn key_value<'a>(element: &'a Value, key: &'a ListKey) -> Option<&'a Value> {
    match element.get(&*key.name) {
        Some(Value::Null) | None => key.default.as_deref(),
        own => own,
    }
}

fn base64_digits(text: &str) -> impl Iterator<Item = u8> + '_ {
    text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n'))
}

fn same_number(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) if a.is_f64() || b.is_f64() => a.as_f64() == b.as_f64(),
        (Value::Number(a), Value::Number(b)) => a == b,
        _ => false,
    }
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

/// Whether an empty granular value is declared, which says only that it is
/// there, and the live object has it.
pub(super) fn is_open_empty(types: &Types, ty: TypeId, declared: &Value, live: Option<&Value>) -> bool {
    let granular = match types.shape(ty) {
        Shape::Struct(Struct { atomic, .. }) | Shape::Map { atomic, .. } => !atomic,
        Shape::Any => true,
        Shape::Scalar(_) | Shape::List { .. } => false,
    };
    granular && declared.as_object().is_some_and(Map::is_empty) && live.is_some_and(Value::is_object)
}

/// A declared value that the live object does not have.
fn with_absent(types: &Types, ty: TypeId, spot: Spot<'_>, declared: &Value) -> Agreement {
    match spot.place {
        _ if declared.is_null() => Agreement::Agrees,
        Place::Unlisted => Agreement::Agrees,
        Place::Entry => match declared {
            Value::Array(_) | Value::Object(_) if is_empty(declared) => Agreement::Doubt,
            _ => Agreement::Differs,
        },
        Place::Field if !is_empty(declared) && !is_zero(declared) => Agreement::Differs,
        Place::Field => match (declared, types.shape(ty)) {
            (Value::Object(_), Shape::Map { .. } | Shape::Struct(Struct { atomic: true, .. })) => {
                Agreement::Agrees
            }
            (Value::Object(_), _) => Agreement::Doubt,
            _ if known::keeps_zero(spot.name) => Agreement::Doubt,
            _ => Agreement::Agrees,
        },
    }
}

/// A declared empty or zero value where the live object has something.
fn filled(spot: Spot<'_>, declared: &Value, live: &Value) -> Agreement {
    let may_fill = match (spot.place, declared) {
        (_, Value::Array(_) | Value::Object(_)) => is_empty(declared),
        (Place::Entry, _) => false,
        (_, Value::String(text)) => text.is_empty(),
        (_, Value::Number(_)) => is_zero(declared) && known::fills_zero(spot.name),
        _ => false,
    };
    match may_fill {
        true if known::is_default(spot.name, live) => Agreement::Agrees,
        true => Agreement::Doubt,
        false => Agreement::Differs,
    }
}

struct Comparison<'t> {
    types: &'t Types,
}

impl Comparison<'_> {
    fn present(&self, ty: TypeId, spot: Spot<'_>, declared: &Value, live: &Value, depth: usize) -> Agreement {
        if depth >= MAX_DEPTH {
            return Agreement::Doubt;
        }
        match (self.types.shape(ty), declared, live) {
            (_, Value::Null, live) => self.extra(spot, None, live, Agreement::Doubt),
            (Shape::List { item, kind }, Value::Array(declared), Value::Array(live)) => {
                self.list(*item, kind, declared, live, depth)
            }
            (Shape::Struct(shape), Value::Object(declared), Value::Object(live)) => {
                self.structure(shape, declared, live, depth)
            }
            (Shape::Map { value, .. }, Value::Object(declared), Value::Object(live)) => {
                self.map(*value, Place::Entry, declared, live, Agreement::Differs, depth)
            }
            (_, Value::Array(declared), Value::Array(live)) => {
                self.list(TypeId::ANY, &ListKind::Atomic, declared, live, depth)
            }
            (_, Value::Object(declared), Value::Object(live)) => {
                self.map(TypeId::ANY, Place::Field, declared, live, Agreement::Doubt, depth)
            }
            (_, Value::Array(_) | Value::Object(_), _) | (_, _, Value::Array(_) | Value::Object(_)) => {
                filled(spot, declared, live)
            }
            (Shape::Scalar(kind), _, _) if is_same_scalar(*kind, declared, live) => Agreement::Agrees,
            // A quantity that cannot be read exactly.
            (Shape::Scalar(Scalar::Quantity), Value::String(text), _)
                if !text.is_empty() && quantity::parse(text).is_none() =>
            {
                Agreement::Doubt
            }
            (Shape::Scalar(Scalar::Plain), _, _) if same_text(declared, live) => Agreement::Doubt,
            (Shape::Scalar(_), _, _) => filled(spot, declared, live),
            _ if is_same_scalar(Scalar::Plain, declared, live) => Agreement::Agrees,
            _ if is_same_scalar(Scalar::Quantity, declared, live) || same_text(declared, live) => {
                Agreement::Doubt
            }
            _ => filled(spot, declared, live),
        }
    }

    /// A live key that is not declared, in a value that is declared as a whole.
    fn extra(
        &self,
        spot: Spot<'_>,
        default: Option<&Value>,
        live: &Value,
        otherwise: Agreement,
    ) -> Agreement {
        let zero = is_empty(live) || is_zero(live) || known::is_default(spot.name, live);
        let default = default.is_some_and(|default| is_same_scalar(Scalar::IntOrString, default, live));
        if live.is_null() || (otherwise != Agreement::Differs && (zero || default)) {
            return Agreement::Agrees;
        }
        otherwise
    }

    fn structure(
        &self,
        shape: &Struct,
        declared: &Map<String, Value>,
        live: &Map<String, Value>,
        depth: usize,
    ) -> Agreement {
        let mut worst = Agreement::Agrees;
        for (name, value) in declared {
            let (ty, place) = match shape.field(name) {
                Some(field) => (field.ty, Place::Field),
                None if shape.open => (TypeId::ANY, Place::Field),
                None => (TypeId::ANY, Place::Unlisted),
            };
            worst = max(worst, self.member(ty, Spot { name, place }, value, live.get(name), depth));
            if worst == Agreement::Differs {
                return worst;
            }
        }
        for (name, value) in live.iter().filter(|(name, _)| !declared.contains_key(*name)) {
            let default = shape.field(name).and_then(|field| field.default.as_deref());
            let spot = Spot { name, place: Place::Field };
            worst = max(worst, self.extra(spot, default, value, Agreement::Doubt));
        }
        worst
    }

    fn map(
        &self,
        ty: TypeId,
        place: Place,
        declared: &Map<String, Value>,
        live: &Map<String, Value>,
        extra: Agreement,
        depth: usize,
    ) -> Agreement {
        let mut worst = Agreement::Agrees;
        for (name, value) in declared {
            worst = max(worst, self.member(ty, Spot { name, place }, value, live.get(name), depth));
        }
        // An empty map as a whole: the server may have filled it.
        let extra = if declared.is_empty() { Agreement::Doubt } else { extra };
        for (name, value) in live.iter().filter(|(name, _)| !declared.contains_key(*name)) {
            worst = max(worst, self.extra(Spot { name, place }, None, value, extra));
        }
        worst
    }

    fn member(
        &self,
        ty: TypeId,
        spot: Spot<'_>,
        declared: &Value,
        live: Option<&Value>,
        depth: usize,
    ) -> Agreement {
        match live.filter(|value| !value.is_null()) {
            None => with_absent(self.types, ty, spot, declared),
            Some(live) => self.present(ty, spot, declared, live, depth + 1),
        }
    }

    fn list(
        &self,
        item: TypeId,
        kind: &ListKind,
        declared: &[Value],
        live: &[Value],
        depth: usize,
    ) -> Agreement {
        if declared.is_empty() && !live.is_empty() {
            return Agreement::Doubt;
        }
        let small = declared.len().saturating_mul(live.len()) <= MAX_PAIRS;
        match kind {
            ListKind::Map(keys) if small => self.keyed(item, keys, declared, live, depth),
            ListKind::Set if small => {
                let holds = |items: &[Value], wanted: &Value| {
                    items.iter().any(|own| same(self.types, item, Some(own), Some(wanted), depth + 1))
                };
                let missing = declared.iter().any(|wanted| !holds(live, wanted));
                let added = live.iter().any(|own| !holds(declared, own));
                match (missing, added) {
                    (true, _) => Agreement::Differs,
                    (false, true) => Agreement::Doubt,
                    (false, false) => Agreement::Agrees,
                }
            }
            // The server appends to some lists (`ipFamilies`), it never cuts one.
            _ => match (self.in_order(item, declared, live, depth), declared.len().cmp(&live.len())) {
                (worst, std::cmp::Ordering::Equal) => worst,
                (Agreement::Differs, _) | (_, std::cmp::Ordering::Greater) => Agreement::Differs,
                _ => Agreement::Doubt,
            },
        }
    }

    fn in_order(&self, item: TypeId, declared: &[Value], live: &[Value], depth: usize) -> Agreement {
        let spot = Spot { name: "", place: Place::Entry };
        let mut worst = Agreement::Agrees;
        for (declared, live) in declared.iter().zip(live) {
            worst = max(worst, self.member(item, spot, declared, Some(live), depth));
            if worst == Agreement::Differs {
                break;
            }
        }
        worst
    }

    /// A list of keyed elements as one value: keys pair them where each key is
    /// there once. Doubled keys are in doubt unless the lists agree in order.
    fn keyed(
        &self,
        item: TypeId,
        keys: &[ListKey],
        declared: &[Value],
        live: &[Value],
        depth: usize,
    ) -> Agreement {
        let spot = Spot { name: "", place: Place::Entry };
        let mut worst = Agreement::Agrees;
        for element in declared {
            let values: Option<Vec<Value>> =
                keys.iter().map(|key| key_value(element, key).cloned()).collect();
            let Some(values) = values else {
                return max(self.in_order_or_doubt(item, declared, live, depth), worst);
            };
            let mut pairs = live.iter().filter(|other| has_keys(other, keys, &values));
            let doubled = declared.iter().filter(|other| has_keys(other, keys, &values)).count() > 1;
            match (pairs.next(), pairs.next(), doubled) {
                (Some(only), None, false) => {
                    worst = max(worst, self.member(item, spot, element, Some(only), depth));
                }
                (None, _, false) => return Agreement::Differs,
                _ => return max(self.in_order_or_doubt(item, declared, live, depth), worst),
            }
        }
        if live.len() > declared.len() { max(worst, Agreement::Doubt) } else { worst }
    }

    fn in_order_or_doubt(&self, item: TypeId, declared: &[Value], live: &[Value], depth: usize) -> Agreement {
        let agrees =
            declared.len() == live.len() && self.in_order(item, declared, live, depth) == Agreement::Agrees;
        if agrees { Agreement::Agrees } else { Agreement::Doubt }
    }
}

fn same(types: &Types, ty: TypeId, a: Option<&Value>, b: Option<&Value>, depth: usize) -> bool {
    let shape = types.shape(ty);
    let counts = |value: &&Value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty() || matches!(shape, Shape::Struct(Struct { atomic: false, .. })),
        _ => true,
    };
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
            let ty_of = |name: &str| match shape {
                Shape::Struct(shape) => shape.field(name).map_or(TypeId::ANY, |field| field.ty),
                Shape::Map { value, .. } => *value,
                _ => TypeId::ANY,
            };
            a.iter().all(|(name, value)| same(types, ty_of(name), Some(value), b.get(name), depth + 1))
                && b.iter()
                    .filter(|(name, _)| !a.contains_key(*name))
                    .all(|(name, value)| same(types, ty_of(name), None, Some(value), depth + 1))
        }
        (Value::Array(a), Value::Array(b)) => {
            let (item, kind) = match shape {
                Shape::List { item, kind } => (*item, kind),
                _ => (TypeId::ANY, &ListKind::Atomic),
            };
            let pairs = || a.iter().zip(b).all(|(a, b)| same(types, item, Some(a), Some(b), depth + 1));
            let within = |a: &[Value], b: &[Value]| {
                a.iter().all(|a| b.iter().any(|b| same(types, item, Some(a), Some(b), depth + 1)))
            };
            a.len() == b.len()
                && (pairs()
                    || (*kind != ListKind::Atomic
                        && a.len().saturating_mul(b.len()) <= MAX_PAIRS
                        && within(a, b)
                        && within(b, a)))
        }
        (Value::Array(_) | Value::Object(_), _) | (_, Value::Array(_) | Value::Object(_)) => false,
        _ => match shape {
            Shape::Scalar(kind) => is_same_scalar(*kind, a, b),
            _ => is_same_scalar(Scalar::Plain, a, b),
        },
    }
}

#[cfg(test)]
mod tests;
