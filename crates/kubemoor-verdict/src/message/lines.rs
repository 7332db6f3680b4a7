//! Lines of messages.
//!
//! Entry points: [`OneLine`], [`one_line`], [`at_a_word`]. Invariant: a line holds no control character.

use std::fmt::{self, Write as _};

use super::WARNING;

/// Lines that are written to a text.
pub(super) struct OneLine<'t>(pub(super) &'t mut String);

impl OneLine<'_> {
    /// Begins another line.
    pub(super) fn next(&mut self, begin: &str) -> fmt::Result {
        self.0.push('\n');
        self.write_str(begin)
    }
}

impl fmt::Write for OneLine<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        match may_control(text) {
            true => self.0.extend(text.chars().map(|c| if c.is_control() { ' ' } else { c })),
            false => self.0.push_str(text),
        }
        Ok(())
    }
}

/// `text` without control characters.
pub(super) fn one_line(text: String) -> String {
    if may_control(&text) { text.replace(char::is_control, " ") } else { text }
}

/// `text` within the length of a warning: what is cut ends with a whole word.
pub(super) fn at_a_word(text: String) -> String {
    if text.chars().nth(WARNING).is_none() {
        return text;
    }
    let kept: String = text.chars().take(WARNING - 2).collect();
    let end = kept.rfind(' ').filter(|end| *end > WARNING / 2).unwrap_or(kept.len());
    format!("{} …", kept.get(..end).unwrap_or(&kept))
}

/// Whether there may be a control character.
fn may_control(text: &str) -> bool {
    // The first byte of each that is not ASCII is this one.
    let may_control = |byte: u8| byte.is_ascii_control() || byte == 0xc2;
    text.bytes().fold(false, |found, byte| found | may_control(byte))
}
