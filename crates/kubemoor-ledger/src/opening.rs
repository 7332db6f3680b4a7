//! From the URL of a database to a ledger that takes rows.
//!
//! Entry point: [`open()`]. Invariant: a database that does not answer is given up soon; one that is busy with its tables
//! has the time that it needs, as long as it answers and the guard does not end.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::store::{Cluster, Store, StoreError};
use kubemoor_runtime::config::LedgerUrl;
use kubemoor_verdict::shown::SealingKey;

/// How long the database may take for one transaction, or for an answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// How often a database that is busy with its tables is asked whether it is there.
const LOOK: Duration = Duration::from_secs(5);

/// A database with its tables, the key of its ledger, and the number of a cluster in it.
pub(super) type Opened = (Store, SealingKey, Cluster);

/// Opens the database, and brings its tables up to date. `name` is the cluster's.
///
/// # Errors
/// A sentence, when it does not answer or fails, or `closing` comes first.
pub(super) async fn open(url: &LedgerUrl, name: &str, closing: &CancellationToken) -> Result<Opened, String> {
    let store = within(Store::connect_to_write(url)).await?;
    tokio::select! {
        biased;
        migrated = store.migrate() => migrated.map_err(|error| error.to_string())?,
        () = silence(&store, url) => return Err(late()),
        () = end(closing) => return Err("the guard ends before the tables are up to date".to_owned()),
    }
    let named = async { Ok((store.key().await?, store.cluster(name).await?)) };
    let (key, cluster) = within(named).await?;
    Ok((store, key, cluster))
}

/// What the database answers, unless it takes too long.
///
/// # Errors
/// A sentence.
pub(super) async fn within<T>(asked: impl Future<Output = Result<T, StoreError>>) -> Result<T, String> {
    match timeout(PATIENCE, asked).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(late()),
    }
}

/// Waits until the database, while it is busy, does not answer another question.
async fn silence(store: &Store, url: &LedgerUrl) {
    let mut is_told = false;
    loop {
        sleep(LOOK).await;
        if within(store.answers()).await.is_err() {
            return;
        }
        if !is_told {
            tracing::info!(ledger = %url, "the tables of the ledger are being brought up to date");
            is_told = true;
        }
    }
}

/// Waits for the end of the guard, and then as long as for any transaction.
async fn end(closing: &CancellationToken) {
    closing.cancelled().await;
    sleep(PATIENCE).await;
}

fn late() -> String {
    format!("it did not answer within {} s", PATIENCE.as_secs())
}
