//! Compares the actions of a line with the rendered text.
//!
//! Entry points: [`Printed::of`], [`align`]. Invariant: a value is named for a part of the text only where
//! all other parts match.

use std::cmp::Reverse;

use serde_json::Value;

use super::action::{Expression, Ref};
use super::outline::HOLE;
use super::{Context, tree};

/// The minimum length of a value that is searched in a function's output.
const TELLING: usize = 2;

/// The most values of one line that are tried together.
const PARTS: usize = 6;

/// A value that prints a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Printer {
    pub(super) path: Vec<String>,
    /// Whether the text is the value, or its default.
    pub(super) is_equal: bool,
    /// Whether it is a list, of which a part is printed.
    pub(super) is_list: bool,
    /// Whether the text consists of this value and others, and it is not known that one of them alone makes the new text.
    pub(super) is_part: bool,
    /// The text that the value must have for the new text.
    pub(super) new: Option<String>,
}

/// A piece of a printed text, and the value that it is.
struct Part {
    text: String,
    value: Option<Vec<String>>,
}

/// One piece of a line.
#[derive(Clone, Debug)]
pub(super) enum Printed<'a> {
    Literal(String),
    /// A known text, and the value that it is.
    Known(String, Option<&'a Ref>),
    /// The result of functions that are not run, with their values.
    Unknown(Vec<&'a Ref>),
}

impl<'a> Printed<'a> {
    /// The pieces of a line's text with these actions.
    pub(super) fn of(skeleton: &str, actions: &'a [Expression], context: &'a Context<'_>) -> Vec<Self> {
        let mut pieces = Vec::new();
        let mut actions = actions.iter();
        for (number, literal) in skeleton.split(HOLE).enumerate() {
            if number > 0 {
                pieces.extend(actions.next().map(|action| Self::of_action(action, context)));
            }
            if !literal.is_empty() {
                pieces.push(Self::Literal(literal.to_owned()));
            }
        }
        pieces
    }

    fn of_action(action: &'a Expression, Context { values, helpers, chart, .. }: &'a Context<'_>) -> Self {
        let unknown = || Self::Unknown(helpers.refs(action).collect());
        if !action.is_plain {
            return unknown();
        }
        let scalar = |value: &'a Ref| {
            let found = tree::find(values, &value.path).filter(|_| value.element.is_none())?;
            Some(Self::Known(tree::text(found)?, Some(value)))
        };
        let of_default = || {
            let builtin = action.builtin.as_deref().and_then(|name| chart.builtin(name));
            let text = builtin.or_else(|| action.fallback.clone())?;
            Some(Self::Known(text, action.refs.first()))
        };
        let is_open = |value: &&Ref| {
            value.element.is_some()
                || tree::find(values, &value.path).is_some_and(|it| it.is_object() || it.is_array())
        };
        if action.refs.iter().any(|value| is_open(&value)) {
            return unknown();
        }
        action.refs.iter().find_map(scalar).or_else(of_default).unwrap_or_else(unknown)
    }

    fn text(&self) -> Option<&str> {
        match self {
            Self::Literal(text) | Self::Known(text, _) => Some(text),
            Self::Unknown(_) => None,
        }
    }
}

/// The values that print `declared`, and what they must be for `new`.
pub(super) fn align(
    pieces: &[Printed<'_>],
    declared: &str,
    new: Option<&str>,
    context: &Context<'_>,
) -> Option<Vec<Printer>> {
    let texts = complete(pieces, declared)?;
    let mut found: Vec<(Printer, bool)> = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        let around = |texts: Option<&[String]>| texts.unwrap_or_default().concat();
        let (before, after) = (around(texts.get(..at)), around(texts.get(at + 1..)));
        let wanted = new.and_then(|new| new.strip_prefix(&*before)?.strip_suffix(&*after));
        let text = texts.get(at).map(String::as_str).unwrap_or_default();
        let printers = match piece {
            Printed::Literal(_) | Printed::Known(_, None) => Vec::new(),
            Printed::Known(_, Some(value)) => vec![Printer {
                path: value.path.clone(),
                is_equal: true,
                is_list: false,
                is_part: false,
                new: wanted.filter(|wanted| *wanted != text).map(str::to_owned),
            }],
            Printed::Unknown(refs) => hidden(refs, text, wanted, context),
        };
        let is_reached = new.is_none() || wanted.is_some();
        found.extend(printers.into_iter().map(|printer| (printer, is_reached)));
    }
    // A value that cannot become the new text is a candidate only if no value can.
    if found.iter().any(|(_, is_reached)| *is_reached) {
        found.retain(|(_, is_reached)| *is_reached);
    }
    if found.iter().any(|(printer, _)| printer.new.is_some()) {
        found.retain(|(printer, _)| printer.new.is_some());
    } else if new.is_none() || found.iter().all(|(_, is_reached)| !is_reached) {
        let parts = parts(pieces, &texts, context);
        if let Some(together) = new.and_then(|new| together(&parts, new)) {
            return Some(together);
        }
        let is_value = |path: &Vec<String>| parts.iter().any(|part| part.value.as_ref() == Some(path));
        let several = parts.iter().filter(|part| part.value.is_some()).count() > 1;
        found.iter_mut().for_each(|(printer, _)| printer.is_part = several && is_value(&printer.path));
    }
    Some(found.into_iter().map(|(printer, _)| printer).collect())
}

