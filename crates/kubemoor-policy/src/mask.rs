//! Masks: the fields of an object that the guard leaves alone ([`Mask::covers`] for verdicts, [`Mask::carry`] for
//! repairs and reverts), and seals: the paths below which additions are drift. Nothing outside a mask is changed. No
//! mask covers Helm's own label and annotations, because they identify an object's release. List elements without an
//! identity are matched by their positions, and left alone if one was added or removed.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::pattern::{Pattern, PatternStep};
use kubemoor_declare::compare::AdditionScope;
use kubemoor_declare::fields::DeclaredFields;
use kubemoor_declare::model::HELM_MARKS;
use kubemoor_declare::path::{Path, Segment};

/// The fields of an object that the guard leaves alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mask(pub Vec<Pattern>);

/// Whether masked fields that a value does not have are added to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MissingFields {
    Add,
    Leave,
}

/// The keys that identify elements of a list without a schema: the first of these that every element has, each with
/// different values.
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
    /// The patterns that match only Helm's label or one of its annotations, and so have no effect.
    pub fn helm_metadata_patterns(&self) -> impl Iterator<Item = &Pattern> {
        self.0.iter().filter(|pattern| pattern.is_helms())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `path` or one of its parents is masked.
    pub fn covers(&self, path: &Path) -> bool {
        self.0.iter().any(|pattern| pattern.covers(path)) && !is_helms(path)
    }

    /// Whether a field strictly below `path` is masked: then the value at `path` is compared only after
    /// [`Mask::carry_at`].
    pub fn reaches_below(&self, path: &Path) -> bool {
        self.0.iter().any(|pattern| pattern.reaches_below(path))
    }

    /// The mask for one object: positions of elements in the manifest's lists are replaced by their keys.
    pub fn with_list_keys(&self, fields: &DeclaredFields) -> Cow<'_, Self> {
        if !self.0.iter().any(Pattern::has_positions) {
            return Cow::Borrowed(self);
        }
        Cow::Owned(Self(self.0.iter().map(|pattern| pattern.with_list_keys(fields)).collect()))
    }

    /// Sets the masked fields of `into` to their values in `from`; a field that is absent there is removed. List
    /// elements are neither added nor removed unless they are masked themselves, and an element that `from` lacks
    /// stays unchanged.
    pub fn carry(&self, from: &Value, into: &mut Value) {
        self.carry_by(from, into, MissingFields::Add);
    }

    /// The same as [`Mask::carry`], but without adding masked fields that `into` does not have.
    pub fn carry_present(&self, from: &Value, into: &mut Value) {
        self.carry_by(from, into, MissingFields::Leave);
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
                Some(into) => carry(steps, from, into, MissingFields::Add),
                None => result = from.and_then(|from| excerpt(steps, from)),
            }
        }
        result
    }

    fn carry_by(&self, from: &Value, into: &mut Value, lacking: MissingFields) {
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

impl Pattern {
    /// Whether it matches only Helm's label or one of its annotations.
    pub(crate) fn is_helms(&self) -> bool {
        is_mark(self.0.iter().map(|step| match step {
            PatternStep::Only(segment) => Some(segment),
            PatternStep::Any => None,
        }))
    }
}

fn is_helms(path: &Path) -> bool {
    is_mark(path.0.iter().map(Some))
}

/// Whether these segments are the path of Helm's label or of one of its annotations.
fn is_mark<'s>(segments: impl Iterator<Item = Option<&'s Segment>> + Clone) -> bool {
    let name = |segment: Option<&'s Segment>| match segment {
        Some(Segment::Field(name)) => Some(name.as_str()),
        _ => None,
    };
    HELM_MARKS.iter().any(|mark| segments.clone().map(name).eq(mark.iter().copied().map(Some)))
}

