//! Connections that are lost without a word are given up, and the requests on them are asked anew.
//!
//! Entry point: [`ConnectionPool::send`]. Invariant: only reads are sent twice, each at most once more, and new
//! connections are tried at most once in [`BETWEEN`], so a server that is slow gets little more to do. Must not know
//! what is asked.
//!
//! A load balancer or a firewall may forget a connection without telling either end. A request on it waits until its
//! time is over, and a client that has used many connections has as many such waits before it. So the first read that
//! waits for long is sent over a connection that is sure to be new. If that one answers first, all later requests take
//! new connections, and so do the reads that wait at that moment.

use std::pin::pin;
use std::time::Duration;

use http::header::UPGRADE;
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// How long a read waits for an answer before a new connection is tried.
const PATIENCE: Duration = Duration::from_secs(1);

/// The time between two such attempts.
const BETWEEN: Duration = Duration::from_secs(5);

/// Makes a client that shares no connection with any other.
type Make = Box<dyn Fn() -> kube::Result<Client> + Send + Sync>;

/// The client in use, which keeps its connections.
pub(super) struct ConnectionPool {
    make: Make,
    current: watch::Sender<Client>,
    /// When new connections were tried last.
    tried: Mutex<Option<Instant>>,
}

/// Another client than the one that keeps silent.
enum Other {
    /// Everybody uses it by now.
    Current(Client),
    /// It was made for this request.
    New(Client),
}

impl ConnectionPool {
    /// The pool of a server, whose clients come from `make`.
    ///
    /// # Errors
    /// The first client cannot be made.
    pub(super) fn new(make: impl Fn() -> kube::Result<Client> + Send + Sync + 'static) -> kube::Result<Self> {
        let current = watch::Sender::new(make()?);
        Ok(Self { make: Box::new(make), current, tried: Mutex::default() })
    }

    /// Sends a request. A read that gets no answer for a while is sent over a new connection as well.
    ///
    /// # Errors
    /// When there is no answer.
    pub(super) async fn send(&self, request: Request<Body>) -> kube::Result<Response<Body>> {
        let mut news = self.current.subscribe();
        let client = news.borrow_and_update().clone();
        let (parts, body) = request.into_parts();
        let is_read = parts.method == Method::GET && !parts.headers.contains_key(UPGRADE);
        let again = is_read.then(|| Request::from_parts(parts.clone(), Body::empty()));
        let mut first = pin!(client.send(Request::from_parts(parts, body)));
        let Some(again) = again else { return first.await };
        let other = tokio::select! {
            answer = &mut first => return answer,
            other = self.other(&mut news) => other,
        };
        let (Other::Current(second) | Other::New(second)) = &other;
        tokio::select! {
            answer = &mut first => answer,
            Ok(answer) = second.send(again) => {
                if let Other::New(client) = other {
                    tracing::info!("connections to the API server were lost without a word; new ones are used");
                    self.current.send_replace(client);
                }
                Ok(answer)
            }
        }
    }

    /// Waits for another client to try: the one that others use by now, or a new one when it is time.
    async fn other(&self, news: &mut watch::Receiver<Client>) -> Other {
        tokio::select! {
            // The sender lives as long as this.
            Ok(()) = news.changed() => return Other::Current(news.borrow_and_update().clone()),
            () = sleep(PATIENCE) => {}
        }
        if self.may_try() {
            match (self.make)() {
                Ok(client) => return Other::New(client),
                Err(error) => tracing::debug!(%error, "no new connection to the API server can be tried"),
            }
        }
        match news.changed().await {
            Ok(()) => Other::Current(news.borrow_and_update().clone()),
            Err(_) => std::future::pending().await,
        }
    }

    /// Takes the turn to try new connections, unless somebody took it a moment ago.
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
