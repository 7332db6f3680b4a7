//! Serves HTTP/1.1 over TLS on both ports.
//!
//! Every connection has its own task from its first byte, within the limits of [`Limits`]: no client delays another,
//! and the failure of one connection does not end the server. When the limit of connections is reached, an idle one is
//! closed for the new one, so that no number of stalled connections locks out other clients.
//!
//! It uses hyper's connection with one service and no router: the webhook's port has few paths, and each layer would
//! slow down every request of the cluster.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use http::header::CONNECTION;
use http::{HeaderValue, Request, Response};
use hyper::body::{Body, Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustix::net::sockopt::set_tcp_user_timeout;
use rustix::process::{Resource, getrlimit, setrlimit};
use rustls::ServerConfig;
use rustls_pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, debug, debug_span, warn};

use crate::metrics::{ConnectionEnd, ConnectionMetrics};

/// The pause after a connection could not be accepted, for example for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The maximum size of a request's head, and of one piece of its body. Every client that may open a connection could
/// use that much memory.
const BUFFER: usize = 64 << 10;

pub struct TlsPort {
    pub listener: TcpListener,
    pub tls: Arc<ServerConfig>,
    pub metrics: ConnectionMetrics,
}

/// The signals that end a server.
#[derive(Clone, Debug, Default)]
pub struct ServerShutdown {
    /// Each answer closes its connection from now on, so that clients connect to another server while this one still
    /// answers.
    pub leaving: CancellationToken,
    /// No connections are accepted any more.
    pub stop: CancellationToken,
}

#[derive(Clone, Debug)]
pub struct Peer {
    /// Its address in canonical form.
    pub address: IpAddr,
    /// The certificates that the client presented, its own first; it has proved that it holds the key of that one.
    /// Empty without one.
    pub certificates: Arc<[CertificateDer<'static>]>,
}

/// The limits that keep one client from delaying the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of open connections. An idle one is closed for a further one.
    pub connections: usize,
    /// From the connection to the end of its TLS handshake.
    pub handshake: Duration,
    /// From the handshake or the last answer to the end of the next request's head. Longer than the 90 seconds after
    /// which the API server drops an idle connection: if this side closes first, its next request can fail.
    pub idle: Duration,
    /// How long a client may not read an answer that was sent.
    pub unread: Duration,
    /// How long requests in flight may take after the stop signal.
    pub drain: Duration,
}

#[derive(Debug)]
struct OpenConnections {
    limit: usize,
    /// A logical clock of connections and answers, for their order.
    clock: AtomicU64,
    open: Mutex<HashMap<u64, Arc<Activity>>>,
}

/// An open connection, until it is dropped.
#[derive(Debug)]
struct OpenConnectionSlot {
    all: Arc<OpenConnections>,
    id: u64,
    activity: Arc<Activity>,
}

#[derive(Debug)]
struct Activity {
    peer: IpAddr,
    /// When it was opened or answered last.
    since: AtomicU64,
    is_serving: AtomicBool,
    /// Whether one of its requests had a successful answer, which on the webhook's port only the API server gets.
    is_proven: AtomicBool,
    displaced: Notify,
}

struct PortService<H> {
    tls: TlsAcceptor,
    answer: H,
    limits: Limits,
    metrics: ConnectionMetrics,
    ending: ServerShutdown,
    /// Cuts off the requests in flight.
    abort: CancellationToken,
}

impl Peer {
    fn new(address: IpAddr, stream: &TlsStream<TcpStream>) -> Self {
        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let certificates = certificates.iter().map(|certificate| certificate.clone().into_owned());
        Self { address, certificates: certificates.collect() }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            handshake: Duration::from_secs(5),
            idle: Duration::from_secs(120),
            unread: Duration::from_secs(30),
            drain: Duration::from_secs(20),
        }
    }
}

