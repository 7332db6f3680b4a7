//! The settings of a run, checked and typed.
//!
//! Entry points: [`Serve`], built by the command line and taken apart by the composition root. Invariant: a
//! value of these types needs no further check. Must not read the environment or a file, nor define defaults:
//! those are on the command line, where a user sees them.

mod collector;
mod endpoint;
mod ledger;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

pub use self::collector::CollectorUrl;
pub use self::endpoint::{Endpoint, ServiceRef, WebhookUrl};
pub use self::ledger::{Ledger, LedgerUrl, Retention};
use crate::tls::CertificateSource;
use kubemoor_declare::model::{DriftMode, EditsMode};

/// Everything that `kubemoor serve` needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serve {
    /// Where the releases are.
    pub source: Source,
    /// Where the webhook listens, with TLS.
    pub listen: SocketAddr,
    /// Where health, metrics and the ledger are served, with TLS.
    pub admin_listen: SocketAddr,
    /// The webhook's certificate.
    pub tls: CertificateSource,
    /// The callers that the webhook answers.
    pub callers: Callers,
    /// How the webhook answers a change that causes drift.
    pub edits: EditsMode,
    /// How the loop handles drift that it finds.
    pub drift: DriftMode,
    /// The directory of policy files.
    pub policies: Option<PathBuf>,
    /// The labels of this cluster, which policies select clusters by.
    pub cluster_labels: BTreeMap<String, String>,
    /// How long a Helm operation may leave its record untouched before it loses its rights.
    pub operation_timeout: Duration,
    /// The database of the audit ledger.
    pub ledger: Ledger,
    /// The file of receivers for drift and repairs.
    pub notifiers: Option<PathBuf>,
    /// Whether each release has metrics of its own.
    pub release_metrics: bool,
    /// Whether `/metrics` is served to everybody, and not only to users with the right to get it.
    pub anonymous_metrics: bool,
    /// The collector that receives traces; `None` to make none.
    pub collector: Option<CollectorUrl>,
    /// How long the guard goes on answering after it was told to stop. Together with the shutdown of the server and
    /// the ledger this must stay below the chart's `terminationGracePeriodSeconds`.
    pub shutdown_delay: Duration,
    /// The log filter.
    pub log: LogFilter,
}

/// Where the releases are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In a cluster, as Helm's records.
    Cluster(Cluster),
    /// In a directory of `NAMESPACE/RELEASE.yaml` files; there is no cluster.
    Directory(PathBuf),
}

/// The cluster that is guarded, and what may be done to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The kubeconfig; `None` for kubectl's defaults, then the pod's account.
    pub kubeconfig: Option<PathBuf>,
    /// The namespaces whose releases are guarded; empty for all.
    pub namespaces: Vec<String>,
    /// The form in which Helm keeps its records.
    pub record_driver: RecordDriver,
    /// Whether the guard makes no writes at all, not even dry runs.
    pub read_only: bool,
    /// The namespace that Kubemoor itself runs in, which no webhook judges.
    /// `None` when it runs outside of the cluster.
    pub own_namespace: Option<String>,
    /// The Service in front of Kubemoor. Its replicas share a Lease of the same name; `None` without a
    /// Service.
    pub own_service: Option<ServiceRef>,
    /// How the webhooks are kept registered; `None` when another tool registers them.
    pub registration: Option<Registration>,
}

/// How the webhooks are kept registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Where the API server reaches the webhook.
    pub endpoint: Endpoint,
    /// Whether objects without Helm's label are sent too.
    pub select_all: bool,
}

/// The form in which Helm keeps its records (`HELM_DRIVER`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum RecordDriver {
    /// Secrets, Helm's default.
    Secret,
    /// ConfigMaps.
    Configmap,
}

/// How the webhook tells the API server from other clients of its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callers {
    /// The proof in each of its requests.
    pub proof: Proof,
    /// The authority (PEM) of the client certificate that it must also present.
    pub client_ca: Option<PathBuf>,
}

/// The proof in a request of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// A token of this file in the address.
    File(PathBuf),
    /// A token in the address that the guard makes and registers.
    Kept {
        /// For how long.
        life: Duration,
    },
    /// Nothing: the certificate of the connection is the proof.
    Certificate,
}

/// A log filter in the syntax of tracing's `EnvFilter`; known to be valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter(String);

/// Why a setting is none.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SettingError {
    /// A webhook URL that the API server would refuse.
    #[error("a webhook URL is https://HOST[:PORT][/PATH], without user, query and fragment")]
    ReadUrl,
    /// A Service reference of another form.
    #[error("a Service is NAMESPACE/NAME or NAMESPACE/NAME:PORT, such as kubemoor-system/kubemoor:443")]
    ReadService,
    /// No database.
    #[error("a ledger is sqlite:PATH or postgres://USER@HOST/DATABASE")]
    ReadLedger,
    /// A log filter that tracing does not know.
    #[error("a log filter is a list such as info,kubemoor=debug: {0}")]
    ReadLogFilter(String),
}

impl LogFilter {
    /// The filter's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for LogFilter {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        tracing_subscriber::EnvFilter::try_new(text)
            .map(|_| Self(text.to_owned()))
            .map_err(|error| SettingError::ReadLogFilter(error.to_string()))
    }
}

impl fmt::Display for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests;
