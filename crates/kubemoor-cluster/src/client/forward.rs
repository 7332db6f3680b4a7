//! A connection to a guard's own port through the API server, like `kubectl port-forward` but without a second
//! terminal. The API server forwards the bytes of one connection to a pod and does not identify the sender, so TLS runs
//! end to end. The guard authenticates with a certificate of the CA in its Lease, and the user with the kubeconfig's
//! token or certificate; no credential is sent before the guard has authenticated itself.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join_all;
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Uri, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::api::{Api, ListParams, Portforwarder};
use kube::client::middleware::AuthLayer;
use kube::client::{Body, ConfigExt};
use rustls_pki_types::{InvalidDnsNameError, ServerName};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower::{BoxError, Layer, service_fn};

use crate::client::call::{ClusterError, causes_of};
use crate::client::connection::{self, ClusterAccess, ClusterConnection, ConnectError};
use crate::client::lease::{self, LeaderInfo};
use kubemoor_policy::guarded::LeaseReference;
use kubemoor_runtime::config::LedgerUrl;

/// How long a pod may take to answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// A guard with its reachable pods.
pub struct ReachableGuard {
    place: LeaseReference,
    /// The CAs of its certificate; `None` for the system's trust store.
    roots: Option<Vec<Vec<u8>>>,
    targets: Vec<GuardPod>,
}

/// Finds the guard with the Lease `place`. The CAs in the file `authority` replace those that the Lease names.
pub async fn find(
    connection: &ClusterConnection,
    place: &LeaseReference,
    authority: Option<&Path>,
) -> Result<ReachableGuard, ForwardError> {
    let named = authority.map(connection::certificates).transpose()?;
    let client = &connection.client;
    let read = lease::read_leader_info(client, place).await;
    let read = read.map_err(|error| ForwardError::ReadLease { place: place.clone(), error })?;
    let info = read.ok_or_else(|| ForwardError::FindGuard(place.clone()))?;
    let targets = choose(client, place, &info).await?;
    let roots = match named {
        Some(named) => Some(named),
        None => {
            let pem = info.authority.as_deref().map(str::as_bytes);
            let parsed = pem.map(connection::parse_certificates).transpose();
            parsed.map_err(|_| ForwardError::ReadAuthority(place.clone()))?
        }
    };
    Ok(ReachableGuard { place: place.clone(), roots, targets })
}

impl ReachableGuard {
    /// The pods whose ledgers together form the guard's ledger, the leader first. At least one.
    pub fn pods(&self) -> Vec<String> {
        self.targets.iter().map(|target| target.pod.clone()).collect()
    }

    /// A client for each of [`ReachableGuard::pods`], with the credentials that `access` chooses. Each client has one
    /// connection and cannot be used after that ends.
    pub async fn connect(
        &self,
        connection: &ClusterConnection,
        access: &ClusterAccess,
    ) -> Vec<Result<kube::Client, ForwardError>> {
        join_all(self.targets.iter().map(|target| self.reach(connection, target, access))).await
    }

    async fn reach(
        &self,
        connection: &ClusterConnection,
        target: &GuardPod,
        access: &ClusterAccess,
    ) -> Result<kube::Client, ForwardError> {
        let Self { place, roots, .. } = self;
        let name = format!("{}.{}.svc", place.name, place.namespace);
        let unusable = |reason: String| ConnectError::Client { url: format!("https://{name}"), reason };
        let url = format!("https://{name}").parse();
        let url = url.map_err(|error: http::uri::InvalidUri| unusable(error.to_string()))?;
        let config = connection::credentials(&url, roots.clone(), access).await?;
        let tls = config.rustls_client_config().map_err(|error| unusable(causes_of(&error)))?;
        let connector = TlsConnector::from(Arc::new(tls));
        let server = ServerName::try_from(name.clone());
        let server = server.map_err(|error: InvalidDnsNameError| unusable(error.to_string()))?;
        let mut forwarder = forward(&connection.client, &place.namespace, target).await?;
        let stream = encrypt(connector, server, &mut forwarder, target).await?;
        let token = config.auth_layer().map_err(|error| unusable(causes_of(&error)))?;
        let client = client(stream, &name, token).await;
        client.map_err(|error| ForwardError::Answer {
            pod: target.pod.clone(),
            reason: causes_of(error.as_ref()),
        })
    }
}