/// Accepts connections on `port` and answers their requests with `answer`, which also gets the peer, until
/// `ending` tells it to stop. Then it closes the port and idle connections, lets requests in flight end
/// within [`Limits::drain`], cuts off the rest and returns.
///
/// A handshake, head or request that fails ends its connection and is counted in the port's metrics. When the
/// system refuses further connections, the server pauses and then accepts again.
pub async fn serve<H, F, B>(port: TlsPort, answer: H, limits: Limits, ending: ServerShutdown)
where
    H: Fn(Peer, Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let TlsPort { listener, tls, metrics } = port;
    let abort = CancellationToken::new();
    let shared = Arc::new(PortService {
        tls: TlsAcceptor::from(tls),
        answer,
        limits,
        metrics: metrics.clone(),
        ending: ending.clone(),
        abort: abort.clone(),
    });
    let connections = OpenConnections::new(limits.connections);
    let tasks = TaskTracker::new();
    while let Some((stream, peer)) = accept(&listener, &connections, &ending.stop).await {
        // An IPv4 address and its IPv4-mapped IPv6 address are the same peer.
        let address = peer.ip().to_canonical();
        let Some(connection) = connections.begin(address) else {
            debug!(peer.address = %peer, "closing a connection, because too many are open");
            metrics.ended(ConnectionEnd::Refused);
            continue;
        };
        let shared = Arc::clone(&shared);
        let served = async move {
            let open = shared.metrics.opened();
            let end = shared.serve(stream, address, &connection).await;
            drop(open);
            shared.metrics.ended(end);
        };
        tasks.spawn(served.instrument(debug_span!("connection", peer.address = %peer)));
    }
    drop(listener);
    tasks.close();
    if timeout(limits.drain, tasks.wait()).await.is_err() {
        warn!(
            connections = tasks.len(),
            "aborting requests that are still in flight after the drain timeout of {:?}", limits.drain
        );
        abort.cancel();
        tasks.wait().await;
    }
}

/// The next connection; `None` after the stop signal.
async fn accept(
    listener: &TcpListener,
    connections: &OpenConnections,
    stop: &CancellationToken,
) -> Option<(TcpStream, SocketAddr)> {
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return None,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(connection) => return Some(connection),
            Err(error) if is_client_error(&error) => {
                debug!(%error, "a connection ended before it was accepted");
            }
            Err(error) => {
                warn!(%error, "failed to accept a connection; retrying in {ACCEPT_PAUSE:?}");
                // Closing an idle connection frees a file descriptor.
                close_idle_connection(&mut connections.open.lock(), None);
                tokio::select! {
                    () = stop.cancelled() => return None,
                    () = sleep(ACCEPT_PAUSE) => {}
                }
            }
        }
    }
}

/// Whether accepting failed because of one client and not for lack of descriptors or memory.
fn is_client_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

