//! `kubemoor suspend` and `resume`: whether the loop leaves a release alone.
//!
//! Entry points: [`suspend`], [`resume`]. Invariant: everything goes through the
//! GuardedRelease, so that the API server says who may, and keeps who did.

use serde::Serialize;

use super::Outcome;
use super::connect::{self, ClusterArgs, NamespaceArgs, parse_release, spoken};
use super::output::{self, OutputArgs};
use crate::client::guarded::Setting;
use crate::inspect::orders;
use crate::model::ReleaseId;

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
    Suspend,
    Resume,
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
    let Args { release, output, namespace, cluster } = args;
    let (setting, doing) = match said {
        Said::Suspend => (Setting::Suspend(true), "suspend the release"),
        Said::Resume => (Setting::Suspend(false), "resume the release"),
    };
    let (answer, warnings) = connect::run(async move {
        let connection = cluster.connect().await?;
        let release = ReleaseId { namespace: namespace.or_default(&connection), name: release };
        let warnings = orders::set(&connection, &release, &setting, doing).await?;
        anyhow::Ok((Answer { release, said }, warnings))
    })?;
    warnings.iter().for_each(|warning| super::warn(warning));
    let name = spoken(&answer.release);
    let text = match said {
        Said::Suspend => {
            format!("release {name} is suspended: nothing is repaired; edits are judged as before")
        }
        Said::Resume => format!("release {name} is resumed"),
    };
    output::say(output.output, &answer, &text)
}
