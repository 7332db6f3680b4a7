//! Settles doubts by the object as the API server would store it.
//!
//! Entry point: [`Settler`]. Invariant: each list is searched once, however many doubts it holds.

use std::collections::HashMap;

use serde_json::Value;

use super::index::{Index, Known};
use super::order;
use crate::equality::{self, Agreement};
use crate::fields::{Elements, FieldChange, Fields, Node};
use crate::path::Segment;
use crate::schema::TypeId;

/// Settles doubts about one object.
pub struct Settler<'s> {
    fields: &'s Fields,
    canonical: &'s Value,
    /// By where the declared list is in memory, which tells it from all others.
    lists: HashMap<*const Elements, (Known<'s>, Index<'s, 's>)>,
}

impl<'s> Settler<'s> {
    /// For an object that `canonical` is, as the API server would hold the declared manifest.
    pub(crate) fn new(fields: &'s Fields, canonical: &'s Value) -> Self {
        Self { fields, canonical, lists: HashMap::new() }
    }

    /// Whether the new value equals the one that the API server would store.
    pub fn settle(&mut self, change: &FieldChange) -> Agreement {
        let types = &*self.fields.types;
        let (mut node, mut value) = (&self.fields.root, Some(self.canonical));
        let end = change.path.0.len().saturating_sub(1);
        for (place, segment) in change.path.0.iter().enumerate() {
            let step = match (segment, node) {
                // An undeclared field in the place of a declared one.
                (Segment::Field(name), Node::Object(_)) if place == end && node.entry(name).is_none() => {
                    let canonical = value.and_then(|value| value.get(name));
                    return agreed(equality::is_same(types, TypeId::ANY, change.new.as_ref(), canonical));
                }
                (Segment::Field(name), node) => {
                    node.entry(name).map(|node| (node, value.and_then(|value| value.get(name))))
                }
                (Segment::Key(keys), Node::Elements(elements)) => {
                    let (known, index) = self
                        .lists
                        .entry(std::ptr::from_ref(&**elements))
                        .or_insert_with(|| (Known::new(elements), Index::new(elements, types, value)));
                    known.find(keys).map(|(_, item)| (&item.node, index.find(item).one()))
                }
                _ => None,
            };
            let Some((below, found)) = step else { return change.agreement };
            (node, value) = (below, found);
        }
        let agrees = match node {
            Node::Leaf(leaf) => equality::is_same(types, leaf.ty, change.new.as_ref(), value),
            Node::Elements(elements) => {
                let index = Index::new(elements, types, value);
                let there = elements.items.iter().filter_map(|e| Some((e, index.find(e).place()?)));
                Some(order(there)) == change.new
            }
            Node::Object(_) | Node::Set(_) => return change.agreement,
        };
        agreed(agrees)
    }
}

fn agreed(agrees: bool) -> Agreement {
    if agrees { Agreement::Agrees } else { Agreement::Differs }
}
