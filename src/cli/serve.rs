//! `kubemoor serve`: flags and environment become [`config::Serve`].
//!
//! Entry point: [`run`]. Invariant: flags that contradict each other, or that
//! would have no effect, are an error before anything starts.

mod groups;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

pub(super) use self::groups::names;
use self::groups::{CallerArgs, LedgerArgs, RegisterArgs, TlsArgs};
use super::Outcome;
use super::labels::{self, LabelError};
use crate::app;
use kubemoor_declare::model::{self, DriftMode, EditsMode};
use kubemoor_inspect::times::parse_duration;
use kubemoor_runtime::config::{self, Cluster, CollectorUrl, LogFilter, RecordDriver, Source};

const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9443);
const ADMIN_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9080);

/// The flags of `kubemoor serve`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The kubeconfig [default: kubectl's, then the pod's service account]
    #[arg(long, env = "KUBEMOOR_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Serve the releases of a directory (dir:PATH, with NAMESPACE/RELEASE.yaml files), without a cluster
    #[arg(long, env = "KUBEMOOR_STORE", value_name = "dir:PATH", value_parser = parse_store)]
    store: Option<PathBuf>,

    /// Address of the webhook (TLS)
    #[arg(long, env = "KUBEMOOR_LISTEN", value_name = "ADDRESS:PORT", default_value_t = LISTEN)]
    listen: SocketAddr,

    /// Address of /livez, /readyz, /metrics and the ledger (TLS, with the webhook's certificate)
    #[arg(long, env = "KUBEMOOR_ADMIN_LISTEN", value_name = "ADDRESS:PORT", default_value_t = ADMIN_LISTEN)]
    admin_listen: SocketAddr,

    #[command(flatten)]
    registering: RegisterArgs,

    #[command(flatten)]
    certificate: TlsArgs,

    #[command(flatten)]
    callers: CallerArgs,

    /// Guard the releases of this namespace only; may be repeated
    #[arg(long, env = "KUBEMOOR_NAMESPACE", value_name = "NAMESPACE", value_delimiter = ',')]
    namespace: Vec<String>,

    /// How to answer a change that causes drift
    #[arg(long, env = "KUBEMOOR_EDITS", value_name = "MODE", default_value = "Warn", ignore_case = true)]
    edits: EditsMode,

    /// How to treat drift in the cluster
    #[arg(long, env = "KUBEMOOR_DRIFT", value_name = "MODE", default_value = "Report", ignore_case = true)]
    drift: DriftMode,

    /// A directory of policy files (*.yaml, *.yml, *.json), read again when they change
    #[arg(long, env = "KUBEMOOR_POLICIES", value_name = "DIR")]
    policies: Option<PathBuf>,

    /// A label of this cluster, for policies that select clusters; may be repeated
    #[arg(long, env = "KUBEMOOR_CLUSTER_LABEL", value_name = "KEY=VALUE", value_delimiter = ',', value_parser = labels::parse_label)]
    cluster_label: Vec<(String, String)>,

    /// How long a Helm operation may be silent before its pending record counts as stuck
    #[arg(long, env = "KUBEMOOR_OPERATION_TIMEOUT", value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    operation_timeout: Duration,

    /// How Helm stores its records (HELM_DRIVER) [default: secret]
    #[arg(long, env = "KUBEMOOR_RECORD_DRIVER", value_name = "DRIVER")]
    record_driver: Option<RecordDriver>,

    /// Also register for objects without Helm's label
    #[arg(long, env = "KUBEMOOR_SELECT_ALL")]
    select_all: bool,

    /// Write nothing to the cluster, not even a dry run
    #[arg(long, env = "KUBEMOOR_READ_ONLY")]
    read_only: bool,

    #[command(flatten)]
    ledger: LedgerArgs,

    /// A file with the receivers of notifications about drift, denials, exceptions and emergencies
    #[arg(long, env = "KUBEMOOR_NOTIFIERS", value_name = "FILE")]
    notifiers: Option<PathBuf>,

    /// Leave out the metrics that have a series for each release
    #[arg(long, env = "KUBEMOOR_NO_RELEASE_METRICS")]
    no_release_metrics: bool,

    /// Serve /metrics to everybody who reaches the port, without a token
    #[arg(long, env = "KUBEMOOR_ANONYMOUS_METRICS")]
    anonymous_metrics: bool,

    /// The OpenTelemetry collector that takes traces (OTLP over HTTP), such as http://collector:4318
    #[arg(long, env = "KUBEMOOR_OTLP_ENDPOINT", value_name = "URL")]
    otlp_endpoint: Option<CollectorUrl>,

    /// Which messages are logged
    #[arg(long, env = "KUBEMOOR_LOG", value_name = "FILTER", default_value = "info")]
    log: LogFilter,
}

