//! Bodies in every size and pace.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Frame, SizeHint};

use super::*;
use kubemoor_runtime::callers::CallerToken;
use kubemoor_runtime::metrics;

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

const LIMITS: BodyLimits = BodyLimits { whole: 100, front: 10, read: 300, small: 20, together: 200 };

/// A body in pieces, with or without its length in the head.
struct Pieces {
    pieces: VecDeque<Bytes>,
    hint: SizeHint,
}

impl Pieces {
    fn of_length(pieces: &[usize]) -> Self {
        let mut body = Self::of_unknown_length(pieces);
        body.hint = SizeHint::with_exact(pieces.iter().sum::<usize>() as u64);
        body
    }

    fn of_unknown_length(pieces: &[usize]) -> Self {
        let mut next = (b'a'..=b'z').cycle();
        let pieces = pieces.iter().map(|length| next.by_ref().take(*length).collect()).collect();
        Self { pieces, hint: SizeHint::default() }
    }

    fn text(&self) -> Vec<u8> {
        self.pieces.iter().flatten().copied().collect()
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.pieces.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        self.hint
    }
}

/// A body that stays away after its last piece.
struct StalledBody(Pieces);

impl Body for StalledBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match Pin::new(&mut self.0).poll_frame(cx) {
            Poll::Ready(None) => Poll::Pending,
            other => other,
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.0.hint
    }
}

fn holding(body: StalledBody) -> Request<StalledBody> {
    Request::post("/validate").header("content-type", "application/json").body(body).unwrap()
}

fn post(body: Pieces) -> Request<Pieces> {
    Request::post("/validate").header("content-type", "application/json").body(body).unwrap()
}

async fn check(pieces: &[usize], whole: bool) {
    for body in [Pieces::of_length(pieces), Pieces::of_unknown_length(pieces)] {
        let text = body.text();
        let expected = if whole {
            ReceivedBody::Whole(text.into())
        } else {
            ReceivedBody::Front(Bytes::copy_from_slice(&text[..LIMITS.front]), UnreadCause::TooLarge)
        };
        let received = Intake::new(LIMITS).receive(PEER, post(body)).await.unwrap().body;
        assert_eq!(received, expected, "{pieces:?}");
    }
}

#[tokio::test]
async fn a_body_within_the_limit_is_kept_whole() {
    for pieces in [&[][..], &[1], &[0, 5], &[100], &[50, 50], &[1, 0, 98, 1]] {
        check(pieces, true).await;
    }
}

#[tokio::test]
async fn body_beyond_the_size_limit_keeps_only_its_front() {
    for pieces in [&[101][..], &[100, 1], &[1, 100], &[5, 96], &[9, 1, 91], &[60, 60, 60], &[4000]] {
        check(pieces, false).await;
    }
}

#[tokio::test]
async fn a_body_without_end_is_answered_all_the_same() {
    let body = Pieces::of_unknown_length(&[50; 100_000]);
    let received = Intake::new(LIMITS).receive(PEER, post(body)).await.unwrap().body;
    assert!(
        matches!(received, ReceivedBody::Front(front, UnreadCause::TooLarge) if front.len() == LIMITS.front)
    );
}

#[tokio::test(start_paused = true)]
async fn large_bodies_share_a_memory_budget_small_bodies_need_none() {
    let intake = Intake::new(LIMITS);
    let first = intake.receive(PEER, post(Pieces::of_length(&[90]))).await.unwrap();
    // 10 are left of what one namespace may take.
    let second = intake.receive(PEER, post(Pieces::of_length(&[90]))).await.unwrap();
    assert!(
        matches!(&second.body, ReceivedBody::Front(front, UnreadCause::Crowded) if front.len() == LIMITS.front)
    );
    // Others have nothing to do with it.
    let other = intake.receive(IpAddr::from([10, 0, 0, 1]), post(Pieces::of_length(&[30]))).await.unwrap();
    assert!(matches!(other.body, ReceivedBody::Whole(_)));
    let small = intake.receive(PEER, post(Pieces::of_length(&[20]))).await.unwrap();
    assert!(matches!(small.body, ReceivedBody::Whole(_)));
    drop((first, other));
    let third = intake.receive(PEER, post(Pieces::of_length(&[90]))).await.unwrap();
    assert!(matches!(third.body, ReceivedBody::Whole(_)));
}

