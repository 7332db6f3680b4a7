//! The walk over declared fields: which of them changed, which have drifted.
//!
//! Entry points: [`changed`], [`drift`], [`settle`]. Invariant: one pass over
//! the declared tree; nothing is copied and no path is built until a change is
//! found. Decides nothing about a change but its agreement.

use std::cmp::max;
use std::collections::HashMap;

use serde_json::Value;

use super::declare::cut;
use super::equality::{self, Agreement, Place, Spot};
use super::fields::{Element, Elements, FieldChange, Fields, Leaf, Node, Set};
use super::path::{Segment, Step, Trail};
use super::schema::{ListKey, Types};

/// Pairs of elements above which a list is looked up by an index.
const MAX_PAIRS: usize = 1 << 12;

/// See [`Fields::changed`].
pub(super) fn changed(fields: &Fields, old: &Value, new: &Value) -> Vec<FieldChange> {
    let mut walk = Walk { types: &fields.types, found: Vec::new() };
    walk.changed(&fields.root, "", &Trail::ROOT, Some(old), Some(new));
    walk.found
}

/// See [`Fields::drift`].
pub(super) fn drift(fields: &Fields, live: &Value) -> Vec<FieldChange> {
    let mut walk = Walk { types: &fields.types, found: Vec::new() };
    walk.drift(&fields.root, "", &Trail::ROOT, Some(live));
    walk.found
}

/// See [`Fields::settle`].
pub(super) fn settle(fields: &Fields, change: &FieldChange, canonical: &Value) -> Agreement {
    let types = &fields.types;
    let (mut node, mut value) = (&fields.root, Some(canonical));
    for segment in &change.path.0 {
        let step = match (segment, node) {
            (Segment::Field(name), node) => {
                node.entry(name).map(|node| (node, value.and_then(|value| value.get(name))))
            }
            (Segment::Key(keys), Node::Elements(elements)) => elements
                .items
                .iter()
                .find(|item| keys.iter().map(|(_, value)| value).eq(item.keys.iter()))
                .map(|item| (&item.node, Index::new(elements, types, value).find(item).one())),
            _ => None,
        };
        let Some((below, found)) = step else { return change.agreement };
        (node, value) = (below, found);
    }
    let agrees = match node {
        Node::Leaf(leaf) => equality::is_same(types, leaf.ty, change.new.as_ref(), value),
        Node::Elements(elements) => {
            let index = Index::new(elements, types, value);
            let there: Vec<&Element> =
                elements.items.iter().filter(|e| index.find(e).one().is_some()).collect();
            Some(order(&there, |e| index.find(e).first())) == change.new
        }
        Node::Object(_) | Node::Set(_) => return change.agreement,
    };
    if agrees { Agreement::Agrees } else { Agreement::Differs }
}

struct Walk<'t> {
    types: &'t Types,
    found: Vec<FieldChange>,
}

/// The live elements of one declared key.
#[derive(Clone, Copy)]
enum Found<'v> {
    None,
    One(usize, &'v Value),
    Many(usize),
}

impl<'v> Found<'v> {
    fn one(self) -> Option<&'v Value> {
        if let Self::One(_, value) = self { Some(value) } else { None }
    }

    fn first(self) -> Option<usize> {
        match self {
            Self::None => None,
            Self::One(index, _) | Self::Many(index) => Some(index),
        }
    }
}

/// A live list, to look up elements by declared keys.
struct Index<'v, 't> {
    keys: &'t [ListKey],
    items: &'v [Value],
    /// Only for long lists.
    places: Option<HashMap<Vec<String>, Vec<usize>>>,
}

impl<'v, 't> Index<'v, 't> {
    fn new(elements: &Elements, types: &'t Types, list: Option<&'v Value>) -> Self {
        let keys = elements.keys(types);
        let items = list.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let places = (elements.items.len().saturating_mul(items.len()) > MAX_PAIRS).then(|| {
            let mut places: HashMap<Vec<String>, Vec<usize>> = HashMap::new();
            for (index, item) in items.iter().enumerate() {
                let spelled: Option<Vec<String>> =
                    keys.iter().map(|key| equality::key_value(item, key).and_then(spelled)).collect();
                if let Some(spelled) = spelled {
                    places.entry(spelled).or_default().push(index);
                }
            }
            places
        });
        Self { keys, items, places }
    }

