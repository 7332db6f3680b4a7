//! Finds declared list elements and fields that something undeclared has replaced. Also lists the mutually exclusive
//! fields of the core kinds.
//!
//! An undeclared element counts as a moved declared one in three cases: it has a value that must be unique in the list,
//! it is at the position of the missing element and differs from it only in its keys, or it is a Service port without a
//! name, which the API server accepts only as a single port. Each element is matched with at most one other, in linear
//! time. If the declared element is not missing, but an undeclared one has its unique value, only that field counts as
//! replaced.
//!
//! The API server rejects an object with two mutually exclusive fields, so a declared field cannot be set while an
//! undeclared one replaces it. OpenAPI documents do not state which fields these are. Custom kinds have no rows,
//! because a CustomResourceDefinition may give the same names another meaning.

use std::collections::HashMap;
use std::iter;
use std::ops::Range;

use serde_json::{Map, Value};

use super::{ComparisonWalk, LiveList};
use crate::equality::{Family, FieldAgreement, is_empty, is_zero, key_value, quantity};
use crate::fields::{DeclaredFields, Element, Elements, FieldEntry, FieldNode};
use crate::path::{Path, Segment, Trail, TrailStep};
use crate::schema::ListKey;

/// A field, other than a key, whose values the API server requires to be unique in a list.
struct Unique {
    /// The first key of the list, which identifies the list among those of the core kinds.
    key: &'static str,
    field: &'static str,
    /// Elements that differ in one of these may share the value.
    within: &'static [&'static str],
    /// Whether every element must have it if there are several.
    is_required: bool,
}

const UNIQUE: &[Unique] = &[
    // Ports of a Service.
    Unique { key: "port", field: "name", within: &[], is_required: true },
    Unique { key: "port", field: "nodePort", within: &["protocol"], is_required: false },
    // Ports of a container.
    Unique { key: "containerPort", field: "name", within: &[], is_required: false },
    Unique { key: "containerPort", field: "hostPort", within: &["protocol", "hostIP"], is_required: false },
    Unique { key: "devicePath", field: "name", within: &[], is_required: true },
];

/// The maximum number of missing elements to match in one list; an edit by hand moves one or two.
const MAX_MISSING: usize = 32;

/// The maximum number of candidates for each of these.
const MAX_TRIED: usize = 32;

/// A declared element that has other keys in a live object, or a declared field that an undeclared field or element
/// excludes there.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// The path of the declared element or field, which does not exist in the live object as declared.
    pub declared: Path,
    /// The path of the live element or field.
    pub live: Path,
    /// Whether the API server rejects both together.
    pub is_exclusive: bool,
}

/// A declared element that is missing in the live list.
struct Missing<'f> {
    item: &'f Element,
    /// Its expected position, between the declared elements that exist.
    gap: Range<usize>,
}

/// The elements of a live list that may have replaced declared ones.
struct MoveCandidates<'v> {
    list: LiveList<'v>,
    /// Whether an element is a declared one, or is matched with one.
    is_taken: Vec<bool>,
    /// The places of undeclared elements by their unique values.
    holders: HashMap<(&'static str, String), usize>,
}

struct Search<'t> {
    walk: ComparisonWalk<'t>,
    found: Vec<Move>,
}

impl DeclaredFields {
    /// The declared list elements and fields that something undeclared has replaced in `live`: an element with other
    /// keys, or a field that excludes the declared one.
    pub fn moved(&self, live: &Value) -> Vec<Move> {
        let mut search = Search { walk: ComparisonWalk::new(self), found: Vec::new() };
        search.moved(&self.root, &Trail::ROOT, live);
        search.found
    }

    /// Gives moved elements of `live` their declared keys again, and leaves their other fields unchanged. Removes
    /// fields and elements that replace declared fields; [`Self::restore`] then sets those.
    pub fn undo_moves(moves: &[Move], live: &mut Value) {
        for Move { declared, live: path, .. } in moves {
            match (declared.0.last(), path.0.split_last()) {
                (Some(Segment::Key(keys)), _) => {
                    if let Some(Value::Object(fields)) = find(live, &path.0) {
                        fields.extend(keys.iter().cloned());
                    }
                }
                (_, Some((Segment::Field(name), above))) => {
                    if let Some(Value::Object(fields)) = find(live, above) {
                        fields.remove(name);
                    }
                }
                (_, Some((element, list))) => {
                    if let Some(Value::Array(items)) = find(live, list) {
                        items.retain(|item| !element.selects(item));
                    }
                }
                _ => {}
            }
        }
    }
}

