//! Compares values that are declared as a whole, allowing for parts that the server drops or fills in. Also tells which
//! undeclared values the server fills in elsewhere.

use std::cell::Cell;
use std::cmp::{Ordering, max};

use serde_json::{Map, Value};

use super::{
    ElementIndex, EquivalenceIndex, Family, FieldAgreement, FieldContext, FieldPlace, MAX_PAIRS, agreement,
    is_empty, is_same, is_same_pairwise, is_same_scalar, is_zero, key_value, known, member, parse_quantity,
    same_text, work,
};
use crate::catalog;
use crate::schema::{ListKey, ListKind, MAX_DEPTH, ScalarType, Shape, Struct, TypeId, Types};

pub(super) struct WholeComparison<'t> {
    types: &'t Types,
    /// How many values may still be visited while elements are compared.
    left: Cell<Option<usize>>,
}

/// A declared value and the live one to compare.
#[derive(Clone, Copy)]
pub(super) struct DeclaredAndLive<D, L = D> {
    pub(super) declared: D,
    pub(super) live: L,
    /// The depth of both.
    pub(super) depth: usize,
}

impl<D, L> DeclaredAndLive<D, L> {
    /// Parts of both sides, at the same depth.
    fn part<P, Q>(&self, declared: P, live: Q) -> DeclaredAndLive<P, Q> {
        DeclaredAndLive { declared, live, depth: self.depth }
    }
}

impl<'t> WholeComparison<'t> {
    pub(super) fn new(types: &'t Types) -> Self {
        Self { types, left: Cell::new(None) }
    }

    /// Compares a declared value with a live one that is not null.
    pub(super) fn present(
        &self,
        ty: TypeId,
        spot: FieldContext<'_>,
        sides: DeclaredAndLive<&Value>,
    ) -> FieldAgreement {
        let DeclaredAndLive { declared, live, depth } = sides;
        work::note();
        if depth >= MAX_DEPTH || !self.spend(|| 1 + width(declared) + width(live)) {
            return FieldAgreement::Doubt;
        }
        match (self.types.shape(ty), declared, live) {
            (_, Value::Null, live) => self.extra((ty, None), spot, live, depth),
            (_, Value::Array(items), Value::Array(others)) if items.is_empty() && !others.is_empty() => {
                filled(spot, declared, live)
            }
            (Shape::List { item, .. }, Value::Array(declared), Value::Array(live))
                if known::UNORDERED.contains(&spot.name)
                    && self.in_any_order(*item, spot, sides.part(declared, live)) =>
            {
                FieldAgreement::Agrees
            }
            (Shape::List { item, kind }, Value::Array(declared), Value::Array(live)) => {
                self.list((*item, kind), spot, sides.part(declared, live))
            }
            (Shape::Struct(shape), Value::Object(declared), Value::Object(live)) => {
                self.structure(shape, spot, sides.part(declared, live))
            }
            (Shape::Map { value, .. }, Value::Object(declared), Value::Object(live)) => {
                self.map((*value, FieldPlace::Entry), spot, sides.part(declared, live))
            }
            (_, Value::Array(declared), Value::Array(live)) => {
                self.list((TypeId::ANY, &ListKind::Atomic), spot, sides.part(declared, live))
            }
            (_, Value::Object(declared), Value::Object(live)) => {
                self.map((TypeId::ANY, FieldPlace::Field), spot, sides.part(declared, live))
            }
            (_, Value::Array(_) | Value::Object(_), _) | (_, _, Value::Array(_) | Value::Object(_)) => {
                filled(spot, declared, live)
            }
            (Shape::Scalar(kind), _, _) if is_same_scalar(*kind, declared, live) => FieldAgreement::Agrees,
            // A quantity that cannot be read exactly.
            (Shape::Scalar(ScalarType::Quantity), Value::String(text), _)
                if !text.is_empty() && parse_quantity(text).is_none() =>
            {
                FieldAgreement::Doubt
            }
            (Shape::Scalar(ScalarType::Plain), _, _) if same_text(declared, live) => FieldAgreement::Doubt,
            (Shape::Scalar(_), _, _) => filled(spot, declared, live),
            _ if is_same_scalar(ScalarType::Plain, declared, live) => FieldAgreement::Agrees,
            _ if is_same_scalar(ScalarType::Quantity, declared, live) || same_text(declared, live) => {
                FieldAgreement::Doubt
            }
            _ => filled(spot, declared, live),
        }
    }

