//! `kubemoor version`: prints this program's version, even if the cluster cannot be read, and the guard's version.

use jiff::Timestamp;
use serde::Serialize;

use super::connect::{self, ClusterArgs, GuardArgs};
use super::output::{self, OutputArgs, seconds};
use super::{CommandOutcome, warn};
use kubemoor_cluster::client::lease::LeaderInfo;
use kubemoor_declare::model::build;
use kubemoor_inspect::guard;
use kubemoor_verdict::health::STALE_AFTER;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print this program's version only, without asking a cluster
    #[arg(long)]
    client: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    guard: GuardArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// The versions of this program and of the guard.
#[derive(Serialize, schemars::JsonSchema)]
pub(super) struct VersionReport {
    client: Build,
    #[serde(skip_serializing_if = "Option::is_none")]
    guard: Option<GuardBuild>,
}

#[derive(Serialize, schemars::JsonSchema)]
struct Build {
    version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    compiler: Option<&'static str>,
}

#[derive(Serialize, schemars::JsonSchema)]
struct GuardBuild {
    namespace: String,
    /// The version; null if the guard does not report one.
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
}

pub(super) fn run(args: Args) -> anyhow::Result<CommandOutcome> {
    let Args { client, output, guard, cluster } = args;
    let asked = (!client).then(|| {
        connect::run(async {
            let place = guard.place();
            let info = guard::info(&cluster.connect().await?, &place).await?;
            Ok((place.namespace, info))
        })
    });
    let (guard, failed) = match asked {
        None => (None, None),
        Some(Ok((namespace, info))) => (Some(guard_build(namespace, info)), None),
        Some(Err(error)) => (None, Some(error)),
    };
    let build = Build { version: build::VERSION, commit: build::commit(), compiler: build::compiler() };
    let versions = VersionReport { client: build, guard };
    output::print_text(&output.output, &versions, &text(&versions))?;
    match failed {
        None => Ok(CommandOutcome::Clean),
        Some(error) => Err(error.context("the guard's version is not known")),
    }
}

fn guard_build(namespace: String, info: LeaderInfo) -> GuardBuild {
    let LeaderInfo { renewed, version, commit, .. } = info;
    if let Some(renewed) = renewed.filter(|renewed| Timestamp::now().duration_since(*renewed) > STALE_AFTER) {
        warn(&format!(
            "no guard has led in namespace {namespace} since {}: the version is that of the last leader",
            seconds(renewed)
        ));
    }
    GuardBuild { namespace, version, commit }
}

fn text(versions: &VersionReport) -> String {
    let VersionReport { client, guard } = versions;
    let details: Vec<_> = [client.commit, client.compiler].into_iter().flatten().collect();
    let mut text = format!("kubemoor {}{}\n", client.version, bracketed(&details.join(", ")));
    if let Some(GuardBuild { namespace, version, commit }) = guard {
        let version = version.as_deref().unwrap_or("of an unknown version");
        let commit = bracketed(commit.as_deref().unwrap_or_default());
        text.push_str(&format!("guard    {version}{commit} in namespace {namespace}\n"));
    }
    text
}

fn bracketed(details: &str) -> String {
    if details.is_empty() { String::new() } else { format!(" ({details})") }
}

#[cfg(test)]
mod tests;
