//! Lists that are declared as a whole.
//!
//! Entry points: `Comparison::list`, `Comparison::in_any_order`. Invariant: the number of comparisons is
//! bounded by the size of the lists.

use std::cmp::{Ordering, max};

use serde_json::Value;

use super::super::keys::ByKeys;
use super::super::{Agreement, Alike, Family, MAX_PAIRS, Place, Spot, in_step, key_value, known, work};
use super::{Comparison, Sides};
use crate::schema::{ListKey, ListKind, MAX_DEPTH, TypeId};

/// Values that are looked at to find a list's elements in another order, for each value of the list.
const TRIES: usize = 64;

impl Comparison<'_> {
    pub(super) fn list(
        &self,
        (item, kind): (TypeId, &ListKind),
        spot: Spot<'_>,
        sides: Sides<&[Value]>,
    ) -> Agreement {
        let Sides { declared, live, .. } = sides;
        let small = declared.len().saturating_mul(live.len()) <= MAX_PAIRS;
        let agreement = match kind {
            ListKind::Map(keys) if small => self.keyed((item, keys), spot, sides),
            ListKind::Set if small => self.set(item, sides),
            _ if known::is_shared(spot.family, spot.name) && spot.family != Family::Pod => {
                match self.in_order(item, spot, sides) {
                    worst if declared.len() <= live.len() => worst,
                    _ => Agreement::Differs,
                }
            }
            // Admission plugins put theirs anywhere.
            _ if known::is_shared(spot.family, spot.name) && small => self.trying(sides, || {
                let held = |wanted: &Value| {
                    let spot = spot.part("", Place::Entry);
                    live.iter().map(|own| self.member(item, spot, sides.part(wanted, Some(own)))).min()
                };
                declared.iter().filter_map(held).max().unwrap_or(Agreement::Agrees)
            }),
            _ => match (self.in_order(item, spot, sides), declared.len().cmp(&live.len())) {
                (worst, Ordering::Equal) => worst,
                (Agreement::Differs, _) | (_, Ordering::Greater) => Agreement::Differs,
                _ if known::completes(spot.name) && spot.family == Family::Core => Agreement::Doubt,
                _ => Agreement::Altered,
            },
        };
        match agreement {
            Agreement::Altered | Agreement::Differs
                if known::repacks(spot.name) && spot.family == Family::Core =>
            {
                Agreement::Doubt
            }
            agreement => agreement,
        }
    }

    /// Whether the lists agree but for their order.
    pub(super) fn in_any_order(&self, item: TypeId, spot: Spot<'_>, sides: Sides<&[Value]>) -> bool {
        let Sides { declared, live, .. } = sides;
        if declared.len() != live.len() || declared.len() * live.len() > MAX_PAIRS {
            return false;
        }
        self.trying(sides, || {
            let spot = spot.part("", Place::Entry);
            let mut rest: Vec<&Value> = live.iter().collect();
            declared.iter().all(|wanted| {
                let agrees = |own: &&Value| {
                    self.member(item, spot, sides.part(wanted, Some(*own))) == Agreement::Agrees
                };
                rest.iter().position(agrees).map(|index| rest.swap_remove(index)).is_some()
            })
        })
    }

    fn set(&self, item: TypeId, sides: Sides<&[Value]>) -> Agreement {
        let Sides { declared, live, depth } = sides;
        if declared.len() == live.len() && in_step(self.types, item, declared, live, depth + 1) {
            return Agreement::Agrees;
        }
        let all = || declared.iter().chain(live).map(|item| size(item, depth)).sum();
        if !self.spend(all) {
            return Agreement::Doubt;
        }
        let holds = |items: &[Value], wanted: &[Value]| {
            let items = Alike::at(self.types, item, items, depth + 1);
            wanted.iter().all(|wanted| items.find(wanted).is_some())
        };
        match (holds(live, declared), holds(declared, live)) {
            (false, _) => Agreement::Differs,
            (true, false) => Agreement::Altered,
            (true, true) => Agreement::Agrees,
        }
    }

    fn in_order(&self, item: TypeId, spot: Spot<'_>, sides: Sides<&[Value]>) -> Agreement {
        let mut worst = Agreement::Agrees;
        for (declared, live) in sides.declared.iter().zip(sides.live) {
            let spot = spot.part("", Place::Entry);
            worst = max(worst, self.member(item, spot, sides.part(declared, Some(live))));
            if worst == Agreement::Differs {
                break;
            }
        }
        worst
    }

    /// Does what tries elements against each other, within a bound on the values
    /// that are looked at.
    fn trying<T>(&self, sides: Sides<&[Value]>, work: impl FnOnce() -> T) -> T {
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

    /// A list of keyed elements as one value: keys pair them where each key is there once. With doubled keys the order
    /// decides which element counts, and nobody could tell what the API server makes of them: it refuses them in an
    /// apply, and stores them as they are otherwise.
    fn keyed(&self, (item, keys): (TypeId, &[ListKey]), spot: Spot<'_>, sides: Sides<&[Value]>) -> Agreement {
        let Sides { declared, live, .. } = sides;
        let in_order_or_doubt = || {
            let same = declared.len() == live.len();
            match same && self.in_order(item, spot, sides) == Agreement::Agrees {
                true => Agreement::Agrees,
                false => Agreement::Doubt,
            }
        };
        let (among, others) =
            (ByKeys::new(declared, keys, live.len()), ByKeys::new(live, keys, declared.len()));
        let mut worst = Agreement::Agrees;
        for element in declared {
            let values: Option<Vec<Value>> =
                keys.iter().map(|key| key_value(element, key).cloned()).collect();
            let Some(values) = values else { return max(in_order_or_doubt(), worst) };
            match (others.first_two(&values), among.first_two(&values)[1].is_some()) {
                ([Some(only), None], false) => {
                    let spot = spot.part("", Place::Entry);
                    worst = max(worst, self.member(item, spot, sides.part(element, Some(only))));
                }
                ([None, _], false) => return Agreement::Differs,
                _ => {
                    return match declared.len().cmp(&live.len()) {
                        Ordering::Equal => self.in_order(item, spot, sides),
                        Ordering::Less => Agreement::Altered,
                        Ordering::Greater => Agreement::Differs,
                    };
                }
            }
        }
        if live.len() > declared.len() { max(worst, Agreement::Altered) } else { worst }
    }
}

/// How many values a value holds, itself among them.
fn size(value: &Value, depth: usize) -> usize {
    work::note();
    1 + match value {
        _ if depth >= MAX_DEPTH => 0,
        Value::Array(items) => items.iter().map(|item| size(item, depth + 1)).sum(),
        Value::Object(map) => map.values().map(|value| size(value, depth + 1)).sum(),
        _ => 0,
    }
}
