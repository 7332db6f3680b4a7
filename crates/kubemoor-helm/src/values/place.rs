//! Finds the places of a template that render one field, by comparison with the rendered object. A place is accepted
//! only if every key above it, and every literal beside it in a list element, match the rendered object; a value is
//! returned for a part of a text only if all other parts match.

use std::cmp::Reverse;

use serde_json::Value;

use super::template::{ChartTemplate, Expression, HOLE, Ref};
use super::{TemplateContext, child, value_at, value_leaves, value_text};

pub(super) struct WantedField<'a> {
    pub(super) steps: &'a [String],
    pub(super) object: &'a Value,
    pub(super) declared: &'a Value,
    pub(super) new: Option<&'a Value>,
}

pub(super) struct FoundPrinter {
    pub(super) printer: ValueMatch,
    pub(super) line: usize,
}

/// The values with which a template prints a field.
pub(super) fn printers(
    template: &ChartTemplate,
    wanted: &WantedField<'_>,
    context: &TemplateContext<'_>,
) -> Vec<FoundPrinter> {
    let is_of_object = |document: &&Value| wanted.is_rendered_by(template, document, context);
    let documents: Vec<&Value> = template.documents.iter().filter(is_of_object).collect();
    let names = documents.iter().filter_map(|document| document.pointer("/metadata/name")?.as_str());
    let naming = names.flat_map(|name| template.pieces(name)).filter_map(Result::err);
    let naming: Vec<&Ref> = naming.flat_map(|action| context.helpers.refs(action)).collect();
    // A value that renames the object does not change the field.
    let renames =
        |found: &FoundPrinter| naming.iter().any(|it| it.element.is_none() && it.path == found.printer.path);
    for length in (1..=wanted.steps.len()).rev() {
        let Some((steps, below)) = wanted.steps.split_at_checked(length) else { continue };
        let places = documents.iter().flat_map(|document| places(document, Some(wanted.object), steps));
        let found = places.flat_map(|place| wanted.printed_at(template, place, below, context));
        let found: Vec<FoundPrinter> = found.filter(|found| !renames(found)).collect();
        if !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

/// A node of a template, and whether it is an element of a list.
type Place<'t> = (&'t Value, bool);

/// The nodes of a template at which the value at these steps of a rendered object may be printed.
fn places<'t>(node: &'t Value, rendered: Option<&Value>, steps: &[String]) -> Vec<Place<'t>> {
    let Some((step, rest)) = steps.split_first() else { return vec![(node, false)] };
    let rendered = rendered.and_then(|rendered| child(rendered, step));
    match node {
        Value::Object(map) => {
            let nodes = map.iter().filter(|(key, _)| *key == step || key.contains(HOLE));
            nodes.flat_map(|(_, node)| places(node, rendered, rest)).collect()
        }
        Value::Array(items) => {
            let items = items.iter().filter(|item| may_be(item, rendered));
            items
                .flat_map(|item| match rest.is_empty() {
                    true => vec![(item, true)],
                    false => places(item, rendered, rest),
                })
                .collect()
        }
        _ => Vec::new(),
    }
}

/// Whether an element of a template can be this rendered one: none of its literals contradicts it.
fn may_be(item: &Value, rendered: Option<&Value>) -> bool {
    let Some(rendered) = rendered.and_then(Value::as_object) else { return true };
    rendered.iter().all(|(key, value)| match (item.get(key).and_then(value_text), value_text(value)) {
        (Some(own), Some(value)) => own.contains(HOLE) || own == value,
        _ => true,
    })
}

