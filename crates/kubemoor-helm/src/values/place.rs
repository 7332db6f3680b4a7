//! The lines of a template that render one field.
//!
//! Entry point: [`printers`]. Invariant: a line counts only where every key above it, and every literal beside it in a list
//! element, are those of the rendered object.

use serde_json::Value;

use super::outline::{HOLE, Node, Outline, Step, unquoted};
use super::printed::{Printed, Printer, align, can_print};
use super::template::Template;
use super::{Context, tree};

/// The field whose value is looked for.
pub(super) struct Wanted<'a> {
    /// The steps to it in the object.
    pub(super) steps: &'a [Step],
    /// The object as it was rendered.
    pub(super) rendered: &'a Outline,
    /// The rendered value.
    pub(super) declared: &'a Value,
    /// The requested new value.
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
    let count = template.outline.nodes.last().map_or(0, |node| node.document + 1);
    let documents: Vec<bool> =
        (0..count).map(|document| wanted.is_of_object(template, document, context)).collect();
    let is_here = |node: &Node| documents.get(node.document).copied().unwrap_or_default();
    let naming = names(template, &is_here, context);
    for length in (1..=wanted.steps.len()).rev() {
        let Some((steps, below)) = wanted.steps.split_at_checked(length) else { continue };
        let node = wanted.rendered_at(steps);
        let found: Vec<Found> = template
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

    /// Whether a node of a template renders the value at these steps.
    fn is_place(
        &self,
        template: &Template,
        (at, node): (usize, &Node),
        steps: &[Step],
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
            if matches!(node.step, Step::Item(_)) && !may_be(&template.outline, here, self.rendered, there) {
                return false;
            }
            pair = (node.parent, other.parent);
        }
        true
    }

    /// Whether a document of a template is of the object's kind and name.
    fn is_of_object(&self, template: &Template, document: usize, context: &Context<'_>) -> bool {
        let Some(kind) = root(&template.outline, Some(document), "kind") else { return true };
        let rendered = root(self.rendered, None, "kind");
        let is_kind = kind.value.contains(HOLE)
            || rendered.is_some_and(|rendered| unquoted(&rendered.value) == unquoted(&kind.value));
        let names = (name(&template.outline, Some(document)), name(self.rendered, None));
        let (Some(name), Some(rendered)) = names else { return is_kind };
        let pieces =
            Printed::of(unquoted(&name.value), template.actions(name.line, name.holes_before), context);
        is_kind && can_print(&pieces, unquoted(&rendered.value))
    }

    /// The values that this node's line, and the lines below it, print into the field.
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
                let mut printers = align(&pieces, declared, new.as_deref(), context).unwrap_or_default();
                // Any element may be this one.
                printers.retain(|printer| printer.is_equal || matches!(node.step, Step::Field(_)));
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

    /// The values that a map in braces prints after the field's own name.
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

    /// The values that actions below a key print there as whole blocks, which contain the field.
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
        is_equal.then_some(Printer { path: named, is_equal, is_list, is_part: false, new })
    }
}

/// The values by which a template names its object.
fn names(template: &Template, is_here: &dyn Fn(&Node) -> bool, context: &Context<'_>) -> Vec<Vec<String>> {
    let documents = template.outline.nodes.iter().filter(|node| is_here(node)).map(|node| node.document);
    let mut documents: Vec<usize> = documents.collect();
    documents.dedup();
    let lines = documents.into_iter().filter_map(|document| name(&template.outline, Some(document)));
    let actions = lines.flat_map(|node| template.actions(node.line, node.holes_before));
    let refs = actions.flat_map(|action| context.helpers.refs(action));
    refs.filter(|value| value.element.is_none()).map(|value| value.path.clone()).collect()
}

/// A key at the root of a document; of any document where none is named.
fn root<'o>(outline: &'o Outline, document: Option<usize>, key: &str) -> Option<&'o Node> {
    let is = |node: &&Node| {
        node.parent.is_none()
            && document.is_none_or(|it| node.document == it)
            && matches!(&node.step, Step::Field(name) if name == key)
    };
    outline.nodes.iter().find(is)
}

/// The name of a document's object.
fn name(outline: &Outline, document: Option<usize>) -> Option<&Node> {
    let metadata = root(outline, document, "metadata")?;
    let at = outline.nodes.iter().position(|node| std::ptr::eq(node, metadata))?;
    outline.below(at).find(|node| matches!(&node.step, Step::Field(name) if name == "name"))
}

/// Whether a step of a template can be this one of a rendered object.
fn is_step(step: &Step, wanted: &Step) -> bool {
    match (step, wanted) {
        (Step::Field(name), Step::Field(wanted)) => name == wanted || name.contains(HOLE),
        (Step::Item(_), Step::Item(_)) => true,
        _ => false,
    }
}

/// Whether an element of a template can be this rendered one: none of its literals contradicts it.
fn may_be(template: &Outline, here: usize, rendered: &Outline, there: usize) -> bool {
    rendered.below(there).filter(|other| !other.value.is_empty()).all(|other| {
        let mut same = template.below(here).filter(|node| node.step == other.step).peekable();
        same.peek().is_none()
            || same.any(|node| node.value.contains(HOLE) || unquoted(&node.value) == unquoted(&other.value))
    })
}
