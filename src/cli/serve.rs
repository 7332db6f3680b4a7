//! `kubemoor serve`: flags and environment become [`config::Serve`].
//!
//! Entry point: [`run`]. Invariant: flags that contradict each other, or that
//! would have no effect, are an error before anything starts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use jiff::SignedDuration;
use thiserror::Error;

use super::Outcome;
use super::labels::{LabelArgs, LabelError};
use crate::app;
use crate::config::{
    self, Callers, Cluster, Endpoint, LedgerUrl, LogFilter, Proof, RecordDriver, Registration, Retention,
    ServiceRef, Source, Tls, WebhookUrl,
};
use crate::model::{DriftMode, EditsMode};

const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9443);
/// For how long a token is registered. The API server may quote the address to
/// whomever it could not ask the guard for.
const CALLER_TOKEN_AGE: Duration = Duration::from_secs(24 * 3600);

/// For how long a certificate in --tls-secret is valid: 90 days.
const TLS_AGE: Duration = Duration::from_secs(90 * 24 * 3600);

const ADMIN_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9080);

/// The flags of `kubemoor serve`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The kubeconfig; without it kubectl's defaults, then the pod's account
    #[arg(long, env = "KUBEMOOR_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Serve the releases of a directory (dir:PATH, with NAMESPACE/RELEASE.yaml files), without a cluster
    #[arg(long, env = "KUBEMOOR_STORE", value_name = "dir:PATH", value_parser = parse_store)]
    store: Option<PathBuf>,

    /// Where the webhook listens (TLS)
    #[arg(long, env = "KUBEMOOR_LISTEN", value_name = "ADDRESS:PORT", default_value_t = LISTEN)]
    listen: SocketAddr,

    /// Where /livez, /readyz, /metrics and the ledger are served (TLS, with the webhook's certificate)
    #[arg(long, env = "KUBEMOOR_ADMIN_LISTEN", value_name = "ADDRESS:PORT", default_value_t = ADMIN_LISTEN)]
    admin_listen: SocketAddr,

    /// Write the webhook configuration and keep it; needs --webhook-url or --service
    #[arg(long, env = "KUBEMOOR_REGISTER")]
    register: bool,

    /// Where the API server reaches the webhook when it is no Service of the cluster
    #[arg(long, env = "KUBEMOOR_WEBHOOK_URL", value_name = "https://HOST[:PORT][/PATH]")]
    webhook_url: Option<WebhookUrl>,

    /// The Service behind which the webhook is reached; its namespace is Kubemoor's own
    #[arg(long, env = "KUBEMOOR_SERVICE", value_name = "NAMESPACE/NAME[:PORT]")]
    service: Option<ServiceRef>,

    /// Where the CA and the certificate are, or are made [default: certs]
    #[arg(long, env = "KUBEMOOR_TLS_DIR", value_name = "DIR")]
    tls_dir: Option<PathBuf>,

    /// The Secret by which replicas share a CA and a certificate that their leader makes and renews; needs --register and --service
    #[arg(long, env = "KUBEMOOR_TLS_SECRET", value_name = "NAME")]
    tls_secret: Option<String>,

    /// For how long a certificate in --tls-secret is valid; its CA is valid four times as long [default: 2160h]
    #[arg(long, env = "KUBEMOOR_TLS_AGE", value_name = "DURATION", value_parser = parse_tls_age)]
    tls_age: Option<Duration>,

    /// A certificate chain made elsewhere (PEM); needs --tls-key
    #[arg(long, env = "KUBEMOOR_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,

    /// The private key of --tls-cert (PEM)
    #[arg(long, env = "KUBEMOOR_TLS_KEY", value_name = "FILE")]
    tls_key: Option<PathBuf>,

    /// A file with the token of the webhook's address, where the guard does not make it; two lines for two of them
    #[arg(long, env = "KUBEMOOR_CALLER_TOKEN_FILE", value_name = "FILE")]
    caller_token_file: Option<PathBuf>,

    /// For how long the webhook's address keeps a token that the guard makes [default: 24h]
    #[arg(long, env = "KUBEMOOR_CALLER_TOKEN_AGE", value_name = "DURATION", value_parser = parse_age)]
    caller_token_age: Option<Duration>,

    /// The authority (PEM) that signs the certificate which the API server shows to webhooks; nobody else is heard
    #[arg(long, env = "KUBEMOOR_CLIENT_CA", value_name = "FILE")]
    client_ca: Option<PathBuf>,

    /// Guard the releases of this namespace only; may be repeated
    #[arg(long, env = "KUBEMOOR_NAMESPACE", value_name = "NAMESPACE", value_delimiter = ',')]
    namespace: Vec<String>,

    /// What becomes of an edit that drifts
    #[arg(long, env = "KUBEMOOR_EDITS", value_name = "MODE", default_value = "Warn", ignore_case = true)]
    edits: EditsMode,

    /// What becomes of drift that the loop finds
    #[arg(long, env = "KUBEMOOR_DRIFT", value_name = "MODE", default_value = "Report", ignore_case = true)]
    drift: DriftMode,

    /// A directory of policy files (*.yaml, *.yml, *.json), read again when they change
    #[arg(long, env = "KUBEMOOR_POLICIES", value_name = "DIR")]
    policies: Option<PathBuf>,

    #[command(flatten)]
    cluster_labels: LabelArgs,

    /// How long a Helm operation may be silent before its pending record counts as stuck
    #[arg(long, env = "KUBEMOOR_OPERATION_TIMEOUT", value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    operation_timeout: Duration,

    /// The form in which Helm keeps its records (HELM_DRIVER) [default: secret]
    #[arg(long, env = "KUBEMOOR_RECORD_DRIVER", value_name = "DRIVER")]
    record_driver: Option<RecordDriver>,

    /// Register for objects without Helm's label as well
    #[arg(long, env = "KUBEMOOR_SELECT_ALL")]
    select_all: bool,

    /// Write nothing to the cluster, not even a dry run
    #[arg(long, env = "KUBEMOOR_READ_ONLY")]
    read_only: bool,

    /// Where is kept who did what: sqlite:PATH or postgres://USER@HOST/DATABASE
    #[arg(
        long,
        env = "KUBEMOOR_LEDGER",
        value_name = "URL",
        default_value = "sqlite:ledger.db",
        hide_env_values = true
    )]
    ledger: LedgerUrl,

    /// How long rows of the ledger are kept
    #[arg(long, env = "KUBEMOOR_LEDGER_AGE", value_name = "DURATION", default_value = "2160h", value_parser = parse_duration)]
    ledger_age: Duration,

    /// How many rows of this cluster the ledger keeps
    #[arg(long, env = "KUBEMOOR_LEDGER_ROWS", value_name = "NUMBER", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    ledger_rows: u64,

    /// The cluster's name on every row of the ledger [default: the uid of namespace kube-system]
    #[arg(long, env = "KUBEMOOR_CLUSTER_NAME", value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    cluster_name: Option<String>,
    /// A file that names who is told of drifts and repairs, as CloudEvents over HTTP
    #[arg(long, env = "KUBEMOOR_NOTIFIERS", value_name = "FILE")]
    notifiers: Option<PathBuf>,

    /// Leave out the metrics that have a series for each release
    #[arg(long, env = "KUBEMOOR_NO_RELEASE_METRICS")]
    no_release_metrics: bool,

    /// What is logged
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
    /// Nothing tells the API server from everybody else.
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
        let Self {
            kubeconfig,
            store,
            listen,
            admin_listen,
            register,
            webhook_url,
            service,
            tls_dir,
            tls_secret,
            tls_age,
            tls_cert,
            tls_key,
            caller_token_file,
            caller_token_age,
            client_ca,
            namespace,
            edits,
            drift,
            policies,
            cluster_labels,
            operation_timeout,
            record_driver,
            select_all,
            read_only,
            ledger,
            ledger_age,
            ledger_rows,
            cluster_name,
            notifiers,
            no_release_metrics,
            log,
        } = self;
        let repair = drift == DriftMode::Repair;
        // Judged on values and not by the parser, to which a switch set to
        // `false` in the environment counts as given.
        for (left, left_given, right, right_given) in [
            ("--webhook-url", webhook_url.is_some(), "--service", service.is_some()),
            ("--register", register, "--read-only", read_only),
            ("--register", register, "--store", store.is_some()),
            ("--drift Repair", repair, "--read-only", read_only),
            ("--drift Repair", repair, "--store", store.is_some()),
            ("--kubeconfig", kubeconfig.is_some(), "--store", store.is_some()),
            ("--namespace", !namespace.is_empty(), "--store", store.is_some()),
            ("--record-driver", record_driver.is_some(), "--store", store.is_some()),
            ("--notifiers", notifiers.is_some(), "--store", store.is_some()),
            ("--tls-dir", tls_dir.is_some(), "--tls-cert", tls_cert.is_some()),
            ("--tls-secret", tls_secret.is_some(), "--tls-dir", tls_dir.is_some()),
            ("--tls-secret", tls_secret.is_some(), "--tls-cert", tls_cert.is_some()),
            (
                "--caller-token-age",
                caller_token_age.is_some(),
                "--caller-token-file",
                caller_token_file.is_some(),
            ),
        ] {
            if left_given && right_given {
                return Err(ConflictError::Exclude(left, right));
            }
        }
        if select_all && !register {
            return Err(ConflictError::Needs("--select-all", "--register"));
        }
        if caller_token_age.is_some() && !register {
            return Err(ConflictError::Needs("--caller-token-age", "--register"));
        }
        if tls_secret.is_some() && !(register && service.is_some()) {
            return Err(ConflictError::Needs("--tls-secret", "--register and --service"));
        }
        if tls_age.is_some() && tls_secret.is_none() {
            return Err(ConflictError::Needs("--tls-age", "--tls-secret"));
        }
        if let Some(name) = tls_secret.as_ref().filter(|name| !config::is_dns_label(name)) {
            return Err(ConflictError::ReadSecret(name.clone()));
        }
        if register && tls_cert.is_some() && service.is_none() && caller_token_file.is_none() {
            let kept_nowhere = "--tls-cert of a guard that registers without --service";
            return Err(ConflictError::Needs(kept_nowhere, "--caller-token-file"));
        }
        if let Some(name) = namespace.iter().find(|name| !config::is_dns_label(name)) {
            return Err(ConflictError::ReadNamespace(name.clone()));
        }
        let cluster_labels = cluster_labels.labels()?;

        let own_service = service.clone();
        let own_namespace = service.as_ref().map(|service| service.namespace.clone());
        let endpoint = webhook_url.map(Endpoint::Url).or(service.map(Endpoint::Service));
        let shared = tls_secret.zip(own_namespace.clone()).map(|(secret, namespace)| Tls::Shared {
            namespace,
            secret,
            names: names(endpoint.as_ref()),
            life: tls_age.unwrap_or(TLS_AGE),
        });
        let tls = match shared {
            Some(shared) => shared,
            None => tls(tls_dir, tls_cert, tls_key, endpoint.as_ref())?,
        };
        let registration = match (register, endpoint) {
            (false, _) => None,
            (true, Some(endpoint)) => Some(Registration { endpoint, select_all }),
            (true, None) => return Err(ConflictError::Needs("--register", "--webhook-url or --service")),
        };
        let proof = match (caller_token_file, &registration, &client_ca) {
            (Some(file), _, _) => Proof::File(file),
            (None, Some(_), _) => Proof::Kept { life: caller_token_age.unwrap_or(CALLER_TOKEN_AGE) },
            (None, None, Some(_)) => Proof::Certificate,
            (None, None, None) => return Err(ConflictError::Anybody),
        };
        let source = match store {
            Some(path) => Source::Directory(path),
            None => Source::Cluster(Cluster {
                kubeconfig,
                namespaces: namespace,
                record_driver: record_driver.unwrap_or(RecordDriver::Secret),
                read_only,
                own_namespace,
                own_service,
                registration,
            }),
        };
        let retention = Retention { age: ledger_age, rows: ledger_rows };
        let ledger = config::Ledger { url: ledger, cluster_name, retention };
        Ok(config::Serve {
            source,
            listen,
            admin_listen,
            tls,
            callers: Callers { proof, client_ca },
            edits,
            drift,
            policies,
            cluster_labels,
            operation_timeout,
            ledger,
            notifiers,
            release_metrics: !no_release_metrics,
            log,
        })
    }
}

