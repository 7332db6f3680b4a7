//! The lines of a template that render one field, compared with the rendered text. A line counts only where every key above
//! it, and every literal beside it in a list element, are those of the rendered object; a value is named for a part of a
//! text only where all other parts match.

use std::cmp::Reverse;

use serde_json::Value;

use super::template::{
    ChartTemplate, Expression, HOLE, OutlineNode, OutlineStep, Ref, YamlOutline, unquoted,
};
use super::{TemplateContext, value_at, value_leaves, value_text};

pub(super) struct WantedField<'a> {
    pub(super) steps: &'a [OutlineStep],
    pub(super) rendered: &'a YamlOutline,
    pub(super) declared: &'a Value,
    pub(super) new: Option<&'a Value>,
}

pub(super) struct FoundPrinter {
    pub(super) printer: Printer,
    pub(super) line: usize,
}

/// The values by which a template prints a field.
pub(super) fn printers(
    template: &ChartTemplate,
    wanted: &WantedField<'_>,
    context: &TemplateContext<'_>,
) -> Vec<FoundPrinter> {
    let count = template.outline.nodes.last().map_or(0, |node| node.document + 1);
    let documents: Vec<bool> =
        (0..count).map(|document| wanted.is_of_object(template, document, context)).collect();
    let is_here = |node: &OutlineNode| documents.get(node.document).copied().unwrap_or_default();
    let naming = names(template, &is_here, context);
    for length in (1..=wanted.steps.len()).rev() {
        let Some((steps, below)) = wanted.steps.split_at_checked(length) else { continue };
        let node = wanted.rendered_at(steps);
        let found: Vec<FoundPrinter> = template
            .outline
            .nodes
            .iter()
            .enumerate()
            .filter(|(at, of)| is_here(of) && wanted.is_place(template, (*at, of), steps, node))
            .flat_map(|(at, node)| wanted.at(template, (at, node), below, context))
            // A value that renames the object does not change the field.
            .filter(|found| !naming.contains(&found.printer.path))
            .collect();
        if !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

impl WantedField<'_> {
    /// The node of the rendered object at these steps.
    fn rendered_at(&self, steps: &[OutlineStep]) -> Option<usize> {
        let mut at: Option<usize> = None;
        for step in steps {
            let nodes = self.rendered.nodes.iter();
            at = Some(nodes.enumerate().find(|(_, node)| node.parent == at && node.step == *step)?.0);
        }
        at
    }

    /// Whether a node of a template renders the value at these steps.
    fn is_place(
        &self,
        template: &ChartTemplate,
        (at, node): (usize, &OutlineNode),
        steps: &[OutlineStep],
        rendered: Option<usize>,
    ) -> bool {
        let last = steps.last().is_some_and(|step| is_step(&node.step, step));
        if !last {
            return false;
        }
        let above = template.outline.steps(at);
        if above.len() != steps.len() || !above.iter().zip(steps).all(|(step, wanted)| is_step(step, wanted))
        {
            return false;
        }
        let Some(rendered) = rendered else { return true };
        // Elements on the way are identified by their literal fields.
        let mut pair = (Some(at), Some(rendered));
        while let (Some(here), Some(there)) = pair {
            let (Some(node), Some(other)) =
                (template.outline.nodes.get(here), self.rendered.nodes.get(there))
            else {
                break;
            };
            if matches!(node.step, OutlineStep::Item(_))
                && !may_be(&template.outline, here, self.rendered, there)
            {
                return false;
            }
            pair = (node.parent, other.parent);
        }
        true
    }

    /// Whether a document of a template is of the object's kind and name.
    fn is_of_object(&self, template: &ChartTemplate, document: usize, context: &TemplateContext<'_>) -> bool {
        let Some(kind) = root(&template.outline, Some(document), "kind") else { return true };
        let rendered = root(self.rendered, None, "kind");
        let is_kind = kind.value.contains(HOLE)
            || rendered.is_some_and(|rendered| unquoted(&rendered.value) == unquoted(&kind.value));
        let names = (name(&template.outline, Some(document)), name(self.rendered, None));
        let (Some(name), Some(rendered)) = names else { return is_kind };
        let pieces =
            Printed::pieces(unquoted(&name.value), template.actions(name.line, name.holes_before), context);
        is_kind && can_print(&pieces, unquoted(&rendered.value))
    }

    /// The values that this node's line, and the lines below it, print into the field.
    fn at(
        &self,
        template: &ChartTemplate,
        (at, node): (usize, &OutlineNode),
        below: &[OutlineStep],
        context: &TemplateContext<'_>,
    ) -> Vec<FoundPrinter> {
        let line = node.line + 1;
        let found = |printers: Vec<Printer>| {
            printers.into_iter().map(|printer| FoundPrinter { printer, line }).collect()
        };
        let (declared, new) = (value_text(self.declared), self.new.and_then(value_text));
        let actions = template.actions(node.line, node.holes_before);
        let is_block = node.value.starts_with(['|', '>']);
        match (below.is_empty(), &declared) {
            (true, Some(declared)) if node.value.contains(HOLE) && !is_block => {
                let pieces = Printed::pieces(unquoted(&node.value), actions, context);
                let mut printers = align(&pieces, declared, new.as_deref(), context).unwrap_or_default();
                // Any element may be this one.
                printers.retain(|printer| printer.is_equal || matches!(node.step, OutlineStep::Field(_)));
                found(printers)
            }
            (true, Some(declared)) if is_block => {
                self.in_text(template, at, (declared, new.as_deref()), context)
            }
            (false, Some(declared)) if node.value.starts_with('{') => {
                found(self.in_braces(node, template, (declared, new.as_deref()), context))
            }
            _ => self.in_blocks(template, at, below, context),
        }
    }

    /// The values that a text block prints: all of it, or its first line that changes.
    fn in_text(
        &self,
        template: &ChartTemplate,
        at: usize,
        (declared, new): (&str, Option<&str>),
        context: &TemplateContext<'_>,
    ) -> Vec<FoundPrinter> {
        let whole = self.in_blocks(template, at, &[], context);
        let Some(new) = new.filter(|_| whole.is_empty()) else { return whole };
        let Some((old, new)) = declared.lines().zip(new.lines()).find(|(old, new)| old != new) else {
            return Vec::new();
        };
        let lines = template.outline.blocks.iter().filter(|(_, node)| *node == at).map(|(line, _)| *line);
        let printers = lines.flat_map(|line| {
            let text = template.lines.get(line).map_or("", |line| line.text.trim());
            let pieces = Printed::pieces(text, template.actions(line, 0), context);
            let printers = align(&pieces, old.trim(), Some(new.trim()), context).unwrap_or_default();
            printers.into_iter().map(move |printer| FoundPrinter { printer, line: line + 1 })
        });
        printers.collect()
    }

    /// The values that a map in braces prints after the field's own name.
    fn in_braces(
        &self,
        node: &OutlineNode,
        template: &ChartTemplate,
        (declared, new): (&str, Option<&str>),
        context: &TemplateContext<'_>,
    ) -> Vec<Printer> {
        let mut pieces = node.value.split(HOLE);
        let mut before = pieces.next().unwrap_or_default();
        for (number, after) in pieces.enumerate() {
            let name = before.trim_end_matches(['"', '\'']).trim_end();
            let name =
                name.strip_suffix(':').map(|name| name.rsplit(['{', ',', ' ']).next().unwrap_or_default());
            if name == Some(context.place)
                && after.trim_start_matches(['"', '\'']).trim_start().starts_with([',', '}'])
            {
                let actions = template.actions(node.line, node.holes_before + number);
                let pieces =
                    Printed::pieces(&HOLE.to_string(), actions.get(..1).unwrap_or_default(), context);
                return align(&pieces, declared, new, context).unwrap_or_default();
            }
            before = after;
        }
        Vec::new()
    }

    /// The values that actions below a key print there as whole blocks, which contain the field.
    fn in_blocks(
        &self,
        template: &ChartTemplate,
        at: usize,
        below: &[OutlineStep],
        context: &TemplateContext<'_>,
    ) -> Vec<FoundPrinter> {
        let mut found = Vec::new();
        let lines = template.outline.blocks.iter().filter(|(_, node)| *node == at).map(|(line, _)| *line);
        let inline = template.outline.nodes.get(at).filter(|node| node.value.trim().chars().eq([HOLE]));
        for (line, skipped) in
            lines.map(|line| (line, 0)).chain(inline.map(|node| (node.line, node.holes_before)))
        {
            let [action] = template.actions(line, skipped) else { continue };
            let values = action.refs.iter().filter(|_| action.is_plain);
            let printers = values.filter_map(|value| match value.element {
                None => self.printed_by(&value.path, below, context),
                Some(_) => None,
            });
            found.extend(printers.map(|printer| FoundPrinter { printer, line: line + 1 }));
        }
        found
    }

    /// The value at or below this path that is the field's.
    fn printed_by(
        &self,
        path: &[String],
        below: &[OutlineStep],
        TemplateContext { values, .. }: &TemplateContext<'_>,
    ) -> Option<Printer> {
        let (mut value, mut named, mut is_list) = (value_at(values, path)?, path.to_vec(), false);
        for step in below {
            value = match step {
                OutlineStep::Field(name) => value.get(name)?,
                OutlineStep::Item(index) => value.get(index)?,
            };
            is_list |= matches!(step, OutlineStep::Item(_));
            if let (OutlineStep::Field(name), false) = (step, is_list) {
                named.push(name.clone());
            }
        }
        let is_equal = match (value_text(value), value_text(self.declared)) {
            (Some(value), Some(declared)) => value.trim_end() == declared.trim_end(),
            (None, None) => value == self.declared,
            _ => false,
        };
        let new = self.new.filter(|_| !is_list).and_then(value_text);
        is_equal.then_some(Printer { path: named, is_equal, is_list, is_part: false, new })
    }
}

/// The values by which a template names its object.
fn names(
    template: &ChartTemplate,
    is_here: &dyn Fn(&OutlineNode) -> bool,
    context: &TemplateContext<'_>,
) -> Vec<Vec<String>> {
    let documents = template.outline.nodes.iter().filter(|node| is_here(node)).map(|node| node.document);
    let mut documents: Vec<usize> = documents.collect();
    documents.dedup();
    let lines = documents.into_iter().filter_map(|document| name(&template.outline, Some(document)));
    let actions = lines.flat_map(|node| template.actions(node.line, node.holes_before));
    let refs = actions.flat_map(|action| context.helpers.refs(action));
    refs.filter(|value| value.element.is_none()).map(|value| value.path.clone()).collect()
}

/// A key at the root of a document; of any document where none is named.
fn root<'o>(outline: &'o YamlOutline, document: Option<usize>, key: &str) -> Option<&'o OutlineNode> {
    let is = |node: &&OutlineNode| {
        node.parent.is_none()
            && document.is_none_or(|it| node.document == it)
            && matches!(&node.step, OutlineStep::Field(name) if name == key)
    };
    outline.nodes.iter().find(is)
}