async fn forward(
    client: &kube::Client,
    namespace: &str,
    target: &GuardPod,
) -> Result<Portforwarder, ForwardError> {
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let forwarder = match timeout(PATIENCE, pods.portforward(&target.pod, &[target.port])).await {
        Ok(forwarder) => forwarder.map_err(ClusterError::from),
        Err(_) => Err(ClusterError::Late { within: PATIENCE }),
    };
    let (namespace, pod) = (namespace.to_owned(), target.pod.clone());
    forwarder.map_err(|error| ForwardError::Forward { namespace, pod, error })
}

async fn encrypt(
    connector: TlsConnector,
    server: ServerName<'static>,
    forwarder: &mut Portforwarder,
    target: &GuardPod,
) -> Result<TlsStream<DuplexStream>, ForwardError> {
    let broken = |reason: String| ForwardError::Answer { pod: target.pod.clone(), reason };
    let (stream, failed) = (forwarder.take_stream(target.port), forwarder.take_error(target.port));
    let (Some(stream), Some(failed)) = (stream, failed) else {
        return Err(broken("the API server did not forward the port".to_owned()));
    };
    let name = server.to_str().into_owned();
    let mut failed = pin!(failed.fuse());
    let shaken = tokio::select! {
        biased;
        // Errors at the pod arrive on a separate channel.
        Some(reason) = &mut failed => return Err(broken(reason.trim().to_owned())),
        shaken = timeout(PATIENCE, connector.connect(server, stream)) => shaken,
    };
    let shaken = shaken.map_err(|_| broken(format!("silence for {} s", PATIENCE.as_secs())))?;
    let error = match shaken {
        Ok(stream) => return Ok(stream),
        Err(error) => error,
    };
    if let Some(rustls::Error::InvalidCertificate(_)) = error.get_ref().and_then(|it| it.downcast_ref()) {
        return Err(ForwardError::Trust { pod: target.pod.clone(), name, reason: causes_of(&error) });
    }
    // The stream may end before the reason arrives. With the stream gone, it arrives or the error channel closes.
    let reason = timeout(PATIENCE, failed).await.ok().flatten();
    Err(broken(reason.map_or_else(|| causes_of(&error), |reason| reason.trim().to_owned())))
}

const SELECTOR: &str = "app.kubernetes.io/name=kubemoor";

/// The name of the port of health, metrics and the ledger.
const PORT: &str = "admin";

/// A ready pod of the guard.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GuardPod {
    pod: String,
    port: u16,
    /// Whether its ledger is a file, which no other pod shares.
    own_ledger: bool,
}

/// The ready pods, one for each ledger: the leader first, the others by name.
async fn choose(
    client: &kube::Client,
    place: &LeaseReference,
    info: &LeaderInfo,
) -> Result<Vec<GuardPod>, ForwardError> {
    let namespace = &place.namespace;
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let selected = ListParams::default().labels(SELECTOR);
    let listed = timeout(PATIENCE, pods.list(&selected)).await;
    let listed = listed.map_err(|_| ClusterError::Late { within: PATIENCE });
    let listed = listed.and_then(|listed| listed.map_err(ClusterError::from));
    let listed = listed.map_err(|error| ForwardError::ListPods(namespace.clone(), error))?;
    match preferred(&listed.items, &info.holder) {
        none if none.is_empty() => Err(ForwardError::ChoosePod(namespace.clone())),
        targets => Ok(targets),
    }
}

