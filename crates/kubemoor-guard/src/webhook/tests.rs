//! Reviews over real TLS connections on loopback.

#[allow(dead_code, reason = "the tests of the server use the rest")]
#[path = "../../../kubemoor-runtime/src/server/tests/harness.rs"]
mod harness;

use hyper::Request;
use hyper::body::Incoming;
use tokio::io::AsyncWriteExt;

use self::harness::{Running, TlsClient, UNHURRIED};
use super::intake::{BodyLimits, Intake, ReceivedBody};
use super::review::{self, AdmissionRequest, AdmissionResponse, ReviewHead};
use kubemoor_runtime::server::Peer;

const REVIEW: &str = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u-1","kind":{"group":"","version":"v1","kind":"ConfigMap"},"resource":{"group":"","version":"v1","resource":"configmaps"},"requestKind":{},"requestResource":{},"name":"web","namespace":"shop","operation":"CREATE","userInfo":{},"object":OBJECT}}"#;

/// A server that reads reviews and refuses those that it has not whole.
async fn start() -> Running {
    let intake = Intake::new(BodyLimits::default());
    Running::start(UNHURRIED, move |peer: Peer, request: Request<Incoming>| {
        let intake = intake.clone();
        async move {
            let submission = match intake.receive(peer.address, request).await {
                Ok(submission) => submission,
                Err(error) => return error.respond(),
            };
            let answer = match &submission.body {
                ReceivedBody::Whole(body) => AdmissionRequest::parse(body)
                    .map(|request| AdmissionResponse::allow().respond(&request.head.uid)),
                front => ReviewHead::parse(front.bytes())
                    .map(|head| AdmissionResponse::deny("too large").respond(&head.uid)),
            };
            answer.unwrap_or_else(|error| review::malformed(&error))
        }
    })
    .await
}

/// Sends the head of a request whose body has this length.
async fn post_head(client: &mut TlsClient, length: usize, query: &str) {
    let head = format!(
        "POST /validate{query} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n"
    );
    client.send(&head).await;
}

#[tokio::test]
async fn slow_body_gets_http_408_and_its_connection_is_closed() {
    let running = start().await;
    let mut slow = running.connect().await;
    post_head(&mut slow, 10, "?timeout=1s").await;
    slow.send("12345").await;
    let reply = slow.receive().await;
    assert_eq!(reply.status, 408);
    assert_eq!(reply.body, r#"{"error":"the body did not arrive within 1s"}"#);
    assert_eq!(slow.rest().await, "");
}

#[tokio::test]
async fn a_review_of_40_mib_is_answered_by_its_front() {
    let running = start().await;
    let mut client = running.connect().await;
    let (front, back) = REVIEW.split_once("OBJECT").unwrap();
    let (front, back) = (format!("{front}\""), format!("\"{back}"));
    post_head(&mut client, (40 << 20) + front.len() + back.len(), "?timeout=30s").await;
    client.send(&front).await;
    let mib = vec![b'x'; 1 << 20];
    for _ in 0..40 {
        client.0.write_all(&mib).await.unwrap();
    }
    client.send(&back).await;
    let reply = client.receive().await;
    assert_eq!(reply.status, 200);
    let answer: serde_json::Value = serde_json::from_str(&reply.body).unwrap();
    assert_eq!(answer["response"]["uid"], "u-1");
    assert_eq!(answer["response"]["allowed"], false);
    assert_eq!(answer["response"]["status"]["message"], "too large");
    // All of it was read, so the connection goes on.
    assert!(!reply.head.contains("connection: close"));
    let whole = REVIEW.replace("OBJECT", "{}");
    post_head(&mut client, whole.len(), "").await;
    client.send(&whole).await;
    assert!(client.receive().await.body.contains(r#""uid":"u-1","allowed":true"#));
}

#[tokio::test]
async fn malformed_review_gets_http_400_and_its_connection_stays_open() {
    let running = start().await;
    let mut client = running.connect().await;
    let cases = [
        ("", "the body ends before the review does"),
        ("{\"kind\":", "the body ends before the review does"),
        ("nonsense", "the body is not an AdmissionReview in JSON"),
        ("{}", "the body is no kind of no apiVersion"),
        (r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}"#, "the review lacks request"),
    ];
    for (body, expected) in cases {
        post_head(&mut client, body.len(), "").await;
        client.send(body).await;
        let reply = client.receive().await;
        assert_eq!(reply.status, 400, "{body}");
        let answer: serde_json::Value = serde_json::from_str(&reply.body).unwrap();
        assert!(answer["error"].as_str().unwrap().starts_with(expected), "{answer}");
    }
    let reply = client.get("/validate").await;
    assert_eq!(
        (reply.status, reply.body.as_str()),
        (400, r#"{"error":"reviews must be sent by POST, not by GET"}"#)
    );
}
