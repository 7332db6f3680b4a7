//! Replaces or escapes characters from the cluster that could deceive a reader: they move the cursor, end a line, or
//! reverse the displayed order of a text (CVE-2021-42574). Apply one of these functions to all text for people.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character is invisible and changes how others are displayed: a control character, a line separator, a mark
/// or control of bidirectional text, or a byte order mark.
pub fn is_unprintable(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
        )
}

/// The text with a space in place of each unprintable character.
pub fn one_line(text: &str) -> Cow<'_, str> {
    match text.contains(is_unprintable) {
        true => text.replace(is_unprintable, " ").into(),
        false => text.into(),
    }
}

/// The text, cut to at most `most` characters; a cut text ends with an ellipsis.
pub fn shortened<'t>(text: impl Into<Cow<'t, str>>, most: usize) -> Cow<'t, str> {
    let text = text.into();
    match text.char_indices().nth(most) {
        None => text,
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// The text with each unprintable character escaped, such as `\u{1b}`.
pub fn escaped(text: &str) -> Cow<'_, str> {
    escaped_but(text, &[])
}

/// Like [`escaped`], but leaves the characters in `kept` as they are.
pub fn escaped_but<'t>(text: &'t str, kept: &[char]) -> Cow<'t, str> {
    let is_odd = |letter: char| is_unprintable(letter) && !kept.contains(&letter);
    if !text.contains(is_odd) {
        return text.into();
    }
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        match is_odd(letter) {
            true => plain.extend(letter.escape_default()),
            false => plain.push(letter),
        }
    }
    plain.into()
}

/// An equivalent JSON text with each unprintable character escaped. The JSON serializer already escapes those of ASCII,
/// except DEL, which JSON allows.
pub fn escaped_json(json: String) -> String {
    let is_odd = |letter: char| (!letter.is_ascii() || letter == '\u{7f}') && is_unprintable(letter);
    if !json.contains(is_odd) {
        return json;
    }
    let mut plain = String::with_capacity(json.len());
    for letter in json.chars() {
        match is_odd(letter) {
            // Writing to a String cannot fail. All these code points have at most four digits.
            true => drop(write!(plain, "\\u{:04x}", u32::from(letter))),
            false => plain.push(letter),
        }
    }
    plain
}

#[cfg(test)]
mod tests;
