//! The stream's patience, on a clock that only the tests move.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::{advance, timeout};

use super::*;

const HEAD: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(120);
const ANSWER: Duration = Duration::from_secs(20);
const MOMENT: Duration = Duration::from_millis(1);

fn connection() -> (DuplexStream, Impatient<DuplexStream>, Turn) {
    let (client, server) = duplex(1024);
    let turn = Turn::default();
    let stream =
        Impatient::new(server, &turn, Limits { head: HEAD, idle: IDLE, answer: ANSWER, ..Limits::default() });
    (client, stream, turn)
}

/// Waits for the next read to fail; says after which time it does.
async fn patience(stream: &mut Impatient<DuplexStream>) -> Duration {
    let start = Instant::now();
    let error = stream.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    start.elapsed()
}

fn check(actual: Duration, expected: Duration) {
    // The timer's own grain is a millisecond.
    assert!(actual >= expected && actual <= expected + 2 * MOMENT, "{actual:?} is not {expected:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_may_begin_late() {
    let (_client, mut stream, _) = connection();
    check(patience(&mut stream).await, IDLE);
}

#[tokio::test(start_paused = true)]
async fn a_head_that_has_begun_must_end_soon() {
    let (mut client, mut stream, _) = connection();
    assert!(timeout(IDLE - MOMENT, stream.read_u8()).await.is_err());
    client.write_all(b"G").await.unwrap();
    stream.read_u8().await.unwrap();
    check(patience(&mut stream).await, HEAD);
}

#[tokio::test(start_paused = true)]
async fn a_head_that_comes_byte_by_byte_buys_no_time() {
    let (mut client, mut stream, _) = connection();
    client.write_all(b"G").await.unwrap();
    stream.read_u8().await.unwrap();
    for _ in 0..4 {
        assert!(timeout(HEAD / 5, stream.read_u8()).await.is_err());
        client.write_all(b"x").await.unwrap();
        stream.read_u8().await.unwrap();
    }
    let left = patience(&mut stream).await;
    assert!(left <= HEAD / 5 + 2 * MOMENT, "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn idle_timeout_is_paused_while_a_request_is_served() {
    let (mut client, mut stream, turn) = connection();
    client.write_all(b"G").await.unwrap();
    stream.read_u8().await.unwrap();
    let serving = turn.begin();
    assert!(timeout(IDLE * 10, stream.read_u8()).await.is_err());
    client.write_all(b"x").await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'x');
    drop(serving);
    check(patience(&mut stream).await, IDLE);
}

#[tokio::test(start_paused = true)]
async fn every_request_has_the_same_time_for_its_head() {
    let (mut client, mut stream, turn) = connection();
    for _ in 0..3 {
        assert!(timeout(IDLE / 2, stream.read_u8()).await.is_err());
        client.write_all(b"GE").await.unwrap();
        stream.read_u8().await.unwrap();
        stream.read_u8().await.unwrap();
        assert!(timeout(HEAD / 2, stream.read_u8()).await.is_err());
        let serving = turn.begin();
        advance(HEAD * 2).await;
        drop(serving);
    }
    check(patience(&mut stream).await, IDLE);
}

#[tokio::test(start_paused = true)]
async fn response_write_times_out_when_client_reads_byte_by_byte() {
    let (mut client, mut stream, turn) = connection();
    let serving = turn.begin();
    let start = Instant::now();
    let write = async {
        // More than the connection holds.
        let error = stream.write_all(&[b'x'; 4096]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    };
    let take = async {
        loop {
            client.read_u8().await.unwrap();
            tokio::time::sleep(ANSWER / 10).await;
        }
    };
    tokio::select! {
        () = write => {}
        () = take => {}
    }
    check(start.elapsed(), ANSWER);
    drop(serving);
}

#[tokio::test(start_paused = true)]
async fn written_bytes_and_shutdown_pass_through() {
    let (mut client, mut stream, _) = connection();
    stream.write_all(b"answer").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "answer");
    drop(client);
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0);
}
