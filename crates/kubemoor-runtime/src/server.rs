//! Serves HTTP/1.1 over TLS on both ports.
//!
//! Entry point: [`serve`]. Invariant: no client delays another. Every connection has its own task from its
//! first byte on, within the number and the times of [`Limits`]. The failure of one does not end the server.
//! Where connections run out, an idle one is closed. Must not know what is served.
//!
//! It is hyper's own connection with one service, without a router: the webhook's port has few paths, and
//! each layer before them would slow down every request of the cluster.

pub mod descriptors;
mod patience;
mod seats;
pub mod turns;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::CONNECTION;
use http::{HeaderValue, Request, Response};
use hyper::body::{Body, Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls_pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, debug, debug_span, warn};

use self::patience::{Impatient, Turn};
use self::seats::{Seat, Seats};
use crate::metrics::{ConnectionEnd, ConnectionMetrics};

/// The pause when the system has no more descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The pause between checks whether the last request has ended on a connection that is being replaced.
const FAREWELL: Duration = Duration::from_millis(100);

/// The maximum size of a request's head, and of one piece of its body. Every client that may open a
/// connection could use that much memory.
const BUFFER: usize = 64 << 10;

/// A port that is served.
pub struct TlsPort {
    /// Where connections arrive.
    pub listener: TcpListener,
    /// The TLS configuration.
    pub tls: Arc<ServerConfig>,
    /// The metrics of the connections.
    pub metrics: ConnectionMetrics,
}

/// How a server is told to end.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// From now on each answer is the last of its connection, so that clients connect to another server while
    /// this one still answers.
    pub leaving: CancellationToken,
    /// Nothing is accepted any more.
    pub stop: CancellationToken,
}

/// The client of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its address, spelled in one way.
    pub address: IpAddr,
    /// The certificates that the client presented, its own first; it has proved that it holds the key of that
    /// one. Empty without one.
    pub certificates: Arc<[CertificateDer<'static>]>,
}

/// The times and numbers that keep one client from holding up the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at one time. For a further one an idle one is closed; the
    /// last eighth is kept for peers that have less than half of all.
    pub connections: usize,
    /// From the connection to the end of its TLS handshake.
    pub handshake: Duration,
    /// From the first byte of a request's head to its last.
    pub head: Duration,
    /// Between requests. Longer than the 90 seconds after which the API server
    /// drops an idle connection, because one that is closed under its hands
    /// can cost it a request.
    pub idle: Duration,
    /// For the client to take an answer that does not go out at once.
    pub answer: Duration,
    /// How long requests in flight may take after the stop signal.
    pub drain: Duration,
}

/// Everything that a connection's task needs.
struct Shared<H> {
    tls: TlsAcceptor,
    answer: H,
    limits: Limits,
    metrics: ConnectionMetrics,
    ending: Ending,
    /// No further patience with requests in flight.
    abort: CancellationToken,
}

impl Peer {
    fn of(address: IpAddr, stream: &TlsStream<TcpStream>) -> Self {
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
            head: Duration::from_secs(5),
            idle: Duration::from_secs(120),
            answer: Duration::from_secs(20),
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
pub async fn serve<H, F, B>(port: TlsPort, answer: H, limits: Limits, ending: Ending)
where
    H: Fn(Peer, Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let TlsPort { listener, tls, metrics } = port;
    let abort = CancellationToken::new();
    let shared = Arc::new(Shared {
        tls: TlsAcceptor::from(tls),
        answer,
        limits,
        metrics: metrics.clone(),
        ending: ending.clone(),
        abort: abort.clone(),
    });
    let seats = Seats::new(limits.connections);
    let tasks = TaskTracker::new();
    while let Some((stream, peer)) = accept(&listener, &seats, &ending.stop).await {
        let turn = Turn::default();
        // One peer, whichever way its address is spelled.
        let address = peer.ip().to_canonical();
        let Some(seat) = seats.take(address, &turn) else {
            debug!(peer.address = %peer, "a connection is closed, because too many are open");
            metrics.ended(ConnectionEnd::Refused);
            continue;
        };
        let shared = Arc::clone(&shared);
        let connection = async move {
            let open = shared.metrics.opened();
            let end = shared.connection(stream, address, &seat, turn).await;
            drop(open);
            shared.metrics.ended(end);
            drop(seat);
        };
        tasks.spawn(connection.instrument(debug_span!("connection", peer.address = %peer)));
    }
    drop(listener);
    tasks.close();
    if timeout(limits.drain, tasks.wait()).await.is_err() {
        warn!(
            connections = tasks.len(),
            "requests are cut off, because they outlast the {:?} for draining", limits.drain
        );
        abort.cancel();
        tasks.wait().await;
    }
}

/// The next connection; `None` after the stop signal.
async fn accept(
    listener: &TcpListener,
    seats: &Seats,
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
            Err(error) if is_the_clients(&error) => {
                debug!(%error, "a connection ended before it was accepted");
            }
            Err(error) => {
                warn!(%error, "no connection can be accepted; trying again in {ACCEPT_PAUSE:?}");
                // Its descriptor is what is wanted.
                seats.displace();
                tokio::select! {
                    () = stop.cancelled() => return None,
                    () = sleep(ACCEPT_PAUSE) => {}
                }
            }
        }
    }
}

