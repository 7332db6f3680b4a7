//! Carries rows from the recording parts to the database, without making them wait.
//!
//! Entry points: [`Ledger::record`]; [`Writer::start`], once. Data flows one way: a bounded queue, batches,
//! the database. Rows for which the queue has no room, or the database fails, go to standard output. The
//! writer retries the database automatically and logs when it fails and when it works again. It has a thread
//! of its own, so that preparing a batch cannot delay a webhook's answer.

use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{io, thread};

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::entry::Entry;
use super::id::Ids;
use super::opening::{open, within};
use super::row::Row;
use super::spill::Spill;
use super::store::{Cluster, ClusterFleet, Store, StoreError};
use super::{retention, store};
use crate::config::{self, LedgerUrl, Retention};
use crate::metrics::{LedgerMetrics, Written};
use crate::verdict::shown::SealingKey;

/// Rows that wait for the writer.
const QUEUE: usize = 8192;

/// Rows of one transaction.
const BATCH: usize = 2000;

/// From this number of rows in a transaction on, the writer lets more rows gather before the next one: then
/// it writes an index page once for many rows. With fewer rows it writes at once.
const MANY: usize = 50;

/// How long rows gather, and the pause between checks whether there are enough.
const GATHERING: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(10));

/// The pauses between attempts at a database that fails.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// How long shutting down waits for the database.
const DRAIN: Duration = Duration::from_secs(10);

/// Accepts rows. Cheap to clone.
#[derive(Clone)]
pub struct Ledger {
    queue: mpsc::Sender<Row>,
    shared: Arc<Shared>,
}

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

struct Open {
    store: Store,
    cluster: Cluster,
    trimming: JoinHandle<()>,
}

impl Ledger {
    /// A ledger with these settings, and its writer. Opens nothing yet.
    ///
    /// # Errors
    /// When the URL is not valid, or the operating system gives no random bytes.
    pub fn new(settings: config::Ledger, metrics: LedgerMetrics) -> Result<(Self, Writer), StoreError> {
        Self::spilling_to(io::stdout(), settings, metrics)
    }

    fn spilling_to<W: io::Write + Send + 'static>(
        out: W,
        settings: config::Ledger,
        metrics: LedgerMetrics,
    ) -> Result<(Self, Writer), StoreError> {
        let config::Ledger { url, cluster_name: _, retention } = settings;
        store::check(&url)?;
        let is_shared = matches!(url, LedgerUrl::Postgres(_));
        let (sender, queue) = mpsc::channel(QUEUE);
        let shared = Arc::new(Shared {
            ids: Mutex::new(Ids::new()?),
            cluster: OnceLock::new(),
            key: OnceLock::new(),
            store: Mutex::new(None),
            is_shared,
            age: retention.age,
            spill: Spill::new(out),
            metrics,
        });
        let closing = CancellationToken::new();
        let ledger = Self { queue: sender, shared: Arc::clone(&shared) };
        Ok((ledger, Writer { queue, shared, url, retention, open: None, closing, failing: None }))
    }

    /// Records a row. Never waits: a row that finds no room goes to standard
    /// output.
    pub fn record(&self, row: Row) {
        let sent = match row.yields && self.queue.capacity() <= QUEUE / 2 {
            true => Err(row),
            false => self.queue.try_send(row).map_err(mpsc::error::TrySendError::into_inner),
        };
        match sent {
            Ok(()) => self.shared.metrics.queued(1),
            Err(row) => {
                let entry = self.shared.seal(row);
                self.shared.spill([&entry], Written::Overflow);
            }
        }
    }

    /// The database for readers; `None` until it was opened.
    pub fn store(&self) -> Option<Store> {
        self.shared.store.lock().as_ref().map(|(store, _)| store.clone())
    }

    /// Whether the database stores the states of releases of many clusters.
    pub fn keeps_fleet(&self) -> bool {
        self.shared.is_shared
    }

    /// The rows of this cluster's releases; `None` before the database was opened, or where it stores none.
    pub fn fleet(&self) -> Option<ClusterFleet> {
        let (store, cluster) = self.shared.store.lock().clone().filter(|_| self.shared.is_shared)?;
        let key = self.shared.key.get()?.clone();
        Some(ClusterFleet { store, cluster, key, age: self.shared.age })
    }

    /// The name of the cluster on every row; `None` before it is known.
    pub fn cluster(&self) -> Option<&str> {
        self.shared.cluster.get().map(String::as_str)
    }
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

    /// Tries a database that fails again, so that it is known when it is back though nothing is written.
    async fn attempt(&mut self) {
        let Some(Open { store, cluster, .. }) = &self.open else { return self.attempt_to_open().await };
        match within(store.probe(*cluster)).await {
            Ok(()) => self.recovered(),
            Err(reason) => self.failed(&reason),
        }
    }

    /// Rows wait in the queue meanwhile, and go to standard output when it is full.
    async fn attempt_to_open(&mut self) {
        let Some(name) = self.shared.cluster.get() else { return };
        match open(&self.url, name, &self.closing).await {
            Ok((store, key, cluster)) => {
                let _ = self.shared.key.set(key);
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

    fn is_due(&self) -> bool {
        self.failing.is_none_or(|(at, _)| at <= Instant::now())
    }

    fn failed(&mut self, reason: &str) {
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

    fn recovered(&mut self) {
        if self.failing.take().is_some() {
            tracing::info!(ledger = %self.url, "the ledger takes rows again");
        }
        self.shared.metrics.available(true);
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
