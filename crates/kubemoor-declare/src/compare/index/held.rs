//! The elements of a live set.
//!
//! Entry point: [`Held::find`]. Invariant: time is linear in long sets, whatever their content.

use serde_json::Value;

use crate::equality::keys::FEW_PAIRS;
use crate::equality::{self, Alike};
use crate::schema::{TypeId, Types};

/// The elements of a set, to find declared ones.
pub(crate) struct Held<'v, 't> {
    types: &'t Types,
    item: TypeId,
    items: &'v [Value],
    /// Only for long sets.
    alike: Option<Alike<'v, 't>>,
}

impl<'v, 't> Held<'v, 't> {
    /// An index of the elements of `list`; `wanted` is the number of lookups to expect.
    pub(crate) fn new(types: &'t Types, item: TypeId, wanted: usize, list: Option<&'v Value>) -> Self {
        let items = list.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let is_long = wanted.saturating_mul(items.len()) > FEW_PAIRS;
        Self { types, item, items, alike: is_long.then(|| Alike::new(types, item, items)) }
    }

    /// The first element that means the same as `wanted`.
    pub(crate) fn find(&self, wanted: &Value) -> Option<&'v Value> {
        match &self.alike {
            Some(alike) => alike.find(wanted),
            None => {
                let same = |own: &&Value| equality::is_same(self.types, self.item, Some(own), Some(wanted));
                self.items.iter().find(same)
            }
        }
    }
}
