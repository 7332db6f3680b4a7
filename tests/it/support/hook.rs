//! Webhooks of somebody else's, over TLS on loopback.
//!
//! Entry point: [`serve_hook`].

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::control_plane::install_crypto_provider;

/// Connections over TLS.
struct Tls {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

/// Serves a webhook: its task, and the `clientConfig` by which the API server calls it.
pub(crate) async fn serve_hook(router: Router) -> (JoinHandle<()>, Value) {
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
    let server = tokio::spawn(async move { axum::serve(tls, router).await.unwrap() });
    let authority = STANDARD.encode(signed.cert.pem());
    (server, json!({"url": format!("https://{address}/"), "caBundle": authority}))
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
