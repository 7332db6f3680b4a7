//! The writer's database: opened, lost and found again.
//!
//! Entry points: `Writer::attempt`, `Writer::failed`, `Writer::recovered`. Invariant: a database that fails is tried
//! again with growing pauses; its loss and its return are logged once.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::super::opening::{open, within};
use super::super::retention;
use super::super::store::{Cluster, Store};
use super::Writer;

/// The pauses between attempts at a database that fails.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

pub(super) struct Open {
    pub(super) store: Store,
    pub(super) cluster: Cluster,
    pub(super) trimming: JoinHandle<()>,
}

impl Writer {
    /// Tries a database that fails again, so that it is known when it is back though nothing is written.
    pub(super) async fn attempt(&mut self) {
        let Some(Open { store, cluster, .. }) = &self.open else { return self.attempt_to_open().await };
        match within(store.probe(*cluster)).await {
            Ok(()) => self.recovered(),
            Err(reason) => self.failed(&reason),
        }
    }

    /// Rows wait in the queue meanwhile, and go to standard output when it is full.
    pub(super) async fn attempt_to_open(&mut self) {
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
}
