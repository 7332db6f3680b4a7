//! What the tests of Helm's operations share: one user who runs Helm and edits by hand, in a namespace of its own.
//!
//! Entry points: [`HelmScene::shared`], [`HelmScene::of`] and [`shop`]. Invariant: the guard refuses edits in the namespace
//! before the first operation, so that what passes was let through and not overlooked.

use std::process::Output;

use jiff::Timestamp;
use kube::api::{Api, DynamicObject};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use serde_json::{Value, json};

use crate::support::{Caller, Chart, ControlPlane, Guard, Helm, Identity, SOON, SharedGuard, eventually};

/// An edit by hand: the object as kubectl names it, and a merge patch.
type Edit = (&'static str, &'static str);

/// How a guard is started that these tests can do without sharing.
pub(crate) const FLAGS: [&str; 5] = ["--register", "--edits", "Deny", "--drift", "Repair"];

/// Edits of what every revision of [`shop`] declares, to values that none does.
const SHOP_EDITS: [Edit; 5] = [
    ("configmap/settings", r#"{"data": {"image": "mine"}}"#),
    ("secret/token", r#"{"data": {"password": "bWluZQ=="}}"#),
    ("role/reader", r#"{"rules": []}"#),
    ("service/web", r#"{"spec": {"selector": {"app": "mine"}}}"#),
    ("deployment/web", r#"{"spec": {"replicas": 9}}"#),
];

/// Declares what most tests do, so that its kinds are watched over from the beginning.
const PRIMER: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: primer}
data: {key: value}
---
apiVersion: v1
kind: Secret
metadata: {name: primer}
data: {key: dmFsdWU=}
---
apiVersion: v1
kind: Service
metadata: {name: primer}
spec:
  selector: {app: primer}
  ports: [{port: 80, protocol: TCP}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: primer}
rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: '{{ .Release.Namespace }}-primer'}
rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: primer}
spec:
  replicas: 0
  selector: {matchLabels: {app: primer}}
  template:
    metadata: {labels: {app: primer}}
    spec: {containers: [{name: app, image: registry.example/primer}]}
";

const SHOP: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data:
  image: {{ .Values.image }}
{{ if .Values.motto }}
  motto: {{ .Values.motto }}
{{ end }}
---
apiVersion: v1
kind: Secret
metadata: {name: token}
data: {password: {{ .Values.password | b64enc }}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules: [{apiGroups: [''], resources: [configmaps], verbs: {{ toJson .Values.verbs }}}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{name: http, port: {{ .Values.port }}, targetPort: 8080, protocol: TCP}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: {{ .Values.app }}}}
  template:
    metadata: {labels: {app: {{ .Values.app }}}}
    spec:
      containers:
      - name: app
        image: {{ .Values.image }}
        ports: [{containerPort: 8080, protocol: TCP}]
{{ if .Values.motto }}
        env: [{name: MOTTO, value: {{ .Values.motto }}}]
{{ end }}
{{ if .Values.extra }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: extra}
data: {image: {{ .Values.image }}}
{{ end }}
{{ if .Values.broken }}
---
# No Service listens on port 0: the API server says no.
apiVersion: v1
kind: Service
metadata: {name: broken}
spec:
  selector: {app: web}
  ports: [{port: 0, protocol: TCP}]
{{ end }}
";

const SHOP_VALUES: &str = "\
app: web
image: registry.example/shop:1
replicas: 1
port: 80
password: first
verbs: [get]
motto: ''
extra: false
broken: false
";

/// A namespace, and a user with every right in it.
pub(crate) struct HelmScene<'a> {
    pub(crate) namespace: String,
    pub(crate) helm: Helm,
    alice: Caller,
    control_plane: &'a ControlPlane,
    _guard: Option<SharedGuard>,
}

/// A chart of five objects. Its values: `image`, `replicas`, `port`, `password`, `verbs`, `motto` (a key and an
/// environment variable), `extra` (one more ConfigMap), `broken` (a Service that the API server rejects), `app` (the
/// Deployment's selector, which cannot be changed).
pub(crate) fn shop() -> Chart {
    Chart::new("shop").values(SHOP_VALUES).template("shop.yaml", SHOP)
}

/// Options of an operation with these values.
pub(crate) fn with(values: Value) -> Value {
    json!({"values": values})
}

impl<'a> HelmScene<'a> {
    /// On the control plane and with the guard that tests share.
    pub(crate) async fn shared(prefix: &str) -> HelmScene<'static> {
        let guard = Guard::shared().await;
        let scene = HelmScene::of(ControlPlane::get(), prefix).await;
        HelmScene { _guard: Some(guard), ..scene }
    }

    /// On a control plane that a guard watches over: waits until that is so.
    pub(crate) async fn of(control_plane: &'a ControlPlane, prefix: &str) -> Self {
        let scene = Self::at(control_plane, control_plane.namespace(prefix).await).await;
        let primer = Chart::new("primer").template("primer.yaml", PRIMER);
        scene.install("primer", &primer, json!({})).await;
        let cluster_role = format!("clusterrole/{}-primer", scene.namespace);
        for target in ["configmap/primer", "secret/primer"] {
            scene.assert_refused(target, r#"{"data": {"key": "bWluZQ=="}}"#).await;
        }
        for target in ["role/primer", &cluster_role] {
            scene.assert_refused(target, r#"{"rules": []}"#).await;
        }
        scene.assert_refused("service/primer", r#"{"spec": {"selector": {"app": "mine"}}}"#).await;
        scene.assert_refused("deployment/primer", r#"{"spec": {"replicas": 9}}"#).await;
        scene
    }

    /// In a namespace that exists.
    pub(crate) async fn at(control_plane: &'a ControlPlane, namespace: String) -> Self {
        let helm = Helm::start(control_plane, Identity::Alice);
        let alice = Caller::new(control_plane, Identity::Alice).await;
        Self { namespace, helm, alice, control_plane, _guard: None }
    }

    pub(crate) async fn install(&self, release: &str, chart: &Chart, options: Value) {
        assert_done("install", self.helm.install(&self.namespace, release, chart, options).await);
    }

    pub(crate) async fn upgrade(&self, release: &str, chart: &Chart, options: Value) {
        assert_done("upgrade", self.helm.upgrade(&self.namespace, release, chart, options).await);
    }

    pub(crate) async fn rollback(&self, release: &str, options: Value) {
        assert_done("rollback", self.helm.rollback(&self.namespace, release, options).await);
    }

    pub(crate) async fn uninstall(&self, release: &str, options: Value) {
        assert_done("uninstall", self.helm.uninstall(&self.namespace, release, options).await);
    }

    /// An upgrade that the API server or Helm itself fails for a reason of theirs.
    pub(crate) async fn fail_upgrade(&self, release: &str, chart: &Chart, options: Value, because: &str) {
        // After a failure, objects as old as its record may be deleted, and the API server's times are whole seconds:
        // what is there now must be a second older.
        let now = Timestamp::now().as_second();
        eventually("the next second", SOON, || async { Timestamp::now().as_second() > now }).await;
        assert_failed(self.helm.upgrade(&self.namespace, release, chart, options).await, because);
    }

    /// The revisions, oldest first, such as `2 deployed`.
    pub(crate) async fn history(&self, release: &str) -> Vec<String> {
        let history = self.helm.history(&self.namespace, release).await.unwrap();
        let entry = |entry: &Value| format!("{} {}", entry["revision"], entry["status"].as_str().unwrap());
        let mut entries: Vec<_> = history.as_array().unwrap().iter().collect();
        entries.sort_by_key(|entry| entry["revision"].as_u64());
        entries.into_iter().map(entry).collect()
    }

    /// The objects of the release are what its manifest says.
    pub(crate) async fn assert_as_declared(&self, release: &str) {
        let manifest = self.helm.manifest(&self.namespace, release).await.unwrap();
        let documents: Vec<Value> = serde_saphyr::from_multiple(&manifest).unwrap();
        let documents: Vec<_> = documents.iter().filter(|document| !document.is_null()).collect();
        assert!(!documents.is_empty(), "{release} declares nothing");
        for document in documents {
            let live = self.live(document).await.unwrap_or_else(|error| panic!("{document}: {error}"));
            contained(document, &live, "").unwrap_or_else(|error| panic!("{error}\n{document}\n{live}"));
        }
    }

    /// The release made of [`shop`] is as its manifest says and cannot be edited by hand.
    pub(crate) async fn assert_shop_guarded(&self, release: &str) {
        self.assert_as_declared(release).await;
        self.assert_edits_refused().await;
        self.assert_refused_now(&["delete", "configmap/settings"]);
    }

    /// No edit by hand of a release made of [`shop`] passes.
    pub(crate) async fn assert_edits_refused(&self) {
        for (target, patch) in SHOP_EDITS {
            self.assert_refused(target, patch).await;
        }
    }

    /// The same, and at once.
    pub(crate) async fn assert_edits_refused_now(&self) {
        for (target, patch) in SHOP_EDITS {
            self.assert_patch_refused_now(target, patch).await;
        }
    }

    /// Waits until nothing is left of a release made of [`shop`].
    pub(crate) async fn wait_until_shop_gone(&self) {
        for (target, _) in SHOP_EDITS {
            self.wait_until_gone(target).await;
        }
    }

    /// The edit is refused as soon as the guard and the API server know all, and from then on.
    pub(crate) async fn assert_refused(&self, target: &str, patch: &str) {
        let edit: Value = serde_json::from_str(patch).unwrap();
        let dry = format!("{}?dryRun=All", self.address(target).await);
        let what = format!("{target} cannot be patched with {patch}");
        eventually(&what, SOON, || async { self.alice.merge(&dry, &edit).await.refusal() }).await;
        self.assert_patch_refused_now(target, patch).await;
    }

    /// The edit is refused at once.
    pub(crate) async fn assert_patch_refused_now(&self, target: &str, patch: &str) {
        let edit: Value = serde_json::from_str(patch).unwrap();
        let answer = self.alice.merge(&self.address(target).await, &edit).await.refusal();
        answer.unwrap_or_else(|answer| panic!("{target} can be patched with {patch}: {answer}"));
    }

    /// Where an object is that kubectl knows as `configmap/NAME` or `widgets.VERSION.GROUP/NAME`. Requests of its own, because
    /// each dry run of kubectl reads the API server's whole schema: seconds of a processor.
    async fn address(&self, target: &str) -> String {
        let (kind, name) = target.split_once('/').unwrap();
        let namespaced =
            |group: &str, plural: &str| format!("{group}/namespaces/{}/{plural}/{name}", self.namespace);
        match kind {
            "configmap" | "secret" | "service" => namespaced("/api/v1", &format!("{kind}s")),
            "deployment" => namespaced("/apis/apps/v1", "deployments"),
            "role" => namespaced("/apis/rbac.authorization.k8s.io/v1", "roles"),
            "clusterrole" => format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}"),
            "crd" => format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"),
            _ => {
                let (plural, group) = kind.split_once('.').unwrap();
                let is_version =
                    |word: &str| word.len() > 1 && word[1..].starts_with(|it: char| it.is_ascii_digit());
                match group.split_once('.') {
                    Some((version, group)) if is_version(version) => {
                        namespaced(&format!("/apis/{group}/{version}"), plural)
                    }
                    _ => {
                        let served = self.alice.get(&format!("/apis/{group}")).await.done().unwrap();
                        let preferred = served["preferredVersion"]["groupVersion"].as_str().unwrap();
                        namespaced(&format!("/apis/{preferred}"), plural)
                    }
                }
            }
        }
    }

    pub(crate) fn assert_refused_now(&self, arguments: &[&str]) {
        let answer = denied(&self.kubectl(arguments));
        answer.unwrap_or_else(|answer| panic!("kubectl {} is not refused: {answer}", arguments.join(" ")));
    }

    /// Lets the user do something by hand that is nobody's business, and gives what kubectl prints.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let output = self.kubectl(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {}: {error}", arguments.join(" "));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// One value of an object as it is, at a JSON path such as `.data.image`.
    pub(crate) fn value(&self, target: &str, path: &str) -> String {
        self.run(&["get", target, &format!("--output=jsonpath={{{path}}}")])
    }

    /// The same where there may be no such object.
    pub(crate) fn query(&self, target: &str, path: &str) -> Result<String, String> {
        let output = self.kubectl(&["get", target, &format!("--output=jsonpath={{{path}}}")]);
        let text = if output.status.success() { output.stdout } else { output.stderr };
        let text = String::from_utf8_lossy(&text).into_owned();
        if output.status.success() { Ok(text) } else { Err(text) }
    }

    pub(crate) async fn wait_until_gone(&self, target: &str) {
        let gone = || async {
            let output = self.kubectl(&["get", target]);
            String::from_utf8_lossy(&output.stderr).contains("NotFound")
        };
        eventually(&format!("{target} is gone"), SOON, gone).await;
    }

    fn kubectl(&self, arguments: &[&str]) -> Output {
        // The last flag of a kind counts: arguments may name another namespace.
        let arguments = [&["--namespace", &self.namespace], arguments].concat();
        self.control_plane.kubectl(Identity::Alice, &arguments)
    }

    async fn live(&self, document: &Value) -> Result<Value, kube::Error> {
        let client = self.control_plane.client(Identity::Admin).await;
        let declared: DynamicObject = serde_json::from_value(document.clone()).unwrap();
        let gvk = GroupVersionKind::try_from(declared.types.as_ref().unwrap()).unwrap();
        let (resource, capabilities) = pinned_kind(&client, &gvk).await?;
        let namespace = declared.metadata.namespace.as_ref().unwrap_or(&self.namespace);
        let objects: Api<DynamicObject> = match capabilities.scope {
            Scope::Cluster => Api::all_with(client, &resource),
            Scope::Namespaced => Api::namespaced_with(client, namespace, &resource),
        };
        let live = objects.get(declared.metadata.name.as_ref().unwrap()).await?;
        Ok(serde_json::to_value(live).unwrap())
    }
}

/// The operation failed, for the reason given and not because of the guard.
pub(crate) fn assert_failed(answer: Result<Value, String>, because: &str) {
    let error = answer.expect_err("Helm's operation succeeds");
    assert!(!error.contains("denied the request"), "the guard refused Helm: {error}");
    assert!(error.contains(because), "Helm failed for another reason: {error}");
}

fn assert_done(operation: &str, answer: Result<Value, String>) {
    answer.unwrap_or_else(|error| panic!("helm {operation}: {error}"));
}

/// Whether the guard refused it; what happened instead if not.
fn denied(output: &Output) -> Result<(), String> {
    let error = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && error.contains("kubemoor.dev\" denied the request") {
        return Ok(());
    }
    Err(format!("{}{error}", String::from_utf8_lossy(&output.stdout)))
}

/// Whether `live` has everything that `declared` says, literally.
fn contained(declared: &Value, live: &Value, path: &str) -> Result<(), String> {
    match (declared, live) {
        (Value::Object(declared), Value::Object(live)) => declared.iter().try_for_each(|(key, value)| {
            contained(value, live.get(key).unwrap_or(&Value::Null), &format!("{path}/{key}"))
        }),
        (Value::Array(declared), Value::Array(live)) if declared.len() == live.len() => {
            let mut pairs = declared.iter().zip(live).enumerate();
            pairs.try_for_each(|(index, (declared, live))| {
                contained(declared, live, &format!("{path}/{index}"))
            })
        }
        _ if declared == live => Ok(()),
        _ => Err(format!("{path} is {live}, declared is {declared}")),
    }
}
