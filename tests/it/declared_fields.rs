//! Every field that a manifest declares, changed and removed one by one: the guard refuses each of them, but for those
//! that the API server refuses before it asks anybody, which are named here.

use std::collections::BTreeSet;

use futures::StreamExt as _;
use kubemoor_declare::catalog::{Catalog, KindFacts};
use kubemoor_declare::declare::declare;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_declare::openapi;
use kubemoor_declare::path::{Path, Segment};
use kubemoor_helm::release::{documents, gvk};
use serde_json::{Value, json};

use crate::support::{ControlPlane, RELEASE, Scene, define_widgets};

/// Values that mean something to the API server and have a few others beside them.
const CHOICES: [&[&str]; 12] = [
    &["TCP", "UDP"],
    &["IfNotPresent", "Always"],
    &["ClusterIP", "NodePort"],
    &["ClientIP", "None"],
    &["Prefix", "Exact"],
    &["HTTP", "HTTPS"],
    &["NoSchedule", "NoExecute"],
    &["RollingUpdate", "OnDelete", "Recreate"],
    &["spec.nodeName", "metadata.name"],
    &["ReadWriteOnce", "ReadOnlyMany"],
    &["Memory", ""],
    &["data", "config"],
];

/// How many other values of a field are tried.
const TRIES: usize = 8;

/// Requests under way at one time.
const AT_ONCE: usize = 3;

const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels: {tier: front}
  annotations: {example.org/team: shop}
spec:
  replicas: 2
  revisionHistoryLimit: 5
  minReadySeconds: 3
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 25%, maxUnavailable: 1}}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web, tier: front}, annotations: {example.org/note: a}}
    spec:
      terminationGracePeriodSeconds: 20
      nodeSelector: {disk: ssd}
      tolerations: [{key: dedicated, operator: Equal, value: shop, effect: NoSchedule}]
      securityContext: {runAsUser: 1000, fsGroup: 2000}
      initContainers:
      - {name: prepare, image: registry.example/prepare:1, args: [all]}
      containers:
      - name: app
        image: registry.example/shop:1
        command: [/shop]
        args: [serve, --port=8080]
        imagePullPolicy: IfNotPresent
        env:
        - {name: LEVEL, value: info}
        - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        - {name: PASSWORD, valueFrom: {secretKeyRef: {name: settings, key: password}}}
        envFrom: [{configMapRef: {name: settings}}]
        ports:
        - {name: http, containerPort: 8080, protocol: TCP}
        - {name: admin, containerPort: 9090}
        resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {cpu: "2", memory: 256Mi}}
        livenessProbe: {httpGet: {path: /livez, port: http, scheme: HTTP}, periodSeconds: 5, timeoutSeconds: 2}
        readinessProbe: {tcpSocket: {port: 8080}, initialDelaySeconds: 1, failureThreshold: 4}
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
        volumeMounts:
        - {name: data, mountPath: /data}
        - {name: config, mountPath: /config, readOnly: true}
      - name: sidecar
        image: registry.example/proxy:7
        env: [{name: UPSTREAM, value: localhost}]
      volumes:
      - {name: data, emptyDir: {sizeLimit: 1Gi}}
      - {name: config, configMap: {name: settings, defaultMode: 288, items: [{key: a, path: b}]}}
"#;

const STATEFUL_SET: &str = r#"
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: store}
spec:
  replicas: 1
  serviceName: store
  podManagementPolicy: Parallel
  updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 1}}
  selector: {matchLabels: {app: store}}
  template:
    metadata: {labels: {app: store, tier: back}}
    spec:
      containers:
      - name: store
        image: registry.example/store:1
        ports: [{name: store, containerPort: 5432}]
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"#;

const SERVICE: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: web, annotations: {example.org/team: shop}}
spec:
  type: ClusterIP
  sessionAffinity: None
  selector: {app: web}
  ports:
  - {name: http, port: 80, targetPort: http, protocol: TCP}
  - {name: admin, port: 90, targetPort: 9090, protocol: TCP}
"#;

const INGRESS: &str = r#"
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, annotations: {example.org/rewrite: /}}
spec:
  ingressClassName: public
  defaultBackend: {service: {name: web, port: {number: 80}}}
  tls: [{hosts: [shop.example], secretName: shop-tls}]
  rules:
  - host: shop.example
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {name: http}}}}]}
"#;

const CONFIGURATION: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {tier: front}}
data: {level: info, "app.properties": "a=1\nb=2\n"}
binaryData: {logo: aGVsbG8=}
---
apiVersion: v1
kind: Secret
metadata: {name: settings}
type: Opaque
data: {password: c2VjcmV0}
stringData: {token: sesame}
"#;

const ROLES: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules:
- {apiGroups: [""], resources: [configmaps], resourceNames: [settings], verbs: [get]}
- {apiGroups: [apps], resources: [deployments], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "reader-of-{{ .Release.Namespace }}", labels: {tier: front}}
rules:
- {apiGroups: [""], resources: [nodes], verbs: [get]}
- {nonResourceURLs: [/healthz], verbs: [get]}
"#;

