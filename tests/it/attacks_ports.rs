//! Attacks on the guard's two ports: who sends nothing, slowly or too much holds up nobody else.
//!
//! The attacker's connections come from [`ATTACKER`], everybody else's from 127.0.0.1. Even one who knows the caller's
//! token gains nothing.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::support::charts::MANIFEST;
use crate::support::{
    Guard, Review, SOON, bomb, budget, data_review, eventually, forged, holding, record_name, reply, soon,
};

/// Loopback is a whole network, so that one machine can be two peers.
const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// How far a client comes that never goes on.
#[derive(Clone, Copy, Debug)]
enum Stop {
    BeforeHandshake,
    WithinHandshake,
    WithinHead,
}

/// A guard of the release `shop/web` in a directory.
async fn guard() -> Guard {
    Guard::start_embedded(&["--edits=Deny"]).await
}

/// A connection of the attacker's to the host and port in `url`.
async fn tcp(url: &str) -> TcpStream {
    let uri: http::Uri = url.parse().unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(ATTACKER, 0)).unwrap();
    socket.connect(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), uri.port_u16().unwrap())).await.unwrap()
}

/// The same, after its TLS handshake.
async fn tls(guard: &Guard, url: &str) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    let authority = fs::read(guard.tls_dir().join("ca.crt")).unwrap();
    roots.add(CertificateDer::from_pem_slice(&authority).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, tcp(url).await).await
}

/// A connection of the attacker's that never goes on; none if the guard closed it on the way.
async fn half_open(guard: &Guard, url: &str, stop: Stop) -> Option<Pin<Box<dyn AsyncRead + Send>>> {
    // The front of a ClientHello.
    let hello: &[u8] = if matches!(stop, Stop::WithinHandshake) { &[22, 3, 1, 2, 0, 1, 0, 1] } else { &[] };
    if let Stop::BeforeHandshake | Stop::WithinHandshake = stop {
        let mut stream = tcp(url).await;
        stream.write_all(hello).await.ok()?;
        return Some(Box::pin(stream));
    }
    let mut stream = tls(guard, url).await.ok()?;
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: ").await.ok()?;
    stream.flush().await.ok()?;
    Some(Box::pin(stream))
}

/// A request of the attacker's that announces `length` bytes and sends `body` of them.
async fn post(guard: &Guard, query: &str, length: usize, body: &[u8]) -> TlsStream<TcpStream> {
    let mut stream = announce(guard, query, length).await;
    send(&mut stream, body).await;
    stream
}

/// The head of a request of the attacker's that announces `length` bytes.
async fn announce(guard: &Guard, query: &str, length: usize) -> TlsStream<TcpStream> {
    let url = guard.review_url();
    let path = url.parse::<http::Uri>().unwrap().path().to_owned();
    let head = format!(
        "POST {path}{query} HTTP/1.1\r\nhost: guard\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    let mut stream = tls(guard, &url).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    stream
}

/// Sends the front of an announced body.
async fn send(stream: &mut TlsStream<TcpStream>, body: &[u8]) {
    // A guard that has no room for it does not read on.
    let _ = timeout(Duration::from_secs(1), stream.write_all(body)).await;
    let _ = timeout(Duration::from_secs(1), stream.flush()).await;
}

/// Helm's update of a record that takes this many bytes in each object.
fn record(bytes: usize) -> String {
    // Hexadecimal digits without a pattern, of which gzip keeps half.
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 32
    };
    let noise: String = std::iter::repeat_with(|| format!("{:08x}", next())).take(bytes / 8).collect();
    let manifest = format!("{MANIFEST}# {noise}\n");
    let object = |status: &str| {
        let record = forged("shop", "api", 2, status, &manifest);
        serde_json::to_string(&record).unwrap()
    };
    let (old, new) = (object("pending-upgrade"), object("deployed"));
    assert!(new.len() > bytes, "{}", new.len());
    let (kind, resource, name) = ("Secret", "secrets", record_name("api", 2));
    Review { group: "", kind, resource, namespace: "shop", name: &name, old: &old, new: &new }.text()
}

/// An edit of the declared ConfigMap, which takes this many bytes in each object.
fn large(image: &str, bytes: usize) -> String {
    let padding = "x".repeat(bytes);
    let [old, new] = ["a", image].map(|image| json!({"image": image, "more": padding}));
    data_review(("shop", "web"), "settings", &old, &new)
}

