//! The ledger as a page reads it.
//!
//! Entry points: [`LedgerReader`], [`LedgerReader::begin`], [`LedgerReader::add_facts`]. Invariant: the cluster whose rows are read is set here, and
//! nowhere else; rows of one namespace are never shown as those of all.

use std::collections::HashMap;
use std::sync::Arc;

use kubemoor_inspect::failure::Failure;
use kubemoor_inspect::ledger::{Source, add_new, rows};
use kubemoor_ledger::entry::Entry;
use kubemoor_ledger::query::{Filter, Page};
use kubemoor_ledger::row::Kind;

/// The rows of one cluster, or of all that share a database.
#[derive(Clone)]
pub(super) struct LedgerReader {
    source: Arc<Source>,
    /// Of a guard its own cluster in any case.
    cluster: Option<String>,
    /// The namespace that is shown to a visitor who may not read all.
    own: Option<String>,
}

/// The first rows, as far as the visitor may read them.
pub(super) struct Begun {
    pub(super) page: Page,
    /// What the next rows are asked for by.
    pub(super) filter: Filter,
    /// The only namespace that is shown, where nobody chose it.
    pub(super) only: Option<String>,
}

impl LedgerReader {
    /// What a guard shows of its cluster, or of the namespace `own`.
    pub(super) fn of_guard(source: Arc<Source>, own: &str) -> Self {
        Self { source, cluster: None, own: Some(own.to_owned()) }
    }

    /// What a database that clusters share holds of one cluster, or of all (`None`).
    pub(super) fn of_database(source: Arc<Source>, cluster: Option<&str>) -> Self {
        Self { source, cluster: cluster.map(str::to_owned), own: None }
    }

    /// The first rows that are asked for: of all namespaces, or of the visitor's own where they may not read all.
    pub(super) async fn begin(&self, filter: Filter) -> Result<Begun, Failure> {
        match (self.page(&filter).await, &filter.namespace, &self.own) {
            (Err(error), None, Some(own)) if error.is_forbidden() => {
                let filter = Filter { namespace: Some(own.clone()), ..filter };
                Ok(Begun { page: self.page(&filter).await?, filter, only: Some(own.clone()) })
            }
            (page, ..) => Ok(Begun { page: page?, filter, only: None }),
        }
    }

    /// Some rows, the newest first.
    pub(super) async fn page(&self, filter: &Filter) -> Result<Page, Failure> {
        self.source.page(&self.narrow(filter)).await
    }

    /// Adds to the rows of changes by what a replay judges them. The ledger gives that of changes alone.
    pub(super) async fn add_facts(&self, page: &mut Page, filter: &Filter) -> Result<(), Failure> {
        let is_change = |entry: &Entry| entry.kind == Kind::Verdict.as_str();
        let (Some(first), Some(last)) =
            (page.items.iter().find(|it| is_change(it)), page.items.iter().rfind(|it| is_change(it)))
        else {
            return Ok(());
        };
        let (since, before) = (Some(last.time), first.id.checked_add(1));
        let changes = self.page(&Filter { facts: true, since, before, ..filter.clone() }).await?;
        let mut facts: HashMap<i64, String> =
            changes.items.into_iter().filter_map(|entry| Some((entry.id, entry.facts?))).collect();
        for entry in &mut page.items {
            entry.facts = facts.remove(&entry.id);
        }
        add_new(&mut page.missing, changes.missing);
        Ok(())
    }

    /// The newest rows, as one page.
    pub(super) async fn newest(&self, filter: &Filter, most: usize) -> Result<Page, Failure> {
        rows(&self.source, &self.narrow(filter), most, |_| true).await
    }

    fn narrow(&self, filter: &Filter) -> Filter {
        Filter { cluster: self.cluster.clone(), ..filter.clone() }
    }
}
