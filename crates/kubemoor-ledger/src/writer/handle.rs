//! The handle by which all parts record rows.
//!
//! Entry point: [`Ledger::record`]. Invariant: never waits: a row that finds no room goes to standard output.

use std::io;
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::super::id::Ids;
use super::super::repeats::Refusals;
use super::super::row::Row;
use super::super::spill::Spill;
use super::super::store;
use super::super::store::{ClusterFleet, Store, StoreError};
use super::{Shared, Writer};
use kubemoor_runtime::config::{self, LedgerUrl};
use kubemoor_runtime::metrics::{LedgerMetrics, Written};

/// Rows that wait for the writer.
pub(super) const QUEUE: usize = 8192;

/// Accepts rows. Cheap to clone.
#[derive(Clone)]
pub struct Ledger {
    queue: mpsc::Sender<Row>,
    pub(super) shared: Arc<Shared>,
}

impl Ledger {
    /// A ledger with these settings, and its writer. Opens nothing yet.
    ///
    /// # Errors
    /// When the URL is not valid, or the operating system gives no random bytes.
    pub fn new(settings: config::Ledger, metrics: LedgerMetrics) -> Result<(Self, Writer), StoreError> {
        Self::spilling_to(io::stdout(), settings, metrics)
    }

    pub(super) fn spilling_to<W: io::Write + Send + 'static>(
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
            key: RwLock::new(None),
            store: Mutex::new(None),
            is_shared,
            age: retention.age,
            spill: Spill::new(out),
            metrics,
        });
        let closing = CancellationToken::new();
        let ledger = Self { queue: sender, shared: Arc::clone(&shared) };
        Ok((
            ledger,
            Writer {
                queue,
                shared,
                url,
                retention,
                open: None,
                closing,
                failing: None,
                refusals: Refusals::default(),
            },
        ))
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
        let key = self.shared.key.read().clone()?;
        Some(ClusterFleet { store, cluster, key, age: self.shared.age })
    }

    /// The name of the cluster on every row; `None` before it is known.
    pub fn cluster(&self) -> Option<&str> {
        self.shared.cluster.get().map(String::as_str)
    }
}
