//! The lines of a template that render one field.
//!
//! Entry point: [`printers`]. Invariant: a line counts only where every key above it, and every literal beside it in a list
//! element, are those of the rendered object.

use serde_json::Value;

use super::outline::{HOLE, Node, Outline, Step, unquoted};
use super::printed::{Printed, Printer, align};
use super::template::Template;
use super::{Context, tree};

/// The field whose value is looked for.
pub(super) struct Wanted<'a> {
    /// Where it stands in the object.
    pub(super) steps: &'a [Step],
    /// The object as it was rendered.
    pub(super) rendered: &'a Outline,
    /// The rendered value.
    pub(super) declared: &'a Value,
    /// The value that somebody wants instead.
    pub(super) new: Option<&'a Value>,
}

/// What prints a field, and where.
pub(super) struct Found {
    pub(super) printer: Printer,
    /// The line of the template, from 1.
    pub(super) line: usize,
}

/// The values by which a template prints a field.
pub(super) fn printers(template: &Template, wanted: &Wanted<'_>, context: &Context<'_>) -> Vec<Found> {
    for length in (1..=wanted.steps.len()).rev() {
        let Some((steps, below)) = wanted.steps.split_at_checked(length) else { continue };
        let node = wanted.rendered_at(steps);
        let found: Vec<Found> = template
            .outline
            .nodes
            .iter()
            .enumerate()
            .filter(|(at, node_of)| wanted.is_place(template, (*at, node_of), steps, node))
            .flat_map(|(at, node)| wanted.at(template, (at, node), below, context))
            .collect();
        if !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

impl Wanted<'_> {
    /// The node of the rendered object at these steps.
    fn rendered_at(&self, steps: &[Step]) -> Option<usize> {
        let mut at: Option<usize> = None;
        for step in steps {
            let nodes = self.rendered.nodes.iter();
            at = Some(nodes.enumerate().find(|(_, node)| node.parent == at && node.step == *step)?.0);
        }
        at
    }

    /// Whether a node of a template renders what stands at these steps.
    fn is_place(
        &self,
        template: &Template,
        (at, node): (usize, &Node),
        steps: &[Step],
        rendered: Option<usize>,
    ) -> bool {
        let last = steps.last().is_some_and(|step| is_step(&node.step, step));
        if !last || !self.is_of_kind(template, node) {
            return false;
        }
        let above = template.outline.steps(at);
        if above.len() != steps.len() || !above.iter().zip(steps).all(|(step, wanted)| is_step(step, wanted))
        {
            return false;
        }
        let Some(rendered) = rendered else { return true };
        // The elements on the way are told apart by what is literal in them.
        let mut pair = (Some(at), Some(rendered));
        while let (Some(here), Some(there)) = pair {
            let (Some(node), Some(other)) =
                (template.outline.nodes.get(here), self.rendered.nodes.get(there))
            else {
                break;
            };
            if matches!(node.step, Step::Item(_)) && !may_be(&template.outline, here, self.rendered, there) {
                return false;
            }
            pair = (node.parent, other.parent);
        }
        true
    }

    fn is_of_kind(&self, template: &Template, node: &Node) -> bool {
        let kind = |outline: &Outline, document: Option<usize>| {
            let roots = outline
                .nodes
                .iter()
                .filter(|it| it.parent.is_none() && document.is_none_or(|no| it.document == no));
            let kinds = roots.filter(|it| it.step == Step::Field("kind".to_owned()));
            kinds.map(|it| unquoted(&it.value).to_owned()).next()
        };
        let rendered = kind(self.rendered, None);
        kind(&template.outline, Some(node.document))
            .is_none_or(|it| it.contains(HOLE) || Some(it) == rendered)
    }

    /// What the line of this node, and the lines below it, print of the field.
    fn at(
        &self,
        template: &Template,
        (at, node): (usize, &Node),
        below: &[Step],
        context: &Context<'_>,
    ) -> Vec<Found> {
        let line = node.line + 1;
        let found =
            |printers: Vec<Printer>| printers.into_iter().map(|printer| Found { printer, line }).collect();
        let (declared, new) = (tree::text(self.declared), self.new.and_then(tree::text));
        let actions = template.actions(node.line, node.holes_before);
        let is_block = node.value.starts_with(['|', '>']);
        match (below.is_empty(), &declared) {
            (true, Some(declared)) if node.value.contains(HOLE) && !is_block => {
                let pieces = Printed::of(unquoted(&node.value), actions, context);
                found(align(&pieces, declared, new.as_deref(), context).unwrap_or_default())
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

    /// What the lines of a text block print: the whole of it, or its first line that changes.
    fn in_text(
        &self,
        template: &Template,
        at: usize,
        (declared, new): (&str, Option<&str>),
        context: &Context<'_>,
    ) -> Vec<Found> {
        let whole = self.in_blocks(template, at, &[], context);
        let Some(new) = new.filter(|_| whole.is_empty()) else { return whole };
        let Some((old, new)) = declared.lines().zip(new.lines()).find(|(old, new)| old != new) else {
            return Vec::new();
        };
        let lines = template.outline.blocks.iter().filter(|(_, node)| *node == at).map(|(line, _)| *line);
        let printers = lines.flat_map(|line| {
            let text = template.lines.get(line).map_or("", |line| line.text.trim());
            let pieces = Printed::of(text, template.actions(line, 0), context);
            let printers = align(&pieces, old.trim(), Some(new.trim()), context).unwrap_or_default();
            printers.into_iter().map(move |printer| Found { printer, line: line + 1 })
        });
        printers.collect()
    }

    /// What a map in braces prints behind the field's own name.
    fn in_braces(
        &self,
        node: &Node,
        template: &Template,
        (declared, new): (&str, Option<&str>),
        context: &Context<'_>,
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
                let pieces = Printed::of(&HOLE.to_string(), actions.get(..1).unwrap_or_default(), context);
                return align(&pieces, declared, new, context).unwrap_or_default();
            }
            before = after;
        }
        Vec::new()
    }

    /// What the actions below a key print there, which hold more than the field.
    fn in_blocks(&self, template: &Template, at: usize, below: &[Step], context: &Context<'_>) -> Vec<Found> {
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
            found.extend(printers.map(|printer| Found { printer, line: line + 1 }));
        }
        found
    }

    /// The value at or below this path that is the field's.
    fn printed_by(
        &self,
        path: &[String],
        below: &[Step],
        Context { values, .. }: &Context<'_>,
    ) -> Option<Printer> {
        let (mut value, mut named, mut is_list) = (tree::find(values, path)?, path.to_vec(), false);
        for step in below {
            value = match step {
                Step::Field(name) => value.get(name)?,
                Step::Item(index) => value.get(index)?,
            };
            is_list |= matches!(step, Step::Item(_));
            if let (Step::Field(name), false) = (step, is_list) {
                named.push(name.clone());
            }
        }
        let is_equal = match (tree::text(value), tree::text(self.declared)) {
            (Some(value), Some(declared)) => value.trim_end() == declared.trim_end(),
            (None, None) => value == self.declared,
            _ => false,
        };
        let new = self.new.filter(|_| !is_list).and_then(tree::text);
        is_equal.then_some(Printer { path: named, is_equal, is_list, new })
    }
}

/// Whether a step of a template can be this one of a rendered object.
fn is_step(step: &Step, wanted: &Step) -> bool {
    match (step, wanted) {
        (Step::Field(name), Step::Field(wanted)) => name == wanted || name.contains(HOLE),
        (Step::Item(_), Step::Item(_)) => true,
        _ => false,
    }
}

/// Whether no literal of an element of a template rules this rendered one out.
fn may_be(template: &Outline, here: usize, rendered: &Outline, there: usize) -> bool {
    rendered.below(there).filter(|other| !other.value.is_empty()).all(|other| {
        let mut same = template.below(here).filter(|node| node.step == other.step).peekable();
        same.peek().is_none()
            || same.any(|node| node.value.contains(HOLE) || unquoted(&node.value) == unquoted(&other.value))
    })
}
