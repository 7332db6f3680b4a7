//! `kubemoor manifests`: prints the manifests that install Kubemoor.
//!
//! `deploy/` holds the output without flags. Its files are rendered from the chart in `deploy/chart`, except for the
//! namespace, the CRDs and the static webhook configuration. The last two are computed here, with the program's own
//! types and the same code as for `--register`.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Context;
use clap::ValueEnum;
use kube::CustomResourceExt;
use serde_json::Value;

use super::CommandOutcome;
use super::connect::parse_namespace;
use kubemoor_declare::catalog;
use kubemoor_declare::model::{DriftMode, EditsMode};
use kubemoor_guard::webhook::registration::{
    WebhookAddress, WebhookResource, WebhookSettings, configuration, mutating,
};
use kubemoor_policy::guarded::GuardedRelease;
use kubemoor_policy::resource::{DriftAllowance, DriftPolicy};
use kubemoor_runtime::callers;
use kubemoor_runtime::config::{Endpoint, RecordDriver, ServiceRef, WebhookUrl};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    part: ManifestPart,
}

#[derive(Debug, clap::Subcommand)]
enum ManifestPart {
    /// Namespace, ServiceAccount, RBAC, roles for users, NetworkPolicy, Deployment, Service and PodDisruptionBudget;
    /// the guard registers its webhooks
    Install(Install),
    /// The webhook configuration for guards that run without --register
    Webhook(Webhook),
    /// The CustomResourceDefinitions of DriftPolicy, DriftAllowance and GuardedRelease
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

    /// How to answer a change that causes drift; Revert and Deny add the permissions for dry runs
    #[arg(long, value_name = "MODE", default_value = "Warn", ignore_case = true)]
    edits: EditsMode,

    /// How to treat drift in the cluster; Repair adds the permissions for repairs
    #[arg(long, value_name = "MODE", default_value = "Report", ignore_case = true)]
    drift: DriftMode,

    /// Let cert-manager issue the certificate instead of the guard
    #[arg(long)]
    cert_manager: bool,

    /// Number of replicas
    #[arg(long, value_name = "NUMBER", default_value_t = REPLICAS, value_parser = clap::value_parser!(u8).range(1..=16))]
    replicas: u8,

    /// The version of the cluster, if it is older than 1.27
    #[arg(long, value_name = "MAJOR.MINOR", default_value_t = KubeVersion::CURRENT)]
    kube_version: KubeVersion,
}

const NAMESPACE: &str = "kubemoor-system";
const IMAGE: &str = concat!("kubemoor:", env!("CARGO_PKG_VERSION"));

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

pub(super) fn run(args: Args) -> anyhow::Result<CommandOutcome> {
    let text = match args.part {
        ManifestPart::Install(install) => install.text(),
        ManifestPart::Webhook(webhook) => webhook.text()?,
        ManifestPart::Crds => crds_text()?,
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
    let is_image = text.starts_with(|first: char| first.is_ascii_alphanumeric()) && text.chars().all(known);
    is_image.then(|| text.to_owned()).ok_or("an image must be [REGISTRY/]NAME[:TAG][@DIGEST]")
}

/// Major and minor version of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KubeVersion(u32, u32);

/// The field that a PodDisruptionBudget has since 1.27, exactly as the rendered file has it.
const EVICTION: &str = "  # A guard that is not ready keeps no node from being drained.\n  \
                        unhealthyPodEvictionPolicy: AlwaysAllow\n";

impl KubeVersion {
    /// The oldest version for which the rendered files need no change.
    pub(super) const CURRENT: Self = Self(1, 27);

    /// The PodDisruptionBudget for this version, from the one for [`KubeVersion::CURRENT`].
    pub(super) fn budget(self, current: &str) -> String {
        let mut text = current.to_owned();
        if self < Self(1, 27) {
            text = text.replace(EVICTION, "");
        }
        if self < Self(1, 21) {
            text = text.replace("apiVersion: policy/v1\n", "apiVersion: policy/v1beta1\n");
        }
        text
    }
}

impl FromStr for KubeVersion {
    type Err = &'static str;

    /// Also accepts what `kubectl version` prints, such as `v1.20.2`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers = text.strip_prefix('v').unwrap_or(text);
        let mut parts = numbers.split('.').map(str::parse);
        match (parts.next(), parts.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Ok(Self(major, minor)),
            _ => Err("a version must be MAJOR.MINOR, such as 1.20"),
        }
    }
}

impl Display for KubeVersion {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.0, self.1)
    }
}

const CRDS_HEAD: &str = "# What `kubemoor manifests crds` prints: write it anew, never by hand.\n";

pub(super) fn crds_text() -> anyhow::Result<String> {
    let definitions = [DriftAllowance::crd(), DriftPolicy::crd(), GuardedRelease::crd()];
    let documents = definitions.iter().map(|definition| {
        let mut definition = serde_json::to_value(definition)?;
        if let Some(versions) = definition.pointer_mut("/spec/versions").and_then(Value::as_array_mut) {
            versions.iter_mut().filter_map(|version| version.get_mut("schema")).for_each(open);
        }
        anyhow::Ok(serde_saphyr::to_string(&definition)?)
    });
    let documents: Vec<String> =
        documents.collect::<Result<_, _>>().context("cannot write the definitions as YAML")?;
    Ok(CRDS_HEAD.to_owned() + &documents.join("---\n"))
}