impl WantedField<'_> {
    /// Whether a document of a template is of the object's kind and name.
    fn is_rendered_by(
        &self,
        template: &ChartTemplate,
        document: &Value,
        context: &TemplateContext<'_>,
    ) -> bool {
        let is_same = |pointer: &str| {
            let text = |value: &Value| value.pointer(pointer).and_then(value_text);
            let (Some(own), Some(rendered)) = (text(document), text(self.object)) else { return true };
            can_print(&Printed::pieces(&own, template, context), &rendered)
        };
        document.get("kind").is_none() || (is_same("/kind") && is_same("/metadata/name"))
    }

    /// The values that a node prints into the field.
    fn printed_at(
        &self,
        template: &ChartTemplate,
        (node, is_element): Place<'_>,
        below: &[String],
        context: &TemplateContext<'_>,
    ) -> Vec<FoundPrinter> {
        let (declared, new) = (value_text(self.declared), self.new.and_then(value_text));
        match (node, declared) {
            (Value::String(text), Some(declared)) if below.is_empty() && text.contains(HOLE) => {
                if text.contains('\n') {
                    return self.printed_by_lines(template, text, (&declared, new.as_deref()), context);
                }
                let mut found = aligned(template, text, (&declared, new.as_deref()), context);
                // Any element may be this one.
                found.retain(|found| found.printer.is_equal || !is_element);
                found
            }
            (Value::String(text), _) => self.printed_by_block(template, text, below, context),
            (Value::Object(map), _) => {
                let holes = map.iter().filter(|(_, value)| value.is_null());
                holes.flat_map(|(key, _)| self.printed_by_block(template, key, below, context)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The values that a text of several lines prints: all of it, or its first line that changes.
    fn printed_by_lines(
        &self,
        template: &ChartTemplate,
        text: &str,
        (declared, new): (&str, Option<&str>),
        context: &TemplateContext<'_>,
    ) -> Vec<FoundPrinter> {
        let lines = || {
            text.lines().map(str::trim).map(|line| {
                line.strip_suffix(':').filter(|hole| template.action(hole).is_some()).unwrap_or(line)
            })
        };
        let whole = lines().flat_map(|line| self.printed_by_block(template, line, &[], context));
        let whole: Vec<_> = whole.collect();
        let changed = new.and_then(|new| declared.lines().zip(new.lines()).find(|(old, new)| old != new));
        let (true, Some((old, new))) = (whole.is_empty(), changed) else { return whole };
        lines().flat_map(|line| aligned(template, line, (old.trim(), Some(new.trim())), context)).collect()
    }

    /// The value that an action prints as a whole block, which contains the field.
    fn printed_by_block(
        &self,
        template: &ChartTemplate,
        text: &str,
        below: &[String],
        context: &TemplateContext<'_>,
    ) -> Vec<FoundPrinter> {
        let Some(action) = template.action(text).filter(|action| action.is_plain) else { return Vec::new() };
        let values = action.refs.iter().filter(|value| value.element.is_none());
        let printers = values.filter_map(|value| self.printed_by(&value.path, below, context));
        printers.map(|printer| FoundPrinter { printer, line: action.line }).collect()
    }

    /// The value at or below this path that equals the field.
    fn printed_by(
        &self,
        path: &[String],
        below: &[String],
        TemplateContext { values, .. }: &TemplateContext<'_>,
    ) -> Option<ValueMatch> {
        let (mut value, mut named, mut is_list) = (value_at(values, path)?, path.to_vec(), false);
        for step in below {
            is_list |= value.is_array();
            value = child(value, step)?;
            if !is_list {
                named.push(step.clone());
            }
        }
        let is_equal = match (value_text(value), value_text(self.declared)) {
            (Some(value), Some(declared)) => value.trim_end() == declared.trim_end(),
            (None, None) => value == self.declared,
            _ => false,
        };
        let new = self.new.filter(|_| !is_list).and_then(value_text);
        is_equal.then_some(ValueMatch { path: named, is_equal, is_list, is_part: false, new })
    }
}

/// The values that print `declared` with this text of a template, and what they must be to print `new`.
fn aligned(
    template: &ChartTemplate,
    text: &str,
    (declared, new): (&str, Option<&str>),
    context: &TemplateContext<'_>,
) -> Vec<FoundPrinter> {
    let Some(line) = template.pieces(text).find_map(Result::err).map(|action| action.line) else {
        return Vec::new();
    };
    let printers = align(&Printed::pieces(text, template, context), declared, new, context);
    printers.into_iter().flatten().map(|printer| FoundPrinter { printer, line }).collect()
}

/// The minimum length of a value that is searched in a function's output.
const TELLING: usize = 2;

/// The most values of one line that are tried together.
const PARTS: usize = 6;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ValueMatch {
    pub(super) path: Vec<String>,
    /// Whether the text is the value, or its default.
    pub(super) is_equal: bool,
    /// Whether it is a list, of which a part is printed.
    pub(super) is_list: bool,
    /// Whether the text consists of this value and others, and it is not known that one of them alone makes the new text.
    pub(super) is_part: bool,
    /// The text that the value must have to print the new text.
    pub(super) new: Option<String>,
}

/// A part of a text, and the value that prints it.
pub(super) struct TextPart {
    pub(super) text: String,
    pub(super) value: Option<Vec<String>>,
}

#[derive(Clone, Debug)]
enum Printed<'a> {
    /// A text, and the value that it comes from.
    Known(String, Option<&'a Ref>),
    /// The result of functions that are not run, and the values that they use.
    Unknown(Vec<&'a Ref>),
}

impl ValueMatch {
    /// The value at `path`, which equals the text.
    pub(super) fn equal(path: Vec<String>, new: Option<&str>) -> Self {
        let new = new.map(str::to_owned);
        Self { path, is_equal: true, is_list: false, is_part: false, new }
    }
}

impl<'a> Printed<'a> {
    fn pieces(text: &str, template: &'a ChartTemplate, context: &'a TemplateContext<'_>) -> Vec<Self> {
        let pieces = template.pieces(text).map(|piece| match piece {
            Ok(literal) => Self::Known(literal.to_owned(), None),
            Err(action) => Self::new(action, context),
        });
        pieces.collect()
    }

    fn new(
        action: &'a Expression,
        TemplateContext { values, helpers, chart, .. }: &'a TemplateContext<'_>,
    ) -> Self {
        let value = |value: &Ref| value_at(values, &value.path);
        let is_open = |it: &Ref| it.element.is_some() || value(it).is_some_and(super::is_open);
        if !action.is_plain || action.refs.iter().any(is_open) {
            return Self::Unknown(helpers.refs(action).collect());
        }
        let scalar = action.refs.iter().find_map(|it| Some((value(it).and_then(value_text)?, Some(it))));
        let default = || {
            let builtin = action.builtin.as_deref().and_then(|name| chart.builtin(name));
            Some((builtin.or_else(|| action.fallback.clone())?, action.refs.first()))
        };
        match scalar.or_else(default) {
            Some((text, value)) => Self::Known(text, value),
            None => Self::Unknown(helpers.refs(action).collect()),
        }
    }

    fn text(&self) -> Option<String> {
        match self {
            Self::Known(text, _) => Some(text.clone()),
            Self::Unknown(_) => None,
        }
    }
}

/// The values that print `declared`, and what they must be to print `new`. For a new text these are the fewest values
/// that print it; if there are none, all values.
fn align(
    pieces: &[Printed<'_>],
    declared: &str,
    new: Option<&str>,
    context: &TemplateContext<'_>,
) -> Option<Vec<ValueMatch>> {
    let texts = complete(pieces, declared)?;
    let (mut parts, mut others) = (Vec::new(), Vec::new());
    for (at, (piece, text)) in pieces.iter().zip(&texts).enumerate() {
        match piece {
            Printed::Known(_, value) => {
                parts.push(TextPart { text: text.clone(), value: value.map(|value| value.path.clone()) });
            }
            Printed::Unknown(refs) => {
                let around = |texts: Option<&[String]>| texts.unwrap_or_default().concat();
                let (before, after) = (around(texts.get(..at)), around(texts.get(at + 1..)));
                let wanted = new.and_then(|new| new.strip_prefix(&*before)?.strip_suffix(&*after));
                let cut = cut(refs, text, context);
                let is_known = cut.iter().any(|part| part.value.is_some());
                others.extend(elements(refs, (text, wanted), is_known, context));
                parts.extend(cut);
            }
        }
    }
    if let Some(new) = new.filter(|new| *new != declared) {
        let others = others.iter().filter(|printer| printer.new.is_some()).cloned();
        let found: Vec<ValueMatch> = fewest(&parts, new).into_iter().chain(others).collect();
        if !found.is_empty() {
            return Some(found);
        }
    }
    let paths: Vec<_> = parts.into_iter().filter_map(|part| part.value).collect();
    let is_part = paths.len() > 1;
    let all = paths.into_iter().map(|path| ValueMatch { is_part, ..ValueMatch::equal(path, None) });
    Some(all.chain(others.into_iter().map(|printer| ValueMatch { new: None, ..printer })).collect())
}

/// The output of a function, split into its values and the text between them. If several values match at one position,
/// the longest wins.
fn cut(refs: &[&Ref], text: &str, TemplateContext { values, .. }: &TemplateContext<'_>) -> Vec<TextPart> {
    let refs = refs.iter().filter(|value| value.element.is_none());
    let mut leaves: Vec<_> = refs.flat_map(|value| value_leaves(values, &value.path)).collect();
    leaves.sort_by_key(|leaf| Reverse(leaf.text.len()));
    let literal = |text: &str| TextPart { text: text.to_owned(), value: None };
    let mut parts = vec![literal(text)];
    for leaf in leaves {
        let literals = parts.iter().enumerate().filter(|(_, part)| part.value.is_none());
        let mut found = literals.filter_map(|(at, part)| Some((at, around(&part.text, &leaf.text)?)));
        let Some((at, (before, after))) = found.next() else { continue };
        let value = TextPart { text: leaf.text.clone(), value: Some(leaf.path) };
        let cut = [literal(before), value, literal(after)];
        drop(parts.splice(at..=at, cut.into_iter().filter(|part| !part.text.is_empty())));
    }
    parts
}

/// The fewest values that print a new text, and what each must be: all that do so alone, else the smallest set.
pub(super) fn fewest(parts: &[TextPart], new: &str) -> Vec<ValueMatch> {
    let values: Vec<usize> =
        parts.iter().enumerate().filter(|(_, part)| part.value.is_some()).map(|(at, _)| at).collect();
    let alone: Vec<ValueMatch> =
        values.iter().filter_map(|at| changed(parts, &[*at], new)).flatten().collect();
    if !alone.is_empty() || values.len() > PARTS {
        return alone;
    }
    let subset = |bits: u32| -> Vec<usize> {
        let values = values.iter().enumerate().filter(|(bit, _)| (bits >> bit) & 1 == 1);
        values.map(|(_, at)| *at).collect()
    };
    let mut sets: Vec<_> = (0..1 << values.len()).map(subset).filter(|set| set.len() > 1).collect();
    sets.sort_by_key(Vec::len);
    sets.iter().find_map(|set| changed(parts, set, new)).unwrap_or_default()
}

/// The texts that the parts in `set` must have to print `new`, while the others stay. If the text between two of them
/// occurs several times, like the colon in the image `host:5000/app:1`, the last one counts.
fn changed(parts: &[TextPart], set: &[usize], new: &str) -> Option<Vec<ValueMatch>> {
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
        let printer = ValueMatch { is_part: set.len() > 1, ..ValueMatch::equal(path, Some(text)) };
        (!text.is_empty()).then_some(printer)
    });
    let printers = printers.collect::<Option<Vec<_>>>()?;
    // One value in two places has one text.
    let agree = |one: &ValueMatch| printers.iter().all(|it| it.path != one.path || it.new == one.new);
    printers.iter().all(agree).then_some(printers)
}

/// Whether these pieces can print this text. With more than one unknown piece this cannot be decided, and the
/// answer is yes.
fn can_print(pieces: &[Printed<'_>], text: &str) -> bool {
    pieces.iter().filter(|piece| piece.text().is_none()).count() > 1 || complete(pieces, text).is_some()
}

/// The texts of all pieces, of which one may be unknown. `None` if they do not match `declared`.
fn complete(pieces: &[Printed<'_>], declared: &str) -> Option<Vec<String>> {
    let texts = |pieces: &[Printed<'_>]| pieces.iter().map(Printed::text).collect::<Option<Vec<_>>>();
    let Some(at) = pieces.iter().position(|piece| piece.text().is_none()) else {
        return texts(pieces).filter(|texts| texts.concat() == declared);
    };
    let (before, after) = (texts(pieces.get(..at)?)?, texts(pieces.get(at + 1..)?)?);
    let middle = declared.strip_prefix(&*before.concat())?.strip_suffix(&*after.concat())?.to_owned();
    Some(before.into_iter().chain([middle]).chain(after).collect())
}

/// The elements of maps and lists that print a function's text; if nothing does, the function's only value.
fn elements(
    refs: &[&Ref],
    (text, wanted): (&str, Option<&str>),
    is_known: bool,
    TemplateContext { values, place, .. }: &TemplateContext<'_>,
) -> Vec<ValueMatch> {
    let found = refs.iter().filter_map(|value| {
        let element = value.element.as_ref()?;
        of_element(value_at(values, &value.path)?, (&value.path, element), (text, wanted), place)
    });
    let found: Vec<ValueMatch> = found.collect();
    match refs {
        [value] if found.is_empty() && !is_known && value.element.is_none() => {
            let is_open = value_at(values, &value.path).is_some_and(super::is_open);
            let only = ValueMatch { is_equal: false, ..ValueMatch::equal(value.path.clone(), None) };
            Vec::from_iter((!is_open).then_some(only))
        }
        _ => found,
    }
}

/// An element of a map or list that prints a text.
fn of_element(
    container: &Value,
    (path, element): (&[String], &[String]),
    (text, wanted): (&str, Option<&str>),
    place: &str,
) -> Option<ValueMatch> {
    let prints = |value: &Value| value_at(value, element).and_then(value_text).is_some_and(|it| it == text);
    match container {
        Value::Object(map) => {
            let value = map.get(place).filter(|value| prints(value)).map(|_| place.to_owned());
            let mut others = map.iter().filter(|(_, value)| prints(value)).map(|(name, _)| name.clone());
            let name = value.or_else(|| others.next().filter(|_| others.next().is_none()))?;
            let path = [path, &[name], element].concat();
            Some(ValueMatch::equal(path, wanted))
        }
        Value::Array(items) => items
            .iter()
            .any(prints)
            .then(|| ValueMatch { is_list: true, ..ValueMatch::equal(path.to_vec(), None) }),
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
