//! The webhook configurations: which requests the API server sends to Kubemoor.
//!
//! Entry points: [`configuration`] and [`reverting`] build them, [`keep::keep`]
//! writes one, [`keep::withdraw`] removes one. Invariant: the rules name exactly the
//! resources that releases declare, their `scale`, the records, and the
//! deletions that would take declared objects along; no other traffic leaves
//! the API server. What this module must not do: judge a request.
//!
//! A namespaceSelector works on labels, and `kubernetes.io/metadata.name`
//! stands on every namespace only since Kubernetes 1.21. Before, `NotIn`
//! matches a namespace without it, so that Kubemoor's own namespace and
//! kube-system can still arrive: the handler must leave Kubemoor's own alone
//! by itself and may not rely on the selector.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, RuleWithOperations, ServiceReference, ValidatingWebhook,
    ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta};
use sha2::{Digest, Sha256};

use crate::config::{Endpoint, RecordDriver};
use crate::helm::index::DeclaredResource;
use crate::model::MANAGED_BY;

use self::keep::Configuration;

pub mod emergency;
pub mod keep;

/// The name of each configuration that Kubemoor keeps: one that validates, and
/// where edits are set back one that mutates.
pub const NAME: &str = "kubemoor";

/// The path at which edits are judged.
pub const VALIDATE: &str = "/validate";

/// The path at which edits are set back.
pub const MUTATE: &str = "/mutate";

/// Webhooks by group and version, for edits of declared objects.
pub const EDITS: &str = "edits.kubemoor.dev";
/// The webhook for the `scale` subresource of declared objects.
pub const SCALE: &str = "scale.kubemoor.dev";
/// The webhook for deletions that take declared objects along.
pub const DELETES: &str = "deletes.kubemoor.dev";
/// The webhook for Helm's records.
pub const RECORDS: &str = "records.kubemoor.dev";

/// Webhooks by group and version that set edits of declared objects back.
pub const REVERTS: &str = "reverts.kubemoor.dev";

/// The label by which the API server knows a namespace's name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Kubernetes' bound on a webhook's name.
const NAME_LIMIT: usize = 253;

/// A resource that releases declare, in the version in which they do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version, such as `v1`.
    pub version: String,
    /// The plural, such as `deployments`.
    pub plural: String,
    /// Whether it has a `scale` subresource.
    pub scale: bool,
}

/// How the API server calls, and whom.
#[derive(Clone, Debug)]
pub struct Surface<'a> {
    /// Where it reaches the webhook.
    pub endpoint: &'a Endpoint,
    /// The CA of the webhook's certificate, PEM. `None` leaves it to somebody
    /// else, such as cert-manager's injector.
    pub ca_bundle: Option<&'a [u8]>,
    /// The namespace that Kubemoor runs in.
    pub own_namespace: Option<&'a str>,
    /// The form of Helm's records.
    pub record_driver: RecordDriver,
    /// Whether objects without Helm's label are sent as well.
    pub select_all: bool,
    /// Whether some policy sets edits back.
    pub reverts: bool,
}

impl From<DeclaredResource> for Resource {
    fn from(declared: DeclaredResource) -> Self {
        let DeclaredResource { group, version, plural, scale, kind: _ } = declared;
        Self { group, version, plural, scale }
    }
}

/// The configuration for these resources.
pub fn configuration(
    resources: &BTreeSet<Resource>,
    surface: &Surface<'_>,
) -> ValidatingWebhookConfiguration {
    let judged = || judged(resources);
    let edited = by_group_version(judged().map(|it| (it, it.plural.clone())));
    let scaled =
        by_group_version(judged().filter(|it| it.scale).map(|it| (it, format!("{}/scale", it.plural))));
    let namespaces = guarded(surface);
    let helms = helms(surface);

    let mut webhooks: Vec<_> = edited
        .iter()
        .map(|(group_version, plurals)| {
            let rules = vec![rule(&["CREATE", "UPDATE", "DELETE"], group_version, plurals)];
            webhook(name_of(group_version, EDITS), rules, helms.clone(), Some(namespaces.clone()), surface)
        })
        .collect();
    if !scaled.is_empty() {
        let rules = scaled.iter().map(|(group_version, plurals)| rule(&["UPDATE"], group_version, plurals));
        webhooks.push(webhook(SCALE.to_owned(), rules.collect(), None, Some(namespaces.clone()), surface));
    }
    // Without kube-system among the exceptions: a namespace is selected by its
    // own labels here. Kubemoor's own may always be deleted: it is the way out.
    let own = surface.own_namespace.map(|name| not_in([name]));
    let (crds, secrets) = (("apiextensions.k8s.io", "v1"), ("", "v1"));
    let deletes = vec![
        rule(&["DELETE"], &secrets, &plural("namespaces")),
        rule(&["DELETE"], &crds, &plural("customresourcedefinitions")),
    ];
    webhooks.push(webhook(DELETES.to_owned(), deletes, None, own, surface));
    let records = match surface.record_driver {
        RecordDriver::Secret => plural("secrets"),
        RecordDriver::Configmap => plural("configmaps"),
    };
    let records = vec![rule(&["CREATE", "UPDATE", "DELETE"], &secrets, &records)];
    let owned = Some(labelled("owner", "helm"));
    webhooks.push(webhook(RECORDS.to_owned(), records, owned, Some(namespaces), surface));

    ValidatingWebhookConfiguration { metadata: metadata(), webhooks: Some(webhooks) }
}