    fn find(&self, element: &Element) -> Found<'v> {
        let mut found = Found::None;
        self.each(element, |index, value| {
            found = match found {
                Found::None => Found::One(index, value),
                Found::One(first, _) | Found::Many(first) => Found::Many(first),
            };
        });
        found
    }

    fn collect(&self, element: &Element) -> Vec<&'v Value> {
        let mut all = Vec::new();
        self.each(element, |_, value| all.push(value));
        all
    }

    /// The element as a change shows it: its keys; as a list where there are
    /// several.
    fn shown(&self, element: &Element) -> Option<Value> {
        let keys = |item: &Value| -> Value {
            let own = self.keys.iter().filter_map(|key| Some((key.name.to_string(), item.get(&*key.name)?)));
            Value::Object(own.map(|(name, value)| (name, copy(value))).collect())
        };
        match self.find(element) {
            Found::None => None,
            Found::One(_, value) => Some(keys(value)),
            Found::Many(_) => Some(self.collect(element).into_iter().map(keys).collect()),
        }
    }

    fn each(&self, element: &Element, mut visit: impl FnMut(usize, &'v Value)) {
        let Some(places) = &self.places else {
            for (index, item) in self.items.iter().enumerate() {
                if equality::has_keys(item, self.keys, &element.keys) {
                    visit(index, item);
                }
            }
            return;
        };
        let spelled: Option<Vec<String>> = element.keys.iter().map(spelled).collect();
        for index in spelled.and_then(|key| places.get(&key)).into_iter().flatten() {
            if let Some(item) = self.items.get(*index) {
                visit(*index, item);
            }
        }
    }
}

/// A key's value as text, the same for values that are the same key.
fn spelled(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(_) | Value::Object(_) => None,
        Value::Number(number) => Some(match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 => format!("{float:.0}"),
            _ => number.to_string(),
        }),
        other => Some(other.to_string()),
    }
}

/// The keys of these elements in the order of their places.
fn order(elements: &[&Element], place: impl Fn(&Element) -> Option<usize>) -> Value {
    let mut sorted: Vec<(Option<usize>, &Element)> = elements.iter().map(|e| (place(e), *e)).collect();
    sorted.sort_by_key(|(place, _)| *place);
    sorted.into_iter().filter_map(|(_, e)| e.keys.first().cloned()).collect()
}

fn copy(value: &Value) -> Value {
    cut(value, 0)
}

fn is_absent(value: Option<&Value>) -> bool {
    value.is_none_or(Value::is_null)
}

