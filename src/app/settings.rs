//! The flags and environment variables of `kubemoor serve`. Flags that contradict each other or would have no effect
//! are an error before anything starts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use kubemoor_declare::model::{DriftMode, EditsMode, is_dns_label};
use kubemoor_inspect::times::parse_duration;
use kubemoor_policy::resolver::Labels;
use kubemoor_runtime::config::{
    CallerProof, CollectorUrl, Endpoint, LedgerSettings, LedgerUrl, LogFilter, RecordDriver, Retention,
    ServiceRef, WebhookUrl,
};
use kubemoor_runtime::tls::CertificateSource;

const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9443);
const ADMIN_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9080);

/// How long a token is used in the webhook's URL. It is replaced because the API server may quote the URL in an error
/// message to a user.
const CALLER_TOKEN_AGE: Duration = Duration::from_secs(24 * 3600);

/// How long it takes a Service or a load balancer to notice that a replica is not ready.
const SHUTDOWN_DELAY: Duration = Duration::from_secs(5);

/// How long a certificate in --tls-secret is valid: 90 days.
const TLS_AGE: Duration = Duration::from_secs(90 * 24 * 3600);

#[derive(Debug, clap::Args)]
pub(crate) struct Settings {
    /// The kubeconfig [default: kubectl's, then the pod's service account]
    #[arg(long, env = "KUBEMOOR_KUBECONFIG", value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Serve the releases of a directory (dir:PATH, with NAMESPACE/RELEASE.yaml files), without a cluster
    #[arg(long, env = "KUBEMOOR_STORE", value_name = "dir:PATH", value_parser = parse_store)]
    pub(crate) store: Option<PathBuf>,

    /// Address of the webhook (TLS)
    #[arg(long, env = "KUBEMOOR_LISTEN", value_name = "ADDRESS:PORT", default_value_t = LISTEN)]
    pub(crate) listen: SocketAddr,

    /// Address of /livez, /readyz, /metrics and the ledger (TLS, with the webhook's certificate)
    #[arg(long, env = "KUBEMOOR_ADMIN_LISTEN", value_name = "ADDRESS:PORT", default_value_t = ADMIN_LISTEN)]
    pub(crate) admin_listen: SocketAddr,

    /// Write the webhook configuration and keep it up to date; needs --webhook-url or --service
    #[arg(long, env = "KUBEMOOR_REGISTER")]
    pub(crate) register: bool,

    /// The webhook's URL for the API server, if the webhook is not a Service of the cluster
    #[arg(long, env = "KUBEMOOR_WEBHOOK_URL", value_name = "https://HOST[:PORT][/PATH]")]
    pub(crate) webhook_url: Option<WebhookUrl>,

    /// The webhook's Service; its namespace is Kubemoor's own
    #[arg(long, env = "KUBEMOOR_SERVICE", value_name = "NAMESPACE/NAME[:PORT]")]
    pub(crate) service: Option<ServiceRef>,

    /// How long the guard answers requests after SIGTERM, until the Service or load balancer stops sending them [default: 5s with --register or --service, else 0s]
    #[arg(long, env = "KUBEMOOR_SHUTDOWN_DELAY", value_name = "DURATION", value_parser = parse_delay)]
    pub(crate) shutdown_delay: Option<Duration>,

    /// Directory of the CA and the certificate, which are created if missing [default: certs]
    #[arg(long, env = "KUBEMOOR_TLS_DIR", value_name = "DIR")]
    pub(crate) tls_dir: Option<PathBuf>,

    /// The Secret with the CA and the certificate that the leader creates and renews for all replicas; needs --register and --service
    #[arg(long, env = "KUBEMOOR_TLS_SECRET", value_name = "NAME")]
    pub(crate) tls_secret: Option<String>,

    /// How long a certificate in --tls-secret is valid; its CA is valid four times as long [default: 2160h]
    #[arg(long, env = "KUBEMOOR_TLS_AGE", value_name = "DURATION", value_parser = parse_tls_age)]
    pub(crate) tls_age: Option<Duration>,

    /// An existing certificate chain (PEM); needs --tls-key
    #[arg(long, env = "KUBEMOOR_TLS_CERT", value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// The private key of --tls-cert (PEM)
    #[arg(long, env = "KUBEMOOR_TLS_KEY", value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,

    /// A file with the token in the webhook's URL, if the guard does not generate it; a second line may hold a second token
    #[arg(long, env = "KUBEMOOR_CALLER_TOKEN_FILE", value_name = "FILE")]
    pub(crate) caller_token_file: Option<PathBuf>,

