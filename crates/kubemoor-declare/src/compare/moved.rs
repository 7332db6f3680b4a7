//! Declared list elements and fields whose place something undeclared has taken, and the fields of the core kinds that
//! exclude one another.
//!
//! An undeclared element counts as a moved declared one in three cases: it holds a value that no two elements of the list
//! may share, it is at the position of the missing element and differs from it only in its keys, or it is a Service's port
//! without a name, beside which the API server takes no other. Each element is matched with at most one other, and work is
//! linear in the list.
//!
//! The API server refuses an object with two fields that exclude one another, so a declared field cannot be set while an
//! undeclared one stands in its place. OpenAPI documents do not tell which fields these are. Custom kinds have no rows: a
//! CustomResourceDefinition may give the same names another meaning.

use std::collections::HashMap;
use std::ops::Range;

use serde_json::{Map, Value};

use super::{ComparisonWalk, FoundElement, LiveList};
use crate::equality::{Family, FieldAgreement, has_keys, key_value, quantity};
use crate::fields::{DeclaredFields, Element, Elements, FieldEntry, FieldNode};
use crate::path::{Path, Segment, Trail, TrailStep};
use crate::schema::ListKey;

/// Lists of the core kinds in which a field beside the keys is unique: two ports of one name are refused.
const UNIQUE: [(&str, &str); 1] = [("ports", "name")];

/// Elements of one list that are looked at as moved ones; an edit by hand moves one or two.
const MAX_MISSING: usize = 32;

/// Elements that are tried for each of these.
const MAX_TRIED: usize = 32;

/// A declared element that has other keys in a live object, or a declared field that an undeclared one excludes there.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// The path of the declared element or field, which does not exist in the live object as declared.
    pub declared: Path,
    /// The path of the live one.
    pub live: Path,
}

/// A declared element that is not there.
struct Missing<'f> {
    item: &'f Element,
    /// Its expected position, between the declared elements that exist.
    gap: Range<usize>,
}

struct Search<'t> {
    walk: ComparisonWalk<'t>,
    found: Vec<Move>,
}

impl DeclaredFields {
    /// The declared list elements and fields whose place something undeclared has taken in `live`: an element with
    /// other keys, or a field that excludes the declared one.
    pub fn moved(&self, live: &Value) -> Vec<Move> {
        let mut search = Search { walk: ComparisonWalk::new(self), found: Vec::new() };
        search.moved(&self.root, "", &Trail::ROOT, live);
        search.found
    }

