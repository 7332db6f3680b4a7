//! Somebody who has edits denied as fast as he can: what it costs is bounded, and costs nobody else anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::ledger_outages::kept;
use crate::support::{Guard, Review, SOON, eventually, folder, reply};

/// Connections on which edits come without a pause.
const CONNECTIONS: usize = 32;

const FLOOD: Duration = Duration::from_secs(15);

/// Rows that the ledger may keep.
const ROWS: usize = 500;

/// What the guard may take above what it takes at rest.
const ABOVE: u64 = 64 << 20;

/// The API server waits for three seconds.
const PROMPT: Duration = Duration::from_secs(2);

/// An edit of the declared ConfigMap by this user.
fn edit_by(user: &str, image: &str) -> String {
    let object = |image: &str| {
        format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"settings","namespace":"shop"}},"data":{{"image":"{image}"}}}}"#
        )
    };
    let review = Review::of_settings("shop", &object("a"), &object(image)).text();
    review.replace(r#""username":"alice""#, &format!(r#""username":"{user}""#))
}

/// What became of rows so far, added up.
async fn rows(guard: &Guard) -> usize {
    let metrics = guard.metrics().await;
    let counts = metrics.lines().filter_map(|line| line.strip_prefix("kubemoor_ledger_rows_total{"));
    counts.map(|line| line.rsplit_once(' ').unwrap().1.parse::<usize>().unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn flood_of_denied_edits_uses_little_memory_and_delays_nobody() {
    let ledger = format!("sqlite:{}", folder("ledger").join("ledger.db").display());
    let flags = ["--edits=Deny", &format!("--ledger={ledger}"), &format!("--ledger-rows={ROWS}")];
    let mut guard = Guard::start_embedded(&flags).await;
    let idle = guard.peak_memory();
    let (denied, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let floods: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let (client, url) = (guard.https(), guard.review_url());
            let (denied, over) = (Arc::clone(&denied), Arc::clone(&over));
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    // The same edit twice within a moment would be one request of which the API server asks again.
                    let edit = denied.fetch_add(1, Ordering::Relaxed);
                    let post = client.post(&url).header("content-type", "application/json");
                    assert!(!reply(post.body(edit_by("mallory", &format!("b{edit}")))).await.passes());
                }
            })
        })
        .collect();
    let (until, client, mut slowest, mut honest) = (Instant::now() + FLOOD, guard.https(), Duration::ZERO, 0);
    while Instant::now() < until {
        let (passes, image) =
            if honest % 2 == 0 { (false, format!("c{honest}")) } else { (true, "a".to_owned()) };
        let began = Instant::now();
        let post = client.post(guard.review_url()).header("content-type", "application/json");
        assert_eq!(reply(post.body(edit_by("alice", &image))).await.passes(), passes);
        slowest = slowest.max(began.elapsed());
        honest += 1;
    }
    over.store(true, Ordering::Relaxed);
    for flood in floods {
        flood.await.unwrap();
    }
    assert!(slowest < PROMPT, "somebody else waited for {slowest:?}");
    let peak = guard.peak_memory();
    assert!(peak < idle + ABOVE, "{} MiB, at rest {} MiB", peak >> 20, idle >> 20);

    // Each denial and the start of the guard is a row, in the database or on standard output; the oldest go again.
    let expected = 1 + denied.load(Ordering::Relaxed) + honest / 2 + honest % 2;
    assert!(expected > ROWS * 2, "{expected} denials are no flood");
    eventually("each denial is recorded", SOON, || async {
        let rows = rows(&guard).await;
        if rows == expected { Ok(()) } else { Err(format!("{rows} of {expected}")) }
    })
    .await;
    assert!(guard.metrics().await.contains("outcome=\"lost\"} 0\n"));
    assert!(guard.terminate().success());
    guard.start_again().await;
    eventually("the ledger keeps what it may", SOON, || async { kept(&ledger).len() <= ROWS }).await;
}