    /// Judges an undeclared live field in a value that is declared as a whole.
    fn extra(
        &self,
        (ty, default): (TypeId, Option<&Value>),
        spot: FieldContext<'_>,
        live: &Value,
        depth: usize,
    ) -> FieldAgreement {
        let is_default = |declared: &Value| {
            let sides = DeclaredAndLive { declared, live, depth: depth + 1 };
            self.present(ty, spot, sides) == FieldAgreement::Agrees
        };
        if live.is_null() || default.is_some_and(is_default) {
            return FieldAgreement::Agrees;
        }
        match spot.family {
            _ if spot.family != Family::Custom && known::is_default(spot.within, spot.name, live) => {
                FieldAgreement::Agrees
            }
            // To these kinds, absent and empty are the same.
            Family::Rights if is_empty(live) => FieldAgreement::Agrees,
            Family::Rights => FieldAgreement::Altered,
            Family::Pod => FieldAgreement::Doubt,
            // The table lists the empty values that the server fills in. Others may come from a newer version.
            Family::Core if is_empty(live) || is_zero(live) => FieldAgreement::Doubt,
            Family::Core if catalog::has_field(spot.name) => FieldAgreement::Altered,
            Family::Core | Family::Custom => FieldAgreement::Doubt,
        }
    }

    fn structure(
        &self,
        shape: &Struct,
        spot: FieldContext<'_>,
        sides: DeclaredAndLive<&Map<String, Value>>,
    ) -> FieldAgreement {
        let DeclaredAndLive { declared, live, depth } = sides;
        let completed = completed_limits(spot, declared);
        let declared = completed.as_ref().unwrap_or(declared);
        let mut worst = FieldAgreement::Agrees;
        for (name, value) in declared.iter().filter(|(_, value)| !value.is_null()) {
            let (ty, place) = match shape.field(name) {
                Some(field) => (field.ty, FieldPlace::Field),
                None if shape.open => (TypeId::ANY, FieldPlace::Field),
                None => (TypeId::ANY, FieldPlace::Unlisted),
            };
            worst = max(worst, self.member(ty, spot.part(name, place), sides.part(value, live.get(name))));
            if worst == FieldAgreement::Differs {
                return worst;
            }
        }
        let is_declared = |name: &String| declared.get(name).is_some_and(|value| !value.is_null());
        for (name, value) in live.iter().filter(|(name, _)| !is_declared(name)) {
            let field = match shape.field(name) {
                Some(field) => (field.ty, field.default.as_deref()),
                None => (TypeId::ANY, None),
            };
            worst = max(worst, self.extra(field, spot.part(name, FieldPlace::Field), value, depth));
        }
        worst
    }

    /// A map with arbitrary keys, to which nothing adds entries, or a value of unknown type.
    fn map(
        &self,
        (ty, place): (TypeId, FieldPlace),
        spot: FieldContext<'_>,
        sides: DeclaredAndLive<&Map<String, Value>>,
    ) -> FieldAgreement {
        let DeclaredAndLive { declared, live, depth } = sides;
        let mut worst = FieldAgreement::Agrees;
        for (name, value) in declared {
            worst = max(worst, self.member(ty, spot.part(name, place), sides.part(value, live.get(name))));
        }
        for (name, value) in live.iter().filter(|(name, _)| !declared.contains_key(*name)) {
            let extra = match place {
                _ if value.is_null() || spot.family == Family::Pod => FieldAgreement::Agrees,
                FieldPlace::Entry if declared.is_empty() => FieldAgreement::Altered,
                FieldPlace::Entry => FieldAgreement::Differs,
                FieldPlace::Field | FieldPlace::Template | FieldPlace::Unlisted => {
                    self.extra((ty, None), spot.part(name, place), value, depth)
                }
            };
            worst = max(worst, extra);
        }
        worst
    }

