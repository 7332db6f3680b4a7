//! `kubemoor uninstall`: withdraws the webhooks.
//!
//! Entry point: [`run`]. Invariant: may be repeated; it removes the objects
//! that can stand in other people's way and nothing that an admin made.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};

use serde::Serialize;

use super::Outcome;
use super::connect::{self, ClusterArgs, failed};
use super::output::{self, OutputArgs};
use crate::client::connection::Connection;
use crate::client::writer::SendError;
use crate::webhook::registration;
use crate::webhook::registration::keep::{self, RegistrationError};

/// The flags of `kubemoor uninstall`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// What was done.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct Answer {
    /// Whether there was anything to withdraw.
    withdrawn: bool,
}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    let Args { output, cluster } = args;
    let found = connect::run(async move {
        let connection = cluster.connect().await?;
        // Both, even if the first cannot be withdrawn.
        let mutating = keep::withdraw::<MutatingWebhookConfiguration>(&connection.client).await;
        let validating = keep::withdraw::<ValidatingWebhookConfiguration>(&connection.client).await;
        mutating.and_then(|mutating| Ok(mutating | validating?)).map_err(|error| said(&connection, error))
    })?;
    output::say(&output.output, &Answer { withdrawn: found }, &report(found))
}

fn said(connection: &Connection, error: RegistrationError) -> anyhow::Error {
    match error {
        RegistrationError::Get(kind, error) => failed(connection, &format!("read the {kind}"), error),
        RegistrationError::Write(kind, SendError::Call(error))
        | RegistrationError::Delete(kind, SendError::Call(error)) => {
            failed(connection, &format!("withdraw the {kind}"), error)
        }
        other => other.into(),
    }
}

fn report(found: bool) -> String {
    let name = registration::NAME;
    let done = if found {
        format!("The webhook configurations {name} are removed: changes are no longer checked.\n")
    } else {
        format!("There is no webhook configuration {name}: changes are not checked.\n")
    };
    done + "A guard that runs still reports or repairs drift, and registers its webhooks when it starts again.\n\
            To remove the guard too: kubemoor manifests install | kubectl delete --ignore-not-found -f -\n"
}
