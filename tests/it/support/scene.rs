//! A release in a namespace of its own, which Helm installed, with who changes it by hand and what guards it.
//!
//! Entry points: [`Scene::shared`], [`Scene::policed`], [`Scene::on_cluster`], [`Scene::own`] and [`Scene::on`] choose the
//! control plane; [`SceneBuilder::install`] makes the scene. Invariant: what a scene writes concerns its own namespace,
//! unless its control plane is its own.

use std::ops::{Deref, DerefMut};
use std::process::Output;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde::Serialize;
use serde_json::{Value, json};

use super::caller::{Answer, Caller};
use super::cluster::{Cluster, POLICED};
use super::control_plane::ControlPlane;
use super::guard::{Guard, SharedGuard};
use super::helm::{Chart, Helm};
use super::identity::Identity;
use super::moor::{Ran, moor};
use super::own_control_plane::OwnControlPlane;
use super::wait::{SOON, eventually};

/// The release's name.
pub(crate) const RELEASE: &str = "shop";

/// The address of the policies.
pub(crate) const DRIFT_POLICIES: &str = "/apis/kubemoor.dev/v1alpha1/driftpolicies";

/// What shows that the guard has repaired: [`Scene::wait_for_pass`].
const MARKER: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: marker}
data: {a: b}
";

/// A release, who changes it, and who guards it.
pub(crate) struct Scene {
    pub(crate) namespace: String,
    pub(crate) helm: Helm,
    pub(crate) chart: Chart,
    pub(crate) alice: Caller,
    pub(crate) admin: Caller,
    /// A guard of the scene alone is the test's: [`Scene::start_guard`].
    pub(super) guard: Option<SharedGuard>,
    pub(crate) control_plane: SceneControlPlane,
}

/// Where a scene is. Only one that no other scene uses may be stopped, frozen or restored.
#[derive(Clone)]
pub(crate) enum SceneControlPlane {
    Own(Arc<OwnControlPlane>),
    Shared(&'static ControlPlane),
}

/// How a scene is made.
pub(crate) struct SceneBuilder {
    place: ScenePlace,
    marked: bool,
    options: Value,
}

/// Where a scene will be.
enum ScenePlace {
    Cluster(&'static Cluster),
    Unguarded(SceneControlPlane),
}

/// A DriftPolicy.
pub(crate) fn drift_policy(name: &str, spec: impl Serialize) -> Value {
    json!({"apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftPolicy", "metadata": {"name": name}, "spec": spec})
}

impl SceneBuilder {
    fn at(place: ScenePlace) -> Self {
        Self { place, marked: false, options: json!({}) }
    }

    /// Options of Helm's for the installation.
    pub(crate) fn options(self, options: Value) -> Self {
        Self { options, ..self }
    }

    /// Installs the chart, or one of these templates, as the release [`RELEASE`].
    pub(crate) async fn install(mut self, prefix: &str, chart: impl Into<Chart>) -> Scene {
        let options = self.options.take();
        let scene = self.prepare(prefix, chart).await;
        scene.install(options).await.unwrap();
        scene
    }

    /// Makes the scene without the release.
    pub(crate) async fn prepare(self, prefix: &str, chart: impl Into<Chart>) -> Scene {
        let (control_plane, guard) = match self.place {
            ScenePlace::Cluster(cluster) => {
                let control_plane = SceneControlPlane::Shared(cluster.control_plane());
                (control_plane, Some(SharedGuard(cluster.guard().await)))
            }
            ScenePlace::Unguarded(control_plane) => (control_plane, None),
        };
        let chart = chart.into();
        let chart = if self.marked { chart.template("marker.yaml", MARKER) } else { chart };
        let namespace = control_plane.namespace(prefix).await;
        let helm = Helm::start(&control_plane, Identity::Deployer);
        let alice = Caller::new(&control_plane, Identity::Alice).await;
        let admin = Caller::new(&control_plane, Identity::Admin).await;
        Scene { namespace, helm, chart, alice, admin, guard, control_plane }
    }
}

impl Scene {
    /// On the control plane that most tests share, with its guard.
    pub(crate) fn shared() -> SceneBuilder {
        Self::on_cluster(&POLICED)
    }

