//! Edits without a pause, and what became of them.

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

/// The requests so far, and what became of those that did not end as they should.
#[derive(Default)]
pub(crate) struct Told {
    pub(crate) requests: usize,
    pub(crate) lost: Vec<String>,
}

/// Has Alice edit the ConfigMap at `path` about a hundred times a second, until `stop`: every fifth edit is one that
/// the guard refuses.
pub(crate) async fn edit(alice: Arc<Caller>, path: String, stop: CancellationToken) -> Told {
    let path = format!("{path}?dryRun=All");
    let (mut told, mut under_way, began) = (Told::default(), JoinSet::new(), Instant::now());
    let mut ticks = interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    while !stop.is_cancelled() {
        ticks.tick().await;
        told.requests += 1;
        let (alice, path, number) = (Arc::clone(&alice), path.clone(), told.requests);
        under_way.spawn(async move {
            let value = number.to_string();
            let (outcome, what) = if number % 5 == 0 {
                (alice.merge(&path, &json!({"data": {"mode": value}})).await.refused(RELEASE), "a refusal")
            } else {
                let note = json!({"metadata": {"annotations": {"note": value}}});
                (alice.merge(&path, &note).await.done().map(drop), "a pass")
            };
            outcome.map_err(|said| format!("{what} {:?} after the start: {said}", began.elapsed()))
        });
        while let Some(ended) = under_way.try_join_next() {
            told.lost.extend(ended.unwrap().err());
        }
    }
    while let Some(ended) = under_way.join_next().await {
        told.lost.extend(ended.unwrap().err());
    }
    told
}
