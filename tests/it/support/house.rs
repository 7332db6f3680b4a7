//! The chart's guard on a node that forwards its ports: for one test alone, or for several in turn.
//!
//! Entry points: [`House::new`], [`House::shared`]. Invariant: whoever has the shared one leaves it as it was; the test
//! after one that failed gets a new one.

use std::ops::Deref;
use std::thread;

use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

use super::cluster_page::PAGE_HOST;
use super::control_plane::ControlPlane;
use super::installed::{HOME, Installed, Pod};
use super::kubelet::Kubelet;
use super::own_control_plane::OwnControlPlane;
use super::wait::{SOON, eventually};

/// The chart's guard, on a node that forwards its ports.
pub(crate) struct House<'a> {
    pub(crate) control_plane: &'a ControlPlane,
    pub(crate) chart: Installed<'a>,
    pub(crate) kubelet: Kubelet,
    pub(crate) pod: Pod,
    /// What the API server calls the pod.
    pub(crate) name: String,
}

/// A test's turn with the house that several use.
pub(crate) struct SharedHouse(MutexGuard<'static, Option<House<'static>>>);

static SHARED: Mutex<Option<House<'static>>> = Mutex::const_new(None);

impl<'a> House<'a> {
    /// Installs the chart with one replica, and starts that.
    pub(crate) async fn new(control_plane: &'a ControlPlane) -> Self {
        Self::with(control_plane, json!({"replicas": 1})).await
    }

    async fn with(control_plane: &'a ControlPlane, values: Value) -> Self {
        let chart = Installed::new(control_plane).await;
        chart.install(values).await.unwrap();
        let pod = chart.start(1).await.pop().unwrap();
        let kubelet = Kubelet::start(control_plane).await;
        let name = kubelet.hold(&pod).await;
        chart.announced_authority().await;
        Self { control_plane, chart, kubelet, pod, name }
    }

    /// The same for another test: connections belong to the runtime of the test that opened them.
    async fn renewed(self) -> Self {
        let chart = Installed::new(self.control_plane).await;
        let kubelet = self.kubelet.renewed(self.control_plane).await;
        Self { chart, kubelet, ..self }
    }
}

impl House<'static> {
    /// Waits for a turn with the one that several tests use. Its guard refuses edits, and the chart's page is enabled.
    /// Tests give rights to groups and users of their own.
    pub(crate) async fn shared() -> SharedHouse {
        let mut turn = SHARED.lock().await;
        let house = match turn.take() {
            Some(house) => house.renewed().await,
            None => {
                let control_plane: &OwnControlPlane = Box::leak(Box::new(ControlPlane::start()));
                let ui = json!({"enabled": true, "host": PAGE_HOST, "ingress": {"enabled": true}});
                let values = json!({"replicas": 1, "edits": "Deny", "cluster": {"name": "west"}, "ui": ui});
                Self::with(control_plane, values).await
            }
        };
        *turn = Some(house);
        SharedHouse(turn)
    }
}

impl Installed<'_> {
    /// The authority that the guard's Lease names.
    pub(crate) async fn announced_authority(&self) -> String {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases/kubemoor");
        eventually("the Lease tells what vouches for the guard", SOON, || async {
            let lease = self.admin.get(&path).await.done()?;
            let pem = lease["metadata"]["annotations"]["kubemoor.dev/ca-bundle"].as_str().map(str::to_owned);
            pem.ok_or_else(|| lease.to_string())
        })
        .await
    }
}

impl Deref for SharedHouse {
    type Target = House<'static>;

    fn deref(&self) -> &House<'static> {
        self.0.as_ref().expect("it is taken only by a test that has failed")
    }
}

impl Drop for SharedHouse {
    fn drop(&mut self) {
        if thread::panicking() {
            *self.0 = None;
        }
    }
}
