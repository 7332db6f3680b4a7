//! `kubemoor manifests`: prints what installs Kubemoor.
//!
//! Entry point: [`run`]. Invariant: `deploy/` holds what is printed without
//! flags; the files there are the source, flags replace single values in them.
//! The static webhook configuration comes from the builder that `--register`
//! uses, over the kinds that charts declare.

mod crds;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use clap::ValueEnum;

use super::Outcome;
use super::connect::parse_namespace;
use crate::config::{Endpoint, RecordDriver, ServiceRef, WebhookUrl};
use crate::model::{DriftMode, EditsMode};
use crate::webhook::registration::{Resource, Surface, configuration, reverting};

/// The flags of `kubemoor manifests`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, clap::Subcommand)]
enum Part {
    /// Namespace, account, rights, Deployment and Service; the guard registers its webhooks by itself
    Install(Install),
    /// The webhook configuration for guards that run without --register
    Webhook(Webhook),
    /// The definitions of DriftPolicy, DriftAllowance and GuardedRelease
    Crds,
}

#[derive(Debug, clap::Args)]
pub(super) struct Install {
    /// The namespace that Kubemoor runs in
    #[arg(long, env = "KUBEMOOR_NAMESPACE", value_name = "NAMESPACE", default_value = NAMESPACE, value_parser = parse_namespace)]
    namespace: String,

    /// The container image
    #[arg(long, env = "KUBEMOOR_IMAGE", value_name = "IMAGE", default_value = IMAGE, value_parser = parse_image)]
    image: String,

    /// What becomes of an edit that drifts; Revert and Deny add the rights of the arbiter
    #[arg(long, env = "KUBEMOOR_EDITS", value_name = "MODE", default_value = "Warn", ignore_case = true)]
    edits: EditsMode,

    /// What becomes of drift that the loop finds; Repair adds the rights of repairs
    #[arg(long, env = "KUBEMOOR_DRIFT", value_name = "MODE", default_value = "Report", ignore_case = true)]
    drift: DriftMode,
}

#[derive(Debug, clap::Args)]
pub(super) struct Webhook {
    /// The namespace that Kubemoor runs in
    #[arg(long, env = "KUBEMOOR_NAMESPACE", value_name = "NAMESPACE", default_value = NAMESPACE, value_parser = parse_namespace)]
    namespace: String,

    /// Where the API server reaches the webhook when it is no Service of the cluster
    #[arg(long, env = "KUBEMOOR_WEBHOOK_URL", value_name = "https://HOST[:PORT][/PATH]")]
    webhook_url: Option<WebhookUrl>,

    /// The CA of the webhook's certificate (PEM); without it cert-manager may inject one
    #[arg(long, env = "KUBEMOOR_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,

    /// The form in which Helm keeps its records (HELM_DRIVER)
    #[arg(long, env = "KUBEMOOR_RECORD_DRIVER", value_name = "DRIVER", default_value = "secret")]
    record_driver: RecordDriver,

    /// For objects without Helm's label as well
    #[arg(long, env = "KUBEMOOR_SELECT_ALL")]
    select_all: bool,

    /// What becomes of an edit that drifts; Revert adds the webhook that sets edits back
    #[arg(long, env = "KUBEMOOR_EDITS", value_name = "MODE", default_value = "Warn", ignore_case = true)]
    edits: EditsMode,
}

const NAMESPACE: &str = "kubemoor-system";
const IMAGE: &str = concat!("kubemoor:", env!("CARGO_PKG_VERSION"));

const NAMESPACE_YAML: &str = include_str!("../../deploy/namespace.yaml");
const RBAC_YAML: &str = include_str!("../../deploy/rbac.yaml");
const WORKLOAD_YAML: &str = include_str!("../../deploy/workload.yaml");
const ARBITER_YAML: &str = include_str!("../../deploy/enforce/arbiter.yaml");
const REPAIR_YAML: &str = include_str!("../../deploy/enforce/repair.yaml");

const WEBHOOK_HEAD: &str = "\
# For a guard that runs without --register. One webhook for each group and
# version: to guard the custom resources of a chart, copy an entry of
# NAME.edits.kubemoor.dev and change its name and rules. The CA of the webhook's
# certificate goes into each caBundle (`kubemoor manifests webhook --ca-file`),
# or is injected by cert-manager (certs/README.md).
";

