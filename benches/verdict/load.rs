//! The release and the reviews: updates of a Deployment with three containers
//! and as many environment variables as are asked for, as the API server sends them.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

/// An `AdmissionReview` and a part of the answer that it must get.
pub(crate) struct BenchReview {
    pub(crate) name: &'static str,
    pub(crate) text: String,
    pub(crate) answer: &'static str,
}

/// The policies of the guard that has many.
pub(crate) const POLICIES: usize = 200;

/// The environment variables of each container.
pub(crate) const VARIABLES: usize = 20;

/// Of each policy: half of them ignore, half allow.
const RULES: usize = 10;

const CONTAINERS: [&str; 3] = ["web", "worker", "proxy"];
/// A part of the answer that lets a review pass.
pub(crate) const ALLOWED: &str = "\"allowed\":true";

/// Where the user's name has a number, which is another one in each request: two refusals of one user would count as one.
pub(crate) const USER: &[u8] = b"bob-00000000";

const DENIED: &str = "\"allowed\":false";

/// Writes the release `shop/web` as a store's file.
pub(crate) fn write_store(folder: &Path) {
    write_release(folder, "web", &[manifest(VARIABLES)]);
}

/// Writes a release of the namespace `shop` as a store's file.
pub(crate) fn write_release(folder: &Path, name: &str, objects: &[Value]) {
    let folder = folder.join("store/shop");
    fs::create_dir_all(&folder).unwrap();
    // JSON is YAML.
    let documents: Vec<String> = objects.iter().map(Value::to_string).collect();
    fs::write(folder.join(name).with_extension("yaml"), documents.join("\n---\n")).unwrap();
}

/// Writes so many policies that are for the release `shop/web`, with rules that are for
/// its Deployment and for nothing that the reviews change.
pub(crate) fn write_policies(folder: &Path, policies: usize) {
    let policy = |number: usize| {
        let target = json!({"group": "apps", "kind": "(Deployment|StatefulSet)"});
        let path = |rule: usize| match rule % 4 {
            0 => format!("/metadata/annotations/example.org~1of-{number}-{rule}"),
            1 => format!("/spec/template/metadata/annotations/example.org~1of-{number}-{rule}"),
            2 => format!("/spec/template/spec/containers/[name=sidecar-{number}-{rule}]"),
            _ => format!("/spec/template/spec/containers/*/resources/limits/example.org~1of-{number}-{rule}"),
        };
        let ignore = |rule| json!({"target": target, "paths": [path(rule)]});
        let allow = |rule: usize| {
            let subjects = json!([{"kind": "Group", "name": format!("team-{number}")}]);
            json!({"name": format!("rule-{rule}"), "target": target, "paths": [path(rule)], "subjects": subjects})
        };
        let spec = json!({
            "priority": number,
            "releases": {"names": ["w*"], "namespaces": ["shop"]},
            "ignore": (0..RULES / 2).map(ignore).collect::<Vec<_>>(),
            "allow": (RULES / 2..RULES).map(allow).collect::<Vec<_>>(),
        });
        let name = format!("policy-{number}");
        json!({"apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftPolicy", "metadata": {"name": name}, "spec": spec})
    };
    let documents: Vec<String> = (0..policies).map(|number| policy(number).to_string()).collect();
    fs::write(folder.join("policies.yaml"), documents.join("\n---\n")).unwrap();
}

/// The Deployment of another release, which nobody declares.
pub(crate) fn undeclared() -> BenchReview {
    let edit =
        |object: &mut Value| object["metadata"]["annotations"]["example.org/looked-at-by"] = json!("bob");
    review("undeclared, an annotation", "other", edit, ALLOWED)
}

/// An annotation that the manifest does not declare.
pub(crate) fn annotated() -> BenchReview {
    let edit =
        |object: &mut Value| object["metadata"]["annotations"]["example.org/looked-at-by"] = json!("bob");
    review("declared, an undeclared annotation", "web", edit, ALLOWED)
}

/// What the Deployment controller writes all the time.
pub(crate) fn status_written() -> BenchReview {
    let edit = |object: &mut Value| {
        object["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = json!("8")
    };
    review("declared, the controller's annotation", "web", edit, ALLOWED)
}

/// Another number of replicas.
pub(crate) fn scaled_up() -> BenchReview {
    let edit = |object: &mut Value| object["spec"]["replicas"] = json!(7);
    review("declared, replicas (refused)", "web", edit, DENIED)
}

/// Other images and another variable.
pub(crate) fn with_another_image() -> BenchReview {
    let edit = |object: &mut Value| {
        for container in object["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap() {
            container["image"] = json!("registry.example/shop/mine:latest");
            container["env"][7]["value"] = json!("mine");
        }
    };
    review("declared, images and env (refused)", "web", edit, DENIED)
}

fn variables(container: &str, count: usize) -> Vec<Value> {
    let variable = |n: usize| {
        let value = format!(
            "https://{container}-{n}.{container}.shop.svc.cluster.local:80{n:02}/v1/settings/of/{container}/and/its/{n}th/neighbour?deadline=30s&retries=3&trace=sampled"
        );
        json!({"name": format!("SHOP_SETTING_{n:02}"), "value": value})
    };
    (0..count).map(variable).collect()
}

/// The manifest of the Deployment `web`, each of whose containers has so many variables.
pub(crate) fn manifest(variables_each: usize) -> Value {
    let container = |name: &&str| {
        json!({
            "name": name,
            "image": format!("registry.example/shop/{name}:1.27.3"),
            "env": variables(name, variables_each),
            "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
            "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 5},
        })
    };
    let labels = json!({"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "shop"});
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "labels": labels},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": "web",
                    "securityContext": {"runAsNonRoot": true},
                    "containers": CONTAINERS.iter().map(container).collect::<Vec<_>>(),
                },
            },
        },
    })
}

