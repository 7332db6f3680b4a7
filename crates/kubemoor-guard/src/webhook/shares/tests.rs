//! Who gets how much, and who is the cause if there is no more.

use super::*;

const TOTAL: usize = 6400;

fn holder(peer: u8, namespace: u64, user: u64) -> (IpAddr, Holder) {
    (IpAddr::from([10, 0, 0, peer]), Holder { namespace, user })
}

fn take(shares: &MemoryShares, (peer, holder): (IpAddr, Holder), more: usize) -> Result<(), ShortageCause> {
    shares.take(peer, holder, more)
}

/// How much a holder gets, bit by bit, and why no more.
fn fill(shares: &MemoryShares, holder: (IpAddr, Holder)) -> (usize, ShortageCause) {
    let mut amount = 0;
    loop {
        match take(shares, holder, 100) {
            Ok(()) => amount += 100,
            Err(lack) => return (amount, lack),
        }
    }
}

#[test]
fn user_and_namespace_get_two_thirds_of_the_rest_and_peer_three_quarters() {
    for other in [holder(1, 1, 8), holder(1, 2, 7)] {
        let shares = MemoryShares::new(TOTAL);
        assert_eq!(fill(&shares, holder(1, 1, 7)), (TOTAL / 2, ShortageCause::Own));
        // Whoever has the same user or namespace shares its part.
        assert_eq!(take(&shares, other, 100), Err(ShortageCause::Own), "{other:?}");
        assert_eq!(fill(&shares, holder(1, 3, 9)), (1000, ShortageCause::Others));
        assert_eq!(
            fill(&shares, holder(1, 4, 10)),
            (400, ShortageCause::Others),
            "there is room for a third one"
        );
        assert_eq!(fill(&shares, holder(2, 1, 7)).1, ShortageCause::Own, "another peer has room");
    }
}

#[test]
fn user_of_many_peers_is_the_cause_of_the_own_lack() {
    let shares = MemoryShares::new(TOTAL);
    for peer in [1, 2] {
        assert_eq!(fill(&shares, holder(peer, 1, 7)), (TOTAL / 2, ShortageCause::Own));
    }
    assert_eq!(take(&shares, holder(3, 2, 7), 100), Err(ShortageCause::Own));
    assert_eq!(take(&shares, holder(3, 2, 8), 100), Err(ShortageCause::Others));
}

#[test]
fn holder_of_a_fair_part_is_the_cause_of_the_own_lack() {
    let shares = MemoryShares::new(TOTAL);
    take(&shares, holder(1, 1, 1), 3000).unwrap();
    take(&shares, holder(1, 2, 2), 1200).unwrap();
    // A third of all has whoever shares it with one other.
    assert_eq!(take(&shares, holder(1, 2, 2), 300), Err(ShortageCause::Others));
    assert_eq!(take(&shares, holder(1, 2, 2), 1000), Err(ShortageCause::Own));
    assert_eq!(take(&shares, holder(1, 3, 3), 2000), Err(ShortageCause::Others), "it has nothing yet");
}

#[tokio::test(start_paused = true)]
async fn turns_of_two_processors_go_to_two_users() {
    let turns = FairTurns::new(2);
    let turn = |namespace, user| {
        let turns = Arc::clone(&turns);
        async move { turns.take(namespace, user, Instant::now()).await }
    };
    let _first = turn("1", "1").await.unwrap();
    assert_eq!(turn("2", "1").await.unwrap_err(), ShortageCause::Own);
    assert_eq!(turn("1", "2").await.unwrap_err(), ShortageCause::Own);
    let _second = turn("2", "2").await.unwrap();
    assert_eq!(turn("3", "3").await.unwrap_err(), ShortageCause::Others);
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_goes_to_who_waits() {
    let shares = MemoryShares::new(TOTAL);
    let until = || Instant::now() + std::time::Duration::from_secs(1);
    let mut first = shares.share(IpAddr::from([10, 0, 0, 1]), "shop", "alice");
    first.grow(TOTAL / 2, until()).await.unwrap();
    let mut second = shares.share(IpAddr::from([10, 0, 0, 1]), "shop", "alice");
    assert_eq!(second.grow(100, until()).await, Err(ShortageCause::Own));
    let (grown, ()) = tokio::join!(second.grow(100, until()), async { drop(first) });
    grown.unwrap();
    drop(second);
    assert!(shares.taken.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn turns_go_to_who_asked_first_and_own_load_holds_up_nobody() {
    let turns = FairTurns::new(2);
    let until = Instant::now() + std::time::Duration::from_secs(1);
    let take = |name: &'static str, until| {
        let turns = Arc::clone(&turns);
        async move { turns.take(name, name, until).await }
    };
    let (alice, bob) = (take("alice", until).await.unwrap(), take("bob", until).await.unwrap());
    let order = Mutex::new(Vec::new());
    let turn = async |name| {
        let turn = take(name, until).await.unwrap();
        order.lock().push(name);
        turn
    };
    let ((), carol, dave, ()) = tokio::join!(
        async { assert_eq!(take("bob", Instant::now()).await.unwrap_err(), ShortageCause::Own) },
        turn("carol"),
        turn("dave"),
        async {
            tokio::task::yield_now().await;
            drop(alice);
            // A newcomer does not overtake those who wait.
            assert_eq!(take("erin", Instant::now()).await.unwrap_err(), ShortageCause::Others);
            tokio::task::yield_now().await;
            drop(bob);
        }
    );
    assert_eq!(*order.lock(), ["carol", "dave"]);
    drop((carol, dave));
    assert!(turns.taken.lock().is_empty() && turns.free.available_permits() == 2);
}
