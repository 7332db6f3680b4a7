//! A mutating webhook like those of registry mirrors and policy engines: it rewrites what is written to an object.

use axum::Router;
use axum::body::Bytes;
use axum::response::Json;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::caller::Caller;
use super::control_plane::{ControlPlane, install_crypto_provider};
use super::identity::Identity;

/// Where images come from once it has rewritten them.
const MIRROR: &str = "mirror.example/";

/// Rewrites the images of Deployments and adds a toleration, on creation and on update. Dropping it ends it, and the
/// API server refuses all writes of Deployments then.
pub(crate) struct Rewriter {
    server: JoinHandle<()>,
}

/// Connections over TLS.
struct Tls {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Rewriter {
    /// Starts it and has the API server call it.
    pub(crate) async fn start(control_plane: &ControlPlane) -> Self {
        install_crypto_provider();
        let signed = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::Pkcs8(signed.signing_key.serialize_der().into());
        let config = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![signed.cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tls = Tls { listener, acceptor: TlsAcceptor::from(Arc::new(config)) };
        let router = Router::new().fallback(rewrite);
        let server = tokio::spawn(async move { axum::serve(tls, router).await.unwrap() });
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "mirror"},
            "webhooks": [{
                "name": "mirror.example.org", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "failurePolicy": "Fail", "matchPolicy": "Equivalent",
                "clientConfig": {
                    "url": format!("https://{address}/"),
                    "caBundle": STANDARD.encode(signed.cert.pem()),
                },
                "rules": [{
                    "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"],
                    "operations": ["CREATE", "UPDATE"],
                }],
            }],
        });
        let admin = Caller::new(control_plane, Identity::Admin).await;
        let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
        admin.post(path, &configuration).await.done().unwrap();
        Self { server }
    }
}

impl Drop for Rewriter {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl axum::serve::Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let Ok((connection, address)) = self.listener.accept().await else { continue };
            if let Ok(connection) = self.acceptor.accept(connection).await {
                return (connection, address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// Answers one review.
async fn rewrite(body: Bytes) -> Json<Value> {
    let review: Value = serde_json::from_slice(&body).unwrap();
    let object = &review["request"]["object"];
    let mut patch = Vec::new();
    let containers = object.pointer("/spec/template/spec/containers").and_then(Value::as_array);
    for (index, container) in containers.into_iter().flatten().enumerate() {
        let image = container["image"].as_str().unwrap_or_default();
        if !image.starts_with(MIRROR) {
            let path = format!("/spec/template/spec/containers/{index}/image");
            patch.push(json!({"op": "replace", "path": path, "value": format!("{MIRROR}{image}")}));
        }
    }
    if let Some(tolerations) = object.pointer("/spec/template/spec/tolerations").and_then(Value::as_array) {
        let spot = json!({"key": "spot", "operator": "Exists"});
        if !tolerations.contains(&spot) {
            let path = "/spec/template/spec/tolerations/-";
            patch.push(json!({"op": "add", "path": path, "value": spot}));
        }
    }
    Json(json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {
            "uid": review["request"]["uid"], "allowed": true, "patchType": "JSONPatch",
            "patch": STANDARD.encode(json!(patch).to_string()),
        },
    }))
}
