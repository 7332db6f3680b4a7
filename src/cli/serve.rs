//! `kubemoor serve`: flags and environment become [`config::Serve`]. Flags that contradict each other, or that would have no
//! effect, are an error before anything starts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use super::CommandOutcome;
use super::connect::{collect_labels, parse_label};
use crate::app;
use kubemoor_declare::model::{self, DriftMode, EditsMode, is_dns_label};
use kubemoor_inspect::times::parse_duration;
use kubemoor_runtime::config::{
    self, CallerProof, CallerSettings, ClusterSettings, CollectorUrl, Endpoint, LedgerSettings, LedgerUrl,
    LogFilter, RecordDriver, ReleaseLocation, Retention, ServiceRef, WebhookRegistration, WebhookUrl,
};
use kubemoor_runtime::tls::CertificateSource;

const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9443);
const ADMIN_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9080);

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
    #[arg(long, env = "KUBEMOOR_CLUSTER_LABEL", value_name = "KEY=VALUE", value_delimiter = ',', value_parser = parse_label)]
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

#[derive(Debug, Error, PartialEq, Eq)]
pub(super) enum ConflictError {
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
    #[error("--cluster-label {0} is given with two values: leave one of them out")]
    LabelTwice(String),
    #[error("--namespace {0:?} is no namespace's name: give lower-case letters, digits and dashes")]
    ReadNamespace(String),
    #[error("--tls-secret {0:?} is not the name of a Secret: use lower-case letters, digits and dashes")]
    ReadSecret(String),
}

pub(super) fn run(args: Args) -> anyhow::Result<CommandOutcome> {
    app::serve(args.settings()?)?;
    Ok(CommandOutcome::Clean)
}

