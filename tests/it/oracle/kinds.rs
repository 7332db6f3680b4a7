//! The kinds of a chart, and a random manifest of each. Entry point: [`KINDS`].
//!
//! What the guard judges otherwise than server-side apply on purpose is in no manifest: `immutable`, `paused`,
//! `suspend`, `helm.sh/resource-policy`, Kubemoor's own annotations, `rules` under an `aggregationRule`, an autoscaler
//! without its minimum.

use serde_json::{Value, json};

use super::draw::Draw;
use super::gadgets::{self, GADGET};
use super::values::{
    Field, bytes, count, field, flag, labels, names, object, port, put, quotas, seconds, selector, share,
    small, text, texts, unset, words_of_labels,
};
use super::workloads::{CONTAINER, POD, policy_ports, put_pod, service_ports};

/// A kind that charts have.
pub(super) struct ChartKind {
    pub(super) name: &'static str,
    pub(super) plural: &'static str,
    /// Its API from a minor version of Kubernetes on, the newest first.
    apis: Apis,
    pub(super) is_namespaced: bool,
    /// Whether a guard that repairs may put all of it right.
    pub(super) is_repaired: bool,
    fields: &'static [Field],
    /// Where its pods are.
    pod: Option<&'static str>,
    /// What no object of the kind can be without.
    finish: fn(&mut Draw, &mut Value),
}

const METADATA: &[Field] = &[field("/metadata/labels", labels), field("/metadata/annotations", texts)];

const TEMPLATE: &str = "/spec/template/spec";

type Apis = &'static [(u32, &'static str)];

const CORE: Apis = &[(0, "v1")];
const APPS: Apis = &[(0, "apps/v1")];
const NETWORKING: Apis = &[(0, "networking.k8s.io/v1")];
const RBAC: Apis = &[(0, "rbac.authorization.k8s.io/v1")];

const fn kind(name: &'static str, plural: &'static str, apis: Apis, fields: &'static [Field]) -> ChartKind {
    ChartKind {
        name,
        plural,
        apis,
        is_namespaced: true,
        is_repaired: true,
        fields,
        pod: None,
        finish: |_, _| (),
    }
}

