//! `kubemoor emergency`: opens everything, and arms it again.
//!
//! Entry point: [`run`]. Invariant: works without a guard; what a guard does
//! about it is its own to follow.

use super::connect::{self, ClusterArgs, failed};
use super::{Outcome, output};
use crate::cluster::client::Connection;
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
    cluster: ClusterArgs,
}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    let told = connect::run(async move {
        match args.switch {
            Switch::Off(Cluster { cluster }) => {
                let connection = cluster.connect().await?;
                emergency::off(&connection.client).await.map(off).map_err(|error| said(&connection, error))
            }
            Switch::On(Cluster { cluster }) => {
                let connection = cluster.connect().await?;
                emergency::on(&connection.client).await.map(on).map_err(|error| said(&connection, error))
            }
        }
    })?;
    output::write(&told)
}

fn said(connection: &Connection, error: EmergencyError) -> anyhow::Error {
    match error {
        EmergencyError::Read(error) => failed(connection, "read the webhook configurations", error.into()),
        EmergencyError::Write(error) => failed(connection, "write the webhook configurations", error.into()),
        contested @ EmergencyError::Contested => contested.into(),
    }
}

fn off(removed: usize) -> String {
    format!(
        "Everything is open: {} removed, and guards neither judge nor repair.\n\
         This stays so, also for guards that start anew, while there is the ValidatingWebhookConfiguration {MARKER}.\n\
         To arm again: kubemoor emergency on\n",
        output::counted(removed, "webhook configuration")
    )
}

fn on(armed: Armed) -> String {
    match armed {
        Armed::Already => "Nothing had been opened: guards judge and repair.\n".to_owned(),
        Armed::Restored => "Armed again: the webhook configurations are as they were.\n".to_owned(),
        Armed::Empty => {
            "Armed again: guards that run with --register write their webhook configurations anew.\n"
                .to_owned()
        }
    }
}
