//! The set of paths that one manager owns, as `fieldsV1` spells it.
//!
//! Entry point: [`FieldSet`]. Invariant: a tree of `f:NAME`, `k:{keys}` and `v:value`; an entry
//! without children is owned, one with children is owned if it has the child `.`. Entries that are
//! not understood stay unchanged. Each step follows one segment of a path, so no walk is longer
//! than the path. Must not decide who may own a path.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value};

use kubemoor_declare::equality;
use kubemoor_declare::path::{Path, Segment};
use kubemoor_declare::schema::Scalar;

/// The child that marks an entry with children as owned itself.
const ITSELF: &str = ".";

/// Entries of one tree above which they are not tried one by one.
const MANY: usize = 64;

/// Keys of one element of which other spellings are tried.
const MAX_SPELLED: usize = 3;

/// The deepest path that is looked for.
const MAX_DEPTH: usize = 128;

type Tree = Map<String, Value>;

/// How a path is owned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// As one value.
    Whole,
    /// The path itself, and parts of it.
    Itself,
    /// Parts of it alone.
    Parts,
}

/// The paths that one manager owns.
#[derive(Clone, Debug, Default)]
pub(super) struct FieldSet(Tree);

/// The number that identifies a path, built segment by segment: the same for all spellings of its
/// keys.
#[derive(Clone, Copy, Default)]
pub(super) struct Prefix(u64);

impl Held {
    fn of(below: &Tree) -> Self {
        match (below.is_empty(), below.contains_key(ITSELF)) {
            (true, _) => Self::Whole,
            (false, true) => Self::Itself,
            (false, false) => Self::Parts,
        }
    }
}

impl FieldSet {
    pub(super) fn new(tree: Tree) -> Self {
        Self(tree)
    }

    pub(super) fn value(&self) -> Value {
        Value::Object(self.0.clone())
    }

    pub(super) fn tree(&self) -> &Map<String, Value> {
        &self.0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether anything at or below `path` is in the set, or an ancestor of it
    /// as one value.
    pub(super) fn owns(&self, path: &Path) -> bool {
        let mut tree = &self.0;
        for segment in path.0.iter() {
            let Some((_, Value::Object(below))) = entry(tree, segment) else { return false };
            if below.is_empty() {
                return true;
            }
            tree = below;
        }
        !path.0.is_empty()
    }

    /// The highest paths below `path` that are in the set themselves.
    pub(super) fn below(&self, path: &Path) -> Vec<Path> {
        let mut found = Vec::new();
        if let Some(Value::Object(tree)) = self.at(path) {
            highest(tree, &mut path.0.to_vec(), &mut found);
        }
        found
    }

    /// Visits every path in the set: by its number, and how it is owned.
    pub(super) fn each(&self, visit: &mut impl FnMut(u64, Held)) {
        each(&self.0, Prefix::default(), 0, visit);
    }

    /// What is in the set at and below `path`.
    pub(super) fn at(&self, path: &Path) -> Option<&Value> {
        let (last, above) = path.0.split_last()?;
        let mut tree = &self.0;
        for segment in above {
            tree = entry(tree, segment)?.1.as_object()?;
        }
        entry(tree, last).map(|(_, value)| value)
    }

    /// Removes `path` and everything below it, and then parents that are owned only for its sake.
    pub(super) fn remove(&mut self, path: &Path) {
        remove(&mut self.0, &path.0);
    }

    /// Adds `path`, and the list elements above it.
    pub(super) fn add(&mut self, path: &Path) {
        if !self.owns(path) {
            put(&mut self.0, &path.0, Value::Object(Map::new()));
        }
    }

    /// Adds `owned`, which [`Self::at`] returned for `path`.
    pub(super) fn put(&mut self, path: &Path, owned: Value) {
        put(&mut self.0, &path.0, owned);
    }
}

impl Prefix {
    pub(super) fn number(self) -> u64 {
        self.0
    }

