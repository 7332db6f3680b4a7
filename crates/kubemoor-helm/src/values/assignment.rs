//! A value in the form of `helm upgrade`'s command-line flags.
//!
//! Entry point: [`assignment`]. Invariant: the result sets this value to this text, and no other value. A
//! text that the flag cannot carry gives no result.

use serde_json::Value;

/// The longest text that a command carries, in characters.
const LONGEST: usize = 200;

/// A value's path as `--set` takes it.
pub(super) fn named(path: &[String]) -> String {
    path.iter().map(|name| name.replace('.', r"\.")).collect::<Vec<_>>().join(".")
}

/// The flag and its argument that set the value at `path`, now `current`, so that it prints `text`. `None`
/// where they would need more than letters, digits and the usual marks.
pub(super) fn assignment(
    path: &[String],
    current: Option<&Value>,
    text: &str,
) -> Option<(&'static str, String)> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || " /-_.:@+%~*?&;!#$^<>|()=".contains(c);
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let is_named = |name: &String| !name.is_empty() && name.chars().all(is_name);
    let fits = !text.is_empty() && text.chars().all(is_plain) && text.chars().nth(LONGEST).is_none();
    if !fits || text.trim() != text || !path.iter().all(is_named) {
        return None;
    }
    let flag = match (current, is_other_than_text(text)) {
        (Some(Value::Number(_) | Value::Bool(_)), true) | (_, false) => "--set",
        (_, true) => "--set-string",
    };
    Some((flag, format!("{}={text}", named(path))))
}

/// Whether `--set` parses a text as something else: a number, a boolean, or null.
fn is_other_than_text(text: &str) -> bool {
    matches!(text, "true" | "false" | "null") || text.parse::<i64>().is_ok() || text.parse::<f64>().is_ok()
}
