//! `kubemoor version`: shows this build, and the version of the guard in the cluster.
//!
//! Entry point: [`run`]. Invariant: this program's own version is printed even if everything else fails.

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::connect::{self, ClusterArgs};
use super::guard::GuardArgs;
use super::output::{self, OutputArgs};
use super::{Outcome, warn};
use kubemoor_cluster::client::lease::leader_info::LeaderInfo;
use kubemoor_declare::model::build;

/// The maximum age of a running guard's Lease: the guard renews it every few seconds, and clocks differ.
const FRESH: SignedDuration = SignedDuration::from_secs(60);

/// The flags of `kubemoor version`.
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

/// What is printed.
#[derive(Serialize, schemars::JsonSchema)]
pub(super) struct Versions {
    client: Build,
    #[serde(skip_serializing_if = "Option::is_none")]
    guard: Option<Guard>,
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
struct Guard {
    namespace: String,
    /// None of a guard that tells none.
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    let Args { client, output, guard, cluster } = args;
    let asked = (!client).then(|| {
        connect::run(async {
            let info = guard.info(&cluster.connect().await?).await?;
            Ok((guard.namespace().to_owned(), info))
        })
    });
    let (guard, failed) = match asked {
        None => (None, None),
        Some(Ok((namespace, info))) => (Some(told(namespace, info)), None),
        Some(Err(error)) => (None, Some(error)),
    };
    let build = Build { version: build::VERSION, commit: build::commit(), compiler: build::compiler() };
    let versions = Versions { client: build, guard };
    output::say(&output.output, &versions, &text(&versions))?;
    match failed {
        None => Ok(Outcome::Clean),
        Some(error) => Err(error.context("the guard's version is not known")),
    }
}

fn told(namespace: String, info: LeaderInfo) -> Guard {
    let LeaderInfo { renewed, version, commit, .. } = info;
    if let Some(renewed) = renewed.filter(|renewed| Timestamp::now().duration_since(*renewed) > FRESH) {
        warn(&format!(
            "no guard leads in namespace {namespace} since {}: the version is that of the last one",
            renewed.strftime("%Y-%m-%dT%H:%M:%SZ")
        ));
    }
    Guard { namespace, version, commit }
}

/// For people: a line for each build.
fn text(versions: &Versions) -> String {
    let Versions { client, guard } = versions;
    let details: Vec<_> = [client.commit, client.compiler].into_iter().flatten().collect();
    let mut text = format!("kubemoor {}{}\n", client.version, bracketed(&details.join(", ")));
    if let Some(Guard { namespace, version, commit }) = guard {
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
mod tests {
    use super::*;

    #[test]
    fn line_for_people_leaves_out_what_is_not_known() {
        let client = || Build { version: "1.2.3", commit: None, compiler: None };
        let guard = |version: Option<&str>, commit: Option<&str>| {
            let [version, commit] = [version, commit].map(|it| it.map(str::to_owned));
            Some(Guard { namespace: "moor".to_owned(), version, commit })
        };
        let check = |client: Build, guard: Option<Guard>, expected: &str| {
            assert_eq!(text(&Versions { client, guard }), expected);
        };
        check(client(), None, "kubemoor 1.2.3\n");
        let built = Build { commit: Some("abc"), compiler: Some("rustc 1.95.0"), ..client() };
        check(
            built,
            guard(Some("1.2.2"), Some("def")),
            "kubemoor 1.2.3 (abc, rustc 1.95.0)\nguard    1.2.2 (def) in namespace moor\n",
        );
        check(
            client(),
            guard(None, None),
            "kubemoor 1.2.3\nguard    of an unknown version in namespace moor\n",
        );
    }
}
