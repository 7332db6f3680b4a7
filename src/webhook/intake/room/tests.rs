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
fn a_lone_namespace_takes_half_and_a_lone_peer_three_quarters() {
    let room = Room::new(BYTES);
    assert_eq!(fill(&room, tenant(1, 1)), (BYTES / 2, Lack::Own));
    for namespace in 2..200 {
        fill(&room, tenant(1, namespace));
    }
    let taken: usize = room.taken.lock().iter().map(|(_, bytes)| bytes).sum();
    assert!(taken <= BYTES * 3 / 4 && taken > BYTES * 7 / 10, "{taken}");
}

#[test]
fn a_newcomer_finds_room_beside_those_who_take_all_they_may() {
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
fn who_took_the_room_is_told() {
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
async fn what_is_given_back_goes_to_who_waits() {
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
