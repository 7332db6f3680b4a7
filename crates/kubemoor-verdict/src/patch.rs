//! Findings as the JSON Patch that would repair them, for people to read.
//!
//! Entry point: [`patch`]. Invariant: contains only values that [`super::shown`] allows, so a
//! masked or shortened value appears as text. The result is for notes. Must not be sent to an API
//! server.

use std::fmt::Write as _;

use super::edit::Finding;
use kubemoor_declare::model::text::one_line;

/// The operations that would restore the declared values, on one line of at most `limit`
/// characters.
pub fn patch(findings: &[Finding], limit: usize) -> String {
    let mut text = String::from("[");
    for finding in findings {
        if text.len() > 1 {
            text.push(',');
        }
        let path = serde_json::Value::from(finding.path.pointer());
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
    let text = one_line(&text);
    match text.char_indices().nth(limit) {
        None => text.into_owned(),
        Some(_) => text.chars().take(limit.saturating_sub(1)).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests;
