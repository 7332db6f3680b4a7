//! Finds the first difference between the values of a field.
//!
//! Entry point: [`Values::of`]. Invariant: a long or nested value is shown by the first place below
//! the field at which it differs, so that both sides never look the same. Values that [`Shown`]
//! masks have no such place. Must not judge.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use super::shown::{self, Shown};
use kubemoor_declare::model::ObjectId;
use kubemoor_declare::path::{Path, Segment};

/// A value is shown whole if its JSON has at most this number of characters.
const SHORT: usize = 60;

/// The characters of a line before the place at which it differs.
const BEFORE: usize = 20;

/// The characters of a line that are shown.
const LINE: usize = 80;

/// The depth of the search.
const DEEPEST: usize = 64;

/// The values of a field, as a person may see them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values {
    /// What the manifest declares.
    pub declared: Option<Shown>,
    /// What was.
    pub old: Option<Shown>,
    /// What would be, or is.
    pub new: Option<Shown>,
    /// Where they first differ, of long or nested ones.
    pub difference: Option<Box<Difference>>,
}

/// The first place below a field at which its values differ.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Difference {
    /// The place as people write it, behind the field's: `[0].host`.
    #[serde(skip)]
    pub plain: String,
    /// The place from the object's root, as a JSON Pointer.
    pub path: String,
    /// The line of a long text, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// What the manifest declares there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared: Option<Shown>,
    /// What was there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<Shown>,
    /// What would be, or is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<Shown>,
}

/// A step below a field.
#[derive(Clone, Copy)]
enum Step<'v> {
    Field(&'v str),
    Index(usize),
}

/// Where two texts first differ.
struct Place {
    /// From 0.
    line: usize,
    /// In characters.
    column: usize,
    is_of_lines: bool,
}

impl Values {
    /// The values at `path` of `object`.
    pub fn of(object: &ObjectId, path: &Path, [declared, old, new]: [Option<&Value>; 3]) -> Self {
        let shown = |value: Option<&Value>| value.map(|value| Shown::of(object, path, value));
        let said = shown(declared);
        // An edit usually starts from what is declared.
        let was = if old == declared { said.clone() } else { shown(old) };
        let is = shown(new);
        let is_masked = [&said, &was, &is].into_iter().flatten().any(Shown::is_masked);
        let difference = match new {
            Some(new) if !is_masked => Difference::of(object, path, [declared, old], new),
            _ => None,
        };
        Self { declared: said, old: was, new: is, difference: difference.map(Box::new) }
    }
}

impl Difference {
    fn of(object: &ObjectId, path: &Path, [declared, old]: [Option<&Value>; 2], new: &Value) -> Option<Self> {
        // For an edit, the change counts; for a live object, the difference from the declaration.
        let other = old.or(declared)?;
        if is_short(other) && is_short(new) {
            return None;
        }
        let steps = first(other, new, declared)?;
        let (other, declared, old, new) = (
            step_down(other, &steps),
            declared.and_then(|declared| step_down(declared, &steps)),
            old.and_then(|old| step_down(old, &steps)),
            step_down(new, &steps),
        );
        let (mut plain, mut pointer) = (String::new(), path.pointer().to_owned());
        for step in &steps {
            // Writing to a String cannot fail.
            let _ = match step {
                Step::Field(name) => {
                    let below = Path([Segment::Field((*name).to_owned())].into());
                    let dot = if below.plain().to_string().starts_with('[') { "" } else { "." };
                    write!(plain, "{dot}{}", below.plain()).and_then(|()| write!(pointer, "{below}"))
                }
                Step::Index(index) => write!(plain, "[{index}]").and_then(|()| write!(pointer, "/{index}")),
            };
        }
        let place = match (other, new) {
            (Some(Value::String(a)), Some(Value::String(b))) => Place::of(a, b),
            _ => None,
        };
        let shown = |value: Option<&Value>| match (&place, value) {
            (Some(place), Some(Value::String(text))) => {
                let excerpt = Value::String(place.excerpt(text)?);
                Some(Shown::of(object, path, &excerpt))
            }
            (_, value) => value.map(|value| Shown::of(object, path, value)),
        };
        let line = place.as_ref().filter(|place| place.is_of_lines).map(|place| place.line + 1);
        let (was, is) = (shown(old), shown(new));
        let said = if old == declared { was.clone() } else { shown(declared) };
        let found = Self { plain, path: pointer, line, declared: said, old: was, new: is };
        // A place that is the whole field would add nothing.
        (!steps.is_empty() || place.is_some()).then_some(found)
    }
}

