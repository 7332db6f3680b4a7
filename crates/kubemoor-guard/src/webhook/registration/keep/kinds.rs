//! What the two kinds of webhook configurations have in common.
//!
//! Entry point: [`Configuration`]. Invariant: reading the webhooks of a configuration and setting
//! them again leaves it unchanged, except for the reinvocation policy, which is the guard's own.
//! Must not decide which webhooks are registered.

use k8s_openapi::ClusterResourceScope;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, ValidatingWebhook, ValidatingWebhookConfiguration,
};

use kubemoor_cluster::client::registrations::Registration;

/// A webhook configuration that Kubemoor keeps.
pub trait Configuration:
    Registration + k8s_openapi::Resource<Scope = ClusterResourceScope> + PartialEq + Sync
{
    /// The webhooks, as far as both kinds have them.
    fn webhooks(&self) -> Vec<ValidatingWebhook>;

    /// Replaces all webhooks by these.
    fn set_webhooks(&mut self, webhooks: Vec<ValidatingWebhook>);
}

impl Configuration for ValidatingWebhookConfiguration {
    fn webhooks(&self) -> Vec<ValidatingWebhook> {
        self.webhooks.clone().unwrap_or_default()
    }

    fn set_webhooks(&mut self, webhooks: Vec<ValidatingWebhook>) {
        self.webhooks = Some(webhooks);
    }
}

impl Configuration for MutatingWebhookConfiguration {
    fn webhooks(&self) -> Vec<ValidatingWebhook> {
        let webhooks = self.webhooks.clone().unwrap_or_default().into_iter();
        webhooks
            .map(|webhook| ValidatingWebhook {
                admission_review_versions: webhook.admission_review_versions,
                client_config: webhook.client_config,
                failure_policy: webhook.failure_policy,
                match_conditions: webhook.match_conditions,
                match_policy: webhook.match_policy,
                name: webhook.name,
                namespace_selector: webhook.namespace_selector,
                object_selector: webhook.object_selector,
                rules: webhook.rules,
                side_effects: webhook.side_effects,
                timeout_seconds: webhook.timeout_seconds,
            })
            .collect()
    }

    fn set_webhooks(&mut self, webhooks: Vec<ValidatingWebhook>) {
        let webhooks = webhooks.into_iter().map(|webhook| MutatingWebhook {
            admission_review_versions: webhook.admission_review_versions,
            client_config: webhook.client_config,
            failure_policy: webhook.failure_policy,
            match_conditions: webhook.match_conditions,
            match_policy: webhook.match_policy,
            name: webhook.name,
            namespace_selector: webhook.namespace_selector,
            object_selector: webhook.object_selector,
            // Changes of other webhooks have to be seen too.
            reinvocation_policy: Some("IfNeeded".to_owned()),
            rules: webhook.rules,
            side_effects: webhook.side_effects,
            timeout_seconds: webhook.timeout_seconds,
        });
        self.webhooks = Some(webhooks.collect());
    }
}
