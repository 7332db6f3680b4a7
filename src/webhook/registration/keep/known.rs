//! What is known of a webhook configuration, and what others change about it.
//!
//! Entry points: `Known::note_own`, `meet`, `note_gone`, `take_changes`. Invariant: a state that is older than the last
//! tells nothing, and the guard's own writes are nobody else's changes. Must not tell a value of an address: it holds the
//! token by which the API server shows that it calls.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhook;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::{Map, Value};

use super::kinds::Configuration;

/// How many webhooks are named beside a change that many have in common.
const NAMED: usize = 3;

/// The settings whose values are told.
const TOLD: [&str; 4] = ["failurePolicy", "matchPolicy", "sideEffects", "timeoutSeconds"];

/// Somebody else changed or deleted a configuration that the guard keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideChange {
    /// The kind of the configuration.
    pub kind: &'static str,
    /// Whether it was deleted or withdrawn.
    pub is_deletion: bool,
    /// The field managers that wrote it, as far as it says so.
    pub managers: Vec<String>,
    /// What was changed, such as `failurePolicy Fail → Ignore (scale.kubemoor.dev)`.
    pub what: String,
}

/// One configuration, as it was met last.
pub(super) struct Known<C> {
    last: Option<C>,
    is_gone: bool,
    changes: Vec<OutsideChange>,
}

impl<C: Configuration> Known<C> {
    pub(super) fn new() -> Self {
        Self { last: None, is_gone: false, changes: Vec::new() }
    }

    /// The last known state, even if the configuration is gone by now.
    pub(super) fn last(&self) -> Option<&C> {
        self.last.as_ref()
    }

    /// Records a state that the guard itself wrote.
    pub(super) fn note_own(&mut self, written: &C) {
        self.last = Some(written.clone());
        self.is_gone = false;
    }

    /// Compares a state that was read or watched with the last known one.
    pub(super) fn meet(&mut self, live: &C) {
        if self.last.as_ref().is_some_and(|last| !is_newer(live, last)) {
            return;
        }
        self.is_gone = false;
        let Some(before) = self.last.replace(live.clone()) else { return };
        let what = differences(&before.webhooks(), &live.webhooks());
        if !what.is_empty() {
            self.changes.push(OutsideChange {
                kind: C::KIND,
                is_deletion: false,
                managers: writers(&before, live),
                what: what.join("; "),
            });
        }
    }

    /// Records that the configuration is gone, and why.
    pub(super) fn note_gone(&mut self, what: &str) {
        if self.last.is_some() && !std::mem::replace(&mut self.is_gone, true) {
            let what = what.to_owned();
            self.changes.push(OutsideChange { kind: C::KIND, is_deletion: true, managers: Vec::new(), what });
        }
    }

    /// Returns the changes by others, and forgets them.
    pub(super) fn take_changes(&mut self) -> Vec<OutsideChange> {
        std::mem::take(&mut self.changes)
    }
}

/// Whether a state is newer than another: resource versions grow. Versions that are not numbers are only equal or not.
fn is_newer<C: Configuration>(state: &C, other: &C) -> bool {
    let versions = [state, other].map(|it| it.meta().resource_version.as_deref().unwrap_or_default());
    match versions.map(str::parse::<u64>) {
        [Ok(state), Ok(other)] => state > other,
        _ => versions[0] != versions[1],
    }
}

/// The managers that wrote since. A manager that only lost a field to another one wrote nothing. Times are whole
/// seconds, so only the fields may show a second write.
fn writers<C: Configuration>(before: &C, after: &C) -> Vec<String> {
    let entries =
        |of: &C| -> Vec<ManagedFieldsEntry> { of.meta().managed_fields.clone().unwrap_or_default() };
    let (before, after) = (entries(before), entries(after));
    let is_later = |new: &&ManagedFieldsEntry| {
        let is_same = |old: &ManagedFieldsEntry| {
            (&old.manager, &old.operation, &old.time) == (&new.manager, &new.operation, &new.time)
        };
        !before.iter().any(is_same)
    };
    let mut wrote: Vec<&ManagedFieldsEntry> = after.iter().filter(is_later).collect();
    if wrote.is_empty() {
        wrote = after.iter().filter(|new| !before.contains(new)).collect();
    }
    wrote.iter().filter_map(|it| it.manager.clone()).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Lists the settings that differ, each with the webhooks that share the change.
fn differences(before: &[ValidatingWebhook], after: &[ValidatingWebhook]) -> Vec<String> {
    let (before, after) = (by_name(before), by_name(after));
    let mut found: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, old) in &before {
        match after.get(name) {
            None => found.entry("webhook removed".to_owned()).or_default().push(name),
            Some(new) => {
                for change in changed(old, new) {
                    found.entry(change).or_default().push(name);
                }
            }
        }
    }
    for name in after.keys().filter(|name| !before.contains_key(*name)) {
        found.entry("webhook added".to_owned()).or_default().push(name);
    }
    found.into_iter().map(|(change, names)| format!("{change} ({})", listed(&names))).collect()
}

fn by_name(webhooks: &[ValidatingWebhook]) -> BTreeMap<String, Map<String, Value>> {
    let fields = |webhook| match serde_json::to_value(webhook) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    webhooks.iter().map(|webhook| (webhook.name.clone(), fields(webhook))).collect()
}

/// The settings of one webhook that differ.
fn changed(old: &Map<String, Value>, new: &Map<String, Value>) -> Vec<String> {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let differs = |name: &&&String| old.get(**name) != new.get(**name);
    let told = |name: &String| match TOLD.contains(&name.as_str()) {
        true => format!("{name} {} → {}", shown(old.get(name)), shown(new.get(name))),
        false => name.clone(),
    };
    names.iter().filter(differs).map(|name| told(name)).collect()
}

fn shown(value: Option<&Value>) -> String {
    match value {
        None => "unset".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    }
}

fn listed(names: &[&str]) -> String {
    let named = names.get(..NAMED.min(names.len())).unwrap_or_default().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

#[cfg(test)]
mod tests;
