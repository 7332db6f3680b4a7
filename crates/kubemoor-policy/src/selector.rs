//! Selectors: releases by globs, namespaces and clusters by labels, objects by targets as in Flux, and users. They have
//! the semantics of the API server and of Flux. Regular expressions match whole names, in time linear in the name.
//! Objects are selected by their manifest only, because whoever edits the live object controls its labels.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use regex::{Regex, RegexBuilder};
use serde_json::Value;

use crate::flaw::{FlawReason, Flaws};
use crate::resource::{
    LabelSelector, MAX_REGEX, MAX_RULES, SelectorOperator, SubjectKind, SubjectSpec, TargetSpec,
};
use kubemoor_declare::model::{Actor, ObjectId};
use kubemoor_helm::release::DeclaredObject;

/// The most requirements of one selector.
const MAX_REQUIREMENTS: usize = 64;

/// Requirements that all must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// A key that is not a qualified name.
    #[error("{0:?} is not a label key: use [prefix/]name with letters, digits, `-`, `_` and `.`")]
    Key(String),
    /// An operator without its value.
    #[error(
        "{0:?} is not a requirement: use key, !key, key=value, key!=value, key in (a,b) or key notin (a,b)"
    )]
    Requirement(String),
    /// `>` or `<` without a number.
    #[error("{0:?} is not an integer, which > and < need")]
    Number(String),
    /// Values where none are allowed, or no values where some are required.
    #[error("In and NotIn need at least one value, Exists and DoesNotExist allow none")]
    Values,
    #[error("more than {MAX_REQUIREMENTS} requirements")]
    TooMany,
}

