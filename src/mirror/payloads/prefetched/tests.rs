use std::task::Poll;

use futures::poll;

use super::super::super::records;
use super::*;
use crate::client::resource::Meta;

fn record(uid: &str, version: &str) -> Head {
    let meta = serde_json::from_value::<Meta>(serde_json::json!({
        "namespace": "team",
        "name": "sh.helm.release.v1.shop.v1",
        "labels": { "name": "shop", "version": "1", "status": "deployed" },
        "uid": uid,
        "resourceVersion": version,
    }));
    let (_, known) = records::read(meta.unwrap()).unwrap();
    Head::clone(&known.head)
}

fn payload(bytes: usize) -> Packed {
    Packed::new("x".repeat(bytes), true)
}

#[test]
fn a_payload_is_given_once_and_only_for_the_version_that_was_read() {
    let prefetched = Prefetched::default();
    prefetched.put(&record("a", "1"), payload(3));
    assert!(prefetched.take(&record("a", "2")).is_none());
    assert!(prefetched.take(&record("b", "1")).is_none());
    assert_eq!(prefetched.take(&record("a", "1")).map(|payload| payload.weight()), Some(3));
    assert!(prefetched.take(&record("a", "1")).is_none());
}

#[tokio::test]
async fn there_is_room_again_once_payloads_are_taken_or_dropped() {
    let prefetched = Prefetched::default();
    // Twice the same one, which counts once.
    prefetched.put(&record("a", "1"), payload(ENOUGH - 1));
    prefetched.put(&record("a", "1"), payload(ENOUGH - 1));
    prefetched.room().await;
    assert_eq!(poll!(Box::pin(prefetched.end())), Poll::Pending);
    for free in [|held: &Prefetched| drop(held.take(&record("b", "1"))), Prefetched::clear] {
        prefetched.put(&record("b", "1"), payload(ENOUGH));
        let mut room = Box::pin(prefetched.room());
        assert_eq!(poll!(&mut room), Poll::Pending);
        free(&prefetched);
        room.await;
    }
    prefetched.end().await;
    assert!(prefetched.take(&record("a", "1")).is_none());
}