    fn member(
        &self,
        ty: TypeId,
        spot: FieldContext<'_>,
        sides: DeclaredAndLive<&Value, Option<&Value>>,
    ) -> FieldAgreement {
        let DeclaredAndLive { declared, live, depth } = sides;
        match live.filter(|value| !value.is_null()) {
            None => with_absent(self.types, ty, spot, declared),
            Some(live) => self.present(ty, spot, DeclaredAndLive { declared, live, depth: depth + 1 }),
        }
    }

    /// Takes `count` values from the budget; false if it was exhausted before.
    fn spend(&self, count: impl FnOnce() -> usize) -> bool {
        let Some(left) = self.left.get() else { return true };
        self.left.set(Some(left.saturating_sub(count())));
        left > 0
    }
}

/// A declared null: the server stores nothing there, or its own default.
pub(super) fn with_null(
    types: &Types,
    ty: TypeId,
    spot: FieldContext<'_>,
    live: Option<&Value>,
) -> FieldAgreement {
    let Some(live) = live else { return FieldAgreement::Agrees };
    let is_one_value = matches!(
        types.shape(ty),
        Shape::Scalar(_)
            | Shape::List { kind: ListKind::Atomic, .. }
            | Shape::Struct(Struct { atomic: true, .. })
            | Shape::Map { atomic: true, .. }
    );
    let is_filled_by_server = match spot.place {
        FieldPlace::Field | FieldPlace::Template => {
            !is_one_value
                || !catalog::has_field(spot.name)
                || is_filled(spot, live)
                || known::is_others(spot.name)
                || is_empty(live)
                || (is_zero(live) && known::is_own_zero(spot.above, spot.name))
        }
        // Helm's client-side create leaves a zero value there, and its upgrade removes the entry.
        FieldPlace::Entry => {
            types.zero(ty).is_none_or(|zero| is_same(types, ty, Some(&Value::from(zero)), Some(live)))
        }
        FieldPlace::Unlisted => true,
    };
    let is_judged = matches!(spot.family, Family::Rights | Family::Core);
    if is_judged && !is_filled_by_server { FieldAgreement::Altered } else { FieldAgreement::Agrees }
}

/// A declared value that the live object does not have.
pub(super) fn with_absent(
    types: &Types,
    ty: TypeId,
    spot: FieldContext<'_>,
    declared: &Value,
) -> FieldAgreement {
    match spot.place {
        FieldPlace::Unlisted => FieldAgreement::Agrees,
        _ if declared.is_null() => FieldAgreement::Agrees,
        FieldPlace::Entry => match declared {
            Value::Array(_) | Value::Object(_) if is_empty(declared) => FieldAgreement::Doubt,
            _ => FieldAgreement::Differs,
        },
        // No field of a kind that grants rights is behind a feature gate.
        FieldPlace::Field | FieldPlace::Template if !is_empty(declared) && !is_zero(declared) => {
            match spot.family {
                Family::Rights => FieldAgreement::Differs,
                Family::Pod | Family::Core | Family::Custom => FieldAgreement::Missing,
            }
        }
        FieldPlace::Field | FieldPlace::Template => match (declared, types.shape(ty)) {
            (Value::Object(_), Shape::Map { .. }) => FieldAgreement::Agrees,
            (Value::Object(_), _) => FieldAgreement::Doubt,
            _ if known::KEPT_ZEROS.contains(&spot.name) => FieldAgreement::Doubt,
            _ => FieldAgreement::Agrees,
        },
    }
}