fn name(outline: &YamlOutline, document: Option<usize>) -> Option<&OutlineNode> {
    let metadata = root(outline, document, "metadata")?;
    let at = outline.nodes.iter().position(|node| std::ptr::eq(node, metadata))?;
    outline.below(at).find(|node| matches!(&node.step, OutlineStep::Field(name) if name == "name"))
}

/// Whether a step of a template can be this one of a rendered object.
fn is_step(step: &OutlineStep, wanted: &OutlineStep) -> bool {
    match (step, wanted) {
        (OutlineStep::Field(name), OutlineStep::Field(wanted)) => name == wanted || name.contains(HOLE),
        (OutlineStep::Item(_), OutlineStep::Item(_)) => true,
        _ => false,
    }
}

/// Whether an element of a template can be this rendered one: none of its literals contradicts it.
fn may_be(template: &YamlOutline, here: usize, rendered: &YamlOutline, there: usize) -> bool {
    rendered.below(there).filter(|other| !other.value.is_empty()).all(|other| {
        let mut same = template.below(here).filter(|node| node.step == other.step).peekable();
        same.peek().is_none()
            || same.any(|node| node.value.contains(HOLE) || unquoted(&node.value) == unquoted(&other.value))
    })
}

/// The minimum length of a value that is searched in a function's output.
const TELLING: usize = 2;

