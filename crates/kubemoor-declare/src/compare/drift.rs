//! The walk of a live object: which declared fields are not as declared.
//!
//! Entry points: `Walk::drift`, `Walk::worst`. Invariant: an object as the manifest declares it has no drift.

use std::cmp::max;

use serde_json::Value;

use super::super::equality::{self, Agreement, Spot};
use super::super::fields::{Elements, Node};
use super::super::path::{Step, Trail};
use super::super::unions::Union;
use super::index::{Found, Held, Index};
use super::{Values, Versions, Walk, is_absent, is_struct, order, ordering};

impl Walk<'_> {
    pub(super) fn drift(&mut self, node: &Node, name: &str, trail: &Trail<'_>, live: Option<&Value>) {
        match node {
            Node::Leaf(leaf) => {
                if live == Some(&leaf.value) {
                    return;
                }
                let spot = Spot::new(name, leaf.place, self.family).of(trail.holder());
                let agreement = equality::agreement(self.types, leaf.ty, spot, &leaf.value, live);
                if agreement != Agreement::Agrees {
                    let told = Versions { old: None, new: live }.told();
                    self.push(trail, Values { declared: Some(leaf.value.clone()), ..told }, agreement);
                }
            }
            Node::Object(entries) => {
                let before = self.found.len();
                let union = Union::of(self.family, trail.name()).zip(live.and_then(Value::as_object));
                for entry in entries {
                    let start = self.found.len();
                    let below = live.and_then(|value| value.get(&*entry.name));
                    self.drift(&entry.node, &entry.name, &trail.then(Step::Field(&entry.name)), below);
                    if let Some((union, map)) = union
                        && let Some(other) = union.instead(entries, entry, map)
                    {
                        self.replaced(start, trail, other, Versions { old: None, new: map.get(other) });
                    }
                }
                if is_absent(live) && self.found.len() == before && is_struct(entries) {
                    self.push(trail, Values::default(), Agreement::Missing);
                }
            }
            Node::Elements(elements) => self.elements_drift(elements, trail, live),
            Node::Set(set) => {
                let held = Held::new(self.types, set.item, set.values.len(), live);
                for value in &set.values {
                    if held.find(value).is_none() {
                        let step = trail.then(Step::Element(value));
                        let values = Values { declared: Some(value.clone()), ..Values::default() };
                        self.push(&step, values, Agreement::Differs);
                    }
                }
            }
        }
    }

    pub(super) fn worst(&self, node: &Node, live: &Value) -> Agreement {
        let mut walk = Walk { types: self.types, family: self.family, found: Vec::new() };
        walk.drift(node, "", &Trail::ROOT, Some(live));
        walk.found.iter().fold(Agreement::Agrees, |worst, change| max(worst, change.agreement))
    }

    fn elements_drift(&mut self, elements: &Elements, trail: &Trail<'_>, live: Option<&Value>) {
        let index = Index::new(elements, self.types, live);
        let mut places = Vec::new();
        for item in &elements.items {
            let trail = trail.then(Step::Key(index.keys, &item.keys));
            match index.find(item) {
                Found::One(place, value) => {
                    places.push((item, place));
                    self.drift(&item.node, "", &trail, Some(value));
                }
                Found::None | Found::Many => {
                    let values = Values { new: index.shown(item), ..Values::default() };
                    self.push(&trail, values, Agreement::Differs);
                }
            }
        }
        if elements.ordered && !places.is_sorted_by_key(|(_, place)| *place) {
            let declared = order(places.iter().enumerate().map(|(place, (element, _))| (*element, place)));
            let live = order(places.into_iter());
            let values = Values { declared: Some(declared), old: None, new: Some(live) };
            self.push(trail, values, ordering(false));
        }
    }
}