/// Whether the server may set `live` where nothing is declared.
fn is_filled(spot: FieldContext<'_>, live: &Value) -> bool {
    spot.place != FieldPlace::Template && known::is_filled(spot.within, spot.name, live)
}

fn width(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.len(),
        Value::Object(map) => map.len(),
        _ => 0,
    }
}

/// A declared empty or zero value where the live object has something.
fn filled(spot: FieldContext<'_>, declared: &Value, live: &Value) -> FieldAgreement {
    let is_own = spot.family != Family::Custom;
    if spot.place == FieldPlace::Field
        && known::CHOSEN.contains(&spot.name)
        && (is_empty(declared) || is_zero(declared))
    {
        return FieldAgreement::Agrees;
    }
    let otherwise = match (spot.place, declared) {
        (_, Value::Array(items)) if items.is_empty() => match spot.family {
            Family::Core if known::CHOSEN_LISTS.contains(&spot.name) => FieldAgreement::Doubt,
            Family::Pod => FieldAgreement::Agrees,
            family if known::is_shared(family, spot.name) => FieldAgreement::Agrees,
            _ => FieldAgreement::Altered,
        },
        (_, Value::Object(map)) if map.is_empty() => FieldAgreement::Doubt,
        (FieldPlace::Entry, _) => FieldAgreement::Differs,
        // The scheduler or an admission plugin may fill any field of a Pod.
        (_, Value::String(text)) if text.is_empty() && spot.family == Family::Pod => FieldAgreement::Agrees,
        (_, Value::String(text)) if text.is_empty() => {
            match is_own && !known::CHOSEN_TEXTS.contains(&spot.name) {
                true if catalog::has_field(spot.name) => FieldAgreement::Altered,
                _ => FieldAgreement::Doubt,
            }
        }
        (_, Value::Number(_)) if is_zero(declared) && known::fills_zero(spot.name) => FieldAgreement::Doubt,
        _ => FieldAgreement::Differs,
    };
    match otherwise {
        FieldAgreement::Doubt | FieldAgreement::Altered
            if is_own && spot.place != FieldPlace::Entry && is_filled(spot, live) =>
        {
            FieldAgreement::Agrees
        }
        otherwise => otherwise,
    }
}

/// The budget for matching a list in another order: visited values for each value of the list.
const TRIES: usize = 64;

