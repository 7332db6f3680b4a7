use std::task::Poll;

use futures::poll;

use super::super::super::records;
use super::*;
use crate::client::resource::Meta;

fn record(uid: &str, version: &str) -> Arc<Head> {
    let meta = serde_json::from_value::<Meta>(serde_json::json!({
        "namespace": "team",
        "name": "sh.helm.release.v1.shop.v1",
        "labels": { "name": "shop", "version": "1", "status": "deployed" },
        "uid": uid,
        "resourceVersion": version,
    }));
    let (_, known) = records::read(meta.unwrap()).unwrap();
    known.head
}

fn payload(bytes: usize) -> Packed {
    Packed::new("x".repeat(bytes), true)
}

fn release(name: &str) -> ReleaseId {
    ReleaseId { namespace: "team".into(), name: name.into() }
}

#[test]
fn a_payload_is_given_once_and_only_for_the_version_that_was_read() {
    let (prefetched, shop) = (Prefetched::default(), release("shop"));
    prefetched.put(&shop, record("a", "1"), payload(3));
    assert!(prefetched.take(&shop, &record("a", "2")).is_none());
    assert!(prefetched.take(&shop, &record("b", "1")).is_none());
    assert!(prefetched.take(&release("bar"), &record("a", "1")).is_none());
    assert_eq!(prefetched.take(&shop, &record("a", "1")).map(|payload| payload.weight()), Some(3));
    assert!(prefetched.take(&shop, &record("a", "1")).is_none());
}

#[tokio::test]
async fn there_is_room_again_once_payloads_are_taken_or_dropped() {
    let (prefetched, shop, bar) = (Prefetched::default(), release("shop"), release("bar"));
    // Twice of the same release, which counts once.
    prefetched.put(&shop, record("a", "1"), payload(ENOUGH - 1));
    prefetched.put(&shop, record("a", "2"), payload(ENOUGH - 1));
    prefetched.room().await;
    let take: fn(&Prefetched, &ReleaseId) -> Option<Packed> = |held, id| held.take(id, &record("b", "1"));
    for free in [take, Prefetched::drop_of] {
        prefetched.put(&bar, record("b", "1"), payload(ENOUGH));
        let mut room = Box::pin(prefetched.room());
        assert_eq!(poll!(&mut room), Poll::Pending);
        assert!(free(&prefetched, &bar).is_some());
        room.await;
    }
    assert!(prefetched.take(&shop, &record("a", "2")).is_some());
}
