//! The guard at work, told with what the programs really print. `make demo` shows it.
#![expect(clippy::print_stderr, reason = "the demo is what it prints")]

use std::process::Output;
use std::time::{Duration, Instant};

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::json;

use crate::support::{Chart, ControlPlane, Guard, Helm, Identity, eventually};

const RELEASE: &str = "shop";
const PROMISE: Duration = Duration::from_secs(2);

const DEPLOYMENT: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: app
        image: {{ .Values.image }}
        ports: [{containerPort: 8080, protocol: TCP}]
";

const CONFIG_MAP: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
data:
  image: {{ .Values.image }}
";

/// A person at the keyboard.
struct Alice<'a> {
    control_plane: &'a ControlPlane,
    namespace: String,
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guard_at_work() {
    say("A Kubernetes control plane starts");
    // One of its own: no other test must lose its webhooks.
    let control_plane = &ControlPlane::start();
    let namespace = control_plane.namespace("demo").await;
    let alice = Alice { control_plane, namespace: namespace.clone() };
    let chart =
        Chart::new(RELEASE).template("deployment.yaml", DEPLOYMENT).template("settings.yaml", CONFIG_MAP);

    say("Helm installs a release");
    let helm = Helm::start(control_plane, Identity::Deployer);
    let values = |image: &str| json!({"values": {"image": image, "replicas": 2}});
    helm.install(&namespace, RELEASE, &chart, values("registry.example/shop:1")).await.unwrap();
    alice.show_kubectl(&["get", "deployments,configmaps", "--selector=app.kubernetes.io/managed-by=Helm"]);

    say("The guard starts: kubemoor serve --register --edits Deny --drift Repair");
    let flags = ["--register", "--edits", "Deny", "--drift", "Repair"];
    let guard = Guard::start(control_plane, &flags).await;
    alice.wait_until_guarded().await;

    say("Edits by hand of what the release declares are refused");
    alice.assert_refused(&["scale", "deployment/web", "--replicas=5"]);
    alice.assert_refused(&["set", "image", "deployment/web", "app=registry.example/shop:latest"]);
    let edit = r#"{"data": {"image": "registry.example/shop:mine"}}"#;
    alice.assert_refused(&["patch", "configmap/settings", "--type=merge", "--patch", edit]);
    alice.assert_refused(&["delete", "configmap/settings"]);

    say("What it does not declare is anybody's");
    alice.assert_allowed(&["annotate", "configmap/settings", "example.org/looked-at-by=alice"]);

    say("Helm passes");
    helm.upgrade(&namespace, RELEASE, &chart, values("registry.example/shop:2")).await.unwrap();
    alice.assert_allowed(&["get", "deployment/web", "--output=jsonpath={..image}{\"\\n\"}"]);

    say("The webhook is switched off and an object deleted behind the guard's back");
    let took = come_back_after_deletion(control_plane, &namespace).await;
    eprintln!("configmap/settings was back after {} ms", took.as_millis());
    assert!(
        took < PROMISE,
        "configmap/settings was back after {took:?}, not within {PROMISE:?}{}",
        guard.log()
    );

    say("And the next upgrade works");
    helm.upgrade(&namespace, RELEASE, &chart, values("registry.example/shop:3")).await.unwrap();
    alice.assert_allowed(&["get", "configmap/settings", "--output=jsonpath={.data.image}{\"\\n\"}"]);
}

impl Alice<'_> {
    fn kubectl(&self, arguments: &[&str]) -> Output {
        self.control_plane.kubectl(Identity::Alice, &[arguments, &["--namespace", &self.namespace]].concat())
    }

    fn show_kubectl(&self, arguments: &[&str]) -> Output {
        let output = self.kubectl(arguments);
        let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        eprintln!("alice$ kubectl {}\n{out}{error}", arguments.join(" "));
        output
    }

    fn assert_allowed(&self, arguments: &[&str]) {
        assert!(self.show_kubectl(arguments).status.success(), "kubectl {} is refused", arguments.join(" "));
    }

    fn assert_refused(&self, arguments: &[&str]) {
        let output = self.show_kubectl(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && error.contains("denied the request"),
            "the guard lets it through"
        );
    }

    /// The API server takes up a new webhook configuration a moment after it was written.
    async fn wait_until_guarded(&self) {
        let edit = ["set", "image", "deployment/web", "app=nobody", "--dry-run=server"];
        eventually("the API server asks the guard", Duration::from_secs(10), || async {
            !self.kubectl(&edit).status.success()
        })
        .await;
    }
}

/// Deletes the ConfigMap with no webhook in the way and returns how long it was gone.
async fn come_back_after_deletion(control_plane: &ControlPlane, namespace: &str) -> Duration {
    let client = control_plane.client(Identity::Admin).await;
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let settings: Api<ConfigMap> = Api::namespaced(client, namespace);
    let uid = settings.get("settings").await.unwrap().metadata.uid;
    // The guard puts its webhooks back at once, so both are tried until the deletion slips through.
    eventually("the object can be deleted without the webhook", Duration::from_secs(10), || async {
        webhooks.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
        settings.delete("settings", &DeleteParams::default()).await
    })
    .await;
    let deleted = Instant::now();
    eventually("the object is back", Duration::from_secs(10), || async {
        settings.get_opt("settings").await.unwrap().is_some_and(|object| object.metadata.uid != uid)
    })
    .await;
    deleted.elapsed()
}

fn say(text: &str) {
    eprintln!("\n== {text}\n");
}
