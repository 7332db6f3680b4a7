//! Values that are declared as a whole: what the server may leave out of them
//! and what it may fill in.
//!
//! Entry points: [`Comparison::present`] and [`with_absent`].

use std::cmp::{Ordering, max};

use serde_json::{Map, Value};

use super::{
    Agreement, MAX_PAIRS, Place, Spot, has_keys, is_empty, is_same_scalar, is_zero, key_value, known, same,
    same_text,
};
use crate::declaration::quantity;
use crate::declaration::schema::{ListKey, ListKind, MAX_DEPTH, Scalar, Shape, Struct, TypeId, Types};

/// A comparison of values of one arena's types.
pub(super) struct Comparison<'t> {
    pub(super) types: &'t Types,
}

impl Comparison<'_> {
    /// Holds a declared value against a live one that is not null.
    pub(super) fn present(
        &self,
        ty: TypeId,
        spot: Spot<'_>,
        declared: &Value,
        live: &Value,
        depth: usize,
    ) -> Agreement {
        if depth >= MAX_DEPTH {
            return Agreement::Doubt;
        }
        match (self.types.shape(ty), declared, live) {
            (_, Value::Null, live) => self.extra(spot, None, live, Agreement::Doubt),
            (_, Value::Array(items), Value::Array(others)) if items.is_empty() && !others.is_empty() => {
                filled(spot, declared, live)
            }
            (Shape::List { item, .. }, Value::Array(declared), Value::Array(live))
                if known::loses_order(spot.name) && self.in_any_order(*item, declared, live, depth) =>
            {
                Agreement::Agrees
            }
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
                (worst, Ordering::Equal) => worst,
                (Agreement::Differs, _) | (_, Ordering::Greater) => Agreement::Differs,
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

    /// Whether the lists agree but for their order.
    fn in_any_order(&self, item: TypeId, declared: &[Value], live: &[Value], depth: usize) -> bool {
        let spot = Spot { name: "", place: Place::Entry };
        let mut rest: Vec<&Value> = live.iter().collect();
        declared.len() == live.len()
            && declared.len() * live.len() <= MAX_PAIRS
            && declared.iter().all(|wanted| {
                let agrees =
                    |own: &&Value| self.member(item, spot, wanted, Some(own), depth) == Agreement::Agrees;
                rest.iter().position(agrees).map(|index| rest.swap_remove(index)).is_some()
            })
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

/// A declared value that the live object does not have.
pub(super) fn with_absent(types: &Types, ty: TypeId, spot: Spot<'_>, declared: &Value) -> Agreement {
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
    if spot.place == Place::Field && known::is_chosen(spot.name) && (is_empty(declared) || is_zero(declared))
    {
        return Agreement::Agrees;
    }
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
