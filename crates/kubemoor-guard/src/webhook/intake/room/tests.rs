//! Who gets how much.

use super::*;

const BYTES: usize = 6400;

/// The edits in a namespace, each by a user of its own.
fn tenant(peer: u8, namespace: u64) -> Tenant {
    user_in(peer, namespace, namespace)
}

fn user_in(peer: u8, namespace: u64, user: u64) -> Tenant {
    Tenant { peer: IpAddr::from([10, 0, 0, peer]), namespace: Some(namespace), user }
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
fn user_with_many_namespaces_gets_no_more_than_with_one() {
    let room = Room::new(BYTES);
    for namespace in 0..10 {
        assert_eq!(room.take(user_in(1, namespace, 7), 300), Ok(()), "{namespace}");
    }
    let (more, lack) = fill(&room, user_in(1, 10, 7));
    assert_eq!((10 * 300 + more, lack), (BYTES / 2, Lack::Own));
    // What the user cannot have, the user has taken, in whatever namespace.
    for namespace in [0, 9, 11] {
        assert_eq!(room.take(user_in(1, namespace, 7), 1000), Err(Lack::Own), "{namespace}");
    }
    // Others have room, also in the same namespaces.
    for namespace in [0, 12] {
        assert_eq!(room.take(user_in(1, namespace, 8), BYTES / 20), Ok(()), "{namespace}");
    }
    // Many users in one namespace get no more than one.
    let room = Room::new(BYTES);
    for user in 0..10 {
        fill(&room, user_in(1, 1, user));
    }
    let taken: usize = room.taken.lock().iter().map(|(_, bytes)| bytes).sum();
    assert!(taken <= BYTES / 2, "{taken}");
    assert_eq!(room.take(user_in(1, 1, 10), 1000), Err(Lack::Own));
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
