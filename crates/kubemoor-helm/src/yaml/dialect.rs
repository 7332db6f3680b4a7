//! Rewrites text that is valid in Go's YAML 1.1 but not in YAML 1.2 into a form that both accept.
//!
//! Charts contain such text, and Helm applies it: a comment directly after a quote, a quoted text that
//! continues at the margin, `\'` in double quotes.
//!
//! Entry point: [`rewrite`]. Invariant: a rewritten text means the same to Go. Text without such a rewriting
//! stays refused.

use granit_parser::{ErrorKind, ScanError};

/// `text` with the place changed at which the parser stopped; `None` when the
/// parser is right to stop.
pub(super) fn rewrite(text: &str, error: &ScanError) -> Option<String> {
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
