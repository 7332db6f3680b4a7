//! `kubemoor reconcile`, `suspend` and `resume`: what a person says to the loop
//! about one release.
//!
//! Entry points: [`reconcile`], [`suspend`], [`resume`]. Invariant: everything
//! goes through the GuardedRelease, so that the API server says who may, and
//! keeps who did. Nothing is repaired here.

use std::time::Duration;

use anyhow::anyhow;
use jiff::Timestamp;

use super::connect::{self, ClusterArgs, NamespaceArgs, failed, parse_release, spoken};
use super::{Outcome, output};
use crate::cluster::guarded::{self, Setting};
use crate::model::ReleaseId;

/// How long the API server has to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The flags of each of these commands.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The release
    #[arg(value_name = "RELEASE", value_parser = parse_release)]
    release: String,

    #[command(flatten)]
    namespace: NamespaceArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Asks for a repair now.
pub(super) fn reconcile(args: Args) -> anyhow::Result<Outcome> {
    let release = set(args, Setting::Reconcile(Timestamp::now().to_string()), "have the release reconciled")?;
    output::write(&format!(
        "release {} is being reconciled: `kubemoor get releases -n {}` shows how it stands\n",
        spoken(&release),
        release.namespace
    ))
}

/// Has the loop leave a release alone.
pub(super) fn suspend(args: Args) -> anyhow::Result<Outcome> {
    let release = set(args, Setting::Suspend(true), "suspend the release")?;
    output::write(&format!(
        "release {} is suspended: nothing is repaired; edits are judged as before\n",
        spoken(&release)
    ))
}

/// Has the loop go on.
pub(super) fn resume(args: Args) -> anyhow::Result<Outcome> {
    let release = set(args, Setting::Suspend(false), "resume the release")?;
    output::write(&format!("release {} is resumed\n", spoken(&release)))
}

fn set(args: Args, setting: Setting, doing: &str) -> anyhow::Result<ReleaseId> {
    let Args { release, namespace, cluster } = args;
    connect::run(async move {
        let connection = cluster.connect().await?;
        let release = ReleaseId { namespace: namespace.or_default(&connection), name: release };
        match guarded::set(&connection.client, &release, &setting, PATIENCE).await {
            Ok(()) => Ok(release),
            Err(error) if error.is_not_found() => Err(anyhow!(
                "there is no GuardedRelease {}: `kubemoor get releases -n {}` says why",
                spoken(&release),
                release.namespace
            )),
            Err(error) => Err(failed(&connection, doing, error)),
        }
    })
}