    /// Gives elements that were moved in `live` their declared keys again; their other fields stay unchanged. Removes
    /// fields that take the place of declared ones, which [`Self::restore`] sets.
    pub fn put_back(moves: &[Move], live: &mut Value) {
        for Move { declared, live: path } in moves {
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
    /// Whether it is about a field, rather than a list element.
    pub fn is_of_field(&self) -> bool {
        matches!(self.declared.0.last(), Some(Segment::Field(_)))
    }

    /// Whether a change at `path` is undone with it.
    pub fn concerns(&self, path: &Path) -> bool {
        path.0.starts_with(&self.declared.0) || path.0.starts_with(&self.live.0)
    }
}

impl Search<'_> {
    fn moved(&mut self, node: &FieldNode, name: &str, trail: &Trail<'_>, live: &Value) {
        match node {
            FieldNode::Leaf(_) | FieldNode::Set(_) => {}
            FieldNode::Object(entries) => {
                if let Value::Object(map) = live {
                    self.replaced(entries, trail, map);
                }
                for entry in entries {
                    if let Some(live) = live.get(&*entry.name) {
                        let trail = trail.then(TrailStep::Field(&entry.name));
                        self.moved(&entry.node, &entry.name, &trail, live);
                    }
                }
            }
            FieldNode::Elements(elements) => {
                let Value::Array(list) = live else { return };
                let index = LiveList::new(elements, self.walk.types, Some(live));
                for item in &elements.items {
                    if let FoundElement::One(_, value) = index.find(item) {
                        let trail = trail.then(TrailStep::Key(index.keys, &item.keys));
                        self.moved(&item.node, "", &trail, value);
                    }
                }
                let (missing, is_declared) = missing(elements, &index, list.len());
                if !missing.is_empty() {
                    self.pair(&missing, is_declared, (list, index.keys, name), trail);
                }
            }
        }
    }

    /// Finds the undeclared fields of `live` that exclude declared ones.
    fn replaced(&mut self, entries: &[FieldEntry], trail: &Trail<'_>, live: &Map<String, Value>) {
        let (family, name) = (self.walk.family, trail.name());
        if let Some(union) = Union::named(family, name) {
            for entry in entries {
                if let Some(other) = union.instead(entries, entry, live) {
                    let path = |name| trail.then(TrailStep::Field(name)).path();
                    self.found.push(Move { declared: path(&entry.name), live: path(other) });
                }
            }
        }
        for Replaced { declared, live } in replaced_in_maps(family, name, entries, live) {
            let path =
                |[map, key]: [&str; 2]| trail.then(TrailStep::Field(map)).then(TrailStep::Field(key)).path();
            self.found.push(Move { declared: path(declared), live: path(live) });
        }
    }

    /// Finds an element for each that is missing.
    fn pair(
        &mut self,
        missing: &[Missing<'_>],
        mut is_taken: Vec<bool>,
        (list, keys, name): (&[Value], &[ListKey], &str),
        trail: &Trail<'_>,
    ) {
        let unique =
            UNIQUE.iter().find(|(of, field)| *of == name && keys.iter().all(|key| *key.name != **field));
        let unique = unique.filter(|_| self.walk.family != Family::Custom);
        let by_unique: HashMap<&str, usize> = unique
            .into_iter()
            .flat_map(|(_, field)| {
                list.iter()
                    .enumerate()
                    .filter_map(move |(place, item)| Some((item.get(field)?.as_str()?, place)))
            })
            .collect();
        // A Service's port without a name takes no other beside it.
        let is_of_service = unique.is_some() && keys.iter().any(|key| &*key.name == "port");
        let is_nameless = |item: &Value| item.get("name").is_none_or(|name| name.is_null() || name == "");
        let nameless = list.iter().position(is_nameless).filter(|_| is_of_service);
        for Missing { item, gap } in missing {
            let own = unique.and_then(|(_, field)| match item.node.entry(field) {
                Some(FieldNode::Leaf(leaf)) => leaf.value.as_str().map(str::to_owned),
                _ => None,
            });
            let shares = own.and_then(|own| by_unique.get(own.as_str()).copied());
            let is_free = |place: &usize| is_taken.get(*place).is_some_and(|taken| !taken);
            let is_alike = |place: &usize| {
                list.get(*place).is_some_and(|stray| self.walk.is_but_for_keys(item, keys, stray))
            };
            let alike = || gap.clone().filter(is_free).take(MAX_TRIED).find(is_alike);
            let place = shares.filter(is_free).or_else(alike);
            let Some(place) = place.or_else(|| nameless.filter(is_free)) else { continue };
            let stray = list.get(place).and_then(|stray| values(stray, keys));
            let is_only =
                |stray: &Vec<Value>| list.iter().filter(|it| has_keys(it, keys, stray)).count() == 1;
            let stray = stray.filter(is_only);
            if let (Some(stray), Some(taken)) = (stray, is_taken.get_mut(place)) {
                *taken = true;
                self.found.push(Move {
                    declared: trail.then(TrailStep::Key(keys, &item.keys)).path(),
                    live: trail.then(TrailStep::Key(keys, &stray)).path(),
                });
            }
        }
    }
}

impl ComparisonWalk<'_> {
    /// Whether `item` differs from its declaration only in its keys.
    fn is_but_for_keys(&self, item: &Element, keys: &[ListKey], stray: &Value) -> bool {
        let Value::Object(mut fields) = stray.clone() else { return false };
        for (key, value) in keys.iter().zip(&item.keys) {
            fields.insert(key.name.to_string(), value.clone());
        }
        self.worst(&item.node, &Value::Object(fields)) <= FieldAgreement::Doubt
    }
}

/// The missing declared elements, and for each place of the list whether it holds a declared one.
fn missing<'f>(elements: &'f Elements, index: &LiveList<'_>, length: usize) -> (Vec<Missing<'f>>, Vec<bool>) {
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

/// Which fields of one value exclude one another.
#[derive(Debug)]
pub(crate) enum Union {
    /// At most one of these fields is set.
    OneOf(&'static [&'static str]),
    /// At most one field is set, apart from these.
    OneBeside(&'static [&'static str]),
    /// The field `member` is set only where the field `tag` has this value.
    Tagged { tag: &'static str, value: &'static str, member: &'static str },
}

