//! Writes rows to the database in batches, from a bounded queue, so that recording never waits. Rows for which the
//! queue has no room, or that the database does not take, go to standard output. A failing database is retried with
//! growing pauses; its loss and its return are logged once, and an empty database in its place gets its tables. The
//! writer has a thread of its own, so that preparing a batch cannot delay a webhook's answer.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{io, thread};

use jiff::{SignedDuration, Timestamp};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::entry::LedgerEntry;
use crate::id::Ids;
use crate::retention;
use crate::row::{LedgerRow, RowKind};
use crate::store::{self, ClusterFleet, ClusterNumber, Store, StoreError};
use kubemoor_runtime::config::{self, LedgerUrl, Retention};
use kubemoor_runtime::metrics::{LedgerMetrics, LedgerWriteResult};
use kubemoor_verdict::edit::EditOutcome;
use kubemoor_verdict::shown::SealingKey;

const QUEUE: usize = 8192;

/// Accepts rows. Cheap to clone.
#[derive(Clone)]
pub struct LedgerHandle {
    queue: mpsc::Sender<LedgerRow>,
    shared: Arc<WriterState>,
}

impl LedgerHandle {
    /// A ledger with these settings, and its writer. Opens nothing yet.
    pub fn new(
        settings: config::LedgerSettings,
        metrics: LedgerMetrics,
    ) -> Result<(Self, LedgerWriter), StoreError> {
        Self::spilling_to(io::stdout(), settings, metrics)
    }