fn read<'v>(object: &'v Value, path: &[&str]) -> Option<&'v Value> {
    path.iter().try_fold(object, |value, name| value.get(name))
}

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
fn carry(steps: &[PatternStep], from: Option<&Value>, into: &mut Value, lacking: MissingFields) {
    let Some((step, rest)) = steps.split_first() else {
        match (from, lacking) {
            (Some(from), MissingFields::Add) => into.clone_from(from),
            (Some(from), MissingFields::Leave) => carry_whole(from, into),
            (None, _) => {}
        }
        return;
    };
    // A null in a manifest means the same as an absent field.
    if lacking == MissingFields::Add && into.is_null() && from.is_some_and(Value::is_object) {
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

/// Copies a masked value; of a map, only the entries that `into` has.
fn carry_whole(from: &Value, into: &mut Value) {
    match (from.as_object(), into) {
        (Some(from), Value::Object(into)) => {
            carry_entries((&PatternStep::Any, &[]), Some(from), into, MissingFields::Leave)
        }
        (_, into) => into.clone_from(from),
    }
}

fn carry_entries(
    (step, rest): (&PatternStep, &[PatternStep]),
    from: Option<&Map<String, Value>>,
    into: &mut Map<String, Value>,
    lacking: MissingFields,
) {
    let names: BTreeSet<String> = match step {
        PatternStep::Only(Segment::Field(name)) => BTreeSet::from([name.clone()]),
        PatternStep::Only(_) => return,
        PatternStep::Any => from.into_iter().flat_map(Map::keys).chain(into.keys()).cloned().collect(),
    };
    for name in names {
        let source = from.and_then(|from| from.get(&name));
        match (into.get_mut(&name), source) {
            (Some(_), None) if rest.is_empty() => {
                into.remove(&name);
            }
            (Some(value), source) => carry(rest, source, value, lacking),
            (None, Some(_)) if lacking == MissingFields::Leave => {}
            (None, Some(source)) => {
                if let Some(value) = excerpt(rest, source) {
                    into.insert(name, value);
                }
            }
            (None, None) => {}
        }
    }
}

fn carry_elements(
    (step, rest): (&PatternStep, &[PatternStep]),
    from: &[Value],
    into: &mut Vec<Value>,
    lacking: MissingFields,
) {
    if let Some(index) = step.index() {
        if let (Some(source), Some(item)) = (from.get(index), into.get_mut(index)) {
            carry(rest, Some(source), item, lacking);
        }
        return;
    }
    let source: Vec<&Value> = from.iter().filter(|item| selects(step, item)).collect();
    if rest.is_empty() {
        if lacking == MissingFields::Leave && !into.iter().any(|item| selects(step, item)) {
            return;
        }
        return replace(step, &source, into);
    }
    let own: Vec<&Value> = into.iter().filter(|item| selects(step, item)).collect();
    let Some(keys) = identity(&own, &source) else {
        // Whole elements are never carried: otherwise a user could get them ignored by making them alike.
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

/// Replaces the selected elements by these, at the position of the first selected one.
fn replace(step: &PatternStep, source: &[&Value], into: &mut Vec<Value>) {
    let place = into.iter().position(|item| selects(step, item)).unwrap_or(into.len());
    into.retain(|item| !selects(step, item));
    let place = place.min(into.len());
    into.splice(place..place, source.iter().copied().cloned());
}

/// The part of `from` at `steps`; `None` if it is absent. List elements are taken only whole.
fn excerpt(steps: &[PatternStep], from: &Value) -> Option<Value> {
    let Some((step, rest)) = steps.split_first() else { return Some(from.clone()) };
    match from {
        Value::Object(map) => {
            let taken: Map<String, Value> = map
                .iter()
                .filter(|(name, _)| match step {
                    PatternStep::Any => true,
                    PatternStep::Only(segment) => matches!(segment, Segment::Field(field) if field == *name),
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

fn selects(step: &PatternStep, item: &Value) -> bool {
    match step {
        PatternStep::Any => true,
        PatternStep::Only(segment) => segment.selects(item),
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

/// The metadata of an object that can be sealed.
const METADATA: [&str; 2] = ["labels", "annotations"];

/// The top-level fields that cannot be sealed.
const SERVERS: [&str; 3] = ["apiVersion", "kind", "status"];

/// The paths of one object below which additions are drift too.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seal {
    /// With keys in place of the positions of list elements.
    placed: Vec<Pattern>,
    /// As written in the policies.
    written: Vec<Pattern>,
}

/// The steps of a seal's patterns that remain below one path of an object.
#[derive(Clone, Debug)]
pub struct SealScope<'s>(Vec<&'s [PatternStep]>);

impl Seal {
    pub fn is_empty(&self) -> bool {
        self.placed.is_empty()
    }

    pub fn covers(&self, path: &Path) -> bool {
        self.placed.iter().any(|pattern| pattern.covers(path))
    }

    /// The scope at the root of an object.
    pub fn scope(&self) -> SealScope<'_> {
        SealScope(self.placed.iter().map(|pattern| &*pattern.0).collect())
    }

    /// A text that identifies the seal and the `ignored` paths; `None` if nothing is sealed.
    pub fn text(&self, ignored: &Mask) -> Option<String> {
        let but = if ignored.is_empty() { String::new() } else { format!("\nbut\n{}", texts(&ignored.0)) };
        (!self.is_empty()).then(|| texts(&self.placed) + &but)
    }

    /// The seal as written in the policies, as one text; `None` if nothing is sealed. Seals with equal texts are equal
    /// for one declaration, whether its fields are known or not.
    pub fn written(&self) -> Option<String> {
        (!self.is_empty()).then(|| texts(&self.written))
    }

    /// Adds a rule's seal for an object with these fields.
    pub fn add(&mut self, mask: &Mask, fields: &DeclaredFields) {
        self.placed.extend(mask.0.iter().map(|pattern| pattern.with_list_keys(fields)));
        self.written.extend(mask.0.iter().cloned());
    }
}

impl AdditionScope for SealScope<'_> {
    fn step(&self, segment: &Segment) -> Option<Self> {
        let below = |steps: &&[PatternStep]| match steps.split_first() {
            None => true,
            Some((step, _)) => step.matches(segment),
        };
        let rest = self.0.iter().copied().filter(below);
        let rest: Vec<_> = rest.map(|steps| steps.split_first().map_or(steps, |(_, rest)| rest)).collect();
        (!rest.is_empty()).then_some(Self(rest))
    }

    fn is_inside(&self) -> bool {
        self.0.iter().any(|steps| steps.is_empty())
    }
}

/// Whether any field that the pattern matches can be sealed.
pub(crate) fn can_hold(pattern: &Pattern) -> bool {
    let name = |index: usize| match pattern.0.get(index) {
        Some(PatternStep::Only(Segment::Field(name))) => Some(name.as_str()),
        _ => None,
    };
    match (name(0), name(1)) {
        (Some("metadata"), Some(below)) => METADATA.contains(&below),
        (Some(first), _) => !SERVERS.contains(&first),
        (None, _) => true,
    }
}

/// The message that the pattern cannot be sealed.
pub(crate) fn refusal(pattern: &Pattern) -> String {
    format!(
        "{pattern} cannot be sealed: the API server and controllers write there. In the metadata, seal only \
         /metadata/labels or /metadata/annotations"
    )
}

/// The patterns as one text that does not depend on their order.
fn texts(patterns: &[Pattern]) -> String {
    let mut texts: Vec<String> = patterns.iter().map(ToString::to_string).collect();
    texts.sort_unstable();
    texts.dedup();
    texts.join("\n")
}

#[cfg(test)]
mod tests;
