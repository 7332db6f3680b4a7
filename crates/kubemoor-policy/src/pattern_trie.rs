//! Finds the rules about a field, among many, by its path.
//!
//! Entry point: [`PatternTrie::at`]. Invariant: finds every pattern that covers a path or reaches
//! below it, and perhaps others, so the caller has to check each result. The time depends on the
//! path and the results, and hardly on the number of rules. Must not decide anything.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::Value;

use super::pattern::{Pattern, Step};
use kubemoor_declare::path::{Path, Segment};

/// Patterns by their steps, each under the number of its rule.
#[derive(Clone, Debug, Default)]
pub struct PatternTrie {
    /// The first is the root; it is absent where there is no pattern.
    places: Vec<Place>,
}

/// The patterns after some steps.
#[derive(Clone, Debug, Default)]
struct Place {
    /// The next places by a named step.
    named: HashMap<Name<'static>, usize>,
    /// The next place by `*`.
    any: Option<usize>,
    /// Rules of patterns that end here.
    end: Vec<usize>,
    /// Rules of patterns that pass through or end here.
    pass: Vec<usize>,
}

/// The name of a step: a field, or an element by its first key or its value. Values are spelled as
/// text, since `80` and `"80"` may name the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Name<'a> {
    Field(Cow<'a, str>),
    Key(Cow<'a, str>, Cow<'a, str>),
    Element(Cow<'a, str>),
}

impl PatternTrie {
    /// Adds a pattern of the rule with this number. Rules are added in order.
    pub fn add(&mut self, pattern: &Pattern, rule: usize) {
        let mut at = 0;
        self.pass(at, rule);
        for step in &*pattern.0 {
            let next = self.places.len();
            let Some(place) = self.places.get_mut(at) else { return };
            at = match step.name() {
                Some(name) => *place.named.entry(name.into_owned()).or_insert(next),
                None => *place.any.get_or_insert(next),
            };
            self.pass(at, rule);
        }
        if let Some(place) = self.places.get_mut(at) {
            note(&mut place.end, rule);
        }
    }

    /// The rules that may apply to `path`, in order.
    pub fn at(&self, path: &Path) -> Vec<usize> {
        let mut found = Vec::new();
        let mut places: Vec<&Place> = self.places.first().into_iter().collect();
        for segment in path.0.iter() {
            if places.is_empty() {
                break;
            }
            let mut next = Vec::new();
            for place in places {
                found.extend(&place.end);
                match segment {
                    Segment::Field(name) => next.extend(place.by(&Name::Field(name.into()))),
                    Segment::Element(value) => next.extend(place.by(&Name::Element(spelled(value)))),
                    Segment::Key(keys) => {
                        next.extend(keys.iter().filter_map(|(key, value)| place.by(&key_name(key, value))));
                    }
                }
                next.extend(place.any);
            }
            places = next.into_iter().filter_map(|at| self.places.get(at)).collect();
        }
        found.extend(places.into_iter().flat_map(|place| &place.pass));
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Records that a rule's pattern passes through a place, which may be a new one.
    fn pass(&mut self, at: usize, rule: usize) {
        if at == self.places.len() {
            self.places.push(Place::default());
        }
        if let Some(place) = self.places.get_mut(at) {
            note(&mut place.pass, rule);
        }
    }
}

impl Place {
    fn by(&self, name: &Name<'_>) -> Option<usize> {
        self.named.get(name).copied()
    }
}

impl Step {
    /// The name of the step; `None` if it matches any segment.
    fn name(&self) -> Option<Name<'_>> {
        match self {
            Self::Any => None,
            Self::Only(Segment::Field(name)) => Some(Name::Field(name.into())),
            Self::Only(Segment::Element(value)) => Some(Name::Element(spelled(value))),
            Self::Only(Segment::Key(keys)) => keys.first().map(|(key, value)| key_name(key, value)),
        }
    }
}

impl Name<'_> {
    fn into_owned(self) -> Name<'static> {
        let own = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        match self {
            Self::Field(name) => Name::Field(own(name)),
            Self::Key(key, value) => Name::Key(own(key), own(value)),
            Self::Element(value) => Name::Element(own(value)),
        }
    }
}

fn key_name<'a>(key: &'a str, value: &'a Value) -> Name<'a> {
    Name::Key(key.into(), spelled(value))
}

fn spelled(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => text.into(),
        other => other.to_string().into(),
    }
}

/// Rules come in their order, so the same one stands at the end.
fn note(rules: &mut Vec<usize>, rule: usize) {
    if rules.last() != Some(&rule) {
        rules.push(rule);
    }
}

#[cfg(test)]
mod tests;
