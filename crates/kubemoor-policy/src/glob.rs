//! Globs of names: `*` is any text, `?` any letter.
//!
//! Entry point: [`Globs`]. Invariant: an empty list matches everything. Must not know which names
//! exist.

use regex::RegexSet;

use super::flaw::{Flaw, FlawReason, Flaws};
use super::resource::MAX_RULES;

/// Names of which one must match.
#[derive(Clone, Debug, Default)]
pub struct Globs {
    exact: Vec<String>,
    patterns: Option<RegexSet>,
}

impl Globs {
    /// Whether one of them matches.
    pub fn matches(&self, name: &str) -> bool {
        let all = self.exact.is_empty() && self.patterns.is_none();
        all || self.exact.iter().any(|exact| exact == name)
            || self.patterns.as_ref().is_some_and(|patterns| patterns.is_match(name))
    }

    /// Reads globs from outside a policy.
    ///
    /// # Errors
    /// The first thing that is wrong with them.
    pub fn parse(texts: &[String]) -> Result<Self, Flaw> {
        let mut flaws = Flaws::default();
        let globs = Self::compile(texts, "names", &mut flaws);
        flaws.or(globs).map_err(|flaws| {
            let first = flaws.into_iter().next();
            first.unwrap_or_else(|| Flaw {
                field: String::new(),
                reason: FlawReason::InvalidGlob,
                message: String::new(),
            })
        })
    }

    pub(super) fn compile(texts: &[String], at: &str, flaws: &mut Flaws) -> Self {
        let mut globs = Self::default();
        if !flaws.within(at, texts.len(), MAX_RULES) {
            return globs;
        }
        let mut patterns = Vec::new();
        for (index, text) in texts.iter().enumerate() {
            let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.*?".contains(c);
            if text.is_empty() || text.len() > 253 || !text.chars().all(letter) {
                let message =
                    format!("{text:?} matches no name: write small letters, digits, `-`, `.`, and * or ?");
                flaws.add(&format!("{at}[{index}]"), FlawReason::InvalidGlob, message);
            } else if text.contains(['*', '?']) {
                let escaped = regex::escape(text).replace("\\*", ".*").replace("\\?", ".");
                patterns.push(format!("^(?:{escaped})$"));
            } else {
                globs.exact.push(text.clone());
            }
        }
        if !patterns.is_empty() {
            globs.patterns = flaws.take(at, FlawReason::TooMany, RegexSet::new(patterns));
        }
        globs
    }
}

#[cfg(test)]
mod tests;