    fn spilling_to<W: io::Write + Send + 'static>(
        out: W,
        settings: config::LedgerSettings,
        metrics: LedgerMetrics,
    ) -> Result<(Self, LedgerWriter), StoreError> {
        let config::LedgerSettings { url, retention } = settings;
        store::check(&url)?;
        let is_shared = matches!(url, LedgerUrl::Postgres(_));
        let (sender, queue) = mpsc::channel(QUEUE);
        let shared = Arc::new(WriterState {
            ids: Mutex::new(Ids::new()?),
            cluster: OnceLock::new(),
            key: RwLock::new(None),
            store: Mutex::new(None),
            is_shared,
            age: retention.age,
            spill: OverflowWriter::new(out),
            metrics,
        });
        let ledger = Self { queue: sender, shared: Arc::clone(&shared) };
        Ok((
            ledger,
            LedgerWriter {
                queue,
                shared,
                url,
                retention,
                open: None,
                failing: None,
                refusals: Refusals::default(),
            },
        ))
    }

    /// Records a row. Never waits: if the queue has no room, the row goes to standard output.
    pub fn record(&self, row: LedgerRow) {
        let sent = match row.is_low_priority && self.queue.capacity() <= QUEUE / 2 {
            true => Err(row),
            false => self.queue.try_send(row).map_err(mpsc::error::TrySendError::into_inner),
        };
        match sent {
            Ok(()) => self.shared.metrics.queued(1),
            Err(row) => {
                let entry = self.shared.seal(row);
                self.shared.spill([&entry], LedgerWriteResult::Overflow);
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

    /// The rows of this cluster's releases; `None` before the database was opened, or if it stores none.
    pub fn fleet(&self) -> Option<ClusterFleet> {
        let (store, cluster) = self.shared.store.lock().clone().filter(|_| self.shared.is_shared)?;
        let key = self.shared.key.read().clone()?;
        Some(ClusterFleet { store, cluster, key, age: self.shared.age })
    }

    /// The name of the cluster on every row; `None` before it is known.
    pub fn cluster(&self) -> Option<&str> {
        self.shared.cluster.get().map(String::as_str)
    }
}

const BATCH: usize = 2000;

/// How long rows are collected for one transaction, so that an index page is written once for many rows, and recording
/// a row does not have to wake the writer.
const GATHERING: Duration = Duration::from_millis(50);

/// The pause before the trimming task is restarted after a panic.
const TRIM_AGAIN: Duration = Duration::from_secs(5);

/// How long shutdown waits for the database.
const DRAIN: Duration = Duration::from_secs(10);

pub struct LedgerWriter {
    queue: mpsc::Receiver<LedgerRow>,
    shared: Arc<WriterState>,
    url: LedgerUrl,
    retention: Retention,
    open: Option<OpenDatabase>,
    /// Set while the database fails: when it is tried again, and the pause then.
    failing: Option<(Instant, Duration)>,
    refusals: Refusals,
}

struct WriterState {
    ids: Mutex<Ids>,
    /// Known once the API server has answered.
    cluster: OnceLock<String>,
    /// Known once the database was opened.
    key: RwLock<Option<SealingKey>>,
    /// The database, for readers, and the number of the cluster in it.
    store: Mutex<Option<(Store, ClusterNumber)>>,
    /// Whether several clusters can share the database.
    is_shared: bool,
    age: Duration,
    spill: OverflowWriter,
    metrics: LedgerMetrics,
}

impl LedgerWriter {
    /// Writes rows under the name of `cluster`, as soon as that is known, until `closing`; then writes the
    /// queued rest. The returned future is ready when that is done.
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

    /// Restarts the trimming task after a pause.
    fn trim_again(&mut self) {
        let Some(OpenDatabase { store, cluster, trimming }) = &mut self.open else { return };
        tracing::warn!("the task that deletes old ledger rows failed; restarting it");
        let trim = retention::run(store.clone(), *cluster, self.retention, self.shared.metrics.clone());
        *trimming = AbortOnDropHandle::new(tokio::spawn(async move {
            sleep(TRIM_AGAIN).await;
            trim.await;
        }));
    }

    async fn drain(&mut self, mut rows: Vec<LedgerRow>) {
        let deadline = Instant::now() + DRAIN;
        self.queue.close();
        while self.queue.recv_many(&mut rows, BATCH).await > 0 {
            if Instant::now() < deadline {
                self.write(&mut rows).await;
            } else {
                let entries = self.sealed(&mut rows);
                self.shared.spill(&entries, LedgerWriteResult::Unavailable);
            }
        }
    }

    fn sealed(&self, rows: &mut Vec<LedgerRow>) -> Vec<LedgerEntry> {
        self.shared.metrics.queued(-i64::try_from(rows.len()).unwrap_or(i64::MAX));
        rows.drain(..).map(|row| self.shared.seal(row)).collect()
    }

    async fn write(&mut self, rows: &mut Vec<LedgerRow>) {
        if self.open.is_none() && self.is_due() {
            self.attempt_to_open().await;
        }
        let entries = self.sealed(rows);
        if self.open.is_none() || !self.is_due() {
            self.shared.spill(&entries, LedgerWriteResult::Unavailable);
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
                self.shared.metrics.written(LedgerWriteResult::Database, entries.len());
                self.recovered();
            }
            Err(reason) => {
                self.refusals.forget();
                if self.open.is_some() {
                    self.failed(&reason);
                }
                self.shared.spill(&entries, LedgerWriteResult::Unavailable);
            }
        }
    }

    async fn insert(&self, batch: &Batch<'_>) -> Result<(), String> {
        let Some(OpenDatabase { store, cluster, .. }) = &self.open else {
            return Err("it is not open".to_owned());
        };
        within(store.insert(*cluster, batch)).await
    }

    /// Probes a failing database, so that its return is noticed even if there is nothing to write.
    async fn attempt(&mut self) {
        let Some(probed) = self.probe().await else { return self.attempt_to_open().await };
        match probed {
            Ok(true) => self.recovered(),
            Ok(false) => self.open_again().await,
            Err(reason) => self.failed(&reason),
        }
    }

    /// Whether the database answers and is not the one that was opened: it lacks the tables, or this cluster.
    async fn is_replaced(&self) -> bool {
        matches!(self.probe().await, Some(Ok(false)))
    }

    /// Opens a database that has replaced the previous one.
    async fn open_again(&mut self) {
        tracing::warn!(ledger = %self.url, "the ledger database was replaced; migrating its tables");
        self.shared.store.lock().take();
        self.refusals.forget();
        self.open = None;
        self.attempt_to_open().await;
    }

    /// Rows wait in the queue meanwhile, and go to standard output when it is full.
    async fn attempt_to_open(&mut self) {
        let Some(name) = self.shared.cluster.get() else { return };
        match open(&self.url, name).await {
            Ok((store, key, cluster)) => {
                *self.shared.key.write() = Some(key);
                *self.shared.store.lock() = Some((store.clone(), cluster));
                let metrics = self.shared.metrics.clone();
                let trimming = tokio::spawn(retention::run(store.clone(), cluster, self.retention, metrics));
                let trimming = AbortOnDropHandle::new(trimming);
                self.open = Some(OpenDatabase { store, cluster, trimming });
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
                "the ledger is unavailable; rows go to standard output as JSON lines until it recovers"
            );
        }
        let (shortest, longest) = RETRY;
        let pause = self.failing.map_or(shortest, |(_, pause)| (pause * 2).min(longest));
        self.failing = Some((Instant::now() + pause, pause));
        self.shared.metrics.available(false);
    }

    fn recovered(&mut self) {
        if self.failing.take().is_some() {
            tracing::info!(ledger = %self.url, "the ledger is available again");
        }
        self.shared.metrics.available(true);
    }

    /// Whether the database accepts rows of this cluster; `None` while no database is open.
    async fn probe(&self) -> Option<Result<bool, String>> {
        let (Some(OpenDatabase { store, cluster, .. }), Some(name)) = (&self.open, self.shared.cluster.get())
        else {
            return None;
        };
        Some(within(store.probe(*cluster, name)).await)
    }
}

impl WriterState {
    fn seal(&self, row: LedgerRow) -> LedgerEntry {
        let id = self.ids.lock().next_for(&row);
        let cluster = self.cluster.get().map_or("", String::as_str);
        LedgerEntry::seal(row, id, cluster, self.key.read().as_ref())
    }

    fn spill<'e>(&self, entries: impl IntoIterator<Item = &'e LedgerEntry>, why: LedgerWriteResult) {
        for entry in entries {
            let line = serde_json::to_string(&serde_json::json!({ "ledger": entry }));
            let written = line.is_ok_and(|line| self.spill.line(line));
            self.metrics.written(if written { why } else { LedgerWriteResult::Lost }, 1);
        }
    }
}

