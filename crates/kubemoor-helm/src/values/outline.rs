//! The outline of a YAML text: the key, and the map, that each line sets.
//!
//! Entry point: [`Outline::of`]. Invariant: uses indentation and keys alone, so that it can read templates
//! too, with [`HOLE`]s in place of their actions. Linear in the text. A map in braces on one line is one
//! value.

/// The placeholder of an action.
pub(super) const HOLE: char = '\u{fffc}';

/// The most lines of a text that are read.
const LINES: usize = 20_000;

/// One step from a map or list to what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Field(String),
    Item(usize),
}

/// One line of a text.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    pub(super) text: String,
    /// Where a line of holes alone puts its text, by its `nindent`.
    pub(super) column: Option<usize>,
}

/// A key or a list element.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) parent: Option<usize>,
    pub(super) step: Step,
    /// The text after the key on its line.
    pub(super) value: String,
    /// The number of the line, from 0.
    pub(super) line: usize,
    /// How many holes stand on the line before the value.
    pub(super) holes_before: usize,
    /// The number of the document, from 0.
    pub(super) document: usize,
    indent: usize,
    items: usize,
}

/// A text by its lines.
#[derive(Debug, Default)]
pub(super) struct Outline {
    pub(super) nodes: Vec<Node>,
    /// Lines of holes alone, and lines of a text block, each with the node that they lie below.
    pub(super) blocks: Vec<(usize, usize)>,
    document: usize,
    /// The nodes that are open.
    open: Vec<usize>,
    /// The node whose text block goes on.
    block: Option<usize>,
}

impl Outline {
    pub(super) fn of(lines: &[Line]) -> Self {
        let mut outline = Self::default();
        for (number, line) in lines.iter().enumerate().take(LINES) {
            outline.take(number, line);
        }
        outline
    }

    /// The steps from the root to a node.
    pub(super) fn steps(&self, node: usize) -> Vec<&Step> {
        let mut steps: Vec<&Step> = self.above(node).map(|node| &node.step).collect();
        steps.reverse();
        steps
    }

    /// A node and those above it, up to the root.
    pub(super) fn above(&self, node: usize) -> impl Iterator<Item = &Node> {
        let first = self.nodes.get(node);
        std::iter::successors(first, |node| node.parent.and_then(|parent| self.nodes.get(parent)))
    }

    /// The nodes directly below a node.
    pub(super) fn below(&self, node: usize) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(move |it| it.parent == Some(node))
    }

    fn take(&mut self, number: usize, line: &Line) {
        let text = line.text.trim_end();
        let body = text.trim_start();
        let indent = text.len() - body.len();
        if body.is_empty() || body.starts_with('#') {
            return;
        }
        if let Some(block) = self.block {
            if self.nodes.get(block).is_some_and(|node| indent > node.indent) {
                return self.blocks.push((number, block));
            }
            self.block = None;
        }
        if body.starts_with("---") {
            self.open.clear();
            self.document += 1;
            return;
        }
        if body.chars().all(|c| c == HOLE || c.is_whitespace()) {
            let column = line.column.unwrap_or(indent);
            let parent = self.open.iter().rev().find(|at| self.indent(**at) < column);
            return self.blocks.extend(parent.map(|parent| (number, *parent)));
        }
        self.entry(number, indent, body, 0);
    }

    fn indent(&self, node: usize) -> usize {
        self.nodes.get(node).map_or(0, |node| node.indent)
    }

    /// Adds a key or an element, with the number of holes before it.
    fn entry(&mut self, number: usize, indent: usize, body: &str, holes: usize) {
        let mut body = body;
        let mut indent = indent;
        while let Some(rest) = body.strip_prefix("- ").or_else(|| (body == "-").then_some("")) {
            self.close(|node| {
                node.indent > indent || (node.indent == indent && matches!(node.step, Step::Item(_)))
            });
            let parent = self.open.last().copied();
            let item = parent.and_then(|parent| self.nodes.get_mut(parent)).map_or(0, |parent| {
                parent.items += 1;
                parent.items - 1
            });
            let (kept, before) = (rest.trim_start(), body.len());
            let is_scalar = split(kept).is_none() && !kept.starts_with("- ");
            self.push((number, indent), Step::Item(item), if is_scalar { kept } else { "" }, holes);
            if is_scalar {
                return;
            }
            indent += before - kept.len();
            body = kept;
        }
        let Some((key, value)) = split(body) else { return };
        self.close(|node| node.indent >= indent);
        let holes = holes + key.matches(HOLE).count();
        let value = value.trim();
        self.push((number, indent), Step::Field(unquoted(key).to_owned()), value, holes);
        if value.starts_with(['|', '>']) {
            self.block = self.nodes.len().checked_sub(1);
        }
    }

    fn close(&mut self, is_over: impl Fn(&Node) -> bool) {
        while self.open.last().and_then(|at| self.nodes.get(*at)).is_some_and(&is_over) {
            self.open.pop();
        }
    }

    fn push(&mut self, (line, indent): (usize, usize), step: Step, value: &str, holes_before: usize) {
        let parent = self.open.last().copied();
        let (value, document) = (value.to_owned(), self.document);
        self.open.push(self.nodes.len());
        self.nodes.push(Node { parent, step, value, line, holes_before, document, indent, items: 0 });
    }
}

/// A text without the quotes around it, and without a comment behind it.
pub(super) fn unquoted(text: &str) -> &str {
    let text = text.trim();
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote)
            && let Some(end) = inner.rfind(quote)
        {
            return inner.get(..end).unwrap_or(inner);
        }
    }
    text.split_once(" #").map_or(text, |(text, _)| text.trim_end())
}

/// The key and the value of an entry.
fn split(body: &str) -> Option<(&str, &str)> {
    if body.starts_with(['{', '[']) {
        return None;
    }
    let quote = body.chars().next().filter(|c| matches!(c, '"' | '\''));
    let from = quote.map_or(Some(0), |quote| body.get(1..)?.find(quote).map(|end| end + 2))?;
    let at = body.get(from..)?.match_indices(':').map(|(at, _)| at + from).find(|at| {
        let behind = body.get(at + 1..).unwrap_or_default();
        let is_key = |key: &str| {
            key.chars().all(|c| c.is_alphanumeric() || "-_./".contains(c)) && !key.starts_with('-')
        };
        // No space comes before an action that begins with a line break.
        behind.is_empty()
            || behind.starts_with(' ')
            || (behind.starts_with(HOLE) && body.get(..*at).is_some_and(is_key))
    })?;
    Some((body.get(..at)?, body.get(at + 1..)?))
}