#[tokio::test(start_paused = true)]
async fn room_is_taken_as_bytes_arrive() {
    let intake = Intake::new(LIMITS);
    let announced = |sent: &[usize]| {
        let mut body = Pieces::of_unknown_length(sent);
        body.hint = SizeHint::with_exact(100);
        StalledBody(body)
    };
    let silent: Vec<_> =
        (0..50).map(|_| Box::pin(intake.receive(PEER, holding(announced(&[])))) as Pin<Box<_>>).collect();
    let mut silent = futures::future::join_all(silent);
    assert!(futures::poll!(&mut silent).is_pending());
    // Twice as much as has come at the most, so this one holds 40.
    let mut half = Box::pin(intake.receive(PEER, holding(announced(&[20, 10]))));
    assert!(futures::poll!(&mut half).is_pending());
    let first = intake.receive(PEER, post(Pieces::of_length(&[60]))).await.unwrap();
    assert!(matches!(first.body, ReceivedBody::Whole(_)));
    drop((silent, half));
    let second = intake.receive(PEER, post(Pieces::of_length(&[100]))).await.unwrap();
    assert!(matches!(second.body, ReceivedBody::Front(_, UnreadCause::Crowded)), "the first is held still");
    drop(first);
    let third = intake.receive(PEER, post(Pieces::of_length(&[100]))).await.unwrap();
    assert!(matches!(third.body, ReceivedBody::Whole(_)));
}

#[tokio::test(start_paused = true)]
async fn room_goes_with_the_last_copy_of_the_bytes() {
    let intake = Intake::new(LIMITS);
    let ReceivedBody::Whole(bytes) = intake.receive(PEER, post(Pieces::of_length(&[90]))).await.unwrap().body
    else {
        panic!("it is not whole");
    };
    let copy = bytes.slice(1..2);
    drop(bytes);
    let crowded = intake.receive(PEER, post(Pieces::of_length(&[90]))).await.unwrap();
    assert!(matches!(crowded.body, ReceivedBody::Front(_, UnreadCause::Crowded)));
    drop(copy);
    let whole = intake.receive(PEER, post(Pieces::of_length(&[90]))).await.unwrap();
    assert!(matches!(whole.body, ReceivedBody::Whole(_)));
}

#[tokio::test(start_paused = true)]
async fn stalled_body_yields_its_front_if_it_identifies_the_request() {
    let review = br#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","kind":{"group":"","version":"v1","kind":"Secret"},"resource":{"group":"","version":"v1","resource":"secrets"},"requestKind":{},"requestResource":{},"name":"a","namespace":"b","operation":"CREATE","userInfo":{},"object":{"#;
    let limits = BodyLimits { front: 400, small: 400, whole: 500, ..LIMITS };
    let stopped = |sent: &[u8]| {
        let mut body = Pieces::of_unknown_length(&[]);
        body.pieces.push_back(Bytes::copy_from_slice(sent));
        body.hint = SizeHint::with_exact(450);
        holding(StalledBody(body))
    };
    let late = Intake::new(limits).receive(PEER, stopped(review)).await.unwrap();
    assert_eq!(late.body, ReceivedBody::Front(Bytes::copy_from_slice(review), UnreadCause::Late));
    let error = Intake::new(limits).receive(PEER, stopped(&review[..100])).await.unwrap_err();
    assert_eq!(
        (error.to_string().as_str(), error.respond().status().as_u16()),
        ("the body did not arrive within 10s", 408)
    );
}

#[tokio::test(start_paused = true)]
async fn a_large_body_waits_for_its_share() {
    let intake = Intake::new(LIMITS);
    let first = intake.receive(PEER, post(Pieces::of_length(&[90]))).await.unwrap();
    let (second, ()) = tokio::join!(intake.receive(PEER, post(Pieces::of_length(&[90]))), async {
        tokio::time::advance(Duration::from_secs(1)).await;
        drop(first);
    });
    assert!(matches!(second.unwrap().body, ReceivedBody::Whole(_)));
}

