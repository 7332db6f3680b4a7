//! Selectors of labels and annotations, in both spellings of Kubernetes: the
//! expression (`tier in (web,api),!legacy`) and the structure (`matchLabels`,
//! `matchExpressions`).
//!
//! Entry points: [`Selector::parse`], `Selector::compile`, [`Selector::matches`]. Invariant: has
//! the same meaning as for the API server; an empty selector matches everything. Must not know
//! where the labels come from.

mod requirement;

use std::borrow::Cow;

use self::requirement::{Requirement, Test, checked_key};
use super::flaw::{FlawReason, Flaws};
use super::resource::{LabelSelector, SelectorOperator};

/// The most requirements of one selector.
const MAX_REQUIREMENTS: usize = 64;

/// Requirements that all must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

/// The reason why a text is not a selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// A key that is not a qualified name.
    #[error("{0:?} is no key of a label: write [prefix/]name of letters, digits, `-`, `_` and `.`")]
    Key(String),
    /// An operator without its value.
    #[error(
        "{0:?} is no requirement: write key, !key, key=value, key!=value, key in (a,b) or key notin (a,b)"
    )]
    Requirement(String),
    /// `>` or `<` without a number.
    #[error("{0:?} is no whole number, and > and < compare with one")]
    Number(String),
    /// Values where none are allowed, or no values where some are required.
    #[error("In and NotIn take at least one value, Exists and DoesNotExist take none")]
    Values,
    /// More requirements than the limit.
    #[error("more than {MAX_REQUIREMENTS} requirements")]
    TooMany,
}

impl Selector {
    /// Reads an expression; the empty one matches everything.
    ///
    /// # Errors
    /// Says which requirement cannot be read.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let mut requirements = Vec::new();
        for part in parts(text) {
            if requirements.len() == MAX_REQUIREMENTS {
                return Err(SelectorError::TooMany);
            }
            requirements.push(Requirement::parse(part.trim())?);
        }
        Ok(Self(requirements))
    }

    /// Whether all requirements hold, where `value` returns the value of a key.
    pub fn matches<'v>(&self, value: impl Fn(&str) -> Option<Cow<'v, str>>) -> bool {
        self.0.iter().all(|requirement| requirement.test.holds(value(&requirement.key).as_deref()))
    }

    /// Whether this matches everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks the structure.
    pub(super) fn compile(spec: &LabelSelector, at: &str, flaws: &mut Flaws) -> Self {
        let mut requirements = Vec::new();
        let count = spec.match_labels.len() + spec.match_expressions.len();
        if !flaws.within(at, count, MAX_REQUIREMENTS) {
            return Self::default();
        }
        for (key, value) in &spec.match_labels {
            let field = format!("{at}.matchLabels");
            let key = flaws.take(&field, FlawReason::InvalidSelector, checked_key(key));
            requirements.extend(key.map(|key| Requirement { key, test: Test::In(vec![value.clone()]) }));
        }
        for (index, expression) in spec.match_expressions.iter().enumerate() {
            let field = format!("{at}.matchExpressions[{index}]");
            let values = expression.values.clone();
            let test = match (expression.operator, values.is_empty()) {
                (SelectorOperator::In, false) => Ok(Test::In(values)),
                (SelectorOperator::NotIn, false) => Ok(Test::NotIn(values)),
                (SelectorOperator::Exists, true) => Ok(Test::Exists),
                (SelectorOperator::DoesNotExist, true) => Ok(Test::DoesNotExist),
                _ => Err(SelectorError::Values),
            };
            let requirement =
                test.and_then(|test| Ok(Requirement { key: checked_key(&expression.key)?, test }));
            requirements.extend(flaws.take(&field, FlawReason::InvalidSelector, requirement));
        }
        Self(requirements)
    }
}

/// The requirements of an expression: the parts between commas outside of parentheses.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

#[cfg(test)]
mod tests;