impl WholeComparison<'_> {
    fn list(
        &self,
        (item, kind): (TypeId, &ListKind),
        spot: FieldContext<'_>,
        sides: DeclaredAndLive<&[Value]>,
    ) -> FieldAgreement {
        let DeclaredAndLive { declared, live, .. } = sides;
        let small = declared.len().saturating_mul(live.len()) <= MAX_PAIRS;
        let agreement = match kind {
            ListKind::Map(keys) if small => self.keyed((item, keys), spot, sides),
            ListKind::Set if small => self.set(item, sides),
            _ if known::is_shared(spot.family, spot.name) && spot.family != Family::Pod => {
                match self.in_order(item, spot, sides) {
                    worst if declared.len() <= live.len() => worst,
                    _ => FieldAgreement::Differs,
                }
            }
            // Admission plugins insert elements anywhere.
            _ if known::is_shared(spot.family, spot.name) && small => self.trying(sides, || {
                let held = |wanted: &Value| {
                    let spot = spot.part("", FieldPlace::Entry);
                    live.iter().map(|own| self.member(item, spot, sides.part(wanted, Some(own)))).min()
                };
                declared.iter().filter_map(held).max().unwrap_or(FieldAgreement::Agrees)
            }),
            _ => match (self.in_order(item, spot, sides), declared.len().cmp(&live.len())) {
                (worst, Ordering::Equal) => worst,
                (FieldAgreement::Differs, _) | (_, Ordering::Greater) => FieldAgreement::Differs,
                _ if known::COMPLETED.contains(&spot.name) && spot.family == Family::Core => {
                    FieldAgreement::Doubt
                }
                _ => FieldAgreement::Altered,
            },
        };
        match agreement {
            FieldAgreement::Altered | FieldAgreement::Differs
                if known::REPACKED.contains(&spot.name) && spot.family == Family::Core =>
            {
                FieldAgreement::Doubt
            }
            agreement => agreement,
        }
    }

    /// Whether the lists agree apart from their order.
    fn in_any_order(&self, item: TypeId, spot: FieldContext<'_>, sides: DeclaredAndLive<&[Value]>) -> bool {
        let DeclaredAndLive { declared, live, .. } = sides;
        if declared.len() != live.len() || declared.len() * live.len() > MAX_PAIRS {
            return false;
        }
        self.trying(sides, || {
            let spot = spot.part("", FieldPlace::Entry);
            let mut rest: Vec<&Value> = live.iter().collect();
            declared.iter().all(|wanted| {
                let agrees = |own: &&Value| {
                    self.member(item, spot, sides.part(wanted, Some(*own))) == FieldAgreement::Agrees
                };
                rest.iter().position(agrees).map(|index| rest.swap_remove(index)).is_some()
            })
        })
    }

    fn set(&self, item: TypeId, sides: DeclaredAndLive<&[Value]>) -> FieldAgreement {
        let DeclaredAndLive { declared, live, depth } = sides;
        if declared.len() == live.len() && is_same_pairwise(self.types, item, declared, live, depth + 1) {
            return FieldAgreement::Agrees;
        }
        let all = || declared.iter().chain(live).map(|item| size(item, depth)).sum();
        if !self.spend(all) {
            return FieldAgreement::Doubt;
        }
        let holds = |items: &[Value], wanted: &[Value]| {
            let items = EquivalenceIndex::at(self.types, item, items, depth + 1);
            wanted.iter().all(|wanted| items.find(wanted).is_some())
        };
        match (holds(live, declared), holds(declared, live)) {
            (false, _) => FieldAgreement::Differs,
            (true, false) => FieldAgreement::Altered,
            (true, true) => FieldAgreement::Agrees,
        }
    }

    fn in_order(
        &self,
        item: TypeId,
        spot: FieldContext<'_>,
        sides: DeclaredAndLive<&[Value]>,
    ) -> FieldAgreement {
        let mut worst = FieldAgreement::Agrees;
        for (declared, live) in sides.declared.iter().zip(sides.live) {
            let spot = spot.part("", FieldPlace::Entry);
            worst = max(worst, self.member(item, spot, sides.part(declared, Some(live))));
            if worst == FieldAgreement::Differs {
                break;
            }
        }
        worst
    }

    /// Runs `work`, which tries elements against each other, within a budget of visited values.
    fn trying<T>(&self, sides: DeclaredAndLive<&[Value]>, work: impl FnOnce() -> T) -> T {
        let is_outermost = self.left.get().is_none();
        if is_outermost {
            let all = sides.declared.iter().chain(sides.live);
            let size = all.map(|item| size(item, sides.depth)).sum::<usize>();
            self.left.set(Some(TRIES * size));
        }
        let done = work();
        if is_outermost {
            self.left.set(None);
        }
        done
    }

    /// A keyed list as one value: elements are paired by keys that are unique. With duplicate keys the order decides
    /// which element counts, and the API server's result is unpredictable: it rejects them in an apply, and otherwise
    /// stores them as they are.
    fn keyed(
        &self,
        (item, keys): (TypeId, &[ListKey]),
        spot: FieldContext<'_>,
        sides: DeclaredAndLive<&[Value]>,
    ) -> FieldAgreement {
        let DeclaredAndLive { declared, live, .. } = sides;
        let in_order_or_doubt = || {
            let same = declared.len() == live.len();
            match same && self.in_order(item, spot, sides) == FieldAgreement::Agrees {
                true => FieldAgreement::Agrees,
                false => FieldAgreement::Doubt,
            }
        };
        let among = ElementIndex::of_list(declared, keys);
        let others = ElementIndex::of_list(live, keys);
        let mut worst = FieldAgreement::Agrees;
        for element in declared {
            let values: Option<Vec<&Value>> = keys.iter().map(|key| key_value(element, key)).collect();
            let Some(values) = values.map(Vec::into_iter) else { return max(in_order_or_doubt(), worst) };
            match (others.places(values.clone()), among.places(values).len() > 1) {
                ([only], false) => {
                    let spot = spot.part("", FieldPlace::Entry);
                    worst = max(worst, self.member(item, spot, sides.part(element, live.get(*only))));
                }
                ([], false) => return FieldAgreement::Differs,
                _ => {
                    return match declared.len().cmp(&live.len()) {
                        Ordering::Equal => self.in_order(item, spot, sides),
                        Ordering::Less => FieldAgreement::Altered,
                        Ordering::Greater => FieldAgreement::Differs,
                    };
                }
            }
        }
        if live.len() > declared.len() { max(worst, FieldAgreement::Altered) } else { worst }
    }
}

