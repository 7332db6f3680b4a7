//! The built-in identities: a table of Kubernetes' own controllers, each with exactly the changes that it makes; every
//! other identity counts as a user. Controllers without service accounts of their own all run as
//! `system:kube-controller-manager`, which may make the changes of any of them.

use kubemoor_declare::model::{Actor, Autoscaler, ObjectId};
use kubemoor_declare::path::{Path, Segment};

/// Whether this actor is a built-in controller that deletes such objects.
pub fn deletes(actor: &Actor, object: &ObjectId) -> bool {
    rows(actor, object).any(|row| matches!(row.verb, ControllerVerb::Delete))
}

/// The built-in controllers, by user name, that delete objects of every kind.
pub fn delete_everything() -> impl Iterator<Item = String> {
    let rows = TABLE.iter().filter(|row| row.kinds.is_empty() && matches!(row.verb, ControllerVerb::Delete));
    let accounts = rows.map(|row| format!("system:serviceaccount:kube-system:{}", row.account));
    std::iter::once(ALL_CONTROLLERS.to_owned()).chain(accounts)
}

/// Whether this actor may set the replicas for an autoscaler.
pub fn autoscales(actor: &Actor, autoscaler: &Autoscaler) -> bool {
    let (namespace, account) = KEDA;
    let scales = |row: &IdentityRow| matches!(row.verb, ControllerVerb::Scale) && is(actor, row);
    TABLE.iter().any(scales) || (autoscaler.by_keda && actor.is_service_account(namespace, account))
}

/// Whether this actor is a built-in controller that changes `path` of such objects.
pub fn writes(actor: &Actor, object: &ObjectId, path: &Path) -> bool {
    rows(actor, object).any(|row| match row.verb {
        ControllerVerb::Delete | ControllerVerb::Scale => false,
        ControllerVerb::Update(paths) => paths.iter().any(|prefix| is_below(path, prefix.split('/').skip(1))),
    })
}

/// Whether this actor is a part of Kubernetes itself, which sets more fields of objects than a release declares.
pub fn is_built_in(actor: &Actor) -> bool {
    let is_controller = || {
        let account = actor.user.strip_prefix("system:serviceaccount:kube-system:");
        account.is_some_and(|name| ACCOUNTS.contains(&name))
    };
    SERVERS.contains(&actor.user.as_str()) || is_controller()
}

fn rows<'a>(actor: &'a Actor, object: &'a ObjectId) -> impl Iterator<Item = &'static IdentityRow> + 'a {
    TABLE.iter().filter(|row| {
        let kind =
            row.kinds.is_empty() || (row.group == object.group && row.kinds.contains(&object.kind.as_str()));
        kind && is(actor, row)
    })
}

fn is(actor: &Actor, row: &IdentityRow) -> bool {
    actor.user == ALL_CONTROLLERS || actor.is_service_account("kube-system", row.account)
}

/// Whether a path begins with these fields.
pub(crate) fn is_below<'n>(path: &Path, names: impl IntoIterator<Item = &'n str>) -> bool {
    let mut names = names.into_iter().enumerate();
    names.all(|(index, name)| matches!(path.0.get(index), Some(Segment::Field(field)) if field == name))
}

/// The user of all controllers where they have no accounts of their own.
const ALL_CONTROLLERS: &str = "system:kube-controller-manager";

/// KEDA's operator, which scales idle workloads to zero and back: namespace and service account as its chart installs
/// them.
const KEDA: (&str, &str) = ("keda", "keda-operator");

/// The programs of Kubernetes itself, by their users.
const SERVERS: &[&str] =
    &[ALL_CONTROLLERS, "system:apiserver", "system:cloud-controller-manager", "system:kube-scheduler"];

/// The service accounts in kube-system of the controllers of Kubernetes itself.
const ACCOUNTS: &[&str] = &[
    "attachdetach-controller",
    "certificate-controller",
    "cloud-node-controller",
    "cloud-node-lifecycle-controller",
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "daemon-set-controller",
    "deployment-controller",
    "disruption-controller",
    "endpoint-controller",
    "endpointslice-controller",
    "endpointslicemirroring-controller",
    "ephemeral-volume-controller",
    "expand-controller",
    "generic-garbage-collector",
    "horizontal-pod-autoscaler",
    "job-controller",
    "namespace-controller",
    "node-controller",
    "persistent-volume-binder",
    "pod-garbage-collector",
    "pv-protection-controller",
    "pvc-protection-controller",
    "replicaset-controller",
    "replication-controller",
    "resource-claim-controller",
    "resourcequota-controller",
    "root-ca-cert-publisher",
    "route-controller",
    "service-account-controller",
    "service-cidrs-controller",
    "service-controller",
    "statefulset-controller",
    "taint-eviction-controller",
    "ttl-after-finished-controller",
    "ttl-controller",
    "validatingadmissionpolicy-status-controller",
];

struct IdentityRow {
    /// The service account in kube-system.
    account: &'static str,
    /// The API group and kinds of the objects; without kinds, all objects.
    group: &'static str,
    kinds: &'static [&'static str],
    verb: ControllerVerb,
}

enum ControllerVerb {
    Delete,
    /// Updates of these fields and what is below them.
    Update(&'static [&'static str]),
    Scale,
}

const TABLE: &[IdentityRow] = &[
    delete("namespace-controller", "", &[]),
    delete("generic-garbage-collector", "", &[]),
    delete("ttl-after-finished-controller", "batch", &["Job"]),
    delete("cronjob-controller", "batch", &["Job"]),
    delete("job-controller", "", &["Pod"]),
    delete("pod-garbage-collector", "", &["Pod"]),
    delete("node-controller", "", &["Pod"]),
    delete("taint-eviction-controller", "", &["Pod"]),
    delete("persistent-volume-binder", "", &["PersistentVolume"]),
    update("clusterrole-aggregation-controller", "rbac.authorization.k8s.io", &["ClusterRole"], &["/rules"]),
    update(
        "persistent-volume-binder",
        "",
        &["PersistentVolumeClaim"],
        &["/spec/storageClassName", "/spec/volumeName"],
    ),
    update("persistent-volume-binder", "", &["PersistentVolume"], &["/spec/claimRef"]),
    update("generic-garbage-collector", "", &[], &["/metadata/ownerReferences", "/metadata/finalizers"]),
    IdentityRow { account: "horizontal-pod-autoscaler", group: "", kinds: &[], verb: ControllerVerb::Scale },
];

const fn delete(account: &'static str, group: &'static str, kinds: &'static [&'static str]) -> IdentityRow {
    IdentityRow { account, group, kinds, verb: ControllerVerb::Delete }
}

const fn update(
    account: &'static str,
    group: &'static str,
    kinds: &'static [&'static str],
    paths: &'static [&'static str],
) -> IdentityRow {
    IdentityRow { account, group, kinds, verb: ControllerVerb::Update(paths) }
}

#[cfg(test)]
mod tests;
