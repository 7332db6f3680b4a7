//! Compares objects with their declared fields: finds declared paths that an edit changes or at which a live object
//! drifted, and the additions beyond the declared paths. Each is one pass over the declared tree in linear time;
//! nothing is copied and no path is built until a change is found.

use std::cmp::max;
use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

pub(super) use self::moved::ExclusiveFields;
pub use self::moved::Move;
use super::declare::cut;
use super::equality::{
    self, ElementIndex, EquivalenceIndex, Family, FieldAgreement, FieldContext, FieldPlace, UndeclaredField,
};
use super::fields::{DeclaredFields, Element, Elements, FieldChange, FieldEntry, FieldLeaf, FieldNode, Set};
use super::path::{Path, Segment, Trail, TrailStep};
use super::schema::{ListKey, ListKind, MAX_DEPTH, Shape, Struct, TypeId, Types};

mod moved;

/// A live list, to look up declared elements by their keys.
pub(crate) struct LiveList<'v> {
    keys: &'v [ListKey],
    items: &'v [Value],
    index: ElementIndex,
}

struct ComparisonWalk<'t> {
    types: &'t Types,
    family: Family,
    found: Vec<FieldChange>,
}

#[derive(Clone, Copy)]
struct BeforeAfter<'v> {
    old: Option<&'v Value>,
    new: Option<&'v Value>,
}

impl DeclaredFields {
    /// The declared paths at which `old` and `new` differ, each with the agreement of `new` with the declaration. Both
    /// objects come from the API server, in the version of the manifest. Empty if no declared path changed.
    ///
    /// If a value is declared empty and absent in `old`, any value in `new` agrees: the server fills in node
    /// ports, cluster IPs and defaults.
    pub fn changed(&self, old: &Value, new: &Value) -> Vec<FieldChange> {
        let mut walk = ComparisonWalk::new(self);
        walk.changed(&self.root, "", &Trail::ROOT, BeforeAfter { old: Some(old), new: Some(new) });
        walk.found
    }

    /// The declared paths at which `live` is not, or may not be, as declared.
    pub fn drift(&self, live: &Value) -> Vec<FieldChange> {
        let mut walk = ComparisonWalk::new(self);
        walk.drift(&self.root, "", &Trail::ROOT, Some(live));
        walk.found
    }

    /// Resolves `Doubt` by comparing new values with `canonical`, the object as the API server would store the declared
    /// manifest.
    pub fn settler<'s>(&'s self, canonical: &'s Value) -> DoubtResolver<'s> {
        DoubtResolver { fields: self, canonical, lists: HashMap::new() }
    }
}

impl<'v> LiveList<'v> {
    pub(crate) fn new(elements: &Elements, types: &'v Types, list: Option<&'v Value>) -> Self {
        Self::of_items(elements, types, list.and_then(Value::as_array).map_or(&[][..], Vec::as_slice))
    }

    pub(crate) fn of_items(elements: &Elements, types: &'v Types, items: &'v [Value]) -> Self {
        let keys = elements.keys(types);
        Self { keys, items, index: ElementIndex::of_list(items, keys) }
    }

    /// The position of the only element with these keys, and the element.
    pub(crate) fn only(&self, element: &Element) -> Option<(usize, &'v Value)> {
        let &[place] = self.places(element) else { return None };
        Some((place, self.items.get(place)?))
    }

    pub(crate) fn collect(&self, element: &Element) -> Vec<&'v Value> {
        self.at(self.places(element))
    }

    fn at(&self, places: &[usize]) -> Vec<&'v Value> {
        places.iter().filter_map(|place| self.items.get(*place)).collect()
    }

    pub(crate) fn places(&self, element: &Element) -> &[usize] {
        self.index.places(element.keys.iter())
    }

    /// The element as a [`FieldChange`] reports it: its keys, or a list of keys if there are several.
    fn shown(&self, element: &Element) -> Option<Value> {
        let keys = |item: &Value| -> Value {
            let own = self.keys.iter().filter_map(|key| Some((key.name.to_string(), item.get(&*key.name)?)));
            Value::Object(own.map(|(name, value)| (name, copy(value))).collect())
        };
        match self.collect(element).as_slice() {
            [] => None,
            [one] => Some(keys(one)),
            several => Some(several.iter().copied().map(keys).collect()),
        }
    }
}