/// The number of values in a value, including itself.
fn size(value: &Value, depth: usize) -> usize {
    work::note();
    1 + match value {
        _ if depth >= MAX_DEPTH => 0,
        Value::Array(items) => items.iter().map(|item| size(item, depth + 1)).sum(),
        Value::Object(map) => map.values().map(|value| size(value, depth + 1)).sum(),
        _ => 0,
    }
}

/// An element of a LimitRange's `limits` as the server completes it: `default` falls back to `max`, `defaultRequest` to
/// `default`, then to `min`.
pub(super) fn completed_limits(
    spot: FieldContext<'_>,
    declared: &Map<String, Value>,
) -> Option<Map<String, Value>> {
    let is_limit = spot.family == Family::Core && spot.holder() == "limits" && spot.name.is_empty();
    if !is_limit || declared.get("type").and_then(Value::as_str) != Some("Container") {
        return None;
    }
    let map = |name: &str| declared.get(name).and_then(Value::as_object).cloned().unwrap_or_default();
    let mut limits = map("max");
    limits.extend(map("default"));
    let mut requests = map("min");
    requests.extend(limits.clone());
    requests.extend(map("defaultRequest"));
    let mut completed = declared.clone();
    for (name, filled) in [("default", limits), ("defaultRequest", requests)] {
        if !filled.is_empty() {
            completed.insert(name.to_owned(), Value::Object(filled));
        }
    }
    Some(completed)
}

