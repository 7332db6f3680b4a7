//! The walk over declared fields: finds changes and drift.
//!
//! Entry points: `Fields::changed`, `Fields::drift`; [`Settler`] for doubts. Invariant: one pass over the
//! declared tree, in time that is linear in it and in the objects. Nothing is copied and no path is built
//! until a change is found. Decides nothing about a change but its agreement.

use std::cmp::max;

use serde_json::{Map, Value};

use super::declare::cut;
use super::equality::{self, Agreement, Family, Place, Spot};
use super::fields::{Element, Elements, Entry, FieldChange, Fields, Leaf, Node, Set};
use super::path::{Step, Trail};
use super::schema::Types;

use self::index::{Found, Held, Index};
pub use self::moved::Move;
pub use self::settle::Settler;

pub(super) mod index;
pub(super) mod moved;
mod settle;

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

    /// The declared list elements that were moved in `live`: the element itself is missing, and an undeclared
    /// element with other keys has taken its place.
    pub fn moved(&self, live: &Value) -> Vec<Move> {
        moved::moved(self, live)
    }

    /// Gives elements that were moved in `live` their declared keys again; their other fields stay unchanged.
    pub fn put_back(moves: &[Move], live: &mut Value) {
        moved::put_back(moves, live);
    }

    /// Settles doubts: whether values after are what `canonical` holds, the
    /// object as the API server would hold the declared manifest.
    pub fn settler<'f, 'v>(&'f self, canonical: &'v Value) -> Settler<'f, 'v> {
        Settler::new(self, canonical)
    }
}

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

/// Whether a null that a custom kind declares affects the stored value. It does where the server stores the
/// null. It does not where the server merges the null away, and where an empty value gets the default again.
fn is_kept_null(is_granular: bool, old: Option<&Value>, new: Option<&Value>) -> bool {
    match (old, new) {
        (Some(Value::Null), Some(Value::Object(new))) => !is_granular || new.is_empty(),
        (Some(Value::Null), _) => true,
        (Some(Value::Object(old)), Some(new)) => !old.is_empty() && is_empty_object(new),
        _ => false,
    }
}

fn is_empty_object(value: &Value) -> bool {
    value.as_object().is_some_and(|map| map.is_empty())
}

fn copy(value: &Value) -> Value {
    cut(value, 0)
}

fn is_absent(value: Option<&Value>) -> bool {
    value.is_none_or(Value::is_null)
}

