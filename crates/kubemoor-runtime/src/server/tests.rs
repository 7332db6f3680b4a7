//! The server over real TLS connections on loopback.

mod harness;

use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::Full;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

use self::harness::{LONG, Running, TlsClient, UNHURRIED};
use super::*;

/// Soon over; a wait that is meant to come to its end.
const SHORT: Duration = Duration::from_millis(100);

async fn hello(_: Peer, request: Request<Incoming>) -> Response<Full<Bytes>> {
    Response::new(Full::from(format!("hello {}", request.uri().path())))
}

#[tokio::test]
async fn connection_serves_one_request_after_the_other() {
    let running = Running::start(UNHURRIED, hello).await;
    let mut client = running.connect().await;
    for path in ["/a", "/b", "/c"] {
        let reply = client.get(path).await;
        assert_eq!((reply.status, reply.body), (200, format!("hello {path}")));
    }
    assert!(running.metrics().contains("kubemoor_connections_open{port=\"webhook\"} 1\n"));
}

#[tokio::test]
async fn clients_that_never_begin_their_handshake_hold_no_other_up() {
    let running = Running::start(UNHURRIED, hello).await;
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(running.tcp().await);
    }
    assert_eq!(running.connect().await.get("/").await.status, 200);
    drop(silent);
}

#[tokio::test]
async fn a_handshake_that_takes_too_long_is_closed() {
    let running = Running::start(Limits { handshake: SHORT, ..UNHURRIED }, hello).await;
    let mut silent = running.tcp().await;
    let mut rest = Vec::new();
    let closed = timeout(LONG, silent.read_to_end(&mut rest)).await;
    assert!(closed.is_ok() && rest.is_empty());
    running.until_counted("kubemoor_connections_total{port=\"webhook\",end=\"handshake\"} 1").await;
}

#[tokio::test]
async fn a_handshake_that_is_none_is_closed() {
    let running = Running::start(UNHURRIED, hello).await;
    let mut plain = running.tcp().await;
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    running.until_counted("kubemoor_connections_total{port=\"webhook\",end=\"handshake\"} 1").await;
    assert_eq!(running.connect().await.get("/").await.status, 200);
}

#[tokio::test]
async fn connection_without_a_complete_head_in_time_is_closed() {
    let running = Running::start(Limits { idle: Duration::from_secs(1), ..UNHURRIED }, hello).await;
    let mut slow = running.connect().await;
    // A head that came in time before does not buy time for the next one.
    assert_eq!(slow.get("/").await.status, 200);
    slow.send("GET / HTTP/1.1\r\nhost: ").await;
    let mut silent = running.connect().await;
    assert_eq!((slow.rest().await, silent.rest().await), (String::new(), String::new()));
    running.until_counted("kubemoor_connections_total{port=\"webhook\",end=\"slow\"} 2").await;
    assert_eq!(running.connect().await.get("/").await.status, 200);
}

#[tokio::test]
async fn connection_whose_client_reads_nothing_of_its_answer_is_closed() {
    let large = |_, _| async { Response::new(Full::from(vec![0; 64 << 20])) };
    let running = Running::start(Limits { unread: Duration::from_secs(1), ..UNHURRIED }, large).await;
    let mut client = running.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    running.until_counted("kubemoor_connections_total{port=\"webhook\",end=\"failed\"} 1").await;
}

#[tokio::test]
async fn malformed_http_closes_only_its_own_connection() {
    let running = Running::start(UNHURRIED, hello).await;
    let mut wrong = running.connect().await;
    wrong.send("this is no HTTP\r\n\r\n").await;
    assert!(wrong.rest().await.starts_with("HTTP/1.1 400"));
    assert_eq!(running.connect().await.get("/").await.status, 200);
}