pub(super) fn find_declared<'f>(
    elements: &'f Elements,
    index: &ElementIndex,
    keys: &[(String, Value)],
) -> Option<(usize, &'f Element)> {
    let wanted = keys.iter().map(|(_, value)| value);
    let places = index.places(wanted.clone()).iter();
    let mut found = places.filter_map(|place| Some((*place, elements.items.get(*place)?)));
    found.find(|(_, item)| wanted.clone().eq(item.keys.iter()))
}

impl<'v> BeforeAfter<'v> {
    fn field(self, name: &str) -> Self {
        let value = |object: Option<&'v Value>| object.and_then(|object| object.get(name));
        Self { old: value(self.old), new: value(self.new) }
    }

    /// The values of a change: declared, old and new.
    fn values(self, declared: Option<&Value>) -> [Option<Value>; 3] {
        [declared.cloned(), self.old.map(copy), self.new.map(copy)]
    }
}

/// The first keys of elements, in the order of their places.
fn order<'e>(elements: impl Iterator<Item = (&'e Element, usize)>) -> Value {
    let mut sorted: Vec<(&Element, usize)> = elements.collect();
    sorted.sort_by_key(|(_, place)| *place);
    sorted.into_iter().filter_map(|(element, _)| element.keys.first().cloned()).collect()
}

/// Whether these are entries of a struct, whose fields the server knows completely.
fn is_struct(entries: &[FieldEntry]) -> bool {
    let is_field = |entry: &FieldEntry| match &entry.node {
        FieldNode::Leaf(leaf) => matches!(leaf.place, FieldPlace::Field | FieldPlace::Template),
        FieldNode::Object(entries) => is_struct(entries),
        FieldNode::Elements(_) | FieldNode::Set(_) => true,
    };
    !entries.is_empty() && entries.iter().all(is_field)
}

/// Whether a change reports an undeclared field in place of a declared one that has no change itself.
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

impl<'t> ComparisonWalk<'t> {
    fn new(fields: &'t DeclaredFields) -> Self {
        Self { types: &fields.types, family: fields.family, found: Vec::new() }
    }

    /// Reports that the undeclared field `other` replaces a declared one, whose own changes are those from `start` on.
    /// No API server does that, so these become `Altered` unless they are `Differs`; if there are none, `other` is
    /// reported as the change.
    fn replaced(&mut self, start: usize, trail: &Trail<'_>, other: &str, versions: BeforeAfter<'_>) {
        let mut is_reported = false;
        for change in self.found.iter_mut().skip(start).filter(|it| it.agreement > FieldAgreement::Agrees) {
            if change.agreement != FieldAgreement::Differs {
                change.agreement = FieldAgreement::Altered;
            }
            is_reported = true;
        }
        if !is_reported {
            self.push(&trail.then(TrailStep::Field(other)), versions.values(None), FieldAgreement::Altered);
        }
    }

    fn push(
        &mut self,
        trail: &Trail<'_>,
        [declared, old, new]: [Option<Value>; 3],
        agreement: FieldAgreement,
    ) {
        self.found.push(FieldChange { path: trail.path(), declared, old, new, agreement });
    }
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

impl ComparisonWalk<'_> {
    fn changed(&mut self, node: &FieldNode, name: &str, trail: &Trail<'_>, versions: BeforeAfter<'_>) {
        let BeforeAfter { old, new } = versions;
        if old.is_none() && new.is_none() {
            return;
        }
        match node {
            FieldNode::Leaf(leaf) => {
                let spot = FieldContext::new(name, leaf.place, self.family).held_by(trail.holder());
                if let Some(agreement) = self.leaf_changed(leaf, spot, versions) {
                    self.push(trail, versions.values(Some(&leaf.value)), agreement);
                }
            }
            FieldNode::Object(entries) => {
                let before = self.found.len();
                let union =
                    ExclusiveFields::named(self.family, trail.name()).zip(new.and_then(Value::as_object));
                for entry in entries {
                    let start = self.found.len();
                    let below = trail.then(TrailStep::Field(&entry.name));
                    self.changed(&entry.node, &entry.name, &below, versions.field(&entry.name));
                    if let Some((union, map)) = union
                        && let Some(other) = union.instead(entries, entry, map)
                    {
                        let before = old.and_then(Value::as_object);
                        // If `other` replaced it before, this edit changes nothing declared.
                        if before.is_none_or(|map| union.instead(entries, entry, map) != Some(other)) {
                            self.replaced(start, trail, other, versions.field(other));
                        }
                    }
                }
                // A value with nothing but nulls declares only its existence.
                let is_lost = old.is_some_and(Value::is_object) && is_absent(new);
                if is_lost && self.found.len() == before && is_struct(entries) {
                    let old = Some(Value::Object(Map::new()));
                    self.push(trail, [None, old, None], FieldAgreement::Differs);
                }
            }
            FieldNode::Elements(elements) => self.elements_changed(elements, trail, versions),
            FieldNode::Set(set) => self.set_changed(set, trail, versions),
        }
    }

