//! `kubemoor reconcile`, `suspend` and `resume`: what a person says to the loop
//! about one release.
//!
//! Entry points: [`reconcile`], [`suspend`], [`resume`]. Invariant: everything
//! goes through the GuardedRelease, so that the API server says who may, and
//! keeps who did. Nothing is repaired here.

use std::time::Duration;

use anyhow::anyhow;
use jiff::Timestamp;
use serde::Serialize;

use super::Outcome;
use super::connect::{self, ClusterArgs, NamespaceArgs, failed, parse_release, spoken};
use super::output::{self, OutputArgs};
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
    output: OutputArgs,

    #[command(flatten)]
    namespace: NamespaceArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// What was said of which release.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(flatten)]
    release: ReleaseId,
    said: Said,
}

#[derive(Clone, Copy, Debug, Serialize)]
enum Said {
    Reconcile,
    Suspend,
    Resume,
}

/// Asks for a repair now.
pub(super) fn reconcile(args: Args) -> anyhow::Result<Outcome> {
    say(args, Said::Reconcile)
}

/// Has the loop leave a release alone.
pub(super) fn suspend(args: Args) -> anyhow::Result<Outcome> {
    say(args, Said::Suspend)
}

/// Has the loop go on.
pub(super) fn resume(args: Args) -> anyhow::Result<Outcome> {
    say(args, Said::Resume)
}

fn say(args: Args, said: Said) -> anyhow::Result<Outcome> {
    let format = args.output.output;
    let (setting, doing) = match said {
        Said::Reconcile => (Setting::Reconcile(Timestamp::now().to_string()), "have the release reconciled"),
        Said::Suspend => (Setting::Suspend(true), "suspend the release"),
        Said::Resume => (Setting::Suspend(false), "resume the release"),
    };
    let (release, warnings) = set(args, setting, doing)?;
    warnings.iter().for_each(|warning| super::warn(warning));
    let (name, namespace) = (spoken(&release), release.namespace.clone());
    let text = match said {
        Said::Reconcile => {
            format!(
                "release {name} is being reconciled: `kubemoor get releases -n {namespace}` shows how it stands"
            )
        }
        Said::Suspend => {
            format!("release {name} is suspended: nothing is repaired; edits are judged as before")
        }
        Said::Resume => format!("release {name} is resumed"),
    };
    output::say(format, &Answer { release, said }, &text)
}

fn set(args: Args, setting: Setting, doing: &str) -> anyhow::Result<(ReleaseId, Vec<String>)> {
    let Args { release, output: _, namespace, cluster } = args;
    connect::run(async move {
        let connection = cluster.connect().await?;
        let release = ReleaseId { namespace: namespace.or_default(&connection), name: release };
        match guarded::set(&connection.client, &release, &setting, PATIENCE).await {
            Ok(warnings) => Ok((release, warnings)),
            Err(error) if error.is_not_found() => Err(anyhow!(
                "there is no GuardedRelease {}: `kubemoor get releases -n {}` says why",
                spoken(&release),
                release.namespace
            )),
            Err(error) => Err(failed(&connection, doing, error)),
        }
    })
}
