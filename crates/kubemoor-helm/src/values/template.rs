//! A template by its lines, and the values that its actions print. Nothing is rendered: no function runs and no branch is
//! evaluated, an action is represented by the values that it names, and the outline of a YAML text comes from indentation
//! and keys alone, with [`HOLE`]s in place of actions. Linear in the text.

use std::collections::HashMap;

const LONGEST: usize = 256 << 10;

const HELPER_REFS: usize = 32;

#[derive(Debug, Default)]
pub(super) struct ChartTemplate {
    pub(super) outline: YamlOutline,
    pub(super) lines: Vec<OutlineLine>,
    /// Of each line the actions that print something.
    actions: Vec<Vec<Expression>>,
}

/// The values that named templates use.
#[derive(Debug, Default)]
pub(super) struct Helpers(HashMap<String, Vec<Ref>>);

impl ChartTemplate {
    /// The template with this text; an empty one where that is too long.
    pub(super) fn parse(text: &str) -> Self {
        if text.len() > LONGEST {
            return Self::default();
        }
        let mut template = Self::default();
        let mut reader = ActionReader::default();
        template.begin();
        for (literal, action) in pieces(text) {
            for (number, part) in literal.split('\n').enumerate() {
                if number > 0 {
                    template.begin();
                }
                template.print(part);
            }
            if let Some(expression) = action.and_then(|action| reader.read(action)) {
                template.act(expression);
            }
        }
        template.outline = YamlOutline::new(&template.lines);
        template
    }

    /// The actions of a line, from the one behind so many holes.
    pub(super) fn actions(&self, line: usize, skipped: usize) -> &[Expression] {
        self.actions.get(line).and_then(|actions| actions.get(skipped..)).unwrap_or_default()
    }

    fn begin(&mut self) {
        self.lines.push(OutlineLine::default());
        self.actions.push(Vec::new());
    }

    fn print(&mut self, text: &str) {
        if let Some(line) = self.lines.last_mut() {
            line.text.extend(text.chars().filter(|c| *c != HOLE && *c != '\r'));
        }
    }

    fn act(&mut self, expression: Expression) {
        if let (Some(line), Some(actions)) = (self.lines.last_mut(), self.actions.last_mut()) {
            let shifted =
                expression.shift.map(|shift| line.text.chars().take_while(|c| *c == ' ').count() + shift);
            line.column = expression.column.or(shifted);
            line.text.push(HOLE);
            actions.push(expression);
        }
    }
}

impl Helpers {
    pub(super) fn new<'t>(templates: impl Iterator<Item = &'t str>) -> Self {
        let mut found: HashMap<String, Vec<Ref>> = HashMap::new();
        for text in templates.filter(|text| text.len() <= LONGEST && text.contains("define")) {
            let (mut reader, mut name) = (ActionReader::default(), None);
            for action in pieces(text).filter_map(|(_, action)| action) {
                if let Some(defined) = defined(action) {
                    (reader, name) = (ActionReader::default(), Some(defined.to_owned()));
                    continue;
                }
                let printed = reader.read(action);
                if let (Some(name), Some(printed)) = (&name, printed) {
                    let refs = found.entry(name.clone()).or_default();
                    let new = printed.refs.into_iter().filter(|it| it.element.is_none());
                    for value in new.take(HELPER_REFS.saturating_sub(refs.len())) {
                        if !refs.contains(&value) {
                            refs.push(value);
                        }
                    }
                }
            }
        }
        Self(found)
    }

    /// The values that an action uses: those that it names, and those of its includes.
    pub(super) fn refs<'h>(&'h self, action: &'h Expression) -> impl Iterator<Item = &'h Ref> {
        let included = action.included.as_ref().and_then(|name| self.0.get(name));
        action.refs.iter().chain(included.into_iter().flatten())
    }
}

fn defined(action: &str) -> Option<&str> {
    let action = action.trim_start_matches('-').trim_start();
    action.strip_prefix("define")?.trim_start().strip_prefix('"')?.split('"').next()
}