    /// The agreement of the new value of a leaf that changed.
    fn leaf_changed(
        &self,
        leaf: &FieldLeaf,
        spot: FieldContext<'_>,
        BeforeAfter { old, new }: BeforeAfter<'_>,
    ) -> Option<FieldAgreement> {
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
                return Some(FieldAgreement::Differs);
            }
        }
        if equality::is_chosen_at_first(spot, declared, new) {
            return Some(FieldAgreement::Altered);
        }
        let agreement = |live| equality::agreement(self.types, leaf.ty, spot, declared, live);
        let empty =
            equality::is_empty(declared) && (leaf.place != FieldPlace::Entry || !declared.is_string());
        if is_absent(old)
            && ((empty && agreement(new) <= FieldAgreement::Doubt)
                || (equality::is_zero(declared) && new.is_some_and(equality::is_zero)))
        {
            return None;
        }
        // The server returned this zero, so its absence means something else.
        let shown = !declared.is_null()
            && is_absent(new)
            && !is_absent(old)
            && agreement(old) == FieldAgreement::Agrees;
        Some(match shown {
            true => FieldAgreement::Differs,
            false => equality::agreement_after_update(self.types, (leaf.ty, spot), declared, old, new),
        })
    }

    fn elements_changed(
        &mut self,
        elements: &Elements,
        trail: &Trail<'_>,
        BeforeAfter { old, new }: BeforeAfter<'_>,
    ) {
        let (old, new) = (LiveList::new(elements, self.types, old), LiveList::new(elements, self.types, new));
        let mut places = Vec::new();
        for item in &elements.items {
            let trail = trail.then(TrailStep::Key(new.keys, &item.keys));
            let (before, after) = (old.places(item), new.places(item));
            let shown = || [None, old.shown(item), new.shown(item)];
            if let (true, &[before], &[after]) = (elements.ordered, before, after) {
                places.push((item, before, after));
            }
            let (were, are) = (old.at(before), new.at(after));
            match (were.as_slice(), are.as_slice()) {
                ([], []) => {}
                ([] | [_], &[new]) => {
                    let old = were.first().copied();
                    self.changed(&item.node, "", &trail, BeforeAfter { old, new: Some(new) });
                }
                ([_, _, ..], [_, _, ..]) => {
                    let same = were.len() == are.len()
                        && were.iter().zip(&are).all(|(old, new)| !self.is_changed(&item.node, old, new));
                    if !same {
                        self.push(&trail, shown(), FieldAgreement::Differs);
                    }
                }
                ([_, _, ..], &[one]) => {
                    let agreement = self.worst(&item.node, one);
                    self.push(&trail, shown(), agreement);
                }
                ([_, ..], []) | ([] | [_], [_, _, ..]) => {
                    self.push(&trail, shown(), FieldAgreement::Differs);
                }
            }
        }
        self.order_changed(&places, trail);
    }

    /// Reports a changed order of the declared elements that exist before and after. `places` has their positions.
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
            // An order other than the declared one is `Doubt`: an apply keeps the live order of existing elements.
            let agreement = match (before_ascends, after_ascends) {
                (true, _) => FieldAgreement::Altered,
                (false, true) => FieldAgreement::Agrees,
                (false, false) => FieldAgreement::Doubt,
            };
            self.push(trail, [declared, before, after].map(Some), agreement);
        }
    }

    fn set_changed(&mut self, set: &Set, trail: &Trail<'_>, BeforeAfter { old, new }: BeforeAfter<'_>) {
        let held = |list| EquivalenceIndex::of_list(self.types, set.item, list);
        let (before, after) = (held(old), held(new));
        for value in &set.values {
            let step = trail.then(TrailStep::Element(value));
            let own = || Some(value.clone());
            match (before.find(value).is_some(), after.find(value).is_some()) {
                (true, false) => self.push(&step, [own(), own(), None], FieldAgreement::Differs),
                (false, true) => self.push(&step, [own(), None, own()], FieldAgreement::Agrees),
                (true, true) | (false, false) => {}
            }
        }
    }

    fn is_changed(&self, node: &FieldNode, old: &Value, new: &Value) -> bool {
        let mut walk = Self { found: Vec::new(), ..*self };
        walk.changed(node, "", &Trail::ROOT, BeforeAfter { old: Some(old), new: Some(new) });
        !walk.found.is_empty()
    }
}

