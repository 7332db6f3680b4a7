//! A template as YAML documents with holes in place of its actions, and the values that the actions print. Nothing is
//! rendered: no function runs, no branch is evaluated, and an action is represented by the values that it names. A line
//! that is not valid YAML without the output of actions is dropped.

use std::collections::HashMap;

use serde_json::Value;

use crate::yaml::{Budget, to_json};

const LONGEST: usize = 256 << 10;

/// The memory that a template's documents may take, in bytes.
const MEMORY: usize = 16 << 20;

/// The maximum number of lines that are dropped from one document.
const LEFT_OUT: usize = 16;

/// The maximum number of columns by which an action's output is indented.
const INDENT: usize = 100;

const HELPER_REFS: usize = 32;

/// The start and end of a hole; between them is the index of its action.
pub(super) const HOLE: char = '\u{fffc}';
const HOLE_END: char = '\u{fffb}';

#[derive(Debug, Default)]
pub(super) struct ChartTemplate {
    /// A hole that is alone on its line is a key without a value, since it prints a part of what is above it.
    pub(super) documents: Vec<Value>,
    /// The actions that print something.
    pub(super) actions: Vec<Expression>,
}

/// The values that named templates use.
#[derive(Debug, Default)]
pub(super) struct Helpers(HashMap<String, Vec<Ref>>);

impl ChartTemplate {
    /// The template with this text; empty if the text is too long.
    pub(super) fn parse(text: &str) -> Self {
        let mut template = Self::default();
        if text.len() > LONGEST {
            return template;
        }
        let mut reader = ActionReader::default();
        let (mut yaml, mut line) = (String::new(), 1);
        for (literal, action) in pieces(text) {
            yaml.extend(literal.chars().filter(|c| !matches!(*c, HOLE | HOLE_END | '\r')));
            line += literal.matches('\n').count();
            if let Some(expression) = action.and_then(|action| reader.read(action)) {
                let hole = format!("{HOLE}{}{HOLE_END}", template.actions.len());
                let (indent, is_alone) = yaml.rsplit('\n').next().map_or((0, true), |begun| {
                    (begun.len() - begun.trim_start_matches(' ').len(), begun.trim().is_empty())
                });
                let shifted = expression.shift.filter(|_| is_alone).map(|shift| indent + shift.min(INDENT));
                if let Some(column) = expression.column.map(|column| column.min(INDENT)).or(shifted) {
                    yaml.push('\n');
                    yaml.extend(std::iter::repeat_n(' ', column));
                }
                yaml.push_str(&hole);
                template.actions.push(Expression { line, ..expression });
            }
            line += action.map_or(0, |action| action.matches('\n').count());
        }
        let mut document = Vec::new();
        let mut budget = Budget::new(MEMORY);
        for line in yaml.lines().chain(["---"]) {
            if line.starts_with("---") {
                template.documents.extend(document_value(std::mem::take(&mut document), &mut budget));
            } else {
                let is_alone = hole(line.trim()).is_some();
                document.push(if is_alone { format!("{}:", line.trim_end()) } else { line.to_owned() });
            }
        }
        template
    }

    /// The text of a scalar, cut into literals and actions.
    pub(super) fn pieces<'s>(&self, text: &'s str) -> impl Iterator<Item = Result<&'s str, &Expression>> {
        let mut parts = text.split(HOLE);
        let first = parts.next().map(Ok).into_iter();
        let holes = parts.flat_map(|part| {
            let (number, literal) = part.split_once(HOLE_END).unwrap_or((part, ""));
            let action = number.parse().ok().and_then(|number: usize| self.actions.get(number));
            action.map(Err).into_iter().chain([Ok(literal)])
        });
        first.chain(holes).filter(|piece| *piece != Ok(""))
    }

    /// The action of a text that is exactly one hole.
    pub(super) fn action(&self, text: &str) -> Option<&Expression> {
        self.actions.get(hole(text)?)
    }
}

/// The index of the action of a text that is exactly one hole.
fn hole(text: &str) -> Option<usize> {
    text.strip_prefix(HOLE)?.strip_suffix(HOLE_END)?.parse().ok()
}

/// The document of these lines, without those that are not valid YAML in their place: most often a hole above the
/// elements of a list.
fn document_value(mut lines: Vec<String>, budget: &mut Budget) -> Option<Value> {
    for _ in 0..LEFT_OUT {
        let error = match to_json(&lines.join("\n"), budget) {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let end = error.line().min(lines.len());
        let mut before = lines.iter_mut().take(end).rev().filter(|line| !line.trim().is_empty());
        let (wrong, above) = (before.next()?, before.next());
        let is_hole = |line: &&mut String| hole(line.trim().trim_end_matches(':')).is_some();
        above.filter(is_hole).unwrap_or(wrong).clear();
    }
    None
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

/// A template split into literals, each with the action that follows it.
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

/// Functions that print their arguments, or one of them.
const PASSING: [&str; 22] = [
    "quote", "squote", "toString", "toYaml", "toJson", "int", "int64", "float64", "nindent", "indent",
    "default", "coalesce", "required", "trim", "tpl", "include", "dict", "list", "index", "print",
    "fromYaml", "atoi",
];

/// The end of the name of a template in many charts that prints one of its arguments.
const RENDERS: &str = "tplvalues.render";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ref {
    /// Its path below `.Values`.
    pub(super) path: Vec<String>,
    /// For an element of the value at `path`: the path below the element.
    pub(super) element: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Expression {
    pub(super) refs: Vec<Ref>,
    /// A field of `.Chart` or `.Release`: `Chart.AppVersion`.
    pub(super) builtin: Option<String>,
    /// A literal text or number in it, as the argument of `default`.
    pub(super) fallback: Option<String>,
    pub(super) included: Option<String>,
    /// Whether only [`PASSING`] functions are between the values and the text.
    pub(super) is_plain: bool,
    /// The column that `nindent` names, or how far `indent` shifts.
    column: Option<usize>,
    shift: Option<usize>,
    /// The line of the template that it begins on, from 1.
    pub(super) line: usize,
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
    /// The value that `.` refers to in each open block, if it is a single one.
    dots: Vec<Option<Ref>>,
    variables: HashMap<String, Ref>,
}

impl ActionReader {
    /// The action with this content; `None` if it prints nothing.
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
            Word::Name("with") => self.dots.push(self.one(&words)),
            Word::Name("range") => {
                let element = self.one(&words).map(Ref::element);
                for variable in declared(&words) {
                    if let Some(element) = &element {
                        self.variables.insert(variable.to_owned(), element.clone());
                    }
                }
                self.dots.push(element);
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

    fn dot(&self) -> Option<Ref> {
        self.dots.last().cloned().flatten()
    }

    /// The value that a block refers to, if it is a single one.
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
        Some(self.dot()?.below(names(text)))
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
