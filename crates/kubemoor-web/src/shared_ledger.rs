//! The database that the guards of many clusters share.
//!
//! Entry point: [`SharedLedger`]. Invariant: no cluster is asked; what is read is what the database shows its user;
//! one query looks for changes for all open pages, and none where no page is open.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::history::Histories;
use super::ledger_reader::LedgerReader;
use kubemoor_inspect::ledger::Source;
use kubemoor_ledger::store::Store;

/// How often it is looked for changes while a page is open.
const POLL: Duration = Duration::from_secs(3);

/// The database.
pub(super) struct SharedLedger {
    pub(super) store: Store,
    pub(super) histories: Histories,
    source: Arc<Source>,
    changes: watch::Receiver<u64>,
    poll: JoinHandle<()>,
}

impl SharedLedger {
    /// Looks for changes for as long as it lives.
    pub(super) fn new(store: Store) -> Self {
        let (changed, changes) = watch::channel(0);
        let marked = store.clone();
        let poll = tokio::spawn(poll(changed, move || {
            let store = marked.clone();
            async move { store.fleet_mark().await }
        }));
        let source = Arc::new(Source::Database(store.clone()));
        Self { store, histories: Histories::default(), source, changes, poll }
    }

    /// The rows of one cluster, or of all (`None`).
    pub(super) fn ledger(&self, cluster: Option<&str>) -> LedgerReader {
        LedgerReader::of_database(Arc::clone(&self.source), cluster)
    }

    /// Tells of every change of a release's state and of new rows.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }
}

impl Drop for SharedLedger {
    fn drop(&mut self) {
        self.poll.abort();
    }
}

/// Tells of changes of what `look` finds, for as long as somebody listens beside the ledger itself.
async fn poll<L, E>(changed: watch::Sender<u64>, look: impl Fn() -> L)
where
    L: Future<Output = Result<String, E>>,
{
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
        let Ok(mark) = look().await else { continue };
        // Something may have changed before it was looked for the first time.
        if before.as_ref() != Some(&mark) {
            changed.send_modify(|version| *version = version.wrapping_add(1));
        }
        before = Some(mark);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::time::advance;

    use super::*;

    /// Lets the poll go on, which waits for nothing but the clock.
    async fn pass(ticks: u32) {
        for _ in 0..ticks {
            advance(POLL).await;
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_look_serves_all_pages_and_none_is_taken_for_nobody() {
        let (looks, rows) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (changed, own) = watch::channel(0);
        let look = {
            let (looks, rows) = (Arc::clone(&looks), Arc::clone(&rows));
            move || {
                looks.fetch_add(1, Ordering::Relaxed);
                std::future::ready(match rows.load(Ordering::Relaxed) {
                    u64::MAX => Err(()),
                    rows => Ok(rows.to_string()),
                })
            }
        };
        let poll = tokio::spawn(poll(changed, look));
        tokio::task::yield_now().await;
        pass(20).await;
        assert_eq!(looks.load(Ordering::Relaxed), 0, "nobody looks");

        let mut pages: Vec<_> = (0..100).map(|_| own.clone()).collect();
        pass(10).await;
        assert_eq!(looks.swap(0, Ordering::Relaxed), 10, "however many look");
        let is_told = |pages: &mut Vec<watch::Receiver<u64>>| {
            pages.iter_mut().all(|page| {
                let is_told = page.has_changed().unwrap();
                page.mark_unchanged();
                is_told
            })
        };
        assert!(is_told(&mut pages), "it may have changed before");
        for (found, is_new) in [(0, false), (7, true), (7, false), (u64::MAX, false), (7, false), (8, true)] {
            rows.store(found, Ordering::Relaxed);
            pass(1).await;
            assert_eq!(is_told(&mut pages), is_new, "{found}");
        }
        drop(pages);
        looks.store(0, Ordering::Relaxed);
        pass(20).await;
        assert_eq!(looks.load(Ordering::Relaxed), 0, "nobody looks any more");
        poll.abort();
    }
}
