//! The connection to the API server: from a kubeconfig, from kubectl's flags, or from the service account of the pod.
//! If the requested credentials cannot be used, the error never quotes them. Connecting sends no request.
//!
//! A load balancer or a firewall may drop a connection without notifying either end. A request on it hangs until its
//! time limit, and a client may have many such connections. So a read that waits too long is sent once more over a new
//! connection (only reads). If that one responds first, all later requests use new connections, and so do the reads
//! that are waiting at that moment.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::{UPGRADE, USER_AGENT};
use http::{HeaderValue, Method, Request, Response};
use kube::client::Body;
use kube::client::retry::RetryPolicy;
use kube::config::{
    AuthInfo, InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError, LoadDataError,
};
use kube::{Client, Config};
use parking_lot::Mutex;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::{self, PemObject};
use secrecy::SecretString;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tower::retry::RetryLayer;
use tower::{BoxError, Layer, service_fn};
use tracing::debug;

use crate::client::access;
use crate::client::call::causes_of;

/// The log filter that shows each request.
pub const REQUESTS: &str = "kubemoor_cluster::client::connection=debug";

/// A client and the identity that its credentials claim.
#[derive(Clone)]
pub struct ClusterConnection {
    /// Cheap to clone.
    pub client: kube::Client,
    pub url: String,
    /// The namespace that the credentials default to: the pod's own in a cluster.
    pub namespace: String,
    /// The user name that the credentials claim; see [`access::own_name`].
    pub claimed: Option<String>,
}

/// Which credentials to use, as kubectl's flags choose them.
#[derive(Clone, Debug, Default)]
pub struct ClusterAccess {
    /// The kubeconfig; `None` for `$KUBECONFIG`, `~/.kube/config` or the pod's service account, in that order.
    pub kubeconfig: Option<PathBuf>,
    /// The context; `None` for the current one.
    pub context: Option<String>,
    /// The kubeconfig's cluster; `None` for the context's.
    pub cluster: Option<String>,
    /// The kubeconfig's user; `None` for the context's.
    pub account: Option<String>,
    /// The bearer token, in place of all other credentials.
    pub token: Option<SecretString>,
    /// The timeout for connecting, and for each read and write.
    pub timeout: Option<Duration>,
    /// The user to act as (impersonation).
    pub user: Option<String>,
    pub groups: Vec<String>,
    /// The API server to use with `token`, without a kubeconfig.
    pub server: Option<ApiServerAddress>,
}

/// An API server without a kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiServerAddress {
    pub url: http::Uri,
    /// The file with the CA of its certificate.
    pub authority: PathBuf,
}

/// Why no client could be created.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("the kubeconfig {} cannot be used: {reason}", .path.display())]
    Kubeconfig { path: PathBuf, reason: String },
    #[error("no cluster configured: set one with --kubeconfig or KUBECONFIG, or run in a pod ({reason})")]
    NoCluster { reason: String },
    #[error("{choice} cannot be used: {reason}")]
    Choice { choice: String, reason: String },
    #[error("{} has no readable PEM certificate: {reason}", .path.display())]
    Authority { path: PathBuf, reason: String },
    #[error("cannot create a client for {url}: {reason}")]
    Client { url: String, reason: String },
}

/// A client for the current context of the file `kubeconfig`; without a file, for `$KUBECONFIG`,
/// `~/.kube/config` or the pod's service account, in that order. It is for a long-running process:
/// connections that are lost silently are replaced.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<ClusterConnection, ConnectError> {
    let access = ClusterAccess { kubeconfig: kubeconfig.map(Path::to_owned), ..ClusterAccess::default() };
    open(&access, lasting_client).await
}

/// The names of the contexts of a kubeconfig, by default of those that kubectl reads; empty if it cannot be read.
pub fn contexts(kubeconfig: Option<&Path>) -> Vec<String> {
    let read = kubeconfig.map_or_else(Kubeconfig::read, Kubeconfig::read_from);
    let contexts = read.map(|config| config.contexts).unwrap_or_default();
    contexts.into_iter().map(|context| context.name).collect()
}

/// A client with the credentials that `access` chooses.
pub async fn connect_by(access: &ClusterAccess) -> Result<ClusterConnection, ConnectError> {
    open(access, client).await
}