impl ComparisonWalk<'_> {
    fn drift(&mut self, node: &FieldNode, name: &str, trail: &Trail<'_>, live: Option<&Value>) {
        match node {
            FieldNode::Leaf(leaf) => {
                if live == Some(&leaf.value) {
                    return;
                }
                let spot = FieldContext::new(name, leaf.place, self.family).held_by(trail.holder());
                let agreement = equality::agreement(self.types, leaf.ty, spot, &leaf.value, live);
                if agreement != FieldAgreement::Agrees {
                    let values = BeforeAfter { old: None, new: live }.values(Some(&leaf.value));
                    self.push(trail, values, agreement);
                }
            }
            FieldNode::Object(entries) => {
                let before = self.found.len();
                let union =
                    ExclusiveFields::named(self.family, trail.name()).zip(live.and_then(Value::as_object));
                for entry in entries {
                    let start = self.found.len();
                    let below = live.and_then(|value| value.get(&*entry.name));
                    self.drift(&entry.node, &entry.name, &trail.then(TrailStep::Field(&entry.name)), below);
                    if let Some((union, map)) = union
                        && let Some(other) = union.instead(entries, entry, map)
                    {
                        self.replaced(start, trail, other, BeforeAfter { old: None, new: map.get(other) });
                    }
                }
                if is_absent(live) && self.found.len() == before && is_struct(entries) {
                    self.push(trail, [None, None, None], FieldAgreement::Missing);
                }
            }
            FieldNode::Elements(elements) => self.elements_drift(elements, trail, live),
            FieldNode::Set(set) => {
                let held = EquivalenceIndex::of_list(self.types, set.item, live);
                for value in &set.values {
                    if held.find(value).is_none() {
                        let step = trail.then(TrailStep::Element(value));
                        self.push(&step, [Some(value.clone()), None, None], FieldAgreement::Differs);
                    }
                }
            }
        }
    }

    fn worst(&self, node: &FieldNode, live: &Value) -> FieldAgreement {
        let mut walk = Self { found: Vec::new(), ..*self };
        walk.drift(node, "", &Trail::ROOT, Some(live));
        walk.found.iter().fold(FieldAgreement::Agrees, |worst, change| max(worst, change.agreement))
    }

    fn elements_drift(&mut self, elements: &Elements, trail: &Trail<'_>, live: Option<&Value>) {
        let list = LiveList::new(elements, self.types, live);
        let mut places = Vec::new();
        for item in &elements.items {
            let trail = trail.then(TrailStep::Key(list.keys, &item.keys));
            if let Some((place, value)) = list.only(item) {
                places.push((item, place));
                self.drift(&item.node, "", &trail, Some(value));
            } else {
                self.push(&trail, [None, None, list.shown(item)], FieldAgreement::Differs);
            }
        }
        if elements.ordered && !places.is_sorted_by_key(|(_, place)| *place) {
            let declared = order(places.iter().enumerate().map(|(place, (element, _))| (*element, place)));
            let live = order(places.into_iter());
            self.push(trail, [Some(declared), None, Some(live)], FieldAgreement::Doubt);
        }
    }
}

pub struct DoubtResolver<'s> {
    fields: &'s DeclaredFields,
    canonical: &'s Value,
    /// By the address of the declared list, which is unique.
    lists: HashMap<*const Elements, (ElementIndex, LiveList<'s>)>,
}

