//! The pod of a guard to which a connection is forwarded.
//!
//! Entry point: [`choose`]. Invariant: only a pod that is ready is chosen, the leader's before any other.

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::api::{Api, ListParams};
use tokio::time::timeout;

use super::super::call::CallError;
use super::super::lease::Place;
use super::super::lease::leader_info::LeaderInfo;
use super::{ForwardError, PATIENCE};

/// The label selector of the guard's pods.
const SELECTOR: &str = "app.kubernetes.io/name=kubemoor";

/// The name of the port of health, metrics and the ledger.
const PORT: &str = "admin";

/// A pod that can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) pod: String,
    pub(super) port: u16,
}

/// A pod that is ready: the leader's, else the first by name.
pub(super) async fn choose(
    client: &kube::Client,
    place: &Place,
    info: &LeaderInfo,
) -> Result<Target, ForwardError> {
    let namespace = &place.namespace;
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let selected = ListParams::default().labels(SELECTOR);
    let listed = timeout(PATIENCE, pods.list(&selected)).await;
    let listed = listed.map_err(|_| CallError::Late { within: PATIENCE });
    let listed = listed.and_then(|listed| listed.map_err(CallError::from));
    let listed = listed.map_err(|error| ForwardError::ListPods(namespace.clone(), error))?;
    preferred(&listed.items, &info.holder).ok_or_else(|| ForwardError::ChoosePod(namespace.clone()))
}

/// Of these pods the one to ask, where `holder` leads.
pub(super) fn preferred(pods: &[Pod], holder: &str) -> Option<Target> {
    let targets = pods.iter().filter(|pod| is_ready(pod)).filter_map(target);
    targets.min_by_key(|target| {
        // A holder is named for its pod, and for its process.
        let leads = holder.strip_prefix(target.pod.as_str()).is_some_and(|rest| rest.starts_with('_'));
        (!leads, target.pod.clone())
    })
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().filter_map(|status| status.conditions.as_deref()).flatten();
    pod.metadata.deletion_timestamp.is_none()
        && conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn target(pod: &Pod) -> Option<Target> {
    let containers = &pod.spec.as_ref()?.containers;
    let port = |container: &Container| {
        let ports = container.ports.as_deref().unwrap_or_default();
        let port = ports.iter().find(|port| port.name.as_deref() == Some(PORT))?;
        u16::try_from(port.container_port).ok()
    };
    Some(Target { pod: pod.metadata.name.clone()?, port: containers.iter().find_map(port)? })
}
