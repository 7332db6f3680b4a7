//! Selectors of labels and annotations, in both spellings of Kubernetes: the
//! expression (`tier in (web,api),!legacy`) and the structure (`matchLabels`,
//! `matchExpressions`).
//!
//! Entry points: [`Selector::parse`], `Selector::compile`, [`Selector::matches`]. Invariant: has
//! the same meaning as for the API server; an empty selector matches everything. Must not know
//! where the labels come from.

use std::borrow::Cow;

use super::flaw::{FlawReason, Flaws};
use super::resource::{LabelSelector, SelectorOperator};

/// The most requirements of one selector.
const MAX_REQUIREMENTS: usize = 64;

/// Requirements that all must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    Above(i64),
    Below(i64),
}

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

impl Requirement {
    fn parse(text: &str) -> Result<Self, SelectorError> {
        let fail = || SelectorError::Requirement(text.to_owned());
        let requirement = |key: &str, test| Ok(Self { key: checked_key(key.trim())?, test });
        if let Some(key) = text.strip_prefix('!') {
            return requirement(key, Test::DoesNotExist);
        }
        let end = text.find(|c: char| c.is_whitespace() || matches!(c, '=' | '!' | '<' | '>' | '('));
        let Some((key, rest)) = end.and_then(|end| text.split_at_checked(end)) else {
            return requirement(text, Test::Exists);
        };
        let rest = rest.trim();
        if let Some(value) = rest.strip_prefix("!=") {
            return requirement(key, Test::NotIn(vec![word(value).ok_or_else(fail)?]));
        }
        if let Some(value) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
            return requirement(key, Test::In(vec![word(value).ok_or_else(fail)?]));
        }
        if let Some(value) = rest.strip_prefix('>') {
            return requirement(key, Test::Above(number(value)?));
        }
        if let Some(value) = rest.strip_prefix('<') {
            return requirement(key, Test::Below(number(value)?));
        }
        if let Some(list) = rest.strip_prefix("notin") {
            return requirement(key, Test::NotIn(words(list).ok_or_else(fail)?));
        }
        let list = rest.strip_prefix("in").and_then(words).ok_or_else(fail)?;
        requirement(key, Test::In(list))
    }
}

impl Test {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
            Self::NotIn(values) => value.is_none_or(|value| values.iter().all(|one| one != value)),
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::Above(bound) => number().is_some_and(|number| number > *bound),
            Self::Below(bound) => number().is_some_and(|number| number < *bound),
        }
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

fn word(text: &str) -> Option<String> {
    let word = text.trim();
    let stray = |c: char| c.is_whitespace() || matches!(c, '(' | ')' | ',' | '=' | '!' | '<' | '>');
    (!word.contains(stray)).then(|| word.to_owned())
}

fn words(text: &str) -> Option<Vec<String>> {
    text.trim().strip_prefix('(')?.strip_suffix(')')?.split(',').map(word).collect()
}

fn number(text: &str) -> Result<i64, SelectorError> {
    text.trim().parse().map_err(|_| SelectorError::Number(text.trim().to_owned()))
}

fn checked_key(key: &str) -> Result<String, SelectorError> {
    let (prefix, name) = key.rsplit_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let bounded = |text: &str, limit: usize| {
        text.len() <= limit
            && text.chars().all(inner)
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.ends_with(|c: char| c.is_ascii_alphanumeric())
    };
    match bounded(name, 63) && prefix.is_none_or(|prefix| bounded(prefix, 253)) {
        true => Ok(key.to_owned()),
        false => Err(SelectorError::Key(key.to_owned())),
    }
}

#[cfg(test)]
mod tests;
