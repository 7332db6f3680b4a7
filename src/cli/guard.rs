//! Where the guard of a cluster runs.
//!
//! Entry points: [`GuardArgs`] to flatten into a command's flags, [`GuardArgs::forwarded`] to ask the guard,
//! [`GuardArgs::info`] for what its Lease tells.

use std::path::PathBuf;

use super::connect::parse_namespace;
use kubemoor_cluster::client::connection::{Access, Connection};
use kubemoor_cluster::client::lease::Place;
use kubemoor_cluster::client::lease::leader_info::LeaderInfo;
use kubemoor_inspect::guard::{self, ForwardedGuard};

/// The name of the guard's Service in the chart, and so of the guard's Lease.
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
    /// The guard, which is asked through the API server.
    pub(super) fn forwarded(
        &self,
        connection: Connection,
        access: Access,
        authority: Option<PathBuf>,
    ) -> ForwardedGuard {
        ForwardedGuard::new(connection, self.place(), authority, access)
    }

    /// The data that the guard publishes on its Lease.
    pub(super) async fn info(&self, connection: &Connection) -> anyhow::Result<LeaderInfo> {
        Ok(guard::info(connection, &self.place()).await?)
    }

    /// The namespace that the guard runs in.
    pub(super) fn namespace(&self) -> &str {
        &self.guard_namespace
    }

    /// Its Lease.
    pub(super) fn place(&self) -> Place {
        Place { namespace: self.guard_namespace.clone(), name: NAME.to_owned() }
    }
}
