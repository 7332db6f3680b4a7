//! `kubemoor uninstall`: withdraws the webhooks.
//!
//! Entry point: [`run`]. Invariant: may be repeated; it removes the objects
//! that can stand in other people's way and nothing that an admin made.

use std::path::{Path, PathBuf};

use anyhow::Context;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};

use super::Outcome;
use crate::cluster::client;
use crate::webhook::registration::{self, keep};

/// The flags of `kubemoor uninstall`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The kubeconfig; without it kubectl's defaults, then the pod's account
    #[arg(long, env = "KUBEMOOR_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    let Args { kubeconfig } = args;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the asynchronous runtime")?;
    let found = runtime.block_on(withdraw(kubeconfig.as_deref()))?;
    super::print(&report(found))
}

async fn withdraw(kubeconfig: Option<&Path>) -> anyhow::Result<bool> {
    let client = client::connect(kubeconfig).await?.client;
    // Both, even if the first cannot be withdrawn.
    let mutating = keep::withdraw::<MutatingWebhookConfiguration>(&client).await;
    let validating = keep::withdraw::<ValidatingWebhookConfiguration>(&client).await;
    Ok(mutating? | validating?)
}

fn report(found: bool) -> String {
    let name = registration::NAME;
    let done = if found {
        format!("The webhook configurations {name} are withdrawn: no edit is judged any more.\n")
    } else {
        format!("There is no webhook configuration {name}: no edit is judged.\n")
    };
    done + "A guard that runs keeps reporting or repairing drift, and registers again when it is started anew.\n\
            To remove it as well: kubemoor manifests install | kubectl delete --ignore-not-found -f -\n"
}