#[tokio::test]
async fn connection_beyond_the_limit_displaces_an_idle_connection() {
    let running = Running::start(Limits { connections: 1, ..UNHURRIED }, hello).await;
    let mut first = running.connect().await;
    assert_eq!(first.get("/").await.status, 200);
    let mut second = running.connect().await;
    assert_eq!(second.get("/").await.status, 200);
    assert_eq!(first.rest().await, "");
    running.until_counted("kubemoor_connections_total{port=\"webhook\",end=\"displaced\"} 1").await;
    // One that has not begun its handshake, and one within a request's head, are idle as well.
    second.send("GET / HTTP/1.1\r\nhost: ").await;
    let mut silent = running.tcp().await;
    assert_eq!(second.rest().await, "");
    assert_eq!(running.connect().await.get("/").await.status, 200);
    let mut rest = Vec::new();
    assert!(timeout(LONG, silent.read_to_end(&mut rest)).await.is_ok());
    running.until_counted("kubemoor_connections_total{port=\"webhook\",end=\"displaced\"} 3").await;
}

#[tokio::test]
async fn a_connection_beyond_the_limit_is_refused_while_all_serve() {
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let running = Running::start(Limits { connections: 1, ..UNHURRIED }, {
        let (begun, go) = (Arc::clone(&begun), Arc::clone(&go));
        move |_, _| {
            let (begun, go) = (Arc::clone(&begun), Arc::clone(&go));
            async move {
                begun.notify_one();
                go.notified().await;
                Response::new(Full::from("done"))
            }
        }
    })
    .await;
    let mut first = running.connect().await;
    first.send("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    begun.notified().await;
    let mut second = running.tcp().await;
    let mut rest = Vec::new();
    let closed = timeout(LONG, second.read_to_end(&mut rest)).await;
    assert!(closed.is_ok() && rest.is_empty());
    assert!(running.metrics().contains("kubemoor_connections_total{port=\"webhook\",end=\"refused\"} 1\n"));
    go.notify_one();
    assert_eq!(first.receive().await.body, "done");
}

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

#[tokio::test]
async fn idle_connections_give_way_first_those_without_a_successful_answer() {
    let connections = OpenConnections::new(4);
    let held: Vec<_> = (0..4).map(|_| connections.begin(PEER).unwrap()).collect();
    let displaced = async || {
        let mut numbers = Vec::new();
        for (number, connection) in held.iter().enumerate() {
            if timeout(Duration::ZERO, connection.activity.displaced.notified()).await.is_ok() {
                numbers.push(number);
            }
        }
        numbers
    };
    held[0].answered(true);
    held[1].answered(false);
    held[3].activity.is_serving.store(true, Ordering::Relaxed);
    let mut newer = Vec::new();
    for expected in [[2], [1]] {
        newer.push(connections.begin(PEER).unwrap());
        newer.iter().for_each(|it| it.activity.is_serving.store(true, Ordering::Relaxed));
        assert_eq!(displaced().await, expected);
    }
    newer.push(connections.begin(PEER).unwrap());
    assert_eq!(displaced().await, [0]);
    newer[2].activity.is_serving.store(true, Ordering::Relaxed);
    assert!(connections.begin(PEER).is_none(), "all serve");
    drop((held, newer));
    assert!(connections.open.lock().is_empty());
}

#[tokio::test]
async fn a_request_in_flight_ends_before_the_server_does() {
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let running = Running::start(UNHURRIED, {
        let (begun, go) = (Arc::clone(&begun), Arc::clone(&go));
        move |_, _| {
            let (begun, go) = (Arc::clone(&begun), Arc::clone(&go));
            async move {
                begun.notify_one();
                go.notified().await;
                Response::new(Full::from("done"))
            }
        }
    })
    .await;
    let mut idle = running.connect().await;
    let mut silent = running.tcp().await;
    let mut busy = running.connect().await;
    busy.send("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    begun.notified().await;

    running.ending.stop.cancel();
    assert_eq!(idle.rest().await, "");
    let mut rest = Vec::new();
    assert!(timeout(LONG, silent.read_to_end(&mut rest)).await.is_ok());
    assert!(TcpStream::connect(running.address).await.is_err(), "new connections are refused");
    assert!(!running.server.is_finished());

    go.notify_one();
    let reply = busy.receive().await;
    assert_eq!((reply.status, reply.body.as_str()), (200, "done"));
    assert!(reply.head.contains("connection: close"));
    assert_eq!(busy.rest().await, "");
    timeout(LONG, running.server).await.expect("the server ends").unwrap();
}

#[tokio::test]
async fn a_server_that_leaves_answers_everybody_once_more() {
    let running = Running::start(UNHURRIED, hello).await;
    let mut open = running.connect().await;
    assert!(!open.get("/").await.head.contains("connection: close"));
    running.ending.leaving.cancel();
    for mut client in [open, running.connect().await] {
        let reply = client.get("/last").await;
        assert_eq!((reply.status, reply.body.as_str()), (200, "hello /last"));
        assert!(reply.head.contains("connection: close"), "{}", reply.head);
        assert_eq!(client.rest().await, "");
    }
    assert!(!running.server.is_finished());
}

#[tokio::test]
async fn a_request_that_outlasts_the_drain_is_cut_off() {
    let begun = Arc::new(Notify::new());
    let running = Running::start(Limits { drain: SHORT, ..UNHURRIED }, {
        let begun = Arc::clone(&begun);
        move |_, _| {
            let begun = Arc::clone(&begun);
            async move {
                begun.notify_one();
                std::future::pending().await
            }
        }
    })
    .await;
    let mut busy = running.connect().await;
    busy.send("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    begun.notified().await;
    running.ending.stop.cancel();
    assert_eq!(busy.rest().await, "");
    timeout(LONG, running.server).await.expect("the server ends").unwrap();
}

#[tokio::test]
async fn a_panic_while_answering_ends_its_connection_alone() {
    let calls = Arc::new(AtomicUsize::new(0));
    let running = Running::start(UNHURRIED, move |_, _| {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        async move {
            assert_ne!(call, 0, "the first request meets a bug");
            Response::new(Full::from("fine"))
        }
    })
    .await;
    let mut first = running.connect().await;
    first.send("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert_eq!(first.rest().await, "");
    assert_eq!(running.connect().await.get("/").await.body, "fine");
    running.until_counted("kubemoor_connections_open{port=\"webhook\"} 1").await;
}

#[tokio::test]
async fn a_certificate_renewed_on_disk_is_served_without_a_restart() {
    let running = Running::start(UNHURRIED, hello).await;
    let mut before = running.connect().await;
    let served = |client: &TlsClient| client.0.get_ref().1.peer_certificates().unwrap()[0].clone();
    let path = running.directory.path();
    std::fs::remove_file(path.join("tls.crt")).unwrap();
    assert!(running.certificates.refresh(jiff::Timestamp::now()).unwrap());

    let mut after = running.connect().await;
    assert_ne!(served(&before), served(&after));
    let on_disk = std::fs::read(path.join("tls.crt")).unwrap();
    assert_eq!(served(&after), CertificateDer::from_pem_slice(&on_disk).unwrap());
    assert_eq!(before.get("/").await.status, 200, "an open connection goes on");
    assert_eq!(after.get("/").await.status, 200);
}

#[tokio::test]
async fn peer_displaces_its_own_connections_or_those_of_a_peer_with_as_many() {
    let connections = OpenConnections::new(5);
    let other = IpAddr::from([10, 0, 0, 2]);
    let many: Vec<_> = (0..4).map(|_| connections.begin(PEER).unwrap()).collect();
    many.iter().for_each(|it| it.answered(true));
    let probe = connections.begin(other).unwrap();
    let is_displaced = async |it: &OpenConnectionSlot| {
        timeout(Duration::ZERO, it.activity.displaced.notified()).await.is_ok()
    };
    let _fifth = connections.begin(PEER).unwrap();
    assert!(!is_displaced(&probe).await && is_displaced(&many[0]).await);
    probe.answered(true);
    let _second = connections.begin(other).unwrap();
    assert!(!is_displaced(&probe).await, "the peer with most gives way");
}
