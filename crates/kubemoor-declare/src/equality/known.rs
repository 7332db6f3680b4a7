//! Defaults of the API server that the OpenAPI documents do not state, for fields inside values that are declared as a
//! whole and for declared zeros. Also the additions that the server or its controllers may make there.
//! `tests/it/fidelity_defaults.rs` checks these tables against a real server.

use serde_json::Value;

use super::Family;

enum Filled {
    Text(&'static str),
    Whole(i64),
    Yes,
    Any,
}

use Filled::{Any, Text, Whole, Yes};

/// Fields of values that are declared as a whole, by the name of the enclosing field, with the server's value
/// for an absent one. For elements of a list the enclosing field is the list.
const DEFAULTS: &[(&str, &str, Filled)] = &[
    ("fieldRef", "apiVersion", Text("v1")),
    ("resourceFieldRef", "divisor", Text("0")),
    ("serviceAccountToken", "expirationSeconds", Whole(3600)),
    ("podCertificate", "maxExpirationSeconds", Whole(86400)),
    ("tolerations", "operator", Text("Equal")),
    ("volumeClaimTemplates", "apiVersion", Text("v1")),
    ("volumeClaimTemplates", "kind", Text("PersistentVolumeClaim")),
    ("spec", "volumeMode", Text("Filesystem")),
    ("status", "phase", Text("Pending")),
    // NetworkPolicies, Endpoints, EndpointSlices, containers, Services
    ("ports", "protocol", Text("TCP")),
    // Webhooks and admission policies
    ("rules", "scope", Text("*")),
    ("resourceRules", "scope", Text("*")),
    ("excludeResourceRules", "scope", Text("*")),
    ("matchConstraints", "matchPolicy", Text("Equivalent")),
    ("matchResources", "matchPolicy", Text("Equivalent")),
    // Role bindings: users and groups
    ("subjects", "apiGroup", Text("rbac.authorization.k8s.io")),
    ("roleRef", "apiGroup", Text("rbac.authorization.k8s.io")),
    // Ingresses read from older versions
    ("paths", "pathType", Text("ImplementationSpecific")),
    // IngressClasses
    ("parameters", "scope", Text("Cluster")),
    // StatefulSets
    ("persistentVolumeClaimRetentionPolicy", "whenDeleted", Text("Retain")),
    ("persistentVolumeClaimRetentionPolicy", "whenScaled", Text("Retain")),
    // Jobs
    ("onPodConditions", "status", Text("True")),
    // ResourceClaims
    ("requests", "allocationMode", Text("ExactCount")),
    ("requests", "count", Whole(1)),
    ("exactly", "allocationMode", Text("ExactCount")),
    ("exactly", "count", Whole(1)),
    // PersistentVolumes: the volume binder names the claim that is bound
    ("claimRef", "apiVersion", Text("v1")),
    ("claimRef", "kind", Text("PersistentVolumeClaim")),
    ("claimRef", "resourceVersion", Any),
    ("claimRef", "uid", Any),
];

/// Fields that the server returns as empty if they are absent.
const SHOWN_EMPTY: &[(&str, &str)] = &[
    ("endpoints", "conditions"),
    ("matchConstraints", "namespaceSelector"),
    ("matchConstraints", "objectSelector"),
    ("matchResources", "namespaceSelector"),
    ("matchResources", "objectSelector"),
    ("ports", "name"),
    ("spec", "resources"),
    ("volumeClaimTemplates", "status"),
];

/// The values that the server sets for empty fields, by field name alone; several rows where kinds or versions differ.
const FILLED: &[(&str, Filled)] = &[
    ("allocateLoadBalancerNodePorts", Yes),
    ("backoffLimit", Whole(6)),
    ("cachingMode", Text("ReadWrite")),
    ("completionMode", Text("NonIndexed")),
    ("completions", Whole(1)),
    ("concurrencyPolicy", Text("Allow")),
    ("defaultMode", Whole(420)),
    ("dnsPolicy", Text("ClusterFirst")),
    ("enableServiceLinks", Yes),
    ("externalTrafficPolicy", Text("Cluster")),
    ("failedJobsHistoryLimit", Whole(1)),
    ("failurePolicy", Text("Fail")),
    ("failureThreshold", Whole(3)),
    ("fsType", Text("ext4")),
    ("fsType", Text("xfs")),
    ("imagePullPolicy", Text("Always")),
    ("imagePullPolicy", Text("IfNotPresent")),
    ("internalTrafficPolicy", Text("Cluster")),
    ("iscsiInterface", Text("default")),
    ("matchPolicy", Text("Equivalent")),
    ("maxSurge", Text("25%")),
    ("maxSurge", Whole(0)),
    ("maxUnavailable", Text("25%")),
    ("maxUnavailable", Whole(1)),
    ("minReplicas", Whole(1)),
    ("parallelism", Whole(1)),
    ("partition", Whole(0)),
    ("path", Text("/")),
    ("pathType", Text("ImplementationSpecific")),
    ("periodSeconds", Whole(10)),
    ("persistentVolumeReclaimPolicy", Text("Retain")),
    ("podManagementPolicy", Text("OrderedReady")),
    ("podReplacementPolicy", Text("Failed")),
    ("podReplacementPolicy", Text("TerminatingOrFailed")),
    ("port", Whole(443)),
    ("preemptionPolicy", Text("PreemptLowerPriority")),
    ("procMount", Text("Default")),
    ("progressDeadlineSeconds", Whole(600)),
    ("protocol", Text("TCP")),
    ("reclaimPolicy", Text("Delete")),
    ("reinvocationPolicy", Text("Never")),
    ("replicas", Whole(1)),
    ("restartPolicy", Text("Always")),
    ("revisionHistoryLimit", Whole(10)),
    ("schedulerName", Text("default-scheduler")),
    ("scheme", Text("HTTP")),
    ("scope", Text("*")),
    ("selectPolicy", Text("Max")),
    ("sessionAffinity", Text("None")),
    ("successThreshold", Whole(1)),
    ("successfulJobsHistoryLimit", Whole(3)),
    ("targetCPUUtilizationPercentage", Whole(80)),
    ("terminationGracePeriodSeconds", Whole(30)),
    ("terminationMessagePath", Text("/dev/termination-log")),
    ("terminationMessagePolicy", Text("File")),
    ("timeoutSeconds", Whole(1)),
    ("timeoutSeconds", Whole(10)),
    ("timeoutSeconds", Whole(10800)),
    ("type", Text("ClusterIP")),
    ("type", Text("Opaque")),
    ("type", Text("RollingUpdate")),
    ("volumeBindingMode", Text("Immediate")),
    ("volumeMode", Text("Filesystem")),
];

/// Fields that the server derives from others where they are empty.
const DERIVED: &[&str] = &["serviceAccount", "targetPort"];

/// Strings that an admission plugin or a controller may choose for a new object if they are declared empty. For an
/// existing object only the volume binder does: it gives claims without a storage class the default one.
pub(super) const CHOSEN_TEXTS: &[&str] =
    &["ingressClassName", "kind", "loadBalancerClass", "loadBalancerIP", "storageClassName", "uid"];

/// Lists that another component may fill where they are declared empty.
pub(super) const CHOSEN_LISTS: &[&str] = &[
    "accessModes",
    "admissionReviewVersions",
    "conversionReviewVersions",
    "finalizers",
    "metrics",
    "policies",
    "policyTypes",
    "shortNames",
    "subsets",
];

/// Those of [`CHOSEN_LISTS`] that only the server fills, when it accepts the object.
pub(super) const FILLED_LISTS: &[&str] =
    &["admissionReviewVersions", "conversionReviewVersions", "metrics", "policies", "policyTypes"];

/// Lists to which controllers append elements that nothing removes: the credentials of ServiceAccounts.
const SHARED: &[&str] = &["imagePullSecrets", "secrets"];

/// Lists of Pods to which admission plugins add.
const SHARED_IN_PODS: &[&str] = &["resizePolicy", "tolerations"];

/// Lists that the server may complete.
pub(super) const COMPLETED: &[&str] = &["clusterIPs", "finalizers", "ipFamilies"];

/// Lists whose elements the server splits and merges in its own way.
pub(super) const REPACKED: &[&str] = &["subsets"];

/// Numbers that the server replaces when they are zero.
const FILLED_ZEROS: &[&str] = &[
    "failureThreshold",
    "hostPort",
    "periodSeconds",
    "port",
    "successThreshold",
    "targetPort",
    "timeoutSeconds",
];

/// Fields that the server returns even if they are zero, false or empty, because their absence means something else.
pub(super) const KEPT_ZEROS: &[&str] = &[
    "activeDeadlineSeconds",
    "allowPrivilegeEscalation",
    "allocateLoadBalancerNodePorts",
    "automountServiceAccountToken",
    "backoffLimit",
    "completions",
    "enableServiceLinks",
    "failedJobsHistoryLimit",
    "fsGroup",
    "hostUsers",
    "immutable",
    "maxUnavailable",
    "minAvailable",
    "optional",
    "parallelism",
    "partition",
    "privileged",
    "progressDeadlineSeconds",
    "readOnlyRootFilesystem",
    "replicas",
    "revisionHistoryLimit",
    "runAsGroup",
    "runAsNonRoot",
    "runAsUser",
    "shareProcessNamespace",
    "storageClassName",
    "successfulJobsHistoryLimit",
    "suspend",
    "terminationGracePeriodSeconds",
    "ttlSecondsAfterFinished",
];

/// Fields that the server chooses or allocates where nothing is declared; a declared empty or zero value
/// requests that too.
pub(super) const CHOSEN: &[&str] = &[
    "clusterIP",
    "clusterIPs",
    "healthCheckNodePort",
    "ipFamilies",
    "ipFamilyPolicy",
    "nodePort",
    "volumeName",
];

/// Lists that servers before 1.23 may reorder: they stored autoscalers in a version that keeps the CPU metric separate.
pub(super) const UNORDERED: &[&str] = &["metrics"];

/// Whether the server sets or returns `live` if the field `name`, inside a field `within`, is absent.
pub(super) fn is_default(within: &str, name: &str, live: &Value) -> bool {
    match live {
        Value::Object(map) if map.is_empty() => SHOWN_EMPTY.contains(&(within, name)),
        // The status of a claim template holds only its phase.
        Value::Object(map) => {
            SHOWN_EMPTY.contains(&(within, name))
                && map.iter().all(|(below, value)| is_default(name, below, value))
        }
        Value::String(text) if text.is_empty() => SHOWN_EMPTY.contains(&(within, name)),
        Value::String(_) | Value::Number(_) => {
            DEFAULTS.iter().any(|row| (row.0, row.1) == (within, name) && row.2.is(live))
        }
        _ => false,
    }
}

/// Whether the server may set `live` if the field `name`, inside a field `within`, is empty.
pub(super) fn is_filled(within: &str, name: &str, live: &Value) -> bool {
    // Ingresses keep an empty path, and only Pods have a default restart policy.
    if matches!((within, name), ("paths", "path") | ("containers" | "initContainers", "restartPolicy")) {
        return false;
    }
    DERIVED.contains(&name)
        || FILLED.iter().any(|(field, filled)| *field == name && filled.is(live))
        || DEFAULTS.iter().any(|(holder, field, filled)| {
            *field == name && filled.is(live) && (*holder == within || !matches!(filled, Any))
        })
}

/// Whether the server derives a field from another one that a user may set differently. A `serviceAccount`
/// always follows the `serviceAccountName`.
pub(super) fn takes_any(name: &str) -> bool {
    DERIVED.contains(&name) && name != "serviceAccount"
}

/// Whether the server may have set a zero where `name` is declared empty or null. Of the fields that it returns even if
/// they are zero, only `suspend` qualifies.
pub(super) fn is_own_zero(above: &str, name: &str) -> bool {
    if (above, name) == ("scaleDown", "stabilizationWindowSeconds") {
        return false;
    }
    name == "suspend" || !(FILLED.iter().any(|(field, _)| *field == name) || KEPT_ZEROS.contains(&name))
}

/// Whether a component other than the server may fill a value that is declared empty or null.
pub(super) fn is_others(name: &str) -> bool {
    CHOSEN.contains(&name)
        || CHOSEN_TEXTS.contains(&name)
        || CHOSEN_LISTS.contains(&name)
        || SHARED.contains(&name)
}

pub(super) fn is_shared(family: Family, name: &str) -> bool {
    match family {
        Family::Pod => SHARED_IN_PODS.contains(&name),
        Family::Core => SHARED.contains(&name),
        Family::Rights | Family::Custom => false,
    }
}

pub(super) fn fills_zero(name: &str) -> bool {
    name.is_empty() || FILLED_ZEROS.contains(&name)
}

impl Filled {
    fn is(&self, live: &Value) -> bool {
        match self {
            Text(text) => live.as_str() == Some(text),
            Whole(number) => live.as_i64() == Some(*number),
            Yes => *live == Value::Bool(true),
            Any => true,
        }
    }
}