    /// The same for a release that has a ConfigMap `marker` besides: [`Scene::wait_for_pass`].
    pub(crate) fn policed() -> SceneBuilder {
        SceneBuilder { marked: true, ..Self::shared() }
    }

    /// On a control plane that several scenes share, with its guard.
    pub(crate) fn on_cluster(cluster: &'static Cluster) -> SceneBuilder {
        SceneBuilder::at(ScenePlace::Cluster(cluster))
    }

    /// On a control plane of its own with Kubemoor's definitions, and no guard.
    pub(crate) fn own() -> SceneBuilder {
        Self::on(ControlPlane::start_defined())
    }

    /// On this control plane as it is, and no guard.
    pub(crate) fn on(control_plane: impl Into<SceneControlPlane>) -> SceneBuilder {
        SceneBuilder::at(ScenePlace::Unguarded(control_plane.into()))
    }

    /// Installs the same chart in another namespace of the same control plane.
    pub(crate) async fn install_beside(&self, prefix: &str) -> Self {
        Self::on(self.control_plane.clone()).install(prefix, self.chart.clone()).await
    }

    /// Starts a guard that is the test's own.
    pub(crate) async fn start_guard(&self, flags: &[&str]) -> Guard {
        Guard::start(&self.control_plane, flags).await
    }

    /// The guard that the scene shares with others.
    ///
    /// # Panics
    /// When the scene has none.
    pub(crate) fn guard(&self) -> &Guard {
        self.guard.as_deref().expect("a scene on a control plane of its own has no guard")
    }

    /// Has Helm install the release.
    pub(crate) async fn install(&self, options: Value) -> Result<Value, String> {
        self.helm.install(&self.namespace, RELEASE, &self.chart, options).await
    }

    /// Has Helm make the next revision from the same chart.
    pub(crate) async fn upgrade(&self, options: Value) -> Result<Value, String> {
        self.helm.upgrade(&self.namespace, RELEASE, &self.chart, options).await
    }

    /// Has Helm make the next revision from another chart or other templates.
    pub(crate) async fn upgrade_to(&self, chart: impl Into<Chart>, options: Value) -> Result<Value, String> {
        self.helm.upgrade(&self.namespace, RELEASE, &chart.into(), options).await
    }

    /// The address of an object in the release's namespace: `at("apis/apps/v1", "deployments/web")`.
    pub(crate) fn at(&self, api: &str, object: &str) -> String {
        format!("/{api}/namespaces/{}/{object}", self.namespace)
    }

    /// The address of an object of the core group.
    pub(crate) fn core(&self, object: &str) -> String {
        self.at("api/v1", object)
    }

    pub(crate) fn config_map(&self, name: &str) -> String {
        self.core(&format!("configmaps/{name}"))
    }

    pub(crate) fn deployment(&self, name: &str) -> String {
        self.at("apis/apps/v1", &format!("deployments/{name}"))
    }

    /// The address of the GuardedRelease of a release.
    pub(crate) fn guarded_release(&self, release: &str) -> String {
        self.at("apis/kubemoor.dev/v1alpha1", &format!("guardedreleases/{release}"))
    }

    /// Changes an object by hand as kubectl would.
    pub(crate) async fn edit(&self, path: &str, patch: Value) {
        self.alice.merge(&format!("{path}?fieldManager=kubectl-edit"), &patch).await.done().unwrap();
    }

    /// Changes the data of a ConfigMap by hand.
    pub(crate) async fn data(&self, name: &str, data: Value) -> Answer {
        self.alice.merge(&self.config_map(name), &json!({"data": data})).await
    }

    /// The same as a dry run.
    pub(crate) async fn try_data(&self, name: &str, data: Value) -> Answer {
        self.alice.merge(&format!("{}?dryRun=All", self.config_map(name)), &json!({"data": data})).await
    }

    /// Makes a HorizontalPodAutoscaler of a Deployment with this range; gives its address.
    pub(crate) async fn autoscale(&self, name: &str, deployment: &str, range: (u32, u32)) -> String {
        let autoscalers = self.at("apis/autoscaling/v1", "horizontalpodautoscalers?fieldManager=oncall");
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment});
        let autoscaler = json!({
            "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name},
            "spec": {"scaleTargetRef": target, "minReplicas": range.0, "maxReplicas": range.1},
        });
        self.alice.post(&autoscalers, &autoscaler).await.done().unwrap();
        self.at("apis/autoscaling/v1", &format!("horizontalpodautoscalers/{name}"))
    }

