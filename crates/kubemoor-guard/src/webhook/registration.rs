//! The webhook configurations: they select the requests that the API server sends to Kubemoor.
//!
//! Entry points: [`configuration`] and [`mutating`] build them, [`keep::keep`] writes one,
//! [`keep::withdraw`] removes one; [`shared_secrets`] keeps the token of the address and the certificate behind it.
//! Invariant: the rules name exactly the resources that releases declare, their `scale`, the
//! records, and the deletions that would also delete declared objects, whether a request or a new
//! owner causes them; no other request leaves the API server. Must not judge a request.
//!
//! A namespaceSelector works on labels, and every namespace has `kubernetes.io/metadata.name` only
//! since Kubernetes 1.21. Before, `NotIn` matches a namespace without it, so that requests of
//! Kubemoor's own namespace and kube-system can still arrive: the handler must exempt Kubemoor's
//! own namespace itself and may not rely on the selector.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, RuleWithOperations, ServiceReference, ValidatingWebhook,
    ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta};
use sha2::{Digest, Sha256};

use kubemoor_declare::model::MANAGED_BY;
use kubemoor_helm::index::DeclaredResource;
use kubemoor_runtime::config::{Endpoint, RecordDriver};

pub use self::address::Address;
use self::keep::Configuration;
use self::resources::{by_group_version, by_label_alone, is_deletion_sent_anyway, judged, metadata_detours};

mod address;
mod conditions;
pub mod emergency;
pub mod keep;
mod resources;
pub mod shared_secrets;
pub mod withdrawal;

/// The name of each configuration that Kubemoor keeps: one that validates and one
/// that mutates.
pub const NAME: &str = "kubemoor";

/// The path at which edits are judged, before the caller's token.
pub const VALIDATE: &str = "/validate";

/// The path at which edits are reverted, and orders answered, before the caller's token.
pub const MUTATE: &str = "/mutate";

/// Webhooks by group and version, for edits of declared objects.
pub const EDITS: &str = "edits.kubemoor.dev";
/// The same under `--select-all` for kinds that are written constantly: by label alone.
const LABELLED: &str = "labelled.edits.kubemoor.dev";
/// Webhooks by group and version for the `status` subresource of declared objects,
/// by which labels, annotations and owners of some kinds can be changed.
pub const STATUS: &str = "status.kubemoor.dev";
/// The webhook for the `scale` subresource of declared objects.
pub const SCALE: &str = "scale.kubemoor.dev";
/// The webhook for deletions that also delete declared objects, and for updates after which the
/// garbage collector makes them.
pub const DELETES: &str = "deletes.kubemoor.dev";
/// The webhook for Helm's records.
pub const RECORDS: &str = "records.kubemoor.dev";

/// Webhooks by group and version that revert edits of declared objects.
pub const REVERTS: &str = "reverts.kubemoor.dev";
/// The same under `--select-all` for kinds that are written constantly.
const LABELLED_REVERTS: &str = "labelled.reverts.kubemoor.dev";

/// Where the kubelets renew the leases of their nodes.
const NODE_LEASES: &str = "kube-node-lease";

/// The webhook for orders of repairs.
pub const ORDERS: &str = "orders.kubemoor.dev";

/// The label by which the API server knows a namespace's name.
pub const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

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

/// The calls of the API server: their target and their scope.
#[derive(Clone, Debug)]
pub struct Surface<'a> {
    /// Where it reaches the webhook.
    pub endpoint: &'a Endpoint,
    /// The proof of the caller in the address.
    pub address: Address<'a>,
    /// The CA of the webhook's certificate, PEM. `None` leaves it to another tool, such as
    /// cert-manager's injector.
    pub ca_bundle: Option<&'a [u8]>,
    /// The namespace that Kubemoor runs in.
    pub own_namespace: Option<&'a str>,
    /// The form of Helm's records.
    pub record_driver: RecordDriver,
    /// Whether objects without Helm's label are sent too.
    pub select_all: bool,
    /// Whether a policy reverts edits.
    pub reverts: bool,
    /// Whether the API server knows `matchConditions`. Without them, all status updates of
    /// controllers would be sent, and nothing can be spared.
    pub conditions: bool,
}

type Selected<'a> = (&'a str, Option<LabelSelector>, BTreeMap<GroupVersion<'a>, BTreeSet<String>>);

