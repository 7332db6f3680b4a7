//! The walk of an edit: which declared fields it changes.
//!
//! Entry point: `Walk::changed`. Invariant: an object against itself has no change.

use serde_json::{Map, Value};

use super::super::equality::{self, Agreement, Family, Place, Spot};
use super::super::fields::{Element, Elements, Leaf, Node, Set};
use super::super::path::{Step, Trail};
use super::super::unions::Union;
use super::index::{Found, Held, Index};
use super::{Values, Versions, Walk, is_absent, is_struct, order, ordering};

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

impl Walk<'_> {
    pub(super) fn changed(&mut self, node: &Node, name: &str, trail: &Trail<'_>, versions: Versions<'_>) {
        let Versions { old, new } = versions;
        if old.is_none() && new.is_none() {
            return;
        }
        match node {
            Node::Leaf(leaf) => {
                let spot = Spot::new(name, leaf.place, self.family).of(trail.holder());
                if let Some(agreement) = self.leaf_changed(leaf, spot, versions) {
                    let declared = Some(leaf.value.clone());
                    self.push(trail, Values { declared, ..versions.told() }, agreement);
                }
            }
            Node::Object(entries) => {
                let before = self.found.len();
                let union = Union::of(self.family, trail.name()).zip(new.and_then(Value::as_object));
                for entry in entries {
                    let start = self.found.len();
                    let below = trail.then(Step::Field(&entry.name));
                    self.changed(&entry.node, &entry.name, &below, versions.field(&entry.name));
                    if let Some((union, map)) = union
                        && let Some(other) = union.instead(entries, entry, map)
                    {
                        let before = old.and_then(Value::as_object);
                        // Who changes what is in the way already changes nothing that is declared.
                        if before.is_none_or(|map| union.instead(entries, entry, map) != Some(other)) {
                            self.replaced(start, trail, other, versions.field(other));
                        }
                    }
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

    /// The agreement of the new value of a leaf that changed.
    fn leaf_changed(
        &self,
        leaf: &Leaf,
        spot: Spot<'_>,
        Versions { old, new }: Versions<'_>,
    ) -> Option<Agreement> {
        let declared = &leaf.value;
        if equality::is_same(self.types, leaf.ty, old, new) {
            return None;
        }
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

    fn is_changed(&self, node: &Node, old: &Value, new: &Value) -> bool {
        let mut walk = Walk { types: self.types, family: self.family, found: Vec::new() };
        walk.changed(node, "", &Trail::ROOT, Versions { old: Some(old), new: Some(new) });
        !walk.found.is_empty()
    }
}
