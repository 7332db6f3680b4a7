//! Pods, as the templates of workloads have them.

use serde_json::{Value, json};

use super::draw::Draw;
use super::values::{
    Field, count, emptied, field, flag, image, labels, names, object, port, protocol, put, resources,
    seconds, selector, small, target_port, text, word, words,
};

/// What a pod may have beside its containers and volumes.
pub(super) const POD: &[Field] = &[
    field("/terminationGracePeriodSeconds", seconds),
    field("/nodeSelector", labels),
    field("/tolerations", tolerations),
    field("/securityContext", |_| json!({})),
    field("/securityContext/runAsUser", count),
    field("/securityContext/fsGroup", small),
    field("/securityContext/supplementalGroups", |draw| json!(draw.some(&[1, 2, 3]))),
    field("/affinity", affinity),
    field(
        "/hostAliases",
        |draw| json!([{"ip": "10.1.2.3", "hostnames": draw.some(&["a.example", "b.example"])}]),
    ),
    field("/dnsPolicy", |draw| json!(draw.pick(&["ClusterFirst", "Default"]))),
    field(
        "/dnsConfig",
        |draw| json!({"options": [{"name": "ndots", "value": "2"}], "searches": draw.some(&["a", "b"])}),
    ),
    field("/imagePullSecrets", names),
    field("/serviceAccountName", word_of_accounts),
    field("/automountServiceAccountToken", flag),
    field("/enableServiceLinks", flag),
    field("/hostIPC", flag),
    field("/schedulerName", |draw| json!(draw.pick(&["default-scheduler", "mine"]))),
    field("/topologySpreadConstraints", spread),
    field("/initContainers", |draw| containers(draw, &["prepare", "migrate"])),
    field("/priorityClassName", word_of_accounts),
    field(
        "/readinessGates",
        |draw| json!([{"conditionType": draw.pick(&["example.org/a", "example.org/b"])}]),
    ),
];

/// What a container may have beside its name and image.
pub(super) const CONTAINER: &[Field] = &[
    field("/command", words),
    field("/args", words),
    field("/workingDir", |draw| json!(draw.pick(&["/", "/tmp", ""]))),
    field("/ports", container_ports),
    field("/env", env),
    field("/envFrom", env_from),
    field("/resources", resources),
    field("/livenessProbe", probe),
    field("/readinessProbe", probe),
    field("/securityContext", security),
    field("/volumeMounts", mounts),
    field("/imagePullPolicy", |draw| json!(draw.pick(&["Always", "IfNotPresent", "Never"]))),
    field("/lifecycle/preStop/exec/command", words),
    field("/tty", flag),
    field("/terminationMessagePath", |draw| json!(draw.pick(&["/dev/termination-log", "/log"]))),
    field("/image", image),
];

/// Has a pod at this place of an object, with all that it needs.
pub(super) fn put_pod(draw: &mut Draw, workload: &mut Value, at: &str, restart: Option<&str>) {
    let mut pod = object(draw, POD);
    pod["containers"] = containers(draw, &["app", "sidecar"]);
    // Mounts name them.
    pod["volumes"] = volumes(draw);
    if let Some(restart) = restart {
        pod["restartPolicy"] = json!(restart);
    }
    put(workload, at, pod);
}

fn containers(draw: &mut Draw, names: &[&str]) -> Value {
    let names = draw.some(names);
    let made = names.into_iter().map(|name| {
        let mut container = object(draw, CONTAINER);
        container["name"] = json!(name);
        container["image"] = image(draw);
        container
    });
    json!(made.collect::<Vec<_>>())
}

fn volumes(draw: &mut Draw) -> Value {
    let names = if draw.chance(50) { ["data", "config"] } else { ["config", "data"] };
    json!(names.map(|name| {
        let mut volume = volume(draw);
        volume["name"] = json!(name);
        volume
    }))
}

fn volume(draw: &mut Draw) -> Value {
    let items = json!([{"key": "a", "path": "b"}, {"key": "c", "path": "d", "mode": 256}]);
    match draw.below(9) {
        0 => json!({}),
        1 => json!({"emptyDir": null}),
        8 => json!({"emptyDir": {}}),
        2 => json!({"emptyDir": {"sizeLimit": draw.pick(&["1Gi", "1024Mi", "0"])}}),
        3 => json!({"configMap": {"name": "settings", "items": items}}),
        4 => json!({"secret": {"secretName": "access", "defaultMode": draw.pick(&[288, 420])}}),
        5 => json!({"hostPath": {"path": "/var", "type": draw.pick(&["", "Directory"])}}),
        6 => json!({"projected": {"sources": [
            {"serviceAccountToken": {"path": "token", "audience": "a"}}, {"configMap": {"name": "settings"}},
        ]}}),
        _ => {
            json!({"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}})
        }
    }
}

fn mounts(draw: &mut Draw) -> Value {
    let paths = draw.some(&["/data", "/config", "/tmp"]);
    json!(
        paths
            .iter()
            .map(|path| {
                let mut mount = json!({"mountPath": path, "name": draw.pick(&["data", "config"])});
                if draw.chance(40) {
                    mount["readOnly"] = flag(draw);
                }
                if draw.chance(30) {
                    mount["subPath"] = json!(draw.pick(&["", "a", "b"]));
                }
                mount
            })
            .collect::<Vec<_>>()
    )
}

fn container_ports(draw: &mut Draw) -> Value {
    let ports = draw.some(&[(80, "http"), (9090, "admin"), (53, "dns")]);
    json!(
        ports
            .iter()
            .map(|(number, name)| {
                let mut port = json!({"containerPort": number});
                if draw.chance(85) {
                    port["protocol"] = protocol(draw);
                }
                if draw.chance(60) {
                    port["name"] = json!(name);
                }
                if draw.chance(10) {
                    port["hostPort"] = json!(0);
                }
                port
            })
            .collect::<Vec<_>>()
    )
}

fn env(draw: &mut Draw) -> Value {
    let names = draw.some(&["A", "B", "C", "D"]);
    json!(
        names
            .iter()
            .map(|name| {
                let mut variable = match draw.below(6) {
                    0 => json!({"valueFrom": {"fieldRef": {"fieldPath": draw.pick(&["metadata.name", "spec.nodeName"])}}}),
                    1 => json!({"valueFrom": {"secretKeyRef": {"name": "access", "key": "a", "optional": draw.chance(50)}}}),
                    2 => json!({"valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": draw.pick(&["0", "1", "1m"])}}}),
                    3 => json!({}),
                    _ => json!({"value": text(draw)}),
                };
                variable["name"] = json!(name);
                variable
            })
            .collect::<Vec<_>>()
    )
}

