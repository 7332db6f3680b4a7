//! One requirement of a selector: a key, and the test of its value.
//!
//! Entry points: [`Requirement::parse`], [`Test::holds`], [`checked_key`]. Invariant: has the same meaning as for the
//! API server. Must not know where the values come from.

use super::SelectorError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Requirement {
    pub(super) key: String,
    pub(super) test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    Above(i64),
    Below(i64),
}

impl Requirement {
    pub(super) fn parse(text: &str) -> Result<Self, SelectorError> {
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
    pub(super) fn holds(&self, value: Option<&str>) -> bool {
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

pub(super) fn checked_key(key: &str) -> Result<String, SelectorError> {
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
