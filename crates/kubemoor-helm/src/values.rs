//! Finds the chart value that probably sets a field, without rendering the chart. Each candidate has its evidence and a
//! score; those below `THRESHOLD` are not returned. Time and memory are bounded for any record. Only the names of
//! values leave this module, and texts from the caller.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use self::place::{TextPart, ValueMatch, WantedField};
use self::template::{ChartTemplate, Helpers};
use super::manifest::{self, SourceDocument};
use super::record::ChartSource;
use kubemoor_declare::model::ObjectId;
use kubemoor_declare::path::{Path, Segment};

mod place;
mod template;

const MOST: usize = 5;

/// The minimum score of a returned candidate. In the charts of `tests/it/chart_values.rs`, fewer than one in twenty of
/// these are wrong.
const THRESHOLD: u8 = 60;

/// The score for a template that uses the value at the field's position.
const OF_TEMPLATE: u8 = 60;

/// The score for a subchart, whose templates are not in the record, if the value is the only matching one among those
/// of the subchart and the global ones.
const OF_SUBCHART: u8 = 35;

#[derive(Clone, Copy)]
pub struct ValueQuestion<'a> {
    pub object: &'a ObjectId,
    pub path: &'a Path,
    /// The part of the field in question, as a JSON Pointer from the object's root.
    pub place: Option<&'a str>,
    /// The requested value; `None` for an absent value.
    pub new: Option<&'a Value>,
}

/// A value of the chart that probably sets a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    /// The path of the value, as in `--set`: `image.tag`.
    pub value: String,
    /// The confidence, from 0 to 100.
    pub score: u8,
    /// The evidence for it.
    pub evidence: Vec<ValueEvidence>,
    /// Whether the field is composed of this and other values, and no single one is known to give
    /// the wanted value.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_part: bool,
    /// Whether the value is a list, part of which sets the field.
    #[serde(skip)]
    pub is_list: bool,
    /// The flag of `helm upgrade`, and its argument, that give the wanted value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<(&'static str, String)>,
}

/// Evidence that a chart value sets a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", tag = "kind")]
#[schemars(rename = "Evidence")]
pub enum ValueEvidence {
    /// The object's template uses the value at the field's position.
    Template {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
    },
    /// The field's value equals or contains it.
    EqualValue,
    /// Both changed between these revisions.
    ChangedTogether {
        /// The older revision.
        from: u64,
        /// The newer revision.
        to: u64,
    },
    /// Its name is similar to the field's.
    SimilarName,
}

struct TemplateContext<'a> {
    values: &'a Value,
    helpers: Helpers,
    chart: &'a ChartSource,
    place: &'a str,
}

/// The paths below which a chart or subchart finds its values.
struct Prefixes(Vec<Vec<String>>);

struct RenderedField {
    written: SourceDocument,
    /// The field names and list indexes on the way to it, as in a JSON Pointer.
    steps: Vec<String>,
}

/// The values to show for a field: its likeliest candidate, and the other values that the field consists of.
pub fn likeliest(candidates: Vec<Candidate>) -> Vec<Candidate> {
    let Some(first) = candidates.first() else { return Vec::new() };
    let line =
        |it: &Candidate| it.evidence.iter().find(|it| matches!(it, ValueEvidence::Template { .. })).cloned();
    let (is_part, place, name) = (first.is_part, line(first), first.value.clone());
    let belongs = |it: &Candidate| it.value == name || (is_part && it.is_part && line(it) == place);
    candidates.into_iter().filter(belongs).collect()
}