#[tokio::test]
async fn a_request_that_holds_no_review_is_http_400() {
    let intake = Intake::new(LIMITS);
    let body = || Pieces::of_length(&[2]);
    let cases = [
        (Request::get("/validate").body(body()), "reviews must be sent by POST, not by GET"),
        (Request::put("/validate").body(body()), "reviews must be sent by POST, not by PUT"),
        (Request::post("/validate").body(body()), "reviews must be sent as application/json, not as nothing"),
        (
            Request::post("/validate").header("content-type", "text/json").body(body()),
            "reviews must be sent as application/json, not as text/json",
        ),
        (
            Request::post("/validate").header("content-type", &b"\xff"[..]).body(body()),
            "reviews must be sent as application/json, not as \u{fffd}",
        ),
    ];
    for (request, expected) in cases {
        let error = intake.receive(PEER, request.unwrap()).await.unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert_eq!(error.respond().status(), 400);
    }
}

#[tokio::test]
async fn json_may_name_its_charset() {
    let request = Request::post("/validate").header("content-type", "Application/JSON; charset=utf-8");
    assert!(Intake::new(LIMITS).receive(PEER, request.body(Pieces::of_length(&[2])).unwrap()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn deadline_is_slightly_before_the_api_server_webhook_timeout() {
    let cases = [
        ("/validate", 10_000, 200),
        ("/validate?timeout=3s", 3_000, 200),
        ("/validate?a=b&timeout=1s&c", 1_000, 200),
        ("/validate?timeout=30s", 30_000, 200),
        ("/validate?timeout=99999s", 30_000, 200),
        ("/validate?timeout=0s", 10_000, 200),
        ("/validate?timeout=-1s", 10_000, 200),
        ("/validate?timeout=soon", 10_000, 200),
        ("/validate?timeout=5", 10_000, 200),
    ];
    for (path, patience, margin) in cases {
        let request = Request::post(path).header("content-type", "application/json");
        let start = Instant::now();
        let submission =
            Intake::new(LIMITS).receive(PEER, request.body(Pieces::of_length(&[2])).unwrap()).await.unwrap();
        assert_eq!(submission.deadline - start, Duration::from_millis(patience - margin), "{path}");
    }
}

fn gate(proof: ApiServerProof) -> CallerGate {
    CallerGate::new(proof, CallerSecrets::default(), AdmissionMetrics::register(&mut metrics::registry()))
}

#[test]
fn only_a_path_with_a_known_token_is_answered() {
    let gate = gate(ApiServerProof::Token);
    let (known, other) = ("a".repeat(64), "b".repeat(64));
    assert_eq!(gate.stage(&format!("/validate/{known}")), None, "nobody is known yet");
    gate.callers().accept(CallerToken::parse(&known).unwrap(), None);
    for (path, stage) in [
        (format!("/validate/{known}"), Some(ReviewStage::Validate)),
        (format!("/mutate/{known}"), Some(ReviewStage::Mutate)),
        (format!("/observe/{known}"), Some(ReviewStage::Observe)),
        (format!("/validate/{other}"), None),
        (format!("/validate/{known}a"), None),
        (format!("/validate/{known}/"), None),
        (format!("/validate//{known}"), None),
        (format!("/validate/{}", "a".repeat(63)), None),
        (format!("/validate{known}"), None),
        (format!("/Validate/{known}"), None),
        (format!("/{known}"), None),
        ("/validate".to_owned(), None),
        ("/validate/".to_owned(), None),
        ("/".to_owned(), None),
        (String::new(), None),
    ] {
        assert_eq!(gate.stage(&path), stage, "{path}");
    }
}

#[test]
fn behind_a_certificate_the_path_holds_no_token() {
    let gate = gate(ApiServerProof::Certificate);
    for (path, stage) in [
        ("/validate", Some(ReviewStage::Validate)),
        ("/mutate", Some(ReviewStage::Mutate)),
        ("/validate/", None),
        ("/validate/x", None),
        ("/", None),
    ] {
        assert_eq!(gate.stage(path), stage, "{path}");
    }
}