/// What the guard says to a review by the API server, which gives it ten seconds, as by default.
async fn judge(guard: &Guard, review: String) -> Value {
    let url = format!("{}?timeout=10s", guard.review_url());
    let reply = reply(guard.https().post(url).header("content-type", "application/json").body(review)).await;
    assert_eq!(reply.code, 200, "no verdict: {reply:?}");
    reply.body
}

/// The end of what the guard sends on a connection.
async fn rest(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut rest = Vec::new();
    // Closed with or without TLS's own farewell.
    let _ = soon("the connection is closed", stream.read_to_end(&mut rest)).await;
    String::from_utf8_lossy(&rest).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn bodies_that_never_come_take_no_room() {
    let guard = guard().await;
    let mut silent = Vec::new();
    for _ in 0..6 {
        silent.push(post(&guard, "", 33_000_000, b"").await);
    }
    let reply = judge(&guard, record(400_000)).await;
    assert_eq!(reply["response"]["allowed"], true, "{reply}");
    let metrics = guard.metrics().await;
    let mut busy = metrics.lines().filter(|line| line.contains(r#"reason="busy""#));
    assert!(busy.all(|line| line.ends_with(" 0")), "{metrics}");
    drop(silent);
}

#[tokio::test(flavor = "multi_thread")]
async fn peer_that_opens_all_connections_keeps_out_no_other() {
    let guard = guard().await;
    let url = guard.webhook_url("/validate");
    let mut held = Vec::new();
    for _ in 0..1100 {
        held.extend(tls(&guard, &url).await);
    }
    assert!(held.len() > 800, "{}", held.len());
    let reply = judge(&guard, record(10_000)).await;
    assert_eq!(reply["response"]["allowed"], true, "{reply}");
    // Neither himself: his oldest idle one goes.
    let again = post(&guard, "", 1, b"{").await;
    drop((held, again));
}

#[tokio::test(flavor = "multi_thread")]
async fn half_sent_bodies_of_one_peer_leave_room_to_others() {
    let guard = guard().await;
    let before = guard.resident_memory();
    // Each in a namespace of its own, as far as anybody can tell.
    let record_of = record(3_000_000);
    let mut held = Vec::new();
    // The guard gives a handshake and a head less time than the bodies may take a busy machine.
    for _ in 0..24 {
        held.push(announce(&guard, "?timeout=30s", 30_000_000).await);
    }
    join_all(held.iter_mut().enumerate().map(async |(number, stream)| {
        let review = record_of.replace(r#""namespace":"shop""#, &format!(r#""namespace":"shop-{number}""#));
        send(stream, review.as_bytes()).await;
    }))
    .await;
    let reply = judge(&guard, record(400_000)).await;
    assert_eq!(reply["response"]["allowed"], true, "{reply}");
    let reply = judge(&guard, large("b", 300_000)).await;
    assert_eq!(reply["response"]["allowed"], false, "{reply}");
    assert!(reply.to_string().contains("This change is not allowed"), "{reply}");
    // What all bodies may take together, what a connection takes, and what decoding takes.
    let taken = guard.peak_memory().saturating_sub(before);
    assert!(taken < 128 << 20, "{} MiB", taken >> 20);
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_are_refused_but_records_pass_in_overloaded_namespace() {
    let guard = guard().await;
    let mut held = Vec::new();
    for _ in 0..4 {
        let review = large("b", 4 << 20);
        // As much as is announced is kept for it once more than half has come.
        held.push(post(&guard, "?timeout=30s", 8 << 20, &review.as_bytes()[..(8 << 20) - 1]).await);
    }
    for (review, passes) in [(large("b", 300_000), false), (record(400_000), true)] {
        let mut stream = post(&guard, "?timeout=3s", review.len(), review.as_bytes()).await;
        let mut answer = [0; 4096];
        let read = soon("the guard answers", stream.read(&mut answer)).await.unwrap();
        let answer = String::from_utf8_lossy(&answer[..read]);
        assert!(answer.contains(&format!(r#""allowed":{passes}"#)) && answer.contains("busy"), "{answer}");
    }
    // Another namespace, and another peer, have nothing to do with it.
    let reply = judge(&guard, large("b", 300_000)).await;
    assert!(reply.to_string().contains("This change is not allowed"), "{reply}");
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn record_passes_as_late_if_other_records_occupy_decoder() {
    let guard = guard().await;
    let grown = serde_json::to_string(&holding("shop", "bomb", 2, "deployed", bomb(60_000_000))).unwrap();
    let (kind, resource, name) = ("Secret", "secrets", record_name("bomb", 2));
    let review =
        Review { group: "", kind, resource, namespace: "shop", name: &name, old: &grown, new: &grown }.text();
    let mut held = Vec::new();
    for _ in 0..32 {
        held.push(post(&guard, "?timeout=30s", review.len(), review.as_bytes()).await);
    }
    let honest = record(10_000);
    let mut stream = post(&guard, "?timeout=1s", honest.len(), honest.as_bytes()).await;
    let mut answer = [0; 4096];
    let read = soon("the guard answers", stream.read(&mut answer)).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..read]);
    assert!(answer.contains(r#""allowed":true"#) && answer.contains("late"), "{answer}");
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn review_with_incomplete_body_passes_and_is_recorded() {
    let guard = guard().await;
    for (review, name) in
        [(record(200_000), record_name("api", 2)), (large("b", 300_000), "settings".to_owned())]
    {
        let sent = &review.as_bytes()[..review.len() / 2];
        let mut stopped = post(&guard, "?timeout=1s", review.len(), sent).await;
        let answer = rest(&mut stopped).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(r#""allowed":true"#), "{answer}");
        let row = eventually("the row is kept", SOON, || async {
            guard
                .rows(&["-A", "--verdict", "Record"])
                .into_iter()
                .find(|row| row["object"]["name"] == name.as_str())
        })
        .await;
        assert_eq!((&row["reason"], &row["user"]), (&json!("late"), &json!("alice")), "{row}");
    }
    guard.wait_for_metric(r#"decision="record",reason="late"} 1"#).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_heads_do_not_stop_the_admin_port() {
    let guard = guard().await;
    let url = guard.admin_url("/livez");
    let mut slow = Vec::new();
    for _ in 0..300 {
        if let Ok(mut stream) = tls(&guard, &url).await {
            let _ = stream.write_all(b"GET /livez HTTP/1.1\r\nhost: ").await;
            slow.push(stream);
        }
    }
    let answer = guard.https().get(&url).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let metrics = guard.metrics().await;
    let open =
        metrics.lines().find_map(|line| line.strip_prefix(r#"kubemoor_connections_open{port="admin"} "#));
    assert!(open.unwrap().parse::<u32>().unwrap() <= 128, "{metrics}");
    for stream in &mut slow {
        rest(stream).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_admin_port_answers_nobody_in_the_clear() {
    let guard = guard().await;
    for path in ["/livez", "/metrics", "/api/v1/ledger"] {
        let mut plain = tcp(&guard.admin_url(path)).await;
        let request = format!("GET {path} HTTP/1.1\r\nhost: guard\r\nauthorization: Bearer token\r\n\r\n");
        plain.write_all(request.as_bytes()).await.unwrap();
        let answer = rest(&mut plain).await;
        assert!(!answer.contains("HTTP/"), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn thousands_of_half_open_connections_use_little_memory_and_expire() {
    let guard = guard().await;
    let before = guard.resident_memory();
    let ports = [guard.webhook_url("/validate"), guard.admin_url("/livez")];
    let stops = [Stop::BeforeHandshake, Stop::WithinHandshake, Stop::WithinHead];
    let mut held = Vec::new();
    for _ in 0..4 {
        for (url, stop) in ports.iter().flat_map(|url| stops.map(|stop| (url, stop))) {
            held.extend(join_all((0..250).map(|_| half_open(&guard, url, stop))).await.into_iter().flatten());
        }
        // Everybody else is answered meanwhile.
        let reply = judge(&guard, large("b", 1000)).await;
        assert!(reply.to_string().contains("This change is not allowed"), "{reply}");
        assert_eq!(guard.https().get(guard.admin_url("/livez")).send().await.unwrap().status(), 200);
    }
    assert!(held.len() > 4000, "{}", held.len());
    // The webhook's port waits 120 seconds for a head.
    let closed = join_all(held.iter_mut().map(async |connection| {
        let _ = connection.read_to_end(&mut Vec::new()).await;
    }));
    timeout(budget() * 4, closed).await.expect("all connections are closed");
    let taken = guard.peak_memory().saturating_sub(before);
    assert!(taken < 64 << 20, "{} MiB", taken >> 20);
}