/// The agreement of `new`, which replaced `old`, decided by `old` if `new` alone gives `Doubt`. Both are as the API
/// server returned them.
///
/// The API server fills in defaults whenever it returns an object, so `old` has all possible defaults. An `old` that
/// agrees is the canonical form, so any difference from it is a change. If `old` itself gives `Doubt`, something was
/// added to it or changed in it. A `new` with fewer keys than that is closer to the declaration.
pub fn agreement_after_update(
    types: &Types,
    (ty, spot): (TypeId, FieldContext<'_>),
    declared: &Value,
    old: Option<&Value>,
    new: Option<&Value>,
) -> FieldAgreement {
    let Some(before) = old.filter(|old| !old.is_null()) else {
        return agreement(types, ty, spot, declared, new);
    };
    let agrees = |live| agreement(types, ty, spot, declared, live);
    match agrees(new) {
        FieldAgreement::Doubt => match agrees(old) {
            FieldAgreement::Agrees => FieldAgreement::Altered,
            FieldAgreement::Doubt if new.is_some_and(|new| is_part(new, before)) => FieldAgreement::Agrees,
            FieldAgreement::Doubt => FieldAgreement::Altered,
            FieldAgreement::Altered
            | FieldAgreement::Missing
            | FieldAgreement::Added
            | FieldAgreement::Within
            | FieldAgreement::Differs => FieldAgreement::Doubt,
        },
        // The server kept the declared value until now.
        FieldAgreement::Missing
            if new.is_none_or(Value::is_null) || agrees(old) < FieldAgreement::Missing =>
        {
            FieldAgreement::Differs
        }
        // Of several possible defaults, `old` was the actual one.
        FieldAgreement::Agrees
            if is_filled_otherwise(spot, declared, new) && agrees(old) == FieldAgreement::Agrees =>
        {
            FieldAgreement::Altered
        }
        agreement => agreement,
    }
}

/// Whether the declared value is empty, and `new` has a value that the cluster chooses only for a new object.
pub(crate) fn is_chosen_at_first(spot: FieldContext<'_>, declared: &Value, new: Option<&Value>) -> bool {
    spot.family == Family::Core
        && spot.place == FieldPlace::Field
        && is_empty(declared)
        && known::CHOSEN_TEXTS.contains(&spot.name)
        && new.is_some_and(|new| !is_empty(new) || is_chosen_empty(spot.name, declared, new))
}

/// Whether an empty value is a choice of its own, unlike null: a claim with the storage class `""` gets no default.
fn is_chosen_empty(name: &str, declared: &Value, new: &Value) -> bool {
    known::KEPT_ZEROS.contains(&name) && declared.is_null() && !new.is_null()
}

/// Whether only the server can have filled in this value.
fn is_filled_otherwise(spot: FieldContext<'_>, declared: &Value, new: Option<&Value>) -> bool {
    let is_own = |value: &Value| match value {
        Value::Null | Value::Object(_) => false,
        Value::Array(_) => known::FILLED_LISTS.contains(&spot.name),
        _ => !known::is_others(spot.name),
    };
    spot.place == FieldPlace::Field
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

/// Struct fields that the server sets if they are absent.
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
pub(crate) struct UndeclaredField<'a> {
    pub(crate) ty: TypeId,
    /// The names of its field and of the enclosing field.
    pub(crate) name: &'a str,
    pub(crate) within: &'a str,
    /// The default that the schema states.
    pub(crate) default: Option<&'a Value>,
    /// Whether it had another value before, chosen by the server or a user.
    pub(crate) is_changed: bool,
    /// Whether the object existed before.
    pub(crate) is_of_update: bool,
}

/// Whether the API server may set the field to `value` on its own.
pub(crate) fn is_filled_in(
    types: &Types,
    family: Family,
    field: UndeclaredField<'_>,
    value: &Value,
    depth: usize,
) -> bool {
    let UndeclaredField { ty, name, within, default, is_changed, is_of_update } = field;
    if value.is_null() || default.is_some_and(|it| is_same(types, ty, Some(it), Some(value))) {
        return true;
    }
    if depth >= MAX_DEPTH {
        return false;
    }
    let is_own = family != Family::Custom;
    // If the value alone does not identify the server's choice, it is accepted only where there was no value before.
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
                    let field = UndeclaredField { ty, name: below, within: name, default, ..field };
                    is_filled_in(types, family, field, value, depth + 1)
                })
        }
        (_, value) if is_empty(value) => is_own,
        (Shape::List { kind: ListKind::Map(_), .. }, _) => false,
        (_, value) if is_zero(value) => is_own && !known::KEPT_ZEROS.contains(&name),
        (_, Value::Array(_)) => {
            may_choose && (known::FILLED_LISTS.contains(&name) || known::COMPLETED.contains(&name))
        }
        _ => {
            may_choose
                && (known::CHOSEN.contains(&name) || (known::CHOSEN_TEXTS.contains(&name) && !is_of_update))
        }
    }
}