impl Walk<'_> {
    fn push(&mut self, trail: &Trail<'_>, values: Values, agreement: Agreement) {
        let Values { declared, old, new } = values;
        self.found.push(FieldChange { path: trail.path(), declared, old, new, agreement });
    }

    fn changed(&mut self, node: &Node, name: &str, trail: &Trail<'_>, versions: Versions<'_>) {
        let Versions { old, new } = versions;
        if old.is_none() && new.is_none() {
            return;
        }
        match node {
            Node::Leaf(leaf) => {
                let spot = Spot::new(name, leaf.place, self.family).of(trail.holder());
                if let Some(agreement) = self.leaf_changed(leaf, spot, versions) {
                    let declared = Some(leaf.value.value());
                    self.push(trail, Values { declared, ..versions.told() }, agreement);
                }
            }
            Node::Object(entries) => {
                let before = self.found.len();
                for entry in entries {
                    let trail = trail.then(Step::Field(&entry.name));
                    self.changed(&entry.node, &entry.name, &trail, versions.field(&entry.name));
                }
                // A value with nothing but nulls declares only its existence.
                let is_lost = old.is_some_and(Value::is_object) && is_absent(new);
                if is_lost && self.found.len() == before && is_struct(entries) {
                    let old = Some(Value::Object(Map::new()));
                    self.push(trail, Values { old, ..Values::default() }, Agreement::Differs);
                }
            }
            Node::Elements(elements) => self.elements_changed(elements, trail, versions),
            Node::Set(set) => self.set_changed(set, trail, versions),
        }
    }

    fn leaf_changed(
        &self,
        leaf: &Leaf,
        spot: Spot<'_>,
        Versions { old, new }: Versions<'_>,
    ) -> Option<Agreement> {
        if equality::is_same(self.types, leaf.ty, old, new) {
            return None;
        }
        let declared = &leaf.value.value();
        let there = |value| equality::is_open_empty(self.types, leaf.ty, declared, value);
        if there(old) && there(new) {
            return None;
        }
        if declared.is_null() {
            let is_granular = equality::is_granular(self.types, leaf.ty);
            let is_held = match self.family {
                Family::Custom => is_kept_null(is_granular, old, new),
                Family::Rights | Family::Pod | Family::Core => {
                    is_granular && is_absent(old) && new.is_some_and(is_empty_object)
                }
            };
            if is_held {
                return Some(Agreement::Differs);
            }
        }
        if is_absent(old) && equality::is_chosen_late(spot, declared, new) {
            return Some(Agreement::Altered);
        }
        let agreement = |live| equality::agreement(self.types, leaf.ty, spot, declared, live);
        let empty = equality::is_empty(declared) && (leaf.place != Place::Entry || !declared.is_string());
        if is_absent(old)
            && ((empty && agreement(new) <= Agreement::Doubt)
                || (equality::is_zero(declared) && new.is_some_and(equality::is_zero)))
        {
            return None;
        }
        // The server showed this zero, so its absence is something else.
        let shown =
            !declared.is_null() && is_absent(new) && !is_absent(old) && agreement(old) == Agreement::Agrees;
        Some(match shown {
            true => Agreement::Differs,
            false => equality::settled(self.types, (leaf.ty, spot), declared, old, new),
        })
    }

    fn elements_changed(
        &mut self,
        elements: &Elements,
        trail: &Trail<'_>,
        Versions { old, new }: Versions<'_>,
    ) {
        let (old, new) = (Index::new(elements, self.types, old), Index::new(elements, self.types, new));
        let mut places = Vec::new();
        for item in &elements.items {
            let trail = trail.then(Step::Key(new.keys, &item.keys));
            let (before, after) = (old.find(item), new.find(item));
            let shown = || Values { declared: None, old: old.shown(item), new: new.shown(item) };
            if let (true, Some(before), Some(after)) = (elements.ordered, before.place(), after.place()) {
                places.push((item, before, after));
            }
            match (before, after) {
                (Found::None, Found::None) => {}
                (Found::One(_, old), Found::One(_, new)) => {
                    self.changed(&item.node, "", &trail, Versions { old: Some(old), new: Some(new) });
                }
                (Found::None, Found::One(_, new)) => {
                    self.changed(&item.node, "", &trail, Versions { old: None, new: Some(new) });
                }
                (Found::Many, Found::Many) => {
                    let (before, after) = (old.collect(item), new.collect(item));
                    let same = before.len() == after.len()
                        && before.iter().zip(&after).all(|(old, new)| !self.is_changed(&item.node, old, new));
                    if !same {
                        self.push(&trail, shown(), Agreement::Differs);
                    }
                }
                (Found::Many, Found::One(_, one)) => {
                    let agreement = self.worst(&item.node, one);
                    self.push(&trail, shown(), agreement);
                }
                (Found::One(_, _), Found::Many | Found::None)
                | (Found::Many, Found::None)
                | (Found::None, Found::Many) => {
                    self.push(&trail, shown(), Agreement::Differs);
                }
            }
        }
        self.order_changed(&places, trail);
    }

    /// The order of the declared elements that are there before and after, with
    /// their places.
    fn order_changed(&mut self, places: &[(&Element, usize, usize)], trail: &Trail<'_>) {
        let before_ascends = places.is_sorted_by_key(|(_, before, _)| *before);
        let after_ascends = places.is_sorted_by_key(|(_, _, after)| *after);
        if before_ascends && after_ascends {
            return;
        }
        let before = order(places.iter().map(|(element, before, _)| (*element, *before)));
        let after = order(places.iter().map(|(element, _, after)| (*element, *after)));
        if before != after {
            let declared = order(places.iter().enumerate().map(|(place, (element, _, _))| (*element, place)));
            let agreement = if before_ascends { Agreement::Altered } else { ordering(after_ascends) };
            let values = Values { declared: Some(declared), old: Some(before), new: Some(after) };
            self.push(trail, values, agreement);
        }
    }

    fn set_changed(&mut self, set: &Set, trail: &Trail<'_>, Versions { old, new }: Versions<'_>) {
        let held = |list| Held::new(self.types, set.item, set.values.len(), list);
        let (before, after) = (held(old), held(new));
        for value in &set.values {
            let step = trail.then(Step::Element(value));
            let declared = || Values { declared: Some(value.clone()), ..Values::default() };
            match (before.find(value).is_some(), after.find(value).is_some()) {
                (true, false) => {
                    let values = Values { old: Some(value.clone()), ..declared() };
                    self.push(&step, values, Agreement::Differs);
                }
                (false, true) => {
                    let values = Values { new: Some(value.clone()), ..declared() };
                    self.push(&step, values, Agreement::Agrees);
                }
                (true, true) | (false, false) => {}
            }
        }
    }

    fn drift(&mut self, node: &Node, name: &str, trail: &Trail<'_>, live: Option<&Value>) {
        match node {
            Node::Leaf(leaf) => {
                if live.is_some_and(|live| leaf.value.is(live)) {
                    return;
                }
                let (spot, declared) =
                    (Spot::new(name, leaf.place, self.family).of(trail.holder()), leaf.value.value());
                let agreement = equality::agreement(self.types, leaf.ty, spot, &declared, live);
                if agreement != Agreement::Agrees {
                    let told = Versions { old: None, new: live }.told();
                    self.push(trail, Values { declared: Some(declared), ..told }, agreement);
                }
            }
            Node::Object(entries) => {
                let before = self.found.len();
                for entry in entries {
                    let live = live.and_then(|value| value.get(&*entry.name));
                    self.drift(&entry.node, &entry.name, &trail.then(Step::Field(&entry.name)), live);
                }
                if is_absent(live) && self.found.len() == before && is_struct(entries) {
                    self.push(trail, Values::default(), Agreement::Missing);
                }
            }
            Node::Elements(elements) => self.elements_drift(elements, trail, live),
            Node::Set(set) => {
                let held = Held::new(self.types, set.item, set.values.len(), live);
                for value in &set.values {
                    if held.find(value).is_none() {
                        let step = trail.then(Step::Element(value));
                        let values = Values { declared: Some(value.clone()), ..Values::default() };
                        self.push(&step, values, Agreement::Differs);
                    }
                }
            }
        }
    }

    fn elements_drift(&mut self, elements: &Elements, trail: &Trail<'_>, live: Option<&Value>) {
        let index = Index::new(elements, self.types, live);
        let mut places = Vec::new();
        for item in &elements.items {
            let trail = trail.then(Step::Key(index.keys, &item.keys));
            match index.find(item) {
                Found::One(place, value) => {
                    places.push((item, place));
                    self.drift(&item.node, "", &trail, Some(value));
                }
                Found::None | Found::Many => {
                    let values = Values { new: index.shown(item), ..Values::default() };
                    self.push(&trail, values, Agreement::Differs);
                }
            }
        }
        if elements.ordered && !places.is_sorted_by_key(|(_, place)| *place) {
            let declared = order(places.iter().enumerate().map(|(place, (element, _))| (*element, place)));
            let live = order(places.into_iter());
            let values = Values { declared: Some(declared), old: None, new: Some(live) };
            self.push(trail, values, ordering(false));
        }
    }

    fn is_changed(&self, node: &Node, old: &Value, new: &Value) -> bool {
        let mut walk = Walk { types: self.types, family: self.family, found: Vec::new() };
        walk.changed(node, "", &Trail::ROOT, Versions { old: Some(old), new: Some(new) });
        !walk.found.is_empty()
    }

    fn worst(&self, node: &Node, live: &Value) -> Agreement {
        let mut walk = Walk { types: self.types, family: self.family, found: Vec::new() };
        walk.drift(node, "", &Trail::ROOT, Some(live));
        walk.found.iter().fold(Agreement::Agrees, |worst, change| max(worst, change.agreement))
    }
}

/// Another order than the declared one is in doubt: appliers keep the live
/// order of elements that they find.
fn ordering(is_declared: bool) -> Agreement {
    if is_declared { Agreement::Agrees } else { Agreement::Doubt }
}

#[cfg(test)]
mod tests;