/// The text of a line, cut where one value ends and another begins. Of values at the same place the longest counts.
fn parts(pieces: &[Printed<'_>], texts: &[String], Context { values, .. }: &Context<'_>) -> Vec<Part> {
    let mut parts = Vec::new();
    for (piece, text) in pieces.iter().zip(texts) {
        match piece {
            Printed::Literal(_) => parts.push(Part { text: text.clone(), value: None }),
            Printed::Known(_, value) => {
                parts.push(Part { text: text.clone(), value: value.map(|value| value.path.clone()) });
            }
            Printed::Unknown(refs) => {
                let refs = refs.iter().filter(|value| value.element.is_none());
                let mut leaves: Vec<_> = refs.flat_map(|value| tree::leaves(values, &value.path)).collect();
                leaves.sort_by_key(|leaf| Reverse(leaf.text.len()));
                let mut within = vec![Part { text: text.clone(), value: None }];
                for leaf in leaves {
                    let free = within
                        .iter()
                        .position(|part| part.value.is_none() && around(&part.text, &leaf.text).is_some());
                    let Some(at) = free else { continue };
                    let part = within.remove(at);
                    let Some((before, after)) = around(&part.text, &leaf.text) else { continue };
                    let literal = |text: &str| Part { text: text.to_owned(), value: None };
                    let value = Part { text: leaf.text, value: Some(leaf.path) };
                    let cut = [literal(before), value, literal(after)];
                    drop(within.splice(at..at, cut.into_iter().filter(|part| !part.text.is_empty())));
                }
                parts.append(&mut within);
            }
        }
    }
    parts
}

/// The fewest values that make a new text together, and what each of them must be.
fn together(parts: &[Part], new: &str) -> Option<Vec<Printer>> {
    let values: Vec<usize> =
        parts.iter().enumerate().filter(|(_, part)| part.value.is_some()).map(|(at, _)| at).collect();
    if values.len() > PARTS {
        return None;
    }
    let subset = |bits: u32| -> Vec<usize> {
        let values = values.iter().enumerate().filter(|(bit, _)| (bits >> bit) & 1 == 1);
        values.map(|(_, at)| *at).collect()
    };
    let mut sets: Vec<_> = (0..1 << values.len()).map(subset).filter(|set| set.len() > 1).collect();
    sets.sort_by_key(Vec::len);
    sets.iter().find_map(|set| changed(parts, set, new))
}

/// The texts that these parts must have for a new text, where the others stay. Where a text between two of them stands
/// several times, as the colon does in the image `host:5000/app:1`, the last one counts.
fn changed(parts: &[Part], set: &[usize], new: &str) -> Option<Vec<Printer>> {
    // The fixed texts before, between and after the parts that change.
    let mut fixed = vec![String::new()];
    for (at, part) in parts.iter().enumerate() {
        if set.contains(&at) {
            fixed.push(String::new());
        } else if let Some(last) = fixed.last_mut() {
            last.push_str(&part.text);
        }
    }
    let (first, between) = fixed.split_first()?;
    let (last, between) = between.split_last()?;
    if between.iter().any(String::is_empty) {
        return None;
    }
    let mut rest = new.strip_prefix(&**first)?.strip_suffix(&**last)?;
    let mut texts = Vec::new();
    for text in between.iter().rev() {
        let (before, after) = rest.rsplit_once(&**text)?;
        texts.push(after);
        rest = before;
    }
    texts.push(rest);
    let printers = set.iter().zip(texts.into_iter().rev()).map(|(at, text)| {
        let path = parts.get(*at)?.value.clone()?;
        (!text.is_empty()).then(|| Printer {
            path,
            is_equal: true,
            is_list: false,
            is_part: true,
            new: Some(text.to_owned()),
        })
    });
    let printers = printers.collect::<Option<Vec<_>>>()?;
    // One value at two places has one text.
    let agree = |one: &Printer| printers.iter().all(|it| it.path != one.path || it.new == one.new);
    printers.iter().all(agree).then_some(printers)
}

/// Whether these pieces can print this text. With more than one unknown piece this cannot be decided, and the
/// answer is yes.
pub(super) fn can_print(pieces: &[Printed<'_>], text: &str) -> bool {
    pieces.iter().filter(|piece| piece.text().is_none()).count() > 1 || complete(pieces, text).is_some()
}

/// The texts of all pieces, of which one may be unknown. `None` if they do not match `declared`.
fn complete(pieces: &[Printed<'_>], declared: &str) -> Option<Vec<String>> {
    let text = |piece: &Printed<'_>| piece.text().map(str::to_owned);
    let mut unknown = pieces.iter().enumerate().filter(|(_, piece)| piece.text().is_none()).map(|(at, _)| at);
    let (first, second) = (unknown.next(), unknown.next());
    let Some(at) = first else {
        let texts: Vec<String> = pieces.iter().filter_map(text).collect();
        return (texts.concat() == declared).then_some(texts);
    };
    if second.is_some() {
        return None;
    }
    let before: Vec<String> = pieces.iter().take(at).filter_map(text).collect();
    let after: Vec<String> = pieces.iter().skip(at + 1).filter_map(text).collect();
    let middle = declared.strip_prefix(&*before.concat())?.strip_suffix(&*after.concat())?.to_owned();
    Some(before.into_iter().chain([middle]).chain(after).collect())
}

/// The values found in a function's text; if none is found, the function's only value.
fn hidden(
    refs: &[&Ref],
    text: &str,
    wanted: Option<&str>,
    Context { values, place, .. }: &Context<'_>,
) -> Vec<Printer> {
    let mut found = Vec::new();
    for value in refs {
        if let Some(element) = &value.element {
            let container = tree::find(values, &value.path);
            found.extend(
                container.and_then(|it| of_element(it, (&value.path, element), (text, wanted), place)),
            );
            continue;
        }
        for leaf in tree::leaves(values, &value.path) {
            if let Some((before, after)) = around(text, &leaf.text) {
                let new = wanted.and_then(|wanted| wanted.strip_prefix(before)?.strip_suffix(after));
                if wanted.is_none() || new.is_some() {
                    let new = new.filter(|new| *new != leaf.text).map(str::to_owned);
                    found.push(Printer {
                        path: leaf.path,
                        is_equal: true,
                        is_list: false,
                        is_part: false,
                        new,
                    });
                }
            }
        }
    }
    // Of an image it is the tag that changes.
    found.sort_by_key(|printer| printer.path.last().is_none_or(|name| name != "tag"));
    if let ([value], true) = (refs, found.is_empty())
        && value.element.is_none()
        && tree::find(values, &value.path).is_none_or(|it| !it.is_object() && !it.is_array())
    {
        let path = value.path.clone();
        found.push(Printer { path, is_equal: false, is_list: false, is_part: false, new: None });
    }
    found
}

/// An element of a map or list that prints a text.
fn of_element(
    container: &Value,
    (path, element): (&[String], &[String]),
    (text, wanted): (&str, Option<&str>),
    place: &str,
) -> Option<Printer> {
    let prints = |value: &Value| tree::find(value, element).and_then(tree::text).is_some_and(|it| it == text);
    match container {
        Value::Object(map) => {
            let value = map.get(place).filter(|value| prints(value)).map(|_| place.to_owned());
            let mut others = map.iter().filter(|(_, value)| prints(value)).map(|(name, _)| name.clone());
            let name = value.or_else(|| others.next().filter(|_| others.next().is_none()))?;
            let path = [path, &[name], element].concat();
            let new = wanted.map(str::to_owned);
            Some(Printer { path, is_equal: true, is_list: false, is_part: false, new })
        }
        Value::Array(items) => items.iter().any(prints).then(|| Printer {
            path: path.to_vec(),
            is_equal: true,
            is_list: true,
            is_part: false,
            new: None,
        }),
        _ => None,
    }
}

/// The text before and after a part that is a word of the text.
fn around<'t>(text: &'t str, part: &str) -> Option<(&'t str, &'t str)> {
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    (part.len() >= TELLING).then_some(())?;
    text.match_indices(part)
        .map(|(at, _)| (text.get(..at).unwrap_or_default(), text.get(at + part.len()..).unwrap_or_default()))
        .find(|(before, after)| !before.ends_with(is_word) && !after.starts_with(is_word))
}
