//! The live webhook configuration with the guard's own fields.
//!
//! Entry point: `merge`. Invariant: own are a webhook's address, CA, rules, object selector
//! and the version it speaks, and its own conditions. The admin's are `failurePolicy`,
//! `timeoutSeconds`, `namespaceSelector`, `matchConditions` and foreign labels
//! and annotations: once the object exists they are taken from it. Must not write.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::{
    RuleWithOperations, ValidatingWebhook, WebhookClientConfig,
};

use super::super::{EDITS, REVERTS, STATUS};
use super::conditions;
use super::kinds::Configuration;

/// The live configuration with the guard's own fields of the desired one, or `None` if both have
/// the same meaning.
pub(in super::super) fn merge<C: Configuration>(live: &C, desired: &C) -> Option<C> {
    let mut merged = live.clone();
    if let Some(labels) = &desired.meta().labels {
        merged.meta_mut().labels.get_or_insert_default().extend(labels.clone());
    }
    let (known, wanted) = (live.webhooks(), desired.webhooks());
    // In the live order: order has no meaning here and is no reason to write.
    let mut placed = BTreeSet::new();
    let mut webhooks: Vec<_> = known
        .iter()
        .filter_map(|old| Some((old, wanted.iter().find(|new| new.name == old.name)?)))
        .filter(|(_, new)| placed.insert(new.name.as_str()))
        .map(|(old, new)| with_own_fields(old.clone(), new))
        .collect();
    for new in wanted.iter().filter(|new| !placed.contains(new.name.as_str())) {
        webhooks.push(with_siblings_settings(new.clone(), &known));
    }
    merged.set_webhooks(webhooks);
    (merged != *live).then_some(merged)
}

fn with_own_fields(mut old: ValidatingWebhook, new: &ValidatingWebhook) -> ValidatingWebhook {
    if !same_rules(old.rules.as_deref(), new.rules.as_deref()) {
        old.rules.clone_from(&new.rules);
    }
    if old.object_selector.clone().unwrap_or_default() != new.object_selector.clone().unwrap_or_default() {
        old.object_selector.clone_from(&new.object_selector);
    }
    if !same_address(&old.client_config, &new.client_config) {
        let ca_bundle = old.client_config.ca_bundle.take();
        old.client_config = WebhookClientConfig { ca_bundle, ..new.client_config.clone() };
    }
    if new.client_config.ca_bundle.is_some() {
        old.client_config.ca_bundle.clone_from(&new.client_config.ca_bundle);
    }
    old.match_policy = Some(new.match_policy.clone().unwrap_or_else(|| "Equivalent".to_owned()));
    old.side_effects.clone_from(&new.side_effects);
    conditions::merge(&mut old.match_conditions, new.match_conditions.as_deref());
    old.admission_review_versions.clone_from(&new.admission_review_versions);
    old
}

/// A webhook for a new group and version gets the admin's settings of its siblings, where they
/// agree.
fn with_siblings_settings(mut new: ValidatingWebhook, known: &[ValidatingWebhook]) -> ValidatingWebhook {
    let related = |suffix| move |name: &str| name.ends_with(suffix);
    let is_sibling = [EDITS, REVERTS, STATUS].map(related).into_iter().find(|related| related(&new.name));
    let mut siblings = known
        .iter()
        .filter(|old| is_sibling.as_ref().is_some_and(|is_sibling| is_sibling(&old.name)))
        .peekable();
    if let Some(&first) = siblings.peek() {
        let settings = |webhook: &ValidatingWebhook| {
            (
                webhook.failure_policy.clone(),
                webhook.timeout_seconds,
                webhook.namespace_selector.clone(),
                conditions::admins(webhook.match_conditions.as_deref()),
            )
        };
        let agreed = settings(first);
        if siblings.all(|sibling| settings(sibling) == agreed) {
            let own = new.match_conditions.take();
            (new.failure_policy, new.timeout_seconds, new.namespace_selector, new.match_conditions) = agreed;
            conditions::merge(&mut new.match_conditions, own.as_deref());
        }
    }
    new
}

fn same_address(left: &WebhookClientConfig, right: &WebhookClientConfig) -> bool {
    let service = |config: &WebhookClientConfig| {
        config.service.as_ref().map(|service| {
            let port = service.port.unwrap_or(443);
            (service.namespace.clone(), service.name.clone(), service.path.clone(), port)
        })
    };
    left.url == right.url && service(left) == service(right)
}

/// Whether the rules mean the same: the order of rules and of their lists has
/// no meaning, and an absent scope is every scope.
fn same_rules(left: Option<&[RuleWithOperations]>, right: Option<&[RuleWithOperations]>) -> bool {
    let sorted = |list: &Option<Vec<String>>| list.iter().flatten().cloned().collect::<BTreeSet<_>>();
    let meaning = |rules: Option<&[RuleWithOperations]>| {
        rules
            .unwrap_or_default()
            .iter()
            .map(|rule| {
                (
                    sorted(&rule.api_groups),
                    sorted(&rule.api_versions),
                    sorted(&rule.operations),
                    sorted(&rule.resources),
                    rule.scope.clone().unwrap_or_else(|| "*".to_owned()),
                )
            })
            .collect::<BTreeSet<_>>()
    };
    meaning(left) == meaning(right)
}
