//! What the API server fills in, where the OpenAPI documents do not say it.
//!
//! The documents of the core kinds carry next to no defaults: these tables are
//! the rest, as far as it stands inside values that are declared as a whole or
//! behind a declared zero.

use serde_json::Value;

/// A value of one of these tables.
enum Filled {
    Text(&'static str),
    Whole(i64),
}

use Filled::{Text, Whole};

/// Fields and the value that the server gives them where they are absent or
/// empty.
const DEFAULTS: &[(&str, Filled)] = &[
    // fieldRef, volumeClaimTemplates
    ("apiVersion", Text("v1")),
    ("kind", Text("PersistentVolumeClaim")),
    ("phase", Text("Pending")),
    ("volumeMode", Text("Filesystem")),
    // resourceFieldRef
    ("divisor", Text("0")),
    // ports of NetworkPolicies, Endpoints, EndpointSlices, containers, Services
    ("protocol", Text("TCP")),
    ("sessionAffinity", Text("None")),
    ("type", Text("ClusterIP")),
    // rules of webhooks
    ("scope", Text("*")),
    // subjects and roleRef of bindings
    ("apiGroup", Text("rbac.authorization.k8s.io")),
    // paths of Ingresses read from older versions
    ("pathType", Text("ImplementationSpecific")),
    // projected service account tokens
    ("expirationSeconds", Whole(3600)),
    // policies of autoscalers
    ("selectPolicy", Text("Max")),
    // probes
    ("failureThreshold", Whole(3)),
    ("periodSeconds", Whole(10)),
    ("scheme", Text("HTTP")),
    ("successThreshold", Whole(1)),
    ("timeoutSeconds", Whole(1)),
    // pods and containers
    ("dnsPolicy", Text("ClusterFirst")),
    ("restartPolicy", Text("Always")),
    ("schedulerName", Text("default-scheduler")),
    ("terminationMessagePath", Text("/dev/termination-log")),
    ("terminationMessagePolicy", Text("File")),
];

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

/// Fields that the server shows even when they are zero, false or empty,
/// because there absence means something else.
const KEPT_ZEROS: &[&str] = &[
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

/// What the server chooses or allocates where nothing is declared: a declared
/// empty or zero value asks it to.
const CHOSEN: &[&str] = &[
    "clusterIP",
    "clusterIPs",
    "healthCheckNodePort",
    "ipFamilies",
    "ipFamilyPolicy",
    "nodePort",
    "volumeName",
];

/// Lists that servers before 1.23 return in another order than they took them:
/// they stored autoscalers in a version that keeps the processor's metric
/// apart.
const UNORDERED: &[&str] = &["metrics"];

/// Whether `live` is what the server sets where `name` is absent.
pub(super) fn is_default(name: &str, live: &Value) -> bool {
    match live {
        // A claim template's status is no more than its phase.
        Value::Object(map) if name == "status" => map.iter().all(|(name, value)| is_default(name, value)),
        Value::String(_) | Value::Number(_) => DEFAULTS.iter().any(|(field, filled)| {
            *field == name
                && match filled {
                    Text(text) => live.as_str() == Some(text),
                    Whole(number) => live.as_i64() == Some(*number),
                }
        }),
        _ => false,
    }
}

/// Whether the server may replace a zero there.
pub(super) fn fills_zero(name: &str) -> bool {
    name.is_empty() || FILLED_ZEROS.contains(&name)
}

/// Whether the server shows a zero there, so that absence is something else.
pub(super) fn keeps_zero(name: &str) -> bool {
    KEPT_ZEROS.contains(&name)
}

/// Whether an empty value there leaves the choice to the server.
pub(super) fn is_chosen(name: &str) -> bool {
    CHOSEN.contains(&name)
}

/// Whether the server may return a list in another order.
pub(super) fn loses_order(name: &str) -> bool {
    UNORDERED.contains(&name)
}