    /// The Scale of a workload with so many replicas.
    pub(crate) fn scale(&self, workload: &str, replicas: u32) -> Value {
        json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": {"name": workload, "namespace": self.namespace}, "spec": {"replicas": replicas},
        })
    }

    /// Alice's way to the Secrets of the namespace.
    pub(crate) async fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.control_plane.client(Identity::Alice).await, &self.namespace)
    }

    /// Makes a policy for this release, and waits until the guard judges by it.
    pub(crate) async fn policy(&self, name: &str, mut spec: Value) {
        spec["releases"] = json!({"namespaces": [self.namespace]});
        self.policy_as_is(name, spec).await;
    }

    /// The same for releases that the policy itself names.
    pub(crate) async fn policy_as_is(&self, name: &str, spec: Value) {
        let name = format!("{}-{name}", self.namespace);
        self.post_policy(&name, &spec).await;
        let path = format!("{DRIFT_POLICIES}/{name}");
        eventually("the policy is in force", SOON, || async {
            let status = self.admin.get(&path).await.done()?["status"].take();
            if status["conditions"][0]["status"] == "True" { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
    }

    /// Makes a policy for all releases of the control plane, whether or not a guard runs yet.
    pub(crate) async fn policy_for_all(&self, spec: Value) {
        self.post_policy("all", &spec).await;
    }

    async fn post_policy(&self, name: &str, spec: &Value) {
        let policy = drift_policy(name, spec);
        eventually("the policy is made", SOON, || async {
            self.admin.post(DRIFT_POLICIES, &policy).await.done()
        })
        .await;
    }

    /// The object at an address.
    pub(crate) async fn get(&self, path: &str) -> Value {
        self.alice.get(path).await.done().unwrap()
    }

    /// Runs kubectl in the namespace as Alice.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Output {
        self.control_plane.kubectl(Identity::Alice, &[arguments, &["-n", &self.namespace]].concat())
    }

    /// Runs kubectl in the namespace as somebody with every right: what it says if it fails.
    pub(crate) fn kubectl_as(&self, user: &str, group: &str, arguments: &[&str]) -> Result<(), String> {
        let (user, group) = (format!("--as={user}"), format!("--as-group={group}"));
        let who = ["-n", &self.namespace, &user, &group, "--as-group=system:masters"];
        let output = self.control_plane.kubectl(Identity::Admin, &[arguments, &who].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(error) }
    }

    /// Runs `kubemoor` as Alice in the namespace.
    pub(crate) fn moor(&self, arguments: &[&str]) -> Ran {
        moor(&self.control_plane, Identity::Alice, &[arguments, &["-n", self.namespace.as_str()]].concat())
    }

    /// Gives an order about the release: `reconcile`, `suspend` or `resume`.
    pub(crate) fn order(&self, command: &str) {
        let ran = self.moor(&[command, RELEASE]);
        assert_eq!(ran.code, 0, "{ran:?}");
    }
}

impl<T: AsRef<str> + ?Sized> From<&T> for Chart {
    /// A chart of one file of templates.
    fn from(templates: &T) -> Self {
        Self::new(RELEASE).template("all.yaml", templates.as_ref())
    }
}

impl From<OwnControlPlane> for SceneControlPlane {
    fn from(control_plane: OwnControlPlane) -> Self {
        Self::Own(Arc::new(control_plane))
    }
}

impl From<&'static ControlPlane> for SceneControlPlane {
    fn from(control_plane: &'static ControlPlane) -> Self {
        Self::Shared(control_plane)
    }
}

impl Deref for SceneControlPlane {
    type Target = ControlPlane;

    fn deref(&self) -> &ControlPlane {
        match self {
            Self::Own(control_plane) => control_plane,
            Self::Shared(control_plane) => control_plane,
        }
    }
}

impl DerefMut for SceneControlPlane {
    fn deref_mut(&mut self) -> &mut ControlPlane {
        match self {
            Self::Own(control_plane) => {
                Arc::get_mut(control_plane).expect("another scene uses this control plane")
            }
            Self::Shared(_) => panic!("other tests use this control plane"),
        }
    }
}
