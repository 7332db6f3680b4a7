//! Selects the resources that are sent to the guard, and those that are sent only with Helm's
//! label.
//!
//! Entry points: [`judged`], [`by_label_alone`]. Invariant: a record, which may be forged, must not
//! direct the traffic of the cluster itself to the guard: heartbeats of nodes, events, requests
//! that store nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::{GroupVersion, Resource};

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

/// The same of the core group.
const NEVER_CORE: [&str; 2] = ["bindings", "componentstatuses"];

/// The resources that nodes and controllers write constantly, by group and plural.
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

/// The resources whose objects are judged.
pub(super) fn judged(resources: &BTreeSet<Resource>) -> impl Iterator<Item = &Resource> {
    let is_never = |it: &Resource| {
        NEVER.contains(&it.group.as_str())
            || (it.group.is_empty() && NEVER_CORE.contains(&it.plural.as_str()))
    };
    resources.iter().filter(move |resource| !is_never(resource))
}

/// Whether objects of this resource are sent only with Helm's label, even if others are sent
/// without it.
pub(super) fn by_label_alone(resource: &Resource) -> bool {
    BUSY.contains(&(resource.group.as_str(), resource.plural.as_str()))
}

/// Whether the webhook for deletions of other objects already sends these deletions: once is
/// enough.
pub(super) fn is_deletion_sent_anyway((group, _): &GroupVersion<'_>, plural: &str) -> bool {
    matches!((*group, plural), ("", "namespaces") | ("apiextensions.k8s.io", "customresourcedefinitions"))
}

/// The paths of subresources by which labels and annotations of some kinds can be changed.
pub(super) fn metadata_detours(resource: &Resource) -> impl Iterator<Item = String> {
    let own = DETOURS
        .iter()
        .filter(|(group, plural, _)| (*group, *plural) == (&*resource.group, &*resource.plural));
    let own = own.map(|(_, _, subresource)| *subresource);
    std::iter::once("status").chain(own).map(|subresource| format!("{}/{subresource}", resource.plural))
}

/// Paths such as `deployments/scale` by group and version of their resources.
pub(super) fn by_group_version<'a>(
    resources: impl Iterator<Item = (&'a Resource, String)>,
) -> BTreeMap<GroupVersion<'a>, BTreeSet<String>> {
    let mut sorted = BTreeMap::<_, BTreeSet<_>>::new();
    for (resource, path) in resources {
        sorted.entry((resource.group.as_str(), resource.version.as_str())).or_default().insert(path);
    }
    sorted
}