/// All kinds: a chart has an object of each.
pub(super) const KINDS: &[ChartKind] = &[
    kind(
        "ConfigMap",
        "configmaps",
        CORE,
        &[field("/data", |draw| unset(draw, texts)), field("/binaryData", |draw| unset(draw, bytes))],
    ),
    kind(
        "Secret",
        "secrets",
        CORE,
        &[
            field("/data", |draw| unset(draw, bytes)),
            field("/stringData", |draw| unset(draw, texts)),
            field("/type", |_| json!("Opaque")),
        ],
    ),
    kind(
        "ServiceAccount",
        "serviceaccounts",
        CORE,
        &[
            field("/automountServiceAccountToken", flag),
            field("/imagePullSecrets", names),
            field("/secrets", names),
        ],
    ),
    ChartKind {
        finish: |draw, made| made["spec"]["ports"] = service_ports(draw),
        ..kind("Service", "services", CORE, SERVICE)
    },
    ChartKind { pod: Some(TEMPLATE), finish: select, ..kind("Deployment", "deployments", APPS, DEPLOYMENT) },
    ChartKind {
        pod: Some(TEMPLATE),
        finish: |draw, made| {
            select(draw, made);
            made["spec"]["serviceName"] = json!("web");
        },
        ..kind("StatefulSet", "statefulsets", APPS, STATEFUL_SET)
    },
    ChartKind { pod: Some(TEMPLATE), finish: select, ..kind("DaemonSet", "daemonsets", APPS, DAEMON_SET) },
    ChartKind { pod: Some(TEMPLATE), ..kind("Job", "jobs", &[(0, "batch/v1")], JOB) },
    ChartKind {
        pod: Some("/spec/jobTemplate/spec/template/spec"),
        finish: |draw, made| {
            made["spec"]["schedule"] = json!(draw.pick(&["0 3 * * *", "@daily", "*/5 * * * *"]))
        },
        ..kind("CronJob", "cronjobs", &[(21, "batch/v1"), (0, "batch/v1beta1")], CRON_JOB)
    },
    kind(
        "Ingress",
        "ingresses",
        NETWORKING,
        &[
            field("/spec/ingressClassName", |draw| json!(draw.pick(&["public", "private"]))),
            field("/spec/defaultBackend", backend),
            field(
                "/spec/tls",
                |draw| json!([{"hosts": draw.some(&["a.example", "b.example"]), "secretName": "tls"}]),
            ),
            field("/spec/rules", ingress_rules),
        ],
    ),
    ChartKind {
        finish: |draw, made| {
            made["spec"]["podSelector"] = if draw.chance(15) { Value::Null } else { selector(draw) };
        },
        ..kind(
            "NetworkPolicy",
            "networkpolicies",
            NETWORKING,
            &[
                field("/spec/podSelector", selector),
                field("/spec/policyTypes", |draw| json!(draw.some(&["Ingress", "Egress"]))),
                field("/spec/ingress", |draw| network_rules(draw, "from")),
                field("/spec/egress", |draw| network_rules(draw, "to")),
            ],
        )
    },
    ChartKind { is_repaired: false, ..kind("Role", "roles", RBAC, &[field("/rules", rules)]) },
    ChartKind {
        is_repaired: false,
        finish: |_, made| {
            made["roleRef"] =
                json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"});
        },
        ..kind("RoleBinding", "rolebindings", RBAC, &[field("/subjects", subjects)])
    },
    ChartKind {
        is_namespaced: false,
        is_repaired: false,
        ..kind("ClusterRole", "clusterroles", RBAC, &[field("/rules", rules)])
    },
    ChartKind {
        finish: scale,
        ..kind(
            "HorizontalPodAutoscaler",
            "horizontalpodautoscalers",
            &[(0, "autoscaling/v1")],
            &[
                field("/spec/minReplicas", count),
                field("/spec/targetCPUUtilizationPercentage", |draw| json!(draw.pick(&[50, 80]))),
            ],
        )
    },
    ChartKind {
        finish: |draw, made| {
            scale(draw, made);
            made["spec"]["metrics"] = metrics(draw);
        },
        ..kind(
            "HorizontalPodAutoscaler",
            "horizontalpodautoscalers",
            // Before, servers keep an autoscaling/v1, which is not what admission sees.
            &[(23, "autoscaling/v2")],
            &[
                field("/spec/minReplicas", count),
                field("/spec/metrics", metrics),
                field("/spec/behavior/scaleDown/stabilizationWindowSeconds", seconds),
            ],
        )
    },
    ChartKind {
        finish: |draw, made| made["spec"]["selector"] = selector(draw),
        ..kind(
            "PodDisruptionBudget",
            "poddisruptionbudgets",
            &[(21, "policy/v1"), (0, "policy/v1beta1")],
            &[field("/spec/minAvailable", share)],
        )
    },
    kind("ResourceQuota", "resourcequotas", CORE, &[field("/spec/hard", quotas)]),
    kind("LimitRange", "limitranges", CORE, &[field("/spec/limits", limits)]),
    ChartKind {
        finish: |draw, made| {
            made["spec"]["accessModes"] = json!(draw.some(&["ReadWriteOnce", "ReadOnlyMany"]));
            made["spec"]["resources"] =
                json!({"requests": {"storage": draw.pick(&["1Gi", "1024Mi", "1e9"])}});
        },
        ..kind(
            "PersistentVolumeClaim",
            "persistentvolumeclaims",
            CORE,
            &[
                field("/spec/storageClassName", |draw| json!(draw.pick(&["", "fast"]))),
                field("/spec/volumeMode", |_| json!("Filesystem")),
                field("/spec/selector", selector),
            ],
        )
    },
    ChartKind {
        is_namespaced: false,
        is_repaired: false,
        finish: |_, made| made["value"] = json!(1000),
        ..kind(
            "PriorityClass",
            "priorityclasses",
            &[(0, "scheduling.k8s.io/v1")],
            &[
                field("/description", text),
                field("/preemptionPolicy", |_| json!("PreemptLowerPriority")),
                field("/globalDefault", |_| json!(false)),
            ],
        )
    },
    kind("Gadget", "gadgets", &[(0, gadgets::API)], GADGET),
    kind("Gadget", "gadgets", &[(0, gadgets::API)], GADGET),
];