/// The values that probably set a field, the likeliest first; `sources` are the revisions, newest first.
pub fn candidates(sources: &[ChartSource], question: ValueQuestion<'_>) -> Vec<Candidate> {
    let Some((latest, earlier)) = sources.split_first() else { return Vec::new() };
    let Some(field) = RenderedField::find(latest, &question) else { return Vec::new() };
    let Some(declared) = field.value().cloned() else { return Vec::new() };
    let values = sources.iter().map(ChartSource::all_values).collect::<Vec<_>>();
    let Some(current) = values.first() else { return Vec::new() };
    let steps = &field.steps;
    let context = TemplateContext {
        values: current,
        helpers: Helpers::new(latest.templates().map(|(_, text)| text)),
        chart: latest,
        place: names(steps).next().unwrap_or_default(),
    };
    let of_earlier = earlier
        .iter()
        .map(|source| RenderedField::find(source, &question).and_then(|it| value_text(it.value()?)));
    let fields = std::iter::once(value_text(&declared)).chain(of_earlier);
    let past: Vec<Past<'_>> = sources
        .iter()
        .zip(&values)
        .zip(fields)
        .map(|((source, values), field)| Past { revision: source.revision, values, field })
        .collect();
    let mut found = found(&field, (&declared, question.new), &past, &context);
    found.sort_by_key(|candidate| std::cmp::Reverse(candidate.score));
    let mut named: Vec<Candidate> = Vec::new();
    for candidate in found.into_iter().filter(|candidate| candidate.score >= THRESHOLD) {
        if named.len() < MOST && named.iter().all(|known| known.value != candidate.value) {
            named.push(candidate);
        }
    }
    named
}

fn found(
    field: &RenderedField,
    (declared, new): (&Value, Option<&Value>),
    past: &[Past<'_>],
    context: &TemplateContext<'_>,
) -> Vec<Candidate> {
    let (source, steps) = (field.written.source.as_deref().unwrap_or_default(), &field.steps);
    let wanted = WantedField { steps, object: &field.written.object, declared, new };
    let mut printers: Vec<(ValueMatch, Option<ValueEvidence>, u8)> = Vec::new();
    let file = source.split_once('/').map_or("", |(_, file)| file);
    for (name, text) in context.chart.templates().filter(|(name, _)| *name == file) {
        let found = place::printers(&ChartTemplate::parse(text), &wanted, context);
        printers.extend(found.into_iter().map(|found| {
            (
                found.printer,
                Some(ValueEvidence::Template { file: name.to_owned(), line: found.line }),
                OF_TEMPLATE,
            )
        }));
    }
    let text = value_text(declared);
    let wanted = new.and_then(value_text);
    if let (true, Some(text)) = (printers.is_empty(), &text) {
        let prefixes = Prefixes::new(source);
        let base = if prefixes.is_of_subchart() { OF_SUBCHART } else { 0 };
        let alike = alike_printers(steps, (text, wanted.as_deref()), &prefixes, context);
        printers.extend(alike.into_iter().map(|printer| (printer, None, base)));
        for path in changed_with_field(past) {
            if prefixes.covers(&path) && printers.iter().all(|(printer, ..)| printer.path != path) {
                printers.push((ValueMatch::equal(path, wanted.as_deref()), None, 0));
            }
        }
    }
    let weighed = |(printer, line, base)| weighed(printer, (line, base), (steps, past), context);
    printers.into_iter().map(weighed).collect()
}

/// A candidate with its evidence and score; `base` is the score for the template, whether it is in the record or not.
fn weighed(
    printer: ValueMatch,
    (line, base): (Option<ValueEvidence>, u8),
    (steps, past): (&[String], &[Past<'_>]),
    context: &TemplateContext<'_>,
) -> Candidate {
    let together = together(past, &printer.path);
    let mut evidence: Vec<ValueEvidence> = line.into_iter().collect();
    let mut score = base;
    if printer.is_equal {
        (score, _) = (score + 25, evidence.push(ValueEvidence::EqualValue));
    }
    match together {
        ChangeCorrelation::Changed { from, to } => {
            (score, _) = (score + 30, evidence.push(ValueEvidence::ChangedTogether { from, to }));
        }
        // A part may change without the others.
        ChangeCorrelation::Apart if !printer.is_list && !printer.is_part => score = score.saturating_sub(30),
        ChangeCorrelation::Apart | ChangeCorrelation::Unknown => {}
    }
    if is_alike(steps, &printer.path) {
        (score, _) = (score + 10, evidence.push(ValueEvidence::SimilarName));
    }
    let current = value_at(context.values, &printer.path);
    let set = printer.new.as_ref().filter(|_| !printer.is_list);
    Candidate {
        value: set_path(&printer.path),
        score: score.min(100),
        evidence,
        is_part: printer.is_part,
        is_list: printer.is_list,
        set: set.and_then(|new| assignment(&printer.path, current, new)),
    }
}

impl ChartSource {
    /// The chart's defaults, overridden by the user's values.
    pub fn all_values(&self) -> Value {
        let (defaults, given) = self.values();
        merge(defaults, given, 0)
    }
}

impl RenderedField {
    fn find(
        source: &ChartSource,
        ValueQuestion { object, path, place, .. }: &ValueQuestion<'_>,
    ) -> Option<Self> {
        let written = manifest::find_document(source.manifest(), object)?;
        let mut steps = Vec::new();
        let mut value = &written.object;
        for segment in path.0.iter() {
            let step = step(segment, value)?;
            value = child(value, &step)?;
            steps.push(step);
        }
        let below = place.and_then(|place| place.strip_prefix(&*path.to_string()));
        for name in below.into_iter().flat_map(|below| below.split('/').skip(1)) {
            let name = name.replace("~1", "/").replace("~0", "~");
            value = child(value, &name)?;
            steps.push(name);
        }
        Some(Self { written, steps })
    }

    fn value(&self) -> Option<&Value> {
        self.steps.iter().try_fold(&self.written.object, |value, step| child(value, step))
    }
}

/// The value of a map or list at one step.
fn child<'v>(value: &'v Value, step: &str) -> Option<&'v Value> {
    match value {
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        value => value.get(step),
    }
}

/// The names of a field and of those above it.
fn names(steps: &[String]) -> impl Iterator<Item = &str> {
    let is_number = |step: &&String| step.bytes().all(|byte| byte.is_ascii_digit());
    steps.iter().rev().filter(move |step| !is_number(step)).map(String::as_str)
}

impl Prefixes {
    /// The value paths of this template's chart: a subchart's are below its name, or below its alias, which is also the
    /// name of its folder.
    fn new(source: &str) -> Self {
        let parts: Vec<&str> = source.split('/').collect();
        let names = parts.iter().zip(parts.iter().skip(1)).filter(|(folder, _)| **folder == "charts");
        let prefix: Vec<String> = names.map(|(_, name)| (*name).to_owned()).collect();
        let global = (!prefix.is_empty()).then(|| vec!["global".to_owned()]);
        Self([prefix].into_iter().chain(global).collect())
    }

    fn is_of_subchart(&self) -> bool {
        self.0.first().is_some_and(|prefix| !prefix.is_empty())
    }

    fn covers(&self, path: &[String]) -> bool {
        self.0.iter().any(|prefix| path.starts_with(prefix))
    }
}

impl fmt::Display for ValueEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Template { file, line } => write!(f, "{file} line {line} names it there"),
            Self::EqualValue => f.write_str("has the same value"),
            Self::ChangedTogether { from, to } => {
                write!(f, "changed with the field from revision {from} to {to}")
            }
            Self::SimilarName => f.write_str("has a similar name"),
        }
    }
}

