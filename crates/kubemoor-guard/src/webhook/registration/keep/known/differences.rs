//! The differences of two states of a webhook configuration, in words.
//!
//! Entry point: [`differences`]. Invariant: the value of an address is never shown: it holds a token.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhook;
use serde_json::{Map, Value};

use super::NAMED;

/// The settings whose values are published.
const TOLD: [&str; 4] = ["failurePolicy", "matchPolicy", "sideEffects", "timeoutSeconds"];

/// Lists the settings that differ, each with the webhooks that share the change.
pub(super) fn differences(before: &[ValidatingWebhook], after: &[ValidatingWebhook]) -> Vec<String> {
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