/// A client for a guard at `url`, with the credentials that `access` chooses; the guard verifies them with the API
/// server. The guard's certificate must be signed by a CA in the file `authority`, or without a file by a CA in the
/// system's trust store.
pub async fn connect_to(
    url: &http::Uri,
    authority: Option<&Path>,
    access: &ClusterAccess,
) -> Result<kube::Client, ConnectError> {
    let authority = authority.map(certificates).transpose()?;
    let config = credentials(url, authority, access).await?;
    client(config).map_err(|error| ConnectError::Client { url: url.to_string(), reason: no_client(&error) })
}

/// The name of the kubeconfig's current context; `None` without a kubeconfig or a current context.
pub fn current_context(kubeconfig: Option<&Path>) -> Option<String> {
    let read = kubeconfig.map_or_else(Kubeconfig::read, Kubeconfig::read_from);
    read.ok()?.current_context.filter(|name| !name.is_empty())
}

/// The credentials that `access` chooses, for the server at `url`. The server's certificate must be signed by one of
/// the CAs `authority`, or if that is `None` by a CA in the system's trust store.
pub(super) async fn credentials(
    url: &http::Uri,
    authority: Option<Vec<Vec<u8>>>,
    access: &ClusterAccess,
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
    access: &ClusterAccess,
    make: impl Fn(Config) -> kube::Result<kube::Client>,
) -> Result<ClusterConnection, ConnectError> {
    let mut config = configuration(access).await?;
    let agent = HeaderValue::from_static(concat!("kubemoor/", env!("CARGO_PKG_VERSION")));
    config.headers.push((USER_AGENT, agent));
    let url = config.cluster_url.to_string();
    let namespace = config.default_namespace.clone();
    let claimed = access::claimed(&config.auth_info);
    match make(config) {
        Ok(client) => Ok(ClusterConnection { client, url, namespace, claimed }),
        Err(error) => Err(ConnectError::Client { url, reason: no_client(&error) }),
    }
}

fn no_client(error: &kube::Error) -> String {
    let reason = causes_of(error);
    // The error of rustls does not say which certificate has this version.
    if reason.contains("UnsupportedCertVersion") {
        return "the client certificate uses X.509 version 1, which is not supported. Issue it as version 3, \
                with extensions: openssl x509 -req needs -extfile"
            .to_owned();
    }
    reason
}

pub(super) fn certificates(path: &Path) -> Result<Vec<Vec<u8>>, ConnectError> {
    let failed = |reason| ConnectError::Authority { path: path.to_owned(), reason };
    let pem = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    parse_certificates(&pem).map_err(|error| match error {
        pem::Error::NoItemsFound => failed("no certificate found".to_owned()),
        error => failed(error.to_string()),
    })
}

pub(super) fn parse_certificates(pem: &[u8]) -> Result<Vec<Vec<u8>>, pem::Error> {
    let certificates = CertificateDer::pem_slice_iter(pem).map(|it| it.map(|it| it.to_vec()));
    match certificates.collect::<Result<Vec<_>, _>>()? {
        none if none.is_empty() => Err(pem::Error::NoItemsFound),
        certificates => Ok(certificates),
    }
}

async fn configuration(access: &ClusterAccess) -> Result<Config, ConnectError> {
    let ClusterAccess { kubeconfig, context, cluster, account, token, timeout, user, groups, server } =
        access;
    if let Some(server) = server {
        return by_token(server, token.as_ref());
    }
    let options =
        KubeConfigOptions { context: context.clone(), cluster: cluster.clone(), user: account.clone() };
    let named = [("context", context), ("cluster", cluster), ("user", account)];
    let named = named.map(|(what, name)| name.as_ref().map(|name| format!("the {what} {name:?}")));
    let named: Vec<_> = named.into_iter().flatten().collect();
    let mut config = match kubeconfig {
        Some(path) => from_file(path, &options).await?,
        // A pod's service account has no contexts.
        None if !named.is_empty() => {
            let failed = |reason| ConnectError::Choice { choice: named.join(" with "), reason };
            let kubeconfig = Kubeconfig::read().map_err(|error| failed(reason(&error)))?;
            check_account(&kubeconfig, &options).map_err(failed)?;
            let loaded = Config::from_custom_kubeconfig(kubeconfig, &options).await;
            loaded.map_err(|error| failed(reason(&error)))?
        }
        None => {
            Config::infer().await.map_err(|error| ConnectError::NoCluster { reason: inferred(&error) })?
        }
    };
    if let Some(token) = token {
        // A certificate would take precedence over the token.
        config.auth_info = AuthInfo { token: Some(token.clone()), ..AuthInfo::default() };
    }
    if timeout.is_some() {
        config.connect_timeout = *timeout;
        config.read_timeout = *timeout;
        config.write_timeout = *timeout;
    }
    if user.is_some() {
        config.auth_info.impersonate.clone_from(user);
        config.auth_info.impersonate_groups = (!groups.is_empty()).then(|| groups.clone());
    }
    Ok(config)
}