/// The field name or list index that a path segment selects in a rendered object.
fn step(segment: &Segment, value: &Value) -> Option<String> {
    let place = match (segment, value) {
        (Segment::Field(name), _) => return Some(name.clone()),
        (Segment::Key(keys), Value::Array(items)) => {
            // A manifest may omit a key that has a default.
            let is = |item: &Value| {
                let mut known =
                    keys.iter().filter_map(|(key, wanted)| Some((item.get(key)?, wanted))).peekable();
                known.peek().is_some() && known.all(|(value, wanted)| Segment::alike(value, wanted))
            };
            items.iter().position(is)
        }
        (Segment::Element(wanted), Value::Array(items)) => {
            items.iter().position(|item| Segment::alike(item, wanted))
        }
        _ => None,
    };
    place.map(|place| place.to_string())
}

struct Past<'a> {
    revision: u64,
    values: &'a serde_json::Value,
    /// The field's value; `None` if the revision had no such field.
    field: Option<String>,
}

/// How a value and the field changed between revisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeCorrelation {
    /// Both changed from one revision to the other.
    Changed { from: u64, to: u64 },
    /// One changed, and the other did not.
    Apart,
    /// Neither changed.
    Unknown,
}

/// How the value at `path` and the field changed between revisions, newest first.
fn together(past: &[Past<'_>], path: &[String]) -> ChangeCorrelation {
    let mut found = ChangeCorrelation::Unknown;
    for (newer, older) in past.iter().zip(past.iter().skip(1)) {
        let (Some(new), Some(old)) = (&newer.field, &older.field) else { continue };
        let is_same = value_at(newer.values, path) == value_at(older.values, path);
        match (new == old, is_same) {
            (false, false) => return ChangeCorrelation::Changed { from: older.revision, to: newer.revision },
            (true, false) => found = ChangeCorrelation::Apart,
            (true, true) | (false, true) => {}
        }
    }
    found
}

/// The paths of values that were equal to the field before and after it changed.
fn changed_with_field(past: &[Past<'_>]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (newer, older) in past.iter().zip(past.iter().skip(1)) {
        let (Some(new), Some(old)) = (&newer.field, &older.field) else { continue };
        if new == old {
            continue;
        }
        for ValueLeaf { path, text } in value_leaves(newer.values, &[]) {
            let before = value_at(older.values, &path).and_then(value_text);
            if text == *new && before.as_ref() == Some(old) && !found.contains(&path) {
                found.push(path);
            }
        }
    }
    found
}

/// The minimum length of a word that is compared.
const STEM: usize = 3;

/// The values of a chart or subchart that match the field by value and name.
fn alike_printers(
    steps: &[String],
    (declared, new): (&str, Option<&str>),
    prefixes: &Prefixes,
    context: &TemplateContext<'_>,
) -> Vec<ValueMatch> {
    let leaves: Vec<ValueLeaf> =
        prefixes.0.iter().flat_map(|prefix| value_leaves(context.values, prefix)).collect();
    let tags = of_image(&leaves, (declared, new));
    if !tags.is_empty() || context.place == "image" {
        return tags;
    }
    let mut alike: Vec<&ValueLeaf> =
        leaves.iter().filter(|leaf| leaf.text == declared && is_alike(steps, &leaf.path)).collect();
    // Among several candidates, and for names that every chart has, the value's parent must also be named like a field
    // above.
    if alike.len() > 1 || context.place == "name" {
        let near: Vec<&ValueLeaf> = alike.iter().copied().filter(|leaf| is_near(steps, &leaf.path)).collect();
        alike = if near.len() == 1 { near } else { Vec::new() };
    }
    alike.into_iter().map(|leaf| ValueMatch::equal(leaf.path.clone(), new)).collect()
}

/// Whether a value has a similar name to the field that it may set.
fn is_alike(steps: &[String], path: &[String]) -> bool {
    let Some(field) = names(steps).next() else { return false };
    path.last().is_some_and(|last| share(&words(field), &words(last)))
}

/// Whether the name above a value is like a name above the field.
fn is_near(steps: &[String], path: &[String]) -> bool {
    let Some(above) = path.len().checked_sub(2).and_then(|at| path.get(at)) else { return false };
    names(steps).skip(1).take(3).any(|name| share(&words(name), &words(above)))
}

/// The tag of an image made of a repository and a tag; if another image is wanted, those of the two that change.
fn of_image(leaves: &[ValueLeaf], (declared, new): (&str, Option<&str>)) -> Vec<ValueMatch> {
    let Some((name, tag)) = declared.rsplit_once(':') else { return Vec::new() };
    let beside = |leaf: &ValueLeaf, sibling: &str| -> Option<&ValueLeaf> {
        let parent = leaf.path.split_last()?.1;
        leaves
            .iter()
            .find(|it| it.path.split_last().is_some_and(|(last, above)| last == sibling && above == parent))
    };
    let images = leaves.iter().filter_map(|leaf| {
        let is_tag = leaf.path.last().is_some_and(|last| last == "tag") && leaf.text == tag;
        let repository = beside(leaf, "repository").filter(|_| is_tag)?;
        // A registry may precede it.
        let registry = name.strip_suffix(&*repository.text)?;
        (registry.is_empty() || registry.ends_with('/')).then_some((registry, repository, leaf))
    });
    // Among several images with the same tag, the right one is unknown.
    let images: Vec<_> = images.collect();
    let [(registry, repository, leaf)] = images.as_slice() else { return Vec::new() };
    let Some(new) = new else { return vec![ValueMatch::equal(leaf.path.clone(), None)] };
    let literal = |text: &str| TextPart { text: text.to_owned(), value: None };
    let value = |leaf: &ValueLeaf| TextPart { text: leaf.text.clone(), value: Some(leaf.path.clone()) };
    place::fewest(&[literal(registry), value(repository), literal(":"), value(leaf)], new)
}

/// The words of a name in camel case, or with dashes.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = vec![String::new()];
    for c in name.chars() {
        if !c.is_alphanumeric() || c.is_uppercase() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| word.len() >= STEM);
    words
}

