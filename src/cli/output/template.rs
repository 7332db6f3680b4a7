//! Templates as in `kubectl -o jsonpath=`.
//!
//! Entry point: [`Template`]. Plain text is printed unchanged; `{.items[*].name}` prints the values at a
//! path, separated by spaces; `{"\n"}` prints text; `{range PATH}` repeats the text up to `{end}` for each
//! value. Paths are evaluated by RFC 9535. Invariant: a missing value prints nothing, and a value never
//! writes a control sequence. Must not know what is printed.

use std::fmt::Write as _;
use std::iter::Peekable;
use std::str::{Chars, FromStr};

use anyhow::Context;
use jsonpath_rust::parser::model::JpQuery;
use jsonpath_rust::parser::parse_json_path;
use jsonpath_rust::query::js_path_process;
use serde_json::Value;

use super::harmless::harmless;

/// The maximum nesting of ranges.
const DEEPEST: usize = 8;

/// A template.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::cli) struct Template(Vec<Part>);

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::cli) enum TemplateError {
    /// Nothing in it is a path.
    #[error("no {{}} is in it: write a path in braces, such as {{.items[*].name}}")]
    NoPath,
    /// A brace or a quote is open at its end.
    #[error("{0:?} is not closed: it needs a }}, and each quote its second one")]
    Open(String),
    /// A path cannot be read.
    #[error("{0:?} is no path, such as .items[*].name")]
    Path(String),
    /// A quoted text cannot be read.
    #[error("{0} is no quoted text, such as {{\"\\n\"}}")]
    Text(String),
    /// A range has no end, or an end no range.
    #[error("each {{range PATH}} needs one {{end}}")]
    Unpaired,
    /// Ranges are nested too deeply.
    #[error("ranges may stand in each other {DEEPEST} deep, no deeper")]
    TooDeep,
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    Values(Query),
    Range(Query, Vec<Part>),
}

/// A path, from the document's root or from the current value.
#[derive(Clone, Debug, PartialEq)]
struct Query {
    is_absolute: bool,
    path: JpQuery,
}

impl Template {
    /// The template, filled from a document.
    pub(in crate::cli) fn fill(&self, document: &Value) -> anyhow::Result<String> {
        let mut text = String::new();
        fill(&self.0, (document, document), &mut text)?;
        Ok(text)
    }
}

fn fill(parts: &[Part], (root, current): (&Value, &Value), text: &mut String) -> anyhow::Result<()> {
    for part in parts {
        match part {
            Part::Text(words) => text.push_str(words),
            Part::Values(query) => {
                let values = query.values(root, current)?;
                let shown = values.into_iter().map(|value| match value {
                    Value::String(value) => harmless(value),
                    other => other.to_string(),
                });
                text.push_str(&shown.collect::<Vec<_>>().join(" "));
            }
            Part::Range(query, below) => {
                for value in query.values(root, current)? {
                    fill(below, (root, value), text)?;
                }
            }
        }
    }
    Ok(())
}

impl Query {
    fn values<'v>(&self, root: &'v Value, current: &'v Value) -> anyhow::Result<Vec<&'v Value>> {
        let from = if self.is_absolute { root } else { current };
        let found = js_path_process(&self.path, from).context("cannot evaluate the path")?;
        Ok(found.into_iter().map(|found| found.val).collect())
    }
}

impl FromStr for Template {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Self, TemplateError> {
        // The innermost range is last.
        let mut open: Vec<(Query, Vec<Part>)> = Vec::new();
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((words, after)) = rest.split_once('{') {
            if !words.is_empty() {
                parts.push(Part::Text(words.to_owned()));
            }
            let (action, after) = action(after)?;
            rest = after;
            let action = action.trim();
            if let Some(path) = action.strip_prefix("range ") {
                if open.len() >= DEEPEST {
                    return Err(TemplateError::TooDeep);
                }
                open.push((path.parse()?, std::mem::take(&mut parts)));
            } else if action == "end" {
                let (query, before) = open.pop().ok_or(TemplateError::Unpaired)?;
                let below = std::mem::replace(&mut parts, before);
                parts.push(Part::Range(query, below));
            } else if action.starts_with(['"', '\'']) {
                parts.push(Part::Text(unquoted(action)?));
            } else {
                parts.push(Part::Values(action.parse()?));
            }
        }
        if !open.is_empty() {
            return Err(TemplateError::Unpaired);
        }
        if parts.is_empty() {
            return Err(TemplateError::NoPath);
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self(parts))
    }
}