    /// How long a generated token stays in the webhook's URL [default: 24h]
    #[arg(long, env = "KUBEMOOR_CALLER_TOKEN_AGE", value_name = "DURATION", value_parser = parse_age)]
    pub(crate) caller_token_age: Option<Duration>,

    /// The CA (PEM) of the client certificate that the API server presents to webhooks; requests without it are refused
    #[arg(long, env = "KUBEMOOR_CLIENT_CA", value_name = "FILE")]
    pub(crate) client_ca: Option<PathBuf>,

    /// Guard the releases of this namespace only; may be repeated
    #[arg(long, env = "KUBEMOOR_NAMESPACE", value_name = "NAMESPACE", value_delimiter = ',')]
    pub(crate) namespace: Vec<String>,

    /// How to answer a change that causes drift
    #[arg(long, env = "KUBEMOOR_EDITS", value_name = "MODE", default_value = "Warn", ignore_case = true)]
    pub(crate) edits: EditsMode,

    /// How to treat drift in the cluster
    #[arg(long, env = "KUBEMOOR_DRIFT", value_name = "MODE", default_value = "Report", ignore_case = true)]
    pub(crate) drift: DriftMode,

    /// A directory of policy files (*.yaml, *.yml, *.json), read again when they change
    #[arg(long, env = "KUBEMOOR_POLICIES", value_name = "DIR")]
    pub(crate) policies: Option<PathBuf>,

    /// A label of this cluster, for policies that select clusters; may be repeated
    #[arg(long, env = "KUBEMOOR_CLUSTER_LABEL", value_name = "KEY=VALUE", value_delimiter = ',', value_parser = parse_label)]
    pub(crate) cluster_label: Vec<(String, String)>,

    /// How long a Helm operation may be silent before its pending record counts as stuck
    #[arg(long, env = "KUBEMOOR_OPERATION_TIMEOUT", value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    pub(crate) operation_timeout: Duration,

    /// How Helm stores its records (HELM_DRIVER) [default: secret]
    #[arg(long, env = "KUBEMOOR_RECORD_DRIVER", value_name = "DRIVER")]
    pub(crate) record_driver: Option<RecordDriver>,

    /// Also register for objects without Helm's label
    #[arg(long, env = "KUBEMOOR_SELECT_ALL")]
    pub(crate) select_all: bool,

    /// Write nothing to the cluster, not even a dry run
    #[arg(long, env = "KUBEMOOR_READ_ONLY")]
    pub(crate) read_only: bool,

    /// Database of the audit ledger: sqlite:PATH or postgres://USER@HOST/DATABASE
    #[arg(
        long,
        env = "KUBEMOOR_LEDGER",
        value_name = "URL",
        default_value = "sqlite:ledger.db",
        hide_env_values = true
    )]
    pub(crate) ledger: LedgerUrl,

    /// How long rows of the ledger are kept
    #[arg(long, env = "KUBEMOOR_LEDGER_AGE", value_name = "DURATION", default_value = "2160h", value_parser = parse_duration)]
    pub(crate) ledger_age: Duration,

    /// How many rows of this cluster the ledger keeps
    #[arg(long, env = "KUBEMOOR_LEDGER_ROWS", value_name = "NUMBER", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) ledger_rows: u64,

    /// The cluster's name on every row of the ledger [default: the uid of namespace kube-system]
    #[arg(long, env = "KUBEMOOR_CLUSTER_NAME", value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) cluster_name: Option<String>,

    /// A file with the receivers of notifications about drift, denials, exceptions and emergencies
    #[arg(long, env = "KUBEMOOR_NOTIFIERS", value_name = "FILE")]
    pub(crate) notifiers: Option<PathBuf>,

    /// Omit the metrics that have a series for each release
    #[arg(long, env = "KUBEMOOR_NO_RELEASE_METRICS")]
    pub(crate) no_release_metrics: bool,

    /// Serve /metrics without a token to everyone who can reach the port
    #[arg(long, env = "KUBEMOOR_ANONYMOUS_METRICS")]
    pub(crate) anonymous_metrics: bool,

    /// The OpenTelemetry collector for traces (OTLP over HTTP), such as http://collector:4318
    #[arg(long, env = "KUBEMOOR_OTLP_ENDPOINT", value_name = "URL")]
    pub(crate) otlp_endpoint: Option<CollectorUrl>,

    /// The log filter
    #[arg(long, env = "KUBEMOOR_LOG", value_name = "FILTER", default_value = "info")]
    pub(crate) log: LogFilter,
}