impl<H, F, B> PortService<H>
where
    H: Fn(Peer, Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Serves one connection from `address` to its end.
    async fn serve(
        &self,
        stream: TcpStream,
        address: IpAddr,
        connection: &OpenConnectionSlot,
    ) -> ConnectionEnd {
        if let Err(error) = stream.set_nodelay(true) {
            debug!(%error, "failed to set TCP_NODELAY; small writes may be delayed");
        }
        let unread = u32::try_from(self.limits.unread.as_millis()).unwrap_or(u32::MAX);
        if let Err(error) = set_tcp_user_timeout(&stream, unread) {
            debug!(%error, "failed to set TCP_USER_TIMEOUT; reads by the client are not limited");
        }
        let stream = match self.handshake(stream, connection).await {
            Ok(stream) => stream,
            Err(end) => return end,
        };
        let peer = Peer::new(address, &stream);
        let service = service_fn(move |request| {
            connection.activity.is_serving.store(true, Ordering::Relaxed);
            let response = (self.answer)(peer.clone(), request);
            let leaving = &self.ending.leaving;
            async move {
                let mut response = response.await;
                if leaving.is_cancelled() {
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                connection.answered(response.status().is_success());
                Ok::<_, Infallible>(response)
            }
        });
        let mut builder = http1::Builder::new();
        let builder =
            builder.timer(TokioTimer::new()).header_read_timeout(self.limits.idle).max_buf_size(BUFFER);
        let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let mut stopping = false;
        loop {
            tokio::select! {
                biased;
                () = self.abort.cancelled() => return ConnectionEnd::CutOff,
                // Before `stop`, so that a request that has already arrived is answered.
                ended = served.as_mut() => return match ended {
                    Ok(()) if stopping => ConnectionEnd::Stopped,
                    Ok(()) => ConnectionEnd::Closed,
                    Err(error) => failed(&error),
                },
                () = self.ending.stop.cancelled(), if !stopping => {
                    stopping = true;
                    served.as_mut().graceful_shutdown();
                }
                () = connection.activity.displaced.notified() => {
                    served.as_mut().graceful_shutdown();
                    // One poll ends it, unless a request arrived at the last moment, which is still answered.
                    let is_open = timeout(Duration::ZERO, served.as_mut()).await.is_err();
                    if is_open && connection.activity.is_serving.load(Ordering::Relaxed) {
                        tokio::select! {
                            () = self.abort.cancelled() => {}
                            _ = timeout(self.limits.drain, served.as_mut()) => {}
                        }
                    }
                    return ConnectionEnd::Displaced;
                }
            }
        }
    }
}

/// How a connection ended that failed in hyper.
fn failed(error: &hyper::Error) -> ConnectionEnd {
    debug!(error = error as &dyn std::error::Error, "the connection failed");
    if error.is_timeout() { ConnectionEnd::Slow } else { ConnectionEnd::Failed }
}

impl<H> PortService<H> {
    /// Performs the TLS handshake. The error is how the connection ended.
    async fn handshake(
        &self,
        stream: TcpStream,
        connection: &OpenConnectionSlot,
    ) -> Result<TlsStream<TcpStream>, ConnectionEnd> {
        let handshake = timeout(self.limits.handshake, self.tls.accept(stream));
        tokio::select! {
            () = self.ending.stop.cancelled() => Err(ConnectionEnd::Stopped),
            () = connection.activity.displaced.notified() => Err(ConnectionEnd::Displaced),
            shaken = handshake => match shaken {
                Ok(Ok(stream)) => Ok(stream),
                Ok(Err(error)) => {
                    debug!(%error, "the TLS handshake failed");
                    Err(ConnectionEnd::Handshake)
                }
                Err(_) => {
                    debug!("the TLS handshake took more than {:?}", self.limits.handshake);
                    Err(ConnectionEnd::Handshake)
                }
            },
        }
    }
}

impl OpenConnections {
    fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, clock: AtomicU64::default(), open: Mutex::default() })
    }

    /// Admits a connection of a peer, if necessary in the place of an idle one; `None` if no idle one may be displaced.
    fn begin(self: &Arc<Self>, peer: IpAddr) -> Option<OpenConnectionSlot> {
        let mut open = self.open.lock();
        if open.len() >= self.limit && !close_idle_connection(&mut open, Some(peer)) {
            return None;
        }
        let id = self.clock.fetch_add(1, Ordering::Relaxed);
        let activity = Arc::new(Activity {
            peer,
            since: AtomicU64::new(id),
            is_serving: AtomicBool::new(false),
            is_proven: AtomicBool::new(false),
            displaced: Notify::new(),
        });
        open.insert(id, Arc::clone(&activity));
        Some(OpenConnectionSlot { all: Arc::clone(self), id, activity })
    }
}

/// Ends an idle connection: preferably one without a successful answer, then one of the peer with the most connections,
/// then the one that has been idle longest. A peer displaces only its own connections, or those of a peer that has at
/// least as many. Returns whether one was ended.
fn close_idle_connection(open: &mut HashMap<u64, Arc<Activity>>, by: Option<IpAddr>) -> bool {
    let mut counts = HashMap::<IpAddr, usize>::new();
    open.values().for_each(|activity| *counts.entry(activity.peer).or_default() += 1);
    let count = |peer: &IpAddr| counts.get(peer).copied().unwrap_or_default();
    let own = by.as_ref().map_or(0, count);
    let idle = open.iter().filter(|(_, activity)| {
        let may_end = Some(activity.peer) == by || count(&activity.peer) >= own;
        may_end && !activity.is_serving.load(Ordering::Relaxed)
    });
    let first = idle.min_by_key(|(_, activity)| {
        let since = activity.since.load(Ordering::Relaxed);
        (activity.is_proven.load(Ordering::Relaxed), Reverse(count(&activity.peer)), since)
    });
    let Some(id) = first.map(|(id, _)| *id) else { return false };
    if let Some(activity) = open.remove(&id) {
        activity.displaced.notify_one();
    }
    true
}

impl OpenConnectionSlot {
    /// Records an answer, successful or not; the connection is idle from now on.
    fn answered(&self, well: bool) {
        self.activity.since.store(self.all.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        if well {
            self.activity.is_proven.store(true, Ordering::Relaxed);
        }
        self.activity.is_serving.store(false, Ordering::Relaxed);
    }
}

impl Drop for OpenConnectionSlot {
    fn drop(&mut self) {
        // A displaced connection is already removed.
        self.all.open.lock().remove(&self.id);
    }
}

/// Raises the soft limit of open descriptors to the hard one: the default of shells and systemd is lower than the
/// number of connections that a port may have. If the system does not allow it, the limit stays unchanged.
pub fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            debug!(%error, "failed to raise the limit on open file descriptors");
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
