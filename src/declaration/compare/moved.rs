//! Elements of a keyed list that were moved: the editor gave a declared one another key.
//!
//! Entry point: [`moved`]. Invariant: never an element that is declared, and only where the declared one is missing.

use serde_json::Value;

use super::index::{Declared, Index, Known};
use super::{Agreement, Elements, Fields, Node, Path, Segment, Walk};
use crate::declaration::equality::key_value;
use crate::declaration::fields::Element;
use crate::declaration::path::Trail;
use crate::declaration::schema::{ListKey, Types};

/// What no two elements of a list share though it is no key: ports are told apart by their numbers.
const UNIQUE: &str = "name";

/// See [`Fields::moved`].
pub(in crate::declaration) fn moved(fields: &Fields, missing: &Path, live: &Value) -> Vec<Path> {
    let Some((Segment::Key(wanted), above)) = missing.0.split_last() else { return Vec::new() };
    let Some((elements, items)) = list(fields, above, live) else { return Vec::new() };
    let known = Known::new(elements);
    let Some((_, wanted)) = known.find(wanted) else { return Vec::new() };
    let (declared, keys) = (Declared::new(elements, &fields.types), elements.keys(&fields.types));
    let path = |item: &Value| {
        let own = keys.iter().map(|key| Some((key.name.to_string(), key_value(item, key)?.clone())));
        let own = Segment::Key(own.collect::<Option<Vec<_>>>()?);
        Some(Path(above.iter().cloned().chain([own]).collect()))
    };
    let others = items.iter().filter(|item| !declared.holds(item) && is_it(fields, wanted, keys, item));
    others.filter_map(path).collect()
}

/// The list at a path, as it is declared and as it is.
fn list<'v>(fields: &'v Fields, path: &[Segment], live: &'v Value) -> Option<(&'v Elements, &'v [Value])> {
    let types: &Types = &fields.types;
    let (mut node, mut value) = (&fields.root, live);
    for segment in path {
        (node, value) = match (segment, node) {
            (Segment::Field(name), node) => (node.entry(name)?, value.get(name)?),
            (Segment::Key(keys), Node::Elements(elements)) => {
                let known = Known::new(elements);
                let (_, item) = known.find(keys)?;
                (&item.node, Index::new(elements, types, Some(value)).find(item).one()?)
            }
            _ => return None,
        };
    }
    match (node, value) {
        (Node::Elements(elements), Value::Array(items)) => Some((elements, items)),
        _ => None,
    }
}

/// Whether an element is the declared one but for its keys, or has what no two may have.
fn is_it(fields: &Fields, wanted: &Element, keys: &[ListKey], item: &Value) -> bool {
    let Some(map) = item.as_object() else { return false };
    if let Some(Node::Leaf(leaf)) = wanted.node.entry(UNIQUE)
        && let (Value::String(name), false) =
            (leaf.value.value(), keys.iter().any(|key| &*key.name == UNIQUE))
    {
        return !name.is_empty() && map.get(UNIQUE) == Some(&Value::String(name));
    }
    let mut back = map.clone();
    back.extend(keys.iter().zip(&wanted.keys).map(|(key, value)| (key.name.to_string(), value.clone())));
    let mut walk = Walk { types: &fields.types, family: fields.family, found: Vec::new() };
    walk.drift(&wanted.node, "", &Trail::ROOT, Some(&Value::Object(back)));
    walk.found.iter().all(|change| change.agreement <= Agreement::Doubt)
}
