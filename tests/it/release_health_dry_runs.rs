//! What is called `InSync` is what a forced server-side apply of the manifest would not change: drift is reported for
//! exactly those objects that a dry run changes, over several charts and edits of every sort.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::support::{Identity, RELEASE, SOON, Scene, charts, eventually, moor};

const CONFIGURATION: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {tier: front}, annotations: {example.org/team: shop}}
data: {level: info, color: blue}
---
apiVersion: v1
kind: Secret
metadata: {name: token}
type: Opaque
stringData: {password: first}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: shop}
automountServiceAccountToken: false
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules: [{apiGroups: [''], resources: [configmaps], verbs: [get, list]}]
";

const WORKLOADS: &str = concat!(
    charts::deployment!(
        "{name: app, image: registry.example/web:1, resources: {requests: {cpu: '1', memory: 1Gi}}, env: [{name: A, value: a}, {name: B, value: b}], ports: [{containerPort: 8080, protocol: TCP}]}"
    ),
    "---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080, protocol: TCP}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: store}
spec:
  serviceName: store
  replicas: 1
  selector: {matchLabels: {app: store}}
  template:
    metadata: {labels: {app: store}}
    spec: {containers: [{name: store, image: 'registry.example/store:1', args: [a, b]}]}
",
);

const EDGES: &str = "
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec:
  rules:
  - host: shop.example
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web}
spec:
  podSelector: {matchLabels: {app: web}}
  policyTypes: [Ingress]
  ingress: [{ports: [{port: 8080, protocol: TCP}]}]
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: limits}
spec: {hard: {pods: '3', requests.cpu: '2'}}
";