/// The pods to connect to, if `holder` is the leader.
fn preferred(pods: &[Pod], holder: &str) -> Vec<GuardPod> {
    let mut targets: Vec<_> = pods.iter().filter(|pod| is_ready(pod)).filter_map(guard_pod).collect();
    targets.sort_by_key(|target| {
        // The holder's identity is the pod's name, followed by `_` and the process.
        let leads = holder.strip_prefix(target.pod.as_str()).is_some_and(|rest| rest.starts_with('_'));
        (!leads, target.pod.clone())
    });
    let mut shared = false;
    targets.retain(|target| target.own_ledger || !std::mem::replace(&mut shared, true));
    targets
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().filter_map(|status| status.conditions.as_deref()).flatten();
    pod.metadata.deletion_timestamp.is_none()
        && conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn guard_pod(pod: &Pod) -> Option<GuardPod> {
    let containers = &pod.spec.as_ref()?.containers;
    let port = |container: &Container| {
        let ports = container.ports.as_deref().unwrap_or_default();
        let port = ports.iter().find(|port| port.name.as_deref() == Some(PORT))?;
        u16::try_from(port.container_port).ok()
    };
    let guard = containers.iter().find(|container| port(container).is_some())?;
    Some(GuardPod { pod: pod.metadata.name.clone()?, port: port(guard)?, own_ledger: has_own_ledger(guard) })
}

/// Whether the ledger of a container is a file, by its flags and variables; without any, it is. A database whose URL is
/// in a Secret is shared.
fn has_own_ledger(container: &Container) -> bool {
    let arguments = container.args.as_deref().unwrap_or_default();
    let mut following = arguments.iter().zip(arguments.iter().skip(1));
    let given = arguments.iter().find_map(|argument| argument.strip_prefix("--ledger="));
    let given =
        given.or_else(|| following.find_map(|(flag, value)| (flag == "--ledger").then_some(value.as_str())));
    let variables = container.env.as_deref().unwrap_or_default();
    let variable = variables.iter().find(|variable| variable.name == "KUBEMOOR_LEDGER");
    match (given, variable) {
        (Some(url), _) => is_file(url),
        (None, Some(variable)) => variable.value.as_deref().is_some_and(is_file),
        (None, None) => true,
    }
}

fn is_file(url: &str) -> bool {
    matches!(url.parse(), Ok(LedgerUrl::Sqlite(_)))
}

/// A client over one connection to `host`, which sends one request at a time and adds the user's token if there is one.
async fn client<S>(stream: S, host: &str, token: Option<AuthLayer>) -> Result<kube::Client, BoxError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let host = HeaderValue::from_str(host)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // The task ends with the last sender. Errors reach the request that waits for an answer.
    tokio::spawn(connection);
    // One request at a time; the body of its response may still be read while the next request waits.
    let sender = Arc::new(Mutex::new(sender));
    let exchange = service_fn(move |mut request: Request<Body>| {
        let (sender, host) = (Arc::clone(&sender), host.clone());
        async move {
            let path = request.uri().path_and_query().cloned();
            *request.uri_mut() = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
            request.headers_mut().insert(header::HOST, host);
            let mut sender = sender.lock().await;
            sender.ready().await?;
            Ok::<_, BoxError>(sender.send_request(request).await?)
        }
    });
    Ok(match token {
        Some(token) => kube::Client::new(token.layer(exchange), "default"),
        None => kube::Client::new(exchange, "default"),
    })
}

/// Why the connection failed. No error quotes a credential.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("the Lease {} in namespace {} cannot be read: {error}", .place.name, .place.namespace)]
    ReadLease {
        place: LeaseReference,
        #[source]
        error: ClusterError,
    },
    #[error("there is no Lease {} in namespace {}, so no guard runs there", .0.name, .0.namespace)]
    FindGuard(LeaseReference),
    #[error("the Lease {} in namespace {} has no readable certificate authority", .0.name, .0.namespace)]
    ReadAuthority(LeaseReference),
    #[error("the pods in namespace {0} cannot be listed: {1}")]
    ListPods(String, #[source] ClusterError),
    #[error("no guard pod in namespace {0} is ready")]
    ChoosePod(String),
    #[error("cannot forward a port of pod {pod} in namespace {namespace}: {error}")]
    Forward {
        namespace: String,
        pod: String,
        #[source]
        error: ClusterError,
    },
    #[error("the guard in pod {pod} cannot be verified as {name}: {reason}")]
    Trust {
        pod: String,
        /// The name that its certificate must be for.
        name: String,
        reason: String,
    },
    #[error("the guard in pod {pod} does not answer: {reason}")]
    Answer { pod: String, reason: String },
}

#[cfg(test)]
mod tests;