/// The configuration that has edits of these resources set back; none where no
/// policy says so.
pub fn reverting(
    resources: &BTreeSet<Resource>,
    surface: &Surface<'_>,
) -> Option<MutatingWebhookConfiguration> {
    if !surface.reverts {
        return None;
    }
    let edited = by_group_version(judged(resources).map(|it| (it, it.plural.clone())));
    let webhooks = edited.iter().map(|(group_version, plurals)| {
        let rules = vec![rule(&["UPDATE"], group_version, plurals)];
        let name = name_of(group_version, REVERTS);
        let guarded = Some(guarded(surface));
        ValidatingWebhook {
            client_config: client_config(surface, MUTATE),
            ..webhook(name, rules, helms(surface), guarded, surface)
        }
    });
    let mut configuration = MutatingWebhookConfiguration { metadata: metadata(), webhooks: None };
    configuration.set_webhooks(webhooks.collect());
    Some(configuration)
}

fn metadata() -> ObjectMeta {
    ObjectMeta {
        name: Some(NAME.to_owned()),
        labels: Some(BTreeMap::from([("app.kubernetes.io/name".to_owned(), NAME.to_owned())])),
        ..ObjectMeta::default()
    }
}

/// The API server never sends webhook configurations to a webhook.
fn judged(resources: &BTreeSet<Resource>) -> impl Iterator<Item = &Resource> {
    resources.iter().filter(|resource| resource.group != "admissionregistration.k8s.io")
}

/// The namespaces whose objects are judged.
fn guarded(surface: &Surface<'_>) -> LabelSelector {
    not_in(["kube-system"].into_iter().chain(surface.own_namespace))
}

/// The objects that are judged; none for all.
fn helms(surface: &Surface<'_>) -> Option<LabelSelector> {
    (!surface.select_all).then(|| labelled(MANAGED_BY.0, MANAGED_BY.1))
}

type GroupVersion<'a> = (&'a str, &'a str);

fn by_group_version<'a>(
    resources: impl Iterator<Item = (&'a Resource, String)>,
) -> BTreeMap<GroupVersion<'a>, BTreeSet<String>> {
    let mut sorted = BTreeMap::<_, BTreeSet<_>>::new();
    for (resource, path) in resources {
        sorted.entry((resource.group.as_str(), resource.version.as_str())).or_default().insert(path);
    }
    sorted
}

/// `v1.apps.edits.kubemoor.dev`. A group that would make it too long for the
/// API server, which would then refuse the whole configuration, is hashed.
fn name_of((group, version): &GroupVersion<'_>, suffix: &str) -> String {
    let group = if group.is_empty() { "core" } else { group };
    let name = format!("{version}.{group}.{suffix}");
    if name.len() <= NAME_LIMIT {
        return name;
    }
    let digest = Sha256::digest(name.as_bytes());
    let short: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("{short}.{suffix}")
}

fn plural(name: &str) -> BTreeSet<String> {
    BTreeSet::from([name.to_owned()])
}

fn rule(
    operations: &[&str],
    (group, version): &GroupVersion<'_>,
    plurals: &BTreeSet<String>,
) -> RuleWithOperations {
    RuleWithOperations {
        api_groups: Some(vec![(*group).to_owned()]),
        api_versions: Some(vec![(*version).to_owned()]),
        operations: Some(operations.iter().map(|&operation| operation.to_owned()).collect()),
        resources: Some(plurals.iter().cloned().collect()),
        scope: Some("*".to_owned()),
    }
}

fn webhook(
    name: String,
    rules: Vec<RuleWithOperations>,
    object_selector: Option<LabelSelector>,
    namespace_selector: Option<LabelSelector>,
    surface: &Surface<'_>,
) -> ValidatingWebhook {
    ValidatingWebhook {
        name,
        rules: Some(rules),
        object_selector,
        namespace_selector,
        client_config: client_config(surface, VALIDATE),
        match_policy: Some("Equivalent".to_owned()),
        failure_policy: Some("Ignore".to_owned()),
        timeout_seconds: Some(3),
        side_effects: "NoneOnDryRun".to_owned(),
        admission_review_versions: vec!["v1".to_owned()],
        match_conditions: None,
    }
}

fn client_config(surface: &Surface<'_>, path: &str) -> WebhookClientConfig {
    let ca_bundle = surface.ca_bundle.map(|pem| ByteString(pem.to_vec()));
    match surface.endpoint {
        Endpoint::Url(url) => WebhookClientConfig { url: Some(url.at(path)), ca_bundle, service: None },
        Endpoint::Service(service) => WebhookClientConfig {
            service: Some(ServiceReference {
                namespace: service.namespace.clone(),
                name: service.name.clone(),
                path: Some(path.to_owned()),
                port: Some(service.port.into()),
            }),
            ca_bundle,
            url: None,
        },
    }
}

fn labelled(key: &str, value: &str) -> LabelSelector {
    LabelSelector {
        match_labels: Some(BTreeMap::from([(key.to_owned(), value.to_owned())])),
        match_expressions: None,
    }
}

fn not_in<'a>(names: impl IntoIterator<Item = &'a str>) -> LabelSelector {
    let names: BTreeSet<String> = names.into_iter().map(str::to_owned).collect();
    LabelSelector {
        match_labels: None,
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: NAMESPACE_NAME.to_owned(),
            operator: "NotIn".to_owned(),
            values: Some(names.into_iter().collect()),
        }]),
    }
}

#[cfg(test)]
mod tests;
