//! The types of settings: a value of these types needs no further check. Defaults are on the command line, where a user
//! sees them. No URL here shows a password, neither in messages nor in Debug output.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use kubemoor_declare::model::is_dns_label;

/// How Helm stores its records (`HELM_DRIVER`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum RecordDriver {
    Secret,
    Configmap,
}

/// How the webhook tells the API server from other clients of its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallerProof {
    /// A token in the URL, read from this file.
    File(PathBuf),
    /// A token in the URL that the guard generates and registers.
    Kept { life: Duration },
    /// The client certificate of the connection.
    Certificate,
}

/// A log filter in the syntax of tracing's `EnvFilter`; known to be valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter(String);

/// Why a setting was rejected.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SettingError {
    #[error("a webhook URL must be https://HOST[:PORT][/PATH], without user, query and fragment")]
    ReadUrl,
    #[error("a Service must be NAMESPACE/NAME or NAMESPACE/NAME:PORT, such as kubemoor-system/kubemoor:443")]
    ReadService,
    #[error("a ledger must be sqlite:PATH or postgres://USER@HOST/DATABASE")]
    ReadLedger,
    #[error("a log filter must be a list such as info,kubemoor=debug: {0}")]
    ReadLogFilter(String),
}

impl LogFilter {
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A URL, for a guard outside of the cluster.
    Url(WebhookUrl),
    Service(ServiceRef),
}

/// An `https` URL without user, query and fragment, as the API server requires, and without a trailing slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookUrl {
    url: String,
    host: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRef {
    pub namespace: String,
    pub name: String,
    pub port: u16,
}

impl Endpoint {
    /// The names for which the API server verifies the webhook's certificate.
    pub fn names(&self) -> Vec<String> {
        match self {
            Self::Url(url) => vec![url.host.clone()],
            Self::Service(service) => vec![
                format!("{}.{}.svc", service.name, service.namespace),
                format!("{}.{}.svc.cluster.local", service.name, service.namespace),
            ],
        }
    }
}

impl WebhookUrl {
    /// The URL of `path`, which begins with a slash.
    pub fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }
}

impl FromStr for WebhookUrl {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let uri: http::Uri = text.parse().map_err(|_| SettingError::ReadUrl)?;
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        // The parser silently drops a fragment, so the text is checked too.
        if uri.scheme_str() != Some("https") || host.is_empty() || text.contains(['?', '#', '@']) {
            return Err(SettingError::ReadUrl);
        }
        Ok(Self { url: text.trim_end_matches('/').to_owned(), host: host.to_owned() })
    }
}

impl FromStr for ServiceRef {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (namespace, rest) = text.split_once('/').ok_or(SettingError::ReadService)?;
        let (name, port) = match rest.split_once(':') {
            Some((name, port)) => (name, port.parse().map_err(|_| SettingError::ReadService)?),
            None => (rest, 443),
        };
        if port == 0 || !is_dns_label(namespace) || !is_dns_label(name) {
            return Err(SettingError::ReadService);
        }
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned(), port })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerSettings {
    pub url: LedgerUrl,
    pub retention: Retention,
}

/// How much of the ledger is kept for one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Older rows are deleted.
    pub age: Duration,
    /// The oldest rows beyond this number are deleted.
    pub rows: u64,
}

#[derive(Clone, PartialEq, Eq)]
pub enum LedgerUrl {
    Sqlite(PathBuf),
    /// A PostgreSQL database; the URL may hold a password.
    Postgres(String),
}

impl FromStr for LedgerUrl {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            Some(("sqlite", path)) if !path.trim_start_matches("//").is_empty() => {
                Ok(Self::Sqlite(PathBuf::from(path.strip_prefix("//").unwrap_or(path))))
            }
            Some(("postgres" | "postgresql", rest)) if rest.len() > 2 && rest.starts_with("//") => {
                Ok(Self::Postgres(text.to_owned()))
            }
            _ => Err(SettingError::ReadLedger),
        }
    }
}

impl fmt::Display for LedgerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = match self {
            Self::Sqlite(path) => return write!(f, "sqlite:{}", path.display()),
            Self::Postgres(url) => url,
        };
        // The query may hold a password too.
        let url = url.split_once('?').map_or(url.as_str(), |(url, _)| url);
        match (url.split_once("://"), url.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, place))) => write!(f, "{scheme}://{place}"),
            _ => f.write_str(url),
        }
    }
}

impl fmt::Debug for LedgerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LedgerUrl({self})")
    }
}

/// The address of an OpenTelemetry collector that takes OTLP over HTTP, such as `http://collector:4318`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorUrl(String);

impl CollectorUrl {
    pub fn traces(&self) -> String {
        format!("{}/v1/traces", self.0)
    }
}

impl FromStr for CollectorUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const MEANT: &str =
            "a collector must be http://HOST:PORT or https://HOST:PORT, such as http://collector:4318";
        let url: http::Uri = text.parse().map_err(|_| MEANT)?;
        let (Some("http" | "https"), Some(authority)) = (url.scheme_str(), url.authority()) else {
            return Err(MEANT);
        };
        if authority.as_str().contains('@') {
            return Err("a collector's credentials belong in the variable OTEL_EXPORTER_OTLP_HEADERS");
        }
        if url.query().is_some() {
            return Err(MEANT);
        }
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }
}

impl fmt::Display for CollectorUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests;
