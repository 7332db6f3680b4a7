//! Carries rows from the recording parts to the database, without making them wait.
//!
//! Entry points: [`Ledger::record`]; [`Writer::start`], once. Data flows one way: a bounded queue, batches,
//! the database. Rows for which the queue has no room, or the database fails, go to standard output. The
//! writer retries the database automatically and logs when it fails and when it works again. It has a thread
//! of its own, so that preparing a batch cannot delay a webhook's answer.

mod database;
mod handle;

use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{io, thread};

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use self::database::Open;
pub use self::handle::Ledger;
use super::entry::Entry;
use super::id::Ids;
use super::opening::within;
use super::row::Row;
use super::spill::Spill;
use super::store::{Cluster, Store};
use crate::config::{LedgerUrl, Retention};
use crate::metrics::{LedgerMetrics, Written};
use crate::verdict::shown::SealingKey;

/// Rows of one transaction.
const BATCH: usize = 2000;

/// From this number of rows in a transaction on, the writer lets more rows gather before the next one: then
/// it writes an index page once for many rows. With fewer rows it writes at once.
const MANY: usize = 50;

/// How long rows gather, and the pause between checks whether there are enough.
const GATHERING: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(10));

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
}

struct Shared {
    ids: Mutex<Ids>,
    /// Known once the API server has answered.
    cluster: OnceLock<String>,
    /// Known once the database was open.
    key: OnceLock<SealingKey>,
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
        let mut before = 0;
        loop {
            if before >= MANY {
                self.gather(&closing).await;
            }
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
                    before = received;
                    self.write(&mut rows).await;
                }
                () = sleep_until(again), if is_tried => self.attempt().await,
            }
        }
        self.drain(rows).await;
        if let Some(open) = self.open.take() {
            open.trimming.abort();
            open.store.close().await;
        }
        self.shared.spill.finish().await;
    }

    /// Waits until many rows are there, for a while. Being woken by each one
    /// would take more than it saves.
    async fn gather(&self, closing: &CancellationToken) {
        let (longest, step) = GATHERING;
        let until = Instant::now() + longest;
        while self.queue.len() < BATCH && Instant::now() < until && !closing.is_cancelled() {
            tokio::time::sleep(step).await;
        }
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
        let open = self.open.as_ref().filter(|_| self.is_due());
        let Some(Open { store, cluster, .. }) = open else {
            self.shared.spill(&entries, Written::Unavailable);
            return;
        };
        let mut outcome = within(store.insert(*cluster, &entries)).await;
        // The first statement on a connection that broke while it was idle fails. The ids make the
        // second attempt safe.
        if outcome.is_err() && self.failing.is_none() {
            outcome = within(store.insert(*cluster, &entries)).await;
        }
        match outcome {
            Ok(()) => {
                self.shared.metrics.written(Written::Database, entries.len());
                self.recovered();
            }
            Err(reason) => {
                self.failed(&reason);
                self.shared.spill(&entries, Written::Unavailable);
            }
        }
    }
}

impl Shared {
    fn seal(&self, row: Row) -> Entry {
        let id = self.ids.lock().of(&row);
        let cluster = self.cluster.get().map_or("", String::as_str);
        Entry::seal(row, id, cluster, self.key.get())
    }

    fn spill<'e>(&self, entries: impl IntoIterator<Item = &'e Entry>, why: Written) {
        for entry in entries {
            let line = serde_json::to_string(&serde_json::json!({ "ledger": entry }));
            let written = line.is_ok_and(|line| self.spill.line(line));
            self.metrics.written(if written { why } else { Written::Lost }, 1);
        }
    }
}

#[cfg(test)]
mod tests;
