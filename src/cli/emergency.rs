//! `kubemoor emergency`: allows all changes, ends that, and shows whether an emergency is open.
//!
//! Entry point: [`run`]. Invariant: works without a guard. A running guard notices the switch and follows it.

use serde::Serialize;

use super::Outcome;
use super::connect::{self, ClusterArgs, failed};
use super::output::{self, OutputArgs};
use kubemoor_cluster::client::connection::Connection;
use kubemoor_guard::webhook::registration::emergency::{self, Armed, EmergencyError, MARKER};

/// The flags of `kubemoor emergency`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    switch: Switch,
}

#[derive(Debug, clap::Subcommand)]
enum Switch {
    /// Allow all changes and stop all repairs, until a person closes the emergency
    #[command(alias = "off")]
    Open(Open),
    /// End the emergency: restore the webhooks, and check and repair again
    #[command(alias = "on")]
    Close(Cluster),
    /// Show whether an emergency is open; exit 1 if it is
    Status(Cluster),
}

#[derive(Debug, clap::Args)]
struct Open {
    /// Why, for the ledger
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    #[command(flatten)]
    cluster: Cluster,
}

/// The requested action.
enum Action {
    Open(Option<String>),
    Close,
    Status,
}

#[derive(Debug, clap::Args)]
struct Cluster {
    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// How the switch stands now, and what was done.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer {
    /// Whether everything is open.
    open: bool,
    /// Webhook configurations that were removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    removed: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    armed: Option<&'static str>,
}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    let (switch, Cluster { output, cluster }) = match args.switch {
        Switch::Open(Open { reason, cluster }) => (Action::Open(reason), cluster),
        Switch::Close(cluster) => (Action::Close, cluster),
        Switch::Status(cluster) => (Action::Status, cluster),
    };
    let is_asked = matches!(switch, Action::Status);
    let (answer, text) = connect::run(async move {
        let connection = cluster.connect().await?;
        let client = &connection.client;
        let done = match switch {
            Action::Open(reason) => emergency::open(client, reason.as_deref()).await.map(opened),
            Action::Close => emergency::close(client).await.map(closed),
            Action::Status => emergency::is_open(client).await.map(standing),
        };
        done.map_err(|error| said(&connection, error))
    })?;
    let outcome = output::say(&output.output, &answer, &text)?;
    Ok(if is_asked && answer.open { Outcome::Found } else { outcome })
}

fn said(connection: &Connection, error: EmergencyError) -> anyhow::Error {
    match error {
        EmergencyError::Read(error) => failed(connection, "read the webhook configurations", error),
        EmergencyError::Write(error) => failed(connection, "write the webhook configurations", error),
        other => other.into(),
    }
}

fn opened(removed: usize) -> (Answer, String) {
    let text = format!(
        "The emergency is open: {} removed. The guard checks and repairs nothing.\n\
         This lasts as long as the ValidatingWebhookConfiguration {MARKER} exists, also for guards that start later.\n\
         To close it: kubemoor emergency close",
        output::counted(removed, "webhook configuration")
    );
    (Answer { open: true, removed: Some(removed), armed: None }, text)
}

fn closed(armed: Armed) -> (Answer, String) {
    let (armed, text) = match armed {
        Armed::Already => ("Already", "No emergency was open. The guard checks and repairs."),
        Armed::Restored => ("Restored", "The emergency is closed. The webhook configurations are restored."),
        Armed::Empty => (
            "Empty",
            "The emergency is closed. Guards that run with --register write their webhook configurations again.",
        ),
    };
    (Answer { open: false, removed: None, armed: Some(armed) }, text.to_owned())
}

fn standing(is_open: bool) -> (Answer, String) {
    let text = if is_open {
        "The emergency is open: the guard checks and repairs nothing.\nTo close it: kubemoor emergency close"
    } else {
        "No emergency is open. The guard checks and repairs."
    };
    (Answer { open: is_open, removed: None, armed: None }, text.to_owned())
}
