//! The states of the releases of many clusters, from the ledger that their guards share; and a summary of one cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use super::failure::InspectError;
use super::releases::{ListedRelease, ReleaseFilter};
use kubemoor_cluster::client::guarded;
use kubemoor_cluster::client::lease::{self, LeaderInfo};
pub use kubemoor_ledger::fleet::ReleaseRow;
use kubemoor_ledger::fleet::{ClusterView, FleetFilter, FleetSearch, StateCount};
use kubemoor_ledger::store::Store;
use kubemoor_verdict::health::STALE_AFTER;

/// The state under which every release with drift is counted.
pub const DRIFTED: &str = "Drifted";

type Fact = (&'static str, fn(&ReleaseRow) -> Option<String>);

/// The state of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRow {
    pub cluster: String,
    /// How many releases it has.
    pub releases: u64,
    /// How many of them have objects that drifted.
    pub drifted: u64,
    /// How many of them are in each state. A release whose objects drifted is also in the state `Drifted`, whatever
    /// other state it is in.
    pub(crate) states: BTreeMap<String, u64>,
    pub oldest_drift: Option<Timestamp>,
    /// The version of the guard.
    pub version: Option<String>,
    /// When the guard's certificate expires; known only from a ledger.
    pub certificate_until: Option<Timestamp>,
    pub last_seen: Option<Timestamp>,
    /// Since when the guard has not reported, if it is stale.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale_since: Option<Timestamp>,
    /// Why the page could not read the cluster; none if the data comes from a ledger.
    #[serde(skip)]
    pub error: Option<String>,
}

/// The clusters in the ledger, with their releases in one of `states`; with all releases if it is empty.
pub async fn clusters(
    store: &Store,
    filter: &FleetFilter,
    states: &[ReleaseFilter],
) -> Result<Vec<ClusterRow>, InspectError> {
    let views = store.fleet(filter).await?;
    Ok(views.into_iter().filter_map(|view| ClusterRow::kept(view, states)).collect())
}

/// The releases in the ledger in one of `states`, by namespace, name and cluster; all if it is empty.
pub async fn ledger_releases(
    store: &Store,
    filter: &FleetFilter,
    states: &[ReleaseFilter],
) -> Result<Vec<ReleaseRow>, InspectError> {
    let mut rows = store.fleet_releases(filter).await?;
    compare(&mut rows);
    rows.retain(|row| {
        let is_in = |it: &ReleaseFilter| it.is_of_reason(&row.reason, row.drifted, row.stale_since.is_some());
        states.is_empty() || states.iter().any(is_in)
    });
    Ok(rows)
}

/// The releases in the ledger that match `search` and one of `states`, and their total number. They are not compared
/// between clusters.
pub async fn search(
    store: &Store,
    search: FleetSearch,
    states: &[ReleaseFilter],
) -> Result<(Vec<ReleaseRow>, u64), InspectError> {
    let reasons = states.iter().filter_map(|state| state.reason()).map(str::to_owned).collect();
    let (drifted, stale) = (states.iter().any(|it| it.is_drifted()), states.contains(&ReleaseFilter::Stale));
    let found = store.fleet_search(&FleetSearch { reasons, drifted, stale, ..search }).await?;
    Ok((found.releases, found.total))
}

/// The summary of one cluster, from its releases and the Lease of its guard.
pub async fn at_a_glance(
    cluster: &str,
    client: &kube::Client,
    namespace: Option<&str>,
    rows: &[Arc<ListedRelease>],
) -> ClusterRow {
    let guard = guard(client, namespace).await;
    let facts = rows.iter().map(|row| (row.state(), row.drifted.unwrap_or_default(), row.oldest_drift));
    ClusterRow::counted(cluster, facts, guard)
}

pub fn states<'r>(rows: impl IntoIterator<Item = &'r ClusterRow>) -> BTreeMap<&'r str, u64> {
    let mut states = BTreeMap::new();
    for (state, count) in rows.into_iter().flat_map(|row| &row.states) {
        *states.entry(state.as_str()).or_default() += count;
    }
    states
}

