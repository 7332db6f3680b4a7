//! `kubemoor reconcile`, `suspend` and `resume`: what a person says to the loop
//! about one release.
//!
//! Entry points: [`reconcile`], [`suspend`], [`resume`]. Invariant: everything
//! goes through the GuardedRelease, so that the API server says who may, and
//! keeps who did; so does the answer to an order. Nothing is repaired here.

use std::time::Duration;

use anyhow::anyhow;
use jiff::Timestamp;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::Outcome;
use super::connect::{self, ClusterArgs, NamespaceArgs, failed, parse_release, spoken};
use super::output::{self, OutputArgs};
use super::pulses::Pulses;
use crate::client::connection::Connection;
use crate::client::guarded::{self, Setting};
use crate::model::ReleaseId;
use crate::policy::guarded::{OrderAnswer, OrderResult};

/// How long the API server has to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long an answer to an order is waited for, and how often it is looked for.
const WAIT: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(250);

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
    /// What the guard made of an order of a repair.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    answered: Option<Answered>,
}

/// What the guard made of an order.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum Answered {
    /// It answered.
    #[serde(rename = "answer")]
    Given(OrderAnswer),
    /// No guard runs.
    Stale { message: String },
    /// It has not answered yet.
    Outstanding { why: String },
}

#[derive(Clone, Copy, Debug, Serialize)]
enum Said {
    Reconcile,
    Suspend,
    Resume,
}

/// Orders a repair now, and waits for the guard's answer.
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
    let Args { release, output, namespace, cluster } = args;
    let at = Timestamp::now().to_string();
    let (setting, doing) = match said {
        Said::Reconcile => (Setting::Reconcile(at.clone()), "have the release reconciled"),
        Said::Suspend => (Setting::Suspend(true), "suspend the release"),
        Said::Resume => (Setting::Suspend(false), "resume the release"),
    };
    let (answer, warnings) = connect::run(async move {
        let connection = cluster.connect().await?;
        let release = ReleaseId { namespace: namespace.or_default(&connection), name: release };
        let warnings = set(&connection, &release, &setting, doing).await?;
        let answered = match said {
            Said::Reconcile => Some(wait(&connection, &release, &at).await),
            Said::Suspend | Said::Resume => None,
        };
        anyhow::Ok((Answer { release, said, answered }, warnings))
    })?;
    warnings.iter().for_each(|warning| super::warn(warning));
    let (name, namespace) = (spoken(&answer.release), &answer.release.namespace);
    let text = match &answer.answered {
        None if matches!(said, Said::Suspend) => {
            format!("release {name} is suspended: nothing is repaired; edits are judged as before")
        }
        None => format!("release {name} is resumed"),
        Some(Answered::Given(OrderAnswer { message, .. })) => format!("release {name}: {message}"),
        Some(Answered::Stale { message }) => {
            format!("the order for release {name} waits for a guard that runs: {message}")
        }
        Some(Answered::Outstanding { why }) => format!(
            "the order for release {name} is given, and {why}: `kubemoor get releases -n {namespace}` shows how the release stands"
        ),
    };
    let outcome = output::say(output.output, &answer, &text)?;
    match answer.answered {
        Some(Answered::Given(OrderAnswer { result: OrderResult::Refused, .. }) | Answered::Stale { .. }) => {
            Ok(Outcome::Found)
        }
        _ => Ok(outcome),
    }
}

async fn set(
    connection: &Connection,
    release: &ReleaseId,
    setting: &Setting,
    doing: &str,
) -> anyhow::Result<Vec<String>> {
    match guarded::set(&connection.client, release, setting, PATIENCE).await {
        Ok(warnings) => Ok(warnings),
        Err(error) if error.is_not_found() => Err(anyhow!(
            "there is no GuardedRelease {}: `kubemoor get releases -n {}` says why",
            spoken(release),
            release.namespace
        )),
        Err(error) => Err(failed(connection, doing, error)),
    }
}

/// Waits for the guard's answer to the order of `at`; of one that has to wait for
/// something else no longer than its first answer.
async fn wait(connection: &Connection, release: &ReleaseId, at: &str) -> Answered {
    let pulses = Pulses::new(connection.client.clone());
    let until = Instant::now() + WAIT;
    let mut last = None;
    loop {
        let status = match guarded::get(&connection.client, release).await {
            Ok(guarded) => guarded.and_then(|guarded| guarded.status).unwrap_or_default(),
            Err(error) => {
                return Answered::Outstanding { why: format!("its answer cannot be read: {error}") };
            }
        };
        last = status.order.clone().filter(|order| order.at == at).or(last);
        match last {
            Some(answer) if answer.result != OrderResult::Waiting => return Answered::Given(answer),
            Some(answer) if Instant::now() >= until => return Answered::Given(answer),
            None if Instant::now() >= until => {
                let why = format!("the guard has not answered within {} s", WAIT.as_secs());
                return Answered::Outstanding { why };
            }
            None => {
                let told = pulses.told(status).await;
                if told.is_stale() {
                    return Answered::Stale { message: told.message };
                }
            }
            Some(_) => {}
        }
        sleep(LOOK).await;
    }
}