/// The configuration for a server and a token alone: neither a kubeconfig nor the pod's account is read.
fn by_token(server: &ApiServerAddress, token: Option<&SecretString>) -> Result<Config, ConnectError> {
    let ApiServerAddress { url, authority } = server;
    let Some(token) = token else {
        return Err(ConnectError::NoCluster { reason: "there is no token for the API server".to_owned() });
    };
    let mut config = Config::new(url.clone());
    config.root_cert = Some(certificates(authority)?);
    config.auth_info = AuthInfo { token: Some(token.clone()), ..AuthInfo::default() };
    Ok(config)
}

async fn from_file(path: &Path, options: &KubeConfigOptions) -> Result<Config, ConnectError> {
    let failed = |reason| ConnectError::Kubeconfig { path: path.to_owned(), reason };
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| match error {
        // `ConnectError::Kubeconfig` names the file already.
        KubeconfigError::ReadConfig(error, _) => failed(error.to_string()),
        error => failed(reason(&error)),
    })?;
    check_account(&kubeconfig, options).map_err(failed)?;
    let loaded = Config::from_custom_kubeconfig(kubeconfig, options).await;
    loaded.map_err(|error| failed(reason(&error)))
}

/// Without this check a missing user would become anonymous, and the API server may answer anonymous requests.
fn check_account(kubeconfig: &Kubeconfig, options: &KubeConfigOptions) -> Result<(), String> {
    match &options.user {
        Some(user) if !kubeconfig.auth_infos.iter().any(|it| it.name == *user) => {
            Err(format!("it has no user {user:?}"))
        }
        _ => Ok(()),
    }
}

/// The reason of a kubeconfig error, without the lines that the parser quotes: they may contain credentials. Also
/// without the doubled quotes that kube puts around a path.
fn reason(error: &KubeconfigError) -> String {
    let file = |error: &LoadDataError| match error {
        LoadDataError::ReadFile(error, path) => format!("{} cannot be read: {error}", path.display()),
        error => first_line(error),
    };
    match error {
        KubeconfigError::ReadConfig(error, path) => format!("{} cannot be read: {error}", path.display()),
        KubeconfigError::LoadCertificateAuthority(error) => format!("certificate authority: {}", file(error)),
        KubeconfigError::LoadClientCertificate(error) => format!("client certificate: {}", file(error)),
        KubeconfigError::LoadClientKey(error) => format!("client key: {}", file(error)),
        error => first_line(error),
    }
}

/// Why neither a kubeconfig nor a pod's service account was found.
fn inferred(error: &InferConfigError) -> String {
    let kubeconfig = error.source().and_then(|error| error.downcast_ref::<KubeconfigError>());
    kubeconfig.map_or_else(|| first_line(error), reason)
}

fn first_line(error: &dyn Error) -> String {
    causes_of(error).lines().next().unwrap_or_default().to_owned()
}

/// The first and the longest pause before a rejected request is retried.
const RETRY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

const RETRIES: u32 = 15;

/// A client with a retry policy of its own: kube's default pauses grow longer than any caller waits, and would outlast
/// the server's outage.
fn client(mut config: Config) -> kube::Result<kube::Client> {
    config.default_retry = false;
    let namespace = config.default_namespace.clone();
    patient(kube::Client::try_from(config)?, namespace)
}

