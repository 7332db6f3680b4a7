//! A replay under way: rows are judged while the next ones are read.
//!
//! Entry point: [`Judging`]. Invariant: few pages wait in memory, however fast they are read.

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Judges, Report, Tally};
use crate::failure::Failure;
use kubemoor_ledger::entry::Entry;

/// The pages that may wait.
const WAITING: usize = 2;

/// A replay that takes rows. It ends when it is dropped.
pub struct Judging {
    pages: mpsc::Sender<Vec<Entry>>,
    found: JoinHandle<Report>,
    /// Ends the judging of pages that wait, once nobody wants the result.
    left: DropGuard,
}

impl Judging {
    /// Starts a replay of rows since some time.
    pub fn start(mut judges: Judges, since: Timestamp) -> Self {
        let (pages, mut waiting) = mpsc::channel::<Vec<Entry>>(WAITING);
        let left = CancellationToken::new();
        let is_left = left.clone();
        let found = spawn_blocking(move || {
            let mut tally = Tally::new(since);
            while let Some(rows) = waiting.blocking_recv().filter(|_| !is_left.is_cancelled()) {
                tally.add(&mut judges, &rows);
            }
            tally.finish()
        });
        Self { pages, found, left: left.drop_guard() }
    }

    /// Takes rows that are older than those before.
    pub async fn add(&self, rows: Vec<Entry>) {
        // If nobody takes them any more, `finish` fails.
        let _ = self.pages.send(rows).await;
    }

    /// What it has found.
    pub async fn finish(self) -> Result<Report, Failure> {
        let Self { pages, found, left } = self;
        drop(pages);
        let found = found.await.map_err(|_| Failure::Named("the replay was cut off: try again".to_owned()));
        drop(left);
        found
    }
}
