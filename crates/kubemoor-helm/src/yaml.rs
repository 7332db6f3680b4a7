//! Converts one YAML document to the JSON that Helm sends for it.
//!
//! Helm reads manifests with `sigs.k8s.io/yaml`: Go's goyaml.v2, a port of libyaml with YAML 1.1 scalars, then a conversion
//! to JSON, then Go's JSON. The grammar comes from `granit-parser`; this module decides the meaning of scalars, keys, merges
//! and aliases. Text that is valid in Go's YAML 1.1 but not in YAML 1.2, as charts contain it, is rewritten into a form that
//! both accept: a comment directly after a quote, a quoted text that continues at the margin, `\'` in double quotes.
//!
//! Nesting, aliases and memory are bounded, and nothing recurses over the input. No error quotes the document: it may hold
//! secrets.

use std::borrow::Cow;

use granit_parser::{ErrorKind, Event, Options, Parser, ScalarStyle, ScanError, Span};
use serde_json::Value;

pub(super) use self::builder::Budget;
use self::builder::Builder;
pub(super) use self::scalar::shortest;

mod builder;
mod scalar;

/// The deepest nesting of a document, aliases resolved. Go stops at 10,000;
/// the deepest objects known (CRD schemas) stay below 100.
pub(super) const MAX_DEPTH: usize = 256;

/// The maximum number of bytes to parse again after rewrites. A chart has a few such places in a document of
/// some kilobytes.
const EFFORT: usize = 4 << 20;

const FLOW: [char; 5] = [',', '[', ']', '{', '}'];

/// Why a document is not what Helm could have sent. Lines count from 1 within the document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    #[error("line {line}: {what}")]
    Syntax {
        line: usize,
        /// The parser's message; quotes at most one character of the document.
        what: String,
    },
    #[error("line {line}: a control character")]
    Character { line: usize },
    #[error("line {line}: a `:` or `?` without a space in a flow collection")]
    Flow { line: usize },
    #[error("line {line}: an anchor with other characters than letters, digits, `-` and `_`")]
    Anchor { line: usize },
    #[error("line {line}: a value that is not a {tag}")]
    Tag {
        line: usize,
        /// The tag, such as `!!int`.
        tag: &'static str,
    },
    #[error("line {line}: a key that is not a string, number or boolean")]
    Key { line: usize },
    #[error("line {line}: a number that is not finite")]
    NotFinite { line: usize },
    #[error("line {line}: a merge of a value that is not a map")]
    Merge { line: usize },
    #[error("line {line}: an alias that contains itself")]
    Cycle { line: usize },
    #[error("line {line}: nested deeper than {MAX_DEPTH} levels")]
    Depth { line: usize },
    #[error("line {line}: the manifest's objects exceed the memory limit of a release")]
    Memory { line: usize },
}

impl YamlError {
    pub(super) fn line(&self) -> usize {
        match self {
            Self::Syntax { line, .. } | Self::Tag { line, .. } => *line,
            Self::Character { line } | Self::Flow { line } | Self::Anchor { line } | Self::Key { line } => {
                *line
            }
            Self::NotFinite { line } | Self::Merge { line } | Self::Cycle { line } => *line,
            Self::Depth { line } | Self::Memory { line } => *line,
        }
    }
}

enum BuildFailure {
    Grammar(ScanError),
    Document(YamlError),
}

/// The JSON value of the first document in `text`; null when there is none.
///
/// `text` is the text between two `---` lines, line breaks as `\n`. Like Go, this ignores the text after a `...` line.
pub(super) fn to_json(text: &str, budget: &mut Budget) -> Result<Value, YamlError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Some(at) = text.find(|letter| !is_allowed(letter)) {
        let line = text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
        return Err(YamlError::Character { line });
    }
    let mut text = Cow::Borrowed(text);
    let mut effort = EFFORT;
    loop {
        match build(&text, budget) {
            Ok(value) => return Ok(value),
            Err(BuildFailure::Document(error)) => return Err(error),
            Err(BuildFailure::Grammar(error)) => {
                let left = effort.checked_sub(text.len());
                let Some((left, rewritten)) = left.zip(rewrite(&text, &error)) else {
                    return Err(syntax(&error));
                };
                effort = left;
                text = Cow::Owned(rewritten);
            }
        }
    }
}