/// A template cut into literal text, each with the action behind it.
fn pieces(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        let Some((literal, behind)) = text.split_once("{{") else { return Some((text, None)) };
        let (action, behind) = behind.split_once("}}").unwrap_or((behind, ""));
        rest = Some(behind);
        Some((literal, Some(action)))
    })
}

const ACTION_REFS: usize = 16;

/// Functions that print what they are given, or leave a choice of it.
const PASSING: [&str; 22] = [
    "quote", "squote", "toString", "toYaml", "toJson", "int", "int64", "float64", "nindent", "indent",
    "default", "coalesce", "required", "trim", "tpl", "include", "dict", "list", "index", "print",
    "fromYaml", "atoi",
];

/// The name that the templates of other charts use for a function that prints one of its arguments.
const RENDERS: &str = "tplvalues.render";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ref {
    /// Its path below `.Values`.
    pub(super) path: Vec<String>,
    /// Where it is an element of what stands at `path`: the path below the element.
    pub(super) element: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Expression {
    pub(super) refs: Vec<Ref>,
    /// Of `.Chart` and `.Release`: `Chart.AppVersion`.
    pub(super) builtin: Option<String>,
    /// A literal text or number in it, as the argument of `default`.
    pub(super) fallback: Option<String>,
    pub(super) included: Option<String>,
    /// Whether only [`PASSING`] functions are between the values and the text.
    pub(super) is_plain: bool,
    /// The column that `nindent` names, or how far `indent` shifts.
    pub(super) column: Option<usize>,
    pub(super) shift: Option<usize>,
}

/// The meaning of `.`.
#[derive(Clone, Debug)]
enum Dot {
    Root,
    At(Ref),
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Word<'t> {
    Name(&'t str),
    Field(&'t str),
    Text(&'t str),
    Mark(char),
}

#[derive(Default)]
pub(super) struct ActionReader {
    dots: Vec<Dot>,
    variables: HashMap<String, Ref>,
}

impl ActionReader {
    /// The action with this content; none where it prints nothing.
    pub(super) fn read(&mut self, content: &str) -> Option<Expression> {
        let content = content.strip_prefix('-').unwrap_or(content);
        let content = content.strip_suffix('-').unwrap_or(content).trim();
        if content.starts_with("/*") {
            return None;
        }
        let words = words(content);
        match words.first()? {
            Word::Name("end") => drop(self.dots.pop()),
            Word::Name("if" | "define" | "block") => self.dots.push(self.dot()),
            Word::Name("else") => {}
            Word::Name("with") => {
                let dot = self.one(&words).map_or(Dot::Unknown, Dot::At);
                self.dots.push(dot);
            }
            Word::Name("range") => {
                let element = self.one(&words).map(Ref::element);
                for variable in declared(&words) {
                    if let Some(element) = &element {
                        self.variables.insert(variable.to_owned(), element.clone());
                    }
                }
                self.dots.push(element.map_or(Dot::Unknown, Dot::At));
            }
            Word::Field(variable) if words.get(1) == Some(&Word::Mark('=')) => {
                match self.one(&words).filter(|_| words.len() == 3) {
                    Some(value) => drop(self.variables.insert((*variable).to_owned(), value)),
                    None => drop(self.variables.remove(*variable)),
                }
            }
            _ => return Some(self.expression(&words)),
        }
        None
    }

    fn dot(&self) -> Dot {
        self.dots.last().cloned().unwrap_or(Dot::Root)
    }

    /// The value that a block is about.
    fn one(&self, words: &[Word<'_>]) -> Option<Ref> {
        let behind = words.iter().position(|word| *word == Word::Mark('=')).map_or(1, |at| at + 1);
        let mut refs = words.iter().skip(behind).filter_map(|word| self.resolve(word));
        let first = refs.next()?;
        refs.next().is_none().then_some(first)
    }

    fn resolve(&self, word: &Word<'_>) -> Option<Ref> {
        let Word::Field(text) = word else { return None };
        let names = |text: &str| text.split('.').filter(|it| !it.is_empty()).map(str::to_owned).collect();
        let of_values = text.strip_prefix("$.Values.").or_else(|| text.strip_prefix(".Values."));
        if let Some(path) = of_values {
            return Some(Ref { path: names(path), element: None });
        }
        if let Some(rest) = text.strip_prefix('$') {
            let (name, below) = rest.split_once('.').unwrap_or((rest, ""));
            return Some(self.variables.get(&format!("${name}"))?.below(names(below)));
        }
        match self.dot() {
            Dot::At(base) => Some(base.below(names(text))),
            Dot::Root | Dot::Unknown => None,
        }
    }

    fn expression(&self, words: &[Word<'_>]) -> Expression {
        let mut found = Expression { is_plain: true, ..Expression::default() };
        let mut before: Option<Word<'_>> = None;
        for word in words {
            match word {
                Word::Field(text) => match self.resolve(word) {
                    Some(value) if found.refs.len() < ACTION_REFS => {
                        if !found.refs.contains(&value) {
                            found.refs.push(value);
                        }
                    }
                    Some(_) => found.is_plain = false,
                    None => {
                        let text = text.trim_start_matches(['$', '.']);
                        if text.starts_with("Chart.") || text.starts_with("Release.") {
                            found.builtin = Some(text.to_owned());
                        }
                    }
                },
                Word::Name(name) => match (before, name.parse::<usize>()) {
                    (Some(Word::Name("nindent")), Ok(column)) => found.column = Some(column),
                    (Some(Word::Name("indent")), Ok(shift)) => found.shift = Some(shift),
                    (_, Ok(_)) => found.fallback = Some((*name).to_owned()),
                    _ if matches!(*name, "true" | "false") => found.fallback = Some((*name).to_owned()),
                    _ => found.is_plain &= PASSING.contains(name),
                },
                Word::Text(text) => match before {
                    Some(Word::Name("include" | "template")) => {
                        found.included = Some((*text).to_owned());
                        found.is_plain &= text.ends_with(RENDERS);
                    }
                    _ => found.fallback = Some((*text).to_owned()),
                },
                Word::Mark(_) => {}
            }
            before = Some(*word);
        }
        found
    }
}

impl Ref {
    fn below(&self, names: Vec<String>) -> Self {
        let mut below = self.clone();
        match &mut below.element {
            Some(element) => element.extend(names),
            None => below.path.extend(names),
        }
        below
    }

    fn element(self) -> Self {
        Self { element: Some(self.element.unwrap_or_default()), ..self }
    }
}

/// The variables that a range declares.
fn declared<'t>(words: &[Word<'t>]) -> Vec<&'t str> {
    let Some(end) = words.iter().position(|word| *word == Word::Mark('=')) else { return Vec::new() };
    let names = words.iter().take(end).filter_map(|word| match word {
        Word::Field(name) => Some(*name),
        _ => None,
    });
    names.collect()
}

fn words(content: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut rest = content.trim_start();
    while let Some(first) = rest.chars().next() {
        let (word, behind) = match first {
            '"' | '`' | '\'' => {
                let (text, behind) = quoted(rest, first);
                (Word::Text(text), behind)
            }
            '(' | ')' | '|' | ',' => (Word::Mark(first), rest.get(1..).unwrap_or_default()),
            ':' | '=' => (Word::Mark('='), rest.trim_start_matches([':', '='])),
            _ => {
                let ends = |c: char| c.is_whitespace() || "()|,=\"`:".contains(c);
                let end =
                    rest.char_indices().skip(1).find(|(_, c)| ends(*c)).map_or(rest.len(), |(at, _)| at);
                let (word, behind) = rest.split_at_checked(end).unwrap_or((rest, ""));
                let is_field = first == '.' || first == '$';
                (if is_field { Word::Field(word) } else { Word::Name(word) }, behind)
            }
        };
        words.push(word);
        rest = behind.trim_start();
    }
    words
}

fn quoted(text: &str, quote: char) -> (&str, &str) {
    let body = text.get(1..).unwrap_or_default();
    let mut escaped = false;
    for (at, c) in body.char_indices() {
        if c == quote && !escaped {
            return (body.get(..at).unwrap_or_default(), body.get(at + 1..).unwrap_or_default());
        }
        escaped = c == '\\' && !escaped && quote == '"';
    }
    (body, "")
}

/// The placeholder of an action.
pub(super) const HOLE: char = '\u{fffc}';

const LINES: usize = 20_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OutlineStep {
    Field(String),
    Item(usize),
}

#[derive(Clone, Debug, Default)]
pub(super) struct OutlineLine {
    pub(super) text: String,
    /// Where a line of holes alone puts its text, by its `nindent`.
    pub(super) column: Option<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct OutlineNode {
    pub(super) parent: Option<usize>,
    pub(super) step: OutlineStep,
    /// The text after the key on its line.
    pub(super) value: String,
    pub(super) line: usize,
    /// How many holes stand on the line before the value.
    pub(super) holes_before: usize,
    pub(super) document: usize,
    indent: usize,
    items: usize,
}

#[derive(Debug, Default)]
pub(super) struct YamlOutline {
    pub(super) nodes: Vec<OutlineNode>,
    /// Lines of holes alone, and lines of a text block, each with the node that they lie below.
    pub(super) blocks: Vec<(usize, usize)>,
    document: usize,
    open: Vec<usize>,
    /// The node whose text block goes on.
    block: Option<usize>,
}

impl YamlOutline {
    pub(super) fn new(lines: &[OutlineLine]) -> Self {
        let mut outline = Self::default();
        for (number, line) in lines.iter().enumerate().take(LINES) {
            outline.take(number, line);
        }
        outline
    }

    /// The steps from the root to a node.
    pub(super) fn steps(&self, node: usize) -> Vec<&OutlineStep> {
        let mut steps: Vec<&OutlineStep> = self.above(node).map(|node| &node.step).collect();
        steps.reverse();
        steps
    }

    /// A node and those above it, up to the root.
    pub(super) fn above(&self, node: usize) -> impl Iterator<Item = &OutlineNode> {
        let first = self.nodes.get(node);
        std::iter::successors(first, |node| node.parent.and_then(|parent| self.nodes.get(parent)))
    }

    pub(super) fn below(&self, node: usize) -> impl Iterator<Item = &OutlineNode> {
        self.nodes.iter().filter(move |it| it.parent == Some(node))
    }

    fn take(&mut self, number: usize, line: &OutlineLine) {
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
                node.indent > indent || (node.indent == indent && matches!(node.step, OutlineStep::Item(_)))
            });
            let parent = self.open.last().copied();
            let item = parent.and_then(|parent| self.nodes.get_mut(parent)).map_or(0, |parent| {
                parent.items += 1;
                parent.items - 1
            });
            let (kept, before) = (rest.trim_start(), body.len());
            let is_scalar = split(kept).is_none() && !kept.starts_with("- ");
            self.push((number, indent), OutlineStep::Item(item), if is_scalar { kept } else { "" }, holes);
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
        self.push((number, indent), OutlineStep::Field(unquoted(key).to_owned()), value, holes);
        if value.starts_with(['|', '>']) {
            self.block = self.nodes.len().checked_sub(1);
        }
    }

    fn close(&mut self, is_over: impl Fn(&OutlineNode) -> bool) {
        while self.open.last().and_then(|at| self.nodes.get(*at)).is_some_and(&is_over) {
            self.open.pop();
        }
    }

    fn push(&mut self, (line, indent): (usize, usize), step: OutlineStep, value: &str, holes_before: usize) {
        let parent = self.open.last().copied();
        let (value, document) = (value.to_owned(), self.document);
        self.open.push(self.nodes.len());
        self.nodes.push(OutlineNode { parent, step, value, line, holes_before, document, indent, items: 0 });
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
