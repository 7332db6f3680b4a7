//! A release on a control plane of its own, where only the loop stands in the way: its guards are not registered.

use serde_json::{Value, json};

use crate::support::{Caller, Chart, ControlPlane, Guard, Helm, Identity, RELEASE, SOON, eventually, moor};

/// Two ConfigMaps.
pub(crate) const TWO: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {level: info}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: extra}
data: {color: blue}
";

/// A release `shop`, and those who meddle with it.
pub(crate) struct Scene {
    pub(crate) control_plane: ControlPlane,
    pub(crate) namespace: String,
    pub(crate) helm: Helm,
    pub(crate) alice: Caller,
}

impl Scene {
    /// Installs a chart of these templates, on a control plane that knows GuardedReleases.
    pub(crate) async fn install(prefix: &str, templates: &str) -> Self {
        let control_plane = ControlPlane::start();
        control_plane.define_policies();
        Self::install_on(control_plane, prefix, templates).await
    }

    /// The same on a control plane as it is.
    pub(crate) async fn install_on(control_plane: ControlPlane, prefix: &str, templates: &str) -> Self {
        Self::install_with(control_plane, prefix, templates, json!({})).await
    }

    /// The same with options for Helm.
    pub(crate) async fn install_with(
        control_plane: ControlPlane,
        prefix: &str,
        templates: &str,
        options: Value,
    ) -> Self {
        let namespace = control_plane.namespace(prefix).await;
        let chart = Chart::new(RELEASE).template("all.yaml", templates);
        let helm = Helm::start(&control_plane, Identity::Deployer);
        helm.install(&namespace, RELEASE, &chart, options).await.unwrap();
        let alice = Caller::new(&control_plane, Identity::Alice).await;
        Self { control_plane, namespace, helm, alice }
    }

    /// Starts a guard that repairs.
    pub(crate) async fn guard(&self) -> Guard {
        Guard::start(&self.control_plane, &["--drift", "Repair"]).await
    }

    /// Has Helm make the next revision from these templates.
    pub(crate) async fn upgrade(&self, templates: &str, options: Value) -> Result<Value, String> {
        let chart = Chart::new(RELEASE).template("all.yaml", templates);
        self.helm.upgrade(&self.namespace, RELEASE, &chart, options).await
    }

    /// The address of a Deployment.
    pub(crate) fn deployment(&self, name: &str) -> String {
        format!("/apis/apps/v1/namespaces/{}/deployments/{name}", self.namespace)
    }

    pub(crate) fn config_map(&self, name: &str) -> String {
        format!("/api/v1/namespaces/{}/configmaps/{name}", self.namespace)
    }

    /// Changes an object by hand as kubectl would.
    pub(crate) async fn edit(&self, path: &str, patch: Value) {
        self.alice.merge(&format!("{path}?fieldManager=kubectl-edit"), &patch).await.done().unwrap();
    }

    /// Waits until a value of an object is this one.
    pub(crate) async fn becomes(&self, path: &str, pointer: &str, wanted: Value) -> Value {
        eventually(&format!("{pointer} of {path} is {wanted}"), SOON, || async {
            let object = self.alice.get(path).await.done()?;
            match object.pointer(pointer) {
                Some(value) if *value == wanted => Ok(object),
                value => Err(format!("{value:?}")),
            }
        })
        .await
    }

    /// Waits until the status of the GuardedRelease is as it is `meant`.
    pub(crate) async fn status(&self, what: &str, meant: impl Fn(&Value) -> bool) -> Value {
        let path =
            format!("/apis/kubemoor.dev/v1alpha1/namespaces/{}/guardedreleases/{RELEASE}", self.namespace);
        eventually(&format!("the status says {what}"), SOON, || async {
            let status = self.alice.get(&path).await.done()?["status"].clone();
            if meant(&status) { Ok(status) } else { Err(status.to_string()) }
        })
        .await
    }

    /// The same for the reason of `Ready`.
    pub(crate) async fn stands(&self, reason: &str) -> Value {
        self.status(reason, |status| status["conditions"][0]["reason"] == reason).await
    }

    /// Waits until the status says that so many objects were seen as they are declared.
    pub(crate) async fn remembers(&self, objects: usize) {
        self.status("what was seen", |status| {
            status["confirmed"] == objects && status["seen"].as_array().is_some_and(|it| it.len() == objects)
        })
        .await;
    }

    /// Runs a command of kubemoor on the release, as an administrator.
    pub(crate) fn moor(&self, command: &str) {
        let ran = moor(&self.control_plane, Identity::Admin, &[command, RELEASE, "-n", &self.namespace]);
        assert_eq!(ran.code, 0, "{ran:?}");
    }

    /// Sets a DriftPolicy for all releases.
    pub(crate) async fn policy(&self, spec: Value) {
        let policy = json!({
            "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftPolicy", "metadata": {"name": "all"}, "spec": spec,
        });
        eventually("the policy is taken", SOON, || async {
            self.alice.post("/apis/kubemoor.dev/v1alpha1/driftpolicies", &policy).await.done()
        })
        .await;
    }

    /// How often the guard has asked to write an object of a resource. Dry runs write nothing.
    pub(crate) fn writes(&self, resource: &str) -> usize {
        self.answers(resource).len()
    }

    /// Waits until the audit log, which comes after the answers, has so many to the guard's writes of objects of a
    /// resource.
    pub(crate) async fn are_answered(&self, resource: &str, writes: usize) -> Vec<u64> {
        eventually(&format!("{writes} writes are answered"), SOON, || async {
            let answers = self.answers(resource);
            if answers.len() >= writes { Ok(answers) } else { Err(format!("{answers:?}")) }
        })
        .await
    }

    /// What the API server has answered to them so far.
    pub(crate) fn answers(&self, resource: &str) -> Vec<u64> {
        let is_write = |event: &&Value| {
            let verb = event["verb"].as_str().unwrap_or_default();
            event["user"]["username"] == Identity::Guard.user()
                && event["objectRef"]["resource"] == resource
                && !["get", "list", "watch"].contains(&verb)
                && !event["requestURI"].as_str().is_some_and(|uri| uri.contains("dryRun=All"))
        };
        let events = self.control_plane.audit_events();
        events
            .iter()
            .filter(is_write)
            .map(|event| event["responseStatus"]["code"].as_u64().unwrap())
            .collect()
    }
}

/// Waits until a guard's log says this.
pub(crate) async fn said(guard: &Guard, words: &str) {
    eventually(&format!("the guard says {words:?}"), SOON, || async {
        let log = guard.log();
        if log.contains(words) { Ok(()) } else { Err(log) }
    })
    .await;
}
