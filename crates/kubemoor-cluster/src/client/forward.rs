//! A connection to a guard's own port through the API server, as `kubectl port-forward` makes it, without a
//! second terminal.
//!
//! Entry points: [`find`], then [`Guard::connect`]. The API server forwards the bytes of one connection to a pod and does not
//! identify the sender, so TLS runs end to end. The guard authenticates with a certificate of the authority
//! in its Lease, and the user with the kubeconfig's token or certificate. Invariant: no credential is sent
//! before the guard has authenticated itself.

mod error;
mod exchange;
mod target;

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Portforwarder};
use kube::client::ConfigExt;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use tokio::io::DuplexStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub use self::error::ForwardError;
use self::target::{Target, choose};
use super::call::{CallError, causes_of};
use super::connection::{self, Access, ConnectError, Connection};
use super::lease::Place;
use super::lease::leader_info;

/// How long a pod may take to answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// A guard whose pods can be asked.
pub struct Guard {
    place: Place,
    /// The certificates that vouch for it; `None` for the system's.
    roots: Option<Vec<Vec<u8>>>,
    targets: Vec<Target>,
}

/// The guard whose Lease lies at `place`. The certificates in the file `authority` vouch for it in place of those that the
/// Lease names.
///
/// # Errors
/// See [`ForwardError`].
pub async fn find(
    connection: &Connection,
    place: &Place,
    authority: Option<&Path>,
) -> Result<Guard, ForwardError> {
    let named = authority.map(connection::certificates).transpose()?;
    let client = &connection.client;
    let read = leader_info::read(client, place).await;
    let read = read.map_err(|error| ForwardError::ReadLease { place: place.clone(), error })?;
    let info = read.ok_or_else(|| ForwardError::FindGuard(place.clone()))?;
    let targets = choose(client, place, &info).await?;
    let roots = match named {
        Some(named) => Some(named),
        None => {
            let parsed = info.authority.as_deref().map(parse).transpose();
            parsed.map_err(|_| ForwardError::ReadAuthority(place.clone()))?
        }
    };
    Ok(Guard { place: place.clone(), roots, targets })
}

impl Guard {
    /// The pods whose ledgers together are the guard's: the leader's first. At least one.
    pub fn pods(&self) -> Vec<String> {
        self.targets.iter().map(|target| target.pod.clone()).collect()
    }

    /// A client for each of [`Guard::pods`], with the credentials that `access` chooses. It has one connection, and ends
    /// with it.
    pub async fn connect(
        &self,
        connection: &Connection,
        access: &Access,
    ) -> Vec<Result<kube::Client, ForwardError>> {
        join_all(self.targets.iter().map(|target| self.reach(connection, target, access))).await
    }

    async fn reach(
        &self,
        connection: &Connection,
        target: &Target,
        access: &Access,
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
        let exchange = exchange::open(stream, &name).await;
        let exchange = exchange.map_err(|error| ForwardError::Answer {
            pod: target.pod.clone(),
            reason: causes_of(error.as_ref()),
        })?;
        let token = config.auth_layer().map_err(|error| unusable(causes_of(&error)))?;
        Ok(exchange.client(token))
    }
}

/// The certificates of a text of PEM, at least one.
fn parse(pem: &str) -> Result<Vec<Vec<u8>>, rustls_pki_types::pem::Error> {
    let certificates = CertificateDer::pem_slice_iter(pem.as_bytes());
    let certificates: Result<Vec<_>, _> = certificates.map(|it| it.map(|it| it.to_vec())).collect();
    match certificates? {
        none if none.is_empty() => Err(rustls_pki_types::pem::Error::NoItemsFound),
        certificates => Ok(certificates),
    }
}

async fn forward(
    client: &kube::Client,
    namespace: &str,
    target: &Target,
) -> Result<Portforwarder, ForwardError> {
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let forwarder = match timeout(PATIENCE, pods.portforward(&target.pod, &[target.port])).await {
        Ok(forwarder) => forwarder.map_err(CallError::from),
        Err(_) => Err(CallError::Late { within: PATIENCE }),
    };
    let (namespace, pod) = (namespace.to_owned(), target.pod.clone());
    forwarder.map_err(|error| ForwardError::Forward { namespace, pod, error })
}

/// Has the guard prove itself.
async fn encrypt(
    connector: TlsConnector,
    server: ServerName<'static>,
    forwarder: &mut Portforwarder,
    target: &Target,
) -> Result<TlsStream<DuplexStream>, ForwardError> {
    let broken = |reason: String| ForwardError::Answer { pod: target.pod.clone(), reason };
    let (stream, failed) = (forwarder.take_stream(target.port), forwarder.take_error(target.port));
    let (Some(stream), Some(failed)) = (stream, failed) else {
        return Err(broken("the API server forwards no port".to_owned()));
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
    // The bytes may end before the API server says why. It says so, or ends the channel, now that nobody reads.
    let reason = timeout(PATIENCE, failed).await.ok().flatten();
    Err(broken(reason.map_or_else(|| causes_of(&error), |reason| reason.trim().to_owned())))
}

#[cfg(test)]
mod tests;
