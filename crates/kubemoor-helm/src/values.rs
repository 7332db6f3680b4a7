//! Finds the chart value that probably sets a field.
//!
//! Entry point: [`candidates`]. Invariant: nothing is rendered and nothing is certain. Each candidate has its
//! evidence and a score, and one below `THRESHOLD` is not named. Total and bounded on any record. Must not
//! show a value: only the names of values leave this module, and texts from the caller.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use self::history::{Past, Together};
use self::outline::{Line, Outline, Step};
use self::place::Wanted;
use self::printed::Printer;
use self::template::{Helpers, Template};
use super::manifest::{self, Written};
use super::record::ChartSource;
use kubemoor_declare::model::ObjectId;
use kubemoor_declare::path::{Path, Segment};

mod action;
mod assignment;
mod history;
mod likeness;
mod outline;
mod place;
mod printed;
mod template;
mod tree;

/// The most candidates of one field.
const MOST: usize = 5;

/// The score from which a candidate is named. By the charts of `tests/it/chart_values.rs` fewer than one in twenty that
/// reach it are wrong.
const THRESHOLD: u8 = 60;

/// The score for a template that names the value at the field's place.
const OF_TEMPLATE: u8 = 60;

/// The score for a subchart, whose templates no record holds, if the value is the only matching one among
/// those of the subchart and the global ones.
const OF_SUBCHART: u8 = 35;

/// The question about a field.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// The object.
    pub object: &'a ObjectId,
    /// The field.
    pub path: &'a Path,
    /// The place below it that counts, as a JSON Pointer from the object's root.
    pub place: Option<&'a str>,
    /// The requested value; `None` for an absent value.
    pub new: Option<&'a Value>,
}

/// A value of the chart that probably sets a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    /// The value, as `--set` takes it: `image.tag`.
    pub value: String,
    /// How sure it is, of 100.
    pub score: u8,
    /// What speaks for it.
    pub evidence: Vec<Evidence>,
    /// Whether the field consists of this value and of others of which the same is true, and it is not known that one of
    /// them alone sets it to the wanted value.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_part: bool,
    /// Whether it is a list, of which a part sets the field.
    #[serde(skip)]
    pub is_list: bool,
    /// The flag of `helm upgrade` and its argument that set it to the wanted value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<(&'static str, String)>,
}

/// What speaks for a candidate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Evidence {
    /// The template that renders the object names it where the field stands.
    Template {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
    },
    /// It is the field's value, or a part of it.
    EqualValue,
    /// Both changed from one revision to another.
    ChangedTogether {
        /// The older revision.
        from: u64,
        /// The newer one.
        to: u64,
    },
    /// It is called like the field.
    SimilarName,
}

/// What a template is read by.
struct Context<'a> {
    values: &'a Value,
    helpers: Helpers,
    chart: &'a ChartSource,
    /// The field's own name.
    place: &'a str,
}

/// Below which values a part of the chart finds its own.
struct Prefixes(Vec<Vec<String>>);

/// A field of a rendered object.
struct Field<'m> {
    written: Written<'m>,
    steps: Vec<Step>,
}

/// The values to name for a field: the likeliest of its candidates, with the other values that it consists of.
pub fn likeliest(candidates: Vec<Candidate>) -> Vec<Candidate> {
    let Some(first) = candidates.first() else { return Vec::new() };
    let line =
        |it: &Candidate| it.evidence.iter().find(|it| matches!(it, Evidence::Template { .. })).cloned();
    let (is_part, place, name) = (first.is_part, line(first), first.value.clone());
    let belongs = |it: &Candidate| it.value == name || (is_part && it.is_part && line(it) == place);
    candidates.into_iter().filter(belongs).collect()
}

/// The values that probably set a field, the likeliest first, by the latest revision and those before it, newest first.
pub fn candidates(sources: &[ChartSource], question: Question<'_>) -> Vec<Candidate> {
    let Some((latest, earlier)) = sources.split_first() else { return Vec::new() };
    let Some(field) = Field::of(latest, &question) else { return Vec::new() };
    let Some(declared) = field.value().cloned() else { return Vec::new() };
    let values = sources.iter().map(ChartSource::all_values).collect::<Vec<_>>();
    let Some(current) = values.first() else { return Vec::new() };
    let steps = &field.steps;
    let context = Context {
        values: current,
        helpers: Helpers::of(latest.templates().map(|(_, text)| text)),
        chart: latest,
        place: steps.iter().rev().find_map(Step::name).unwrap_or_default(),
    };
    let of_earlier =
        earlier.iter().map(|source| Field::of(source, &question).and_then(|it| tree::text(it.value()?)));
    let fields = std::iter::once(tree::text(&declared)).chain(of_earlier);
    let past: Vec<Past<'_>> = sources
        .iter()
        .zip(&values)
        .zip(fields)
        .map(|((source, values), field)| Past { revision: source.revision, values, field })
        .collect();
    let mut found = found(&field, (&declared, question.new), &past, &context);
    found.sort_by_key(|(_, candidate)| std::cmp::Reverse(candidate.score));
    let mut named: Vec<Candidate> = Vec::new();
    for (_, candidate) in found.into_iter().filter(|(_, candidate)| candidate.score >= THRESHOLD) {
        if named.len() < MOST && named.iter().all(|known| known.value != candidate.value) {
            named.push(candidate);
        }
    }
    named
}

