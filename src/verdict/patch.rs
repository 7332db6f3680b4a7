//! Findings as the JSON Patch that would set them right, for people to read.
//!
//! Entry point: [`patch`]. Invariant: only what [`super::shown`] lets through is
//! said, so a masked or shortened value stands as text where a value would. What
//! comes out is for notes and never for an API server.

use std::fmt::Write as _;

use super::edit::Finding;

/// The operations that would make what was found as declared, on one line of at
/// most `limit` characters.
pub fn patch(findings: &[Finding], limit: usize) -> String {
    let mut text = String::from("[");
    for finding in findings {
        if text.len() > 1 {
            text.push(',');
        }
        let path = serde_json::Value::String(finding.path.to_string());
        // Writing to a String cannot fail.
        let _ = match (&finding.declared, &finding.new) {
            (None, _) => write!(text, r#"{{"op":"remove","path":{path}}}"#),
            (Some(declared), None) => write!(text, r#"{{"op":"add","path":{path},"value":{declared}}}"#),
            (Some(declared), Some(_)) => {
                write!(text, r#"{{"op":"replace","path":{path},"value":{declared}}}"#)
            }
        };
        // What lies beyond the limit need not be written.
        if text.len() > limit.saturating_mul(4) {
            break;
        }
    }
    text.push(']');
    let text = text.replace(char::is_control, " ");
    match text.char_indices().nth(limit) {
        None => text,
        Some(_) => text.chars().take(limit.saturating_sub(1)).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests;
