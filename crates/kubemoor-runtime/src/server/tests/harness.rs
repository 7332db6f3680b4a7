//! A server on loopback and a client that sends it byte by byte what it likes. The tests of the webhook include this
//! file by its path.

use http_body_util::Full;
use prometheus_client::encoding::text::encode;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use kubemoor_runtime::metrics::{ConnectionMetrics, registry};
use kubemoor_runtime::server::{Limits, Peer, ServerShutdown, TlsPort, serve};
use kubemoor_runtime::tls::{CertificateSource, Certificates};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Longer than any test; a wait that comes to its end is a failure.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) const UNHURRIED: Limits =
    Limits { connections: 100, handshake: LONG, idle: LONG, unread: LONG, drain: LONG };

/// A running server whose certificate lies in a directory.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) certificates: Certificates,
    pub(crate) directory: tempfile::TempDir,
    registry: prometheus_client::registry::Registry,
    pub(crate) ending: ServerShutdown,
    pub(crate) server: JoinHandle<()>,
}

/// A client's connection.
pub(crate) struct TlsClient(pub(crate) TlsStream<TcpStream>);

/// A response as it came over the wire.
pub(crate) struct WireResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Running {
    pub(crate) async fn start<H, F>(limits: Limits, answer: H) -> Self
    where
        H: Fn(Peer, Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
    {
        let directory = tempfile::tempdir().unwrap();
        let source = CertificateSource::SelfMade {
            directory: directory.path().to_owned(),
            names: vec!["localhost".to_owned(), "127.0.0.1".to_owned()],
        };
        let certificates = Certificates::load(source, jiff::Timestamp::now()).unwrap();
        let mut registry = registry();
        let metrics = ConnectionMetrics::register(&mut registry);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let ending = ServerShutdown::default();
        let tls = certificates.server_config().unwrap();
        let port = TlsPort { listener, tls, metrics };
        let server = tokio::spawn(serve(port, answer, limits, ending.clone()));
        Self { address, certificates, directory, registry, ending, server }
    }

    pub(crate) async fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    pub(crate) async fn connect(&self) -> TlsClient {
        let mut roots = RootCertStore::empty();
        let pem = self.certificates.ca_bundle().borrow().clone().unwrap();
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
        let config =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, self.tcp().await);
        TlsClient(timeout(LONG, stream).await.unwrap().unwrap())
    }

    pub(crate) fn metrics(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text
    }

    /// Waits until the metrics hold `line`.
    pub(crate) async fn until_counted(&self, line: &str) {
        let counted = async {
            while !self.metrics().lines().any(|present| present == line) {
                tokio::task::yield_now().await;
            }
        };
        if timeout(LONG, counted).await.is_err() {
            panic!("{line} is not in\n{}", self.metrics());
        }
    }
}

impl TlsClient {
    pub(crate) async fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
        self.0.flush().await.unwrap();
    }

    pub(crate) async fn receive(&mut self) -> WireResponse {
        let receive = async {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(self.0.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap().to_lowercase();
            let length = head.split("content-length: ").nth(1).unwrap().lines().next().unwrap();
            let mut body = vec![0; length.parse().unwrap()];
            self.0.read_exact(&mut body).await.unwrap();
            let status = head.split(' ').nth(1).unwrap().parse().unwrap();
            WireResponse { status, head, body: String::from_utf8(body).unwrap() }
        };
        timeout(LONG, receive).await.expect("an answer comes")
    }

    pub(crate) async fn get(&mut self, path: &str) -> WireResponse {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")).await;
        self.receive().await
    }

    /// Waits until the server closes the connection, and gives what it sent.
    pub(crate) async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        match timeout(LONG, self.0.read_to_end(&mut rest)).await.expect("the connection is closed") {
            Ok(_) => {}
            // Closed without TLS's own farewell.
            Err(error) => assert!(
                matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset),
                "{error}"
            ),
        }
        String::from_utf8(rest).unwrap()
    }
}