type GroupVersion<'a> = (&'a str, &'a str);

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
    let scaled =
        by_group_version(judged().filter(|it| it.scale).map(|it| (it, format!("{}/scale", it.plural))));
    let namespaces = guarded(surface);

    let mut webhooks = edits(resources, surface);
    webhooks.extend(statuses(resources, surface));
    if !scaled.is_empty() {
        let rules = scaled.iter().map(|(group_version, plurals)| rule(&["UPDATE"], group_version, plurals));
        webhooks.push(webhook(SCALE.to_owned(), rules.collect(), None, Some(namespaces.clone()), surface));
    }
    // kube-system is not exempt here: a namespace is selected by its own labels. Kubemoor's own
    // namespace may always be deleted: it is the way out.
    let own = surface.own_namespace.map(|name| not_in([name]));
    let (crds, secrets) = (("apiextensions.k8s.io", "v1"), ("", "v1"));
    // Without conditions, updates of subresources would depend on the guard: a definition could not be
    // established and a namespace could not end without it.
    let updated = |plural: &str, subresources: &[&str]| -> BTreeSet<String> {
        let below = subresources.iter().filter(|_| surface.conditions);
        below.map(|it| format!("{plural}/{it}")).chain([plural.to_owned()]).collect()
    };
    let deletes = vec![
        rule(&["DELETE"], &secrets, &plural("namespaces")),
        rule(&["DELETE"], &crds, &plural("customresourcedefinitions")),
        rule(&["UPDATE"], &secrets, &updated("namespaces", &["finalize", "status"])),
        rule(&["UPDATE"], &crds, &updated("customresourcedefinitions", &["status"])),
    ];
    let mut deletes = sparing(webhook(DELETES.to_owned(), deletes, None, own, surface), surface);
    if let Some(conditions) = &mut deletes.match_conditions {
        conditions.push(conditions::updated_owners());
    }
    webhooks.push(deletes);
    let records = match surface.record_driver {
        RecordDriver::Secret => plural("secrets"),
        RecordDriver::Configmap => plural("configmaps"),
    };
    let records = vec![rule(&["CREATE", "UPDATE", "DELETE"], &secrets, &records)];
    // A selector knows no names, and Helm reads a record by its name too.
    let owned = (!surface.conditions).then(|| labelled("owner", "helm"));
    webhooks.push(ValidatingWebhook {
        match_conditions: surface.conditions.then(conditions::records),
        ..webhook(RECORDS.to_owned(), records, owned, Some(namespaces), surface)
    });

    ValidatingWebhookConfiguration { metadata: metadata(), webhooks: Some(webhooks) }
}

/// The configuration for orders, and for edits of these resources where a policy reverts them.
pub fn mutating(resources: &BTreeSet<Resource>, surface: &Surface<'_>) -> MutatingWebhookConfiguration {
    let orders = vec![rule(
        &["CREATE", "UPDATE", "DELETE"],
        &("kubemoor.dev", "v1alpha1"),
        &plural("guardedreleases"),
    )];
    let mut webhooks = vec![ValidatingWebhook {
        client_config: client_config(surface, MUTATE),
        // A release may be in any namespace.
        ..webhook(ORDERS.to_owned(), orders, None, None, surface)
    }];
    let reverted = surface.reverts.then(|| selected(resources, surface, [REVERTS, LABELLED_REVERTS]));
    for (suffix, selector, edited) in reverted.into_iter().flatten() {
        webhooks.extend(edited.iter().map(|(group_version, plurals)| {
            let rules = vec![rule(&["UPDATE"], group_version, plurals)];
            let name = name_of(group_version, suffix);
            ValidatingWebhook {
                client_config: client_config(surface, MUTATE),
                match_conditions: surface.conditions.then(|| vec![conditions::being_deleted()]),
                ..webhook(name, rules, selector.clone(), Some(guarded(surface)), surface)
            }
        }));
    }
    let mut configuration = MutatingWebhookConfiguration { metadata: metadata(), webhooks: None };
    configuration.set_webhooks(webhooks);
    configuration
}

/// The namespaces that the webhooks leave out, where these have the label [`NAMESPACE_NAME`].
pub fn left_out(own_namespace: Option<&str>) -> impl Iterator<Item = &str> {
    ["kube-system", NODE_LEASES].into_iter().chain(own_namespace)
}

