//! The pages of a database that the guards of many clusters share: what is read is what the database shows its user. No
//! cluster is asked, no object is shown, and nothing can be ordered.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::html::{self as write, LinkScope, PageFrame, PageLink, PageQuery, text_field, tile, trouble};
use super::ledger::VisitorLedger;
use super::overview::{HistoryKey, LEFT, ReleaseHistories, clusters_table, last_days};
use super::release::{Timeline, fleet_badge, framed, side_by_side};
use super::releases::{counted_table, head, message_cell, states, turns};
use super::visitor::Visitor;
use kubemoor_declare::model::ReleaseId;
use kubemoor_inspect::failure::{InspectError, spoken};
use kubemoor_inspect::fleet::{self, ClusterRow, FleetQuery, ReleaseRow, search};
use kubemoor_inspect::ledger::LedgerSource;
use kubemoor_inspect::releases::parse_state;
use kubemoor_ledger::fleet::{COUNTED, FleetFilter, FleetOrder, FleetSearch};
use kubemoor_ledger::store::Store;
use kubemoor_verdict::health::HealthReason;

const PAGE: u32 = 100;
const PAGES: u32 = 100;

/// What the list can be sorted by, and how its head calls it.
const COLUMNS: [(&str, &str); 5] = [
    ("cluster", "Cluster"),
    ("name", "Release"),
    ("state", "State"),
    ("drifted", "Drifted"),
    ("revision", "Revision"),
];

pub(super) async fn overview(Extension(visitor): Extension<Arc<Visitor>>, asked: PageQuery) -> Response {
    let now = Timestamp::now();
    let place = place(&asked);
    let read = async {
        let (shared, wanted) = (shared(&visitor)?, wanted(&asked));
        let (ledger, text) = (shared.ledger(place.cluster), |text: Option<&str>| text.map(str::to_owned));
        let counted = HistoryKey {
            cluster: text(place.cluster),
            namespace: text(place.namespace),
            // What is new is shown at once.
            version: *shared.changes().borrow(),
        };
        let (clusters, history) = tokio::join!(
            fleet::clusters(&shared.store, &wanted),
            shared.histories.read(&ledger, counted, now)
        );
        Ok::<_, InspectError>((clusters?, history))
    };
    let read = read.await;
    PageFrame::live(&visitor, "Overview", "").around(&html! {
        h1 { "Overview" }
        form.filter method="get" action="./" role="search" {
            (text_field(&asked, "Cluster", "cluster", "all"))
            (text_field(&asked, "Namespace", "namespace", "all"))
            button { "Show" }
        }
        @match &read {
            Err(error) => (trouble(&error.to_string())),
            Ok((clusters, _)) if clusters.is_empty() => {
                p.quiet { "No cluster is found: no guard of a cluster that you may see writes to this ledger." }
            }
            Ok((clusters, history)) => {
                (tiles(place, clusters))
                h2 { "Clusters" }
                @let rows: Vec<_> = clusters.iter().map(|row| (row, place.namespace)).collect();
                (clusters_table(&rows, now))
                div.columns {
                    @match history {
                        Ok(history) => (last_days(history, place)),
                        Err(error) => section { h3 { "Ledger" } p.note { (error) } },
                    }
                }
            }
        }
    })
}

fn shared(visitor: &Visitor) -> Result<&SharedLedger, InspectError> {
    let none = || InspectError::Named("this page shows no shared ledger".to_owned());
    visitor.shared.as_ref().ok_or_else(none)
}

fn place(asked: &PageQuery) -> LinkScope<'_> {
    LinkScope { cluster: asked.get("cluster"), namespace: asked.get("namespace") }
}

fn wanted(asked: &PageQuery) -> FleetQuery {
    let text = |name: &str| asked.get(name).map(str::to_owned);
    FleetQuery {
        clusters: text("cluster").into_iter().collect(),
        namespace: text("namespace"),
        ..FleetQuery::default()
    }
}

fn tiles(place: LinkScope<'_>, clusters: &[ClusterRow]) -> Markup {
    let counts = fleet::states(clusters);
    let all: u64 = clusters.iter().map(|cluster| cluster.releases).sum();
    let releases = place.link("releases");
    html! {
        ul.tiles {
            li { a.tile href=(releases.text()) { strong { (all) } span { "Releases" } } }
            @for (state, count) in &counts {
                (tile(if *state == "InSync" { "tile good" } else { "tile" }, *count, state, &releases))
            }
        }
    }
}

