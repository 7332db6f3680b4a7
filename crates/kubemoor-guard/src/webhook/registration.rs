//! The webhook configurations: they select the requests that the API server sends to Kubemoor.
//!
//! [`configuration`] and [`mutating`] build them, [`keep`] writes and removes them, [`emergency`] is the switch that
//! removes them for everybody, and [`shared_secrets`] keeps the token of the address and the certificate behind it. The
//! rules name exactly the resources that releases declare, their `scale`, the records, and the deletions that would
//! also delete declared objects, whether a request or a new owner causes them; the API server sends no other request. A
//! record, which may be forged, must not direct the cluster's own traffic to the guard: heartbeats of nodes, events,
//! requests that store nothing. A match condition skips only requests that the guard allows under any policy, so that
//! they also pass while no guard answers.
//!
//! A namespaceSelector works on labels, and every namespace has `kubernetes.io/metadata.name` only
//! since Kubernetes 1.21. Before, `NotIn` matches a namespace without it, so that requests of
//! Kubemoor's own namespace and kube-system can still arrive: the handler must exempt Kubemoor's
//! own namespace itself and may not rely on the selector.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference, ValidatingWebhook,
    ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta};
use sha2::{Digest, Sha256};

use self::keep::Configuration;
use kubemoor_declare::model::{MANAGED_BY, RELEASE_NAME, RELEASE_NAMESPACE};
use kubemoor_helm::index::DeclaredResource;
use kubemoor_helm::record::NAME_PREFIX;
use kubemoor_policy::signing::hex;
use kubemoor_runtime::callers::CallerToken;
use kubemoor_runtime::config::{Endpoint, RecordDriver};
use kubemoor_verdict::identities;
use kubemoor_verdict::replay::NAMESPACE_NAME;

pub mod emergency;
pub mod keep;
pub mod shared_secrets;

/// The name of each configuration that Kubemoor keeps: one that validates and one
/// that mutates.
pub const NAME: &str = "kubemoor";

/// The path at which edits are judged, before the caller's token.
pub const VALIDATE: &str = "/validate";

/// The path at which edits are reverted, and orders answered, before the caller's token.
pub const MUTATE: &str = "/mutate";

/// The path at which changes are only recorded, before the caller's token.
pub const OBSERVE: &str = "/observe";

/// Webhooks by group and version, for edits of declared objects.
pub const EDITS: &str = "edits.kubemoor.dev";
/// The same under `--select-all` for kinds that are written constantly: by label alone.
pub const LABELLED: &str = "labelled.edits.kubemoor.dev";
/// Webhooks by group and version for the `status` subresource of declared objects,
/// by which labels, annotations and owners of some kinds can be changed.
pub const STATUS: &str = "status.kubemoor.dev";
pub const SCALE: &str = "scale.kubemoor.dev";
/// The webhook for autoscalers, declared or not, which refuses nothing.
pub const AUTOSCALERS: &str = "autoscalers.kubemoor.dev";
/// The webhook for deletions that also delete declared objects, and for updates after which the
/// garbage collector makes them.
pub const DELETES: &str = "deletes.kubemoor.dev";
pub const RECORDS: &str = "records.kubemoor.dev";

/// Webhooks by group and version that revert edits of declared objects.
pub const REVERTS: &str = "reverts.kubemoor.dev";
/// The same under `--select-all` for kinds that are written constantly.
const LABELLED_REVERTS: &str = "labelled.reverts.kubemoor.dev";

/// Where the kubelets renew the leases of their nodes.
const NODE_LEASES: &str = "kube-node-lease";

pub const ORDERS: &str = "orders.kubemoor.dev";

/// The first version of Kubernetes whose webhooks have match conditions by default.
pub const CONDITIONS: (u32, u32) = (1, 28);

const NAME_LIMIT: usize = 253;

/// A resource that releases declare, in the declared version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WebhookResource {
    pub group: String,
    pub version: String,
    pub plural: String,
    pub scale: bool,
}