/// The webhooks for edits: one for each group and version, since the API server
/// sends an edit in every version that some webhook names, converted to it.
fn edits(resources: &BTreeSet<Resource>, surface: &Surface<'_>) -> Vec<ValidatingWebhook> {
    let mut webhooks = Vec::new();
    for (suffix, selector, edited) in selected(resources, surface, [EDITS, LABELLED]) {
        webhooks.extend(edited.iter().map(|(group_version, plurals)| {
            let (spared, others): (BTreeSet<_>, BTreeSet<_>) =
                plurals.iter().cloned().partition(|plural| is_deletion_sent_anyway(group_version, plural));
            let rules =
                [(&others, &["CREATE", "UPDATE", "DELETE"][..]), (&spared, &["CREATE", "UPDATE"][..])];
            let rules = rules.into_iter().filter(|(plurals, _)| !plurals.is_empty());
            let rules = rules.map(|(plurals, operations)| rule(operations, group_version, plurals)).collect();
            let name = name_of(group_version, suffix);
            sparing(webhook(name, rules, selector.clone(), Some(guarded(surface)), surface), surface)
        }));
    }
    webhooks
}

/// The webhooks for changes of Helm's label and annotations, and of owners, by subresources.
fn statuses(resources: &BTreeSet<Resource>, surface: &Surface<'_>) -> Vec<ValidatingWebhook> {
    if !surface.conditions {
        return Vec::new();
    }
    let paths =
        by_group_version(judged(resources).flat_map(|it| metadata_detours(it).map(move |path| (it, path))));
    let webhooks = paths.iter().map(|(group_version, paths)| {
        let (name, rules) = (name_of(group_version, STATUS), vec![rule(&["UPDATE"], group_version, paths)]);
        let helms = Some(labelled(MANAGED_BY.0, MANAGED_BY.1));
        ValidatingWebhook {
            match_conditions: Some(vec![conditions::helms_metadata_changes(), conditions::being_deleted()]),
            ..webhook(name, rules, helms, Some(guarded(surface)), surface)
        }
    });
    webhooks.collect()
}

/// The resources whose edits are sent, by the selector of their objects and the suffix of the
/// webhook's name.
fn selected<'a>(
    resources: &'a BTreeSet<Resource>,
    surface: &Surface<'_>,
    [all, labelled_only]: [&'a str; 2],
) -> Vec<Selected<'a>> {
    let by_label = |resource: &Resource| surface.select_all && by_label_alone(resource);
    let chosen = |wanted: bool| {
        let resources = judged(resources).filter(move |resource| by_label(resource) == wanted);
        by_group_version(resources.map(|it| (it, it.plural.clone())))
    };
    let helms = || labelled(MANAGED_BY.0, MANAGED_BY.1);
    let others = (!surface.select_all).then(helms);
    vec![(all, others, chosen(false)), (labelled_only, Some(helms()), chosen(true))]
}

fn metadata() -> ObjectMeta {
    ObjectMeta {
        name: Some(NAME.to_owned()),
        labels: Some(BTreeMap::from([("app.kubernetes.io/name".to_owned(), NAME.to_owned())])),
        ..ObjectMeta::default()
    }
}

/// The namespaces whose objects are judged. Heartbeats of nodes never depend on the
/// guard.
fn guarded(surface: &Surface<'_>) -> LabelSelector {
    not_in(left_out(surface.own_namespace))
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

/// The webhook without the requests that the guard always allows, where the API server can tell them.
fn sparing(webhook: ValidatingWebhook, surface: &Surface<'_>) -> ValidatingWebhook {
    ValidatingWebhook { match_conditions: surface.conditions.then(conditions::sparing), ..webhook }
}

fn client_config(surface: &Surface<'_>, path: &str) -> WebhookClientConfig {
    let ca_bundle = surface.ca_bundle.map(|pem| ByteString(pem.to_vec()));
    let path = surface.address.path(path);
    match surface.endpoint {
        Endpoint::Url(url) => WebhookClientConfig { url: Some(url.at(&path)), ca_bundle, service: None },
        Endpoint::Service(service) => WebhookClientConfig {
            service: Some(ServiceReference {
                namespace: service.namespace.clone(),
                name: service.name.clone(),
                path: Some(path),
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
