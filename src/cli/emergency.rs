//! `kubemoor emergency`: opens an emergency, in which all changes are allowed, closes it, or shows whether one is open.
//! Works without a guard; running guards watch the marker that it writes.

use serde::Serialize;

use super::CommandOutcome;
use super::connect::{self, ClusterArgs, failed};
use super::output::{self, OutputArgs};
use kubemoor_guard::webhook::registration::emergency::{self, EmergencyError, EnableOutcome, MARKER};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    switch: Switch,
}

#[derive(Debug, clap::Subcommand)]
enum Switch {
    /// Allow all changes and stop all repairs, until the emergency is closed
    #[command(alias = "off")]
    Open(OpenArgs),
    /// End the emergency: restore the webhooks, and check and repair again
    #[command(alias = "on")]
    Close(EmergencyClusterArgs),
    /// Show whether an emergency is open; exit 1 if it is
    Status(EmergencyClusterArgs),
}

#[derive(Debug, clap::Args)]
struct OpenArgs {
    /// The reason, for the ledger
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    #[command(flatten)]
    cluster: EmergencyClusterArgs,
}

#[derive(Debug, clap::Args)]
struct EmergencyClusterArgs {
    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Whether an emergency is open, and what was done.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct EmergencyAnswer {
    /// Whether an emergency is open.
    open: bool,
    /// The number of removed webhook configurations.
    #[serde(skip_serializing_if = "Option::is_none")]
    removed: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    enforcement: Option<&'static str>,
}

pub(super) fn run(args: Args) -> anyhow::Result<CommandOutcome> {
    let switch = args.switch;
    let is_asked = matches!(switch, Switch::Status(_));
    let (answer, text, format) = connect::run(async move {
        let (Switch::Open(OpenArgs { cluster, .. }) | Switch::Close(cluster) | Switch::Status(cluster)) =
            &switch;
        let connection = cluster.cluster.connect().await?;
        let client = &connection.client;
        let done = match &switch {
            Switch::Open(OpenArgs { reason, .. }) => {
                emergency::disable_enforcement(client, reason.as_deref()).await.map(opened)
            }
            Switch::Close(_) => emergency::enable_enforcement(client).await.map(closed),
            Switch::Status(_) => emergency::is_enforcement_disabled(client).await.map(standing),
        };
        let (answer, text) = done.map_err(|error| match error {
            EmergencyError::Read(error) => {
                failed(&connection, "read the webhook configurations", error).into()
            }
            EmergencyError::Write(error) => {
                failed(&connection, "write the webhook configurations", error).into()
            }
            other => anyhow::Error::from(other),
        })?;
        anyhow::Ok((answer, text, cluster.output.output.clone()))
    })?;
    let outcome = output::print_text(&format, &answer, &text)?;
    Ok(if is_asked && answer.open { CommandOutcome::Found } else { outcome })
}

fn opened(removed: usize) -> (EmergencyAnswer, String) {
    let text = format!(
        "The emergency is open: {} removed. The guard checks and repairs nothing.\n\
         This lasts as long as the ValidatingWebhookConfiguration {MARKER} exists, also for guards that start later.\n\
         To close it: kubemoor emergency close",
        output::counted(removed, "webhook configuration")
    );
    (EmergencyAnswer { open: true, removed: Some(removed), enforcement: None }, text)
}

fn closed(outcome: EnableOutcome) -> (EmergencyAnswer, String) {
    let (enforcement, text) = match outcome {
        EnableOutcome::Already => ("Already", "No emergency was open. The guard checks and repairs."),
        EnableOutcome::Restored => {
            ("Restored", "The emergency is closed. The webhook configurations are restored.")
        }
        EnableOutcome::Empty => (
            "Empty",
            "The emergency is closed. Guards that run with --register write their webhook configurations again.",
        ),
    };
    (EmergencyAnswer { open: false, removed: None, enforcement: Some(enforcement) }, text.to_owned())
}

fn standing(is_open: bool) -> (EmergencyAnswer, String) {
    let text = if is_open {
        "The emergency is open: the guard checks and repairs nothing.\nTo close it: kubemoor emergency close"
    } else {
        "No emergency is open. The guard checks and repairs."
    };
    (EmergencyAnswer { open: is_open, removed: None, enforcement: None }, text.to_owned())
}
