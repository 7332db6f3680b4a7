//! One action of a template, `{{ … }}`: the values that it prints, and the block that it begins or ends.
//!
//! Entry point: [`Reader::read`]. Invariant: runs no functions and evaluates no branches. If a value does not
//! go to the text unchanged, the action is marked as such. Linear in the text.

use std::collections::HashMap;

/// The most values that one action may name.
const REFS: usize = 16;

/// Functions that print what they are given, or leave a choice of it.
const PASSING: [&str; 22] = [
    "quote", "squote", "toString", "toYaml", "toJson", "int", "int64", "float64", "nindent", "indent",
    "default", "coalesce", "required", "trim", "tpl", "include", "dict", "list", "index", "print",
    "fromYaml", "atoi",
];

/// The name that the templates of other charts use for a function that prints one of its arguments.
const RENDERS: &str = "tplvalues.render";

/// A value that a template names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ref {
    /// Its path below `.Values`.
    pub(super) path: Vec<String>,
    /// Where it is an element of what stands at `path`: the path below the element.
    pub(super) element: Option<Vec<String>>,
}

/// The output of an action.
#[derive(Clone, Debug, Default)]
pub(super) struct Expression {
    /// The values that it names, in its order.
    pub(super) refs: Vec<Ref>,
    /// Of `.Chart` and `.Release`: `Chart.AppVersion`.
    pub(super) builtin: Option<String>,
    /// A literal text or number in it, as the argument of `default`.
    pub(super) fallback: Option<String>,
    /// The named template that it includes.
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

/// Reads the actions of a template in their order.
#[derive(Default)]
pub(super) struct Reader {
    dots: Vec<Dot>,
    /// The values of the variables.
    variables: HashMap<String, Ref>,
}

impl Reader {
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
                    Some(value) if found.refs.len() < REFS => {
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

/// The words of an action.
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

/// A quoted text, and the rest after it.
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
