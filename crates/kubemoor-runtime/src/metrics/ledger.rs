//! The ledger's metrics about itself.
//!
//! Entry point: [`LedgerMetrics`]. Invariant: as for all metrics, closed sets of label values. Must not
//! decide anything.

use std::fmt;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

label! {
    /// The fate of a ledger row.
    Written {
        /// It is in the database.
        Database = "database",
        /// The queue was full; it went to standard output.
        Overflow = "overflow",
        /// The database did not take it; it went to standard output.
        Unavailable = "unavailable",
        /// Standard output had no room for it either.
        Lost = "lost",
    }
}

/// The ledger.
#[derive(Clone, Debug, Default)]
pub struct LedgerMetrics {
    rows: Family<WrittenLabels, Counter>,
    queue: Gauge,
    up: Gauge,
    deleted: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WrittenLabels {
    outcome: Written,
}

impl LedgerMetrics {
    /// Registers the component's metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        // An alert sees the first of them if it has seen none before.
        for outcome in [Written::Overflow, Written::Unavailable, Written::Lost] {
            metrics.written(outcome, 0);
        }
        registry.register("ledger_rows", "Rows of the ledger by outcome", metrics.rows.clone());
        registry.register("ledger_queue", "Rows that wait for the ledger's writer", metrics.queue.clone());
        registry.register("ledger_up", "Whether the ledger's database takes rows", metrics.up.clone());
        registry.register("ledger_deleted_rows", "Rows deleted by retention", metrics.deleted.clone());
        metrics
    }

    /// Counts rows.
    pub fn written(&self, outcome: Written, rows: usize) {
        self.rows.get_or_create(&WrittenLabels { outcome }).inc_by(u64::try_from(rows).unwrap_or(u64::MAX));
    }

    /// How many rows had that fate.
    pub fn rows_written(&self, outcome: Written) -> usize {
        usize::try_from(self.rows.get_or_create(&WrittenLabels { outcome }).get()).unwrap_or(usize::MAX)
    }

    /// Adds to the number of waiting rows; subtracts when negative.
    pub fn queued(&self, rows: i64) {
        self.queue.inc_by(rows);
    }

    /// Takes note whether the database takes rows.
    pub fn available(&self, up: bool) {
        self.up.set(i64::from(up));
    }

    /// Counts rows that were deleted for their age or their number.
    pub fn deleted(&self, rows: u64) {
        self.deleted.inc_by(rows);
    }
}
