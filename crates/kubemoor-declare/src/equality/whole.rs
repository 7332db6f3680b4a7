//! Values that are declared as a whole: the parts that the server may leave out, and the parts that it may
//! fill in.
//!
//! Entry points: [`Comparison::present`] and [`with_absent`].

use std::cell::Cell;
use std::cmp::max;

use serde_json::{Map, Value};

use super::scalars::same_text;
use super::{
    Agreement, Family, Place, Spot, is_empty, is_same, is_same_scalar, is_zero, known, limits, work,
};
use crate::embedded;
use crate::quantity;
use crate::schema::{ListKind, MAX_DEPTH, Scalar, Shape, Struct, TypeId, Types};

mod lists;

/// A comparison of values of one arena's types.
pub(super) struct Comparison<'t> {
    types: &'t Types,
    /// How many values may still be visited while elements are compared.
    left: Cell<Option<usize>>,
}

/// A declared value and the live one to compare.
#[derive(Clone, Copy)]
pub(super) struct Sides<D, L = D> {
    pub(super) declared: D,
    pub(super) live: L,
    /// The depth of both.
    pub(super) depth: usize,
}

/// The facts about an undeclared field.
#[derive(Clone, Copy)]
struct FieldType<'t> {
    ty: TypeId,
    /// The server's default for an absent field.
    default: Option<&'t Value>,
}

impl<'t> FieldType<'t> {
    fn without_default(ty: TypeId) -> Self {
        Self { ty, default: None }
    }
}

impl<D, L> Sides<D, L> {
    /// Two parts of both, as deep.
    fn part<P, Q>(&self, declared: P, live: Q) -> Sides<P, Q> {
        Sides { declared, live, depth: self.depth }
    }
}

impl<'t> Comparison<'t> {
    pub(super) fn of(types: &'t Types) -> Self {
        Self { types, left: Cell::new(None) }
    }