/// A declared field, and the undeclared one that takes its place: names of fields from the value that holds both.
#[derive(Debug, PartialEq)]
struct Replaced<'a> {
    declared: [&'a str; 2],
    live: [&'a str; 2],
}

/// Maps of one value whose entries of the same key restrict one another.
enum Maps {
    /// A key is in at most one of the two.
    Disjoint(&'static str, &'static str),
    /// An entry of the first is no greater quantity than that of the second.
    Ordered(&'static str, &'static str),
}

/// By the name of the field that holds the value, or of the list whose element it is.
const UNIONS: &[(&str, Union)] = &[
    ("clientConfig", Union::OneOf(&["service", "url"])),
    ("conversion", Union::Tagged { tag: "strategy", value: "Webhook", member: "webhook" }),
    ("defaultBackend", Union::OneOf(&["resource", "service"])),
    ("env", Union::OneOf(&["value", "valueFrom"])),
    ("appArmorProfile", Union::Tagged { tag: "type", value: "Localhost", member: "localhostProfile" }),
    ("livenessProbe", PROBE),
    ("postStart", Union::OneBeside(&[])),
    ("preStop", Union::OneBeside(&[])),
    ("readinessProbe", PROBE),
    ("seccompProfile", Union::Tagged { tag: "type", value: "Localhost", member: "localhostProfile" }),
    ("spec", Union::OneOf(&["maxUnavailable", "minAvailable"])),
    ("startupProbe", PROBE),
    ("strategy", ROLLING),
    ("updateStrategy", ROLLING),
    ("valueFrom", Union::OneBeside(&[])),
    ("volumes", Union::OneBeside(&["name"])),
];

const PROBE: Union = Union::OneOf(&["exec", "grpc", "httpGet", "tcpSocket"]);

const ROLLING: Union = Union::Tagged { tag: "type", value: "RollingUpdate", member: "rollingUpdate" };

/// The same for maps; the root has no name.
const MAPS: &[(&str, Maps)] = &[
    ("", Maps::Disjoint("data", "binaryData")),
    ("", Maps::Disjoint("binaryData", "data")),
    ("resources", Maps::Ordered("requests", "limits")),
];

impl Union {
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

    /// The undeclared field of `live` in the place of `entry`, one of the declared `entries`, which is not there as
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

/// The entries of maps of `live`, a value with this name, that keep declared ones of other maps from being set.
fn replaced_in_maps<'f>(
    family: Family,
    name: &str,
    entries: &'f [FieldEntry],
    live: &Map<String, Value>,
) -> Vec<Replaced<'f>> {
    let mut found = Vec::new();
    if !is_core(family) {
        return found;
    }
    for (_, maps) in MAPS.iter().filter(|(holder, _)| *holder == name) {
        match *maps {
            Maps::Disjoint(declared, other) => {
                found.extend(blocked(entries, live, [declared, other], |_, _| true));
            }
            Maps::Ordered(less, more) => {
                found.extend(blocked(entries, live, [more, less], is_less));
                found.extend(blocked(entries, live, [less, more], |declared, live| is_less(live, declared)));
            }
        }
    }
    found
}

fn is_less(one: &Value, other: &Value) -> bool {
    quantity(one).zip(quantity(other)).is_some_and(|(one, other)| one < other)
}

/// The declared entries of the first map that an undeclared one of the same key in the second map `excludes`, by the
/// declared value and the live one.
fn blocked<'f>(
    entries: &'f [FieldEntry],
    live: &Map<String, Value>,
    [map, other]: [&'static str; 2],
    excludes: impl Fn(&Value, &Value) -> bool,
) -> Vec<Replaced<'f>> {
    let of_map = |name: &str| -> &'f [FieldEntry] {
        match entries.iter().find(|entry| &*entry.name == name).map(|entry| &entry.node) {
            Some(FieldNode::Object(entries)) => entries,
            _ => &[],
        }
    };
    let Some(Value::Object(others)) = live.get(other) else { return Vec::new() };
    let is_blocked = |entry: &&FieldEntry| {
        let FieldNode::Leaf(leaf) = &entry.node else { return false };
        let is_undeclared = !declares(of_map(other), &entry.name);
        let other = others.get(&*entry.name).filter(|value| !value.is_null() && is_undeclared);
        is_declared(entry) && other.is_some_and(|other| excludes(&leaf.value, other))
    };
    let replaced =
        |entry: &'f FieldEntry| Replaced { declared: [map, &entry.name], live: [other, &entry.name] };
    of_map(map).iter().filter(is_blocked).map(replaced).collect()
}

fn is_core(family: Family) -> bool {
    matches!(family, Family::Core | Family::Pod)
}

fn declares(entries: &[FieldEntry], name: &str) -> bool {
    entries.iter().any(|entry| &*entry.name == name && is_declared(entry))
}

/// Whether an entry says more than null.
fn is_declared(entry: &FieldEntry) -> bool {
    !matches!(&entry.node, FieldNode::Leaf(leaf) if leaf.value.is_null())
}