#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum ConflictError {
    #[error("{0} and {1} cannot be used together: remove one of them")]
    Exclude(&'static str, &'static str),
    /// A flag has no effect, or no meaning, without another.
    #[error("{0} requires {1}: add it, or remove {0}")]
    Needs(&'static str, &'static str),
    /// The webhook has no way to authenticate the API server.
    #[error(
        "the guard could not tell the API server from other callers of the webhook's port: add --register, \
         --caller-token-file or --client-ca"
    )]
    Unauthenticated,
    #[error("--cluster-label {0} has two values: remove one of them")]
    LabelTwice(String),
    #[error("--namespace {0:?} is not the name of a namespace: use lower-case letters, digits and dashes")]
    InvalidNamespace(String),
    #[error("--tls-secret {0:?} is not the name of a Secret: use lower-case letters, digits and dashes")]
    InvalidSecretName(String),
}

impl Settings {
    /// Checks that the flags can be combined; the other methods rely on it. clap's own rules would not do: clap treats
    /// a switch that the environment sets to `false` as given.
    pub(crate) fn check(&self) -> Result<(), ConflictError> {
        let register = ("--register", self.register);
        let service = ("--service", self.service.is_some());
        let store = ("--store", self.store.is_some());
        let read_only = ("--read-only", self.read_only);
        let repair = ("--drift Repair", self.drift == DriftMode::Repair);
        let dir = ("--tls-dir", self.tls_dir.is_some());
        let secret = ("--tls-secret", self.tls_secret.is_some());
        let cert = ("--tls-cert", self.tls_cert.is_some());
        let key = ("--tls-key", self.tls_key.is_some());
        let token_age = ("--caller-token-age", self.caller_token_age.is_some());
        let token_file = ("--caller-token-file", self.caller_token_file.is_some());
        ConflictError::check_exclusions([
            [("--webhook-url", self.webhook_url.is_some()), service],
            [register, read_only],
            [register, store],
            [repair, read_only],
            [repair, store],
            [("--kubeconfig", self.kubeconfig.is_some()), store],
            [("--namespace", !self.namespace.is_empty()), store],
            [("--record-driver", self.record_driver.is_some()), store],
            [("--notifiers", self.notifiers.is_some()), store],
            [dir, cert],
            [secret, dir],
            [secret, cert],
            [token_age, token_file],
        ])?;
        let is_kept_nowhere = register.1 && cert.1 && !service.1;
        let needs = [
            (("--select-all", self.select_all), register),
            (token_age, register),
            (secret, ("--register and --service", register.1 && service.1)),
            (("--tls-cert of a guard that registers without --service", is_kept_nowhere), token_file),
            (("--tls-age", self.tls_age.is_some()), secret),
            (cert, key),
            (key, cert),
            (register, ("--webhook-url or --service", self.endpoint().is_some())),
        ];
        if let Some((flag, needed)) = needs.into_iter().find(|(flag, needed)| flag.1 && !needed.1) {
            return Err(ConflictError::Needs(flag.0, needed.0));
        }
        if let Some(name) = self.namespace.iter().find(|name| !is_dns_label(name)) {
            return Err(ConflictError::InvalidNamespace(name.clone()));
        }
        if let Some(name) = self.tls_secret.iter().find(|name| !is_dns_label(name)) {
            return Err(ConflictError::InvalidSecretName(name.clone()));
        }
        collect_labels(&self.cluster_label)?;
        match register.1 || token_file.1 || self.client_ca.is_some() {
            true => Ok(()),
            false => Err(ConflictError::Unauthenticated),
        }
    }

    pub(crate) fn cluster_labels(&self) -> Labels {
        self.cluster_label.iter().cloned().collect()
    }

    pub(crate) fn record_driver(&self) -> RecordDriver {
        self.record_driver.unwrap_or(RecordDriver::Secret)
    }

    /// The namespace that the guard runs in, which the webhooks exclude. `None` if it runs outside the cluster.
    pub(crate) fn own_namespace(&self) -> Option<&str> {
        self.service.as_ref().map(|service| service.namespace.as_str())
    }

    /// The address at which the API server reaches the webhook.
    pub(crate) fn endpoint(&self) -> Option<Endpoint> {
        let service = self.service.clone().map(Endpoint::Service);
        self.webhook_url.clone().map(Endpoint::Url).or(service)
    }

