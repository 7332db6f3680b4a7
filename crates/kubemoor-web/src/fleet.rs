//! Pages of a database that the guards of many clusters share. They show what the database lets its user read. No
//! cluster is called, so no object is shown and no action is possible.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use maud::{Markup, html};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;

use super::html::{self as write, LinkScope, PageLink, PageQuery, badge, heads};
use super::ledger::VisitorLedger;
use super::overview::{HistoryCache, LEFT, histories};
use super::release::{Timeline, around};
use super::release_watch::{Changes, changes, notify_change};
use kubemoor_declare::model::ReleaseId;
use kubemoor_inspect::failure::{InspectError, describe_release};
use kubemoor_inspect::fleet::{self, ReleaseRow};
use kubemoor_inspect::ledger::LedgerSource;
use kubemoor_ledger::fleet::FleetFilter;
use kubemoor_ledger::store::Store;

const COMPARED_BY: [&str; 8] =
    ["Cluster", "State", "Revision", "Chart", "Values", "Drifted", "Oldest drift", "Differs in"];

pub(super) fn wanted(asked: &PageQuery) -> FleetFilter {
    let text = |name: &str| asked.get(name).map(str::to_owned);
    FleetFilter {
        clusters: text("cluster").into_iter().collect(),
        namespace: text("namespace"),
        release: None,
    }
}

/// The page of a release, in all clusters or in the requested one.
pub(super) async fn release(
    shared: &SharedLedger,
    asked: &PageQuery,
    release: &ReleaseId,
    now: Timestamp,
) -> Result<Markup, InspectError> {
    // All clusters are compared, even if one is selected.
    let wish = FleetFilter { clusters: Vec::new(), release: Some(release.name.to_string()), ..wanted(asked) };
    let rows = fleet::ledger_releases(&shared.store, &wish, &[]).await?;
    let cluster = asked.get("cluster");
    let is_meant = |row: &&ReleaseRow| cluster.is_none_or(|cluster| cluster == row.cluster);
    let meant: Vec<_> = rows.iter().filter(is_meant).collect();
    if meant.is_empty() {
        return Err(InspectError::InvalidInput(format!(
            "no cluster of this ledger has release {}",
            describe_release(release)
        )));
    }
    let timeline = Timeline::read(release, cluster, None, async { Ok(shared.ledger.clone()) }).await;
    let content = html! {
        @if let [row] = meant.as_slice() {
            p.state { (badge(&row.reason, row.ready.as_deref(), row.stale_since)) " " (row.message) }
            dl.facts {
                @if let Some(edits) = &row.edits { div { dt { "Edits" } dd { (edits) } } }
                @if let Some(drift) = &row.drift { div { dt { "Drift" } dd { (drift) } } }
            }
        }
        section {
            h2 { "In all clusters" }
            (write::table("In all clusters", &heads(&COMPARED_BY), &html! {
                @for row in &rows { (line(release, row, now)) }
            }))
            p.quiet { "Equal hashes of values stand for equal values, and reveal nothing else." }
        }
    };
    Ok(around(release, cluster, &content, &timeline, now))
}

fn line(release: &ReleaseId, row: &ReleaseRow, now: Timestamp) -> Markup {
    html! {
        tr {
            th scope="row" { a href=(PageLink::to_release(&row.cluster, release).text()) { (row.cluster) } }
            td { (badge(&row.reason, row.ready.as_deref(), row.stale_since)) }
            td.number { @if let Some(revision) = row.revision { (revision) } }
            td { (row.chart.as_deref().unwrap_or_default()) }
            td { @if let Some(values) = &row.values { code { (values) } } }
            td.number {
                @if row.drifted == 0 { "0" } @else { a href=(drifted(release, row).text()) { (row.drifted) } }
            }
            td { @if let Some(oldest) = row.oldest_drift { (write::time(oldest, now)) } }
            td { (row.differs.join(", ")) }
        }
    }
}

/// Links to the ledger rows that show since when objects drift. The database holds no objects.
fn drifted(release: &ReleaseId, row: &ReleaseRow) -> PageLink {
    let place = LinkScope { cluster: Some(&row.cluster), namespace: Some(&release.namespace) };
    let since = row.oldest_drift.map_or_else(|| "30d".to_owned(), |oldest| oldest.to_string());
    let rows = place.link("ledger").with("release", &release.name).with("since", &since);
    LEFT.iter().fold(rows, |rows, verdict| rows.with("verdict", verdict))
}

/// How often the database is checked for changes while a page is open.
const POLL: Duration = Duration::from_secs(3);

pub(super) struct SharedLedger {
    pub(super) store: Store,
    pub(super) histories: HistoryCache,
    /// Notifies of every change of a release's state, and of new rows.
    pub(super) changes: Changes,
    pub(super) ledger: VisitorLedger,
    _poll: AbortOnDropHandle<()>,
}

impl SharedLedger {
    /// Checks for changes until it is dropped.
    pub(super) fn new(store: Store) -> Self {
        let (histories, changes, marked) = (histories(), changes(), store.clone());
        let (counted, changed) = (histories.clone(), changes.clone());
        let poll = tokio::spawn(async move {
            let look = || marked.fleet_mark();
            // New rows invalidate the cached counts.
            poll(&changed, look, || counted.invalidate_all()).await;
        });
        let ledger = VisitorLedger { source: Arc::new(LedgerSource::Database(store.clone())), own: None };
        Self { store, histories, changes, ledger, _poll: AbortOnDropHandle::new(poll) }
    }
}

/// Notifies of changes in the result of `look` while there are subscribers.
async fn poll<L, E>(changed: &Changes, look: impl Fn() -> L, forget: impl Fn())
where
    L: Future<Output = Result<String, E>>,
{
    let mut ticks = interval(POLL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = None;
    loop {
        ticks.tick().await;
        if changed.receiver_count() == 0 {
            continue;
        }
        // An unavailable database counts as unchanged.
        let Ok(mark) = look().await else { continue };
        // Something may have changed before the first check.
        if before.as_ref() != Some(&mark) {
            forget();
            notify_change(changed, None);
        }
        before = Some(mark);
    }
}

#[cfg(test)]
mod tests;