fn env_from(draw: &mut Draw) -> Value {
    let sources = [
        json!({"configMapRef": {"name": "settings"}}),
        json!({"secretRef": {"name": "access", "optional": true}}),
        json!({"prefix": "A_", "configMapRef": {"name": "settings"}}),
    ];
    json!(draw.some(&sources))
}

fn probe(draw: &mut Draw) -> Value {
    let mut probe = match draw.below(3) {
        0 => json!({"tcpSocket": {"port": target_port(draw)}}),
        1 => json!({"exec": {"command": words(draw)}}),
        _ => json!({"httpGet": {"path": draw.pick(&["/livez", "/", ""]), "port": target_port(draw)}}),
    };
    if probe.get("httpGet").is_some() && draw.chance(40) {
        probe["httpGet"]["scheme"] = json!(draw.pick(&["HTTP", "HTTPS"]));
    }
    if probe.get("httpGet").is_some() && draw.chance(30) {
        probe["httpGet"]["httpHeaders"] =
            json!([{"name": "A", "value": text(draw)}, {"name": "B", "value": "b"}]);
    }
    for name in ["periodSeconds", "timeoutSeconds", "initialDelaySeconds", "failureThreshold"] {
        if draw.chance(30) {
            probe[name] = json!(draw.pick(&[0, 1, 3, 10]));
        }
    }
    probe
}

fn security(draw: &mut Draw) -> Value {
    let mut made = json!({});
    if draw.chance(50) {
        made["capabilities"] =
            json!({"drop": draw.some(&["ALL", "NET_RAW"]), "add": draw.some(&["CHOWN", "SETUID"])});
    }
    for name in ["runAsNonRoot", "readOnlyRootFilesystem", "allowPrivilegeEscalation"] {
        if draw.chance(40) {
            made[name] = flag(draw);
        }
    }
    made
}

fn tolerations(draw: &mut Draw) -> Value {
    let all = [
        json!({"key": "dedicated", "operator": "Equal", "value": "shop", "effect": "NoSchedule"}),
        json!({"key": "spot", "operator": "Exists"}),
        json!({"key": "plain", "value": "x"}),
        json!({"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}),
    ];
    json!(draw.some(&all))
}

fn affinity(draw: &mut Draw) -> Value {
    let term = json!({"labelSelector": selector(draw), "topologyKey": "kubernetes.io/hostname"});
    let all = [
        json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": count(draw), "podAffinityTerm": term}]}}),
        json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}, "nodeAffinity": null}),
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "disk", "operator": "In", "values": draw.some(&["ssd", "hdd"])}]},
        ]}}}),
    ];
    draw.pick(&all).clone()
}

fn spread(draw: &mut Draw) -> Value {
    let keys = draw.some(&["zone", "kubernetes.io/hostname"]);
    json!(
        keys.iter()
            .map(|key| json!({
                "maxSkew": count(draw), "topologyKey": key, "labelSelector": selector(draw),
                "whenUnsatisfiable": draw.pick(&["DoNotSchedule", "ScheduleAnyway"]),
            }))
            .collect::<Vec<_>>()
    )
}

/// The empty name as well, which is the default.
fn word_of_accounts(draw: &mut Draw) -> Value {
    let name = word(draw);
    if draw.chance(20) { emptied(&name) } else { json!(draw.pick(&["runner", "shop"])) }
}

/// A port of a Service.
pub(super) fn service_ports(draw: &mut Draw) -> Value {
    let ports = draw.some(&["http", "admin", "dns"]);
    json!(
        ports
            .iter()
            .zip([80, 90, 53])
            .map(|(name, number)| {
                // Kubernetes 1.20 applies no port without it.
                let mut made = json!({"name": name, "port": number, "protocol": protocol(draw)});
                if draw.chance(60) {
                    made["targetPort"] = target_port(draw);
                }
                if draw.chance(25) {
                    made["nodePort"] = draw.pick(&[Value::Null, json!(0)]).clone();
                }
                made
            })
            .collect::<Vec<_>>()
    )
}

/// The ports of a NetworkPolicy's rule.
pub(super) fn policy_ports(draw: &mut Draw) -> Value {
    let mut made = json!([{"port": target_port(draw)}, {"port": port(draw), "protocol": protocol(draw)}]);
    if draw.chance(50) {
        made.as_array_mut().unwrap().truncate(1);
    }
    made
}
