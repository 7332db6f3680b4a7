//! Requests over one connection, one after the other.
//!
//! Entry points: `open`, `Exchange::client`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, Uri, header};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use kube::client::Body;
use kube::client::middleware::AuthLayer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex;
use tower::{BoxError, Layer, Service};

/// A connection that takes requests.
#[derive(Clone)]
pub(super) struct Exchange {
    /// One at a time, whose answer may still be read while the next one waits.
    sender: Arc<Mutex<SendRequest<Body>>>,
    host: HeaderValue,
}

/// Begins HTTP/1.1 on a connection to `host`.
pub(super) async fn open<S>(stream: S, host: &str) -> Result<Exchange, BoxError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let host = HeaderValue::from_str(host)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // The task ends with the last sender. Errors reach the request that waits for an answer.
    tokio::spawn(connection);
    Ok(Exchange { sender: Arc::new(Mutex::new(sender)), host })
}

impl Exchange {
    /// A client of this connection, which adds the user's token where there is one.
    pub(super) fn client(self, token: Option<AuthLayer>) -> kube::Client {
        match token {
            Some(token) => kube::Client::new(token.layer(self), "default"),
            None => kube::Client::new(self, "default"),
        }
    }
}

impl Service<Request<Body>> for Exchange {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let Self { sender, host } = self.clone();
        Box::pin(async move {
            let path = request.uri().path_and_query().cloned();
            *request.uri_mut() = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
            request.headers_mut().insert(header::HOST, host);
            let mut sender = sender.lock().await;
            sender.ready().await?;
            Ok(sender.send_request(request).await?)
        })
    }
}
