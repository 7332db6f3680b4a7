use super::*;

#[tokio::test]
async fn waiting_item_is_delivered_once_when_announced_again() {
    let announcer = Announcer::default();
    let changes = announcer.subscribe(["web", "db"]);
    announcer.announce(&"web");
    announcer.announce(&"cache");
    assert_eq!([changes.next().await, changes.next().await, changes.next().await], ["web", "db", "cache"]);
    assert!(changes.0.items.lock().0.is_empty());
}

#[tokio::test]
async fn item_can_be_queued_again_after_it_was_taken() {
    let changes = Changes::of(["web"]);
    assert_eq!(changes.next().await, "web");
    changes.add("web");
    assert_eq!(changes.next().await, "web");
}

#[tokio::test]
async fn drained_queue_gives_back_its_memory() {
    let changes = Changes::of(0..10_000);
    for number in 0..10_000 {
        assert_eq!(changes.next().await, number);
    }
    let items = changes.0.items.lock();
    assert!(items.0.capacity() <= 2 * USUAL && items.1.capacity() <= 2 * USUAL);
}

#[tokio::test]
async fn a_receiver_that_is_gone_is_forgotten() {
    let announcer = Announcer::default();
    drop(announcer.subscribe(["web"]));
    announcer.announce(&"db");
    assert!(announcer.0.lock().is_empty());
}

#[tokio::test]
async fn a_waiting_receiver_wakes() {
    let announcer = Arc::new(Announcer::default());
    let changes = announcer.subscribe([]);
    let waiting = tokio::spawn(async move { changes.next().await });
    tokio::task::yield_now().await;
    announcer.announce(&"web");
    assert_eq!(waiting.await.unwrap(), "web");
}
