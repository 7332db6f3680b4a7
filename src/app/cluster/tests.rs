use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response};
use kube::client::Body;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::*;

/// A session that takes part in an election, at an API server that breaks the caller down or never answers.
fn session(is_broken: bool) -> LeaderSession {
    let service = tower::service_fn(move |_: Request<Body>| async move {
        assert!(!is_broken, "broken");
        std::future::pending::<Result<Response<Body>, Infallible>>().await
    });
    let client = kube::Client::new(service, "default");
    let place = LeaseReference { namespace: "kubemoor-system".to_owned(), name: "kubemoor".to_owned() };
    let (_, bundle) = watch::channel(None);
    let election = Election::new(client, place.clone(), "me".to_owned(), bundle);
    LeaderSession {
        leadership: election.leadership(),
        withdrawn: election.withdrawn(),
        identity: "me".to_owned(),
        place: Some(place),
        election: Some(election),
        resign: CancellationToken::new(),
    }
}

#[tokio::test]
async fn election_that_breaks_down_ends_the_process() {
    let mut session = session(true);
    let mut parts = SupervisedTasks::default();
    session.join_election(&mut parts);
    let why =
        timeout(Duration::from_secs(60), parts.wait_for_failure()).await.expect("the election is a part");
    assert!(format!("{why:#}").contains("a part of the program failed"), "{why:#}");
    assert!(!session.leadership.is_leader());
    session.leave(&mut parts).await;
}

#[tokio::test]
async fn lead_is_given_up_after_every_other_part() {
    let mut session = session(false);
    let mut parts = SupervisedTasks::default();
    session.join_election(&mut parts);
    let (finish, finished) = oneshot::channel::<()>();
    let (ended, was_early) = oneshot::channel();
    let resign = session.resign.clone();
    parts.spawn("the loop", async move {
        drop(finished.await);
        ended.send(resign.is_cancelled()).unwrap();
    });
    tokio::join!(session.leave(&mut parts), async { finish.send(()).unwrap() });
    assert!(!was_early.await.unwrap(), "the lead is given up while the loop still works");
}
