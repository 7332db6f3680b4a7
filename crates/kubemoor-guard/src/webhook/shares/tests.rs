//! Who gets how much, and who is the cause if there is no more.

use super::*;

const TOTAL: usize = 6400;

fn holder(peer: u8, namespace: u64, user: u64) -> Holder {
    Holder { peer: Some(IpAddr::from([10, 0, 0, peer])), namespace, user }
}

/// How much a holder gets, bit by bit, and why no more.
fn fill(shares: &Shares, holder: Holder) -> (usize, Lack) {
    let mut amount = 0;
    loop {
        match shares.take(holder, 100) {
            Ok(()) => amount += 100,
            Err(lack) => return (amount, lack),
        }
    }
}

#[test]
fn user_and_namespace_get_half_and_peer_three_quarters() {
    for other in [holder(1, 1, 8), holder(1, 2, 7)] {
        let shares = Shares::new(TOTAL);
        assert_eq!(fill(&shares, holder(1, 1, 7)), (TOTAL / 2, Lack::Own));
        // Whoever has the same user or namespace shares its part.
        assert_eq!(shares.take(other, 100), Err(Lack::Own), "{other:?}");
        assert_eq!(fill(&shares, holder(1, 3, 9)).0, TOTAL / 4);
        assert_eq!(shares.take(holder(1, 4, 10), 100), Err(Lack::Others));
        assert_eq!(fill(&shares, holder(2, 1, 7)), (TOTAL / 4, Lack::Own), "another peer has room");
    }
}

#[test]
fn user_of_many_peers_is_the_cause_of_the_own_lack() {
    let shares = Shares::new(TOTAL);
    for peer in [1, 2] {
        assert_eq!(fill(&shares, holder(peer, 1, 7)), (TOTAL / 2, Lack::Own));
    }
    assert_eq!(shares.take(holder(3, 2, 7), 100), Err(Lack::Own));
    assert_eq!(shares.take(holder(3, 2, 8), 100), Err(Lack::Others));
}

#[test]
fn holder_of_a_fair_part_is_the_cause_of_the_own_lack() {
    let shares = Shares::new(TOTAL);
    shares.take(holder(1, 1, 1), 3000).unwrap();
    shares.take(holder(1, 2, 2), 1800).unwrap();
    // A third of all has whoever shares it with one other.
    assert_eq!(shares.take(holder(1, 2, 2), 300), Err(Lack::Others));
    assert_eq!(shares.take(holder(1, 2, 2), 400), Err(Lack::Own));
    assert_eq!(shares.take(holder(1, 3, 3), 2000), Err(Lack::Others), "it has nothing yet");
}

#[test]
fn turns_of_two_processors_go_to_two_users() {
    let shares = Shares::new(2);
    let turn = |namespace, user| Holder { peer: None, ..holder(1, namespace, user) };
    shares.take(turn(1, 1), 1).unwrap();
    assert_eq!(shares.take(turn(2, 1), 1), Err(Lack::Own));
    assert_eq!(shares.take(turn(1, 2), 1), Err(Lack::Own));
    shares.take(turn(2, 2), 1).unwrap();
    assert_eq!(shares.take(turn(3, 3), 1), Err(Lack::Others));
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_goes_to_who_waits() {
    let shares = Shares::new(TOTAL);
    let until = || Instant::now() + std::time::Duration::from_secs(1);
    let mut first = shares.share(None, "shop", "alice");
    first.grow(TOTAL / 2, until()).await.unwrap();
    let mut second = shares.share(None, "shop", "alice");
    assert_eq!(second.grow(100, until()).await, Err(Lack::Own));
    let (grown, ()) = tokio::join!(second.grow(100, until()), async { drop(first) });
    grown.unwrap();
    drop(second);
    assert!(shares.taken.lock().is_empty());
}
