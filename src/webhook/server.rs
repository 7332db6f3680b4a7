//! Serves HTTP/1.1 over TLS to the API server.
//!
//! Entry point: [`serve`]. Invariant: no client holds up another. Every
//! connection lives in a task of its own from its first byte on, within a
//! number and within times that [`Limits`] sets, and no failure of one ends the
//! server. Must not know what is served.
//!
//! It is hyper's own connection with one service, without a router: the port
//! has one path, and each layer in front of it would cost every request of the
//! cluster.

mod patience;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, debug, debug_span, warn};

use self::patience::{Impatient, Turn};
use crate::metrics::{ConnectionEnd, ConnectionMetrics};

/// The times and numbers that keep one client from holding up the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at one time; further ones are closed at once.
    pub connections: usize,
    /// From the connection to the end of its TLS handshake.
    pub handshake: Duration,
    /// From the first byte of a request's head to its last.
    pub head: Duration,
    /// Between requests. Longer than the 90 seconds after which the API server
    /// drops an idle connection, because one that is closed under its hands
    /// can cost it a request.
    pub idle: Duration,
    /// What requests in flight get once the server is told to stop.
    pub drain: Duration,
}

/// How long the server waits when the system has no more descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Everything that a connection's task needs.
struct Shared<H> {
    tls: TlsAcceptor,
    answer: H,
    limits: Limits,
    metrics: ConnectionMetrics,
    /// No further requests.
    stop: CancellationToken,
    /// No further patience with requests in flight.
    abort: CancellationToken,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            handshake: Duration::from_secs(5),
            head: Duration::from_secs(5),
            idle: Duration::from_secs(120),
            drain: Duration::from_secs(20),
        }
    }
}

/// Accepts connections on `listener` and answers their requests by `answer`,
/// until `stop` is cancelled. Then it closes the listener and idle connections,
/// lets requests in flight end within [`Limits::drain`], cuts off the rest and
/// returns.
///
/// A handshake, head or request that fails ends its connection and is counted
/// in `metrics`. When the system refuses further connections, accepting pauses
/// and goes on.
pub async fn serve<H, F, B>(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    answer: H,
    limits: Limits,
    metrics: ConnectionMetrics,
    stop: CancellationToken,
) where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let abort = CancellationToken::new();
    let shared = Arc::new(Shared {
        tls: TlsAcceptor::from(tls),
        answer,
        limits,
        metrics: metrics.clone(),
        stop: stop.clone(),
        abort: abort.clone(),
    });
    let slots = Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS)));
    let tasks = TaskTracker::new();
    while let Some((stream, peer)) = accept(&listener, &stop).await {
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
            debug!(peer.address = %peer, "a connection is closed, because too many are open");
            metrics.ended(ConnectionEnd::Refused);
            continue;
        };
        let shared = Arc::clone(&shared);
        let connection = async move {
            let open = shared.metrics.opened();
            let end = shared.connection(stream).await;
            drop(open);
            shared.metrics.ended(end);
            drop(slot);
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

/// The next connection; `None` once the server is to stop.
async fn accept(listener: &TcpListener, stop: &CancellationToken) -> Option<(TcpStream, SocketAddr)> {
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
                tokio::select! {
                    () = stop.cancelled() => return None,
                    () = sleep(ACCEPT_PAUSE) => {}
                }
            }
        }
    }
}

/// Whether accepting failed by one client's doing and not for want of
/// descriptors or memory.
fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

impl<H, F, B> Shared<H>
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Serves one connection to its end.
    async fn connection(&self, stream: TcpStream) -> ConnectionEnd {
        if let Err(error) = stream.set_nodelay(true) {
            debug!(%error, "small writes may be delayed");
        }
        let handshake = timeout(self.limits.handshake, self.tls.accept(stream));
        let stream = tokio::select! {
            () = self.stop.cancelled() => return ConnectionEnd::Stopped,
            shaken = handshake => match shaken {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => {
                    debug!(%error, "the TLS handshake failed");
                    return ConnectionEnd::Handshake;
                }
                Err(_) => {
                    debug!("the TLS handshake took more than {:?}", self.limits.handshake);
                    return ConnectionEnd::Handshake;
                }
            },
        };
        let turn = Turn::default();
        let stream = TokioIo::new(Impatient::new(stream, &turn, self.limits.head, self.limits.idle));
        let service = service_fn(move |request| {
            let serving = turn.begin();
            let response = (self.answer)(request);
            async move {
                let response = response.await;
                drop(serving);
                Ok::<_, Infallible>(response)
            }
        });
        let mut connection =
            pin!(http1::Builder::new().header_read_timeout(None).serve_connection(stream, service));
        let mut stopping = false;
        loop {
            tokio::select! {
                biased;
                () = self.abort.cancelled() => return ConnectionEnd::CutOff,
                () = self.stop.cancelled(), if !stopping => {
                    stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
                ended = connection.as_mut() => return match ended {
                    Ok(()) if stopping => ConnectionEnd::Stopped,
                    Ok(()) => ConnectionEnd::Closed,
                    Err(error) => {
                        debug!(error = &error as &dyn std::error::Error, "the connection failed");
                        if ran_out_of_time(&error) { ConnectionEnd::Slow } else { ConnectionEnd::Failed }
                    }
                },
            }
        }
    }
}

/// Whether [`Impatient`] ended the connection.
fn ran_out_of_time(error: &hyper::Error) -> bool {
    std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<io::Error>())
        .is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests;
