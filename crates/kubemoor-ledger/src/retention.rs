//! Deletes old rows.
//!
//! Entry point: [`run`]. Invariant: few rows at a time with a pause between, so
//! that writers never wait long; one replica at a time per cluster. Whole months
//! go where the database has them and no cluster keeps a row of them. Nothing is deleted
//! by age within an hour after the clock was set.

mod clock;

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use self::clock::Clock;
use super::id;
use super::store::{Cluster, DroppedMonths, Store, StoreError};
use kubemoor_runtime::config::Retention;
use kubemoor_runtime::metrics::LedgerMetrics;

/// How often it is looked for rows to delete.
const EVERY: Duration = Duration::from_secs(10 * 60);

/// The pause between two deletions, for writers.
const PAUSE: Duration = Duration::from_millis(20);

/// Trims for as long as it is polled.
pub(super) async fn run(store: Store, cluster: Cluster, retention: Retention, metrics: LedgerMetrics) {
    let mut clock = None;
    loop {
        match pass(&store, cluster, retention, &mut clock).await {
            Ok(0) => {}
            Ok(deleted) => {
                metrics.deleted(deleted);
                tracing::info!(deleted, "old rows are deleted from the ledger");
            }
            Err(error) => tracing::warn!(%error, "old rows cannot be deleted from the ledger"),
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Deletes the rows of `cluster` that are too old by the clock, if that is believed, or too many. Returns their number.
async fn pass(
    store: &Store,
    cluster: Cluster,
    retention: Retention,
    clock: &mut Option<Clock>,
) -> Result<u64, StoreError> {
    let now = (Instant::now(), Timestamp::now());
    let clock = match clock {
        Some(clock) => clock,
        None => {
            let newest = store.surplus(cluster, 1).await?.map(id::time);
            clock.insert(Clock::start(now, newest, retention.age))
        }
    };
    let oldest = clock.look(now).then(|| id::cutoff(now.1, retention.age));
    let surplus = store.surplus(cluster, retention.rows).await?;
    let before = oldest.max(surplus).unwrap_or(0);
    if let Err(error) = months(store, cluster, before, retention.age).await {
        tracing::warn!(%error, "the months of the ledger cannot be brought up to date");
    }
    let mut deleted = 0;
    while let Some(more) = store.trim(cluster, before).await? {
        deleted += more;
        if more == 0 {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    while let Some(1..) = store.trim_marks(cluster, before).await? {
        tokio::time::sleep(PAUSE).await;
    }
    Ok(deleted)
}

/// Makes the months that come and drops those that nobody keeps, where the database has months. `before` is the
/// lowest id that `cluster` keeps.
async fn months(store: &Store, cluster: Cluster, before: i64, age: Duration) -> Result<(), StoreError> {
    store.make_months().await?;
    store.keep(cluster, before, age).await?;
    let Some(DroppedMonths { until, names }) = store.drop_months().await? else { return Ok(()) };
    if !names.is_empty() {
        tracing::info!(
            partitions = names.join(", "),
            "months that no cluster keeps are dropped from the ledger"
        );
    }
    while store.trim_all_marks(until).await? > 0 {
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
