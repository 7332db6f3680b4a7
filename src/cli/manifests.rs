//! `kubemoor manifests`: prints the manifests that install Kubemoor.
//!
//! Entry point: [`run`]. Invariant: `deploy/` holds the output without flags. The chart in `deploy/chart` is
//! the source of the files there, except for the namespace and the parts that are computed here. Flags
//! replace single values in them. The static webhook configuration comes from the same builder as that of
//! `--register`, for the kinds that charts usually declare.

mod crds;
mod version;
mod webhook;

use clap::ValueEnum;

use self::version::KubeVersion;
use self::webhook::Webhook;
use super::Outcome;
use super::connect::parse_namespace;
use kubemoor_declare::model::{DriftMode, EditsMode};

/// The flags of `kubemoor manifests`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, clap::Subcommand)]
enum Part {
    /// Namespace, account, rights, roles for people, network policy, Deployment, Service and PodDisruptionBudget; the
    /// guard registers its webhooks
    Install(Install),
    /// The webhook configuration for guards that run without --register
    Webhook(Webhook),
    /// The definitions of DriftPolicy, DriftAllowance and GuardedRelease
    Crds,
}

#[derive(Debug, clap::Args)]
pub(super) struct Install {
    /// The namespace that Kubemoor runs in
    #[arg(long, value_name = "NAMESPACE", default_value = NAMESPACE, value_parser = parse_namespace)]
    namespace: String,

    /// The container image
    #[arg(long, value_name = "IMAGE", default_value = IMAGE, value_parser = parse_image)]
    image: String,

    /// How to answer a change that causes drift; Revert and Deny add the rights of the arbiter
    #[arg(long, value_name = "MODE", default_value = "Warn", ignore_case = true)]
    edits: EditsMode,

    /// How to treat drift in the cluster; Repair adds the rights of repairs
    #[arg(long, value_name = "MODE", default_value = "Report", ignore_case = true)]
    drift: DriftMode,

    /// Let cert-manager make the certificate instead of the guard
    #[arg(long)]
    cert_manager: bool,

    /// How many replicas
    #[arg(long, value_name = "NUMBER", default_value_t = REPLICAS, value_parser = clap::value_parser!(u8).range(1..=16))]
    replicas: u8,

    /// The version of the cluster, if it is older than 1.27
    #[arg(long, value_name = "MAJOR.MINOR", default_value_t = KubeVersion::CURRENT)]
    kube_version: KubeVersion,
}

const NAMESPACE: &str = "kubemoor-system";
const IMAGE: &str = concat!("kubemoor:", env!("CARGO_PKG_VERSION"));

/// How many replicas there are, if no number is given.
const REPLICAS: u8 = 2;

const NAMESPACE_YAML: &str = include_str!("../../deploy/namespace.yaml");
const RBAC_YAML: &str = include_str!("../../deploy/rbac.yaml");
const NETWORK_YAML: &str = include_str!("../../deploy/networkpolicy.yaml");
const WORKLOAD_YAML: &str = include_str!("../../deploy/workload.yaml");
const AVAILABILITY_YAML: &str = include_str!("../../deploy/availability.yaml");
const PEOPLE_YAML: &str = include_str!("../../deploy/people.yaml");
const ISSUER_YAML: &str = include_str!("../../certs/issuer.yaml");
const CERTIFICATE_YAML: &str = include_str!("../../certs/certificate.yaml");
const CERT_MANAGER_WORKLOAD_YAML: &str = include_str!("../../certs/workload.yaml");
const ARBITER_YAML: &str = include_str!("../../deploy/enforce/arbiter.yaml");
const REPAIR_YAML: &str = include_str!("../../deploy/enforce/repair.yaml");

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    let text = match args.part {
        Part::Install(install) => install.text(),
        Part::Webhook(webhook) => webhook.text()?,
        Part::Crds => crds::text()?,
    };
    super::output::write(&text)
}

impl Install {
    fn text(self) -> String {
        let Self { namespace, image, edits, drift, cert_manager, replicas, kube_version } = self;
        let availability = kube_version.budget(AVAILABILITY_YAML);
        let mut files = vec![NAMESPACE_YAML, RBAC_YAML, PEOPLE_YAML];
        if edits >= EditsMode::Revert || drift == DriftMode::Repair {
            files.push(ARBITER_YAML);
        }
        if drift == DriftMode::Repair {
            files.push(REPAIR_YAML);
        }
        files.push(NETWORK_YAML);
        if cert_manager {
            files.extend([ISSUER_YAML, CERTIFICATE_YAML, CERT_MANAGER_WORKLOAD_YAML]);
        } else {
            files.push(WORKLOAD_YAML);
        }
        // With one replica, a node could never be drained.
        if replicas > 1 {
            files.push(&availability);
        }
        files
            .join("---\n")
            .replace(&format!("replicas: {REPLICAS}\n"), &format!("replicas: {replicas}\n"))
            .replace(NAMESPACE, &namespace)
            .replace(&format!("image: {IMAGE}"), &format!("image: {image}"))
            .replace("--edits=Warn", &format!("--edits={}", name_of(edits)))
            .replace("--drift=Report", &format!("--drift={}", name_of(drift)))
    }
}

fn name_of(mode: impl ValueEnum) -> String {
    mode.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// An image is inserted into YAML unchanged, so only the characters of an image are accepted.
fn parse_image(text: &str) -> Result<String, &'static str> {
    let known = |letter: char| letter.is_ascii_alphanumeric() || "._-:/@".contains(letter);
    if text.starts_with(|first: char| first.is_ascii_alphanumeric()) && text.chars().all(known) {
        Ok(text.to_owned())
    } else {
        Err("an image is [REGISTRY/]NAME[:TAG][@DIGEST]")
    }
}

#[cfg(test)]
mod tests;
