//! Names and regular expressions of a target, each compiled once per policy.
//!
//! Entry points: [`Regexes::matcher`], [`Matcher::matches`]. Invariant: a regular expression matches whole names, in
//! time linear in the name, and takes bounded memory.

use std::collections::BTreeMap;

use regex::{Regex, RegexBuilder};

/// The longest regular expression, in bytes.
pub(super) const MAX_REGEX: usize = 256;

/// The most memory of one compiled regular expression, in bytes.
const REGEX_MEMORY: usize = 256 << 10;

#[derive(Clone, Debug, Default)]
pub(super) enum Matcher {
    #[default]
    Any,
    Exactly(String),
    Regex(Regex),
}

/// The regular expressions of one policy, each compiled once.
#[derive(Default)]
pub(crate) struct Regexes(BTreeMap<String, Regex>);

impl Matcher {
    pub(super) fn matches(&self, text: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exactly(name) => name == text,
            Self::Regex(regex) => regex.is_match(text),
        }
    }

    /// Whether a text may match both. "No" is certain.
    pub(super) fn may_meet(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exactly(name), matcher) | (matcher, Self::Exactly(name)) => matcher.matches(name),
            _ => true,
        }
    }
}

impl Regexes {
    /// An empty text matches everything, as in Flux.
    pub(super) fn matcher(&mut self, text: &str) -> Result<Matcher, String> {
        if text.is_empty() {
            return Ok(Matcher::Any);
        }
        if !text.contains(|c: char| regex_syntax_character(c)) {
            return Ok(Matcher::Exactly(text.to_owned()));
        }
        if text.len() > MAX_REGEX {
            return Err(format!("the regular expression is longer than {MAX_REGEX} bytes"));
        }
        if let Some(regex) = self.0.get(text) {
            return Ok(Matcher::Regex(regex.clone()));
        }
        // The text alone first: `)(` must not become valid by the added parentheses.
        let build = |text: &str| {
            RegexBuilder::new(text)
                .size_limit(REGEX_MEMORY)
                .dfa_size_limit(REGEX_MEMORY)
                .nest_limit(32)
                .build()
                .map_err(|error| last_line(&error))
        };
        build(text)?;
        let regex = build(&format!("^(?:{text})$"))?;
        self.0.insert(text.to_owned(), regex.clone());
        Ok(Matcher::Regex(regex))
    }
}

fn regex_syntax_character(c: char) -> bool {
    matches!(c, '\\' | '.' | '+' | '*' | '?' | '(' | ')' | '|' | '[' | ']' | '{' | '}' | '^' | '$')
}

/// The last line of the parser's message; the others draw the position.
fn last_line(error: &regex::Error) -> String {
    let text = error.to_string();
    let line = text.lines().last().unwrap_or_default();
    format!("the regular expression does not compile: {}", line.trim_start_matches("error: "))
}