impl Selector {
    /// Parses an expression; an empty one matches everything.
    ///
    /// # Errors
    /// The first invalid requirement, or too many of them.
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

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn compile(spec: &LabelSelector, at: &str, flaws: &mut Flaws) -> Self {
        let mut requirements = Vec::new();
        let count = spec.match_labels.len() + spec.match_expressions.len();
        if !flaws.check_count(at, count, MAX_REQUIREMENTS) {
            return Self::default();
        }
        for (key, value) in &spec.match_labels {
            let field = format!("{at}.matchLabels");
            let key = flaws.take(&field, FlawReason::InvalidSelector, checked_key(key));
            requirements.extend(key.map(|key| Requirement { key, test: LabelTest::In(vec![value.clone()]) }));
        }
        for (index, expression) in spec.match_expressions.iter().enumerate() {
            let field = format!("{at}.matchExpressions[{index}]");
            if !flaws.check_count(&field, expression.values.len(), MAX_REQUIREMENTS) {
                continue;
            }
            let values = expression.values.clone();
            let test = match (expression.operator, values.is_empty()) {
                (SelectorOperator::In, false) => Ok(LabelTest::In(values)),
                (SelectorOperator::NotIn, false) => Ok(LabelTest::NotIn(values)),
                (SelectorOperator::Exists, true) => Ok(LabelTest::Exists),
                (SelectorOperator::DoesNotExist, true) => Ok(LabelTest::DoesNotExist),
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

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: LabelTest,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum LabelTest {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    Above(i64),
    Below(i64),
}

impl Requirement {
    fn parse(text: &str) -> Result<Self, SelectorError> {
        let fail = || SelectorError::Requirement(text.to_owned());
        let requirement = |key: &str, test| Ok(Self { key: checked_key(key.trim())?, test });
        if let Some(key) = text.strip_prefix('!') {
            return requirement(key, LabelTest::DoesNotExist);
        }
        let end = text.find(|c: char| c.is_whitespace() || matches!(c, '=' | '!' | '<' | '>' | '('));
        let Some((key, rest)) = end.and_then(|end| text.split_at_checked(end)) else {
            return requirement(text, LabelTest::Exists);
        };
        let rest = rest.trim();
        if let Some(value) = rest.strip_prefix("!=") {
            return requirement(key, LabelTest::NotIn(vec![word(value).ok_or_else(fail)?]));
        }
        if let Some(value) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
            return requirement(key, LabelTest::In(vec![word(value).ok_or_else(fail)?]));
        }
        if let Some(value) = rest.strip_prefix('>') {
            return requirement(key, LabelTest::Above(number(value)?));
        }
        if let Some(value) = rest.strip_prefix('<') {
            return requirement(key, LabelTest::Below(number(value)?));
        }
        if let Some(list) = rest.strip_prefix("notin") {
            return requirement(key, LabelTest::NotIn(words(list).ok_or_else(fail)?));
        }
        let list = rest.strip_prefix("in").and_then(words).ok_or_else(fail)?;
        requirement(key, LabelTest::In(list))
    }
}

impl LabelTest {
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

/// Globs, one of which must match; without globs, every name matches.
#[derive(Clone, Debug, Default)]
pub struct Globs(Vec<String>);

impl Globs {
    pub fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        self.0.is_empty() || self.0.iter().any(|glob| glob_matches(glob.as_bytes(), &name))
    }

    /// Reads globs; `None` if one of them is invalid.
    pub(crate) fn parse(texts: &[String]) -> Option<Self> {
        let mut flaws = Flaws::default();
        let globs = Self::compile(texts, "names", &mut flaws);
        flaws.or(globs).ok()
    }

    pub(crate) fn compile(texts: &[String], at: &str, flaws: &mut Flaws) -> Self {
        if !flaws.check_count(at, texts.len(), MAX_RULES) {
            return Self::default();
        }
        let mut globs = Vec::new();
        for (index, text) in texts.iter().enumerate() {
            let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.*?".contains(c);
            if text.is_empty() || text.len() > 253 || !text.chars().all(letter) {
                let message = format!(
                    "{text:?} is not a name pattern: use lower-case letters, digits, `-`, `.`, and * or ?"
                );
                flaws.add(&format!("{at}[{index}]"), FlawReason::InvalidGlob, message);
            } else {
                globs.push(text.clone());
            }
        }
        Self(globs)
    }
}

/// Whether a glob matches a whole name; `?` does not match `*`. Only the part after the last `*` is retried, so the
/// number of steps is at most the product of both lengths.
fn glob_matches(glob: &[u8], name: &[char]) -> bool {
    let (mut at, mut place) = (0, 0);
    // The position in the glob after its last `*`, and the position in the name from which it was tried.
    let mut retry: Option<(usize, usize)> = None;
    while let Some(letter) = name.get(place) {
        match glob.get(at) {
            Some(b'*') => {
                at += 1;
                retry = Some((at, place));
            }
            Some(expected) if char::from(*expected) == *letter || *expected == b'?' && *letter != '*' => {
                at += 1;
                place += 1;
            }
            _ => {
                let Some((after, tried)) = retry else { return false };
                retry = Some((after, tried + 1));
                (at, place) = (after, tried + 1);
            }
        }
    }
    glob.iter().skip(at).all(|rest| *rest == b'*')
}

/// The objects that a rule applies to; by default all objects of a release.
#[derive(Clone, Debug, Default)]
pub struct RuleTarget {
    /// For group, version, kind, namespace and name.
    names: [Matcher; 5],
    labels: Selector,
    annotations: Selector,
}

impl RuleTarget {
    /// Whether the rule applies to this object, as the manifest declares it.
    pub fn selects(&self, object: &ObjectId, declared: &DeclaredObject) -> bool {
        let ObjectId { group, kind, namespace, name } = object;
        let namespace = namespace.as_deref().unwrap_or_default();
        let names: [&str; 5] = [group, &declared.version, kind, namespace, name];
        let entry =
            |map: &'static str| move |key: &str| text(declared.fields().get(&["metadata", map, key])?);
        self.names.iter().zip(names).all(|(matcher, name)| matcher.matches(name))
            && self.labels.matches(entry("labels"))
            && self.annotations.matches(entry("annotations"))
    }

    /// Whether both may select the same object; `false` is certain.
    pub(crate) fn may_overlap(&self, other: &Self) -> bool {
        self.names.iter().zip(&other.names).all(|(own, other)| own.may_meet(other))
    }

    /// Whether it selects by labels or annotations.
    pub(crate) fn reads_metadata(&self) -> bool {
        !self.labels.is_empty() || !self.annotations.is_empty()
    }

    pub(crate) fn compile(
        spec: Option<&TargetSpec>,
        at: &str,
        regexes: &mut Regexes,
        flaws: &mut Flaws,
    ) -> Self {
        let Some(spec) = spec else { return Self::default() };
        let mut target = Self::default();
        for (matcher, (field, text)) in target.names.iter_mut().zip(spec.regexes()) {
            let compiled = regexes.matcher(text);
            let compiled = flaws.take(&format!("{at}.{field}"), FlawReason::InvalidRegex, compiled);
            *matcher = compiled.unwrap_or_default();
        }
        let selectors = [&mut target.labels, &mut target.annotations];
        for (selector, (field, text)) in selectors.into_iter().zip(spec.selectors()) {
            let compiled = Selector::parse(text);
            let compiled = flaws.take(&format!("{at}.{field}"), FlawReason::InvalidSelector, compiled);
            *selector = compiled.unwrap_or_default();
        }
        target
    }
}

/// Labels and annotations are strings; the API server would reject unquoted values of other types.
fn text(value: Value) -> Option<Cow<'static, str>> {
    match value {
        Value::String(text) => Some(Cow::Owned(text)),
        Value::Bool(_) | Value::Number(_) => Some(Cow::Owned(value.to_string())),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The most memory of one compiled regular expression, in bytes.
const REGEX_MEMORY: usize = 256 << 10;

#[derive(Clone, Debug, Default)]
enum Matcher {
    #[default]
    Any,
    Exactly(String),
    Regex(Regex),
}

/// The regular expressions of one policy, each compiled once.
#[derive(Default)]
pub(crate) struct Regexes(BTreeMap<String, Regex>);

impl Matcher {
    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exactly(name) => name == text,
            Self::Regex(regex) => regex.is_match(text),
        }
    }

    /// Whether both may match the same text; `false` is certain.
    fn may_meet(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exactly(name), matcher) | (matcher, Self::Exactly(name)) => matcher.matches(name),
            _ => true,
        }
    }
}