impl Args {
    pub(super) fn settings(self) -> Result<config::Serve, ConflictError> {
        self.check()?;
        let cluster_labels = collect_labels(self.cluster_label)?;
        let tls = self.certificate.settings(&self.registering)?;
        let registration = self.registering.settings(self.select_all)?;
        let callers = self.callers.settings(registration.is_some())?;
        let shutdown_delay = self.registering.shutdown_delay();
        let own_service = self.registering.service;
        let cluster = ClusterSettings {
            kubeconfig: self.kubeconfig,
            namespaces: self.namespace,
            record_driver: self.record_driver.unwrap_or(RecordDriver::Secret),
            read_only: self.read_only,
            own_namespace: own_service.as_ref().map(|service| service.namespace.clone()),
            own_service,
            registration,
        };
        Ok(config::Serve {
            source: self.store.map_or(ReleaseLocation::Cluster(cluster), ReleaseLocation::Directory),
            listen: self.listen,
            admin_listen: self.admin_listen,
            tls,
            callers,
            edits: self.edits,
            drift: self.drift,
            policies: self.policies,
            cluster_labels,
            operation_timeout: self.operation_timeout,
            ledger: self.ledger.settings(),
            notifiers: self.notifiers,
            release_metrics: !self.no_release_metrics,
            anonymous_metrics: self.anonymous_metrics,
            collector: self.otlp_endpoint,
            shutdown_delay,
            log: self.log,
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

/// For how long a token is registered. The API server may quote the address to
/// whomever it could not ask the guard for.
const CALLER_TOKEN_AGE: Duration = Duration::from_secs(24 * 3600);

/// How long it takes a Service or a load balancer to notice that a replica is not ready.
const SHUTDOWN_DELAY: Duration = Duration::from_secs(5);

/// For how long a certificate in --tls-secret is valid: 90 days.
const TLS_AGE: Duration = Duration::from_secs(90 * 24 * 3600);

/// How the API server reaches the webhook.
#[derive(Debug, clap::Args)]
pub(super) struct RegisterArgs {
    /// Write the webhook configuration and keep it; needs --webhook-url or --service
    #[arg(long, env = "KUBEMOOR_REGISTER")]
    pub(super) register: bool,

    /// The webhook's URL for the API server, if the webhook is not a Service of the cluster
    #[arg(long, env = "KUBEMOOR_WEBHOOK_URL", value_name = "https://HOST[:PORT][/PATH]")]
    pub(super) webhook_url: Option<WebhookUrl>,

    /// The webhook's Service; its namespace is Kubemoor's own
    #[arg(long, env = "KUBEMOOR_SERVICE", value_name = "NAMESPACE/NAME[:PORT]")]
    pub(super) service: Option<ServiceRef>,

    /// How long the guard answers requests after SIGTERM, until a Service or load balancer sends it none [default: 5s with --register or --service, else 0s]
    #[arg(long, env = "KUBEMOOR_SHUTDOWN_DELAY", value_name = "DURATION", value_parser = parse_delay)]
    pub(super) shutdown_delay: Option<Duration>,
}

/// The webhook's certificate.
#[derive(Debug, clap::Args)]
pub(super) struct TlsArgs {
    /// Directory of the CA and the certificate, which are made if they are missing [default: certs]
    #[arg(long, env = "KUBEMOOR_TLS_DIR", value_name = "DIR")]
    pub(super) tls_dir: Option<PathBuf>,

    /// The Secret with the CA and the certificate that the leader makes and renews for all replicas; needs --register and --service
    #[arg(long, env = "KUBEMOOR_TLS_SECRET", value_name = "NAME")]
    pub(super) tls_secret: Option<String>,

    /// For how long a certificate in --tls-secret is valid; its CA is valid four times as long [default: 2160h]
    #[arg(long, env = "KUBEMOOR_TLS_AGE", value_name = "DURATION", value_parser = parse_tls_age)]
    pub(super) tls_age: Option<Duration>,

    /// A certificate chain made elsewhere (PEM); needs --tls-key
    #[arg(long, env = "KUBEMOOR_TLS_CERT", value_name = "FILE")]
    pub(super) tls_cert: Option<PathBuf>,

    /// The private key of --tls-cert (PEM)
    #[arg(long, env = "KUBEMOOR_TLS_KEY", value_name = "FILE")]
    pub(super) tls_key: Option<PathBuf>,
}

/// Whom the webhook answers.
#[derive(Debug, clap::Args)]
pub(super) struct CallerArgs {
    /// A file with the token in the webhook's URL, if the guard does not make it; a second line holds a second token
    #[arg(long, env = "KUBEMOOR_CALLER_TOKEN_FILE", value_name = "FILE")]
    pub(super) caller_token_file: Option<PathBuf>,

    /// How long the webhook's URL keeps a token that the guard makes [default: 24h]
    #[arg(long, env = "KUBEMOOR_CALLER_TOKEN_AGE", value_name = "DURATION", value_parser = parse_age)]
    pub(super) caller_token_age: Option<Duration>,

    /// The CA (PEM) of the certificate that the API server shows to webhooks; requests without it are refused
    #[arg(long, env = "KUBEMOOR_CLIENT_CA", value_name = "FILE")]
    pub(super) client_ca: Option<PathBuf>,
}

/// The database of the audit ledger.
#[derive(Debug, clap::Args)]
pub(super) struct LedgerArgs {
    /// Database of the audit ledger: sqlite:PATH or postgres://USER@HOST/DATABASE
    #[arg(
        long,
        env = "KUBEMOOR_LEDGER",
        value_name = "URL",
        default_value = "sqlite:ledger.db",
        hide_env_values = true
    )]
    pub(super) ledger: LedgerUrl,

    /// How long rows of the ledger are kept
    #[arg(long, env = "KUBEMOOR_LEDGER_AGE", value_name = "DURATION", default_value = "2160h", value_parser = parse_duration)]
    pub(super) ledger_age: Duration,

    /// How many rows of this cluster the ledger keeps
    #[arg(long, env = "KUBEMOOR_LEDGER_ROWS", value_name = "NUMBER", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) ledger_rows: u64,

    /// The cluster's name on every row of the ledger [default: the uid of namespace kube-system]
    #[arg(long, env = "KUBEMOOR_CLUSTER_NAME", value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(super) cluster_name: Option<String>,
}

impl RegisterArgs {
    /// The address at which the API server reaches the webhook.
    pub(super) fn endpoint(&self) -> Option<Endpoint> {
        let service = self.service.clone().map(Endpoint::Service);
        self.webhook_url.clone().map(Endpoint::Url).or(service)
    }

    /// How long the guard goes on answering after it was told to stop.
    pub(super) fn shutdown_delay(&self) -> Duration {
        let is_routed = self.register || self.service.is_some();
        self.shutdown_delay.unwrap_or(if is_routed { SHUTDOWN_DELAY } else { Duration::ZERO })
    }

    /// The settings for registering the webhooks; `None` without `--register`.
    pub(super) fn settings(&self, select_all: bool) -> Result<Option<WebhookRegistration>, ConflictError> {
        match (self.register, self.endpoint()) {
            (false, _) => Ok(None),
            (true, Some(endpoint)) => Ok(Some(WebhookRegistration { endpoint, select_all })),
            (true, None) => Err(ConflictError::Needs("--register", "--webhook-url or --service")),
        }
    }
}

impl TlsArgs {
    pub(super) fn settings(self, registering: &RegisterArgs) -> Result<CertificateSource, ConflictError> {
        let names = names(registering.endpoint().as_ref());
        if self.tls_age.is_some() && self.tls_secret.is_none() {
            return Err(ConflictError::Needs("--tls-age", "--tls-secret"));
        }
        if let (Some(secret), Some(service)) = (self.tls_secret, &registering.service) {
            if !is_dns_label(&secret) {
                return Err(ConflictError::ReadSecret(secret));
            }
            let (namespace, life) = (service.namespace.clone(), self.tls_age.unwrap_or(TLS_AGE));
            return Ok(CertificateSource::Shared { namespace, secret, names, life });
        }
        match (self.tls_cert, self.tls_key) {
            (Some(certificate), Some(key)) => Ok(CertificateSource::Given { certificate, key }),
            (Some(_), None) => Err(ConflictError::Needs("--tls-cert", "--tls-key")),
            (None, Some(_)) => Err(ConflictError::Needs("--tls-key", "--tls-cert")),
            (None, None) => {
                let directory = self.tls_dir.unwrap_or_else(|| PathBuf::from("certs"));
                Ok(CertificateSource::SelfMade { directory, names })
            }
        }
    }
}

impl CallerArgs {
    pub(super) fn settings(self, is_registered: bool) -> Result<CallerSettings, ConflictError> {
        let Self { caller_token_file, caller_token_age, client_ca } = self;
        let proof = match caller_token_file {
            Some(file) => CallerProof::File(file),
            None if is_registered => CallerProof::Kept { life: caller_token_age.unwrap_or(CALLER_TOKEN_AGE) },
            None if client_ca.is_some() => CallerProof::Certificate,
            None => return Err(ConflictError::Anybody),
        };
        Ok(CallerSettings { proof, client_ca })
    }
}

impl LedgerArgs {
    pub(super) fn settings(self) -> LedgerSettings {
        let Self { ledger, ledger_age, ledger_rows, cluster_name } = self;
        let retention = Retention { age: ledger_age, rows: ledger_rows };
        LedgerSettings { url: ledger, cluster_name, retention }
    }
}

/// The names in a self-made certificate: those that the API server calls, and those that
/// `kubectl port-forward` uses.
pub(in crate::cli) fn names(endpoint: Option<&Endpoint>) -> Vec<String> {
    let mut names = endpoint.map(Endpoint::names).unwrap_or_default();
    let local = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    names.extend(local.into_iter().filter(|name| !names.contains(name)).collect::<Vec<_>>());
    names
}

fn parse_delay(text: &str) -> Result<Duration, String> {
    match text {
        "0" | "0s" => Ok(Duration::ZERO),
        text => parse_duration(text),
    }
}

/// A time in which a token or a certificate can follow another.
fn parse_age(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        age if age < Duration::from_secs(10) => Err("an age is at least 10s".to_owned()),
        age => Ok(age),
    }
}

/// A time for which a certificate can be valid.
fn parse_tls_age(text: &str) -> Result<Duration, String> {
    match parse_age(text)? {
        age if age > TLS_AGE * 40 => Err("an age is at most 86400h".to_owned()),
        age => Ok(age),
    }
}