    /// Holds a declared value against a live one that is not null.
    pub(super) fn present(&self, ty: TypeId, spot: Spot<'_>, sides: Sides<&Value>) -> Agreement {
        let Sides { declared, live, depth } = sides;
        work::note();
        if depth >= MAX_DEPTH || !self.spend(|| 1 + width(declared) + width(live)) {
            return Agreement::Doubt;
        }
        match (self.types.shape(ty), declared, live) {
            (_, Value::Null, live) => self.extra(FieldType::without_default(ty), spot, live, depth),
            (_, Value::Array(items), Value::Array(others)) if items.is_empty() && !others.is_empty() => {
                filled(spot, declared, live)
            }
            (Shape::List { item, .. }, Value::Array(declared), Value::Array(live))
                if known::loses_order(spot.name)
                    && self.in_any_order(*item, spot, sides.part(declared, live)) =>
            {
                Agreement::Agrees
            }
            (Shape::List { item, kind }, Value::Array(declared), Value::Array(live)) => {
                self.list((*item, kind), spot, sides.part(declared, live))
            }
            (Shape::Struct(shape), Value::Object(declared), Value::Object(live)) => {
                self.structure(shape, spot, sides.part(declared, live))
            }
            (Shape::Map { value, .. }, Value::Object(declared), Value::Object(live)) => {
                self.map((*value, Place::Entry), spot, sides.part(declared, live))
            }
            (_, Value::Array(declared), Value::Array(live)) => {
                self.list((TypeId::ANY, &ListKind::Atomic), spot, sides.part(declared, live))
            }
            (_, Value::Object(declared), Value::Object(live)) => {
                self.map((TypeId::ANY, Place::Field), spot, sides.part(declared, live))
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

    /// A live field that is not declared, in a value that is declared as a whole.
    fn extra(&self, field: FieldType<'_>, spot: Spot<'_>, live: &Value, depth: usize) -> Agreement {
        let is_default = |declared: &Value| {
            let sides = Sides { declared, live, depth: depth + 1 };
            self.present(field.ty, spot, sides) == Agreement::Agrees
        };
        if live.is_null() || field.default.is_some_and(is_default) {
            return Agreement::Agrees;
        }
        match spot.family {
            _ if spot.family != Family::Custom && known::is_default(spot.within, spot.name, live) => {
                Agreement::Agrees
            }
            // Absent and empty are one to it.
            Family::Rights if is_empty(live) => Agreement::Agrees,
            Family::Rights => Agreement::Altered,
            Family::Pod => Agreement::Doubt,
            // The table lists the empty values that the server fills in. Others may come from a newer
            // version.
            Family::Core if is_empty(live) || is_zero(live) => Agreement::Doubt,
            Family::Core if embedded::has_field(spot.name) => Agreement::Altered,
            Family::Core | Family::Custom => Agreement::Doubt,
        }
    }

    fn structure(&self, shape: &Struct, spot: Spot<'_>, sides: Sides<&Map<String, Value>>) -> Agreement {
        let Sides { declared, live, depth } = sides;
        let completed = limits::completed(spot, declared);
        let declared = completed.as_ref().unwrap_or(declared);
        let mut worst = Agreement::Agrees;
        for (name, value) in declared.iter().filter(|(_, value)| !value.is_null()) {
            let (ty, place) = match shape.field(name) {
                Some(field) => (field.ty, Place::Field),
                None if shape.open => (TypeId::ANY, Place::Field),
                None => (TypeId::ANY, Place::Unlisted),
            };
            worst = max(worst, self.member(ty, spot.part(name, place), sides.part(value, live.get(name))));
            if worst == Agreement::Differs {
                return worst;
            }
        }
        let is_declared = |name: &String| declared.get(name).is_some_and(|value| !value.is_null());
        for (name, value) in live.iter().filter(|(name, _)| !is_declared(name)) {
            let field = match shape.field(name) {
                Some(field) => FieldType { ty: field.ty, default: field.default.as_deref() },
                None => FieldType::without_default(TypeId::ANY),
            };
            worst = max(worst, self.extra(field, spot.part(name, Place::Field), value, depth));
        }
        worst
    }

    /// A map: either with free keys, to which nothing adds entries, or a value of unknown type.
    fn map(
        &self,
        (ty, place): (TypeId, Place),
        spot: Spot<'_>,
        sides: Sides<&Map<String, Value>>,
    ) -> Agreement {
        let Sides { declared, live, depth } = sides;
        let mut worst = Agreement::Agrees;
        for (name, value) in declared {
            worst = max(worst, self.member(ty, spot.part(name, place), sides.part(value, live.get(name))));
        }
        for (name, value) in live.iter().filter(|(name, _)| !declared.contains_key(*name)) {
            let extra = match place {
                _ if value.is_null() || spot.family == Family::Pod => Agreement::Agrees,
                Place::Entry if declared.is_empty() => Agreement::Altered,
                Place::Entry => Agreement::Differs,
                Place::Field | Place::Template | Place::Unlisted => {
                    self.extra(FieldType::without_default(ty), spot.part(name, place), value, depth)
                }
            };
            worst = max(worst, extra);
        }
        worst
    }

    fn member(&self, ty: TypeId, spot: Spot<'_>, sides: Sides<&Value, Option<&Value>>) -> Agreement {
        let Sides { declared, live, depth } = sides;
        match live.filter(|value| !value.is_null()) {
            None => with_absent(self.types, ty, spot, declared),
            Some(live) => self.present(ty, spot, Sides { declared, live, depth: depth + 1 }),
        }
    }

    /// Whether so many more values may be looked at.
    fn spend(&self, count: impl FnOnce() -> usize) -> bool {
        let Some(left) = self.left.get() else { return true };
        self.left.set(Some(left.saturating_sub(count())));
        left > 0
    }
}

/// A declared null: the server stores nothing there, or its own default.
pub(super) fn with_null(types: &Types, ty: TypeId, spot: Spot<'_>, live: Option<&Value>) -> Agreement {
    let Some(live) = live else { return Agreement::Agrees };
    let is_one_value = matches!(
        types.shape(ty),
        Shape::Scalar(_)
            | Shape::List { kind: ListKind::Atomic, .. }
            | Shape::Struct(Struct { atomic: true, .. })
            | Shape::Map { atomic: true, .. }
    );
    let is_filled_by_server = match spot.place {
        Place::Field | Place::Template => {
            !is_one_value
                || !embedded::has_field(spot.name)
                || is_filled(spot, live)
                || known::is_others(spot.name)
                || is_empty(live)
                || (is_zero(live) && known::is_own_zero(spot.above, spot.name))
        }
        // Helm's client-side create leaves a zero value there, and its upgrade removes the entry.
        Place::Entry => {
            types.zero(ty).is_none_or(|zero| is_same(types, ty, Some(&Value::from(zero)), Some(live)))
        }
        Place::Unlisted => true,
    };
    let is_judged = matches!(spot.family, Family::Rights | Family::Core);
    if is_judged && !is_filled_by_server { Agreement::Altered } else { Agreement::Agrees }
}

/// A declared value that the live object does not have.
pub(super) fn with_absent(types: &Types, ty: TypeId, spot: Spot<'_>, declared: &Value) -> Agreement {
    match spot.place {
        Place::Unlisted => Agreement::Agrees,
        _ if declared.is_null() => Agreement::Agrees,
        Place::Entry => match declared {
            Value::Array(_) | Value::Object(_) if is_empty(declared) => Agreement::Doubt,
            _ => Agreement::Differs,
        },
        // No field of a kind that grants rights is behind a feature gate.
        Place::Field | Place::Template if !is_empty(declared) && !is_zero(declared) => match spot.family {
            Family::Rights => Agreement::Differs,
            Family::Pod | Family::Core | Family::Custom => Agreement::Missing,
        },
        Place::Field | Place::Template => match (declared, types.shape(ty)) {
            (Value::Object(_), Shape::Map { .. }) => Agreement::Agrees,
            (Value::Object(_), _) => Agreement::Doubt,
            _ if known::keeps_zero(spot.name) => Agreement::Doubt,
            _ => Agreement::Agrees,
        },
    }
}

/// Whether `live` may be what the server sets where nothing is declared.
fn is_filled(spot: Spot<'_>, live: &Value) -> bool {
    spot.place != Place::Template && known::is_filled(spot.within, spot.name, live)
}

/// How many values a value holds directly.
fn width(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.len(),
        Value::Object(map) => map.len(),
        _ => 0,
    }
}

/// A declared empty or zero value where the live object has something.
fn filled(spot: Spot<'_>, declared: &Value, live: &Value) -> Agreement {
    let is_own = spot.family != Family::Custom;
    if spot.place == Place::Field && known::is_chosen(spot.name) && (is_empty(declared) || is_zero(declared))
    {
        return Agreement::Agrees;
    }
    let otherwise = match (spot.place, declared) {
        (_, Value::Array(items)) if items.is_empty() => match spot.family {
            Family::Core if known::chooses_list(spot.name) => Agreement::Doubt,
            Family::Pod => Agreement::Agrees,
            family if known::is_shared(family, spot.name) => Agreement::Agrees,
            _ => Agreement::Altered,
        },
        (_, Value::Object(map)) if map.is_empty() => Agreement::Doubt,
        (Place::Entry, _) => Agreement::Differs,
        // A scheduler, an admission plugin: to a Pod anything may come.
        (_, Value::String(text)) if text.is_empty() && spot.family == Family::Pod => Agreement::Agrees,
        (_, Value::String(text)) if text.is_empty() => match is_own && !known::chooses_text(spot.name) {
            true if embedded::has_field(spot.name) => Agreement::Altered,
            _ => Agreement::Doubt,
        },
        (_, Value::Number(_)) if is_zero(declared) && known::fills_zero(spot.name) => Agreement::Doubt,
        _ => Agreement::Differs,
    };
    match otherwise {
        Agreement::Doubt | Agreement::Altered
            if is_own && spot.place != Place::Entry && is_filled(spot, live) =>
        {
            Agreement::Agrees
        }
        otherwise => otherwise,
    }
}
