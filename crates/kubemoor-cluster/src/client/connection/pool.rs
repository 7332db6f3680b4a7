//! Replaces connections that are lost silently, and repeats the requests on them.
//!
//! Entry point: [`ConnectionPool::send`]. Invariant: only reads are sent twice, each at most once more. New
//! connections are tried at most once in [`BETWEEN`], so a slow server gets little extra load. Must not know
//! the content of requests.
//!
//! A load balancer or a firewall may forget a connection without notifying either end. A request on it waits
//! until its time limit, and a client with many such connections has as many such waits ahead. So the first
//! read that waits too long is sent again over a new connection. If that one answers first, all later
//! requests use new connections, and so do the reads that are waiting at that moment.

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
    /// All requests use it.
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

    /// Sends a request. A read that gets no answer for a while is also sent over a new connection.
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

    /// Takes the turn to try new connections, unless another request took it a moment ago.
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