/// The page of all releases. The database filters, sorts and cuts, so that no answer grows with its rows.
pub(super) async fn releases(Extension(visitor): Extension<Arc<Visitor>>, asked: PageQuery) -> Response {
    let now = Timestamp::now();
    let page = asked.get("page").and_then(|page| page.parse().ok()).unwrap_or(1).clamp(1, PAGES);
    let found = find(&visitor, &asked, page).await;
    PageFrame::live(&visitor, "Releases", "releases").around(&html! {
        h1 { "Releases" }
        (filter(&asked))
        @match &found {
            Err(error) => (trouble(&error.to_string())),
            Ok((_, 0)) => p.quiet { "No release matches." },
            Ok((rows, total)) => {
                p.quiet #count {
                    @if *total > COUNTED { "more than " (COUNTED) " releases" }
                    @else { (total) @if *total == 1 { " release" } @else { " releases" } }
                }
                (table(&asked, rows, now))
                @let pages = total.div_ceil(u64::from(PAGE)).clamp(1, u64::from(PAGES));
                (turns(&asked, (usize::try_from(page).unwrap_or(1), usize::try_from(pages).unwrap_or(1))))
            }
        }
    })
}

async fn find(
    visitor: &Visitor,
    asked: &PageQuery,
    page: u32,
) -> Result<(Vec<ReleaseRow>, u64), InspectError> {
    let by = asked.get("sort").unwrap_or("state");
    let (by, is_reversed) = by.strip_prefix('-').map_or((by, false), |by| (by, true));
    let order = match by {
        "cluster" => FleetOrder::Cluster,
        "drifted" => FleetOrder::Drifted,
        "revision" => FleetOrder::Revision,
        "name" => FleetOrder::Name,
        _ => FleetOrder::State(HealthReason::ALL.iter().map(|reason| reason.as_str()).collect()),
    };
    let words = asked.get("q").unwrap_or_default().split_whitespace().map(str::to_owned).collect();
    let wanted = wanted(asked);
    let filter = FleetFilter { clusters: wanted.clusters, namespace: wanted.namespace, release: None };
    let offset = (page - 1) * PAGE;
    let wish =
        FleetSearch { filter, words, order, is_reversed, offset, limit: PAGE, ..FleetSearch::default() };
    let states: Vec<_> = asked.all("state").filter_map(|state| parse_state(state).ok()).collect();
    search(&shared(visitor)?.store, wish, &states).await
}

fn filter(asked: &PageQuery) -> Markup {
    html! {
        form.filter method="get" action="releases" role="search" {
            label { "Search" input type="search" name="q" value=[asked.get("q")] placeholder="name, chart or message"; }
            (text_field(asked, "Cluster", "cluster", "all"))
            (text_field(asked, "Namespace", "namespace", "all"))
            (states(asked))
            @if let Some(sort) = asked.get("sort") { input type="hidden" name="sort" value=(sort); }
            button { "Show" }
        }
    }
}

fn table(asked: &PageQuery, rows: &[ReleaseRow], now: Timestamp) -> Markup {
    let sorted = asked.get("sort").unwrap_or("state");
    let heads = html! {
        @for (column, name) in COLUMNS { (head(asked, sorted, column, name)) }
        (write::heads(&["Oldest drift", "Chart", "Message"]))
    };
    counted_table(&heads, &html! { @for row in rows { (line(row, now)) } })
}

fn line(row: &ReleaseRow, now: Timestamp) -> Markup {
    let release = ReleaseId { namespace: row.namespace.clone().into(), name: row.name.clone().into() };
    let link = PageLink::to_release(&row.cluster, &release).text();
    html! {
        tr {
            td { (row.cluster) }
            th scope="row" { a href=(link) { (row.name) } span.quiet { (row.namespace) } }
            td { (fleet_badge(row)) }
            td.number { @if row.drifted == 0 { "0" } @else { a href=(link) { (row.drifted) } } }
            td.number { @if let Some(revision) = row.revision { (revision) } }
            td { @if let Some(oldest) = row.oldest_drift { (write::time(oldest, now)) } }
            td { (row.chart.as_deref().unwrap_or_default()) }
            (message_cell(&row.message))
        }
    }
}

