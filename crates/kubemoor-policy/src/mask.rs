//! Masks: the fields of an object that the guard leaves alone.
//!
//! Entry points: [`Mask::covers`] for verdicts, [`Mask::carry`] for repairs and reverts. Invariant:
//! a field that the one does not judge, the other does not change; nothing outside the mask is
//! changed. No mask covers Helm's own label and annotations, because they identify an object's
//! release. List elements without an identity are matched by their positions, and left alone if one
//! was added or removed. Must not know a schema.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::pattern::{Pattern, Step};
use kubemoor_declare::fields::Fields;
use kubemoor_declare::model::HELM_MARKS;
use kubemoor_declare::path::{Path, Segment};

/// The fields of an object that the guard leaves alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mask(pub Vec<Pattern>);

/// Whether masked fields that a value does not have are added to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lacking {
    Add,
    Leave,
}

/// The keys that identify elements of a list without a schema: the first of these that every
/// element has, with no two alike.
const IDENTITIES: &[&[&str]] = &[
    &["name"],
    &["containerPort", "protocol"],
    &["port", "protocol"],
    &["containerPort"],
    &["port"],
    &["mountPath"],
    &["devicePath"],
    &["topologyKey", "whenUnsatisfiable"],
    &["host"],
    &["path"],
    &["uid"],
    &["ip"],
    &["key"],
    &["id"],
    &["type"],
];

impl Mask {
    /// The patterns that name Helm's label or one of its annotations and nothing
    /// else: they have no effect.
    pub fn names_helms(&self) -> impl Iterator<Item = &Pattern> {
        let is =
            |pattern: &&Pattern, path: &[&str]| {
                pattern.0.len() == path.len()
                    && pattern.0.iter().zip(path).all(
                        |(step, name)| matches!(step, Step::Only(Segment::Field(field)) if field == name),
                    )
            };
        self.0.iter().filter(move |pattern| HELM_MARKS.iter().any(|path| is(pattern, path)))
    }

    /// Whether nothing is masked.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `path` or one of its parents is masked.
    pub fn covers(&self, path: &Path) -> bool {
        !is_helms(path) && self.0.iter().any(|pattern| pattern.covers(path))
    }

    /// Whether something strictly below `path` is masked: then the value at `path` is compared only
    /// after [`Mask::carry_at`].
    pub fn reaches_below(&self, path: &Path) -> bool {
        self.0.iter().any(|pattern| pattern.reaches_below(path))
    }

    /// The mask for one object, in which keys replace the positions of elements in the manifest's
    /// lists.
    pub fn placed(&self, fields: &Fields) -> Cow<'_, Self> {
        if !self.0.iter().any(Pattern::has_places) {
            return Cow::Borrowed(self);
        }
        Cow::Owned(Self(self.0.iter().map(|pattern| pattern.placed(fields)).collect()))
    }

    /// Sets the masked fields of `into` to their values in `from`; a field that is absent there is
    /// removed. List elements are neither added nor removed unless they are masked themselves, and
    /// an element that `from` lacks stays unchanged.
    pub fn carry(&self, from: &Value, into: &mut Value) {
        self.carry_by(from, into, Lacking::Add);
    }

    /// The same for the fields that `into` has: masked fields of `from` that it lacks are not added.
    pub fn carry_present(&self, from: &Value, into: &mut Value) {
        self.carry_by(from, into, Lacking::Leave);
    }

    /// The same as [`Mask::carry`] for the values at `path` of an object: `into` with its masked parts from `from`.
    /// `None` for absent values.
    pub fn carry_at(&self, path: &Path, from: Option<&Value>, into: Option<&Value>) -> Option<Value> {
        if is_helms(path) {
            return into.cloned();
        }
        if self.covers(path) {
            return from.cloned();
        }
        let mut result = into.cloned();
        for steps in self.0.iter().filter_map(|pattern| pattern.below(path)) {
            match &mut result {
                Some(into) => carry(steps, from, into, Lacking::Add),
                None => result = from.and_then(|from| excerpt(steps, from)),
            }
        }
        result
    }

    fn carry_by(&self, from: &Value, into: &mut Value, lacking: Lacking) {
        let before = HELM_MARKS.map(|path| read(into, &path).cloned());
        for pattern in &self.0 {
            carry(&pattern.0, Some(from), into, lacking);
        }
        for (path, before) in HELM_MARKS.iter().zip(before) {
            if read(into, path) != before.as_ref() {
                set(into, path, before);
            }
        }
    }
}

