//! A client as the API server is one: TLS, one connection kept alive, one
//! request after the other.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::load::USER;
use super::server::BenchServer;

/// Sends the same review again and again, each time of another user.
pub(crate) struct BenchClient {
    stream: StreamOwned<ClientConnection, TcpStream>,
    request: Vec<u8>,
    /// Where the user's name ends, and how often was asked.
    user: usize,
    asked: u32,
    answer: Vec<u8>,
}

impl BenchClient {
    pub(crate) fn connect(server: &BenchServer, review: &str) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(server.ca().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let tcp = TcpStream::connect(server.address()).unwrap();
        tcp.set_nodelay(true).unwrap();
        let head = format!(
            "POST {}?timeout=10s HTTP/1.1\r\nhost: localhost\r\nuser-agent: kube-apiserver-admission\r\n\
             accept: application/json, */*\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            server.path(),
            review.len()
        );
        let request = [head.as_bytes(), review.as_bytes()].concat();
        let user = request.windows(USER.len()).position(|name| name == USER).expect("a review has a user");
        let user = user + USER.len();
        let answer = vec![0; 64 << 10];
        Self { stream: StreamOwned::new(connection, tcp), request, user, asked: 0, answer }
    }

    /// Sends the review and gives the answer, its head in front.
    pub(crate) fn ask(&mut self) -> String {
        let length = self.exchange();
        String::from_utf8(self.answer[..length].to_vec()).unwrap()
    }

    pub(crate) fn ask_times(&mut self, times: usize) {
        for _ in 0..times {
            self.exchange();
        }
    }

    fn exchange(&mut self) -> usize {
        self.asked += 1;
        let number = format!("{:08}", self.asked);
        self.request[self.user - number.len()..self.user].copy_from_slice(number.as_bytes());
        self.stream.write_all(&self.request).unwrap();
        self.stream.flush().unwrap();
        let mut read = 0;
        loop {
            let more = self.stream.read(&mut self.answer[read..]).unwrap();
            assert!(more > 0, "the server closed the connection");
            read += more;
            let Some(head) = self.answer[..read].windows(4).position(|end| end == b"\r\n\r\n") else {
                continue;
            };
            let text = std::str::from_utf8(&self.answer[..head]).unwrap();
            assert!(text.starts_with("HTTP/1.1 200"), "{text}");
            let length = text
                .lines()
                .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
            let length: usize = length.expect("an answer has a length");
            if read >= head + 4 + length {
                return read;
            }
        }
    }
}