/// The first value at a path.
fn find<'v>(root: &'v mut Value, path: &[Segment]) -> Option<&'v mut Value> {
    path.iter().try_fold(root, |value, segment| match (segment, value) {
        (Segment::Field(name), value) => value.get_mut(name),
        (Segment::Key(_), Value::Array(items)) => items.iter_mut().find(|item| segment.selects(item)),
        _ => None,
    })
}

impl Move {
    /// Whether this is about a declared field rather than a list element.
    pub fn is_of_field(&self) -> bool {
        matches!(self.declared.0.last(), Some(Segment::Field(_)))
    }

    /// Whether undoing the move also undoes a change at `path`.
    pub fn concerns(&self, path: &Path) -> bool {
        path.0.starts_with(&self.declared.0) || path.0.starts_with(&self.live.0)
    }
}

impl Search<'_> {
    fn moved(&mut self, node: &FieldNode, trail: &Trail<'_>, live: &Value) {
        match node {
            FieldNode::Leaf(_) | FieldNode::Set(_) => {}
            FieldNode::Object(entries) => {
                if let Value::Object(map) = live {
                    self.replaced(entries, trail, map);
                }
                for entry in entries {
                    if let Some(live) = live.get(&*entry.name) {
                        self.moved(&entry.node, &trail.then(TrailStep::Field(&entry.name)), live);
                    }
                }
            }
            FieldNode::Elements(elements) => {
                let Value::Array(list) = live else { return };
                let list = LiveList::of_items(elements, self.walk.types, list);
                let (missing, is_declared) = missing(elements, &list);
                let mut strays = MoveCandidates::new(list, is_declared, self.walk.family);
                for item in &elements.items {
                    if let Some((_, value)) = strays.list.only(item) {
                        let below = trail.then(TrailStep::Key(strays.list.keys, &item.keys));
                        self.moved(&item.node, &below, value);
                        self.held(item, &mut strays, trail);
                    }
                }
                self.pair(&missing, &mut strays, trail);
            }
        }
    }

    /// Finds the undeclared fields of `live` that exclude declared ones.
    fn replaced(&mut self, entries: &[FieldEntry], trail: &Trail<'_>, live: &Map<String, Value>) {
        let (family, name) = (self.walk.family, trail.name());
        let excluded = |declared, live| Move { declared, live, is_exclusive: true };
        if let Some(union) = ExclusiveFields::named(family, name) {
            for entry in entries {
                if let Some(other) = union.instead(entries, entry, live) {
                    let path = |name| trail.then(TrailStep::Field(name)).path();
                    self.found.push(excluded(path(&entry.name), path(other)));
                }
            }
        }
        for maps in MAPS.iter().filter(|maps| is_core(family) && maps.holder == name) {
            for key in maps.blocked(entries, live) {
                let path = |map| trail.then(TrailStep::Field(map)).then(TrailStep::Field(key)).path();
                self.found.push(excluded(path(maps.declared), path(maps.other)));
            }
        }
    }

    /// Finds undeclared elements that have a unique value of this declared element.
    fn held(&mut self, item: &Element, strays: &mut MoveCandidates<'_>, trail: &Trail<'_>) {
        let of_keys = strays.list.keys;
        for unique in uniques(self.walk.family, of_keys) {
            let Some(place) = strays.holder(unique, item) else { continue };
            let Some(keys) = strays.only_keys(place) else { continue };
            let declared = trail.then(TrailStep::Key(of_keys, &item.keys));
            let mut live = trail.then(TrailStep::Key(of_keys, &keys)).path();
            if unique.is_required {
                strays.take(place);
            } else {
                live = live.of_field(unique.field);
            }
            let declared = declared.then(TrailStep::Field(unique.field)).path();
            self.found.push(Move { declared, live, is_exclusive: true });
        }
    }

    /// Matches each missing element with an undeclared one.
    fn pair(&mut self, missing: &[Missing<'_>], strays: &mut MoveCandidates<'_>, trail: &Trail<'_>) {
        let of_keys = strays.list.keys;
        let nameless = strays.nameless(self.walk.family);
        for Missing { item, gap } in missing {
            let mut uniques = uniques(self.walk.family, of_keys);
            let shares = uniques.find_map(|unique| strays.holder(unique, item));
            let is_alike = |place: &usize| {
                let stray = strays.list.items.get(*place);
                stray.is_some_and(|stray| self.walk.is_but_for_keys(item, of_keys, stray))
            };
            let is_free = |place: &usize| strays.is_free(*place);
            let alike = || gap.clone().filter(is_free).take(MAX_TRIED).find(is_alike);
            let place = shares.or_else(alike).or_else(|| nameless.filter(is_free));
            let Some((place, keys)) = place.and_then(|place| Some((place, strays.only_keys(place)?))) else {
                continue;
            };
            strays.take(place);
            self.found.push(Move {
                declared: trail.then(TrailStep::Key(of_keys, &item.keys)).path(),
                live: trail.then(TrailStep::Key(of_keys, &keys)).path(),
                is_exclusive: [shares, nameless].contains(&Some(place)),
            });
        }
    }
}

