//! Who gets how much, and who is the cause if there is no more.

use super::*;

const TOTAL: usize = 6400;

fn holder(peer: u8, namespace: u64, user: u64) -> Holder {
    Holder { peer: Some(IpAddr::from([10, 0, 0, peer])), namespace, user }
}

fn take(shares: &Shares, holder: Holder, more: usize) -> Result<(), Lack> {
    shares.take(holder, more, true)
}

/// How much a holder gets, bit by bit, and why no more.
fn fill(shares: &Shares, holder: Holder) -> (usize, Lack) {
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
        let shares = Shares::memory(TOTAL);
        assert_eq!(fill(&shares, holder(1, 1, 7)), (TOTAL / 2, Lack::Own));
        // Whoever has the same user or namespace shares its part.
        assert_eq!(take(&shares, other, 100), Err(Lack::Own), "{other:?}");
        assert_eq!(fill(&shares, holder(1, 3, 9)), (1000, Lack::Others));
        assert_eq!(fill(&shares, holder(1, 4, 10)), (400, Lack::Others), "there is room for a third one");
        assert_eq!(fill(&shares, holder(2, 1, 7)).1, Lack::Own, "another peer has room");
    }
}

#[test]
fn user_of_many_peers_is_the_cause_of_the_own_lack() {
    let shares = Shares::memory(TOTAL);
    for peer in [1, 2] {
        assert_eq!(fill(&shares, holder(peer, 1, 7)), (TOTAL / 2, Lack::Own));
    }
    assert_eq!(take(&shares, holder(3, 2, 7), 100), Err(Lack::Own));
    assert_eq!(take(&shares, holder(3, 2, 8), 100), Err(Lack::Others));
}

#[test]
fn holder_of_a_fair_part_is_the_cause_of_the_own_lack() {
    let shares = Shares::memory(TOTAL);
    take(&shares, holder(1, 1, 1), 3000).unwrap();
    take(&shares, holder(1, 2, 2), 1200).unwrap();
    // A third of all has whoever shares it with one other.
    assert_eq!(take(&shares, holder(1, 2, 2), 300), Err(Lack::Others));
    assert_eq!(take(&shares, holder(1, 2, 2), 1000), Err(Lack::Own));
    assert_eq!(take(&shares, holder(1, 3, 3), 2000), Err(Lack::Others), "it has nothing yet");
}

#[test]
fn turns_of_two_processors_go_to_two_users() {
    let shares = Shares::turns(2);
    let turn = |namespace, user| Holder { peer: None, ..holder(1, namespace, user) };
    take(&shares, turn(1, 1), 1).unwrap();
    assert_eq!(take(&shares, turn(2, 1), 1), Err(Lack::Own));
    assert_eq!(take(&shares, turn(1, 2), 1), Err(Lack::Own));
    take(&shares, turn(2, 2), 1).unwrap();
    assert_eq!(take(&shares, turn(3, 3), 1), Err(Lack::Others));
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_goes_to_who_waits() {
    let shares = Shares::memory(TOTAL);
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

#[tokio::test(start_paused = true)]
async fn turns_go_to_who_asked_first_and_own_load_holds_up_nobody() {
    let shares = Shares::turns(2);
    let until = || Instant::now() + std::time::Duration::from_secs(1);
    let share = |name: &str| shares.share(None, name, name);
    let (mut alice, mut bob) = (share("alice"), share("bob"));
    alice.grow(1, until()).await.unwrap();
    bob.grow(1, until()).await.unwrap();
    let (mut carol, mut dave) = (share("carol"), share("dave"));
    let order = Mutex::new(Vec::new());
    let turn = async |name, share: &mut Share| {
        share.grow(1, until()).await.unwrap();
        order.lock().push(name);
    };
    let mut more_of_bob = share("bob");
    tokio::join!(
        async { assert_eq!(more_of_bob.grow(1, Instant::now()).await, Err(Lack::Own)) },
        turn("carol", &mut carol),
        turn("dave", &mut dave),
        async {
            tokio::task::yield_now().await;
            drop(alice);
            // A newcomer does not overtake those who wait.
            assert_eq!(share("erin").grow(1, Instant::now()).await, Err(Lack::Others));
            tokio::task::yield_now().await;
            drop(bob);
        }
    );
    assert_eq!(*order.lock(), ["carol", "dave"]);
    drop((carol, dave));
    assert!(shares.taken.lock().is_empty() && shares.line.lock().is_empty());
}
