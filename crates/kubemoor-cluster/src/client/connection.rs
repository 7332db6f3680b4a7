//! The connection to the API server.
//!
//! Entry points: [`connect`] for a kubeconfig, [`connect_by`] for everything that kubectl's flags can select.
//! Reads a kubeconfig, or the service account of the pod; sends no request yet.

mod configuration;
mod patient;
mod pool;

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::Config;
use kube::config::Kubeconfig;
use secrecy::SecretString;

pub(super) use self::configuration::certificates;
use self::configuration::configuration;
use self::patient::{client, lasting_client};
use super::call::causes_of;
use super::identity;

/// The log filter that shows each request.
pub const REQUESTS: &str = "kubemoor_cluster::client::connection=debug";

/// A client and the identity that its credentials claim.
#[derive(Clone)]
pub struct Connection {
    /// The client. Cheap to clone.
    pub client: kube::Client,
    /// The API server's URL.
    pub url: String,
    /// The namespace that the credentials default to: the pod's own in a cluster.
    pub namespace: String,
    /// The user name that the bearer token claims; see [`identity::own_name`].
    pub claimed: Option<String>,
}

/// Which credentials to use, as kubectl's flags choose them.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The kubeconfig; `None` for `$KUBECONFIG`, `~/.kube/config` or the pod's
    /// service account, in that order.
    pub kubeconfig: Option<PathBuf>,
    /// The context; `None` for the current one.
    pub context: Option<String>,
    /// The kubeconfig's cluster; `None` for the context's.
    pub cluster: Option<String>,
    /// The kubeconfig's user; `None` for the context's.
    pub account: Option<String>,
    /// The bearer token, in place of all other credentials.
    pub token: Option<SecretString>,
    /// How long the server may keep silent while one request is served.
    pub timeout: Option<Duration>,
    /// The user to act as (impersonation).
    pub user: Option<String>,
    /// The groups to act as.
    pub groups: Vec<String>,
    /// The API server, in place of a kubeconfig's; with the token and no other credentials.
    pub server: Option<ApiServer>,
}

/// An API server that no kubeconfig names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiServer {
    /// Its address.
    pub url: http::Uri,
    /// The file with the CA of its certificate.
    pub authority: PathBuf,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A kubeconfig was named and cannot be used.
    #[error("the kubeconfig {} cannot be used: {reason}", .path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// No kubeconfig was named, none is in the usual places, and this is no pod.
    #[error("no cluster to talk to: name one with --kubeconfig or KUBECONFIG, or run in a pod ({reason})")]
    Nowhere {
        /// What was tried.
        reason: String,
    },
    /// A context, cluster or user of the kubeconfig was named and cannot be used.
    #[error("{choice} cannot be used: {reason}")]
    Choice {
        /// What was named.
        choice: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The CA data for a server holds no certificate.
    #[error("{} holds no PEM certificate that can be read: {reason}", .path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The configuration is readable but makes no client.
    #[error("no client for {url}: {reason}")]
    Client {
        /// The API server's URL.
        url: String,
        /// What is wrong.
        reason: String,
    },
}

/// A client for the current context of the file `kubeconfig`; without a file, for `$KUBECONFIG`,
/// `~/.kube/config` or the pod's service account, in that order. It is for a long-running process:
/// connections that are lost silently are replaced.
///
/// # Errors
/// When no configuration is found, or it cannot be used.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Connection, ConnectError> {
    let access = Access { kubeconfig: kubeconfig.map(Path::to_owned), ..Access::default() };
    open(&access, lasting_client).await
}

/// The names of the contexts of a kubeconfig, by default of those that kubectl reads; none where it cannot be read.
pub fn contexts(kubeconfig: Option<&Path>) -> Vec<String> {
    let read = kubeconfig.map_or_else(Kubeconfig::read, Kubeconfig::read_from);
    let contexts = read.map(|config| config.contexts).unwrap_or_default();
    contexts.into_iter().map(|context| context.name).collect()
}

/// A client with the credentials that `access` chooses.
///
/// # Errors
/// When no configuration is found, or it cannot be used.
pub async fn connect_by(access: &Access) -> Result<Connection, ConnectError> {
    open(access, client).await
}

/// A client for the server at `url`, with the credentials that `access`
/// chooses: for a guard, which asks the API server whose they are. The server is
/// believed if one of the certificates in the file `authority` vouches for it;
/// without a file, if one of the system's does.
///
/// # Errors
/// When no configuration is found, or it cannot be used.
pub async fn connect_to(
    url: &http::Uri,
    authority: Option<&Path>,
    access: &Access,
) -> Result<kube::Client, ConnectError> {
    let authority = authority.map(certificates).transpose()?;
    let config = credentials(url, authority, access).await?;
    client(config).map_err(|error| ConnectError::Client { url: url.to_string(), reason: no_client(&error) })
}

/// The name of the kubeconfig's current context; none where there is no kubeconfig, or it names none.
pub fn current_context(kubeconfig: Option<&Path>) -> Option<String> {
    let read = kubeconfig.map_or_else(Kubeconfig::read, Kubeconfig::read_from);
    read.ok()?.current_context.filter(|name| !name.is_empty())
}

/// The credentials that `access` chooses, for the server at `url`, which is believed if one of the certificates of
/// `authority` vouches for it; without any, if one of the system's does.
pub(super) async fn credentials(
    url: &http::Uri,
    authority: Option<Vec<Vec<u8>>>,
    access: &Access,
) -> Result<Config, ConnectError> {
    let mut config = configuration(access).await?;
    config.cluster_url = url.clone();
    // The API server's CA and TLS settings do not apply to this server.
    config.root_cert = authority;
    config.root_cert_file = None;
    config.accept_invalid_certs = false;
    config.tls_server_name = None;
    Ok(config)
}

async fn open(
    access: &Access,
    make: impl Fn(Config) -> kube::Result<kube::Client>,
) -> Result<Connection, ConnectError> {
    let mut config = configuration(access).await?;
    let agent = HeaderValue::from_static(concat!("kubemoor/", env!("CARGO_PKG_VERSION")));
    config.headers.push((USER_AGENT, agent));
    let url = config.cluster_url.to_string();
    let namespace = config.default_namespace.clone();
    let claimed = identity::claimed(&config.auth_info);
    match make(config) {
        Ok(client) => Ok(Connection { client, url, namespace, claimed }),
        Err(error) => Err(ConnectError::Client { url, reason: no_client(&error) }),
    }
}

/// Why a configuration makes no client.
fn no_client(error: &kube::Error) -> String {
    let reason = causes_of(error);
    // rustls names the version and not whose certificate it is.
    if reason.contains("UnsupportedCertVersion") {
        return "the client certificate is of X.509 version 1, which is not supported. Have it issued as version 3, \
                which has extensions: with openssl x509 -req, give -extfile"
            .to_owned();
    }
    reason
}
