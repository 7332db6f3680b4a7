//! Helm that keeps its records in another namespace than the release's, as Flux's controller runs it. The SDK has no such
//! option, so a proxy moves its requests for records, and nothing else, to where they are to lie.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use futures::StreamExt as _;
use http::{StatusCode, Uri};
use http_body_util::BodyExt as _;
use kube::Client;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::control_plane::ControlPlane;
use super::identity::Identity;
use super::lag;

/// Stands between Helm and its API server. Dropping it cuts the connections.
pub(crate) struct StorageNamespace {
    kubeconfig: PathBuf,
    server: JoinHandle<()>,
}

struct Upstream {
    client: Client,
    /// The path of the Secrets in the release's namespace, and of those in the records'.
    secrets: (String, String),
}

impl StorageNamespace {
    /// Keeps the records of releases in `namespace` in `storage`; requests go on under the identity given.
    pub(crate) async fn start(
        control_plane: &ControlPlane,
        identity: Identity,
        namespace: &str,
        storage: &str,
    ) -> Self {
        let path = |namespace: &str| format!("/api/v1/namespaces/{namespace}/secrets");
        let client = control_plane.client(identity).await;
        let upstream = Arc::new(Upstream { client, secrets: (path(namespace), path(storage)) });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let kubeconfig = lag::kubeconfig(&format!("http://{}", listener.local_addr().unwrap()));
        let router = Router::new().fallback(pass_on).with_state(upstream);
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { kubeconfig, server }
    }

    /// What Helm is to be started with.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}

impl Drop for StorageNamespace {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Upstream {
    /// Where a request goes: for a record by its name, for many by Helm's label, for a new one by what it is.
    fn moved(&self, uri: &Uri, body: &[u8]) -> Uri {
        let (from, to) = &self.secrets;
        let Some(rest) = uri.path().strip_prefix(from.as_str()) else { return uri.clone() };
        // As JSON or as protobuf.
        let kind = b"helm.sh/release.v1";
        let created = || body.windows(kind.len()).any(|part| part == kind);
        let query = uri.query().unwrap_or_default();
        let is_record = match rest {
            "" => query.contains("owner%3Dhelm") || created(),
            name => name.starts_with("/sh.helm.release.v1."),
        };
        if is_record { format!("{to}{rest}?{query}").parse().unwrap() } else { uri.clone() }
    }
}

async fn pass_on(State(upstream): State<Arc<Upstream>>, request: Request) -> Response {
    let (mut head, body) = request.into_parts();
    // The client has its own address and token to put there.
    head.headers.remove(http::header::HOST);
    head.headers.remove(http::header::AUTHORIZATION);
    let body = body.collect().await.unwrap().to_bytes();
    head.uri = upstream.moved(&head.uri, &body);
    let request = http::Request::from_parts(head, kube::client::Body::from(body));
    let Ok(answer) = upstream.client.send(request).await else {
        return Response::builder().status(StatusCode::BAD_GATEWAY).body(Body::empty()).unwrap();
    };
    let (head, body) = answer.into_parts();
    let chunks = body.into_data_stream().map(|chunk| chunk.map_err(axum::Error::new));
    Response::from_parts(head, Body::from_stream(chunks))
}
