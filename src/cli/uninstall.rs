//! `kubemoor uninstall`: removes the webhooks, which could block changes, but nothing that an admin created. Prints the
//! commands that remove everything else of an installation. May be repeated.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use serde::Serialize;

use super::CommandOutcome;
use super::connect::{self, ClusterArgs, failed};
use super::output::{self, OutputArgs};
use kubemoor_cluster::client::connection::ClusterConnection;
use kubemoor_cluster::client::discovery;
use kubemoor_guard::webhook::registration::keep::{self, RegistrationError};
use kubemoor_guard::webhook::registration::{self, emergency};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// The result of the command.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct UninstallAnswer {
    /// Whether any webhook configuration was removed.
    withdrawn: bool,
}

/// The label of all objects of an installation.
const LABEL: &str = "app.kubernetes.io/name=kubemoor";

const ADMISSION_POLICIES: &str = "  kubectl delete validatingadmissionpolicy,validatingadmissionpolicybinding \
                                  -l app.kubernetes.io/name=kubemoor\n";

const DEFINITIONS: [&str; 3] =
    ["driftallowances.kubemoor.dev", "driftpolicies.kubemoor.dev", "guardedreleases.kubemoor.dev"];

pub(super) fn run(args: Args) -> anyhow::Result<CommandOutcome> {
    let Args { output, cluster } = args;
    let (found, noted, admission_policies) = connect::run(async move {
        let connection = cluster.connect().await?;
        // First, so that a guard that starts meanwhile does not register again.
        let noted = keep::note_withdrawal(&connection.client).await;
        // Try both, even if the first fails.
        let mutating = keep::withdraw::<MutatingWebhookConfiguration>(&connection.client).await;
        let validating = keep::withdraw::<ValidatingWebhookConfiguration>(&connection.client).await;
        let found = match (mutating, validating) {
            (Ok(mutating), Ok(validating)) => mutating | validating,
            (Err(error), _) | (_, Err(error)) => return Err(withdraw_error(&connection, error)),
        };
        Ok((found, noted, serves_admission_policies(&connection).await))
    })?;
    let report = report(found, noted.err().map(|error| error.to_string()), admission_policies);
    output::print_text(&output.output, &UninstallAnswer { withdrawn: found }, &report)
}

/// Whether the API server has ValidatingAdmissionPolicies; `true` if that cannot be read, because the extra command
/// does no harm.
async fn serves_admission_policies(connection: &ClusterConnection) -> bool {
    let Ok(kinds) = discovery::discover(&connection.client).await else { return true };
    kinds.iter().any(|kind| kind.kind == "ValidatingAdmissionPolicy")
}

fn withdraw_error(connection: &ClusterConnection, error: RegistrationError) -> anyhow::Error {
    match error {
        RegistrationError::Get(kind, error) => failed(connection, &format!("read the {kind}"), error).into(),
        RegistrationError::Write(kind, error) | RegistrationError::Delete(kind, error) => {
            failed(connection, &format!("withdraw the {kind}"), error).into()
        }
        other => other.into(),
    }
}

fn report(found: bool, unnoted: Option<String>, admission_policies: bool) -> String {
    let name = registration::NAME;
    let done = if found {
        format!("The webhook configurations {name} are removed: changes are no longer checked.\n")
    } else {
        format!("There is no webhook configuration {name}: changes are not checked.\n")
    };
    let unnoted = unnoted.map(|error| {
        format!(
            "This could not be recorded in the guards' Lease, so a guard that starts registers its webhooks \
             at once: {error}\n"
        )
    });
    let unnoted = unnoted.unwrap_or_default();
    let of_policies = if admission_policies { ADMISSION_POLICIES } else { "" };
    let definitions = DEFINITIONS.join(" ");
    format!(
        "{done}{unnoted}A guard that runs still reports or repairs drift. It registers its webhooks when it starts again, \
         10 minutes from now at the earliest.\n\
         To remove a guard that Helm installed:\n  \
         helm uninstall kubemoor -n kubemoor-system\n\
         To remove a guard that kubectl installed, with its namespace, its Secrets and the roles of all modes:\n  \
         kubectl delete namespace,clusterrole,clusterrolebinding -l {LABEL}\n{of_policies}\
         To remove all policies, exceptions and statuses with their definitions, and the mark of an emergency:\n  \
         kubectl delete --ignore-not-found crd {definitions}\n  \
         kubectl delete --ignore-not-found validatingwebhookconfiguration {}\n",
        emergency::MARKER
    )
}

#[cfg(test)]
mod tests;