/// The most values of one line that are tried together.
const PARTS: usize = 6;

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

struct TextPart {
    text: String,
    value: Option<Vec<String>>,
}

#[derive(Clone, Debug)]
pub(super) enum Printed<'a> {
    Literal(String),
    /// A known text, and the value that it is.
    Known(String, Option<&'a Ref>),
    /// The result of functions that are not run, with their values.
    Unknown(Vec<&'a Ref>),
}

impl Printer {
    /// The value at `path`, which is the text.
    pub(super) fn equal(path: Vec<String>, new: Option<&str>) -> Self {
        let new = new.map(str::to_owned);
        Self { path, is_equal: true, is_list: false, is_part: false, new }
    }
}

impl<'a> Printed<'a> {
    pub(super) fn pieces(
        skeleton: &str,
        actions: &'a [Expression],
        context: &'a TemplateContext<'_>,
    ) -> Vec<Self> {
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

    fn of_action(
        action: &'a Expression,
        TemplateContext { values, helpers, chart, .. }: &'a TemplateContext<'_>,
    ) -> Self {
        let unknown = || Self::Unknown(helpers.refs(action).collect());
        if !action.is_plain {
            return unknown();
        }
        let scalar = |value: &'a Ref| {
            let found = value_at(values, &value.path).filter(|_| value.element.is_none())?;
            Some(Self::Known(value_text(found)?, Some(value)))
        };
        let of_default = || {
            let builtin = action.builtin.as_deref().and_then(|name| chart.builtin(name));
            let text = builtin.or_else(|| action.fallback.clone())?;
            Some(Self::Known(text, action.refs.first()))
        };
        let is_open = |value: &&Ref| {
            value.element.is_some()
                || value_at(values, &value.path).is_some_and(|it| it.is_object() || it.is_array())
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
    context: &TemplateContext<'_>,
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
            Printed::Known(_, Some(value)) => {
                vec![Printer::equal(value.path.clone(), wanted.filter(|wanted| *wanted != text))]
            }
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
fn parts(
    pieces: &[Printed<'_>],
    texts: &[String],
    TemplateContext { values, .. }: &TemplateContext<'_>,
) -> Vec<TextPart> {
    let mut parts = Vec::new();
    for (piece, text) in pieces.iter().zip(texts) {
        match piece {
            Printed::Literal(_) => parts.push(TextPart { text: text.clone(), value: None }),
            Printed::Known(_, value) => {
                parts.push(TextPart { text: text.clone(), value: value.map(|value| value.path.clone()) });
            }
            Printed::Unknown(refs) => {
                let refs = refs.iter().filter(|value| value.element.is_none());
                let mut leaves: Vec<_> = refs.flat_map(|value| value_leaves(values, &value.path)).collect();
                leaves.sort_by_key(|leaf| Reverse(leaf.text.len()));
                let mut within = vec![TextPart { text: text.clone(), value: None }];
                for leaf in leaves {
                    let free = within
                        .iter()
                        .position(|part| part.value.is_none() && around(&part.text, &leaf.text).is_some());
                    let Some(at) = free else { continue };
                    let part = within.remove(at);
                    let Some((before, after)) = around(&part.text, &leaf.text) else { continue };
                    let literal = |text: &str| TextPart { text: text.to_owned(), value: None };
                    let value = TextPart { text: leaf.text, value: Some(leaf.path) };
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
fn together(parts: &[TextPart], new: &str) -> Option<Vec<Printer>> {
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
fn changed(parts: &[TextPart], set: &[usize], new: &str) -> Option<Vec<Printer>> {
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
        (!text.is_empty()).then(|| Printer { is_part: true, ..Printer::equal(path, Some(text)) })
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
    TemplateContext { values, place, .. }: &TemplateContext<'_>,
) -> Vec<Printer> {
    let mut found = Vec::new();
    for value in refs {
        if let Some(element) = &value.element {
            let container = value_at(values, &value.path);
            found.extend(
                container.and_then(|it| of_element(it, (&value.path, element), (text, wanted), place)),
            );
            continue;
        }
        for leaf in value_leaves(values, &value.path) {
            if let Some((before, after)) = around(text, &leaf.text) {
                let new = wanted.and_then(|wanted| wanted.strip_prefix(before)?.strip_suffix(after));
                if wanted.is_none() || new.is_some() {
                    found.push(Printer::equal(leaf.path, new.filter(|new| *new != leaf.text)));
                }
            }
        }
    }
    // Of an image it is the tag that changes.
    found.sort_by_key(|printer| printer.path.last().is_none_or(|name| name != "tag"));
    if let ([value], true) = (refs, found.is_empty())
        && value.element.is_none()
        && value_at(values, &value.path).is_none_or(|it| !it.is_object() && !it.is_array())
    {
        found.push(Printer { is_equal: false, ..Printer::equal(value.path.clone(), None) });
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
    let prints = |value: &Value| value_at(value, element).and_then(value_text).is_some_and(|it| it == text);
    match container {
        Value::Object(map) => {
            let value = map.get(place).filter(|value| prints(value)).map(|_| place.to_owned());
            let mut others = map.iter().filter(|(_, value)| prints(value)).map(|(name, _)| name.clone());
            let name = value.or_else(|| others.next().filter(|_| others.next().is_none()))?;
            let path = [path, &[name], element].concat();
            Some(Printer::equal(path, wanted))
        }
        Value::Array(items) => {
            items.iter().any(prints).then(|| Printer { is_list: true, ..Printer::equal(path.to_vec(), None) })
        }
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