const WIDGET: &str = r#"
apiVersion: fields.example/v1
kind: Widget
metadata: {name: wheel}
spec:
  replicas: 3
  enabled: false
  port: http
  colours: {rim: red, hub: blue}
  parts: [{name: spoke, count: 12}, {name: nut, count: 0}]
  tags: [round, light]
  steps: [cut, bend]
  free: {depth: {of: [1, two]}, ratio: 0.5}
"#;

/// One declared object: where it is, and what is declared of it.
struct DeclaredLeaves {
    kind: String,
    path: String,
    leaves: Vec<(Path, Value)>,
}

#[tokio::test(flavor = "multi_thread")]
async fn no_declared_field_of_a_deployment_can_be_changed() {
    let immutable = [
        "Deployment /spec/selector",
        "Deployment /spec/strategy/type",
        "Deployment /spec/template/metadata/labels/app",
        "Deployment /spec/template/spec/volumes/[name=config]/name",
        "Deployment /spec/template/spec/volumes/[name=data]/name",
    ];
    check(DEPLOYMENT, &Catalog::with_core(), &immutable).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn no_declared_field_of_a_stateful_set_can_be_changed() {
    let mut immutable = vec![
        "StatefulSet /spec/podManagementPolicy",
        "StatefulSet /spec/selector",
        "StatefulSet /spec/serviceName",
        "StatefulSet /spec/template/metadata/labels/app",
        "StatefulSet /spec/updateStrategy/type",
        "StatefulSet /spec/volumeClaimTemplates",
    ];
    if ControlPlane::get().minor() > 20 {
        // Later API servers look for the volume among the claim templates.
        immutable.push(
            "StatefulSet /spec/template/spec/containers/[name=store]/volumeMounts/[mountPath=~1data]/name",
        );
    }
    check(STATEFUL_SET, &Catalog::with_core(), &immutable).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn no_declared_field_of_service_or_ingress_can_be_changed() {
    check(&format!("{SERVICE}---{INGRESS}"), &Catalog::with_core(), &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_declared_field_of_configmap_or_secret_can_be_changed() {
    check(CONFIGURATION, &Catalog::with_core(), &["Secret /type"]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn no_declared_field_of_role_or_clusterrole_can_be_changed() {
    check(ROLES, &Catalog::with_core(), &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_declared_field_of_a_custom_resource_can_be_changed() {
    let definition = define_widgets(ControlPlane::get(), "fields.example").await;
    let mut catalog = Catalog::with_core();
    catalog.insert(KindFacts::from_crd(&definition).unwrap());
    for (gvk, schema) in openapi::from_crd(&definition).unwrap() {
        catalog.insert_schema(gvk, schema);
    }
    check(WIDGET, &catalog, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_second_variable_of_a_declared_name_is_refused() {
    let shop = Scene::shared().install("doubles", DEPLOYMENT).await;
    let path = shop.deployment("web");
    shop.wait_until_guarded(&path).await;
    let env = "/spec/template/spec/containers/0/env/-";
    let double = json!({"name": "LEVEL", "value": "debug"});
    shop.alice.patch(&format!("{path}?dryRun=All"), "add", env, &double).await.refused(RELEASE).unwrap();
}

/// Installs the manifests and tries to change each field that they declare. `immutable` are the fields of which the
/// API server itself refuses every other value.
async fn check(templates: &str, catalog: &Catalog, immutable: &[&str]) {
    let shop = Scene::shared().install("fields", templates).await;
    let (mut let_through, mut refused_first) = (Vec::new(), BTreeSet::new());
    for object in declared(&shop, catalog).await {
        shop.wait_until_guarded(&object.path).await;
        let live = shop.get(&object.path).await;
        let attempts = futures::stream::iter(&object.leaves)
            .map(|(leaf, value)| attempt(&shop, &object, leaf, value, &live));
        let outcomes: Vec<_> = attempts.buffer_unordered(AT_ONCE).collect().await;
        assert!(outcomes.len() >= 4, "{} declares only {} fields", object.kind, outcomes.len());
        for outcome in outcomes {
            let_through.extend(outcome.let_through);
            refused_first.extend(outcome.refused_first);
        }
    }
    assert!(let_through.is_empty(), "these pass:\n{}", let_through.join("\n"));
    assert_eq!(refused_first, immutable.iter().map(|&field| field.to_owned()).collect());
    assert!(
        !shop.guard().log().contains("failed to read the schemas"),
        "the guard compares without the server's types"
    );
}

#[derive(Default)]
struct Attempted {
    let_through: Vec<String>,
    refused_first: Option<String>,
}

/// Sends other values for a field until the guard is asked about one; then removes the field.
async fn attempt(
    shop: &Scene,
    object: &DeclaredLeaves,
    leaf: &Path,
    declared: &Value,
    live: &Value,
) -> Attempted {
    let (kind, path) = (&object.kind, format!("{}?dryRun=All", object.path));
    let (pointer, value) = locate(live, leaf).unwrap_or_else(|| panic!("{kind} {leaf} is not live: {live}"));
    let mut attempted = Attempted::default();
    let mut asked = false;
    for other in others(declared).into_iter().take(TRIES) {
        let answer = shop.alice.patch(&path, "replace", &pointer, &other).await;
        match answer.code {
            400 | 422 => continue,
            _ => asked = true,
        }
        if let Err(said) = answer.refused(RELEASE) {
            attempted.let_through.push(format!("{kind} {leaf}: {declared} -> {other}: {said}"));
        }
        break;
    }
    if !asked {
        attempted.refused_first = Some(format!("{kind} {leaf}"));
    }
    let answer = shop.alice.patch(&path, "remove", &pointer, &Value::Null).await;
    // What the API server puts back itself is as it was, and what it needs it does not let go.
    let harmless = matches!(answer.code, 400 | 422) || leaf.get(&answer.body).contains(&value);
    if let (false, Err(said)) = (harmless, answer.refused(RELEASE)) {
        attempted.let_through.push(format!("{kind} {leaf}: removed: {said}"));
    }
    attempted
}

/// What the release declares, as the program itself reads it out of Helm's record.
async fn declared(shop: &Scene, catalog: &Catalog) -> Vec<DeclaredLeaves> {
    let manifest = shop.helm.manifest(&shop.namespace, RELEASE).await.unwrap();
    let release = ReleaseId { namespace: shop.namespace.clone().into(), name: RELEASE.into() };
    let (objects, skipped) = documents(&release, &manifest, catalog);
    assert!(skipped.is_empty() && !objects.is_empty());
    let guarded = objects.into_iter().map(|(id, document)| {
        let gvk = gvk(&document);
        let facts = catalog.facts(&gvk.group, &gvk.kind).unwrap();
        let fields = declare(&document, Some(&catalog.schema(&gvk).unwrap()));
        let leaves = fields.leaves().into_iter().map(|(path, value)| (path, value.clone())).collect();
        DeclaredLeaves { kind: gvk.kind.clone(), path: address(&id, &gvk.api_version(), facts), leaves }
    });
    guarded.collect()
}

fn address(id: &ObjectId, api_version: &str, facts: &KindFacts) -> String {
    let root = if id.group.is_empty() { "api" } else { "apis" };
    let namespace = id.namespace.as_ref().map(|name| format!("/namespaces/{name}")).unwrap_or_default();
    format!("/{root}/{api_version}{namespace}/{}/{}", facts.plural, id.name)
}

/// The JSON Pointer of a path in this object, and the value there.
fn locate<'v>(object: &'v Value, path: &Path) -> Option<(String, &'v Value)> {
    path.0.iter().try_fold((String::new(), object), |(pointer, value), segment| {
        let token = match segment {
            Segment::Field(name) => name.replace('~', "~0").replace('/', "~1"),
            Segment::Key(_) | Segment::Element(_) => {
                let element = Path([segment.clone()].into());
                let is_it = |item: &Value| !element.get(&json!([item])).is_empty();
                value.as_array()?.iter().position(is_it)?.to_string()
            }
        };
        let pointer = format!("{pointer}/{token}");
        Some((pointer.clone(), object.pointer(&pointer)?))
    })
}

/// Other values of the same form, the likelier ones to be valid first.
fn others(value: &Value) -> Vec<Value> {
    match value {
        Value::Null => vec![json!("x")],
        Value::Bool(on) => vec![json!(!on)],
        Value::Number(number) => match number.as_i64() {
            Some(number) => vec![json!(number + 1), json!(number - 1)],
            None => vec![json!(7.25)],
        },
        Value::String(text) => other_texts(text).into_iter().map(Value::String).collect(),
        Value::Array(items) => {
            let changed = items.iter().enumerate().flat_map(|(index, item)| {
                others(item).into_iter().map(move |other| {
                    let mut items = items.clone();
                    items[index] = other;
                    Value::Array(items)
                })
            });
            changed.collect()
        }
        Value::Object(map) => {
            let changed = map.iter().flat_map(|(name, value)| {
                others(value).into_iter().map(move |other| {
                    let mut map = map.clone();
                    map.insert(name.clone(), other);
                    Value::Object(map)
                })
            });
            changed.collect()
        }
    }
}

fn other_texts(text: &str) -> Vec<String> {
    let choices = CHOICES.iter().filter(|choices| choices.contains(&text)).copied().flatten();
    let mut others: Vec<String> =
        choices.filter(|choice| **choice != text).map(|choice| (*choice).to_owned()).collect();
    // Quantities and percentages; digits of anything else change as well.
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        others.push(format!("1{text}"));
    }
    others.extend([format!("{text}x"), "Y2hhbmdlZA==".to_owned()]);
    others
}