/// What charts declare of the built-in kinds: group, version, plural, and
/// whether there is a `scale`. Several versions where the oldest server that
/// is supported (1.20) lacks the newest; a version that is not served costs
/// nothing. Left out is what charts hardly declare while controllers write it
/// all day, often with Helm's label from a template: pods, replica sets,
/// endpoints, leases.
const CHART_RESOURCES: [(&str, &str, &[&str], bool); 19] = [
    ("", "v1", &["replicationcontrollers"], true),
    (
        "",
        "v1",
        &[
            "configmaps",
            "limitranges",
            "namespaces",
            "persistentvolumeclaims",
            "persistentvolumes",
            "resourcequotas",
            "secrets",
            "serviceaccounts",
            "services",
        ],
        false,
    ),
    ("apiextensions.k8s.io", "v1", &["customresourcedefinitions"], false),
    ("apiregistration.k8s.io", "v1", &["apiservices"], false),
    ("apps", "v1", &["deployments", "statefulsets"], true),
    ("apps", "v1", &["daemonsets"], false),
    ("autoscaling", "v1", &["horizontalpodautoscalers"], false),
    ("autoscaling", "v2", &["horizontalpodautoscalers"], false),
    ("autoscaling", "v2beta2", &["horizontalpodautoscalers"], false),
    ("batch", "v1", &["cronjobs", "jobs"], false),
    ("batch", "v1beta1", &["cronjobs"], false),
    ("networking.k8s.io", "v1", &["ingressclasses", "ingresses", "networkpolicies"], false),
    ("node.k8s.io", "v1", &["runtimeclasses"], false),
    ("policy", "v1", &["poddisruptionbudgets"], false),
    ("policy", "v1beta1", &["poddisruptionbudgets"], false),
    ("rbac.authorization.k8s.io", "v1", &["clusterrolebindings", "clusterroles"], false),
    ("rbac.authorization.k8s.io", "v1", &["rolebindings", "roles"], false),
    ("scheduling.k8s.io", "v1", &["priorityclasses"], false),
    ("storage.k8s.io", "v1", &["csidrivers", "storageclasses"], false),
];

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
        let Self { namespace, image, edits, drift } = self;
        let mut files = vec![NAMESPACE_YAML, RBAC_YAML];
        if edits >= EditsMode::Revert || drift == DriftMode::Repair {
            files.push(ARBITER_YAML);
        }
        if drift == DriftMode::Repair {
            files.push(REPAIR_YAML);
        }
        files.push(WORKLOAD_YAML);
        files
            .join("---\n")
            .replace(NAMESPACE, &namespace)
            .replace(&format!("image: {IMAGE}"), &format!("image: {image}"))
            .replace("--edits=Warn", &format!("--edits={}", name_of(edits)))
            .replace("--drift=Report", &format!("--drift={}", name_of(drift)))
    }
}

impl Webhook {
    fn text(self) -> anyhow::Result<String> {
        let Self { namespace, webhook_url, ca_file, record_driver, select_all, edits } = self;
        let ca_bundle = ca_file
            .map(|path| {
                fs::read(&path).with_context(|| format!("cannot read the CA file {}", path.display()))
            })
            .transpose()?;
        let endpoint = match webhook_url {
            Some(url) => Endpoint::Url(url),
            None => Endpoint::Service(ServiceRef {
                namespace: namespace.clone(),
                name: "kubemoor".to_owned(),
                port: 443,
            }),
        };
        let surface = Surface {
            endpoint: &endpoint,
            ca_bundle: ca_bundle.as_deref(),
            own_namespace: Some(&namespace),
            record_driver,
            select_all,
            reverts: edits == EditsMode::Revert,
        };
        let cannot_write = "cannot write the webhook configuration as YAML";
        let resources = chart_resources();
        let yaml = serde_saphyr::to_string(&configuration(&resources, &surface)).context(cannot_write)?;
        let mut text = format!("{WEBHOOK_HEAD}{yaml}");
        if let Some(reverting) = reverting(&resources, &surface) {
            let yaml = serde_saphyr::to_string(&reverting).context(cannot_write)?;
            text = format!("{text}---\n{yaml}");
        }
        Ok(text)
    }
}

fn chart_resources() -> BTreeSet<Resource> {
    CHART_RESOURCES
        .iter()
        .flat_map(|&(group, version, plurals, scale)| {
            plurals.iter().map(move |&plural| Resource {
                group: group.to_owned(),
                version: version.to_owned(),
                plural: plural.to_owned(),
                scale,
            })
        })
        .collect()
}

fn name_of(mode: impl ValueEnum) -> String {
    mode.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// An image goes into YAML as it is, hence only what an image can be made of.
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