fn found(
    field: &Field<'_>,
    (declared, new): (&Value, Option<&Value>),
    past: &[Past<'_>],
    context: &Context<'_>,
) -> Vec<(Printer, Candidate)> {
    let (source, steps) = (field.written.source.as_deref().unwrap_or_default(), &field.steps);
    let rendered = Outline::of(&lines(field.written.text));
    let wanted = Wanted { steps, rendered: &rendered, declared, new };
    let mut printers: Vec<(Printer, Option<Evidence>, u8)> = Vec::new();
    let file = source.split_once('/').map_or("", |(_, file)| file);
    for (name, text) in context.chart.templates().filter(|(name, _)| *name == file) {
        let found = place::printers(&Template::of(text), &wanted, context);
        printers.extend(found.into_iter().map(|found| {
            (found.printer, Some(Evidence::Template { file: name.to_owned(), line: found.line }), OF_TEMPLATE)
        }));
    }
    let text = tree::text(declared);
    let wanted = new.and_then(tree::text);
    if let (true, Some(text)) = (printers.is_empty(), &text) {
        let prefixes = Prefixes::of(source);
        let base = if prefixes.is_of_subchart() { OF_SUBCHART } else { 0 };
        let alike = likeness::printers(steps, (text, wanted.as_deref()), &prefixes, context);
        printers.extend(alike.into_iter().map(|printer| (printer, None, base)));
        for path in history::changed(past) {
            if prefixes.covers(&path) && printers.iter().all(|(printer, ..)| printer.path != path) {
                let new = wanted.clone();
                let printer = Printer { path, is_equal: true, is_list: false, is_part: false, new };
                printers.push((printer, None, 0));
            }
        }
    }
    let weighed = |(printer, line, base)| weighed(printer, (line, base), (steps, past), context);
    printers.into_iter().map(weighed).collect()
}

/// A value with its evidence; `base` is the score of the template, seen or not.
fn weighed(
    printer: Printer,
    (line, base): (Option<Evidence>, u8),
    (steps, past): (&[Step], &[Past<'_>]),
    context: &Context<'_>,
) -> (Printer, Candidate) {
    let together = history::together(past, &printer.path);
    let mut evidence: Vec<Evidence> = line.into_iter().collect();
    let mut score = base;
    if printer.is_equal {
        (score, _) = (score + 25, evidence.push(Evidence::EqualValue));
    }
    match together {
        Together::Changed { from, to } => {
            (score, _) = (score + 30, evidence.push(Evidence::ChangedTogether { from, to }));
        }
        // A part changes without the others.
        Together::Apart if !printer.is_list && !printer.is_part => score = score.saturating_sub(30),
        Together::Apart | Together::Unknown => {}
    }
    if likeness::is_alike(steps, &printer.path) {
        (score, _) = (score + 10, evidence.push(Evidence::SimilarName));
    }
    let current = tree::find(context.values, &printer.path);
    let set = printer.new.as_ref().filter(|_| !printer.is_list);
    let candidate = Candidate {
        value: assignment::named(&printer.path),
        score: score.min(100),
        evidence,
        is_part: printer.is_part,
        is_list: printer.is_list,
        set: set.and_then(|new| assignment::assignment(&printer.path, current, new)),
    };
    (printer, candidate)
}

impl ChartSource {
    /// The chart's defaults under the user's values.
    pub fn all_values(&self) -> Value {
        let (defaults, given) = self.values();
        tree::merged(defaults, given)
    }
}

impl<'m> Field<'m> {
    /// The field as a revision rendered it.
    fn of(source: &'m ChartSource, Question { object, path, place, .. }: &Question<'_>) -> Option<Self> {
        let written = manifest::written(source.manifest(), object)?;
        let mut steps = Vec::new();
        let mut value = &written.object;
        for segment in path.0.iter() {
            let step = step(segment, value)?;
            value = step.of(value)?;
            steps.push(step);
        }
        let below = place.and_then(|place| place.strip_prefix(&*path.to_string()));
        for name in below.into_iter().flat_map(|below| below.split('/').skip(1)) {
            let name = name.replace("~1", "/").replace("~0", "~");
            let step = match value {
                Value::Array(_) => Step::Item(name.parse().ok()?),
                _ => Step::Field(name),
            };
            value = step.of(value)?;
            steps.push(step);
        }
        Some(Self { written, steps })
    }

    fn value(&self) -> Option<&Value> {
        self.steps.iter().try_fold(&self.written.object, |value, step| step.of(value))
    }
}

impl Step {
    fn of<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        match self {
            Self::Field(name) => value.get(name),
            Self::Item(index) => value.get(index),
        }
    }

    fn name(&self) -> Option<&str> {
        match self {
            Self::Field(name) => Some(name),
            Self::Item(_) => None,
        }
    }
}

impl Prefixes {
    /// The values of this template's chart: a subchart's are below its name, or below its alias, which is
    /// also the name of its folder.
    fn of(source: &str) -> Self {
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

impl fmt::Display for Evidence {
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

/// The step that a segment of a path takes in a rendered object.
fn step(segment: &Segment, value: &Value) -> Option<Step> {
    match (segment, value) {
        (Segment::Field(name), Value::Array(_)) => Some(Step::Item(name.parse().ok()?)),
        (Segment::Field(name), _) => Some(Step::Field(name.clone())),
        (Segment::Key(keys), Value::Array(items)) => {
            // A manifest may leave a key to its default.
            let is = |item: &Value| {
                let mut known =
                    keys.iter().filter_map(|(key, wanted)| Some((item.get(key)?, wanted))).peekable();
                known.peek().is_some() && known.all(|(value, wanted)| Segment::alike(value, wanted))
            };
            items.iter().position(is).map(Step::Item)
        }
        (Segment::Element(wanted), Value::Array(items)) => {
            items.iter().position(|item| Segment::alike(item, wanted)).map(Step::Item)
        }
        _ => None,
    }
}

fn lines(text: &str) -> Vec<Line> {
    text.lines().map(|line| Line { text: line.to_owned(), column: None }).collect()
}

#[cfg(test)]
mod tests;
