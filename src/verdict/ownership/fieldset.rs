//! The set of paths that one manager owns, as `fieldsV1` spells it.
//!
//! Invariant: a tree of `f:NAME`, `k:{keys}` and `v:value`; an entry without
//! children is owned, one with children is owned where it has the child `.`.
//! What is not understood stays as it is. Each step follows one segment of a
//! path, so no walk is longer than the path.

use serde_json::{Map, Value};

use crate::declaration::equality;
use crate::declaration::path::{Path, Segment};
use crate::declaration::schema::Scalar;

/// What marks an entry with children as owned itself.
const ITSELF: &str = ".";

type Tree = Map<String, Value>;

/// The paths that one manager owns.
#[derive(Clone, Debug, Default)]
pub(super) struct FieldSet(Tree);

impl FieldSet {
    pub(super) fn new(tree: Tree) -> Self {
        Self(tree)
    }

    pub(super) fn value(&self) -> Value {
        Value::Object(self.0.clone())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether anything at or below `path` is in the set, or an ancestor of it
    /// as one value.
    pub(super) fn owns(&self, path: &Path) -> bool {
        let mut tree = &self.0;
        for segment in &path.0 {
            let Some((_, Value::Object(below))) = entry(tree, segment) else { return false };
            if below.is_empty() {
                return true;
            }
            tree = below;
        }
        !path.0.is_empty()
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

    /// Takes out `path` and what is below it, and what then is left of the
    /// entries above that are owned for its sake alone.
    pub(super) fn remove(&mut self, path: &Path) {
        remove(&mut self.0, &path.0);
    }

    /// Takes in `path`, and the list elements above it.
    pub(super) fn add(&mut self, path: &Path) {
        if !self.owns(path) {
            put(&mut self.0, &path.0, Value::Object(Map::new()));
        }
    }

    /// Takes in `owned`, which [`Self::at`] gave for `path`.
    pub(super) fn put(&mut self, path: &Path, owned: Value) {
        put(&mut self.0, &path.0, owned);
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
    // Owned as one value: nothing of it can be given away.
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
