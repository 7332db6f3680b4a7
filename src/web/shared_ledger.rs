//! The database that the guards of many clusters share.
//!
//! Entry point: [`SharedLedger`]. Invariant: no cluster is asked; what is read is what the database shows its user.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::ledger_reader::LedgerReader;
use crate::inspect::ledger::Source;
use crate::ledger::store::Store;

/// How often it is looked for changes while a page is open.
const POLL: Duration = Duration::from_secs(3);

/// The database.
pub(super) struct SharedLedger {
    pub(super) store: Store,
    source: Arc<Source>,
    changes: watch::Receiver<u64>,
    poll: JoinHandle<()>,
}

impl SharedLedger {
    /// Looks for changes for as long as it lives.
    pub(super) fn new(store: Store) -> Self {
        let (changed, changes) = watch::channel(0);
        let poll = tokio::spawn(poll(store.clone(), changed));
        let source = Arc::new(Source::Database(store.clone()));
        Self { store, source, changes, poll }
    }

    /// The rows of one cluster, or of all (`None`).
    pub(super) fn ledger(&self, cluster: Option<&str>) -> LedgerReader {
        LedgerReader::of_database(Arc::clone(&self.source), cluster)
    }

    /// Tells of every change of a release's state.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }
}

impl Drop for SharedLedger {
    fn drop(&mut self) {
        self.poll.abort();
    }
}

async fn poll(store: Store, changed: watch::Sender<u64>) {
    let mut ticks = interval(POLL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = None;
    loop {
        ticks.tick().await;
        // One is the ledger's own; whoever else listens is an open page.
        if changed.receiver_count() < 2 {
            continue;
        }
        // A database that is away has not changed.
        let Ok(mark) = store.fleet_mark().await else { continue };
        // Something may have changed before it was looked for the first time.
        if before.as_ref() != Some(&mark) {
            changed.send_modify(|version| *version = version.wrapping_add(1));
        }
        before = Some(mark);
    }
}
