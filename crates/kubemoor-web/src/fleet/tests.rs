use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::broadcast;
use tokio::time::advance;

use super::*;

/// Lets the poll go on, which waits for nothing but the clock.
async fn pass(ticks: u32) {
    for _ in 0..ticks {
        advance(POLL).await;
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_look_serves_all_pages_and_none_is_taken_for_nobody() {
    let (looks, rows) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let changed = changes();
    let own = changed.clone();
    let look = {
        let (looks, rows) = (Arc::clone(&looks), Arc::clone(&rows));
        move || {
            looks.fetch_add(1, Ordering::Relaxed);
            std::future::ready(match rows.load(Ordering::Relaxed) {
                u64::MAX => Err(()),
                rows => Ok(rows.to_string()),
            })
        }
    };
    let poll = tokio::spawn(async move { poll(&changed, look, || ()).await });
    tokio::task::yield_now().await;
    pass(20).await;
    assert_eq!(looks.load(Ordering::Relaxed), 0, "nobody looks");

    let mut pages: Vec<_> = (0..100).map(|_| own.subscribe()).collect();
    pass(10).await;
    assert_eq!(looks.swap(0, Ordering::Relaxed), 10, "however many look");
    let is_told =
        |pages: &mut Vec<broadcast::Receiver<_>>| pages.iter_mut().all(|page| page.try_recv().is_ok());
    assert!(is_told(&mut pages), "it may have changed before");
    for (found, is_new) in [(0, false), (7, true), (7, false), (u64::MAX, false), (7, false), (8, true)] {
        rows.store(found, Ordering::Relaxed);
        pass(1).await;
        assert_eq!(is_told(&mut pages), is_new, "{found}");
    }
    drop(pages);
    looks.store(0, Ordering::Relaxed);
    pass(20).await;
    assert_eq!(looks.load(Ordering::Relaxed), 0, "nobody looks any more");
    poll.abort();
}