/// Why flags do not go together.
#[derive(Debug, Error, PartialEq, Eq)]
pub(super) enum ConflictError {
    /// Two flags exclude each other.
    #[error("{0} and {1} exclude each other: leave one of them out")]
    Exclude(&'static str, &'static str),
    /// A flag has no effect, or no meaning, without another.
    #[error("{0} needs {1}: add it, or leave {0} out")]
    Needs(&'static str, &'static str),
    /// Nothing authenticates the API server to the webhook.
    #[error(
        "anybody who reaches the webhook's port could ask this guard: add --register, --caller-token-file or \
         --client-ca, by which it knows the API server"
    )]
    Anybody,
    /// A label with two values.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// A namespace that cannot exist.
    #[error("--namespace {0:?} is no namespace's name: give lower-case letters, digits and dashes")]
    ReadNamespace(String),
    /// A Secret that cannot exist.
    #[error("--tls-secret {0:?} is not the name of a Secret: use lower-case letters, digits and dashes")]
    ReadSecret(String),
}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    app::serve(args.settings()?)?;
    Ok(Outcome::Clean)
}

impl Args {
    /// The settings that the flags amount to.
    pub(super) fn settings(self) -> Result<config::Serve, ConflictError> {
        self.check()?;
        let Self {
            kubeconfig,
            store,
            listen,
            admin_listen,
            registering,
            certificate,
            callers,
            namespace: namespaces,
            edits,
            drift,
            policies,
            cluster_label,
            operation_timeout,
            record_driver,
            select_all,
            read_only,
            ledger,
            notifiers,
            no_release_metrics,
            anonymous_metrics,
            otlp_endpoint,
            log,
        } = self;
        let cluster_labels = labels::collect(cluster_label)?;
        let tls = certificate.settings(&registering)?;
        let registration = registering.settings(select_all)?;
        let callers = callers.settings(registration.is_some())?;
        let shutdown_delay = registering.shutdown_delay();
        let own_service = registering.service;
        let cluster = Cluster {
            kubeconfig,
            namespaces,
            record_driver: record_driver.unwrap_or(RecordDriver::Secret),
            read_only,
            own_namespace: own_service.as_ref().map(|service| service.namespace.clone()),
            own_service,
            registration,
        };
        Ok(config::Serve {
            source: store.map_or(Source::Cluster(cluster), Source::Directory),
            listen,
            admin_listen,
            tls,
            callers,
            edits,
            drift,
            policies,
            cluster_labels,
            operation_timeout,
            ledger: ledger.settings(),
            notifiers,
            release_metrics: !no_release_metrics,
            anonymous_metrics,
            collector: otlp_endpoint,
            shutdown_delay,
            log,
        })
    }

    /// Checks that the flags can be combined. The check uses values instead of the parser's rules, because
    /// the parser treats a switch that the environment sets to `false` as given.
    fn check(&self) -> Result<(), ConflictError> {
        let RegisterArgs { register, service, webhook_url, shutdown_delay: _ } = &self.registering;
        let TlsArgs { tls_dir, tls_secret, tls_cert, .. } = &self.certificate;
        let CallerArgs { caller_token_file, caller_token_age, client_ca: _ } = &self.callers;
        let dir = ("--tls-dir", tls_dir.is_some());
        let cert = ("--tls-cert", tls_cert.is_some());
        let secret = ("--tls-secret", tls_secret.is_some());
        let store = ("--store", self.store.is_some());
        let read_only = ("--read-only", self.read_only);
        let registering = ("--register", *register);
        let repairing = ("--drift Repair", self.drift == DriftMode::Repair);
        let token_age = ("--caller-token-age", caller_token_age.is_some());
        let token_file = ("--caller-token-file", caller_token_file.is_some());
        ConflictError::check_exclusions([
            [("--webhook-url", webhook_url.is_some()), ("--service", service.is_some())],
            [registering, read_only],
            [registering, store],
            [repairing, read_only],
            [repairing, store],
            [("--kubeconfig", self.kubeconfig.is_some()), store],
            [("--namespace", !self.namespace.is_empty()), store],
            [("--record-driver", self.record_driver.is_some()), store],
            [("--notifiers", self.notifiers.is_some()), store],
            [dir, cert],
            [secret, dir],
            [secret, cert],
            [token_age, token_file],
        ])?;
        for (flag, is_given) in [("--select-all", self.select_all), token_age] {
            if is_given && !register {
                return Err(ConflictError::Needs(flag, "--register"));
            }
        }
        if tls_secret.is_some() && !(*register && service.is_some()) {
            return Err(ConflictError::Needs("--tls-secret", "--register and --service"));
        }
        if *register && tls_cert.is_some() && service.is_none() && caller_token_file.is_none() {
            let kept_nowhere = "--tls-cert of a guard that registers without --service";
            return Err(ConflictError::Needs(kept_nowhere, "--caller-token-file"));
        }
        match self.namespace.iter().find(|name| !model::is_dns_label(name)) {
            Some(name) => Err(ConflictError::ReadNamespace(name.clone())),
            None => Ok(()),
        }
    }
}

impl ConflictError {
    /// Fails on the first pair of flags that are both given.
    pub(super) fn check_exclusions(
        pairs: impl IntoIterator<Item = [(&'static str, bool); 2]>,
    ) -> Result<(), Self> {
        let mut given = pairs.into_iter().filter(|pair| pair.iter().all(|(_, is_given)| *is_given));
        given.next().map_or(Ok(()), |[(left, _), (right, _)]| Err(Self::Exclude(left, right)))
    }
}

fn parse_store(text: &str) -> Result<PathBuf, &'static str> {
    match text.strip_prefix("dir:") {
        Some(path) if !path.is_empty() => Ok(PathBuf::from(path)),
        _ => Err("a store is dir:PATH, such as dir:/var/lib/kubemoor"),
    }
}
