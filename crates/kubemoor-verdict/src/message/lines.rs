//! Lines of messages.
//!
//! Entry points: [`OneLine`], [`at_a_word`]. Invariant: a line holds no unprintable character.

use std::fmt::{self, Write as _};

use super::WARNING;
use kubemoor_declare::model::text::one_line;

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
        self.0.push_str(&one_line(text));
        Ok(())
    }
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
