//! The ledger as a page reads it.
//!
//! Entry point: [`LedgerReader`]. Invariant: the cluster whose rows are read is set here, and nowhere else.

use std::sync::Arc;

use crate::inspect::failure::Failure;
use crate::inspect::ledger::{Source, rows};
use crate::ledger::entry::Entry;
use crate::ledger::query::{Filter, Page};

/// The rows of one cluster, or of all that share a database.
#[derive(Clone)]
pub(super) struct LedgerReader {
    source: Arc<Source>,
    /// Of a guard its own cluster in any case.
    cluster: Option<String>,
}

impl LedgerReader {
    /// What a guard shows of its cluster.
    pub(super) fn of_guard(source: Arc<Source>) -> Self {
        Self { source, cluster: None }
    }

    /// What a database that clusters share holds of one cluster, or of all (`None`).
    pub(super) fn of_database(source: Arc<Source>, cluster: Option<&str>) -> Self {
        Self { source, cluster: cluster.map(str::to_owned) }
    }

    /// Some rows, the newest first.
    pub(super) async fn page(&self, filter: &Filter) -> Result<Page, Failure> {
        self.source.page(&self.narrow(filter)).await
    }

    /// The newest rows.
    pub(super) async fn newest(&self, filter: &Filter, most: usize) -> Result<Vec<Entry>, Failure> {
        Ok(rows(&self.source, &self.narrow(filter), most, |_| true).await?.0)
    }

    fn narrow(&self, filter: &Filter) -> Filter {
        Filter { cluster: self.cluster.clone(), ..filter.clone() }
    }
}