/// The objects of a chart, and of each edits one after the other: merge patches; none deletes it.
type Edits = Vec<(&'static str, Vec<Option<Value>>)>;

fn edits_of_configuration() -> Edits {
    vec![
        (
            "api/v1/configmaps/settings",
            vec![
                Some(json!({"data": {"level": "mine"}})),
                Some(json!({"data": {"level": "info"}})),
                Some(json!({"data": {"added": "by hand"}})),
                Some(json!({"metadata": {"labels": {"tier": "back"}}})),
                Some(json!({"metadata": {"annotations": {"example.org/team": null}}})),
                None,
            ],
        ),
        (
            "api/v1/secrets/token",
            vec![
                Some(json!({"data": {"password": "bWluZQ=="}})),
                Some(json!({"data": {"password": "Zmlyc3Q="}})),
                Some(json!({"data": {"other": "bWluZQ=="}})),
            ],
        ),
        (
            "api/v1/serviceaccounts/shop",
            vec![
                Some(json!({"automountServiceAccountToken": true})),
                Some(json!({"automountServiceAccountToken": false})),
            ],
        ),
        (
            "apis/rbac.authorization.k8s.io/v1/roles/reader",
            vec![
                Some(json!({"rules": []})),
                Some(
                    json!({"rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]}),
                ),
                Some(json!({"metadata": {"labels": {"added": "by-hand"}}})),
            ],
        ),
    ]
}

fn edits_of_workloads() -> Edits {
    let container = |more: Value| {
        let mut own = json!({
            "name": "app", "image": "registry.example/web:1",
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
            "env": [{"name": "A", "value": "a"}, {"name": "B", "value": "b"}],
            "ports": [{"containerPort": 8080, "protocol": "TCP"}],
        });
        own.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Some(json!({"spec": {"template": {"spec": {"containers": [own]}}}}))
    };
    vec![
        (
            "apis/apps/v1/deployments/web",
            vec![
                Some(json!({"spec": {"replicas": 5}})),
                Some(json!({"spec": {"replicas": 2}})),
                container(json!({"resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}}})),
                container(json!({"env": [{"name": "A", "value": "a"}]})),
                container(
                    json!({"env": [{"name": "A", "value": "a"}, {"name": "B", "value": "b"}, {"name": "C", "value": "c"}]}),
                ),
                container(json!({"imagePullPolicy": "Always"})),
                container(json!({"image": "registry.example/web:9"})),
            ],
        ),
        (
            "api/v1/services/web",
            vec![
                Some(json!({"spec": {"selector": {"app": "mine"}}})),
                Some(json!({"spec": {"selector": {"app": "web"}}})),
                Some(json!({"spec": {"sessionAffinity": "ClientIP"}})),
            ],
        ),
        (
            "apis/apps/v1/statefulsets/store",
            vec![
                Some(json!({"spec": {"replicas": 3}})),
                Some(
                    json!({"spec": {"replicas": 1, "updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}}),
                ),
            ],
        ),
    ]
}

fn edits_of_edges() -> Edits {
    vec![
        (
            "apis/networking.k8s.io/v1/ingresses/web",
            vec![
                Some(json!({"spec": {"rules": [{"host": "mine.example"}]}})),
                Some(json!({"spec": {"ingressClassName": "mine"}})),
                Some(json!({"metadata": {"annotations": {"more": "by hand"}}})),
                None,
            ],
        ),
        (
            "apis/networking.k8s.io/v1/networkpolicies/web",
            vec![
                Some(json!({"spec": {"ingress": [{"ports": [{"port": 9090, "protocol": "TCP"}]}]}})),
                Some(json!({"spec": {"ingress": [{"ports": [{"port": 8080, "protocol": "TCP"}]}]}})),
            ],
        ),
        (
            "api/v1/resourcequotas/limits",
            vec![
                Some(json!({"spec": {"hard": {"pods": "5"}}})),
                Some(json!({"spec": {"hard": {"pods": "3", "requests.cpu": "2000m"}}})),
                Some(json!({"spec": {"hard": {"secrets": "9"}}})),
            ],
        ),
    ]
}

/// The objects of the release as Helm applies them, with their addresses.
async fn documents(scene: &Scene) -> Vec<(String, Value)> {
    let manifest = scene.helm.manifest(&scene.namespace, RELEASE).await.unwrap();
    let documents: Vec<Value> = serde_saphyr::from_multiple(&manifest).unwrap();
    let placed = documents.into_iter().filter(|document| !document.is_null()).map(|mut document| {
        let owned = json!({
            "namespace": scene.namespace,
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"meta.helm.sh/release-name": RELEASE, "meta.helm.sh/release-namespace": scene.namespace},
        });
        json_patch::merge(&mut document["metadata"], &owned);
        let kind = document["kind"].as_str().unwrap().to_lowercase();
        let plural = match kind.strip_suffix('y') {
            Some(stem) => format!("{stem}ies"),
            None if kind.ends_with('s') => format!("{kind}es"),
            None => format!("{kind}s"),
        };
        let version = document["apiVersion"].as_str().unwrap();
        let api = if version.contains('/') { format!("apis/{version}") } else { format!("api/{version}") };
        let name = document["metadata"]["name"].as_str().unwrap();
        (format!("/{api}/namespaces/{}/{plural}/{name}", scene.namespace), document)
    });
    placed.collect()
}

fn plain(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    for own in ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"] {
        metadata.remove(own);
    }
    // Written by a controller, between one read and the next.
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        annotations.remove("deployment.kubernetes.io/revision");
    }
    object.as_object_mut().unwrap().remove("status");
    object
}

/// The objects that a forced dry-run apply of the manifest changes, as `Kind/name`, and what it changes.
async fn changed(scene: &Scene, documents: &[(String, Value)]) -> BTreeMap<String, String> {
    let mut changed = BTreeMap::new();
    for (path, document) in documents {
        let live = scene.alice.get(path).await;
        let query = format!("{path}?fieldManager={}&force=true&dryRun=All", manager(&live.body));
        let applied = scene.alice.apply(&query, document).await.done().unwrap();
        let name = format!(
            "{}/{}",
            document["kind"].as_str().unwrap(),
            document["metadata"]["name"].as_str().unwrap()
        );
        let (live, applied) = (live.done().map(plain).unwrap_or_default(), plain(applied));
        if live != applied {
            changed.insert(name, json_patch::diff(&live, &applied).to_string());
        }
    }
    changed
}

/// The name under which Helm applied an object.
fn manager(live: &Value) -> String {
    let entries = live["metadata"]["managedFields"].as_array();
    let applied = entries.into_iter().flatten().find(|entry| entry["operation"] == "Apply");
    applied.map_or("helm", |entry| entry["manager"].as_str().unwrap()).to_owned()
}

fn names(objects: &Value, of: impl Fn(&Value) -> &Value) -> BTreeSet<String> {
    let named = |object: &Value| {
        format!("{}/{}", of(object)["kind"].as_str().unwrap(), of(object)["name"].as_str().unwrap())
    };
    objects.as_array().into_iter().flatten().map(named).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn drift_is_reported_exactly_where_server_side_apply_would_change() {
    for (chart, edits) in [
        (CONFIGURATION, edits_of_configuration()),
        (WORKLOADS, edits_of_workloads()),
        (EDGES, edits_of_edges()),
    ] {
        let scene = Scene::own().install("dry-runs", chart).await;
        scene.control_plane.apply_deploy(&["enforce/arbiter.yaml"]).await;
        let _guard = scene.start_guard(&["--drift", "Report"]).await;
        scene.wait_for_reason("InSync").await;
        let documents = documents(&scene).await;
        assert_eq!(changed(&scene, &documents).await, BTreeMap::new());
        let rounds = edits.iter().map(|(_, edits)| edits.len()).max().unwrap();
        for round in 0..rounds {
            for (place, edits) in &edits {
                let Some(edit) = edits.get(round) else { continue };
                let (api, name) = place.rsplit_once('/').unwrap();
                let (api, plural) = api.rsplit_once('/').unwrap();
                let path = format!("/{api}/namespaces/{}/{plural}/{name}", scene.namespace);
                match edit {
                    Some(patch) => scene.edit(&path, patch.clone()).await,
                    None => drop(scene.alice.delete(&path).await.done().unwrap()),
                }
            }
            let changed = changed(&scene, &documents).await;
            let wanted: BTreeSet<String> = changed.keys().cloned().collect();
            let diff = ["diff", RELEASE, "-n", &scene.namespace, "--settle", "-o", "json"];
            let diff = moor(&scene.control_plane, Identity::Admin, &diff).json();
            assert_eq!(
                names(&diff["items"][0]["objects"], |it| it),
                wanted,
                "round {round}: {changed:?} {diff}"
            );
            let status =
                eventually(&format!("the status says {wanted:?} in round {round}"), SOON, || async {
                    let status = scene.status("something", Value::is_object).await;
                    let drifted = names(&status["drifts"], |drift| &drift["object"]);
                    let is = drifted == wanted && status["drifted"] == wanted.len();
                    if is { Ok(status) } else { Err(status.to_string()) }
                })
                .await;
            let ready = if wanted.is_empty() { "True" } else { "False" };
            assert_eq!(status["conditions"][0]["status"], ready, "round {round}: {status}");
        }
    }
}