fn build(text: &str, budget: &mut Budget) -> Result<Value, BuildFailure> {
    let mut builder = Builder::new(budget);
    for event in Parser::new_from_str_with_options(text, options()) {
        let (event, span) = event.map_err(BuildFailure::Grammar)?;
        let line = span.start.line();
        if builder.in_flow() && reads_otherwise(&event, &span, text) {
            return Err(BuildFailure::Document(YamlError::Flow { line }));
        }
        if let Event::Anchor(_, name) = &event
            && !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
        {
            return Err(BuildFailure::Document(YamlError::Anchor { line }));
        }
        if let Some(root) = builder.take(event, line).map_err(BuildFailure::Document)? {
            return Ok(root);
        }
    }
    Ok(Value::Null)
}

/// Whether Go reads a scalar in a flow collection differently from YAML 1.2: there `[?a]` is a map, and `{a:}` has the
/// key `a:`.
fn reads_otherwise(event: &Event<'_>, span: &Span, text: &str) -> bool {
    let Event::Scalar(content, ScalarStyle::Plain, ..) = event else { return false };
    let after = span.byte_range().and_then(|range| text.get(range.end..)).unwrap_or_default();
    content.starts_with('?')
        || (!content.is_empty() && after.strip_prefix(':').is_some_and(|rest| rest.starts_with(FLOW)))
}

/// The parser's own limits are just above ours, so that ours apply.
fn options() -> Options {
    granit_parser::options! {
        emit_anchor_events: true,
        emit_comments: false,
        flow_nesting_limit: MAX_DEPTH + 1,
        block_nesting_limit: MAX_DEPTH + 1,
    }
}

fn syntax(error: &ScanError) -> YamlError {
    let line = error.marker().line();
    match error.kind() {
        ErrorKind::RecursionLimitExceeded => YamlError::Depth { line },
        kind => YamlError::Syntax { line, what: kind.to_string() },
    }
}

/// The characters that goyaml.v2's reader lets through.
fn is_allowed(letter: char) -> bool {
    matches!(letter,
        '\t' | '\n' | '\r' | ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{fffd}' | '\u{10000}'..)
}

/// `text`, corrected where the parser stopped; `None` if the parser is right to stop.
fn rewrite(text: &str, error: &ScanError) -> Option<String> {
    let (before, after) = text.split_at_checked(error.marker().byte_offset()?)?;
    match error.kind() {
        ErrorKind::CommentNotSeparated => Some(format!("{before} {after}")),
        // The blanks at a break within quotes are folded away.
        ErrorKind::InvalidQuotedScalarIndent | ErrorKind::TabInIndentation => {
            Some([before, &" ".repeat(margin(text)), after].concat())
        }
        ErrorKind::UnknownQuotedScalarEscape => {
            let (quoted, rest) = after.split_at_checked(apostrophe(after)?)?;
            Some(format!("{before}{quoted}{}", rest.strip_prefix('\\')?))
        }
        _ => None,
    }
}

/// A width beyond the indentation of every block in `text`.
fn margin(text: &str) -> usize {
    let indent = |line: &str| line.len() - line.trim_start_matches([' ', '-', '?', ':']).len();
    text.lines().map(indent).max().unwrap_or_default() + 1
}

/// The place of the first `\'` in a text that begins with a double-quoted scalar.
fn apostrophe(text: &str) -> Option<usize> {
    let mut letters = text.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return None,
            '\\' if letters.next()?.1 == '\'' => return Some(at),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests;
