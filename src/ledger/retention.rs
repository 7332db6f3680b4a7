//! What is old goes.
//!
//! Entry point: [`run`]. Invariant: few rows at a time with a pause between, so
//! that writers never wait long; one replica at a time per cluster.

use std::time::Duration;

use jiff::Timestamp;

use super::id;
use super::store::{Cluster, Store, StoreError};
use crate::config::Retention;
use crate::metrics::LedgerMetrics;

/// How often it is looked for rows to delete.
const EVERY: Duration = Duration::from_secs(10 * 60);

/// What writers have to themselves between two deletions.
const PAUSE: Duration = Duration::from_millis(20);

/// Trims for as long as it is polled.
pub(super) async fn run(store: Store, cluster: Cluster, retention: Retention, metrics: LedgerMetrics) {
    loop {
        match pass(&store, cluster, retention, Timestamp::now()).await {
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

/// Deletes the rows of `cluster` that are too old or too many at `now`. Says
/// how many.
pub(super) async fn pass(
    store: &Store,
    cluster: Cluster,
    retention: Retention,
    now: Timestamp,
) -> Result<u64, StoreError> {
    let surplus = store.surplus(cluster, retention.rows).await?;
    let before = id::cutoff(now, retention.age).max(surplus.unwrap_or(0));
    let mut deleted = 0;
    while let Some(more) = store.trim(cluster, before).await? {
        deleted += more;
        if more == 0 {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(deleted)
}
