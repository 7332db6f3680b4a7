//! The writer's database: opened, lost and found again. One that fails is tried again with growing pauses; its loss and
//! its return are logged once. An empty one in its place gets its tables. One that does not answer is given up soon; one
//! that is busy with its tables has the time that it needs, as long as it answers and the guard does not end.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::Writer;
use crate::retention;
use crate::store::{Cluster, Store, StoreError};
use kubemoor_runtime::config::LedgerUrl;
use kubemoor_verdict::shown::SealingKey;

/// The pauses between attempts at a database that fails.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// How long the database may take for one transaction, or for an answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// How often a database that is busy with its tables is asked whether it is there.
const LOOK: Duration = Duration::from_secs(5);

pub(super) struct Open {
    pub(super) store: Store,
    pub(super) cluster: Cluster,
    pub(super) trimming: JoinHandle<()>,
}

impl Writer {
    /// Tries a database that fails again, so that it is known when it is back though nothing is written.
    pub(super) async fn attempt(&mut self) {
        let Some(probed) = self.probe().await else { return self.attempt_to_open().await };
        match probed {
            Ok(true) => self.recovered(),
            Ok(false) => self.open_again().await,
            Err(reason) => self.failed(&reason),
        }
    }

    /// Whether the database answers and is not the one that was opened: it lacks the tables, or this cluster.
    pub(super) async fn is_replaced(&self) -> bool {
        matches!(self.probe().await, Some(Ok(false)))
    }

    /// Opens a database that has taken the place of the one before.
    pub(super) async fn open_again(&mut self) {
        tracing::warn!(ledger = %self.url, "the ledger's database is another one; its tables are brought up to date");
        self.shared.store.lock().take();
        self.refusals.forget();
        if let Some(open) = self.open.take() {
            open.trimming.abort();
        }
        self.attempt_to_open().await;
    }

    /// Rows wait in the queue meanwhile, and go to standard output when it is full.
    pub(super) async fn attempt_to_open(&mut self) {
        let Some(name) = self.shared.cluster.get() else { return };
        match open(&self.url, name, &self.closing).await {
            Ok((store, key, cluster)) => {
                *self.shared.key.write() = Some(key);
                *self.shared.store.lock() = Some((store.clone(), cluster));
                let metrics = self.shared.metrics.clone();
                let trimming = tokio::spawn(retention::run(store.clone(), cluster, self.retention, metrics));
                self.open = Some(Open { store, cluster, trimming });
                tracing::info!(ledger = %self.url, cluster = name, "the ledger is open");
                self.recovered();
            }
            Err(reason) => self.failed(&reason),
        }
    }

    pub(super) fn is_due(&self) -> bool {
        self.failing.is_none_or(|(at, _)| at <= Instant::now())
    }

    pub(super) fn failed(&mut self, reason: &str) {
        if self.failing.is_none() {
            tracing::warn!(
                ledger = %self.url, reason,
                "the ledger takes no rows; they go to standard output as lines of JSON until it does"
            );
        }
        let (shortest, longest) = RETRY;
        let pause = self.failing.map_or(shortest, |(_, pause)| (pause * 2).min(longest));
        self.failing = Some((Instant::now() + pause, pause));
        self.shared.metrics.available(false);
    }

    pub(super) fn recovered(&mut self) {
        if self.failing.take().is_some() {
            tracing::info!(ledger = %self.url, "the ledger takes rows again");
        }
        self.shared.metrics.available(true);
    }

    /// Whether the database accepts rows of this cluster; `None` while no database is open.
    async fn probe(&self) -> Option<Result<bool, String>> {
        let (Some(Open { store, cluster, .. }), Some(name)) = (&self.open, self.shared.cluster.get()) else {
            return None;
        };
        Some(within(store.probe(*cluster, name)).await)
    }
}

/// Opens the database, and brings its tables up to date: gives the key of its ledger, and the number of the cluster of this
/// name in it.
///
/// # Errors
/// A sentence, when it does not answer or fails, or `closing` comes first.
async fn open(
    url: &LedgerUrl,
    name: &str,
    closing: &CancellationToken,
) -> Result<(Store, SealingKey, Cluster), String> {
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
