//! The static webhook configuration, for the kinds that charts usually declare.
//!
//! Entry point: [`Webhook`]. Invariant: the same builder as that of `--register`.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::Context;

use super::super::connect::parse_namespace;
use super::NAMESPACE;
use kubemoor_declare::model::EditsMode;
use kubemoor_guard::webhook::registration::{Address, Resource, Surface, configuration, mutating};
use kubemoor_runtime::callers;
use kubemoor_runtime::config::{Endpoint, RecordDriver, ServiceRef, WebhookUrl};

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

    /// For a guard that knows the API server by its certificate alone (--client-ca)
    #[arg(long)]
    no_caller_token: bool,

    /// How Helm stores its records (HELM_DRIVER)
    #[arg(long, value_name = "DRIVER", default_value = "secret")]
    record_driver: RecordDriver,

    /// Also for objects without Helm's label
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

/// The built-in kinds that charts usually declare: group, version, plural, and whether there is a `scale`.
/// The list has every version that a server from 1.20 on serves: the webhook is called for a release only in
/// the version that its manifest uses. An entry that is not served costs nothing. Pods, replica sets,
/// endpoints and leases are left out: charts rarely declare them, while controllers write them all day, often
/// with Helm's label from a template.
const CHART_RESOURCES: [(&str, &str, &[&str], bool); 29] = [
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
    ("apiextensions.k8s.io", "v1beta1", &["customresourcedefinitions"], false),
    ("apiregistration.k8s.io", "v1", &["apiservices"], false),
    ("apiregistration.k8s.io", "v1beta1", &["apiservices"], false),
    ("apps", "v1", &["deployments", "statefulsets"], true),
    ("apps", "v1", &["daemonsets"], false),
    ("autoscaling", "v1", &["horizontalpodautoscalers"], false),
    ("autoscaling", "v2", &["horizontalpodautoscalers"], false),
    ("autoscaling", "v2beta1", &["horizontalpodautoscalers"], false),
    ("autoscaling", "v2beta2", &["horizontalpodautoscalers"], false),
    ("batch", "v1", &["cronjobs", "jobs"], false),
    ("batch", "v1beta1", &["cronjobs"], false),
    ("extensions", "v1beta1", &["ingresses"], false),
    ("networking.k8s.io", "v1", &["ingressclasses", "ingresses", "networkpolicies"], false),
    ("networking.k8s.io", "v1beta1", &["ingressclasses", "ingresses"], false),
    ("node.k8s.io", "v1", &["runtimeclasses"], false),
    ("node.k8s.io", "v1beta1", &["runtimeclasses"], false),
    ("policy", "v1", &["poddisruptionbudgets"], false),
    ("policy", "v1beta1", &["poddisruptionbudgets"], false),
    ("rbac.authorization.k8s.io", "v1", &["clusterrolebindings", "clusterroles"], false),
    ("rbac.authorization.k8s.io", "v1", &["rolebindings", "roles"], false),
    ("rbac.authorization.k8s.io", "v1beta1", &["clusterrolebindings", "clusterroles"], false),
    ("rbac.authorization.k8s.io", "v1beta1", &["rolebindings", "roles"], false),
    ("scheduling.k8s.io", "v1", &["priorityclasses"], false),
    ("scheduling.k8s.io", "v1beta1", &["priorityclasses"], false),
    ("storage.k8s.io", "v1", &["csidrivers", "storageclasses"], false),
    ("storage.k8s.io", "v1beta1", &["csidrivers", "storageclasses"], false),
];

impl Webhook {
    pub(super) fn text(self) -> anyhow::Result<String> {
        let Self {
            namespace,
            webhook_url,
            ca_file,
            caller_token_file,
            no_caller_token,
            record_driver,
            select_all,
            edits,
        } = self;
        let ca_bundle = ca_file
            .map(|path| {
                fs::read(&path).with_context(|| format!("cannot read the CA file {}", path.display()))
            })
            .transpose()?;
        let token =
            caller_token_file.map(|path| callers::read_tokens(&path)).transpose()?.map(|(first, _)| first);
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
            address: match &token {
                Some(token) => Address::Token(token),
                None if no_caller_token => Address::Bare,
                None => Address::Placeholder,
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
        let caller = if matches!(surface.address, Address::Placeholder) { CALLER_HEAD } else { "" };
        Ok(format!("{WEBHOOK_HEAD}{caller}{yaml}---\n{mutating}"))
    }
}

pub(super) fn chart_resources() -> BTreeSet<Resource> {
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