/// Waits for the end of the trimming task, which ends only by a panic.
async fn trimmed(open: Option<&mut OpenDatabase>) {
    match open {
        Some(open) => drop((&mut open.trimming).await),
        None => std::future::pending().await,
    }
}

/// The shortest and the longest pause between attempts to reach a failing database.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// How long the database may take for one transaction, or for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

struct OpenDatabase {
    store: Store,
    cluster: ClusterNumber,
    trimming: AbortOnDropHandle<()>,
}

/// Opens the database and upgrades its tables. Returns the ledger's key, and the number of the cluster of this name.
async fn open(url: &LedgerUrl, name: &str) -> Result<(Store, SealingKey, ClusterNumber), String> {
    let store = within(Store::connect(url, false)).await?;
    within(store.migrate()).await?;
    let named = async { Ok((store.key().await?, store.cluster(name).await?)) };
    let (key, cluster) = within(named).await?;
    Ok((store, key, cluster))
}

/// The database's answer; a message if it fails or takes longer than [`PATIENCE`].
async fn within<T>(asked: impl Future<Output = Result<T, StoreError>>) -> Result<T, String> {
    match timeout(PATIENCE, asked).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("it did not answer within {} s", PATIENCE.as_secs())),
    }
}

/// How long equal denials are counted on the first of them.
const REPEAT_SPAN: SignedDuration = SignedDuration::from_mins(1);

/// The maximum number of remembered denials; beyond it all are forgotten, and the next equal one gets a row again.
const MOST_REFUSALS: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Batch<'e> {
    pub(crate) rows: Vec<&'e LedgerEntry>,
    /// The repeat counts so far, by id, of rows of this and earlier batches. They are totals, because a batch that may
    /// already be stored is written again.
    pub(crate) repeats: BTreeMap<i64, i64>,
}