/// The calls of the API server: their target and their scope.
#[derive(Clone, Debug)]
pub struct WebhookSettings<'a> {
    pub endpoint: &'a Endpoint,
    pub address: WebhookAddress<'a>,
    /// The CA of the webhook's certificate, PEM. `None` leaves it to another tool, such as
    /// cert-manager's injector.
    pub ca_bundle: Option<&'a [u8]>,
    pub own_namespace: Option<&'a str>,
    pub record_driver: RecordDriver,
    pub select_all: bool,
    pub reverts: bool,
    /// Whether the API server supports `matchConditions`. Without them, no request can be skipped, and updates of
    /// `status` have no webhook: it would get all status updates of controllers.
    pub conditions: bool,
}

type Selected<'a> = (&'a str, Option<LabelSelector>, BTreeMap<GroupAndVersion<'a>, BTreeSet<String>>);

type GroupAndVersion<'a> = (&'a str, &'a str);

impl From<DeclaredResource> for WebhookResource {
    fn from(declared: DeclaredResource) -> Self {
        let DeclaredResource { group, version, plural, scale, kind: _ } = declared;
        Self { group, version, plural, scale }
    }
}

pub fn configuration(
    resources: &BTreeSet<WebhookResource>,
    surface: &WebhookSettings<'_>,
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
        let kinds = [("autoscaling", "horizontalpodautoscalers"), ("keda.sh", "scaledobjects")];
        let rules =
            kinds.map(|(group, name)| rule(&["CREATE", "UPDATE", "DELETE"], &(group, "*"), &plural(name)));
        let observed = webhook(AUTOSCALERS.to_owned(), rules.into(), None, Some(namespaces.clone()), surface);
        let client_config = client_config(surface, OBSERVE);
        webhooks.push(skip_cleanup_requests(ValidatingWebhook { client_config, ..observed }, surface));
    }
    // kube-system is not exempt here: a namespace is selected by its own labels. Kubemoor's own namespace may always be
    // deleted, so that it can be removed.
    let own = surface.own_namespace.map(|name| not_in([name]));
    let (crds, secrets) = (("apiextensions.k8s.io", "v1"), ("", "v1"));
    // Without conditions, updates of subresources would depend on the guard: without it, a CustomResourceDefinition
    // could not be established and a namespace could not terminate.
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
    let mut deletes =
        skip_cleanup_requests(webhook(DELETES.to_owned(), deletes, None, own, surface), surface);
    if let Some(conditions) = &mut deletes.match_conditions {
        conditions.push(owners_or_labels_change());
    }
    webhooks.push(deletes);
    let records = match surface.record_driver {
        RecordDriver::Secret => plural("secrets"),
        RecordDriver::Configmap => plural("configmaps"),
    };
    let records = vec![rule(&["CREATE", "UPDATE", "DELETE"], &secrets, &records)];
    // With conditions there is no selector: it cannot match names, and Helm reads a record by its name too.
    let owned = (!surface.conditions).then(|| labelled("owner", "helm"));
    webhooks.push(ValidatingWebhook {
        match_conditions: surface.conditions.then(record_conditions),
        ..webhook(RECORDS.to_owned(), records, owned, Some(namespaces), surface)
    });

    ValidatingWebhookConfiguration { metadata: metadata(), webhooks: Some(webhooks) }
}

pub fn mutating(
    resources: &BTreeSet<WebhookResource>,
    surface: &WebhookSettings<'_>,
) -> MutatingWebhookConfiguration {
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
                match_conditions: surface.conditions.then(|| vec![not_being_deleted()]),
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
fn edits(resources: &BTreeSet<WebhookResource>, surface: &WebhookSettings<'_>) -> Vec<ValidatingWebhook> {
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
            skip_cleanup_requests(
                webhook(name, rules, selector.clone(), Some(guarded(surface)), surface),
                surface,
            )
        }));
    }
    webhooks
}