/// Removes `additionalProperties: false`, which a structural schema may not contain: the API server prunes unknown
/// fields anyway.
fn open(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if map.get("additionalProperties") == Some(&Value::Bool(false)) {
                map.remove("additionalProperties");
            }
            map.values_mut().for_each(open);
        }
        Value::Array(items) => items.iter_mut().for_each(open),
        _ => {}
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Webhook {
    /// The namespace that Kubemoor runs in
    #[arg(long, value_name = "NAMESPACE", default_value = NAMESPACE, value_parser = parse_namespace)]
    namespace: String,

    /// The webhook's URL for the API server, if the webhook is not a Service of the cluster
    #[arg(long, value_name = "https://HOST[:PORT][/PATH]")]
    webhook_url: Option<WebhookUrl>,

    /// The CA of the webhook's certificate (PEM); without it cert-manager may inject one
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,

    /// The guard's --caller-token-file; the configuration then holds its first token
    #[arg(long, value_name = "FILE", conflicts_with = "no_caller_token")]
    caller_token_file: Option<PathBuf>,

    /// For a guard that authenticates the API server by its certificate alone (--client-ca)
    #[arg(long)]
    no_caller_token: bool,

    /// How Helm stores its records (HELM_DRIVER)
    #[arg(long, value_name = "DRIVER", default_value = "secret")]
    record_driver: RecordDriver,

    /// Also match objects without Helm's label
    #[arg(long)]
    select_all: bool,

    /// How to answer a change that causes drift; Revert adds the webhook that reverts changes
    #[arg(long, value_name = "MODE", default_value = "Warn", ignore_case = true)]
    edits: EditsMode,
}

const WEBHOOK_HEAD: &str = "\
# For a guard that runs without --register. One webhook for each group and
# version: to guard the custom resources of a chart, copy an entry of
# NAME.edits.kubemoor.dev and change its name and rules. The CA of the webhook's
# certificate goes into each caBundle (`kubemoor manifests webhook --ca-file`),
# or is injected by cert-manager (certs/README.md).
";

const CALLER_HEAD: &str = "\
# CALLER_TOKEN stands for the first line of the file that the guard has as
# --caller-token-file; `kubemoor manifests webhook --caller-token-file FILE` puts it
# in. Until then the API server takes none of it. What holds a token belongs into no
# repository. For a guard that knows the API server by its certificate alone
# (--client-ca): --no-caller-token.
";

/// The built-in kinds that charts usually declare, each in every version that an API server since 1.20 serves, because
/// the webhook needs the version that the manifest uses. A rule for a version that is not served does no harm. Pods,
/// ReplicaSets, Endpoints and Leases are left out: charts rarely declare them, and controllers write them all the time,
/// often with Helm's label from a template.
const CHART_KINDS: &str = "APIService CSIDriver ClusterRole ClusterRoleBinding ConfigMap CronJob \
    CustomResourceDefinition DaemonSet Deployment HorizontalPodAutoscaler Ingress IngressClass Job LimitRange Namespace \
    NetworkPolicy PersistentVolume PersistentVolumeClaim PodDisruptionBudget PriorityClass ReplicationController \
    ResourceQuota Role RoleBinding RuntimeClass Secret Service ServiceAccount StatefulSet StorageClass";

impl Webhook {
    pub(super) fn text(self) -> anyhow::Result<String> {
        let Self { namespace, edits, record_driver, select_all, .. } = self;
        let ca_bundle = self
            .ca_file
            .map(|path| {
                fs::read(&path).with_context(|| format!("cannot read the CA file {}", path.display()))
            })
            .transpose()?;
        let token = self
            .caller_token_file
            .map(|path| callers::read_tokens(&path))
            .transpose()?
            .map(|(first, _)| first);
        let endpoint = match self.webhook_url {
            Some(url) => Endpoint::Url(url),
            None => Endpoint::Service(ServiceRef {
                namespace: namespace.clone(),
                name: "kubemoor".to_owned(),
                port: 443,
            }),
        };
        let surface = WebhookSettings {
            endpoint: &endpoint,
            address: match &token {
                Some(token) => WebhookAddress::Token(token),
                None if self.no_caller_token => WebhookAddress::Bare,
                None => WebhookAddress::Placeholder,
            },
            ca_bundle: ca_bundle.as_deref(),
            own_namespace: Some(&namespace),
            record_driver,
            select_all,
            reverts: edits == EditsMode::Revert,
            // An API server without conditions would drop them and send every status.
            conditions: false,
        };
        let cannot_write = "cannot write the webhook configuration as YAML";
        let resources = chart_resources();
        let yaml = serde_saphyr::to_string(&configuration(&resources, &surface)).context(cannot_write)?;
        let mutating = serde_saphyr::to_string(&mutating(&resources, &surface)).context(cannot_write)?;
        let caller = if matches!(surface.address, WebhookAddress::Placeholder) { CALLER_HEAD } else { "" };
        Ok(format!("{WEBHOOK_HEAD}{caller}{yaml}---\n{mutating}"))
    }
}

pub(super) fn chart_resources() -> BTreeSet<WebhookResource> {
    let kinds = catalog::core().kinds().filter(|facts| CHART_KINDS.split(' ').any(|kind| kind == facts.kind));
    let resources = kinds.flat_map(|facts| {
        facts.versions.iter().map(|version| WebhookResource {
            group: facts.group.clone(),
            version: version.clone(),
            plural: facts.plural.clone(),
            scale: facts.scale_replicas_path.is_some(),
        })
    });
    resources.collect()
}

#[cfg(test)]
mod tests;
