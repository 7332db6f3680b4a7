//! A guarded release in a namespace of its own, on the shared control plane.

use std::time::Duration;

use serde_json::{Value, json};

use super::caller::Caller;
use super::control_plane::ControlPlane;
use super::guard::{Guard, SharedGuard};
use super::helm::{Chart, Helm};
use super::identity::Identity;
use super::wait::eventually;

/// How long the control plane and the guard may take for what happens by itself.
pub(crate) const SOON: Duration = Duration::from_secs(40);

/// The release's name.
pub(crate) const RELEASE: &str = "shop";

/// The release, installed by Helm, and Alice, who would change it by hand.
pub(crate) struct Shop {
    pub(crate) namespace: String,
    pub(crate) helm: Helm,
    pub(crate) chart: Chart,
    pub(crate) alice: Caller,
    pub(crate) guard: SharedGuard,
}

impl Shop {
    /// Installs a chart that consists of these templates.
    pub(crate) async fn install(prefix: &str, templates: &str) -> Self {
        Self::install_with(prefix, templates, json!({})).await
    }

    /// The same with options for Helm.
    pub(crate) async fn install_with(prefix: &str, templates: &str, options: Value) -> Self {
        let guard = Guard::shared().await;
        let control_plane = ControlPlane::get();
        let namespace = control_plane.namespace(prefix).await;
        let chart = Chart::new(RELEASE).template("all.yaml", templates);
        let helm = Helm::start(control_plane, Identity::Deployer);
        helm.install(&namespace, RELEASE, &chart, options).await.unwrap();
        let alice = Caller::new(control_plane, Identity::Alice).await;
        Self { namespace, helm, chart, alice, guard }
    }

    /// The address of an object in the release's namespace: `at("apis/apps/v1", "deployments/web")`.
    pub(crate) fn at(&self, api: &str, object: &str) -> String {
        format!("/{api}/namespaces/{}/{object}", self.namespace)
    }

    /// The address of an object of the core group.
    pub(crate) fn core(&self, object: &str) -> String {
        self.at("api/v1", object)
    }

    /// Waits until the API server asks the guard about edits of this object: it takes up a changed webhook
    /// configuration a moment after it was written. Whoever calls this after an edit knows that the edit was judged.
    pub(crate) async fn wait_until_guarded(&self, path: &str) {
        wait_until_guarded(&self.alice, RELEASE, path).await;
    }

    pub(crate) async fn upgrade(&self, options: Value) -> Result<Value, String> {
        self.helm.upgrade(&self.namespace, RELEASE, &self.chart, options).await
    }
}

/// Waits until an edit of a declared field of the object at `path` is refused.
pub(crate) async fn wait_until_guarded(caller: &Caller, release: &str, path: &str) {
    let patch = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "alice"}}});
    let path = format!("{path}?dryRun=All");
    eventually(&format!("the API server asks the guard about {path}"), SOON, || async {
        caller.merge(&path, &patch).await.refused(release)
    })
    .await;
}

/// Waits until the guard has seen every object of a release as this revision declares it: it repairs towards nothing
/// else. The guard's definitions must be there.
pub(crate) async fn wait_until_confirmed(caller: &Caller, namespace: &str, release: &str, revision: u64) {
    let path = format!("/apis/kubemoor.dev/v1alpha1/namespaces/{namespace}/guardedreleases/{release}");
    eventually(&format!("the guard has seen revision {revision} of {release}"), SOON, || async {
        let status = caller.get(&path).await.done()?["status"].clone();
        let is = status["revision"] == revision && status["confirmed"] == status["declared"];
        if is { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}