fn tls(
    dir: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    endpoint: Option<&Endpoint>,
) -> Result<Tls, ConflictError> {
    match (cert, key) {
        (Some(cert), Some(key)) => Ok(Tls::Given { cert, key }),
        (Some(_), None) => Err(ConflictError::Needs("--tls-cert", "--tls-key")),
        (None, Some(_)) => Err(ConflictError::Needs("--tls-key", "--tls-cert")),
        (None, None) => {
            let dir = dir.unwrap_or_else(|| PathBuf::from("certs"));
            Ok(Tls::Made { dir, names: names(endpoint) })
        }
    }
}

/// The names that a certificate made here is for: those by which the API server
/// calls, and those by which `kubectl port-forward` is reached.
pub(super) fn names(endpoint: Option<&Endpoint>) -> Vec<String> {
    let mut names = endpoint.map(Endpoint::names).unwrap_or_default();
    let local = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    names.extend(local.into_iter().filter(|name| !names.contains(name)).collect::<Vec<_>>());
    names
}

fn parse_store(text: &str) -> Result<PathBuf, &'static str> {
    match text.strip_prefix("dir:") {
        Some(path) if !path.is_empty() => Ok(PathBuf::from(path)),
        _ => Err("a store is dir:PATH, such as dir:/var/lib/kubemoor"),
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

/// A positive time.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let form = "a duration is a positive time such as 1h, 90m or 1h 30m";
    let signed: SignedDuration = text.parse().map_err(|error| format!("{form}: {error}"))?;
    match Duration::try_from(signed) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(form.to_owned()),
    }
}
