//! The walk over declared fields: finds changes and drift.
//!
//! Entry points: `Fields::changed`, `Fields::drift`; [`Settler`] for doubts. Invariant: one pass over the
//! declared tree, in time that is linear in it and in the objects. Nothing is copied and no path is built
//! until a change is found. Decides nothing about a change but its agreement.

use serde_json::Value;

pub use self::moved::Move;
pub use self::settle::Settler;
use super::declare::cut;
use super::equality::{Agreement, Family, Place};
use super::fields::{Element, Entry, FieldChange, Fields, Node};
use super::path::{Segment, Step, Trail};
use super::schema::Types;

mod changed;
mod drift;
pub(super) mod index;
pub(super) mod moved;
mod settle;

struct Walk<'t> {
    types: &'t Types,
    family: Family,
    found: Vec<FieldChange>,
}

/// The values of one place before and after.
#[derive(Clone, Copy)]
struct Versions<'v> {
    old: Option<&'v Value>,
    new: Option<&'v Value>,
}

/// The values of a change.
#[derive(Default)]
struct Values {
    declared: Option<Value>,
    old: Option<Value>,
    new: Option<Value>,
}

/// See [`Fields::changed`].
pub(super) fn changed(fields: &Fields, old: &Value, new: &Value) -> Vec<FieldChange> {
    let mut walk = Walk { types: &fields.types, family: fields.family, found: Vec::new() };
    walk.changed(&fields.root, "", &Trail::ROOT, Versions { old: Some(old), new: Some(new) });
    walk.found
}

/// See [`Fields::drift`].
pub(super) fn drift(fields: &Fields, live: &Value) -> Vec<FieldChange> {
    let mut walk = Walk { types: &fields.types, family: fields.family, found: Vec::new() };
    walk.drift(&fields.root, "", &Trail::ROOT, Some(live));
    walk.found
}

impl Fields {
    /// The declared paths at which `old` and `new` differ, each with the agreement of `new` with the
    /// declaration. Both objects come from the API server, in the version of the manifest. Empty if no
    /// declared path changed.
    ///
    /// If a value is declared empty and absent in `old`, any value in `new` agrees: the server fills in node
    /// ports, cluster IPs and defaults.
    pub fn changed(&self, old: &Value, new: &Value) -> Vec<FieldChange> {
        changed(self, old, new)
    }

    /// The declared paths at which `live` is not, or may not be, as declared.
    pub fn drift(&self, live: &Value) -> Vec<FieldChange> {
        drift(self, live)
    }

    /// The declared list elements and fields whose place something undeclared has taken in `live`: an element with
    /// other keys, or a field that excludes the declared one.
    pub fn moved(&self, live: &Value) -> Vec<Move> {
        moved::moved(self, live)
    }

    /// Gives elements that were moved in `live` their declared keys again; their other fields stay unchanged. Removes
    /// fields that take the place of declared ones, which [`Self::restore`] sets.
    pub fn put_back(moves: &[Move], live: &mut Value) {
        moved::put_back(moves, live);
    }

    /// Settles doubts: whether values after are what `canonical` holds, the
    /// object as the API server would hold the declared manifest.
    pub fn settler<'s>(&'s self, canonical: &'s Value) -> Settler<'s> {
        Settler::new(self, canonical)
    }
}

impl<'v> Versions<'v> {
    /// What a field of both holds.
    fn field(self, name: &str) -> Self {
        let value = |object: Option<&'v Value>| object.and_then(|object| object.get(name));
        Self { old: value(self.old), new: value(self.new) }
    }

    fn told(self) -> Values {
        Values { declared: None, old: self.old.map(copy), new: self.new.map(copy) }
    }
}

/// The first keys of elements, in the order of their places.
fn order<'e>(elements: impl Iterator<Item = (&'e Element, usize)>) -> Value {
    let mut sorted: Vec<(&Element, usize)> = elements.collect();
    sorted.sort_by_key(|(_, place)| *place);
    sorted.into_iter().filter_map(|(element, _)| element.keys.first().cloned()).collect()
}

/// Whether these are entries of a struct, whose fields the server knows completely.
fn is_struct(entries: &[Entry]) -> bool {
    let is_field = |entry: &Entry| match &entry.node {
        Node::Leaf(leaf) => matches!(leaf.place, Place::Field | Place::Template),
        Node::Object(entries) => is_struct(entries),
        Node::Elements(_) | Node::Set(_) => true,
    };
    !entries.is_empty() && entries.iter().all(is_field)
}

/// Whether a change tells of an undeclared field in the place of a declared one that has no value to tell of.
pub fn is_alternative(change: &FieldChange) -> bool {
    let is_field = matches!(change.path.0.last(), Some(Segment::Field(_)));
    is_field && change.declared.is_none() && change.new.is_some() && !change.agreement.is_addition()
}

fn copy(value: &Value) -> Value {
    cut(value, 0)
}

fn is_absent(value: Option<&Value>) -> bool {
    value.is_none_or(Value::is_null)
}

impl Walk<'_> {
    /// Reports that the undeclared field `other` stands in the place of a declared one, whose own changes are those
    /// from `start` on. No API server makes that of the declared one; where there are no changes, the other field itself
    /// is one.
    fn replaced(&mut self, start: usize, trail: &Trail<'_>, other: &str, versions: Versions<'_>) {
        let mut is_told = false;
        for change in self.found.iter_mut().skip(start).filter(|it| it.agreement > Agreement::Agrees) {
            if change.agreement != Agreement::Differs {
                change.agreement = Agreement::Altered;
            }
            is_told = true;
        }
        if !is_told {
            self.push(&trail.then(Step::Field(other)), versions.told(), Agreement::Altered);
        }
    }

    fn push(&mut self, trail: &Trail<'_>, values: Values, agreement: Agreement) {
        let Values { declared, old, new } = values;
        self.found.push(FieldChange { path: trail.path(), declared, old, new, agreement });
    }
}

/// Another order than the declared one is in doubt: appliers keep the live
/// order of elements that they find.
fn ordering(is_declared: bool) -> Agreement {
    if is_declared { Agreement::Agrees } else { Agreement::Doubt }
}

#[cfg(test)]
mod tests;