fn statuses(resources: &BTreeSet<WebhookResource>, surface: &WebhookSettings<'_>) -> Vec<ValidatingWebhook> {
    if !surface.conditions {
        return Vec::new();
    }
    let paths =
        by_group_version(judged(resources).flat_map(|it| metadata_detours(it).map(move |path| (it, path))));
    let webhooks = paths.iter().map(|(group_version, paths)| {
        let (name, rules) = (name_of(group_version, STATUS), vec![rule(&["UPDATE"], group_version, paths)]);
        let helms = Some(labelled(MANAGED_BY.0, MANAGED_BY.1));
        ValidatingWebhook {
            match_conditions: Some(vec![helms_metadata_change(), not_being_deleted()]),
            ..webhook(name, rules, helms, Some(guarded(surface)), surface)
        }
    });
    webhooks.collect()
}

fn selected<'a>(
    resources: &'a BTreeSet<WebhookResource>,
    surface: &WebhookSettings<'_>,
    [all, labelled_only]: [&'a str; 2],
) -> Vec<Selected<'a>> {
    let is_busy = |it: &WebhookResource| BUSY.contains(&(it.group.as_str(), it.plural.as_str()));
    let by_label = |resource: &WebhookResource| surface.select_all && is_busy(resource);
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
fn guarded(surface: &WebhookSettings<'_>) -> LabelSelector {
    not_in(left_out(surface.own_namespace))
}

/// `v1.apps.edits.kubemoor.dev`. A group that would make it too long for the
/// API server, which would then refuse the whole configuration, is hashed.
fn name_of((group, version): &GroupAndVersion<'_>, suffix: &str) -> String {
    let group = if group.is_empty() { "core" } else { group };
    let name = format!("{version}.{group}.{suffix}");
    if name.len() <= NAME_LIMIT {
        return name;
    }
    let digest = Sha256::digest(name.as_bytes());
    format!("{}.{suffix}", hex(digest.iter().take(16)))
}

fn plural(name: &str) -> BTreeSet<String> {
    BTreeSet::from([name.to_owned()])
}

