//! The address by which the API server reaches the webhook.
//!
//! Entry point: [`Endpoint`]. Invariant: an address of these types needs no further check.

use std::str::FromStr;

use kubemoor_declare::model::is_dns_label;

use super::SettingError;

/// Where the API server reaches the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// At a URL, as a guard outside of the cluster is.
    Url(WebhookUrl),
    /// Behind a Service of the cluster.
    Service(ServiceRef),
}

/// An `https` URL without user, query and fragment, as the API server demands,
/// and without a slash at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookUrl {
    url: String,
    pub(super) host: String,
}

/// A Service's port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRef {
    /// The Service's namespace.
    pub namespace: String,
    /// The Service's name.
    pub name: String,
    /// The port; 443 where none was named.
    pub port: u16,
}

impl Endpoint {
    /// The names that the API server checks the webhook's certificate for.
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
        // The parser drops a fragment without a word, hence the look at the text.
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
