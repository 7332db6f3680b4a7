//! Flags of `kubemoor serve` that become one setting together.
//!
//! Entry points: `settings` of each group. Invariant: what contradicts itself within a group is an error.

use std::path::PathBuf;
use std::time::Duration;

use super::ConflictError;
use kubemoor_declare::model::is_dns_label;
use kubemoor_inspect::times::parse_duration;
use kubemoor_runtime::config::{
    Callers, Endpoint, Ledger, LedgerUrl, Proof, Registration, Retention, ServiceRef, WebhookUrl,
};
use kubemoor_runtime::tls::CertificateSource;

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
    pub(super) fn settings(&self, select_all: bool) -> Result<Option<Registration>, ConflictError> {
        match (self.register, self.endpoint()) {
            (false, _) => Ok(None),
            (true, Some(endpoint)) => Ok(Some(Registration { endpoint, select_all })),
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
    pub(super) fn settings(self, is_registered: bool) -> Result<Callers, ConflictError> {
        let Self { caller_token_file, caller_token_age, client_ca } = self;
        let proof = match caller_token_file {
            Some(file) => Proof::File(file),
            None if is_registered => Proof::Kept { life: caller_token_age.unwrap_or(CALLER_TOKEN_AGE) },
            None if client_ca.is_some() => Proof::Certificate,
            None => return Err(ConflictError::Anybody),
        };
        Ok(Callers { proof, client_ca })
    }
}

impl LedgerArgs {
    pub(super) fn settings(self) -> Ledger {
        let Self { ledger, ledger_age, ledger_rows, cluster_name } = self;
        let retention = Retention { age: ledger_age, rows: ledger_rows };
        Ledger { url: ledger, cluster_name, retention }
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

/// A time that may be zero.
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