pub(super) async fn release(Extension(visitor): Extension<Arc<Visitor>>, asked: PageQuery) -> Response {
    let now = Timestamp::now();
    // The database knows no exceptions.
    let read = read(&visitor, &asked, now).await.map(|page| (page, BTreeSet::new()));
    framed(&visitor, &asked, read)
}

async fn read(visitor: &Visitor, asked: &PageQuery, now: Timestamp) -> Result<Markup, InspectError> {
    let unnamed = || InspectError::Named("this address names no release".to_owned());
    let release = asked.release().ok_or_else(unnamed)?;
    let shared = shared(visitor)?;
    // All clusters are compared, whichever is looked at.
    let wish = FleetQuery { clusters: Vec::new(), release: Some(release.name.to_string()), ..wanted(asked) };
    let rows = fleet::kept(&shared.store, &wish).await?;
    let cluster = asked.get("cluster");
    let is_meant = |row: &&ReleaseRow| cluster.is_none_or(|cluster| cluster == row.cluster);
    let meant: Vec<_> = rows.iter().filter(is_meant).collect();
    if meant.is_empty() {
        return Err(InspectError::Named(format!(
            "no cluster of this ledger has release {}",
            spoken(&release)
        )));
    }
    let timeline = Timeline::of_ledger(&shared.ledger(cluster), &release).await;
    Ok(shown(&release, cluster, (&rows, &meant), &timeline, now))
}

fn shown(
    release: &ReleaseId,
    cluster: Option<&str>,
    (rows, meant): (&[ReleaseRow], &[&ReleaseRow]),
    timeline: &Timeline,
    now: Timestamp,
) -> Markup {
    let place = LinkScope { cluster, namespace: Some(&release.namespace) };
    let ledger = place.link("ledger").with("release", &release.name).with("since", "30d");
    html! {
        nav.trail aria-label="Way back" { a href=(PageLink::to("releases").text()) { "Releases" } }
        h1 { (release.name) }
        p.quiet { "in namespace " (release.namespace) @if let Some(cluster) = cluster { ", cluster " (cluster) } }
        @if let [row] = meant { (one(row)) }
        section {
            h2 { "In all clusters" }
            (side_by_side(release, rows, drifted, now))
        }
        section {
            h2 { "What happened" }
            (timeline.shown(now))
            p { a href=(ledger.text()) { "All rows of the ledger" } }
        }
    }
}

fn one(row: &ReleaseRow) -> Markup {
    html! {
        p.state { (fleet_badge(row)) " " (row.message) }
        dl.facts {
            @if let Some(edits) = &row.edits { div { dt { "Edits" } dd { (edits) } } }
            @if let Some(drift) = &row.drift { div { dt { "Drift" } dd { (drift) } } }
        }
    }
}

/// The rows that tell since when objects drift. The database holds no objects.
fn drifted(release: &ReleaseId, row: &ReleaseRow) -> PageLink {
    let place = LinkScope { cluster: Some(&row.cluster), namespace: Some(&release.namespace) };
    let since = row.oldest_drift.map_or_else(|| "30d".to_owned(), |oldest| oldest.to_string());
    let rows = place.link("ledger").with("release", &release.name).with("since", &since);
    LEFT.iter().fold(rows, |rows, verdict| rows.with("verdict", verdict))
}

/// How often it is looked for changes while a page is open.
const POLL: Duration = Duration::from_secs(3);

pub(super) struct SharedLedger {
    pub(super) store: Store,
    pub(super) histories: ReleaseHistories,
    source: Arc<LedgerSource>,
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
        let source = Arc::new(LedgerSource::Database(store.clone()));
        Self { store, histories: ReleaseHistories::default(), source, changes, poll }
    }

    /// The rows of one cluster, or of all (`None`).
    pub(super) fn ledger(&self, cluster: Option<&str>) -> VisitorLedger {
        VisitorLedger::of_database(Arc::clone(&self.source), cluster)
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
mod tests;
