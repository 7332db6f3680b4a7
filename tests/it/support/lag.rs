//! A watch that falls behind, and an API server that turns requests away: what a guard sees on a bad day, made on
//! purpose.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use futures::{Stream, StreamExt as _, stream};
use http::StatusCode;
use http_body_util::BodyExt as _;
use kube::Client;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::control_plane::ControlPlane;
use super::identity::Identity;
use super::process::folder;

/// Stands between a guard and its API server and passes everything on, but for the events of watches while they are
/// held, and for what it is told to turn away. Dropping it cuts the connections.
pub(crate) struct LaggingWatch {
    kubeconfig: PathBuf,
    traffic: watch::Sender<Traffic>,
    turned_away: Arc<AtomicUsize>,
    server: JoinHandle<()>,
}

struct Upstream {
    client: Client,
    traffic: watch::Receiver<Traffic>,
    turned_away: Arc<AtomicUsize>,
}

#[derive(Clone, Copy, Default)]
struct Traffic {
    held: bool,
    throttled: bool,
    /// How often all watches were ended.
    expired: u64,
}

impl LaggingWatch {
    /// Starts it with watches flowing; requests go on under the identity given.
    pub(crate) async fn start(control_plane: &ControlPlane, identity: Identity) -> Self {
        let (traffic, receiver) = watch::channel(Traffic::default());
        let turned_away = Arc::new(AtomicUsize::new(0));
        let upstream = Arc::new(Upstream {
            client: control_plane.client(identity).await,
            traffic: receiver,
            turned_away: Arc::clone(&turned_away),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let kubeconfig = kubeconfig(&format!("http://{}", listener.local_addr().unwrap()));
        let router = Router::new().fallback(pass_on).with_state(upstream);
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { kubeconfig, traffic, turned_away, server }
    }

    /// What the guard is to be started with.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// From now on no watch event arrives, on no connection.
    pub(crate) fn hold(&self) {
        self.traffic.send_modify(|traffic| traffic.held = true);
    }

    /// Everything that was held arrives, in order.
    pub(crate) fn release(&self) {
        self.traffic.send_modify(|traffic| traffic.held = false);
    }

    /// Every watch is told that it is too old, and ends; what was held never arrives.
    pub(crate) fn expire(&self) {
        self.traffic.send_modify(|traffic| traffic.expired += 1);
    }

    /// From now on everything is answered with 429, or no more. Watches that stand go on.
    pub(crate) fn throttle(&self, throttled: bool) {
        self.traffic.send_modify(|traffic| traffic.throttled = throttled);
    }

    /// How many requests were answered with 429.
    pub(crate) fn turned_away(&self) -> usize {
        self.turned_away.load(Ordering::Relaxed)
    }
}

impl Drop for LaggingWatch {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn pass_on(State(upstream): State<Arc<Upstream>>, request: Request) -> Response {
    let is_watch =
        request.uri().query().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true"));
    let began = *upstream.traffic.borrow();
    if began.throttled {
        upstream.turned_away.fetch_add(1, Ordering::Relaxed);
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 429,
            "reason": "TooManyRequests", "message": "too many requests",
        });
        return Response::builder()
            .status(StatusCode::TOO_MANY_REQUESTS)
            .header("Retry-After", "1")
            .header("Content-Type", "application/json")
            .body(Body::from(status.to_string()))
            .unwrap();
    }
    let (mut head, body) = request.into_parts();
    // The client has its own address and token to put there.
    head.headers.remove(http::header::HOST);
    head.headers.remove(http::header::AUTHORIZATION);
    let body = body.collect().await.unwrap().to_bytes();
    let request = http::Request::from_parts(head, kube::client::Body::from(body));
    let Ok(answer) = upstream.client.send(request).await else {
        return Response::builder().status(StatusCode::BAD_GATEWAY).body(Body::empty()).unwrap();
    };
    let (head, body) = answer.into_parts();
    let chunks = body.into_data_stream().map(|chunk| chunk.map_err(axum::Error::new));
    if is_watch {
        let chunks = lagging(chunks.boxed(), upstream.traffic.clone(), began.expired);
        return Response::from_parts(head, Body::from_stream(chunks));
    }
    Response::from_parts(head, Body::from_stream(chunks))
}

/// The events of a watch that began when watches had been ended `began` times.
fn lagging(
    chunks: stream::BoxStream<'static, Result<Bytes, axum::Error>>,
    traffic: watch::Receiver<Traffic>,
    began: u64,
) -> impl Stream<Item = Result<Bytes, axum::Error>> {
    stream::unfold(Some((chunks, traffic)), move |open| async move {
        let (mut chunks, mut traffic) = open?;
        let mut ended = traffic.clone();
        let chunk = tokio::select! {
            // Fails when the test is over: then nobody listens either.
            _ = ended.wait_for(|traffic| traffic.expired > began) => None,
            chunk = chunks.next() => Some(chunk?),
        };
        if chunk.is_some() {
            let _ = traffic.wait_for(|traffic| !traffic.held || traffic.expired > began).await;
        }
        let is_expired = traffic.borrow().expired > began;
        match chunk {
            Some(chunk) if !is_expired => Some((chunk, Some((chunks, traffic)))),
            _ => {
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410,
                    "reason": "Expired", "message": "too old resource version",
                });
                let event = json!({"type": "ERROR", "object": status});
                Some((Ok(Bytes::from(format!("{event}\n"))), None))
            }
        }
    })
}

pub(super) fn kubeconfig(url: &str) -> PathBuf {
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": url}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "users": [{"name": "test", "user": {}}],
        "current-context": "test",
    });
    let path = folder("proxied").join("kubeconfig");
    fs::write(&path, kubeconfig.to_string()).unwrap();
    path
}
