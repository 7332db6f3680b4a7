//! The pods of a guard to which connections are forwarded.
//!
//! Entry point: [`choose`]. Invariant: only pods that are ready are chosen, the leader's before any other. Pods that share
//! a ledger are asked once.

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::api::{Api, ListParams};
use tokio::time::timeout;

use super::super::call::CallError;
use super::super::lease::Place;
use super::super::lease::leader_info::LeaderInfo;
use super::{ForwardError, PATIENCE};
use kubemoor_runtime::config::LedgerUrl;

/// The label selector of the guard's pods.
const SELECTOR: &str = "app.kubernetes.io/name=kubemoor";

/// The name of the port of health, metrics and the ledger.
const PORT: &str = "admin";

/// A pod that can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) pod: String,
    pub(super) port: u16,
    /// Whether its ledger is a file, which no other pod has.
    own_ledger: bool,
}

/// The pods that are ready, each with a ledger of its own: the leader's first, the others by name.
pub(super) async fn choose(
    client: &kube::Client,
    place: &Place,
    info: &LeaderInfo,
) -> Result<Vec<Target>, ForwardError> {
    let namespace = &place.namespace;
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let selected = ListParams::default().labels(SELECTOR);
    let listed = timeout(PATIENCE, pods.list(&selected)).await;
    let listed = listed.map_err(|_| CallError::Late { within: PATIENCE });
    let listed = listed.and_then(|listed| listed.map_err(CallError::from));
    let listed = listed.map_err(|error| ForwardError::ListPods(namespace.clone(), error))?;
    match preferred(&listed.items, &info.holder) {
        none if none.is_empty() => Err(ForwardError::ChoosePod(namespace.clone())),
        targets => Ok(targets),
    }
}

/// Of these pods those to ask, where `holder` leads.
pub(super) fn preferred(pods: &[Pod], holder: &str) -> Vec<Target> {
    let mut targets: Vec<_> = pods.iter().filter(|pod| is_ready(pod)).filter_map(target).collect();
    targets.sort_by_key(|target| {
        // A holder is named for its pod, and for its process.
        let leads = holder.strip_prefix(target.pod.as_str()).is_some_and(|rest| rest.starts_with('_'));
        (!leads, target.pod.clone())
    });
    let mut shared = false;
    targets.retain(|target| target.own_ledger || !std::mem::replace(&mut shared, true));
    targets
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
    let guard = containers.iter().find(|container| port(container).is_some())?;
    Some(Target { pod: pod.metadata.name.clone()?, port: port(guard)?, own_ledger: has_own_ledger(guard) })
}

/// Whether a container's flags and variables name a file for its ledger, or nothing, which is a file too. A database
/// whose URL a Secret holds is shared.
fn has_own_ledger(container: &Container) -> bool {
    let arguments = container.args.as_deref().unwrap_or_default();
    let mut following = arguments.iter().zip(arguments.iter().skip(1));
    let given = arguments.iter().find_map(|argument| argument.strip_prefix("--ledger="));
    let given =
        given.or_else(|| following.find_map(|(flag, value)| (flag == "--ledger").then_some(value.as_str())));
    let variables = container.env.as_deref().unwrap_or_default();
    let variable = variables.iter().find(|variable| variable.name == "KUBEMOOR_LEDGER");
    match (given, variable) {
        (Some(url), _) => is_file(url),
        (None, Some(variable)) => variable.value.as_deref().is_some_and(is_file),
        (None, None) => true,
    }
}

fn is_file(url: &str) -> bool {
    matches!(url.parse(), Ok(LedgerUrl::Sqlite(_)))
}