/// The Deployment as the API server holds it: with its defaults, what Helm
/// adds, a status and who manages what.
pub(crate) fn live(name: &str, mut object: Value) -> Value {
    let manages = managed(&object["spec"]);
    let metadata = &mut object["metadata"];
    metadata["name"] = json!(name);
    metadata["uid"] = json!("d2b7c3ea-3a0d-4c6e-9a55-0f4ab9f5d0c8");
    metadata["resourceVersion"] = json!("18201");
    metadata["generation"] = json!(7);
    metadata["creationTimestamp"] = json!("2026-03-01T10:00:00Z");
    metadata["labels"]["app.kubernetes.io/managed-by"] = json!("Helm");
    metadata["annotations"] = json!({
        "deployment.kubernetes.io/revision": "7",
        "meta.helm.sh/release-name": name,
        "meta.helm.sh/release-namespace": "shop",
    });
    metadata["managedFields"] = json!([
        {"manager": "helm", "operation": "Update", "apiVersion": "apps/v1", "time": "2026-03-01T10:00:00Z",
         "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": manages}},
        {"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "apps/v1",
         "time": "2026-03-01T10:00:05Z", "fieldsType": "FieldsV1", "subresource": "status",
         "fieldsV1": {"f:metadata": {"f:annotations": {".": {}, "f:deployment.kubernetes.io/revision": {}}},
                      "f:status": {"f:availableReplicas": {}, "f:conditions": {}, "f:replicas": {}}}},
    ]);
    let spec = &mut object["spec"];
    spec["progressDeadlineSeconds"] = json!(600);
    spec["revisionHistoryLimit"] = json!(10);
    spec["strategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}});
    let pod = &mut spec["template"]["spec"];
    pod["dnsPolicy"] = json!("ClusterFirst");
    pod["restartPolicy"] = json!("Always");
    pod["schedulerName"] = json!("default-scheduler");
    pod["serviceAccount"] = json!("web");
    pod["terminationGracePeriodSeconds"] = json!(30);
    for container in pod["containers"].as_array_mut().unwrap() {
        container["imagePullPolicy"] = json!("IfNotPresent");
        container["terminationMessagePath"] = json!("/dev/termination-log");
        container["terminationMessagePolicy"] = json!("File");
        container["readinessProbe"]["failureThreshold"] = json!(3);
        container["readinessProbe"]["successThreshold"] = json!(1);
        container["readinessProbe"]["timeoutSeconds"] = json!(1);
        container["readinessProbe"]["httpGet"]["scheme"] = json!("HTTP");
    }
    let condition = |kind: &str, reason: &str| {
        json!({"type": kind, "status": "True", "reason": reason, "message": "Deployment is as it should be.",
               "lastTransitionTime": "2026-03-01T10:00:05Z", "lastUpdateTime": "2026-03-01T10:00:05Z"})
    };
    object["status"] = json!({
        "availableReplicas": 3, "observedGeneration": 7, "readyReplicas": 3, "replicas": 3, "updatedReplicas": 3,
        "conditions": [condition("Available", "MinimumReplicasAvailable"), condition("Progressing", "NewReplicaSetAvailable")],
    });
    object
}

/// The set of fields, as `managedFields` spells it.
fn managed(value: &Value) -> Value {
    let mut set = Map::new();
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                set.insert(format!("f:{name}"), managed(value));
            }
        }
        Value::Array(items) => {
            for item in items {
                let key = match item.get("containerPort") {
                    Some(port) => json!({"containerPort": port, "protocol": item["protocol"]}),
                    None => json!({"name": item["name"]}),
                };
                let mut item = managed(item);
                item[".".to_owned()] = json!({});
                set.insert(format!("k:{key}"), item);
            }
        }
        _ => {}
    }
    Value::Object(set)
}

fn review(name: &'static str, object: &str, edit: impl Fn(&mut Value), answer: &'static str) -> BenchReview {
    let old = live(object, manifest(VARIABLES));
    let mut new = old.clone();
    edit(&mut new);
    BenchReview { name, text: update(object, &old, &new), answer }
}

/// The review of an update of a Deployment of the namespace `shop`.
pub(crate) fn update(name: &str, old: &Value, new: &Value) -> String {
    // The order of the API server's own type.
    format!(
        concat!(
            r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"#,
            r#""uid":"705ab4f5-6393-11e8-b7cc-42010a800002","#,
            r#""kind":{{"group":"apps","version":"v1","kind":"Deployment"}},"#,
            r#""resource":{{"group":"apps","version":"v1","resource":"deployments"}},"#,
            r#""requestKind":{{"group":"apps","version":"v1","kind":"Deployment"}},"#,
            r#""requestResource":{{"group":"apps","version":"v1","resource":"deployments"}},"#,
            r#""name":"{name}","namespace":"shop","operation":"UPDATE","#,
            r#""userInfo":{{"username":"bob-00000000","groups":["people","system:authenticated"]}},"#,
            r#""object":{new},"oldObject":{old},"dryRun":false,"#,
            r#""options":{{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"kubectl-edit"}}}}}}"#
        ),
        name = name,
        new = new,
        old = old,
    )
}