/// Whether a path is one of [`HELM_MARKS`].
fn is_helms(path: &Path) -> bool {
    let is = |names: &[&str; 3]| {
        path.0.len() == names.len()
            && path
                .0
                .iter()
                .zip(names)
                .all(|(segment, name)| matches!(segment, Segment::Field(field) if field == name))
    };
    HELM_MARKS.iter().any(is)
}

fn read<'v>(object: &'v Value, path: &[&str]) -> Option<&'v Value> {
    path.iter().try_fold(object, |value, name| value.get(name))
}

/// Sets a value, or removes it.
fn set(object: &mut Value, path: &[&str], value: Option<Value>) {
    let Some((name, above)) = path.split_last() else { return };
    let mut at = object;
    for name in above {
        if at.is_null() {
            *at = Value::Object(Map::new());
        }
        let Value::Object(map) = at else { return };
        at = map.entry(*name).or_insert_with(|| Value::Object(Map::new()));
    }
    match (at, value) {
        (Value::Object(map), Some(value)) => drop(map.insert((*name).to_owned(), value)),
        (Value::Object(map), None) => drop(map.remove(*name)),
        _ => {}
    }
}

/// Copies the fields at `steps` below these two values.
fn carry(steps: &[Step], from: Option<&Value>, into: &mut Value, lacking: Lacking) {
    let Some((step, rest)) = steps.split_first() else {
        match (from, lacking) {
            (Some(from), Lacking::Add) => into.clone_from(from),
            (Some(from), Lacking::Leave) => carry_whole(from, into),
            (None, _) => {}
        }
        return;
    };
    // A null in a manifest means the same as an absent field.
    if lacking == Lacking::Add && into.is_null() && from.is_some_and(Value::is_object) {
        *into = Value::Object(Map::new());
    }
    match into {
        Value::Object(map) => carry_entries((step, rest), from.and_then(Value::as_object), map, lacking),
        Value::Array(items) => {
            let from = from.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            carry_elements((step, rest), from, items, lacking);
        }
        _ => {}
    }
}

/// Copies a masked value, of a map the entries that `into` has.
fn carry_whole(from: &Value, into: &mut Value) {
    match (from.as_object(), into) {
        (Some(from), Value::Object(into)) => {
            carry_entries((&Step::Any, &[]), Some(from), into, Lacking::Leave)
        }
        (_, into) => into.clone_from(from),
    }
}

fn carry_entries(
    (step, rest): (&Step, &[Step]),
    from: Option<&Map<String, Value>>,
    into: &mut Map<String, Value>,
    lacking: Lacking,
) {
    let names: BTreeSet<String> = match step {
        Step::Only(Segment::Field(name)) => BTreeSet::from([name.clone()]),
        Step::Only(_) => return,
        Step::Any => from.into_iter().flat_map(Map::keys).chain(into.keys()).cloned().collect(),
    };
    for name in names {
        let source = from.and_then(|from| from.get(&name));
        match (into.get_mut(&name), source) {
            (Some(_), None) if rest.is_empty() => {
                into.remove(&name);
            }
            (Some(value), source) => carry(rest, source, value, lacking),
            (None, Some(_)) if lacking == Lacking::Leave => {}
            (None, Some(source)) => {
                if let Some(value) = excerpt(rest, source) {
                    into.insert(name, value);
                }
            }
            (None, None) => {}
        }
    }
}

