//! Carries rows from the recording parts to the database, without making them wait: a bounded queue, batches,
//! the database. Rows for which the queue has no room, or the database fails, go to standard output. The
//! writer retries the database automatically and logs when it fails and when it works again. It has a thread
//! of its own, so that preparing a batch cannot delay a webhook's answer.

mod database;
mod handle;

use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{io, thread};

use parking_lot::{Mutex, RwLock};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use self::database::{Open, within};
pub use self::handle::Ledger;
use super::entry::Entry;
use super::id::Ids;
use super::repeats::{Batch, Refusals};
use super::retention;
use super::row::Row;
use super::spill::Spill;
use super::store::{Cluster, Store};
use kubemoor_runtime::config::{LedgerUrl, Retention};
use kubemoor_runtime::metrics::{LedgerMetrics, Written};
use kubemoor_verdict::shown::SealingKey;

/// Rows of one transaction.
const BATCH: usize = 2000;

/// How long rows gather for one transaction: then an index page is written once for many rows, and nobody who records a
/// row has to wake the writer.
const GATHERING: Duration = Duration::from_millis(50);

/// The pause before old rows are deleted again, after that broke down.
const TRIM_AGAIN: Duration = Duration::from_secs(5);

/// How long shutting down waits for the database.
const DRAIN: Duration = Duration::from_secs(10);

/// Carries rows to the database.
pub struct Writer {
    queue: mpsc::Receiver<Row>,
    shared: Arc<Shared>,
    url: LedgerUrl,
    retention: Retention,
    open: Option<Open>,
    closing: CancellationToken,
    /// Set while the database fails: when it is tried again, and the pause then.
    failing: Option<(Instant, Duration)>,
    /// The refusals whose repeats are counted.
    refusals: Refusals,
}

struct Shared {
    ids: Mutex<Ids>,
    /// Known once the API server has answered.
    cluster: OnceLock<String>,
    /// Known once the database was open.
    key: RwLock<Option<SealingKey>>,
    /// The database, for readers, and the number of the cluster in it.
    store: Mutex<Option<(Store, Cluster)>>,
    /// Whether it is one that clusters may share.
    is_shared: bool,
    age: Duration,
    spill: Spill,
    metrics: LedgerMetrics,
}

impl Writer {
    /// Writes rows under the name of `cluster`, as soon as that is known, until `closing`; then writes the
    /// queued rest. The returned future is ready when that is done.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn start(
        self,
        cluster: oneshot::Receiver<String>,
        closing: CancellationToken,
    ) -> io::Result<impl Future<Output = ()> + Send + 'static> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (writing, written) = oneshot::channel::<()>();
        thread::Builder::new().name("ledger".to_owned()).spawn(move || {
            runtime.block_on(self.run(cluster, closing));
            // Before the runtime ends, which waits for writes to standard output.
            drop(writing);
        })?;
        Ok(async move { drop(written.await) })
    }

    async fn run(mut self, cluster: oneshot::Receiver<String>, closing: CancellationToken) {
        self.closing = closing.clone();
        tokio::select! {
            biased;
            name = cluster => {
                if let Ok(name) = name {
                    let _ = self.shared.cluster.set(name);
                    self.attempt_to_open().await;
                }
            }
            () = closing.cancelled() => {}
        }
        let mut rows = Vec::new();
        loop {
            let is_wanting = self.failing.is_some() || self.open.is_none();
            let is_tried = is_wanting && self.shared.cluster.get().is_some();
            let again = self.failing.map_or_else(Instant::now, |(at, _)| at);
            tokio::select! {
                biased;
                () = closing.cancelled() => break,
                received = self.queue.recv_many(&mut rows, BATCH) => {
                    if received == 0 {
                        break;
                    }
                    self.write(&mut rows).await;
                    if received < BATCH {
                        drop(timeout(GATHERING, closing.cancelled()).await);
                    }
                }
                () = sleep_until(again), if is_tried => self.attempt().await,
                () = trimmed(self.open.as_mut()) => self.trim_again(),
            }
        }
        self.drain(rows).await;
        if let Some(open) = self.open.take() {
            open.trimming.abort();
            open.store.close().await;
        }
        self.shared.spill.finish().await;
    }

    /// Deletes old rows again after a pause.
    fn trim_again(&mut self) {
        let Some(Open { store, cluster, trimming }) = &mut self.open else { return };
        tracing::warn!("the deletion of old rows from the ledger broke down, starting it again");
        let trim = retention::run(store.clone(), *cluster, self.retention, self.shared.metrics.clone());
        *trimming = tokio::spawn(async move {
            tokio::time::sleep(TRIM_AGAIN).await;
            trim.await;
        });
    }

    async fn drain(&mut self, mut rows: Vec<Row>) {
        let deadline = Instant::now() + DRAIN;
        self.queue.close();
        while self.queue.recv_many(&mut rows, BATCH).await > 0 {
            if Instant::now() < deadline {
                self.write(&mut rows).await;
            } else {
                let entries = self.sealed(&mut rows);
                self.shared.spill(&entries, Written::Unavailable);
            }
        }
    }

    fn sealed(&self, rows: &mut Vec<Row>) -> Vec<Entry> {
        self.shared.metrics.queued(-i64::try_from(rows.len()).unwrap_or(i64::MAX));
        rows.drain(..).map(|row| self.shared.seal(row)).collect()
    }

    async fn write(&mut self, rows: &mut Vec<Row>) {
        if self.open.is_none() && self.is_due() {
            self.attempt_to_open().await;
        }
        let entries = self.sealed(rows);
        if self.open.is_none() || !self.is_due() {
            self.shared.spill(&entries, Written::Unavailable);
            return;
        }
        let batch = self.refusals.fold(&entries);
        let mut outcome = self.insert(&batch).await;
        // The first statement on a connection that broke while it was idle fails. The ids make the
        // second attempt safe.
        if outcome.is_err() && self.failing.is_none() {
            outcome = self.insert(&batch).await;
        }
        if outcome.is_err() && self.is_replaced().await {
            self.open_again().await;
            if self.open.is_some() {
                outcome = self.insert(&batch).await;
            }
        }
        match outcome {
            Ok(()) => {
                self.shared.metrics.written(Written::Database, entries.len());
                self.recovered();
            }
            Err(reason) => {
                self.refusals.forget();
                if self.open.is_some() {
                    self.failed(&reason);
                }
                self.shared.spill(&entries, Written::Unavailable);
            }
        }
    }

    async fn insert(&self, batch: &Batch<'_>) -> Result<(), String> {
        let Some(Open { store, cluster, .. }) = &self.open else { return Err("it is not open".to_owned()) };
        within(store.insert(*cluster, batch)).await
    }
}

impl Shared {
    fn seal(&self, row: Row) -> Entry {
        let id = self.ids.lock().of(&row);
        let cluster = self.cluster.get().map_or("", String::as_str);
        Entry::seal(row, id, cluster, self.key.read().as_ref())
    }

    fn spill<'e>(&self, entries: impl IntoIterator<Item = &'e Entry>, why: Written) {
        for entry in entries {
            let line = serde_json::to_string(&serde_json::json!({ "ledger": entry }));
            let written = line.is_ok_and(|line| self.spill.line(line));
            self.metrics.written(if written { why } else { Written::Lost }, 1);
        }
    }
}

/// Waits until the deletion of old rows ends, which it does only by breaking down.
async fn trimmed(open: Option<&mut Open>) {
    match open {
        Some(open) => drop((&mut open.trimming).await),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