    pub(super) fn then(self, segment: &Segment) -> Self {
        let class = |value| equality::class(Scalar::IntOrString, value);
        let own = match segment {
            Segment::Field(name) => hash(&("f", name)),
            Segment::Element(value) => hash(&("v", class(value))),
            Segment::Key(keys) => {
                let mut keys: Vec<_> =
                    keys.iter().map(|(name, value)| (name.as_str(), class(value))).collect();
                keys.sort_unstable();
                hash(&("k", keys))
            }
        };
        Self(hash(&(self.0, own)))
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn each(tree: &Tree, above: Prefix, depth: usize, visit: &mut impl FnMut(u64, Held)) {
    if depth >= MAX_DEPTH {
        return;
    }
    for (name, below) in tree {
        if let (Some(segment), Value::Object(below)) = (read(name), below) {
            let prefix = above.then(&segment);
            visit(prefix.number(), Held::of(below));
            each(below, prefix, depth + 1, visit);
        }
    }
}

fn highest(tree: &Tree, above: &mut Vec<Segment>, found: &mut Vec<Path>) {
    if above.len() >= MAX_DEPTH {
        return;
    }
    for (name, below) in tree {
        let (Some(segment), Value::Object(below)) = (read(name), below) else { continue };
        above.push(segment);
        match Held::of(below) {
            Held::Whole | Held::Itself => found.push(Path(above.as_slice().into())),
            Held::Parts => highest(below, above, found),
        }
        above.pop();
    }
}

/// The segment that an entry spells.
fn read(name: &str) -> Option<Segment> {
    let (kind, text) = name.split_once(':')?;
    match kind {
        "f" => Some(Segment::Field(text.to_owned())),
        "v" => serde_json::from_str(text).ok().map(Segment::Element),
        "k" => serde_json::from_str::<Map<String, Value>>(text)
            .ok()
            .map(|keys| Segment::Key(keys.into_iter().collect())),
        _ => None,
    }
}

fn remove(tree: &mut Tree, path: &[Segment]) {
    let Some((segment, below)) = path.split_first() else { return };
    let Some(name) = entry(tree, segment).map(|(name, _)| name.to_owned()) else { return };
    if below.is_empty() {
        tree.remove(&name);
        return;
    }
    let Some(Value::Object(child)) = tree.get_mut(&name) else { return };
    // Owned as one value: no part of it can be given away.
    if child.is_empty() {
        return;
    }
    remove(child, below);
    if child.is_empty() {
        tree.remove(&name);
    }
}

fn put(tree: &mut Tree, path: &[Segment], owned: Value) {
    let Some((segment, below)) = path.split_first() else { return };
    let known = entry(tree, segment).map(|(name, _)| name.to_owned());
    let is_known = known.is_some();
    let name = known.unwrap_or_else(|| spelled(segment));
    if below.is_empty() {
        tree.insert(name, owned);
        return;
    }
    let child = tree.entry(name).or_insert_with(|| Value::Object(Map::new()));
    let Value::Object(child) = child else { return };
    if is_known && child.is_empty() {
        // Owned as one value already.
        return;
    }
    if matches!(segment, Segment::Key(_)) && !is_known {
        child.insert(ITSELF.to_owned(), Value::Object(Map::new()));
    }
    put(child, below, owned);
}

/// The entry of a segment, whichever way its keys are spelled.
fn entry<'t>(tree: &'t Tree, segment: &Segment) -> Option<(&'t str, &'t Value)> {
    if let Some((name, value)) = tree.get_key_value(&spelled(segment)) {
        return Some((name, value));
    }
    if matches!(segment, Segment::Field(_)) {
        return None;
    }
    if tree.len() > MANY {
        return spellings(segment)
            .into_iter()
            .find_map(|name| tree.get_key_value(&name))
            .map(|(n, v)| (n.as_str(), v));
    }
    let is = |name: &str| match segment {
        Segment::Field(_) => false,
        Segment::Key(keys) => name.strip_prefix("k:").is_some_and(|text| is_key(text, keys)),
        Segment::Element(wanted) => {
            let value = name.strip_prefix("v:").and_then(|text| serde_json::from_str::<Value>(text).ok());
            value.is_some_and(|value| is_same(&value, wanted))
        }
    };
    tree.iter().find(|(name, _)| is(name)).map(|(name, value)| (name.as_str(), value))
}

fn is_key(text: &str, keys: &[(String, Value)]) -> bool {
    let Ok(own) = serde_json::from_str::<Map<String, Value>>(text) else { return false };
    own.len() == keys.len()
        && keys.iter().all(|(name, wanted)| own.get(name).is_some_and(|value| is_same(value, wanted)))
}

fn is_same(a: &Value, b: &Value) -> bool {
    equality::is_same_scalar(Scalar::IntOrString, a, b)
}

/// A segment with its values as texts and as what these are the texts of.
fn spellings(segment: &Segment) -> Vec<String> {
    match segment {
        Segment::Field(_) => Vec::new(),
        Segment::Element(value) => {
            other(value).map(|value| spelled(&Segment::Element(value))).into_iter().collect()
        }
        Segment::Key(keys) => {
            let mut found = vec![keys.clone()];
            for (index, (name, value)) in keys.iter().enumerate().take(MAX_SPELLED) {
                let Some(value) = other(value) else { continue };
                let mut more = found.clone();
                for keys in &mut more {
                    if let Some(key) = keys.get_mut(index) {
                        *key = (name.clone(), value.clone());
                    }
                }
                found.append(&mut more);
            }
            found.into_iter().map(|keys| spelled(&Segment::Key(keys))).collect()
        }
    }
}

/// The other value that means the same as a key.
fn other(value: &Value) -> Option<Value> {
    match value {
        Value::String(text) => {
            let value: Value = serde_json::from_str(text).ok()?;
            (value.is_number() || value.is_boolean()).then_some(value)
        }
        Value::Number(_) | Value::Bool(_) => Some(Value::from(value.to_string())),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A segment as the API server spells it.
fn spelled(segment: &Segment) -> String {
    match segment {
        Segment::Field(name) => format!("f:{name}"),
        Segment::Key(keys) => {
            let keys: Map<String, Value> = keys.iter().cloned().collect();
            format!("k:{}", Value::Object(keys))
        }
        Segment::Element(value) => format!("v:{value}"),
    }
}
