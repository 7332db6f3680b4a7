//! Edits without a pause: their outcomes, and how long they took.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::caller::Caller;
use super::scene::RELEASE;

/// Between two requests.
const PACE: Duration = Duration::from_millis(10);

/// Every so many requests, one is a read, which no webhook sees.
const READS: usize = 10;

/// The timeout of a webhook as the guard registers it.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The least requests a second: half of the pace, because a busy machine skips some.
const LEAST_RATE: f64 = 50.0;

/// The requests so far, and what became of those that did not end as they should.
#[derive(Default)]
pub(crate) struct Told {
    requests: usize,
    /// When each began, and what was said.
    lost: Vec<(Duration, String)>,
    /// How long all of it took.
    lasted: Duration,
    /// The edit that took longest, and when it began.
    slowest_edit: (Duration, Duration),
    /// How long the slowest read took.
    slowest_read: Duration,
}

/// A request that has ended.
struct Ended {
    is_read: bool,
    began: Duration,
    took: Duration,
    outcome: Result<(), String>,
}

impl Told {
    /// Asserts that every request was answered as it should be, within the time that an installation gives the guard,
    /// and that there was a load. Where the webhooks have a longer timeout, an edit that hangs would pass otherwise.
    /// The slowest read shows how long this machine took for a request without the guard.
    pub(crate) fn assert_all_served(&self) {
        let Self { requests, lost, lasted, slowest_edit: (took, began), slowest_read } = self;
        assert!(lost.is_empty(), "{} of {requests} are lost: {lost:#?}", lost.len());
        assert!(
            *took <= TIMEOUT + *slowest_read,
            "an edit took {took:?}, {began:?} after the start; the slowest read took {slowest_read:?}"
        );
        let rate = *requests as f64 / lasted.as_secs_f64();
        assert!(rate >= LEAST_RATE, "{requests} requests in {lasted:?} are no load: {rate:.0} a second");
    }

    /// Asserts that all requests were answered as they should be but those that began `within` this time after the
    /// start, and that these failed with `words`: none passed that has to be refused.
    pub(crate) fn assert_served_except(&self, within: &Range<Duration>, words: &str) {
        let is_excused = |(began, said): &&(Duration, String)| within.contains(began) && said.contains(words);
        let others: Vec<_> = self.lost.iter().filter(|lost| !is_excused(lost)).collect();
        assert!(others.is_empty(), "{} of {} within {within:?}: {others:#?}", others.len(), self.requests);
    }

    fn count(&mut self, ended: Ended) {
        let Ended { is_read, began, took, outcome } = ended;
        if is_read {
            self.slowest_read = self.slowest_read.max(took);
        } else {
            self.slowest_edit = self.slowest_edit.max((took, began));
        }
        self.lost.extend(outcome.err().map(|said| (began, said)));
    }
}

/// Has Alice edit the ConfigMap at `path` about a hundred times a second, until `stop`: every fifth edit is one that
/// the guard refuses. Some of the requests are reads.
pub(crate) async fn edit(alice: Arc<Caller>, path: String, stop: CancellationToken) -> Told {
    let edited = format!("{path}?dryRun=All");
    let (mut told, mut under_way, start) = (Told::default(), JoinSet::new(), Instant::now());
    let mut ticks = interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    while !stop.is_cancelled() {
        ticks.tick().await;
        told.requests += 1;
        let (alice, path, edited, number) = (Arc::clone(&alice), path.clone(), edited.clone(), told.requests);
        under_way.spawn(async move {
            let (is_read, began) = (number % READS == 1, start.elapsed());
            let value = number.to_string();
            let (outcome, what) = if is_read {
                (alice.get(&path).await.done().map(drop), "a read")
            } else if number % 5 == 0 {
                (alice.merge(&edited, &json!({"data": {"mode": value}})).await.refused(RELEASE), "a refusal")
            } else {
                let note = json!({"metadata": {"annotations": {"note": value}}});
                (alice.merge(&edited, &note).await.done().map(drop), "a pass")
            };
            let outcome = outcome.map_err(|said| format!("{what} {began:?} after the start: {said}"));
            Ended { is_read, began, took: start.elapsed() - began, outcome }
        });
        while let Some(ended) = under_way.try_join_next() {
            told.count(ended.unwrap());
        }
    }
    told.lasted = start.elapsed();
    while let Some(ended) = under_way.join_next().await {
        told.count(ended.unwrap());
    }
    told
}
