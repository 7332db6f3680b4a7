//! Bodies in every size and pace.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Frame, SizeHint};

use super::*;

const LIMITS: BodyLimits = BodyLimits { whole: 100, front: 10, read: 300, small: 20, together: 150 };

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

fn post(body: Pieces) -> Request<Pieces> {
    Request::post("/validate").header("content-type", "application/json").body(body).unwrap()
}

async fn check(pieces: &[usize], whole: bool) {
    for body in [Pieces::of_length(pieces), Pieces::of_unknown_length(pieces)] {
        let text = body.text();
        let expected = if whole {
            Received::Whole(text.into())
        } else {
            Received::TooLarge(Bytes::copy_from_slice(&text[..LIMITS.front]))
        };
        let received = Intake::new(LIMITS).receive(post(body)).await.unwrap().body;
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
async fn of_a_longer_body_the_front_is_kept() {
    for pieces in [&[101][..], &[100, 1], &[1, 100], &[5, 96], &[9, 1, 91], &[60, 60, 60], &[4000]] {
        check(pieces, false).await;
    }
}

#[tokio::test]
async fn a_body_without_end_is_answered_all_the_same() {
    let body = Pieces::of_unknown_length(&[50; 100_000]);
    let received = Intake::new(LIMITS).receive(post(body)).await.unwrap().body;
    assert!(matches!(received, Received::TooLarge(front) if front.len() == LIMITS.front));
}

#[tokio::test(start_paused = true)]
async fn large_bodies_share_the_memory_and_small_ones_need_none_of_it() {
    let intake = Intake::new(LIMITS);
    let first = intake.receive(post(Pieces::of_length(&[90]))).await.unwrap();
    // 60 are left.
    let second = intake.receive(post(Pieces::of_length(&[90]))).await.unwrap();
    assert!(matches!(&second.body, Received::Busy(front) if front.len() == LIMITS.front));
    let small = intake.receive(post(Pieces::of_length(&[20]))).await.unwrap();
    assert!(matches!(small.body, Received::Whole(_)));
    drop(first);
    let third = intake.receive(post(Pieces::of_length(&[90]))).await.unwrap();
    assert!(matches!(third.body, Received::Whole(_)));
}

#[tokio::test(start_paused = true)]
async fn a_large_body_waits_for_its_share() {
    let intake = Intake::new(LIMITS);
    let first = intake.receive(post(Pieces::of_length(&[90]))).await.unwrap();
    let (second, ()) = tokio::join!(intake.receive(post(Pieces::of_length(&[90]))), async {
        tokio::time::advance(Duration::from_secs(1)).await;
        drop(first);
    });
    assert!(matches!(second.unwrap().body, Received::Whole(_)));
}

#[tokio::test]
async fn a_request_that_holds_no_review_is_http_400() {
    let intake = Intake::new(LIMITS);
    let body = || Pieces::of_length(&[2]);
    let cases = [
        (Request::get("/validate").body(body()), "a review is sent by POST, not by GET"),
        (Request::put("/validate").body(body()), "a review is sent by POST, not by PUT"),
        (Request::post("/validate").body(body()), "a review is sent as application/json, not as nothing"),
        (
            Request::post("/validate").header("content-type", "text/json").body(body()),
            "a review is sent as application/json, not as text/json",
        ),
        (
            Request::post("/validate").header("content-type", &b"\xff"[..]).body(body()),
            "a review is sent as application/json, not as \u{fffd}",
        ),
    ];
    for (request, expected) in cases {
        let error = intake.receive(request.unwrap()).await.unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert_eq!(error.respond().status(), 400);
    }
}

#[tokio::test]
async fn json_may_name_its_charset() {
    let request = Request::post("/validate").header("content-type", "Application/JSON; charset=utf-8");
    assert!(Intake::new(LIMITS).receive(request.body(Pieces::of_length(&[2])).unwrap()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_deadline_lies_a_margin_before_the_end_of_the_api_servers_patience() {
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
            Intake::new(LIMITS).receive(request.body(Pieces::of_length(&[2])).unwrap()).await.unwrap();
        assert_eq!(submission.deadline - start, Duration::from_millis(patience - margin), "{path}");
    }
}
