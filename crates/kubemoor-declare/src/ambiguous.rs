//! List elements that a client-side merge cannot tell apart.
//!
//! Entry point: [`AmbiguousElements`]. A strategic merge identifies the elements of a list by one field, the first key of
//! the list, while server-side apply may use several. So two ports with one number and different protocols
//! are one element to it, as are two environment variables with one name, which only a client-side client
//! can write. Invariant: each list is visited once.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::fields::{Fields, Node};
use super::lookup::Lookup;
use super::path::{Path, Segment, Step, Trail};
use super::schema::{ListKey, ListKind, Shape, Types};

/// The elements of some declarations, and of one object, that share their merge key with another one.
pub struct AmbiguousElements<'v> {
    /// The lists with such elements, and these elements by the merge key alone.
    declared: HashSet<String>,
    live: Lookup<'v>,
}

struct RepeatedKeys<'t> {
    types: &'t Types,
    found: HashSet<String>,
}

impl<'v> AmbiguousElements<'v> {
    /// Searches these declarations, and `live` as it is asked about.
    pub fn new<'f>(declared: impl IntoIterator<Item = &'f Fields>, live: &'v Value) -> Self {
        let mut found = HashSet::new();
        for fields in declared {
            let mut repeated = RepeatedKeys { types: &fields.types, found };
            repeated.node(&fields.root, &Trail::ROOT);
            found = repeated.found;
        }
        Self { declared: found, live: Lookup::new(live) }
    }

    /// Whether the place is in or below such an element, or is a list that declares one.
    pub fn cover(&mut self, path: &Path) -> bool {
        if self.declared.contains(path.pointer()) {
            return true;
        }
        let mut above = Vec::new();
        for segment in path.0.iter() {
            if let Segment::Key(keys) = segment {
                let element = Path(above.iter().cloned().chain([merge_key(keys)]).collect());
                if self.declared.contains(element.pointer()) || self.live.get(&element).len() > 1 {
                    return true;
                }
            }
            above.push(segment.clone());
        }
        false
    }
}

impl RepeatedKeys<'_> {
    fn node(&mut self, node: &Node, trail: &Trail<'_>) {
        match node {
            Node::Object(entries) => {
                for entry in entries {
                    self.node(&entry.node, &trail.then(Step::Field(&entry.name)));
                }
            }
            Node::Elements(elements) => {
                let keys = elements.keys(self.types);
                self.list(keys, elements.items.iter().filter_map(|item| item.keys.first()), trail);
                for item in &elements.items {
                    self.node(&item.node, &trail.then(Step::Key(keys, &item.keys)));
                }
            }
            // A list whose keys do not identify its elements is declared as one value.
            Node::Leaf(leaf) => {
                let Shape::List { kind: ListKind::Map(keys), .. } = self.types.shape(leaf.ty) else { return };
                let (Value::Array(items), Some(key)) = (&leaf.value, keys.first()) else { return };
                self.list(keys, items.iter().filter_map(|item| item.get(&*key.name)), trail);
            }
            Node::Set(_) => {}
        }
    }

    /// Notes the merge keys that occur more than once in a list, and the list itself.
    fn list<'v>(&mut self, keys: &[ListKey], own: impl Iterator<Item = &'v Value>, trail: &Trail<'_>) {
        let mut counts: HashMap<String, (&Value, usize)> = HashMap::new();
        for value in own {
            counts.entry(Segment::spelled(value)).or_insert((value, 0)).1 += 1;
        }
        for (value, _) in counts.into_values().filter(|(_, count)| *count > 1) {
            let key = keys.get(..1).unwrap_or_default();
            let element = trail.then(Step::Key(key, std::slice::from_ref(value))).path();
            self.found.insert(element.pointer().to_owned());
            self.found.insert(trail.path().pointer().to_owned());
        }
    }
}

/// An element by the key that a merge uses.
fn merge_key(keys: &[(String, Value)]) -> Segment {
    Segment::Key(keys.first().into_iter().cloned().collect())
}

#[cfg(test)]
mod tests;