/// Whether a word of one list begins with a word of the other.
fn share(some: &[String], others: &[String]) -> bool {
    let stem = |word: &String| word.trim_end_matches('s').to_owned();
    some.iter().map(stem).any(|a| others.iter().map(stem).any(|b| a.starts_with(&b) || b.starts_with(&a)))
}

const LONGEST: usize = 200;

/// A value's path as `--set` takes it.
fn set_path(path: &[String]) -> String {
    path.iter().map(|name| name.replace('.', r"\.")).collect::<Vec<_>>().join(".")
}

/// The flag and its argument that set the value at `path`, now `current`, so that it prints `text`. `None` if they
/// would need more than letters, digits and common punctuation.
fn assignment(path: &[String], current: Option<&Value>, text: &str) -> Option<(&'static str, String)> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || " /-_.:@+%~*?&;!#$^<>|()=".contains(c);
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let is_named = |name: &String| !name.is_empty() && name.chars().all(is_name);
    let fits = !text.is_empty() && text.chars().all(is_plain) && text.chars().nth(LONGEST).is_none();
    if !fits || text.trim() != text || !path.iter().all(is_named) {
        return None;
    }
    let flag = match (current, is_other_than_text(text)) {
        (Some(Value::Number(_) | Value::Bool(_)), true) | (_, false) => "--set",
        (_, true) => "--set-string",
    };
    Some((flag, format!("{}={text}", set_path(path))))
}