impl Walk<'_> {
    fn push(
        &mut self,
        trail: &Trail<'_>,
        declared: Option<Value>,
        old: Option<Value>,
        new: Option<Value>,
        agreement: Agreement,
    ) {
        self.found.push(FieldChange { path: trail.path(), declared, old, new, agreement });
    }

    fn changed(
        &mut self,
        node: &Node,
        name: &str,
        trail: &Trail<'_>,
        old: Option<&Value>,
        new: Option<&Value>,
    ) {
        match node {
            Node::Leaf(leaf) => {
                let spot = Spot { name, place: leaf.place };
                if let Some(agreement) = self.leaf_changed(leaf, spot, old, new) {
                    let declared = Some(leaf.value.clone());
                    self.push(trail, declared, old.map(copy), new.map(copy), agreement);
                }
            }
            Node::Object(entries) => {
                for entry in entries {
                    let (old, new) =
                        (old.and_then(|v| v.get(&*entry.name)), new.and_then(|v| v.get(&*entry.name)));
                    self.changed(&entry.node, &entry.name, &trail.then(Step::Field(&entry.name)), old, new);
                }
            }
            Node::Elements(elements) => self.elements_changed(elements, trail, old, new),
            Node::Set(set) => self.set_changed(set, trail, old, new),
        }
    }

    fn leaf_changed(
        &self,
        leaf: &Leaf,
        spot: Spot<'_>,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> Option<Agreement> {
        let declared = &leaf.value;
        if declared.is_null() || equality::is_same(self.types, leaf.ty, old, new) {
            return None;
        }
        let there = |value| equality::is_open_empty(self.types, leaf.ty, declared, value);
        if there(old) && there(new) {
            return None;
        }
        let empty = equality::is_empty(declared) && (leaf.place != Place::Entry || !declared.is_string());
        if is_absent(old) && (empty || (equality::is_zero(declared) && new.is_some_and(equality::is_zero))) {
            return None;
        }
        let agreement = |live| equality::agreement(self.types, leaf.ty, spot, declared, live);
        // The server showed this zero, so its absence is something else.
        let shown = is_absent(new) && !is_absent(old) && agreement(old) == Agreement::Agrees;
        Some(if shown { Agreement::Differs } else { agreement(new) })
    }

    fn elements_changed(
        &mut self,
        elements: &Elements,
        trail: &Trail<'_>,
        old: Option<&Value>,
        new: Option<&Value>,
    ) {
        let (old, new) = (Index::new(elements, self.types, old), Index::new(elements, self.types, new));
        for item in &elements.items {
            let trail = trail.then(Step::Key(new.keys, &item.keys));
            match (old.find(item), new.find(item)) {
                (Found::None, Found::None) => {}
                (Found::One(_, old), Found::One(_, new)) => {
                    self.changed(&item.node, "", &trail, Some(old), Some(new));
                }
                (Found::None, Found::One(_, new)) => self.changed(&item.node, "", &trail, None, Some(new)),
                (Found::Many(_), Found::Many(_)) => {
                    let (before, after) = (old.collect(item), new.collect(item));
                    let same = before.len() == after.len()
                        && before.iter().zip(&after).all(|(old, new)| !self.is_changed(&item.node, old, new));
                    if !same {
                        self.push(&trail, None, old.shown(item), new.shown(item), Agreement::Differs);
                    }
                }
                (Found::Many(_), Found::One(_, one)) => {
                    let agreement = self.worst(&item.node, one);
                    self.push(&trail, None, old.shown(item), new.shown(item), agreement);
                }
                (Found::One(_, _), Found::Many(_) | Found::None)
                | (Found::Many(_), Found::None)
                | (Found::None, Found::Many(_)) => {
                    self.push(&trail, None, old.shown(item), new.shown(item), Agreement::Differs);
                }
            }
        }
        if elements.ordered {
            self.order_changed(elements, trail, &old, &new);
        }
    }

    fn order_changed(
        &mut self,
        elements: &Elements,
        trail: &Trail<'_>,
        old: &Index<'_, '_>,
        new: &Index<'_, '_>,
    ) {
        let both: Vec<&Element> = elements
            .items
            .iter()
            .filter(|e| old.find(e).one().is_some() && new.find(e).one().is_some())
            .collect();
        let before = order(&both, |e| old.find(e).first());
        let after = order(&both, |e| new.find(e).first());
        if before != after {
            let (declared, agreement) = declared_order(&both, &after);
            self.push(trail, Some(declared), Some(before), Some(after), agreement);
        }
    }

    fn set_changed(&mut self, set: &Set, trail: &Trail<'_>, old: Option<&Value>, new: Option<&Value>) {
        for value in &set.values {
            let step = trail.then(Step::Element(value));
            match (self.holds(set, old, value), self.holds(set, new, value)) {
                (true, false) => {
                    self.push(&step, Some(value.clone()), Some(value.clone()), None, Agreement::Differs);
                }
                (false, true) => {
                    self.push(&step, Some(value.clone()), None, Some(value.clone()), Agreement::Agrees);
                }
                (true, true) | (false, false) => {}
            }
        }
    }

    fn holds(&self, set: &Set, list: Option<&Value>, wanted: &Value) -> bool {
        let items = list.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        items.iter().any(|own| equality::is_same(self.types, set.item, Some(own), Some(wanted)))
    }

    fn drift(&mut self, node: &Node, name: &str, trail: &Trail<'_>, live: Option<&Value>) {
        match node {
            Node::Leaf(leaf) => {
                let spot = Spot { name, place: leaf.place };
                let agreement = equality::agreement(self.types, leaf.ty, spot, &leaf.value, live);
                if agreement != Agreement::Agrees {
                    self.push(trail, Some(leaf.value.clone()), None, live.map(copy), agreement);
                }
            }
            Node::Object(entries) => {
                for entry in entries {
                    let live = live.and_then(|value| value.get(&*entry.name));
                    self.drift(&entry.node, &entry.name, &trail.then(Step::Field(&entry.name)), live);
                }
            }
            Node::Elements(elements) => self.elements_drift(elements, trail, live),
            Node::Set(set) => {
                for value in &set.values {
                    if !self.holds(set, live, value) {
                        let step = trail.then(Step::Element(value));
                        self.push(&step, Some(value.clone()), None, None, Agreement::Differs);
                    }
                }
            }
        }
    }

    fn elements_drift(&mut self, elements: &Elements, trail: &Trail<'_>, live: Option<&Value>) {
        let index = Index::new(elements, self.types, live);
        for item in &elements.items {
            let trail = trail.then(Step::Key(index.keys, &item.keys));
            match index.find(item) {
                Found::One(_, value) => self.drift(&item.node, "", &trail, Some(value)),
                Found::None | Found::Many(_) => {
                    self.push(&trail, None, None, index.shown(item), Agreement::Differs);
                }
            }
        }
        if elements.ordered {
            let there: Vec<&Element> =
                elements.items.iter().filter(|e| index.find(e).one().is_some()).collect();
            let after = order(&there, |e| index.find(e).first());
            let (declared, agreement) = declared_order(&there, &after);
            if agreement != Agreement::Agrees {
                self.push(trail, Some(declared), None, Some(after), agreement);
            }
        }
    }

    fn is_changed(&self, node: &Node, old: &Value, new: &Value) -> bool {
        let mut walk = Walk { types: self.types, found: Vec::new() };
        walk.changed(node, "", &Trail::ROOT, Some(old), Some(new));
        !walk.found.is_empty()
    }

    fn worst(&self, node: &Node, live: &Value) -> Agreement {
        let mut walk = Walk { types: self.types, found: Vec::new() };
        walk.drift(node, "", &Trail::ROOT, Some(live));
        walk.found.iter().fold(Agreement::Agrees, |worst, change| max(worst, change.agreement))
    }
}

/// The declared order of elements, and whether `after` is it. Another order is
/// in doubt: appliers keep the live order of elements that they find.
fn declared_order(elements: &[&Element], after: &Value) -> (Value, Agreement) {
    let declared: Value = elements.iter().filter_map(|e| e.keys.first().cloned()).collect();
    let agreement = if declared == *after { Agreement::Agrees } else { Agreement::Doubt };
    (declared, agreement)
}

#[cfg(test)]
mod tests;