fn carry_elements((step, rest): (&Step, &[Step]), from: &[Value], into: &mut Vec<Value>, lacking: Lacking) {
    if let Some(index) = step.index() {
        if let (Some(source), Some(item)) = (from.get(index), into.get_mut(index)) {
            carry(rest, Some(source), item, lacking);
        }
        return;
    }
    let source: Vec<&Value> = from.iter().filter(|item| selects(step, item)).collect();
    if rest.is_empty() {
        if lacking == Lacking::Leave && !into.iter().any(|item| selects(step, item)) {
            return;
        }
        return replace(step, &source, into);
    }
    let own: Vec<&Value> = into.iter().filter(|item| selects(step, item)).collect();
    let Some(keys) = identity(&own, &source) else {
        // An editor who makes elements alike must not have them carried whole.
        if own.len() == source.len() {
            let own = into.iter_mut().filter(|item| selects(step, item));
            own.zip(source).for_each(|(item, source)| carry(rest, Some(source), item, lacking));
        }
        return;
    };
    let by_key: BTreeMap<String, &Value> =
        source.into_iter().map(|item| (spelled(item, keys), item)).collect();
    for item in into.iter_mut().filter(|item| selects(step, item)) {
        if let Some(partner) = by_key.get(&spelled(item, keys)) {
            carry(rest, Some(partner), item, lacking);
        }
    }
}

/// Puts these elements in the place of the first selected one, and removes the other selected ones.
fn replace(step: &Step, source: &[&Value], into: &mut Vec<Value>) {
    let place = into.iter().position(|item| selects(step, item)).unwrap_or(into.len());
    into.retain(|item| !selects(step, item));
    let place = place.min(into.len());
    into.splice(place..place, source.iter().copied().cloned());
}

/// The part of `from` at `steps`; `None` if it is absent. List elements are taken only whole.
fn excerpt(steps: &[Step], from: &Value) -> Option<Value> {
    let Some((step, rest)) = steps.split_first() else { return Some(from.clone()) };
    match from {
        Value::Object(map) => {
            let taken: Map<String, Value> = map
                .iter()
                .filter(|(name, _)| match step {
                    Step::Any => true,
                    Step::Only(segment) => matches!(segment, Segment::Field(field) if field == *name),
                })
                .filter_map(|(name, value)| Some((name.clone(), excerpt(rest, value)?)))
                .collect();
            (!taken.is_empty()).then_some(Value::Object(taken))
        }
        Value::Array(items) if rest.is_empty() => {
            let taken: Vec<Value> = items.iter().filter(|item| selects(step, item)).cloned().collect();
            (!taken.is_empty()).then_some(Value::Array(taken))
        }
        _ => None,
    }
}

/// Whether a step names this element of a list.
fn selects(step: &Step, item: &Value) -> bool {
    match step {
        Step::Any => true,
        Step::Only(Segment::Key(keys)) => {
            keys.iter().all(|(key, wanted)| item.get(key).is_some_and(|v| Segment::alike(v, wanted)))
        }
        Step::Only(Segment::Element(wanted)) => Segment::alike(item, wanted),
        Step::Only(Segment::Field(_)) => false,
    }
}

/// The keys that identify the elements of both lists.
fn identity(own: &[&Value], source: &[&Value]) -> Option<&'static [&'static str]> {
    let tells_apart = |items: &[&Value], keys: &[&str]| {
        let complete = items.iter().all(|item| {
            keys.iter().all(|key| item.get(*key).is_some_and(|v| !v.is_object() && !v.is_array()))
        });
        let distinct: BTreeSet<String> = items.iter().map(|item| spelled(item, keys)).collect();
        complete && distinct.len() == items.len()
    };
    IDENTITIES.iter().copied().find(|keys| tells_apart(own, keys) && tells_apart(source, keys))
}

fn spelled(item: &Value, keys: &[&str]) -> String {
    let values: Vec<String> =
        keys.iter().map(|key| item.get(*key).map(Value::to_string).unwrap_or_default()).collect();
    values.join(",")
}

#[cfg(test)]
mod tests;
