//! Health and metrics as probes and scrapers see them.

use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

/// A ledger that nobody has opened.
fn books() -> Books {
    let settings = crate::config::Ledger {
        url: "sqlite:/nowhere/ledger.db".parse().unwrap(),
        cluster_name: None,
        retention: crate::config::Retention { age: std::time::Duration::MAX, rows: 1 },
    };
    Books::new(crate::ledger::Ledger::new(settings, crate::metrics::LedgerMetrics::default()).unwrap().0)
}

/// Status, head and body of the answer to `GET path`.
async fn get(address: std::net::SocketAddr, path: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_lowercase(), body.to_owned())
}

#[tokio::test]
async fn health_and_metrics_are_served_until_the_end() {
    let readiness = Readiness::new();
    let mut registry = Registry::with_prefix("kubemoor");
    registry.register("tests", "Tests", Counter::<u64>::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let server = tokio::spawn(serve(listener, readiness.clone(), Arc::new(registry), books(), stop.clone()));

    let (status, _, body) = get(address, "/livez").await;
    assert_eq!((status, body.as_str()), (200, "ok\n"));

    let records = readiness.condition("records");
    let (status, _, body) = get(address, "/readyz").await;
    assert_eq!((status, body.as_str()), (503, "[-]records: not yet known\nnot ready\n"));
    records.met();
    let (status, _, body) = get(address, "/readyz").await;
    assert_eq!((status, body.as_str()), (200, "[+]records ok\nready\n"));

    let (status, head, body) = get(address, "/metrics").await;
    assert_eq!(status, 200);
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"));
    assert!(body.contains("kubemoor_tests_total 0\n") && body.ends_with("# EOF\n"), "{body}");

    assert_eq!(get(address, "/else").await.0, 404);
    let (status, head, body) = get(address, "/api/v1/ledger").await;
    assert_eq!(status, 401, "{body}");
    assert!(
        head.contains("www-authenticate: bearer") && body.contains("\"kind\":\"Status\""),
        "{head} {body}"
    );

    let held = TcpStream::connect(address).await.unwrap();
    stop.cancel();
    server.await.unwrap().unwrap();
    drop(held);
}

#[test]
fn without_conditions_all_is_ready() {
    let readiness = Readiness::new();
    assert!(readiness.is_ready());
    assert_eq!(readiness.report(), (true, "ready\n".to_owned()));
}

#[test]
fn one_condition_that_is_not_met_is_enough_and_gives_its_reason() {
    let readiness = Readiness::new();
    let records = readiness.condition("records");
    let certificate = readiness.condition("certificate");
    assert!(!readiness.is_ready());
    records.met();
    assert!(!readiness.is_ready());
    certificate.met();
    assert!(readiness.is_ready());
    records.clone().unmet("the API server does not answer");
    assert!(!readiness.is_ready());
    let report = "[-]records: the API server does not answer\n[+]certificate ok\nnot ready\n";
    assert_eq!(readiness.report(), (false, report.to_owned()));
}

#[test]
fn a_condition_that_is_asked_for_again_stays_as_it_is() {
    let readiness = Readiness::new();
    readiness.condition("records").met();
    let _ = readiness.condition("records");
    assert_eq!(readiness.report(), (true, "[+]records ok\nready\n".to_owned()));
}
