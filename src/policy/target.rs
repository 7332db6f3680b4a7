//! The objects that a rule applies to: selectors with the names and the meaning that they have in
//! Flux.
//!
//! Entry point: [`Target::selects`]. Invariant: regular expressions match whole names, in time
//! linear in the name. Must not look at the live object, whose labels its editor controls: only the
//! manifest counts.

use std::borrow::Cow;
use std::collections::BTreeMap;

use regex::{Regex, RegexBuilder};
use serde_json::Value;

use super::flaw::{FlawReason, Flaws};
use super::grant::DELETE;
use super::known::Instead;
use super::nearest;
use super::pattern::Pattern;
use super::resource::{DriftPolicySpec, TargetSpec};
use super::selector::Selector;
use crate::helm::release::Declared;
use crate::model::ObjectId;

/// The longest regular expression, in bytes.
pub(super) const MAX_REGEX: usize = 256;

/// The most memory of one compiled regular expression, in bytes.
const REGEX_MEMORY: usize = 256 << 10;

/// The objects that a rule applies to; by default all of a release.
#[derive(Clone, Debug, Default)]
pub struct Target {
    group: Matcher,
    version: Matcher,
    kind: Matcher,
    namespace: Matcher,
    name: Matcher,
    labels: Selector,
    annotations: Selector,
}

#[derive(Clone, Debug, Default)]
enum Matcher {
    #[default]
    Any,
    Exactly(String),
    Regex(Regex),
}

/// The regular expressions of one policy, each compiled once.
#[derive(Default)]
pub(super) struct Regexes(BTreeMap<String, Regex>);

impl Target {
    /// Whether the rule applies to this object, as the manifest declares it.
    pub fn selects(&self, object: &ObjectId, declared: &Declared) -> bool {
        let entry =
            |map: &'static str| move |key: &str| text(declared.fields().get(&["metadata", map, key])?);
        self.kind.matches(&object.kind)
            && self.name.matches(&object.name)
            && self.group.matches(&object.group)
            && self.namespace.matches(object.namespace.as_deref().unwrap_or_default())
            && self.version.matches(&declared.version)
            && self.labels.matches(entry("labels"))
            && self.annotations.matches(entry("annotations"))
    }

    /// Whether it selects by labels or annotations.
    pub(super) fn reads_metadata(&self) -> bool {
        !self.labels.is_empty() || !self.annotations.is_empty()
    }

    pub(super) fn compile(
        spec: Option<&TargetSpec>,
        at: &str,
        regexes: &mut Regexes,
        flaws: &mut Flaws,
    ) -> Self {
        let Some(spec) = spec else { return Self::default() };
        let TargetSpec { group, version, kind, namespace, name, label_selector, annotation_selector } = spec;
        let mut matcher = |field: &str, text: &Option<String>| {
            let matcher = regexes.matcher(text.as_deref().unwrap_or_default());
            flaws.take(&format!("{at}.{field}"), FlawReason::InvalidRegex, matcher).unwrap_or_default()
        };
        let [group, version, kind, namespace, name] = [
            matcher("group", group),
            matcher("version", version),
            matcher("kind", kind),
            matcher("namespace", namespace),
            matcher("name", name),
        ];
        let mut selector = |field: &str, text: &Option<String>| {
            let selector = Selector::parse(text.as_deref().unwrap_or_default());
            flaws.take(&format!("{at}.{field}"), FlawReason::InvalidSelector, selector).unwrap_or_default()
        };
        let labels = selector("labelSelector", label_selector);
        let annotations = selector("annotationSelector", annotation_selector);
        Self { group, version, kind, namespace, name, labels, annotations }
    }
}