fn rule(
    operations: &[&str],
    (group, version): &GroupAndVersion<'_>,
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
    surface: &WebhookSettings<'_>,
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

/// Excludes the requests that the guard always allows, if the API server supports conditions, so that namespaces do not
/// stay `Terminating` and garbage does not pile up. These are deletions by the namespace controller and the garbage
/// collector, and the removal of finalizers from objects that are being deleted.
fn skip_cleanup_requests(webhook: ValidatingWebhook, surface: &WebhookSettings<'_>) -> ValidatingWebhook {
    let match_conditions = surface.conditions.then(|| vec![no_cleanup(), not_being_deleted()]);
    ValidatingWebhook { match_conditions, ..webhook }
}

fn client_config(surface: &WebhookSettings<'_>, path: &str) -> WebhookClientConfig {
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

// The webhook's address, as far as it holds a caller's token.

/// The text in place of a token in printed manifests. The API server allows no capital letters in a
/// Service's path, so such a manifest cannot be applied by mistake.
const PLACEHOLDER: &str = "CALLER_TOKEN";

/// The proof, in the webhook's address, that the API server is the caller.
#[derive(Clone, Copy, Debug)]
pub enum WebhookAddress<'a> {
    Token(&'a CallerToken),
    /// A placeholder, which a token replaces later.
    Placeholder,
    /// No proof: the guard verifies the API server's client certificate.
    Bare,
}

impl WebhookAddress<'_> {
    fn path(self, base: &str) -> String {
        match self {
            Self::Token(token) => format!("{base}/{}", token.expose()),
            Self::Placeholder => format!("{base}/{PLACEHOLDER}"),
            Self::Bare => base.to_owned(),
        }
    }
}

fn holds_token(address: &WebhookClientConfig, token: &CallerToken) -> bool {
    let path = address.service.as_ref().and_then(|service| service.path.as_deref());
    let texts = path.into_iter().chain(address.url.as_deref());
    texts.flat_map(|text| text.split('/')).any(|segment| segment == token.expose())
}

/// `text` without tokens: a message of an API server or of another webhook about a configuration may quote them.
pub fn redact_tokens(text: &str) -> String {
    let mut veiled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((place, length)) = [VALIDATE, MUTATE, OBSERVE]
        .into_iter()
        .filter_map(|base| Some((rest.find(&format!("{base}/"))?, base.len() + 1)))
        .min()
    {
        let (before, after) = rest.split_at(place + length);
        let token = after.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(after.len());
        veiled.push_str(before);
        if token > 0 {
            veiled.push('…');
        }
        rest = after.split_at(token).1;
    }
    veiled.push_str(rest);
    veiled
}

// The conditions by which the API server skips a webhook, where it knows `matchConditions`.

const OWN_CONDITIONS: [&str; 5] = [METADATA, CLEANUP, DELETED, OWNERS, RECORD];

/// Helm's label, one of its annotations, or the owners change.
const METADATA: &str = "helms-metadata-changes";

/// The request is not an update that leaves the owners and the labels as they are.
const OWNERS: &str = "owners-or-labels-change";

/// The request is not a deletion by a controller that may delete everything.
const CLEANUP: &str = "not-a-controllers-cleanup";

/// The object is not being deleted already, or the request changes more than its finalizers.
const DELETED: &str = "not-being-deleted";

const RECORD: &str = "a-record-of-helms";

/// The metadata that may always change on an object that is being deleted: its finalizers, and what only the API server
/// sets.
const FINISHING: &str = "['finalizers', 'managedFields', 'resourceVersion', 'generation', 'deletionTimestamp', \
    'deletionGracePeriodSeconds']";

/// Skips what Helm does not read as a record, by its name or by its labels, and deletions by the namespace controller
/// and the garbage collector. Records that are being deleted are sent: Helm still reads them.
fn record_conditions() -> Vec<MatchCondition> {
    let is_record = |of: &str| {
        let labels = format!("{of}.metadata.labels");
        format!(
            "({of} != null && ((has({of}.metadata.name) && {of}.metadata.name.startsWith('{NAME_PREFIX}')) \
             || (has({labels}) && 'owner' in {labels} && {labels}['owner'] == 'helm')))"
        )
    };
    let expression = ["object", "oldObject"].map(is_record).join(" || ");
    vec![no_cleanup(), condition(RECORD, expression)]
}

fn no_cleanup() -> MatchCondition {
    let users: Vec<_> = identities::delete_everything().map(|user| format!("'{user}'")).collect();
    let is_theirs = format!("request.userInfo.username in [{}]", users.join(", "));
    condition(CLEANUP, format!("request.operation != 'DELETE' || !({is_theirs})"))
}

/// Skips deletions of objects that are being deleted already, and changes of nothing but their finalizers. Any other
/// change is judged: a finalizer can keep such an object in use. Only the API server sets a `deletionTimestamp`.
fn not_being_deleted() -> MatchCondition {
    let differs = |place: &str, spared: &str| {
        let (new, old) = (format!("object{place}"), format!("oldObject{place}"));
        format!(
            "{new}.exists(k, !(k in {spared}) && !(k in {old} && {new}[k] == {old}[k])) \
             || {old}.exists(k, !(k in {spared}) && !(k in {new}))"
        )
    };
    let differs = [differs("", "['metadata']"), differs(".metadata", FINISHING)].join(" || ");
    let expression = format!(
        "oldObject == null || !has(oldObject.metadata.deletionTimestamp) || (object != null && ({differs}))"
    );
    condition(DELETED, expression)
}

/// Skips updates that leave the owners as they are, and the labels, by which policies select namespaces.
fn owners_or_labels_change() -> MatchCondition {
    let labels = |of: &str| format!("(has({of}.metadata.labels) ? {of}.metadata.labels : {{}})");
    let labels = format!("{} != {}", labels("object"), labels("oldObject"));
    condition(OWNERS, format!("request.operation != 'UPDATE' || {} || {labels}", owners_change()))
}

/// The owners of the object change: the garbage collector deletes an object whose owners do not exist.
fn owners_change() -> String {
    let owners = |of: &str| {
        let owners = format!("{of}.metadata.ownerReferences");
        format!("(has({owners}) ? {owners} : [])")
    };
    format!("{} != {}", owners("object"), owners("oldObject"))
}

/// Skips what changes neither Helm's label nor one of its annotations, nor the owners.
fn helms_metadata_change() -> MatchCondition {
    let value = |of: &str, map: &str, key: &str| {
        let map = format!("{of}.metadata.{map}");
        format!("(has({map}) && '{key}' in {map} ? {map}['{key}'] : '')")
    };
    let changes = |(map, key): (&str, &str)| {
        format!("{} != {}", value("object", map, key), value("oldObject", map, key))
    };
    let changed =
        [("labels", MANAGED_BY.0), ("annotations", RELEASE_NAME), ("annotations", RELEASE_NAMESPACE)];
    condition(METADATA, format!("{} || {}", changed.map(changes).join(" || "), owners_change()))
}

fn condition(name: &str, expression: String) -> MatchCondition {
    MatchCondition { name: name.to_owned(), expression }
}

// The resources that are sent to the guard, and those that are sent only with Helm's label.

/// API groups whose resources are never judged: the API server sends them to no webhook, or they
/// are queries and measurements that are not stored.
const NEVER: [&str; 6] = [
    "admissionregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "custom.metrics.k8s.io",
    "external.metrics.k8s.io",
    "metrics.k8s.io",
];

const NEVER_CORE: [&str; 2] = ["bindings", "componentstatuses"];

/// The resources that nodes and controllers write constantly, by group and plural: only with Helm's label.
const BUSY: [(&str, &str); 8] = [
    ("", "endpoints"),
    ("", "events"),
    ("", "nodes"),
    ("", "pods"),
    ("apps", "replicasets"),
    ("coordination.k8s.io", "leases"),
    ("discovery.k8s.io", "endpointslices"),
    ("events.k8s.io", "events"),
];

/// Subresources beside `status` by which labels and annotations can be changed, by group and plural.
const DETOURS: [(&str, &str, &str); 2] =
    [("", "namespaces", "finalize"), ("certificates.k8s.io", "certificatesigningrequests", "approval")];

fn judged(resources: &BTreeSet<WebhookResource>) -> impl Iterator<Item = &WebhookResource> {
    let is_never = |it: &WebhookResource| {
        NEVER.contains(&it.group.as_str())
            || (it.group.is_empty() && NEVER_CORE.contains(&it.plural.as_str()))
    };
    resources.iter().filter(move |resource| !is_never(resource))
}

/// Whether the webhook for deletions of other objects already sends these deletions: once is
/// enough.
fn is_deletion_sent_anyway((group, _): &GroupAndVersion<'_>, plural: &str) -> bool {
    matches!((*group, plural), ("", "namespaces") | ("apiextensions.k8s.io", "customresourcedefinitions"))
}

/// The paths of subresources by which labels and annotations of some kinds can be changed.
fn metadata_detours(resource: &WebhookResource) -> impl Iterator<Item = String> {
    let own = DETOURS
        .iter()
        .filter(|(group, plural, _)| (*group, *plural) == (&*resource.group, &*resource.plural));
    let own = own.map(|(_, _, subresource)| *subresource);
    std::iter::once("status").chain(own).map(|subresource| format!("{}/{subresource}", resource.plural))
}

fn by_group_version<'a>(
    resources: impl Iterator<Item = (&'a WebhookResource, String)>,
) -> BTreeMap<GroupAndVersion<'a>, BTreeSet<String>> {
    let mut sorted = BTreeMap::<_, BTreeSet<_>>::new();
    for (resource, path) in resources {
        sorted.entry((resource.group.as_str(), resource.version.as_str())).or_default().insert(path);
    }
    sorted
}

#[cfg(test)]
mod tests;
