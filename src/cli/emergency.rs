//! `kubemoor emergency`: opens everything, and arms it again.
//!
//! Entry point: [`run`]. Invariant: works without a guard; what a guard does
//! about it is its own to follow.

use serde::Serialize;

use super::Outcome;
use super::connect::{self, ClusterArgs, failed};
use super::output::{self, OutputArgs};
use crate::client::connection::Connection;
use crate::webhook::registration::emergency::{self, Armed, EmergencyError, MARKER};

/// The flags of `kubemoor emergency`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    switch: Switch,
}

#[derive(Debug, clap::Subcommand)]
enum Switch {
    /// Open everything until a person arms it again: no webhook is called, no guard repairs
    Off(Cluster),
    /// Arm again: the webhooks come back as they were, guards judge and repair
    On(Cluster),
}

#[derive(Debug, clap::Args)]
struct Cluster {
    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// How the switch stands now, and what was done.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    /// Whether everything is open.
    open: bool,
    /// Webhook configurations that were removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    removed: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    armed: Option<&'static str>,
}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    let (is_off, Cluster { output, cluster }) = match args.switch {
        Switch::Off(cluster) => (true, cluster),
        Switch::On(cluster) => (false, cluster),
    };
    let (answer, text) = connect::run(async move {
        let connection = cluster.connect().await?;
        let client = &connection.client;
        let done =
            if is_off { emergency::off(client).await.map(off) } else { emergency::on(client).await.map(on) };
        done.map_err(|error| said(&connection, error))
    })?;
    output::say(output.output, &answer, &text)
}

fn said(connection: &Connection, error: EmergencyError) -> anyhow::Error {
    match error {
        EmergencyError::Read(error) => failed(connection, "read the webhook configurations", error.into()),
        EmergencyError::Write(error) => failed(connection, "write the webhook configurations", error.into()),
        contested @ EmergencyError::Contested => contested.into(),
    }
}

fn off(removed: usize) -> (Answer, String) {
    let text = format!(
        "Everything is open: {} removed, and guards neither judge nor repair.\n\
         This stays so, also for guards that start anew, while there is the ValidatingWebhookConfiguration {MARKER}.\n\
         To arm again: kubemoor emergency on",
        output::counted(removed, "webhook configuration")
    );
    (Answer { open: true, removed: Some(removed), armed: None }, text)
}

fn on(armed: Armed) -> (Answer, String) {
    let (armed, text) = match armed {
        Armed::Already => ("Already", "Nothing had been opened: guards judge and repair."),
        Armed::Restored => ("Restored", "Armed again: the webhook configurations are as they were."),
        Armed::Empty => {
            ("Empty", "Armed again: guards that run with --register write their webhook configurations anew.")
        }
    };
    (Answer { open: false, removed: None, armed: Some(armed) }, text.to_owned())
}