impl<'v> MoveCandidates<'v> {
    fn new(list: LiveList<'v>, is_declared: Vec<bool>, family: Family) -> Self {
        let mut holders = HashMap::new();
        for unique in uniques(family, list.keys) {
            let items = list.items.iter().zip(&is_declared).enumerate();
            for (place, (item, _)) in items.filter(|(_, (_, is_declared))| !**is_declared) {
                let value = unique.value(|name| item.get(name));
                holders.extend(value.map(|value| ((unique.field, value), place)));
            }
        }
        Self { list, is_taken: is_declared, holders }
    }

    fn is_free(&self, place: usize) -> bool {
        self.is_taken.get(place).is_some_and(|taken| !taken)
    }

    fn take(&mut self, place: usize) {
        if let Some(taken) = self.is_taken.get_mut(place) {
            *taken = true;
        }
    }

    /// The place of the undeclared element that holds the unique value of a declared one.
    fn holder(&self, unique: &Unique, item: &Element) -> Option<usize> {
        let of_key = |name: &str| self.list.keys.iter().zip(&item.keys).find(|(key, _)| *key.name == *name);
        let of_field = |name: &str| match item.node.entry(name) {
            Some(FieldNode::Leaf(leaf)) => Some(&leaf.value),
            _ => None,
        };
        let value = unique.value(|name| of_key(name).map(|(_, value)| value).or_else(|| of_field(name)))?;
        self.holders.get(&(unique.field, value)).copied().filter(|place| self.is_free(*place))
    }

    /// The values of an element's keys, unless another element has the same keys.
    fn only_keys(&self, place: usize) -> Option<Vec<Value>> {
        let own = values(self.list.items.get(place)?, self.list.keys)?;
        (self.list.index.places(own.iter()).len() == 1).then_some(own)
    }

    /// The position of an element without a required unique field, such as a Service port without a name.
    fn nameless(&self, family: Family) -> Option<usize> {
        let required = uniques(family, self.list.keys).find(|unique| unique.is_required)?;
        self.list.items.iter().position(|item| item.get(required.field).is_none_or(is_empty))
    }
}

impl Unique {
    /// The unique value of an element with these fields, as text.
    fn value<'v>(&self, field: impl Fn(&str) -> Option<&'v Value>) -> Option<String> {
        let own = field(self.field).filter(|own| !is_empty(own) && !is_zero(own))?;
        let within = self.within.iter().map(|name| field(name).map(Segment::spelled).unwrap_or_default());
        Some(iter::once(Segment::spelled(own)).chain(within).collect::<Vec<_>>().join("/"))
    }
}

/// The unique fields of a list with these keys.
fn uniques(family: Family, keys: &[ListKey]) -> impl Iterator<Item = &'static Unique> {
    let key = keys.first().filter(|_| is_core(family)).map(|key| &*key.name);
    UNIQUE.iter().filter(move |unique| key == Some(unique.key))
}