/// The denials of the last minute: of equal ones, such as those of a program that retries, only the first gets a row,
/// and the others are counted on it.
#[derive(Default)]
struct Refusals {
    hasher: RandomState,
    /// The time and id of the first one and how many followed, by a hash of what makes denials equal.
    first: HashMap<u64, (Timestamp, i64, i64)>,
}

impl Refusals {
    /// Separates repeats from the rows to insert.
    fn fold<'e>(&mut self, entries: &'e [LedgerEntry]) -> Batch<'e> {
        let mut batch = Batch::default();
        for entry in entries {
            match self.note(entry) {
                Some((first, count)) => drop(batch.repeats.insert(first, count)),
                None => batch.rows.push(entry),
            }
        }
        batch
    }

    /// Forgets all denials, because the last noted rows are not in the database.
    fn forget(&mut self) {
        self.first.clear();
    }

    /// The id of the row that `entry` repeats, and the count so far; `None` if `entry` gets a row of its own.
    fn note(&mut self, entry: &LedgerEntry) -> Option<(i64, i64)> {
        if entry.kind != RowKind::Verdict.as_str() || entry.verdict != EditOutcome::Deny.as_str() {
            return None;
        }
        // Everything but their times, the uids of their reviews, and the facts for a replay, which follow from the rest.
        let LedgerEntry {
            namespace, release, revision, object, operation, user, groups, reason, detail, ..
        } = entry;
        let whose = (namespace, release, revision, user, groups);
        let what = (object, operation, reason, detail, &entry.fields, entry.more_fields);
        let key = self.hasher.hash_one((whose, what));
        // After the clock was set back, counting starts again.
        if let Some((at, id, count)) = self.first.get_mut(&key)
            && entry.time.duration_since(*at).abs() <= REPEAT_SPAN
        {
            *count += 1;
            return Some((*id, *count));
        }
        if self.first.len() >= MOST_REFUSALS {
            self.first.clear();
        }
        self.first.insert(key, (entry.time, entry.id, 0));
        None
    }
}

/// The maximum number of lines that wait for standard output.
const SPILL_ROOM: usize = 4096;

/// How long shutdown waits for standard output.
const SPILL_PATIENCE: Duration = Duration::from_secs(5);

/// Standard output, for rows that the database does not take. A separate thread writes the lines, so that callers never
/// wait, even if the reader has stopped reading; lines that find no room are lost, and counted as lost.
struct OverflowWriter {
    lines: Mutex<Option<SyncSender<String>>>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

impl OverflowWriter {
    fn new<W: io::Write + Send + 'static>(out: W) -> Self {
        let (lines, waiting) = sync_channel(SPILL_ROOM);
        let thread = thread::Builder::new().name("ledger-spill".to_owned());
        // Without a thread, every line is lost, and counted as lost.
        let thread = thread.spawn(move || write_lines(&waiting, out)).ok();
        Self { lines: Mutex::new(thread.is_some().then_some(lines)), thread: Mutex::new(thread) }
    }

    /// Queues a line. Returns whether there was room.
    fn line(&self, line: String) -> bool {
        self.lines.lock().as_ref().is_some_and(|lines| lines.try_send(line).is_ok())
    }

    /// Waits until all lines are written, at most [`SPILL_PATIENCE`].
    async fn finish(&self) {
        self.lines.lock().take();
        let Some(thread) = self.thread.lock().take() else { return };
        let joined = tokio::task::spawn_blocking(move || drop(thread.join()));
        let _ = timeout(SPILL_PATIENCE, joined).await;
    }
}

fn write_lines<W: io::Write>(lines: &Receiver<String>, mut out: W) {
    while let Ok(mut line) = lines.recv() {
        line.push('\n');
        // There is nowhere else to write. A closed standard output is treated like one without a reader.
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    }
}

#[cfg(test)]
mod tests;
