//! Reads a template from its text.
//!
//! Entry point: `str::parse` for [`Template`]. Invariant: nesting is bounded; a path of kubectl's form becomes one of
//! RFC 9535.

use std::fmt::Write as _;
use std::iter::Peekable;
use std::str::{Chars, FromStr};

use jsonpath_rust::parser::parse_json_path;

use super::{DEEPEST, Part, Query, Template, TemplateError};

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