/// Whether `--set` parses a text as something else: a number, a boolean, or null.
fn is_other_than_text(text: &str) -> bool {
    matches!(text, "true" | "false" | "null") || text.parse::<i64>().is_ok() || text.parse::<f64>().is_ok()
}

const DEEPEST: usize = 32;

const MOST_LEAVES: usize = 20_000;

/// A leaf of the values: its path, and its text.
struct ValueLeaf {
    path: Vec<String>,
    text: String,
}

/// The value at a path of nested maps.
fn value_at<'v>(values: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(values, |value, name| value.get(name))
}

fn is_open(value: &Value) -> bool {
    value.is_object() || value.is_array()
}

/// A scalar as a template prints it; `None` for maps, lists, null and the empty text.
fn value_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

/// The leaves below a path, list elements left out.
fn value_leaves(values: &Value, below: &[String]) -> Vec<ValueLeaf> {
    let mut found = Vec::new();
    let mut open: Vec<(Vec<String>, &Value)> =
        value_at(values, below).map(|value| (below.to_vec(), value)).into_iter().collect();
    while let Some((path, value)) = open.pop() {
        if let Value::Object(map) = value
            && path.len() < DEEPEST
        {
            // Reversed, because the last is visited first.
            open.extend(
                map.iter()
                    .rev()
                    .map(|(name, value)| ([&path[..], std::slice::from_ref(name)].concat(), value)),
            );
        } else if let Some(text) = value_text(value) {
            found.push(ValueLeaf { path, text });
        }
        if found.len() >= MOST_LEAVES || open.len() >= MOST_LEAVES {
            break;
        }
    }
    found
}

/// Merges the user's values over a chart's defaults as Helm does: a null removes a default.
fn merge(defaults: &Value, given: &Value, depth: usize) -> Value {
    match (defaults, given) {
        (Value::Object(defaults), Value::Object(given)) if depth < DEEPEST => {
            let mut both: Map<String, Value> = defaults.clone();
            for (name, value) in given {
                match (value, defaults.get(name)) {
                    (Value::Null, _) => drop(both.remove(name)),
                    (value, Some(default)) => {
                        drop(both.insert(name.clone(), merge(default, value, depth + 1)))
                    }
                    (value, None) => drop(both.insert(name.clone(), value.clone())),
                }
            }
            Value::Object(both)
        }
        (defaults, Value::Null) => defaults.clone(),
        (_, given) => given.clone(),
    }
}

#[cfg(test)]
mod tests;