impl<'s> DoubtResolver<'s> {
    /// Whether the new value equals the one that the API server would store.
    pub fn settle(&mut self, change: &FieldChange) -> FieldAgreement {
        let types = &*self.fields.types;
        let (mut node, mut value) = (&self.fields.root, Some(self.canonical));
        let end = change.path.0.len().saturating_sub(1);
        for (place, segment) in change.path.0.iter().enumerate() {
            let step = match (segment, node) {
                // An undeclared field in the place of a declared one.
                (Segment::Field(name), FieldNode::Object(_))
                    if place == end && node.entry(name).is_none() =>
                {
                    let canonical = value.and_then(|value| value.get(name));
                    return agreed(equality::is_same(types, TypeId::ANY, change.new.as_ref(), canonical));
                }
                (Segment::Field(name), node) => {
                    node.entry(name).map(|node| (node, value.and_then(|value| value.get(name))))
                }
                (Segment::Key(keys), FieldNode::Elements(elements)) => {
                    let (declared, list) =
                        self.lists.entry(std::ptr::from_ref(&**elements)).or_insert_with(|| {
                            let declared = ElementIndex::of_declared(elements);
                            (declared, LiveList::new(elements, types, value))
                        });
                    find_declared(elements, declared, keys)
                        .map(|(_, item)| (&item.node, list.only(item).map(|(_, value)| value)))
                }
                _ => None,
            };
            let Some((below, found)) = step else { return change.agreement };
            (node, value) = (below, found);
        }
        let agrees = match node {
            FieldNode::Leaf(leaf) => equality::is_same(types, leaf.ty, change.new.as_ref(), value),
            FieldNode::Elements(elements) => {
                let list = LiveList::new(elements, types, value);
                let there = elements.items.iter().filter_map(|e| Some((e, list.only(e)?.0)));
                Some(order(there)) == change.new
            }
            FieldNode::Object(_) | FieldNode::Set(_) => return change.agreement,
        };
        agreed(agrees)
    }
}

fn agreed(agrees: bool) -> FieldAgreement {
    if agrees { FieldAgreement::Agrees } else { FieldAgreement::Differs }
}

pub trait AdditionScope: Sized {
    /// The scope one step further down; `None` if it covers nothing there or below.
    fn step(&self, segment: &Segment) -> Option<Self>;

    fn is_inside(&self) -> bool;
}

#[derive(Clone, Debug, PartialEq)]
pub struct Addition<'v> {
    pub path: Path,
    /// The previous value; `None` if it was absent or is unknown.
    pub old: Option<&'v Value>,
    pub new: &'v Value,
    /// Whether it is a list element or an entry of a free map. The API server fills in fields, but neither of these.
    pub is_member: bool,
}

struct AdditionSearch<'t, 'v> {
    types: &'t Types,
    family: Family,
    path: Vec<Segment>,
    found: Vec<Addition<'v>>,
}

#[derive(Clone, Copy)]
struct AdditionSpot<'s> {
    /// The declared node here; `None` if nothing is declared.
    node: Option<&'s FieldNode>,
    field: UndeclaredField<'s>,
    is_member: bool,
}