/// Like `client`, but replaces connections that are lost.
fn lasting_client(mut config: Config) -> kube::Result<kube::Client> {
    config.default_retry = false;
    let namespace = config.default_namespace.clone();
    let pool = Arc::new(ConnectionPool::new(move || kube::Client::try_from(config.clone()))?);
    let service = service_fn(move |request: Request<Body>| {
        let pool = Arc::clone(&pool);
        async move { pool.send(request).await.map_err(BoxError::from) }
    });
    patient(kube::Client::new(service, namespace.clone()), namespace)
}

/// A client that retries requests while the server is unavailable or overloaded.
fn patient(client: kube::Client, namespace: String) -> kube::Result<kube::Client> {
    let valid_until = *client.valid_until();
    let once = service_fn(move |request: Request<Body>| {
        let client = client.clone();
        let (method, uri, begun) = (request.method().clone(), request.uri().clone(), Instant::now());
        async move {
            let answer = client.send(request).await;
            let told = answer.as_ref().map_or_else(ToString::to_string, |it| it.status().to_string());
            debug!("{method} {uri}: {told} in {} milliseconds", begun.elapsed().as_millis());
            answer.map_err(BoxError::from)
        }
    });
    let (first, longest) = RETRY;
    let policy = RetryPolicy::new(first, longest, RETRIES, true)
        .map_err(|error| kube::Error::Service(Box::new(error)))?;
    let service = RetryLayer::new(policy).layer(once);
    Ok(kube::Client::new(service, namespace).with_valid_until(valid_until))
}

/// How long a read waits for an answer before a new connection is tried.
const PATIENCE: Duration = Duration::from_secs(1);

const BETWEEN: Duration = Duration::from_secs(5);

/// The current client, which keeps its connections.
struct ConnectionPool {
    /// Makes a client that shares no connection with any other.
    make: Box<dyn Fn() -> kube::Result<Client> + Send + Sync>,
    current: watch::Sender<Client>,
    tried: Mutex<Option<Instant>>,
}

impl ConnectionPool {
    fn new(make: impl Fn() -> kube::Result<Client> + Send + Sync + 'static) -> kube::Result<Self> {
        let current = watch::Sender::new(make()?);
        Ok(Self { make: Box::new(make), current, tried: Mutex::default() })
    }

    /// Sends a request. A read that gets no answer for a while is also sent over a new connection.
    async fn send(&self, request: Request<Body>) -> kube::Result<Response<Body>> {
        let mut news = self.current.subscribe();
        let client = news.borrow_and_update().clone();
        let (parts, body) = request.into_parts();
        let is_read = parts.method == Method::GET && !parts.headers.contains_key(UPGRADE);
        let again = is_read.then(|| Request::from_parts(parts.clone(), Body::empty()));
        let mut first = pin!(client.send(Request::from_parts(parts, body)));
        let Some(again) = again else { return first.await };
        let (second, is_new) = tokio::select! {
            answer = &mut first => return answer,
            other = self.other(&mut news) => other,
        };
        tokio::select! {
            answer = &mut first => answer,
            Ok(answer) = second.send(again) => {
                if is_new {
                    tracing::info!("connections to the API server were lost silently; using new ones");
                    self.current.send_replace(second.clone());
                }
                Ok(answer)
            }
        }
    }

    /// Waits for another client to try: one that became current meanwhile, or a new one, returned with `true`.
    async fn other(&self, news: &mut watch::Receiver<Client>) -> (Client, bool) {
        tokio::select! {
            // `self` holds the sender, so this never fails.
            Ok(()) = news.changed() => return (news.borrow_and_update().clone(), false),
            () = sleep(PATIENCE) => {}
        }
        if self.may_try() {
            match (self.make)() {
                Ok(client) => return (client, true),
                Err(error) => tracing::debug!(%error, "failed to create a new client for the API server"),
            }
        }
        match news.changed().await {
            Ok(()) => (news.borrow_and_update().clone(), false),
            Err(_) => std::future::pending().await,
        }
    }

    /// Returns whether a new connection may be tried now (one attempt per `BETWEEN`), and records the attempt.
    fn may_try(&self) -> bool {
        let mut tried = self.tried.lock();
        let is_due = tried.is_none_or(|tried| tried.elapsed() >= BETWEEN);
        if is_due {
            *tried = Some(Instant::now());
        }
        is_due
    }
}

#[cfg(test)]
mod tests;