    /// How long the guard keeps answering after a stop signal. Together with the shutdown of the server and the ledger
    /// this must stay below the chart's `terminationGracePeriodSeconds`.
    pub(crate) fn shutdown_delay(&self) -> Duration {
        let is_routed = self.register || self.service.is_some();
        self.shutdown_delay.unwrap_or(if is_routed { SHUTDOWN_DELAY } else { Duration::ZERO })
    }

    pub(crate) fn certificate(&self) -> CertificateSource {
        let names = names(self.endpoint().as_ref());
        match (&self.tls_secret, &self.service, &self.tls_cert, &self.tls_key) {
            (Some(secret), Some(service), _, _) => CertificateSource::Shared {
                namespace: service.namespace.clone(),
                secret: secret.clone(),
                names,
                life: self.tls_age.unwrap_or(TLS_AGE),
            },
            (_, _, Some(certificate), Some(key)) => {
                CertificateSource::Files { certificate: certificate.clone(), key: key.clone() }
            }
            _ => {
                let directory = self.tls_dir.clone().unwrap_or_else(|| PathBuf::from("certs"));
                CertificateSource::SelfMade { directory, names }
            }
        }
    }

    pub(crate) fn caller_proof(&self) -> CallerProof {
        match &self.caller_token_file {
            Some(file) => CallerProof::File(file.clone()),
            None if self.register => {
                CallerProof::Kept { life: self.caller_token_age.unwrap_or(CALLER_TOKEN_AGE) }
            }
            None => CallerProof::Certificate,
        }
    }

    pub(crate) fn ledger(&self) -> LedgerSettings {
        let retention = Retention { age: self.ledger_age, rows: self.ledger_rows };
        LedgerSettings { url: self.ledger.clone(), retention }
    }
}

impl ConflictError {
    /// Fails on the first pair of flags that are both given.
    pub(crate) fn check_exclusions(
        pairs: impl IntoIterator<Item = [(&'static str, bool); 2]>,
    ) -> Result<(), Self> {
        let mut given = pairs.into_iter().filter(|pair| pair.iter().all(|(_, is_given)| *is_given));
        given.next().map_or(Ok(()), |[(left, _), (right, _)]| Err(Self::Exclude(left, right)))
    }
}

/// The names in a self-made certificate: those that the API server and `kubectl port-forward` connect to.
pub(crate) fn names(endpoint: Option<&Endpoint>) -> Vec<String> {
    let mut names = endpoint.map(Endpoint::names).unwrap_or_default();
    let local = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    names.extend(local.into_iter().filter(|name| !names.contains(name)).collect::<Vec<_>>());
    names
}

pub(crate) fn collect_labels(pairs: &[(String, String)]) -> Result<Labels, ConflictError> {
    let mut labels = Labels::new();
    for (key, value) in pairs {
        if labels.insert(key.clone(), value.clone()).is_some_and(|before| before != *value) {
            return Err(ConflictError::LabelTwice(key.clone()));
        }
    }
    Ok(labels)
}

/// Parses a Kubernetes label: `[PREFIX/]NAME=VALUE`.
pub(crate) fn parse_label(text: &str) -> Result<(String, String), &'static str> {
    let form = "a label must be KEY=VALUE, such as env=prod";
    let (key, value) = text.split_once('=').ok_or(form)?;
    let known = |text: &str, more: &str| {
        text.chars().all(|letter| letter.is_ascii_alphanumeric() || more.contains(letter))
    };
    let fits = !key.is_empty() && key.len() <= 317 && value.len() <= 63;
    let is_label = fits && known(key, "-_./") && known(value, "-_.");
    is_label.then(|| (key.to_owned(), value.to_owned())).ok_or(form)
}

fn parse_store(text: &str) -> Result<PathBuf, &'static str> {
    match text.strip_prefix("dir:") {
        Some(path) if !path.is_empty() => Ok(PathBuf::from(path)),
        _ => Err("a store must be dir:PATH, such as dir:/var/lib/kubemoor"),
    }
}

fn parse_delay(text: &str) -> Result<Duration, String> {
    match text {
        "0" | "0s" => Ok(Duration::ZERO),
        text => parse_duration(text),
    }
}

/// Parses the lifetime of a token or certificate, long enough to be replaced in time.
fn parse_age(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        age if age < Duration::from_secs(10) => Err("an age must be at least 10s".to_owned()),
        age => Ok(age),
    }
}

/// Parses the lifetime of a certificate.
fn parse_tls_age(text: &str) -> Result<Duration, String> {
    match parse_age(text)? {
        age if age > TLS_AGE * 40 => Err("an age must be at most 86400h".to_owned()),
        age => Ok(age),
    }
}
