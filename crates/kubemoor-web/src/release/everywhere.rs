//! One release in all clusters, side by side.
//!
//! Entry points: [`Everywhere::read`] asks each cluster, [`table`] compares. Invariant: a cluster that fails takes none
//! of the others along, and is named; digests of values are keyed.

use futures::future::join_all;
use jiff::Timestamp;
use maud::{Markup, html};

use super::super::address::Link;
use super::super::cluster::{Cluster, by, deadline};
use super::super::html::{self as write, trouble};
use super::super::visitor::Visitor;
use super::row;
use kubemoor_cluster::client::guarded;
use kubemoor_declare::model::ReleaseId;
use kubemoor_inspect::failure::{Failure, failed};
use kubemoor_inspect::fleet::{self, ReleaseRow};
use kubemoor_ledger::store::fresh_key;
use kubemoor_verdict::shown::SealingKey;

/// What a release is compared by.
const HEADS: [&str; 8] =
    ["Cluster", "State", "Revision", "Chart", "Values", "Drifted", "Oldest drift", "Differs in"];

/// What the clusters of a visitor say of one release.
pub(super) struct Everywhere {
    rows: Vec<ReleaseRow>,
    /// The clusters that do not have it.
    absent: Vec<String>,
    failures: Vec<String>,
}

impl Everywhere {
    /// Asks all clusters, whichever is looked at; none where there is only one.
    pub(super) async fn read(visitor: &Visitor, release: &ReleaseId) -> Option<Self> {
        if !visitor.has_several() {
            return None;
        }
        let key = match fresh_key() {
            Ok(key) => key,
            Err(error) => {
                let failures = vec![Failure::from(error).to_string()];
                return Some(Self { rows: Vec::new(), absent: Vec::new(), failures });
            }
        };
        let key = &key;
        let asked = visitor.clusters.iter().map(|cluster| async move {
            (cluster.name.as_str(), by(deadline(), one(cluster, release, key)).await)
        });
        let (mut rows, mut absent, mut failures) = (Vec::new(), Vec::new(), Vec::new());
        for (cluster, read) in join_all(asked).await {
            match read {
                Ok(Some(row)) => rows.push(row),
                Ok(None) => absent.push(cluster.to_owned()),
                Err(error) => failures.push(format!("{cluster}: {error}")),
            }
        }
        fleet::compare(&mut rows);
        Some(Self { rows, absent, failures })
    }

    pub(super) fn shown(&self, release: &ReleaseId, now: Timestamp) -> Markup {
        let Self { rows, absent, failures } = self;
        html! {
            section {
                h2 { "In all clusters" }
                @for failure in failures { (trouble(failure)) }
                (table(release, rows, |release, row| Link::to_release(&row.cluster, release), now))
                @if !absent.is_empty() { p.quiet { "Clusters without this release: " (absent.join(", ")) } }
            }
        }
    }
}

/// The clusters that have a release, and in what it differs; `drifted` is where the number of drifted objects leads.
pub(crate) fn table(
    release: &ReleaseId,
    rows: &[ReleaseRow],
    drifted: impl Fn(&ReleaseId, &ReleaseRow) -> Link,
    now: Timestamp,
) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label="In all clusters" {
            table {
                thead { tr { @for head in HEADS { th scope="col" { (head) } } } }
                tbody { @for row in rows { (line(release, row, &drifted(release, row), now)) } }
            }
        }
        p.quiet { "Equal hashes of values stand for equal values, and reveal nothing else." }
    }
}

/// The state of a release as a mark, and since when its guard is silent.
pub(crate) fn badge(row: &ReleaseRow) -> Markup {
    let class = match (row.stale_since, row.ready.as_deref()) {
        (Some(_), _) | (_, Some("Unknown") | None) => "badge doubt",
        (None, Some("True")) => "badge good",
        (None, Some(_)) => "badge bad",
    };
    html! {
        span class=(class) { (write::words(&row.reason)) }
        @if let Some(since) = row.stale_since {
            span.quiet.below { "stale since " (since.strftime("%Y-%m-%dT%H:%M:%SZ")) }
        }
    }
}

/// What one cluster says.
async fn one(
    cluster: &Cluster,
    release: &ReleaseId,
    key: &SealingKey,
) -> Result<Option<ReleaseRow>, Failure> {
    let reader = cluster.reader().await?;
    let guarded = guarded::get(&reader.connection.client, release).await;
    let guarded = guarded.map_err(|error| failed(&reader.connection, "read the GuardedRelease", error))?;
    if let Some(row) = row(&reader, release, guarded.as_ref()).await? {
        return Ok(Some(fleet::with_record(&reader, &cluster.name, row, key).await));
    }
    // Without the policies it is unknown in which other namespaces its records may lie.
    match reader.unread_records(Some(&release.namespace)).into_iter().next() {
        Some(unread) => Err(Failure::Named(unread)),
        None => Ok(None),
    }
}

fn line(release: &ReleaseId, row: &ReleaseRow, drifted: &Link, now: Timestamp) -> Markup {
    html! {
        tr {
            th scope="row" { a href=(Link::to_release(&row.cluster, release).text()) { (row.cluster) } }
            td { (badge(row)) }
            td.number { @if let Some(revision) = row.revision { (revision) } }
            td { (row.chart.as_deref().unwrap_or_default()) }
            td { @if let Some(values) = &row.values { code { (values) } } }
            td.number { @if row.drifted == 0 { "0" } @else { a href=(drifted.text()) { (row.drifted) } } }
            td { @if let Some(oldest) = row.oldest_drift { (write::time(oldest, now)) } }
            td { (row.differs.join(", ")) }
        }
    }
}
