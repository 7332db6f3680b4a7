//! Removes additions from an object.
//!
//! Entry point: [`take_away`]. Invariant: visits each place of the object once, however many
//! additions there are. Must not change anything beside them.

use std::collections::HashMap;

use serde_json::Value;

use kubemoor_declare::path::{Path, Segment};

/// The places to remove at and below a place.
#[derive(Default)]
struct Places<'p> {
    is_taken: bool,
    fields: HashMap<&'p str, Places<'p>>,
    /// Elements by the names of their keys, then by the values of these.
    keyed: HashMap<Vec<&'p str>, HashMap<Vec<String>, Places<'p>>>,
    /// Elements by themselves.
    elements: HashMap<String, Places<'p>>,
}

/// Removes the values at these paths from `object`.
pub fn take_away<'p>(paths: impl IntoIterator<Item = &'p Path>, object: &mut Value) {
    let mut root = Places::default();
    for path in paths {
        root.add(&path.0);
    }
    root.take_out_of(object);
}

impl<'p> Places<'p> {
    fn add(&mut self, path: &'p [Segment]) {
        let mut place = self;
        for segment in path {
            place = match segment {
                Segment::Field(name) => place.fields.entry(name).or_default(),
                Segment::Key(keys) => {
                    let names = keys.iter().map(|(name, _)| name.as_str()).collect();
                    let values = keys.iter().map(|(_, value)| Segment::spelled(value)).collect();
                    place.keyed.entry(names).or_default().entry(values).or_default()
                }
                Segment::Element(value) => place.elements.entry(Segment::spelled(value)).or_default(),
            };
        }
        place.is_taken = true;
    }

    fn take_out_of(&self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (name, below) in &self.fields {
                    if below.is_taken {
                        map.remove(*name);
                    } else if let Some(value) = map.get_mut(*name) {
                        below.take_out_of(value);
                    }
                }
            }
            Value::Array(items) => items.retain_mut(|item| {
                let Some(below) = self.of_element(item) else { return true };
                if !below.is_taken {
                    below.take_out_of(item);
                }
                !below.is_taken
            }),
            _ => {}
        }
    }

    fn of_element(&self, item: &Value) -> Option<&Self> {
        let keyed = self.keyed.iter().find_map(|(names, by_values)| {
            let values: Option<Vec<String>> =
                names.iter().map(|name| item.get(*name).map(Segment::spelled)).collect();
            by_values.get(&values?)
        });
        // Without elements to look for the text is not made.
        keyed.or_else(|| {
            if self.elements.is_empty() { None } else { self.elements.get(&Segment::spelled(item)) }
        })
    }
}