impl DeclaredFields {
    /// The values of `new` within `scope` that are neither declared, nor in `old`, nor defaults. Both objects
    /// come from the API server, in the version of the manifest.
    pub fn additions<'v>(
        &self,
        scope: &impl AdditionScope,
        old: Option<&'v Value>,
        new: &'v Value,
    ) -> Vec<Addition<'v>> {
        // The scheduler and the server's admission plugins add fields to Pods.
        if self.family == Family::Pod {
            return Vec::new();
        }
        let mut walk =
            AdditionSearch { types: &self.types, family: self.family, path: Vec::new(), found: Vec::new() };
        let is_of_update = old.is_some();
        let field = UndeclaredField {
            ty: self.ty,
            name: "",
            within: "",
            default: None,
            is_changed: false,
            is_of_update,
        };
        let spot = AdditionSpot { node: Some(&self.root), field, is_member: false };
        walk.value(spot, scope, old, new);
        walk.found
    }

    /// Whether each part of the value at `path` is declared, or a value below or above it is.
    pub fn covers(&self, path: &Path, value: &Value) -> bool {
        match value {
            Value::Object(map) if !map.is_empty() => {
                map.iter().all(|(name, below)| self.covers(&path.of_field(name), below))
            }
            _ => self.declares_around(path),
        }
    }

    /// Whether a value is declared at `path`, below it, or above it as one value.
    pub(super) fn declares_around(&self, path: &Path) -> bool {
        let mut node = &self.root;
        for segment in path.0.iter() {
            let below = match (segment, node) {
                (_, FieldNode::Leaf(leaf)) => return !equality::is_void(&leaf.value),
                (Segment::Field(name), node) => node.entry(name),
                (Segment::Key(wanted), FieldNode::Elements(elements)) => elements.find(&self.types, wanted),
                (Segment::Element(wanted), FieldNode::Set(set)) => {
                    return set.values.iter().any(|own| Segment::alike(wanted, own));
                }
                _ => None,
            };
            let Some(below) = below else { return false };
            node = below;
        }
        true
    }
}

impl<'t, 'v> AdditionSearch<'t, 'v> {
    fn value(
        &mut self,
        spot: AdditionSpot<'_>,
        scope: &impl AdditionScope,
        old: Option<&'v Value>,
        new: &'v Value,
    ) {
        let node = spot.node;
        // A leaf is compared with the declaration as one value.
        let is_closed = matches!(node, Some(FieldNode::Leaf(leaf)) if !self.is_open(leaf, new));
        if new.is_null() || is_closed || self.path.len() >= MAX_DEPTH {
            return;
        }
        let old = old.filter(|old| !old.is_null());
        let is_undeclared = node.is_none() && scope.is_inside();
        if is_undeclared && old.is_none() && !self.is_taken_apart(spot, new) {
            self.found(spot, None, new);
            return;
        }
        match (self.types.shape(spot.field.ty), new) {
            (
                Shape::Struct(Struct { atomic: false, .. }) | Shape::Map { atomic: false, .. } | Shape::Any,
                Value::Object(map),
            ) => {
                for (name, value) in map {
                    self.member(spot, scope, old, (name, value));
                }
            }
            (Shape::List { item, kind: ListKind::Map(keys) }, Value::Array(items)) => {
                self.elements((spot, *item, keys), scope, old, items);
            }
            (Shape::List { kind: ListKind::Set, .. }, Value::Array(items)) => {
                self.set(spot, scope, old, items);
            }
            _ if is_undeclared && !self.is_within(spot.field.ty, old, new) => self.found(spot, old, new),
            _ => {}
        }
    }

    /// Whether the declared value is empty and granular, so that its content is open.
    fn is_open(&self, leaf: &FieldLeaf, new: &Value) -> bool {
        let of_many = match self.types.shape(leaf.ty) {
            Shape::Struct(Struct { atomic, .. }) | Shape::Map { atomic, .. } => !atomic && new.is_object(),
            Shape::List { kind, .. } => *kind != ListKind::Atomic && new.is_array(),
            Shape::Any => new.is_object(),
            Shape::Scalar(_) => false,
        };
        of_many && equality::is_void(&leaf.value)
    }

    /// Whether each part of a new value is reported as a separate addition.
    fn is_taken_apart(&self, AdditionSpot { field, is_member, .. }: AdditionSpot<'_>, new: &Value) -> bool {
        let of_many = match (self.types.shape(field.ty), new) {
            (Shape::Map { atomic: false, .. }, Value::Object(_)) => true,
            (Shape::List { kind: ListKind::Map(_) | ListKind::Set, .. }, Value::Array(_)) => true,
            (_, Value::Object(_)) => field.name == "metadata",
            _ => false,
        };
        of_many && !is_member
    }

