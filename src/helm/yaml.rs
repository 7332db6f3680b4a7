//! One YAML document to the JSON that Helm sends for it.
//!
//! Helm reads manifests with `sigs.k8s.io/yaml`: Go's goyaml.v2, a port of
//! libyaml with YAML 1.1 scalars, then a conversion to JSON, then Go's JSON.
//! The grammar comes from `granit-parser`; what a scalar, a key, a merge and an
//! alias mean is decided here.
//!
//! Entry point: [`to_json`]. Invariant: total on any text; nesting, aliases and
//! memory are bounded, nothing recurses over the input. Must not quote the
//! document in an error: it may hold secrets.

use granit_parser::{ErrorKind, Options, Parser, ScanError};
use serde_json::Value;

mod builder;
mod scalar;

pub(super) use builder::Budget;
use builder::Builder;
pub(super) use scalar::shortest;

/// The deepest nesting of a document, aliases resolved. Go stops at 10,000;
/// the deepest objects known (CRD schemas) stay below 100.
pub(super) const MAX_DEPTH: usize = 256;

/// Why a document is not what Helm could have sent. Lines count from 1 within
/// the document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    /// Not YAML by its grammar.
    #[error("line {line}: {what}")]
    Syntax {
        /// The line.
        line: usize,
        /// The parser's words; at most one character of the document.
        what: String,
    },
    /// A character that YAML forbids.
    #[error("line {line}: a control character")]
    ControlCharacter {
        /// The line.
        line: usize,
    },
    /// A value that its own tag does not fit.
    #[error("line {line}: a value that is no {tag}")]
    Tag {
        /// The line.
        line: usize,
        /// The tag, such as `!!int`.
        tag: &'static str,
    },
    /// A key that JSON cannot have: null, a list, a map, or a huge number.
    #[error("line {line}: a key that is neither text, a number nor a boolean")]
    Key {
        /// The line.
        line: usize,
    },
    /// A number that JSON cannot hold: infinite or none.
    #[error("line {line}: a number that is not finite")]
    NotFinite {
        /// The line.
        line: usize,
    },
    /// `<<` with something else than a map or a list of maps.
    #[error("line {line}: a merge of what is no map")]
    Merge {
        /// The line.
        line: usize,
    },
    /// An alias inside the node that it names.
    #[error("line {line}: an alias that contains itself")]
    Cycle {
        /// The line.
        line: usize,
    },
    /// Nested beyond the bound.
    #[error("line {line}: nested deeper than {MAX_DEPTH} levels")]
    Depth {
        /// The line.
        line: usize,
    },
    /// More objects than one manifest may hold.
    #[error("line {line}: the manifest's objects take more memory than one release may")]
    Memory {
        /// The line.
        line: usize,
    },
}

/// The JSON value of the first document in `text`; null when there is none.
///
/// `text` is what stands between two `---` lines, line breaks as `\n`. What
/// follows a `...` line is not read, as Go does not.
pub(super) fn to_json(text: &str, budget: &mut Budget) -> Result<Value, YamlError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Some(at) = text.find(|letter| !is_allowed(letter)) {
        let line = text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
        return Err(YamlError::ControlCharacter { line });
    }
    let mut builder = Builder::new(budget);
    for event in Parser::new_from_str_with_options(text, options()) {
        let (event, span) = event.map_err(|error| syntax(&error))?;
        if let Some(root) = builder.take(event, span.start.line())? {
            return Ok(root);
        }
    }
    Ok(Value::Null)
}

/// The parser's own bounds stand just above ours, so that ours speak.
fn options() -> Options {
    granit_parser::options! {
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

/// The characters that libyaml's reader lets through.
fn is_allowed(letter: char) -> bool {
    matches!(letter,
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}'
        | '\u{10000}'..)
}

#[cfg(test)]
mod tests;
