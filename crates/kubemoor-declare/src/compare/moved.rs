//! Declared list elements and fields whose place something undeclared has taken.
//!
//! An undeclared element counts as a moved declared one in two cases: it holds a value that no two elements of the list
//! may share, or it is at the position of the missing element and differs from it only in its keys. Each element is
//! matched with at most one other, and work is linear in the list. Which fields exclude one another is in `unions`.

use std::collections::HashMap;
use std::ops::Range;

use serde_json::{Map, Value};

use super::index::{Found, Index};
use super::{Agreement, Walk};
use crate::equality::{Family, has_keys, key_value};
use crate::fields::{Element, Elements, Entry, Fields, Node};
use crate::path::{Path, Segment, Step, Trail};
use crate::schema::ListKey;
use crate::unions::{self, Replaced, Union};

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

/// A walk that looks for moved elements.
struct Search<'t> {
    walk: Walk<'t>,
    found: Vec<Move>,
}

/// See [`Fields::moved`].
pub(crate) fn moved(fields: &Fields, live: &Value) -> Vec<Move> {
    let walk = Walk { types: &fields.types, family: fields.family, found: Vec::new() };
    let mut search = Search { walk, found: Vec::new() };
    search.moved(&fields.root, "", &Trail::ROOT, live);
    search.found
}

/// See [`Fields::put_back`].
pub(crate) fn put_back(moves: &[Move], live: &mut Value) {
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

/// The first value at a path.
fn find<'v>(root: &'v mut Value, path: &[Segment]) -> Option<&'v mut Value> {
    path.iter().try_fold(root, |value, segment| match (segment, value) {
        (Segment::Field(name), value) => value.get_mut(name),
        (Segment::Key(keys), Value::Array(items)) => items.iter_mut().find(|item| {
            keys.iter().all(|(key, wanted)| item.get(key).is_some_and(|own| Segment::alike(own, wanted)))
        }),
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
    fn moved(&mut self, node: &Node, name: &str, trail: &Trail<'_>, live: &Value) {
        match node {
            Node::Leaf(_) | Node::Set(_) => {}
            Node::Object(entries) => {
                if let Value::Object(map) = live {
                    self.replaced(entries, trail, map);
                }
                for entry in entries {
                    if let Some(live) = live.get(&*entry.name) {
                        let trail = trail.then(Step::Field(&entry.name));
                        self.moved(&entry.node, &entry.name, &trail, live);
                    }
                }
            }
            Node::Elements(elements) => {
                let Value::Array(list) = live else { return };
                let index = Index::of(elements, self.walk.types, list);
                for item in &elements.items {
                    if let Found::One(_, value) = index.find(item) {
                        let trail = trail.then(Step::Key(index.keys, &item.keys));
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
    fn replaced(&mut self, entries: &[Entry], trail: &Trail<'_>, live: &Map<String, Value>) {
        let (family, name) = (self.walk.family, trail.name());
        if let Some(union) = Union::of(family, name) {
            for entry in entries {
                if let Some(other) = union.instead(entries, entry, live) {
                    let path = |name| trail.then(Step::Field(name)).path();
                    self.found.push(Move { declared: path(&entry.name), live: path(other) });
                }
            }
        }
        for Replaced { declared, live } in unions::of_maps(family, name, entries, live) {
            let path = |[map, key]: [&str; 2]| trail.then(Step::Field(map)).then(Step::Field(key)).path();
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
        for Missing { item, gap } in missing {
            let own = unique.and_then(|(_, field)| match item.node.entry(field) {
                Some(Node::Leaf(leaf)) => leaf.value.as_str().map(str::to_owned),
                _ => None,
            });
            let shares = own.and_then(|own| by_unique.get(own.as_str()).copied());
            let is_free = |place: &usize| is_taken.get(*place).is_some_and(|taken| !taken);
            let is_alike = |place: &usize| {
                list.get(*place).is_some_and(|stray| self.walk.is_but_for_keys(item, keys, stray))
            };
            let alike = || gap.clone().filter(is_free).take(MAX_TRIED).find(is_alike);
            let Some(place) = shares.filter(is_free).or_else(alike) else { continue };
            let stray = list.get(place).and_then(|stray| values(stray, keys));
            let is_only =
                |stray: &Vec<Value>| list.iter().filter(|it| has_keys(it, keys, stray)).count() == 1;
            let stray = stray.filter(is_only);
            if let (Some(stray), Some(taken)) = (stray, is_taken.get_mut(place)) {
                *taken = true;
                self.found.push(Move {
                    declared: trail.then(Step::Key(keys, &item.keys)).path(),
                    live: trail.then(Step::Key(keys, &stray)).path(),
                });
            }
        }
    }
}

impl Walk<'_> {
    /// Whether `item` differs from its declaration only in its keys.
    fn is_but_for_keys(&self, item: &Element, keys: &[ListKey], stray: &Value) -> bool {
        let Value::Object(mut fields) = stray.clone() else { return false };
        for (key, value) in keys.iter().zip(&item.keys) {
            fields.insert(key.name.to_string(), value.clone());
        }
        self.worst(&item.node, &Value::Object(fields)) <= Agreement::Doubt
    }
}

/// The missing declared elements, and for each place of the list whether it holds a declared one.
fn missing<'f>(
    elements: &'f Elements,
    index: &Index<'_, '_>,
    length: usize,
) -> (Vec<Missing<'f>>, Vec<bool>) {
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
            if let Some(declared) = is_declared.get_mut(place) {
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
