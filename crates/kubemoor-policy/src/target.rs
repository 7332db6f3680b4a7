//! The objects that a rule applies to: selectors with the names and the meaning that they have in
//! Flux.
//!
//! Entry point: [`Target::selects`]. Invariant: regular expressions match whole names, in time
//! linear in the name. Must not look at the live object, whose labels its editor controls: only the
//! manifest counts.

mod regexes;
mod spelling;

use std::borrow::Cow;

use serde_json::Value;

use self::regexes::Matcher;
pub(super) use self::regexes::Regexes;
pub(super) use self::spelling::{misspelled, rules, unknown_fields};
use super::flaw::{FlawReason, Flaws};
use super::resource::TargetSpec;
use super::selector::Selector;
use kubemoor_declare::model::ObjectId;
use kubemoor_helm::release::Declared;

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

    /// Whether an object may be selected by both. "No" is certain.
    pub(super) fn may_meet(&self, other: &Self) -> bool {
        let pairs = [
            (&self.group, &other.group),
            (&self.version, &other.version),
            (&self.kind, &other.kind),
            (&self.namespace, &other.namespace),
            (&self.name, &other.name),
        ];
        pairs.iter().all(|(own, other)| own.may_meet(other))
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