/// Whether accepting failed because of one client and not for lack of descriptors or memory.
fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

impl<H, F, B> Shared<H>
where
    H: Fn(Peer, Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Serves one connection from `address` to its end.
    async fn connection(&self, stream: TcpStream, address: IpAddr, seat: &Seat, turn: Turn) -> ConnectionEnd {
        if let Err(error) = stream.set_nodelay(true) {
            debug!(%error, "small writes may be delayed");
        }
        let stream = match self.handshake(stream, seat).await {
            Ok(stream) => stream,
            Err(end) => return end,
        };
        let peer = Peer::of(address, &stream);
        let stream = TokioIo::new(Impatient::new(stream, &turn, self.limits));
        let (served, idling) = (&turn, &turn);
        let service = service_fn(move |request| {
            let serving = served.begin();
            let response = (self.answer)(peer.clone(), request);
            let leaving = &self.ending.leaving;
            async move {
                let mut response = response.await;
                if leaving.is_cancelled() {
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                seat.answered(response.status().is_success());
                drop(serving);
                Ok::<_, Infallible>(response)
            }
        });
        let mut builder = http1::Builder::new();
        let builder = builder.header_read_timeout(None).max_buf_size(BUFFER);
        let mut connection = pin!(builder.serve_connection(stream, service));
        let mut stopping = false;
        let mut farewell = None;
        loop {
            tokio::select! {
                biased;
                () = self.abort.cancelled() => return ConnectionEnd::CutOff,
                // First, so that a request that has arrived already is answered.
                ended = connection.as_mut() => return match ended {
                    Ok(()) if stopping => ConnectionEnd::Stopped,
                    Ok(()) if farewell.is_some() => ConnectionEnd::Displaced,
                    Ok(()) => ConnectionEnd::Closed,
                    Err(error) => failed(&error),
                },
                () = self.ending.stop.cancelled(), if !stopping => {
                    stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = seat.needed(), if farewell.is_none() => {
                    // One look at it is enough to close it, if nothing is under way.
                    farewell = Some(Instant::now());
                    connection.as_mut().graceful_shutdown();
                }
                () = until(farewell) => {
                    if !idling.is_serving() {
                        return ConnectionEnd::Displaced;
                    }
                    // A request came at the last moment, and is the last.
                    farewell = Some(Instant::now() + FAREWELL);
                }
            }
        }
    }
}

/// How a connection ended that hyper gave up.
fn failed(error: &hyper::Error) -> ConnectionEnd {
    debug!(error = error as &dyn std::error::Error, "the connection failed");
    if ran_out_of_time(error) { ConnectionEnd::Slow } else { ConnectionEnd::Failed }
}

impl<H> Shared<H> {
    /// Encrypts a connection; tells how it ended where it did.
    async fn handshake(&self, stream: TcpStream, seat: &Seat) -> Result<TlsStream<TcpStream>, ConnectionEnd> {
        let handshake = timeout(self.limits.handshake, self.tls.accept(stream));
        tokio::select! {
            () = self.ending.stop.cancelled() => Err(ConnectionEnd::Stopped),
            () = seat.needed() => Err(ConnectionEnd::Displaced),
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

/// Waits for `end`; forever without one.
async fn until(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end).await,
        None => std::future::pending().await,
    }
}

/// Whether [`Impatient`] ended the connection.
fn ran_out_of_time(error: &hyper::Error) -> bool {
    std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<io::Error>())
        .is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
}

#[cfg(test)]
pub(crate) mod tests;
