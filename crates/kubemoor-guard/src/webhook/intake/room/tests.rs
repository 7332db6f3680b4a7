//! Who gets how much.

use super::*;

const BYTES: usize = 6400;

fn tenant(peer: u8, namespace: u64) -> Tenant {
    Tenant { peer: IpAddr::from([10, 0, 0, peer]), namespace: Some(namespace) }
}

/// How much `tenant` gets, byte by byte, and why no more.
fn fill(room: &Room, tenant: Tenant) -> (usize, Lack) {
    let mut bytes = 0;
    loop {
        match room.take(tenant, 1) {
            Ok(()) => bytes += 1,
            Err(lack) => return (bytes, lack),
        }
    }
}

#[test]
fn namespace_gets_half_and_peer_three_quarters_of_memory() {
    let room = Room::new(BYTES);
    assert_eq!(fill(&room, tenant(1, 1)), (BYTES / 2, Lack::Own));
    for namespace in 2..200 {
        fill(&room, tenant(1, namespace));
    }
    let taken: usize = room.taken.lock().iter().map(|(_, bytes)| bytes).sum();
    assert!(taken <= BYTES * 3 / 4 && taken > BYTES * 7 / 10, "{taken}");
}

#[test]
fn new_peer_gets_memory_when_others_use_their_full_share() {
    let room = Room::new(BYTES);
    for namespace in 0..20 {
        fill(&room, tenant(1, namespace));
    }
    let (bytes, _) = fill(&room, tenant(2, 1));
    assert!(bytes > BYTES / 10, "{bytes}");
    let (bytes, _) = fill(&room, tenant(3, 1));
    assert!(bytes > BYTES / 40, "{bytes}");
}

#[test]
fn memory_shortage_is_attributed_to_own_or_other_namespaces() {
    let room = Room::new(BYTES);
    fill(&room, tenant(1, 1));
    assert_eq!(room.take(tenant(1, 1), 100), Err(Lack::Own));
    // Less than a third of what the peer may take, which the first has.
    assert_eq!(room.take(tenant(1, 2), BYTES / 4 - 10), Err(Lack::Others));
    assert_eq!(room.take(tenant(1, 2), BYTES / 3), Err(Lack::Own));
    // Two who take it in turns have both their part.
    fill(&room, tenant(1, 2));
    room.give(tenant(1, 1), BYTES / 8);
    fill(&room, tenant(1, 2));
    assert_eq!(room.take(tenant(1, 1), BYTES / 8), Err(Lack::Own));
}

#[tokio::test(start_paused = true)]
async fn released_memory_goes_to_a_waiting_request() {
    let room = Room::new(BYTES);
    let mut first = room.share(tenant(1, 1));
    let until = || Instant::now() + std::time::Duration::from_secs(1);
    first.grow(BYTES / 2, until()).await.unwrap();
    let mut second = room.share(tenant(1, 1));
    assert_eq!(second.grow(100, until()).await, Err(Lack::Own));
    let (grown, ()) = tokio::join!(second.grow(100, until()), async { drop(first) });
    grown.unwrap();
    drop(second);
    assert!(room.taken.lock().is_empty());
}
