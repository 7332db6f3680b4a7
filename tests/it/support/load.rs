//! Edits without a pause, and their outcomes.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::caller::Caller;
use super::scene::RELEASE;

/// Between two requests.
const PACE: Duration = Duration::from_millis(10);

/// Every so many requests, one is a read, which no webhook sees.
const READS: usize = 10;

/// The least requests that are a load, and the least that show that no more are lost.
const LEAST: usize = 50;

/// The requests so far, and what became of those that did not end as they should.
#[derive(Default)]
pub(crate) struct Told {
    requests: usize,
    /// The number of each, and what was said.
    lost: Vec<(usize, String)>,
}

impl Told {
    /// Asserts that every request was answered as it should be, and that there was a load.
    pub(crate) fn assert_all_served(&self) {
        let Self { requests, lost } = self;
        assert!(lost.is_empty(), "{} of {requests} are lost: {lost:#?}", lost.len());
        assert!(*requests > LEAST, "{requests} requests are no load");
    }

    /// Asserts that requests failed for a while only, and each with `words`: none passed that has to be refused.
    pub(crate) fn assert_recovered(&self, words: &str) {
        let Self { requests, lost } = self;
        let others: Vec<_> = lost.iter().filter(|(_, said)| !said.contains(words)).collect();
        assert!(others.is_empty(), "{} of {requests}: {others:#?}", others.len());
        let last = lost.iter().map(|(number, _)| *number).max().unwrap_or_default();
        assert!(last + LEAST < *requests, "request {last} of {requests} is lost");
    }
}

/// Has Alice edit the ConfigMap at `path` about a hundred times a second, until `stop`: every fifth edit is one that
/// the guard refuses. Some of the requests are reads.
pub(crate) async fn edit(alice: Arc<Caller>, path: String, stop: CancellationToken) -> Told {
    let edited = format!("{path}?dryRun=All");
    let (mut told, mut under_way) = (Told::default(), JoinSet::new());
    let mut ticks = interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    while !stop.is_cancelled() {
        ticks.tick().await;
        told.requests += 1;
        let (alice, path, edited, number) = (Arc::clone(&alice), path.clone(), edited.clone(), told.requests);
        under_way.spawn(async move {
            let value = number.to_string();
            let (outcome, what) = if number % READS == 1 {
                (alice.get(&path).await.done().map(drop), "a read")
            } else if number % 5 == 0 {
                (alice.merge(&edited, &json!({"data": {"mode": value}})).await.refused(RELEASE), "a refusal")
            } else {
                let note = json!({"metadata": {"annotations": {"note": value}}});
                (alice.merge(&edited, &note).await.done().map(drop), "a pass")
            };
            outcome.err().map(|said| (number, format!("{what}: {said}")))
        });
        while let Some(lost) = under_way.try_join_next() {
            told.lost.extend(lost.unwrap());
        }
    }
    while let Some(lost) = under_way.join_next().await {
        told.lost.extend(lost.unwrap());
    }
    told
}
