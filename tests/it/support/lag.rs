//! A watch that falls behind: what a guard sees on a bad day, made on purpose.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use futures::StreamExt as _;
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
/// held. Dropping it cuts the connections.
pub(crate) struct LaggingWatch {
    kubeconfig: PathBuf,
    flowing: watch::Sender<bool>,
    server: JoinHandle<()>,
}

struct Upstream {
    client: Client,
    flowing: watch::Receiver<bool>,
}

impl LaggingWatch {
    /// Starts it with watches flowing; requests go on under the identity given.
    pub(crate) async fn start(control_plane: &ControlPlane, identity: Identity) -> Self {
        let (flowing, receiver) = watch::channel(true);
        let upstream = Arc::new(Upstream { client: control_plane.client(identity).await, flowing: receiver });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let kubeconfig = kubeconfig(&format!("http://{}", listener.local_addr().unwrap()));
        let router = Router::new().fallback(pass_on).with_state(upstream);
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { kubeconfig, flowing, server }
    }

    /// What the guard is to be started with.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// From now on no watch event arrives, on no connection.
    pub(crate) fn hold(&self) {
        self.flowing.send_replace(false);
    }

    /// Everything that was held arrives, in order.
    pub(crate) fn release(&self) {
        self.flowing.send_replace(true);
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
    let flowing = upstream.flowing.clone();
    let chunks = body.into_data_stream().then(move |chunk| {
        let mut flowing = flowing.clone();
        async move {
            if is_watch {
                // Fails when the test is over: then nobody listens either.
                let _ = flowing.wait_for(|flowing| *flowing).await;
            }
            chunk
        }
    });
    Response::from_parts(head, Body::from_stream(chunks))
}

fn kubeconfig(url: &str) -> PathBuf {
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": url}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "users": [{"name": "test", "user": {}}],
        "current-context": "test",
    });
    let path = folder("lagging-watch").join("kubeconfig");
    fs::write(&path, kubeconfig.to_string()).unwrap();
    path
}