const SERVICE: &[Field] = &[
    field("/spec/ports", service_ports),
    field("/spec/type", |draw| json!(draw.pick(&["ClusterIP", "ClusterIP", "NodePort", "LoadBalancer"]))),
    field("/spec/selector", labels),
    field("/spec/sessionAffinity", |draw| json!(draw.pick(&["None", "ClientIP"]))),
    field("/spec/externalIPs", |draw| json!(draw.some(&["192.0.2.1", "192.0.2.2"]))),
    field("/spec/publishNotReadyAddresses", flag),
    field("/spec/clusterIP", |draw| json!(draw.pick(&["", "None"]))),
];

const DEPLOYMENT: &[Field] = &[
    field("/spec/replicas", small),
    field("/spec/strategy/type", |draw| json!(draw.pick(&["RollingUpdate", "RollingUpdate", "Recreate"]))),
    field("/spec/strategy/rollingUpdate/maxSurge", share),
    field("/spec/strategy/rollingUpdate/maxUnavailable", |draw| json!(draw.pick(&["25%", "50%"]))),
    field("/spec/minReadySeconds", small),
    field("/spec/revisionHistoryLimit", |draw| draw.pick(&[json!(10), json!(3), json!(0)]).clone()),
    field("/spec/progressDeadlineSeconds", |draw| json!(draw.pick(&[600, 60]))),
    field("/spec/template/metadata/annotations", texts),
];

const STATEFUL_SET: &[Field] = &[
    field("/spec/replicas", small),
    field("/spec/podManagementPolicy", |draw| json!(draw.pick(&["Parallel", "OrderedReady"]))),
    field("/spec/updateStrategy", |draw| {
        let all = [
            json!({"type": "RollingUpdate", "rollingUpdate": {}}),
            json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}),
            json!({"type": "OnDelete"}),
        ];
        draw.pick(&all).clone()
    }),
    field("/spec/revisionHistoryLimit", small),
    field("/spec/volumeClaimTemplates", |draw| {
        json!([{"metadata": {"name": "store"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": draw.pick(&["1Gi", "1024Mi"])}},
        }}])
    }),
    field("/spec/template/metadata/annotations", texts),
];

const DAEMON_SET: &[Field] = &[
    field("/spec/minReadySeconds", small),
    field("/spec/revisionHistoryLimit", small),
    field("/spec/updateStrategy/rollingUpdate/maxUnavailable", |draw| json!(draw.pick(&["25%", "50%"]))),
    field("/spec/template/metadata/annotations", texts),
];

const JOB: &[Field] = &[
    field("/spec/parallelism", count),
    field("/spec/completions", count),
    field("/spec/backoffLimit", small),
    field("/spec/activeDeadlineSeconds", |draw| json!(draw.pick(&[60, 600]))),
    field("/spec/ttlSecondsAfterFinished", seconds),
];

const CRON_JOB: &[Field] = &[
    field("/spec/concurrencyPolicy", |draw| json!(draw.pick(&["Allow", "Forbid", "Replace"]))),
    field("/spec/startingDeadlineSeconds", seconds),
    field("/spec/successfulJobsHistoryLimit", small),
    field("/spec/failedJobsHistoryLimit", small),
    field("/spec/jobTemplate/spec/backoffLimit", small),
    field("/spec/jobTemplate/spec/parallelism", count),
    field("/spec/jobTemplate/metadata/labels", labels),
];

/// The places of all kinds in the table.
pub(super) fn all() -> std::ops::Range<u64> {
    0..KINDS.len() as u64
}

impl ChartKind {
    /// The API of it that a server of this minor version has.
    fn api(&self, minor: u32) -> Option<&'static str> {
        self.apis.iter().find(|(since, _)| *since <= minor).map(|(_, api)| *api)
    }

    /// A random manifest of it, without a name; none for a server that has no API of it.
    pub(super) fn manifest(&self, draw: &mut Draw, minor: u32) -> Option<Value> {
        let api = self.api(minor)?;
        let mut made = object(draw, METADATA);
        let fields = object(draw, self.fields);
        made.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        made["apiVersion"] = json!(api);
        made["kind"] = json!(self.name);
        if let Some(pod) = self.pod {
            let restart = pod.contains("jobTemplate") || self.name == "Job";
            put_pod(draw, &mut made, pod, restart.then_some("Never"));
        }
        (self.finish)(draw, &mut made);
        Some(made)
    }

    /// Its tables of fields, each with where it begins; `*` is an element of a list.
    pub(super) fn tables(&self) -> Vec<(String, &'static [Field])> {
        let mut tables = vec![(String::new(), self.fields), (String::new(), METADATA)];
        if let Some(pod) = self.pod {
            tables.push((pod.to_owned(), POD));
            tables.push((format!("{pod}/containers/*"), CONTAINER));
            tables.push((format!("{pod}/initContainers/*"), CONTAINER));
        }
        tables
    }
}

