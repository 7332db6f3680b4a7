//! A release where policies and allowances are defined, guarded by everything there is: refusals and repairs.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::caller::Caller;
use super::control_plane::ControlPlane;
use super::guard::Guard;
use super::helm::{Chart, Helm};
use super::identity::Identity;
use super::moor::{Ran, moor};
use super::shop::{RELEASE, SOON, wait_until_guarded};
use super::wait::eventually;

/// What shows that the loop has been at work: [`Policed::loop_has_passed`].
const MARKER: &str = "
---
apiVersion: v1
kind: ConfigMap
metadata: {name: marker}
data: {a: b}
";

/// The release, in a namespace of its own, on a control plane that such releases share. Policies made here are for it
/// alone.
pub(crate) struct Policed {
    pub(crate) namespace: String,
    pub(crate) helm: Helm,
    pub(crate) chart: Chart,
    pub(crate) alice: Caller,
    admin: Caller,
    guard: &'static Guard,
}

impl Policed {
    /// The control plane of all of them.
    pub(crate) fn control_plane() -> &'static ControlPlane {
        static OWN: OnceLock<ControlPlane> = OnceLock::new();
        OWN.get_or_init(ControlPlane::start)
    }

    /// Its guard: registered, `--edits Deny --drift Repair`.
    pub(crate) async fn guard() -> &'static Guard {
        static OWN: OnceCell<Guard> = OnceCell::const_new();
        OWN.get_or_init(|| async {
            Self::control_plane().define_policies();
            Guard::start(Self::control_plane(), &["--register", "--edits", "Deny", "--drift", "Repair"]).await
        })
        .await
    }

    /// Installs these templates.
    pub(crate) async fn install(prefix: &str, templates: &str) -> Self {
        let guard = Self::guard().await;
        let control_plane = Self::control_plane();
        let namespace = control_plane.namespace(prefix).await;
        let chart = Chart::new(RELEASE).template("all.yaml", &format!("{templates}{MARKER}"));
        let helm = Helm::start(control_plane, Identity::Deployer);
        helm.install(&namespace, RELEASE, &chart, json!({})).await.unwrap();
        let alice = Caller::new(control_plane, Identity::Alice).await;
        let admin = Caller::new(control_plane, Identity::Admin).await;
        Self { namespace, helm, chart, alice, admin, guard }
    }

    /// The address of an object in the release's namespace.
    pub(crate) fn at(&self, api: &str, object: &str) -> String {
        format!("/{api}/namespaces/{}/{object}", self.namespace)
    }

    /// Waits until the API server asks the guard about edits of this object.
    pub(crate) async fn wait_until_guarded(&self, path: &str) {
        wait_until_guarded(&self.alice, RELEASE, path).await;
    }

    /// Makes a policy for this release.
    pub(crate) async fn policy(&self, name: &str, mut spec: Value) {
        spec["releases"] = json!({"namespaces": [self.namespace]});
        let policy = json!({
            "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftPolicy",
            "metadata": {"name": format!("{}-{name}", self.namespace)}, "spec": spec,
        });
        let policies = "/apis/kubemoor.dev/v1alpha1/driftpolicies";
        eventually("the policy is made", SOON, || async { self.admin.post(policies, &policy).await.done() })
            .await;
        let path = format!("{policies}/{}-{name}", self.namespace);
        eventually("the policy is in force", SOON, || async {
            let status = self.admin.get(&path).await.done()?["status"].take();
            if status["conditions"][0]["status"] == "True" { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
    }

    /// Runs kubectl as somebody who may do everything: whether it succeeds, and what it says.
    pub(crate) fn kubectl(&self, user: &str, group: &str, arguments: &[&str]) -> Result<(), String> {
        let who = [format!("--as={user}"), "--as-group=system:masters".to_owned()];
        let mut all: Vec<&str> = arguments.to_vec();
        all.extend(["-n", self.namespace.as_str()]);
        all.extend(who.iter().map(String::as_str));
        let group = format!("--as-group={group}");
        all.push(&group);
        let output = Self::control_plane().kubectl(Identity::Admin, &all);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(said) }
    }

    /// Runs `kubemoor` as Alice in the release's namespace.
    pub(crate) fn moor(&self, arguments: &[&str]) -> Ran {
        moor(Self::control_plane(), Identity::Alice, &[arguments, &["-n", self.namespace.as_str()]].concat())
    }

    /// Waits until a value of an object is this.
    pub(crate) async fn wait_for_value(&self, path: &str, pointer: &str, wanted: &Value) {
        eventually(&format!("{pointer} of {path} is {wanted}"), SOON, || async {
            let object = self.alice.get(path).await.done()?;
            match object.pointer(pointer) {
                Some(value) if value == wanted => Ok(()),
                value => Err(format!("it is {value:?}\n{}", self.log())),
            }
        })
        .await;
    }

    /// Asserts that a value of an object is this.
    pub(crate) async fn assert_value(&self, path: &str, pointer: &str, wanted: &Value) {
        let object = self.alice.get(path).await.done().unwrap();
        assert_eq!(object.pointer(pointer), Some(wanted), "{pointer} of {path}\n{}", self.log());
    }

    /// Deletes an object in a way that the guard does not stand in: controllers may delete.
    pub(crate) async fn delete_unhindered(&self, path: &str) {
        let controller = Caller::new(Self::control_plane(), Identity::NamespaceController).await;
        controller.delete(path).await.done().unwrap();
    }

    /// Has the loop repair something of this release: whatever it wanted to do to what had drifted before, it has
    /// seen its chance.
    pub(crate) async fn wait_for_pass(&self) {
        let path = self.at("api/v1", "configmaps/marker");
        // What the guard never saw alive is not re-created.
        eventually("the guard watches what the marker is", SOON, || async {
            let is_listing = |event: &Value| {
                event["verb"] == "list"
                    && event["user"]["username"] == Identity::Guard.user()
                    && event["objectRef"]["resource"] == "configmaps"
                    && event["responseStatus"]["code"] == 200
            };
            Self::control_plane().audit_events().iter().any(is_listing)
        })
        .await;
        let uid = self.alice.get(&path).await.done().unwrap()["metadata"]["uid"].clone();
        self.delete_unhindered(&path).await;
        eventually("the marker is back", SOON, || async {
            let object = self.alice.get(&path).await.done()?;
            if object["metadata"]["uid"] == uid { Err(self.log()) } else { Ok(()) }
        })
        .await;
    }

    /// The rows of the ledger about this release, newest first.
    pub(crate) fn rows(&self, filter: &[&str]) -> Vec<Value> {
        let database = format!("--ledger=sqlite:{}", self.guard.ledger().display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubemoor"));
        command.args(["audit", &database, "--namespace", &self.namespace, "-o", "json"]).args(filter);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let lines = String::from_utf8(output.stdout).unwrap();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// What the guard said of this release.
    pub(crate) fn log(&self) -> String {
        self.said(&self.namespace)
    }

    /// What the guard said with these words.
    pub(crate) fn said(&self, words: &str) -> String {
        let log = self.guard.log();
        log.lines().filter(|line| line.contains(words)).collect::<Vec<_>>().join("\n")
    }
}

/// The spec of the policy in a file of `policies/`.
pub(crate) fn shipped(file: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies").join(file);
    let policy: Value = serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    policy["spec"].clone()
}