    fn member(
        &mut self,
        above: AdditionSpot<'_>,
        scope: &impl AdditionScope,
        old: Option<&'v Value>,
        (name, value): (&str, &'v Value),
    ) {
        let segment = Segment::Field(name.to_owned());
        let Some(scope) = scope.step(&segment) else { return };
        let (ty, default, is_member) = match self.types.shape(above.field.ty) {
            Shape::Struct(shape) => match shape.field(name) {
                Some(field) => (field.ty, field.default.as_deref(), false),
                None => (TypeId::ANY, None, false),
            },
            Shape::Map { value, .. } => (*value, None, true),
            _ => (TypeId::ANY, None, false),
        };
        let field = UndeclaredField { ty, name, within: above.field.name, default, ..above.field };
        let node = above.node.and_then(|node| node.entry(name));
        let old = old.and_then(|old| old.get(name));
        self.path.push(segment);
        self.value(AdditionSpot { node, field, is_member }, &scope, old, value);
        self.path.pop();
    }

    fn elements(
        &mut self,
        (above, ty, keys): (AdditionSpot<'_>, TypeId, &[ListKey]),
        scope: &impl AdditionScope,
        old: Option<&'v Value>,
        items: &'v [Value],
    ) {
        let mut declared: HashMap<Vec<String>, &FieldNode> = HashMap::new();
        if let Some(FieldNode::Elements(elements)) = above.node {
            let key = |values: &[Value]| values.iter().map(Segment::spelled).collect();
            declared.extend(elements.items.iter().map(|item| (key(&item.keys), &item.node)));
        }
        let values = |item: &'v Value| -> Option<Vec<(String, Value)>> {
            let value = |key: &ListKey| Some((key.name.to_string(), equality::key_value(item, key)?.clone()));
            keys.iter().map(value).collect()
        };
        let spell =
            |keys: &[(String, Value)]| keys.iter().map(|(_, value)| Segment::spelled(value)).collect();
        // Elements with the same keys are compared in their order: the first of one list with the first of the other.
        let mut before: HashMap<Vec<String>, Vec<&'v Value>> = HashMap::new();
        for item in old.and_then(Value::as_array).into_iter().flatten().rev() {
            if let Some(keys) = values(item) {
                before.entry(spell(&keys)).or_default().push(item);
            }
        }
        let field = UndeclaredField { ty, default: None, ..above.field };
        for item in items {
            // The API server accepts no element without its keys.
            let Some(keys) = values(item) else { continue };
            let spelled: Vec<String> = spell(&keys);
            let segment = Segment::Key(keys);
            let Some(scope) = scope.step(&segment) else { continue };
            let old = before.get_mut(&spelled).and_then(Vec::pop);
            let node = declared.get(&spelled).copied();
            self.path.push(segment);
            self.value(AdditionSpot { node, field, is_member: true }, &scope, old, item);
            self.path.pop();
        }
    }

    fn set(
        &mut self,
        above: AdditionSpot<'_>,
        scope: &impl AdditionScope,
        old: Option<&'v Value>,
        items: &'v [Value],
    ) {
        let declared: &[Value] = if let Some(FieldNode::Set(set)) = above.node { &set.values } else { &[] };
        let before = old.and_then(Value::as_array).into_iter().flatten();
        let known: HashSet<String> = before.chain(declared).map(Segment::spelled).collect();
        for item in items.iter().filter(|item| !known.contains(&Segment::spelled(item))) {
            let segment = Segment::Element(item.clone());
            if scope.step(&segment).is_some_and(|scope| scope.is_inside()) {
                self.path.push(segment);
                self.found(AdditionSpot { is_member: true, ..above }, None, item);
                self.path.pop();
            }
        }
    }

    /// Whether the new value was there before: unchanged, or with elements removed.
    fn is_within(&self, ty: TypeId, old: Option<&Value>, new: &Value) -> bool {
        if equality::is_same(self.types, ty, old, Some(new)) {
            return true;
        }
        let (Some(Value::Array(old)), Value::Array(new)) = (old, new) else { return false };
        // In sequence, because the remaining elements keep their order.
        let mut left = old.iter();
        new.len() < old.len() && new.iter().all(|item| left.any(|before| before == item))
    }

    fn found(&mut self, spot: AdditionSpot<'_>, old: Option<&'v Value>, new: &'v Value) {
        let AdditionSpot { field, is_member, .. } = spot;
        let field = UndeclaredField { is_changed: old.is_some(), ..field };
        if is_member || !equality::is_filled_in(self.types, self.family, field, new, 0) {
            let path = Path(self.path.as_slice().into());
            self.found.push(Addition { path, old, new, is_member });
        }
    }
}

#[cfg(test)]
mod tests;