impl ComparisonWalk<'_> {
    /// Whether `stray` differs from the declared `item` only in its keys.
    fn is_but_for_keys(&self, item: &Element, keys: &[ListKey], stray: &Value) -> bool {
        let Value::Object(mut fields) = stray.clone() else { return false };
        for (key, value) in keys.iter().zip(&item.keys) {
            fields.insert(key.name.to_string(), value.clone());
        }
        self.worst(&item.node, &Value::Object(fields)) <= FieldAgreement::Doubt
    }
}

/// The missing declared elements, and for each place of the list whether it holds a declared one.
fn missing<'f>(elements: &'f Elements, index: &LiveList<'_>) -> (Vec<Missing<'f>>, Vec<bool>) {
    let length = index.items.len();
    let (mut missing, mut is_declared) = (Vec::<Missing<'f>>::new(), vec![false; length]);
    let mut after = 0;
    for item in &elements.items {
        let places = index.places(item);
        match places.first() {
            None => missing.push(Missing { item, gap: after..length }),
            Some(first) => {
                let open = missing.iter_mut().rev().take_while(|it| it.gap.end == length);
                open.for_each(|it| it.gap.end = *first);
                after = first + 1;
            }
        }
        for place in places {
            if let Some(declared) = is_declared.get_mut(*place) {
                *declared = true;
            }
        }
    }
    missing.truncate(MAX_MISSING);
    (missing, is_declared)
}

/// The values of an element's keys, as written there; `None` where one is absent.
fn values(element: &Value, keys: &[ListKey]) -> Option<Vec<Value>> {
    keys.iter().map(|key| key_value(element, key).cloned()).collect()
}

/// Mutually exclusive fields of one value.
#[derive(Debug)]
pub(crate) enum ExclusiveFields {
    /// At most one of these fields is set.
    OneOf(&'static [&'static str]),
    /// At most one field is set, apart from these.
    OneBeside(&'static [&'static str]),
    /// The field `member` is set only where the field `tag` has this value.
    Tagged { tag: &'static str, value: &'static str, member: &'static str },
}

/// Two maps of one value whose entries with the same key restrict one another.
struct Maps {
    /// The name of the field that holds the value; the root has none.
    holder: &'static str,
    declared: &'static str,
    other: &'static str,
    /// Whether a declared entry of the first map cannot be set beside this live one of the second.
    excludes: fn(&Value, &Value) -> bool,
}

/// By the name of the field that holds the value, or of the list whose element it is.
const UNIONS: &[(&str, ExclusiveFields)] = &[
    ("clientConfig", ExclusiveFields::OneOf(&["service", "url"])),
    ("conversion", ExclusiveFields::Tagged { tag: "strategy", value: "Webhook", member: "webhook" }),
    ("defaultBackend", ExclusiveFields::OneOf(&["resource", "service"])),
    ("env", ExclusiveFields::OneOf(&["value", "valueFrom"])),
    (
        "appArmorProfile",
        ExclusiveFields::Tagged { tag: "type", value: "Localhost", member: "localhostProfile" },
    ),
    ("livenessProbe", PROBE),
    ("postStart", ExclusiveFields::OneBeside(&[])),
    ("preStop", ExclusiveFields::OneBeside(&[])),
    ("readinessProbe", PROBE),
    (
        "seccompProfile",
        ExclusiveFields::Tagged { tag: "type", value: "Localhost", member: "localhostProfile" },
    ),
    ("spec", ExclusiveFields::OneOf(&["maxUnavailable", "minAvailable"])),
    ("startupProbe", PROBE),
    ("strategy", ROLLING),
    ("updateStrategy", ROLLING),
    ("valueFrom", ExclusiveFields::OneBeside(&[])),
    ("volumes", ExclusiveFields::OneBeside(&["name"])),
];

const PROBE: ExclusiveFields = ExclusiveFields::OneOf(&["exec", "grpc", "httpGet", "tcpSocket"]);

const ROLLING: ExclusiveFields =
    ExclusiveFields::Tagged { tag: "type", value: "RollingUpdate", member: "rollingUpdate" };