/// A workload selects its own pods.
fn select(_: &mut Draw, workload: &mut Value) {
    workload["spec"]["selector"] = json!({"matchLabels": {"app": "web"}});
    put(workload, "/spec/template/metadata/labels", json!({"app": "web", "tier": "front"}));
}

fn scale(draw: &mut Draw, autoscaler: &mut Value) {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "elsewhere"});
    autoscaler["spec"]["scaleTargetRef"] = target;
    autoscaler["spec"]["maxReplicas"] = json!(5 + draw.below(3));
    if autoscaler["spec"].get("minReplicas").is_none() {
        autoscaler["spec"]["minReplicas"] = json!(1 + draw.below(3));
    }
}

fn metrics(draw: &mut Draw) -> Value {
    let resource =
        |name: &str, target: Value| json!({"type": "Resource", "resource": {"name": name, "target": target}});
    let all = [
        resource("cpu", json!({"type": "Utilization", "averageUtilization": 80})),
        resource("memory", json!({"type": "AverageValue", "averageValue": draw.pick(&["1Gi", "1024Mi"])})),
        json!({"type": "Pods", "pods": {
            "metric": {"name": "hits", "selector": selector(draw)},
            "target": {"type": "AverageValue", "averageValue": draw.pick(&["1000m", "1", "100"])},
        }}),
    ];
    json!(draw.some(&all))
}

fn limits(draw: &mut Draw) -> Value {
    let container = json!({
        "type": "Container", "default": {"cpu": draw.pick(&["1", "1000m"])},
        "defaultRequest": {"cpu": draw.pick(&["100m", "0.1"])}, "max": {"memory": draw.pick(&["4Gi", "4096Mi"])},
    });
    json!(draw.some(&[container, json!({"type": "Pod", "max": {"cpu": "8"}})]))
}

fn backend(draw: &mut Draw) -> Value {
    let port = if draw.chance(50) { json!({"number": port(draw)}) } else { json!({"name": "http"}) };
    json!({"service": {"name": draw.pick(&["web", "api"]), "port": port}})
}

fn ingress_rules(draw: &mut Draw) -> Value {
    let hosts = draw.some(&["a.example", "b.example", "*.c.example"]);
    let rule = |host: &&str| {
        let paths = draw.some(&["/", "/api"]).into_iter().map(|path| {
            json!({"path": path, "pathType": draw.pick(&["Prefix", "Exact", "ImplementationSpecific"]), "backend": backend(draw)})
        });
        json!({"host": host, "http": {"paths": paths.collect::<Vec<_>>()}})
    };
    json!(hosts.iter().map(rule).collect::<Vec<_>>())
}

fn network_rules(draw: &mut Draw, peers: &str) -> Value {
    let all = [
        json!({}),
        json!({peers: [{"podSelector": selector(draw)}]}),
        json!({peers: [{"namespaceSelector": selector(draw)}, {"ipBlock": {"cidr": "192.0.2.0/24", "except": ["192.0.2.1/32"]}}]}),
        json!({"ports": policy_ports(draw)}),
        json!({"ports": policy_ports(draw), peers: []}),
    ];
    json!(draw.some(&all))
}

fn rules(draw: &mut Draw) -> Value {
    let all = [
        json!({"apiGroups": [""], "resources": draw.some(&["configmaps", "secrets", "pods"]), "verbs": draw.some(&["get", "list", "watch"])}),
        json!({"apiGroups": ["apps", ""], "resources": ["deployments"], "verbs": ["*"]}),
        json!({"apiGroups": [""], "resources": ["configmaps"], "resourceNames": words_of_labels(draw), "verbs": ["update"]}),
    ];
    json!(draw.some(&all))
}

fn subjects(draw: &mut Draw) -> Value {
    let all = [
        json!({"kind": "ServiceAccount", "name": "runner", "namespace": "elsewhere"}),
        json!({"kind": "User", "name": "carol", "apiGroup": "rbac.authorization.k8s.io"}),
        json!({"kind": "Group", "name": "people"}),
    ];
    json!(draw.some(&all))
}
