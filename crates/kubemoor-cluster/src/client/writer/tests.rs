//! When a write is sent, and for how long its answer is awaited.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Response;
use kube::client::Body;
use tokio::time::Instant;

use super::*;

/// A writer of ten writes per second, one at a time, whose server counts the
/// requests that reach it and then answers, or stays silent.
fn writer(leadership: Leadership, answers: bool) -> (ClusterWriter, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let service = tower::service_fn(move |_: Request<Body>| {
        count.fetch_add(1, Ordering::Relaxed);
        async move {
            if !answers {
                std::future::pending::<()>().await;
            }
            Ok::<_, std::io::Error>(Response::new(Body::from(b"{}".to_vec())))
        }
    });
    let rate = Quota::per_second(NonZeroU32::new(10).unwrap()).allow_burst(NonZeroU32::MIN);
    (ClusterWriter::new(kube::Client::new(service, "default"), rate, leadership), asked)
}

fn request() -> Request<Vec<u8>> {
    call::get("/api").unwrap()
}

#[tokio::test]
async fn writer_sends_nothing_while_not_leading() {
    let (writer, asked) = writer(Leadership::never(), true);
    assert_eq!(writer.send(request()).await, Err(ClusterError::NotLeading));
    let writer = writer.led(Leadership::alone());
    assert_eq!(writer.send(request()).await, Ok(b"{}".to_vec()));
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn lead_that_ends_in_the_queue_counts() {
    // The next turn comes after a tenth of a second.
    let leadership = Leadership::until(Instant::now() + Duration::from_millis(50));
    let (writer, asked) = writer(leadership, true);
    assert!(writer.send(request()).await.is_ok());
    assert_eq!(writer.send_now(request()).await, None);
    assert_eq!(writer.send(request()).await, Err(ClusterError::NotLeading));
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn answer_is_awaited_until_the_lead_ends() {
    let second = Duration::from_secs(1);
    for (leadership, patience, awaited) in [
        (Leadership::until(Instant::now() + second * 3), second * 30, second * 3),
        (Leadership::until(Instant::now() + second * 30), second * 5, second * 5),
        (Leadership::alone(), second * 30, second * 30),
    ] {
        let (writer, _) = writer(leadership, false);
        let late = Err(ClusterError::Late { within: awaited });
        assert_eq!(writer.within(patience).send(request()).await, late);
    }
}