/// The kinds of a policy's targets that do not exist while a similar one does: the field, and both
/// names. Regular expressions are not checked, except for their alternatives.
pub(super) fn misspelled(spec: &DriftPolicySpec) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    for (rule, target, _) in rules(spec) {
        let Some(TargetSpec { kind: Some(kinds), .. }) = target else { continue };
        for kind in kinds.trim_start_matches('(').trim_end_matches(')').split('|') {
            if let Some(meant) = nearest::kind(kind) {
                found.push((format!("{rule}.target.kind"), kind.to_owned(), meant));
            }
        }
    }
    found
}

/// The paths of rules for one built-in kind that no object of the kind has: where they stand, and what is wrong.
/// A custom kind may have the same name, so without a group only slips of known names are found.
pub(super) fn unknown_fields(spec: &DriftPolicySpec) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (rule, target, paths) in rules(spec) {
        let Some(TargetSpec { kind: Some(kind), group, .. }) = target else { continue };
        let group = group.as_deref().filter(|group| !group.is_empty());
        let schemas = nearest::schemas(group, kind);
        for (index, path) in paths.iter().enumerate().filter(|(_, path)| *path != DELETE) {
            let Ok(pattern) = Pattern::parse(path) else { continue };
            let unknown: Option<Vec<_>> =
                schemas.iter().map(|schema| pattern.unknown_field(schema)).collect();
            let Some(unknown) = unknown.and_then(|unknown| unknown.into_iter().next()) else { continue };
            if group.is_some() || matches!(unknown.instead, Instead::Like(_) | Instead::Element) {
                found.push((format!("{rule}.paths[{index}]"), format!("in {kind} {unknown}")));
            }
        }
    }
    found
}

/// Every rule with objects and paths: where it stands, and both.
pub(super) fn rules(
    spec: &DriftPolicySpec,
) -> impl Iterator<Item = (String, Option<&TargetSpec>, &[String])> {
    let ignore = spec.ignore.iter().map(|rule| (&rule.target, &rule.paths)).enumerate();
    let allow = spec.allow.iter().map(|rule| (&rule.target, &rule.paths)).enumerate();
    let seal = spec.seal.iter().map(|rule| (&rule.target, &rule.paths)).enumerate();
    let rules = ignore.map(|it| ("ignore", it)).chain(allow.map(|it| ("allow", it)));
    let rules = rules.chain(seal.map(|it| ("seal", it)));
    rules.map(|(list, (index, (target, paths)))| {
        (format!("spec.{list}[{index}]"), target.as_ref(), paths.as_slice())
    })
}

impl Matcher {
    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exactly(name) => name == text,
            Self::Regex(regex) => regex.is_match(text),
        }
    }
}

impl Regexes {
    /// An empty text matches everything, as in Flux.
    fn matcher(&mut self, text: &str) -> Result<Matcher, String> {
        if text.is_empty() {
            return Ok(Matcher::Any);
        }
        if !text.contains(|c: char| regex_syntax_character(c)) {
            return Ok(Matcher::Exactly(text.to_owned()));
        }
        if text.len() > MAX_REGEX {
            return Err(format!("the regular expression is longer than {MAX_REGEX} bytes"));
        }
        if let Some(regex) = self.0.get(text) {
            return Ok(Matcher::Regex(regex.clone()));
        }
        // The text alone first: `)(` must not become valid by the added parentheses.
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

fn regex_syntax_character(c: char) -> bool {
    matches!(c, '\\' | '.' | '+' | '*' | '?' | '(' | ')' | '|' | '[' | ']' | '{' | '}' | '^' | '$')
}

/// The last line of the parser's message; the others draw the position.
fn last_line(error: &regex::Error) -> String {
    let text = error.to_string();
    let line = text.lines().last().unwrap_or_default();
    format!("the regular expression does not compile: {}", line.trim_start_matches("error: "))
}

/// Labels and annotations are text; the API server would refuse unquoted values of other types.
fn text(value: Value) -> Option<Cow<'static, str>> {
    match value {
        Value::String(text) => Some(Cow::Owned(text)),
        Value::Bool(_) | Value::Number(_) => Some(Cow::Owned(value.to_string())),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests;