/// Marks in which facts each release differs between its clusters, and sorts by namespace, name and cluster.
fn compare(rows: &mut [ReleaseRow]) {
    rows.sort_by(|a, b| (&a.namespace, &a.name, &a.cluster).cmp(&(&b.namespace, &b.name, &b.cluster)));
    for group in rows.chunk_by_mut(|a, b| (&a.namespace, &a.name) == (&b.namespace, &b.name)) {
        // An unknown fact is not compared.
        let mut differs = Vec::new();
        let facts: [Fact; 4] = [
            ("revision", |row| row.revision.map(|revision| revision.to_string())),
            ("chart", |row| row.chart.clone()),
            ("values", |row| row.values.clone()),
            ("drift", |row| row.revision.map(|_| (row.drifted > 0).to_string())),
        ];
        for (name, fact) in facts {
            let mut known = group.iter().filter_map(fact);
            if let Some(first) = known.next()
                && known.any(|other| other != first)
            {
                differs.push(name);
            }
        }
        group.iter_mut().for_each(|row| row.differs.clone_from(&differs));
    }
}

/// The data of the guard's leader, if the user may read it.
async fn guard(client: &kube::Client, namespace: Option<&str>) -> Option<LeaderInfo> {
    let place = guarded::lease(client, namespace).await.ok()??;
    lease::read_leader_info(client, &place).await.ok()?
}

impl ClusterRow {
    pub fn failed(cluster: &str, error: String) -> Self {
        Self { cluster: cluster.to_owned(), error: Some(error), ..Self::default() }
    }

    /// A cluster of the ledger; `None` if it has no release in a requested state.
    fn kept(view: ClusterView, wanted: &[ReleaseFilter]) -> Option<Self> {
        let ClusterView { cluster, states, oldest_drift, .. } = view;
        let asked = |reason: &str, it: &StateCount| {
            let is_in =
                |drifted| wanted.iter().any(|state| state.is_of_reason(reason, drifted, view.is_stale));
            match () {
                () if wanted.is_empty() || is_in(0) => it.clone(),
                // Of the releases in another state, those with drift.
                () if is_in(1) => StateCount { releases: it.drifted, drifted: it.drifted },
                () => StateCount::default(),
            }
        };
        let asked: BTreeMap<_, _> = states
            .iter()
            .map(|(reason, count)| (reason.clone(), asked(reason, count)))
            .filter(|(_, count)| count.releases > 0)
            .collect();
        if asked.is_empty() && !wanted.is_empty() {
            return None;
        }
        let row = Self {
            cluster,
            releases: asked.values().map(|count| count.releases).sum(),
            drifted: asked.values().map(|count| count.drifted).sum(),
            states: asked.into_iter().map(|(reason, count)| (reason, count.releases)).collect(),
            oldest_drift,
            version: Some(view.version),
            certificate_until: view.certificate_until,
            last_seen: Some(view.heard),
            stale_since: Some(view.heard).filter(|_| view.is_stale),
            error: None,
        };
        Some(row.with_drifted())
    }

    fn counted<'r>(
        cluster: &str,
        rows: impl Iterator<Item = (&'r str, u64, Option<Timestamp>)>,
        guard: Option<LeaderInfo>,
    ) -> Self {
        let mut row = Self { cluster: cluster.to_owned(), ..Self::default() };
        for (reason, drifted, oldest) in rows {
            row.releases += 1;
            row.drifted += u64::from(drifted > 0);
            *row.states.entry(reason.to_owned()).or_default() += 1;
            row.oldest_drift = [row.oldest_drift, oldest].into_iter().flatten().min();
        }
        let (version, last_seen) = guard.map_or((None, None), |guard| (guard.version, guard.renewed));
        let is_stale = |heard: &Timestamp| Timestamp::now().duration_since(*heard) > STALE_AFTER;
        Self { version, last_seen, stale_since: last_seen.filter(is_stale), ..row }.with_drifted()
    }

    /// Counts each release with drift under [`DRIFTED`] too, whatever its state, as the filters of lists do.
    fn with_drifted(mut self) -> Self {
        if self.drifted > 0 {
            self.states.insert(DRIFTED.to_owned(), self.drifted);
        }
        self
    }
}

impl From<ReleaseRow> for ListedRelease {
    fn from(row: ReleaseRow) -> Self {
        Self {
            namespace: row.namespace,
            name: row.name,
            guarded: true,
            ready: row.ready,
            reason: Some(row.reason),
            revision: row.revision,
            drifted: Some(row.drifted),
            oldest_drift: row.oldest_drift,
            edits: row.edits,
            drift: row.drift,
            stale_since: row.stale_since,
            message: row.message,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests;