/// Splits the text at the closing brace: the action, and the rest.
fn action(text: &str) -> Result<(&str, &str), TemplateError> {
    let (mut quote, mut is_escaped) = (None, false);
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            _ if is_escaped => is_escaped = false,
            (_, '\\') => is_escaped = true,
            (Some(open), _) if letter == open => quote = None,
            (None, '"' | '\'') => quote = Some(letter),
            (None, '}') => {
                let (action, rest) = text.split_at(at);
                return Ok((action, rest.strip_prefix('}').unwrap_or_default()));
            }
            _ => {}
        }
    }
    Err(TemplateError::Open(format!("{{{text}")))
}

/// A quoted text, with the escapes of JSON.
fn unquoted(action: &str) -> Result<String, TemplateError> {
    let wrong = || TemplateError::Text(action.to_owned());
    let json = match action.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')) {
        Some(inner) => format!("\"{}\"", inner.replace("\\'", "'").replace('"', "\\\"")),
        None => action.to_owned(),
    };
    serde_json::from_str(&json).map_err(|_| wrong())
}

impl FromStr for Query {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Self, TemplateError> {
        let text = text.trim();
        let (is_absolute, below) = match text.strip_prefix('$') {
            Some(below) => (true, below),
            None => (false, text.strip_prefix('@').unwrap_or(text)),
        };
        let wrong = || TemplateError::Path(text.to_owned());
        if text.is_empty() || !(below.is_empty() || below.starts_with(['.', '['])) {
            return Err(wrong());
        }
        let path = standard(below).ok_or_else(wrong)?;
        Ok(Self { is_absolute, path: parse_json_path(&path).map_err(|_| wrong())? })
    }
}

/// A path of kubectl's as RFC 9535 has it: any name may follow a dot there, and a backslash quotes a letter.
fn standard(path: &str) -> Option<String> {
    let mut text = "$".to_owned();
    let mut letters = path.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '.' => {
                if letters.next_if_eq(&'.').is_some() {
                    text.push_str("..");
                }
                match letters.peek() {
                    Some('[') => {}
                    Some('*') => {
                        letters.next();
                        text.push_str("[*]");
                    }
                    // The value at hand.
                    None if text == "$" => {}
                    _ => {
                        let name = name(&mut letters)?;
                        // Writing to a String cannot fail.
                        let _ = write!(text, "['{}']", name.replace('\\', "\\\\").replace('\'', "\\'"));
                    }
                }
            }
            '[' => text.push_str(&bracketed(&mut letters)?),
            _ => return None,
        }
    }
    Some(text)
}

/// Reads the name after a dot. Returns `None` if no name follows the dot.
fn name(letters: &mut Peekable<Chars<'_>>) -> Option<String> {
    let mut name = String::new();
    while let Some(letter) = letters.next_if(|letter| !matches!(letter, '.' | '[')) {
        name.push(if letter == '\\' { letters.next()? } else { letter });
    }
    (!name.is_empty()).then_some(name)
}

/// The unchanged text in brackets.
fn bracketed(letters: &mut Peekable<Chars<'_>>) -> Option<String> {
    let (mut text, mut depth, mut quote) = ("[".to_owned(), 1_usize, None);
    while depth > 0 {
        let letter = letters.next()?;
        text.push(letter);
        match (quote, letter) {
            (_, '\\') => text.push(letters.next()?),
            (Some(open), _) if letter == open => quote = None,
            (None, '"' | '\'') => quote = Some(letter),
            (None, '[') => depth += 1,
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests;
