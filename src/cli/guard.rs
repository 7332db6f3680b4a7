//! The guard of a cluster: where it runs, and how a command reaches it with nothing but a kubeconfig.
//!
//! Entry points: [`GuardArgs`] to flatten into a command's flags, [`GuardArgs::connect`] to ask the guard,
//! [`GuardArgs::info`] for what its Lease tells. Invariant: an error is one sentence that says what failed and what to do.

use std::path::Path;

use anyhow::anyhow;

use super::connect::{self, parse_namespace};
use crate::client::call::CallError;
use crate::client::connection::{Access, Connection};
use crate::client::forward::{self, ForwardError};
use crate::client::lease::Place;
use crate::client::lease::leader_info::{self, LeaderInfo};

/// What the chart calls the guard's Service, and so the guard its Lease.
const NAME: &str = "kubemoor";

/// Where the guard runs.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Guard")]
pub(super) struct GuardArgs {
    /// The namespace that the guard runs in
    #[arg(long, value_name = "NAMESPACE", default_value = "kubemoor-system", value_parser = parse_namespace)]
    guard_namespace: String,
}

impl GuardArgs {
    /// A connection to a pod of the guard through the API server, and how the guard is called.
    pub(super) async fn connect(
        &self,
        connection: &Connection,
        access: &Access,
        authority: Option<&Path>,
    ) -> anyhow::Result<(kube::Client, String)> {
        let place = self.place();
        let client = forward::connect(connection, &place, authority, access).await;
        let client = client.map_err(|error| unreached(connection, error))?;
        Ok((client, format!("the guard in namespace {}", place.namespace)))
    }

    /// What the guard tells everybody.
    pub(super) async fn info(&self, connection: &Connection) -> anyhow::Result<LeaderInfo> {
        let place = self.place();
        match leader_info::read(&connection.client, &place).await {
            Ok(Some(info)) => Ok(info),
            Ok(None) => Err(absent(&place, "")),
            Err(error) => Err(unread(connection, &place, error)),
        }
    }

    /// The namespace that the guard runs in.
    pub(super) fn namespace(&self) -> &str {
        &self.guard_namespace
    }

    fn place(&self) -> Place {
        Place { namespace: self.guard_namespace.clone(), name: NAME.to_owned() }
    }
}

/// The sentence for a guard that is not there; `otherwise` names further ways.
fn absent(place: &Place, otherwise: &str) -> anyhow::Error {
    let Place { namespace, name } = place;
    anyhow!(
        "there is no guard in namespace {namespace}, which has no Lease {name}: name the guard's namespace with \
         --guard-namespace{otherwise}"
    )
}

/// The sentence for a Lease that cannot be read.
fn unread(connection: &Connection, place: &Place, error: CallError) -> anyhow::Error {
    let is_forbidden = error.is_forbidden();
    let doing = format!("read the Lease {} in namespace {}", place.name, place.namespace);
    let sentence = connect::failed(connection, &doing, error);
    match is_forbidden {
        // What the API server says as well where there is no such namespace.
        true => anyhow!("{sentence:#}, or name another namespace with --guard-namespace"),
        false => sentence,
    }
}

/// The sentence for a guard that cannot be asked.
fn unreached(connection: &Connection, error: ForwardError) -> anyhow::Error {
    match error {
        ForwardError::Connect(error) => error.into(),
        ForwardError::FindGuard(place) => {
            absent(&place, ", its address with --server, or a database with --ledger")
        }
        ForwardError::ReadLease { place, error } => unread(connection, &place, error),
        ForwardError::ListPods(namespace, error) => {
            connect::failed(connection, &format!("list the guard's pods in namespace {namespace}"), error)
        }
        ForwardError::Forward { namespace, pod, error } => connect::failed(
            connection,
            &format!("forward a port of pod {pod} in namespace {namespace}"),
            error,
        ),
        ForwardError::ChoosePod(ref namespace) => {
            anyhow!("{error}: `kubectl -n {namespace} get pods` shows them; try again once one is ready")
        }
        ForwardError::ReadAuthority(_) | ForwardError::Trust { .. } => {
            anyhow!("{error}: name the CA of the guard's certificate with --certificate-authority")
        }
        ForwardError::Answer { .. } => anyhow!("{error}: try again, or look at the guard's log"),
    }
}