/// Whether a value can be shown whole.
fn is_short(value: &Value) -> bool {
    match value {
        Value::String(text) => text.len() <= SHORT && !text.contains('\n'),
        Value::Array(_) | Value::Object(_) => shown::is_within(value, SHORT),
        _ => true,
    }
}

/// The path to the first place at which `a` and `b` differ, preferably one at which `b` also
/// differs from `declared`. `None` if they are equal.
fn first<'v>(a: &'v Value, b: &'v Value, declared: Option<&'v Value>) -> Option<Vec<Step<'v>>> {
    let is_wrong = |steps: &[Step<'_>]| {
        declared.is_none_or(|declared| step_down(declared, steps) != step_down(b, steps))
    };
    let mut steps = Vec::new();
    let mut nearest = None;
    search((a, b), &mut steps, &mut |steps| {
        let wrong = is_wrong(steps);
        if wrong || nearest.is_none() {
            nearest = Some(steps.to_vec());
        }
        wrong
    });
    nearest
}

/// Passes each place at which two values differ to `found`, until it accepts one. Returns whether
/// it did.
fn search<'v>(
    (a, b): (&'v Value, &'v Value),
    steps: &mut Vec<Step<'v>>,
    found: &mut dyn FnMut(&[Step<'v>]) -> bool,
) -> bool {
    let mut below = |step: Step<'v>, pair: (Option<&'v Value>, Option<&'v Value>)| {
        steps.push(step);
        let is_found = match pair {
            (Some(a), Some(b)) if steps.len() < DEEPEST => search((a, b), steps, found),
            (Some(a), Some(b)) => a != b && found(steps),
            (None, None) => false,
            _ => found(steps),
        };
        steps.pop();
        is_found
    };
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let added = b.keys().filter(|name| !a.contains_key(*name));
            a.keys().chain(added).any(|name| below(Step::Field(name), (a.get(name), b.get(name))))
        }
        (Value::Array(a), Value::Array(b)) => {
            (0..a.len().max(b.len())).any(|index| below(Step::Index(index), (a.get(index), b.get(index))))
        }
        (a, b) => a != b && found(steps),
    }
}

fn step_down<'v>(value: &'v Value, steps: &[Step<'_>]) -> Option<&'v Value> {
    steps.iter().try_fold(value, |value, step| match step {
        Step::Field(name) => value.get(*name),
        Step::Index(index) => value.get(*index),
    })
}

impl Place {
    /// None of short texts.
    fn of(a: &str, b: &str) -> Option<Self> {
        let is_of_lines = a.contains('\n') || b.contains('\n');
        if !is_of_lines && a.len() <= SHORT && b.len() <= SHORT {
            return None;
        }
        let (mut line, mut column) = (0, 0);
        for (one, other) in a.chars().zip(b.chars()) {
            if one != other {
                break;
            }
            match one {
                '\n' => (line, column) = (line + 1, 0),
                _ => column += 1,
            }
        }
        Some(Self { line, column, is_of_lines })
    }

    /// The part of a text around the place; `None` where it has no such line.
    fn excerpt(&self, text: &str) -> Option<String> {
        let line = text.split('\n').nth(self.line)?;
        let skipped = if self.column + BEFORE <= LINE { 0 } else { self.column - BEFORE };
        let rest = shown::place_of(skipped, line).and_then(|begin| line.get(begin..)).unwrap_or_default();
        let end = shown::place_of(LINE, rest);
        let kept = end.and_then(|end| rest.get(..end)).unwrap_or(rest);
        let mark = |is_cut| if is_cut { "…" } else { "" };
        Some([mark(skipped > 0), kept, mark(end.is_some())].concat())
    }
}

#[cfg(test)]
mod tests;
