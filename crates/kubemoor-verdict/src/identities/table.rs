//! The table of the built-in identities and their work.
//!
//! Entry points: [`TABLE`], [`ACCOUNTS`], [`SERVERS`]. Invariant: each row is the work of one of Kubernetes' own
//! controllers. Must not read a policy.

/// The user of all controllers where they have no accounts of their own.
pub(super) const ALL_CONTROLLERS: &str = "system:kube-controller-manager";

/// KEDA's operator, which scales idle workloads to zero and back: namespace and
/// service account as its chart installs them.
pub(super) const KEDA: (&str, &str) = ("keda", "keda-operator");

/// The programs of Kubernetes itself, by their users.
pub(super) const SERVERS: &[&str] =
    &[ALL_CONTROLLERS, "system:apiserver", "system:cloud-controller-manager", "system:kube-scheduler"];

/// The service accounts in kube-system of the controllers of Kubernetes itself.
pub(super) const ACCOUNTS: &[&str] = &[
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

/// The work of one identity.
pub(super) struct Row {
    /// The service account in kube-system.
    pub(super) account: &'static str,
    /// The API group and kinds of the objects; no kind for all of them.
    pub(super) group: &'static str,
    pub(super) kinds: &'static [&'static str],
    pub(super) verb: Verb,
}

pub(super) enum Verb {
    Delete,
    /// Updates of these fields and what is below them.
    Update(&'static [&'static str]),
    /// Updates of the replicas within the range of an autoscaler.
    Scale,
}

pub(super) const TABLE: &[Row] = &[
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
    Row { account: "horizontal-pod-autoscaler", group: "", kinds: &[], verb: Verb::Scale },
];

const fn delete(account: &'static str, group: &'static str, kinds: &'static [&'static str]) -> Row {
    Row { account, group, kinds, verb: Verb::Delete }
}

const fn update(
    account: &'static str,
    group: &'static str,
    kinds: &'static [&'static str],
    paths: &'static [&'static str],
) -> Row {
    Row { account, group, kinds, verb: Verb::Update(paths) }
}