/// A key of a ConfigMap is in at most one of its maps, and no request is greater than the limit.
const MAPS: &[Maps] = &[
    Maps { holder: "", declared: "data", other: "binaryData", excludes: |_, _| true },
    Maps { holder: "", declared: "binaryData", other: "data", excludes: |_, _| true },
    Maps { holder: "resources", declared: "limits", other: "requests", excludes: is_less },
    Maps { holder: "resources", declared: "requests", other: "limits", excludes: |own, it| is_less(it, own) },
];

impl ExclusiveFields {
    /// The union of a value with this name.
    pub(crate) fn named(family: Family, name: &str) -> Option<&'static Self> {
        is_core(family).then(|| UNIONS.iter().find(|(holder, _)| *holder == name)).flatten().map(|(_, it)| it)
    }

    /// Whether a field of this name excludes others, or is excluded by them.
    pub(crate) fn has(&self, name: &str) -> bool {
        match self {
            Self::OneOf(names) => names.contains(&name),
            Self::OneBeside(others) => !others.contains(&name),
            Self::Tagged { tag, member, .. } => name == *tag || name == *member,
        }
    }

    /// The undeclared field of `live` that replaces `entry`, one of the declared `entries`, if `entry` is not there as
    /// declared.
    pub(super) fn instead<'v>(
        &self,
        entries: &[FieldEntry],
        entry: &FieldEntry,
        live: &'v Map<String, Value>,
    ) -> Option<&'v str> {
        let set = |name: &str| live.get_key_value(name).filter(|(_, value)| !value.is_null());
        let undeclared =
            |name: &str| set(name).map(|(name, _)| name.as_str()).filter(|_| !declares(entries, name));
        let own = &*entry.name;
        if !is_declared(entry) {
            return None;
        }
        match self {
            Self::OneOf(names) if names.contains(&own) && set(own).is_none() => {
                names.iter().filter(|name| **name != own).find_map(|name| undeclared(name))
            }
            Self::OneBeside(others) if !others.contains(&own) && set(own).is_none() => {
                live.keys().filter(|name| !others.contains(&name.as_str())).find_map(|name| undeclared(name))
            }
            Self::Tagged { tag, value, member } if own == *tag => {
                let FieldNode::Leaf(leaf) = &entry.node else { return None };
                let is_without = leaf.value != *value;
                let is_other = set(tag).is_some_and(|(_, live)| leaf.value != *live);
                if is_without && is_other { undeclared(member) } else { None }
            }
            Self::Tagged { tag, value, member } if own == *member && set(own).is_none() => {
                undeclared(tag).filter(|_| set(tag).is_some_and(|(_, live)| live != value))
            }
            Self::OneOf(_) | Self::OneBeside(_) | Self::Tagged { .. } => None,
        }
    }
}

fn is_less(one: &Value, other: &Value) -> bool {
    quantity(one).zip(quantity(other)).is_some_and(|(one, other)| one < other)
}

impl Maps {
    /// The keys of declared entries of the first map that undeclared entries of the second exclude.
    fn blocked<'f>(&self, entries: &'f [FieldEntry], live: &Map<String, Value>) -> Vec<&'f str> {
        let of_map = |name: &str| -> &'f [FieldEntry] {
            match entries.iter().find(|entry| &*entry.name == name).map(|entry| &entry.node) {
                Some(FieldNode::Object(entries)) => entries,
                _ => &[],
            }
        };
        let Some(Value::Object(others)) = live.get(self.other) else { return Vec::new() };
        let is_blocked = |entry: &&FieldEntry| {
            let FieldNode::Leaf(leaf) = &entry.node else { return false };
            let is_undeclared = !declares(of_map(self.other), &entry.name);
            let other = others.get(&*entry.name).filter(|value| !value.is_null() && is_undeclared);
            is_declared(entry) && other.is_some_and(|other| (self.excludes)(&leaf.value, other))
        };
        of_map(self.declared).iter().filter(is_blocked).map(|entry| &*entry.name).collect()
    }
}

fn is_core(family: Family) -> bool {
    matches!(family, Family::Core | Family::Pod)
}

fn declares(entries: &[FieldEntry], name: &str) -> bool {
    entries.iter().any(|entry| &*entry.name == name && is_declared(entry))
}

/// Whether an entry declares a value other than null.
fn is_declared(entry: &FieldEntry) -> bool {
    !matches!(&entry.node, FieldNode::Leaf(leaf) if leaf.value.is_null())
}