impl Regexes {
    /// An empty text matches everything, as in Flux.
    fn matcher(&mut self, text: &str) -> Result<Matcher, String> {
        if text.is_empty() {
            return Ok(Matcher::Any);
        }
        if is_plain_text(text) {
            return Ok(Matcher::Exactly(text.to_owned()));
        }
        if text.len() > MAX_REGEX {
            return Err(format!("the regular expression is longer than {MAX_REGEX} bytes"));
        }
        if let Some(regex) = self.0.get(text) {
            return Ok(Matcher::Regex(regex.clone()));
        }
        // Compiles the text alone first: the added parentheses must not make `)(` valid.
        let build = |text: &str| {
            RegexBuilder::new(text)
                .size_limit(REGEX_MEMORY)
                .dfa_size_limit(REGEX_MEMORY)
                .nest_limit(32)
                .build()
                .map_err(|error| last_line(&error))
        };
        build(text)?;
        let regex = build(&format!("^(?:{text})$"))?;
        self.0.insert(text.to_owned(), regex.clone());
        Ok(Matcher::Regex(regex))
    }
}

/// Whether a regular expression matches only its own text.
pub(crate) fn is_plain_text(text: &str) -> bool {
    !text.contains(['\\', '.', '+', '*', '?', '(', ')', '|', '[', ']', '{', '}', '^', '$'])
}

/// The last line of the parser's message; the others show the position.
fn last_line(error: &regex::Error) -> String {
    let text = error.to_string();
    let line = text.lines().last().unwrap_or_default();
    format!("the regular expression does not compile: {}", line.trim_start_matches("error: "))
}

impl fmt::Display for SubjectSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, namespace } = self;
        match namespace {
            Some(namespace) => write!(f, "{kind:?} {namespace}/{name}"),
            None => write!(f, "{kind:?} {name}"),
        }
    }
}

impl SubjectSpec {
    pub fn matches(&self, actor: &Actor) -> bool {
        match self.kind {
            SubjectKind::User => actor.user == self.name,
            SubjectKind::Group => actor.groups.contains(&self.name),
            SubjectKind::ServiceAccount => self
                .namespace
                .as_deref()
                .is_some_and(|namespace| actor.is_service_account(namespace, &self.name)),
        }
    }
}

/// The valid subjects. An empty namespace is treated as absent.
pub(crate) fn compile_subjects(specs: &[SubjectSpec], at: &str, flaws: &mut Flaws) -> Vec<SubjectSpec> {
    let mut subjects = Vec::with_capacity(specs.len());
    for (index, SubjectSpec { kind, name, namespace }) in specs.iter().enumerate() {
        let at = format!("{at}[{index}]");
        if name.is_empty() {
            flaws.add(&at, FlawReason::InvalidSubject, "the subject has no name: use the full name");
            continue;
        }
        let namespace = namespace.clone().filter(|namespace| !namespace.is_empty());
        match (kind, namespace.is_some()) {
            (SubjectKind::User | SubjectKind::Group, false) | (SubjectKind::ServiceAccount, true) => {
                subjects.push(SubjectSpec { kind: *kind, name: name.clone(), namespace });
            }
            (SubjectKind::ServiceAccount, false) => {
                flaws.add(&at, FlawReason::InvalidSubject, "a ServiceAccount needs a namespace")
            }
            (SubjectKind::User | SubjectKind::Group, true) => flaws.add(
                &at,
                FlawReason::InvalidSubject,
                "users and groups have no namespace: leave it out, or use kind ServiceAccount",
            ),
        }
    }
    subjects
}

#[cfg(test)]
mod tests;
