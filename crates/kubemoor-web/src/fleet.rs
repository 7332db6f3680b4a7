//! The pages of a database that the guards of many clusters share: the clusters, their releases, and one release across
//! them. No cluster is asked, and nothing can be ordered.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Extension;
use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};

use super::address::{Asked, Link, Place};
use super::clusters_table;
use super::history::{LEFT, Place as Counted};
use super::html::{self as write, Frame, trouble};
use super::overview::history;
use super::release::framed;
use super::release::timeline::{self, Timeline};
use super::releases::{head, states as states_filter, turns};
use super::shared_ledger::SharedLedger;
use super::visitor::Visitor;
use kubemoor_declare::model::ReleaseId;
use kubemoor_inspect::failure::{Failure, spoken};
use kubemoor_inspect::fleet::{self, ClusterRow, ReleaseRow, Wanted};
use kubemoor_inspect::releases::parse_state;
use kubemoor_ledger::fleet::{COUNTED, FleetFilter, FleetOrder, FleetSearch};
use kubemoor_verdict::health::Reason;

/// Releases on a page, and the pages that can be turned to.
const PAGE: u32 = 100;
const PAGES: u32 = 100;

/// The most characters of a message in the list.
const MESSAGE: usize = 160;

/// What the list can be sorted by, and how its head calls it.
const COLUMNS: [(&str, &str); 5] = [
    ("cluster", "Cluster"),
    ("name", "Release"),
    ("state", "State"),
    ("drifted", "Drifted"),
    ("revision", "Revision"),
];

/// What a release is compared by.
const HEADS: [&str; 8] =
    ["Cluster", "State", "Revision", "Chart", "Values", "Drifted", "Oldest drift", "Differs in"];

/// The page with all clusters, or with the one that is asked for.
pub(super) async fn overview(Extension(visitor): Extension<Arc<Visitor>>, asked: Asked) -> Response {
    let now = Timestamp::now();
    let place = place(&asked);
    let read = async {
        let (shared, wanted) = (shared(&visitor)?, wanted(&asked));
        let (ledger, text) = (shared.ledger(place.cluster), |text: Option<&str>| text.map(str::to_owned));
        let counted = Counted {
            cluster: text(place.cluster),
            namespace: text(place.namespace),
            // What is new is shown at once.
            version: *shared.changes().borrow(),
        };
        let (clusters, history) = tokio::join!(
            fleet::clusters(&shared.store, &wanted),
            shared.histories.read(&ledger, counted, now)
        );
        Ok::<_, Failure>((clusters?, history))
    };
    let read = read.await;
    Frame::live(&visitor, "Overview", "").around(&html! {
        h1 { "Overview" }
        (form(&asked))
        @match &read {
            Err(error) => (trouble(&error.to_string())),
            Ok((clusters, _)) if clusters.is_empty() => {
                p.quiet { "No cluster is found: no guard of a cluster that you may see writes to this ledger." }
            }
            Ok((clusters, history)) => {
                (states(place, clusters))
                h2 { "Clusters" }
                @let rows: Vec<_> = clusters.iter().map(|row| (row, place.namespace)).collect();
                (clusters_table::table(&rows, now))
                div.columns {
                    @match history {
                        Ok(history) => (history::shown(history, place)),
                        Err(error) => section { h3 { "Ledger" } p.note { (error) } },
                    }
                }
            }
        }
    })
}

/// The database.
fn shared(visitor: &Visitor) -> Result<&SharedLedger, Failure> {
    let none = || Failure::Named("this page shows no shared ledger".to_owned());
    visitor.shared.as_ref().ok_or_else(none)
}

fn place(asked: &Asked) -> Place<'_> {
    Place { cluster: asked.get("cluster"), namespace: asked.get("namespace") }
}

/// The clusters and the namespace that are asked for.
fn wanted(asked: &Asked) -> Wanted {
    let text = |name: &str| asked.get(name).map(str::to_owned);
    Wanted {
        clusters: text("cluster").into_iter().collect(),
        namespace: text("namespace"),
        ..Wanted::default()
    }
}

fn form(asked: &Asked) -> Markup {
    html! {
        form.filter method="get" action="./" role="search" {
            label { "Cluster" input name="cluster" value=[asked.get("cluster")] placeholder="all"; }
            label { "Namespace" input name="namespace" value=[asked.get("namespace")] placeholder="all"; }
            button { "Show" }
        }
    }
}

/// The releases of these clusters by state.
fn states(place: Place<'_>, clusters: &[ClusterRow]) -> Markup {
    let counts = fleet::states(clusters);
    let all: u64 = clusters.iter().map(|cluster| cluster.releases).sum();
    let releases = place.link("releases");
    html! {
        ul.tiles {
            li { a.tile href=(releases.text()) { strong { (all) } span { "Releases" } } }
            @for (state, count) in &counts {
                li {
                    a class=(if *state == "InSync" { "tile good" } else { "tile" })
                        href=(releases.clone().with("state", state).text()) {
                        strong { (count) }
                        span { (write::words(state)) }
                    }
                }
            }
        }
    }
}

/// The page with the releases: the database filters, sorts and cuts, so that no answer grows with its rows.
pub(super) async fn releases(Extension(visitor): Extension<Arc<Visitor>>, asked: Asked) -> Response {
    let now = Timestamp::now();
    let page = asked.get("page").and_then(|page| page.parse().ok()).unwrap_or(1).clamp(1, PAGES);
    let found = find(&visitor, &asked, page).await;
    Frame::live(&visitor, "Releases", "releases").around(&html! {
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
                (releases_table(&asked, rows, now))
                @let pages = total.div_ceil(u64::from(PAGE)).clamp(1, u64::from(PAGES));
                (turns(&asked, (usize::try_from(page).unwrap_or(1), usize::try_from(pages).unwrap_or(1))))
            }
        }
    })
}

async fn find(visitor: &Visitor, asked: &Asked, page: u32) -> Result<(Vec<ReleaseRow>, u64), Failure> {
    let by = asked.get("sort").unwrap_or("state");
    let (by, is_reversed) = by.strip_prefix('-').map_or((by, false), |by| (by, true));
    let order = match by {
        "cluster" => FleetOrder::Cluster,
        "drifted" => FleetOrder::Drifted,
        "revision" => FleetOrder::Revision,
        "name" => FleetOrder::Name,
        _ => FleetOrder::State(Reason::ALL.iter().map(|reason| reason.as_str()).collect()),
    };
    let words = asked.get("q").unwrap_or_default().split_whitespace().map(str::to_owned).collect();
    let wanted = wanted(asked);
    let filter = FleetFilter { clusters: wanted.clusters, namespace: wanted.namespace, release: None };
    let offset = (page - 1) * PAGE;
    let wish =
        FleetSearch { filter, words, order, is_reversed, offset, limit: PAGE, ..FleetSearch::default() };
    let states: Vec<_> = asked.all("state").filter_map(|state| parse_state(state).ok()).collect();
    fleet::search(&shared(visitor)?.store, wish, &states).await
}

fn filter(asked: &Asked) -> Markup {
    html! {
        form.filter method="get" action="releases" role="search" {
            label { "Search" input type="search" name="q" value=[asked.get("q")] placeholder="name, chart or message"; }
            label { "Cluster" input name="cluster" value=[asked.get("cluster")] placeholder="all"; }
            label { "Namespace" input name="namespace" value=[asked.get("namespace")] placeholder="all"; }
            (states_filter(asked))
            @if let Some(sort) = asked.get("sort") { input type="hidden" name="sort" value=(sort); }
            button { "Show" }
        }
    }
}

fn releases_table(asked: &Asked, rows: &[ReleaseRow], now: Timestamp) -> Markup {
    let sorted = asked.get("sort").unwrap_or("state");
    html! {
        div.wide tabindex="0" role="region" aria-labelledby="count" {
            table {
                thead { tr {
                    @for (column, name) in COLUMNS { (head(asked, sorted, column, name)) }
                    @for name in ["Oldest drift", "Chart", "Message"] { th scope="col" { (name) } }
                } }
                tbody { @for row in rows { (release_line(row, now)) } }
            }
        }
    }
}

fn release_line(row: &ReleaseRow, now: Timestamp) -> Markup {
    let release = ReleaseId { namespace: row.namespace.clone().into(), name: row.name.clone().into() };
    let link = Link::to_release(&row.cluster, &release).text();
    let message: String = row.message.chars().take(MESSAGE).collect();
    html! {
        tr {
            td { (row.cluster) }
            th scope="row" { a href=(link) { (row.name) } span.quiet { (row.namespace) } }
            td { (badge(row)) }
            td.number { @if row.drifted == 0 { "0" } @else { a href=(link) { (row.drifted) } } }
            td.number { @if let Some(revision) = row.revision { (revision) } }
            td { @if let Some(oldest) = row.oldest_drift { (write::time(oldest, now)) } }
            td { (row.chart.as_deref().unwrap_or_default()) }
            td.message { (message) @if message.len() < row.message.len() { "…" } }
        }
    }
}

/// The page of one release across the clusters.
pub(super) async fn release(Extension(visitor): Extension<Arc<Visitor>>, asked: Asked) -> Response {
    let now = Timestamp::now();
    // The database knows no exceptions.
    let read = read(&visitor, &asked, now).await.map(|page| (page, BTreeSet::new()));
    framed(&visitor, &asked, read)
}

async fn read(visitor: &Visitor, asked: &Asked, now: Timestamp) -> Result<Markup, Failure> {
    let unnamed = || Failure::Named("this address names no release".to_owned());
    let release = asked.release().ok_or_else(unnamed)?;
    let shared = shared(visitor)?;
    // All clusters are compared, whichever is looked at.
    let wish = Wanted { clusters: Vec::new(), release: Some(release.name.to_string()), ..wanted(asked) };
    let rows = fleet::kept(&shared.store, &wish).await?;
    let cluster = asked.get("cluster");
    let is_meant = |row: &&ReleaseRow| cluster.is_none_or(|cluster| cluster == row.cluster);
    let meant: Vec<_> = rows.iter().filter(is_meant).collect();
    if meant.is_empty() {
        return Err(Failure::Named(format!("no cluster of this ledger has release {}", spoken(&release))));
    }
    let timeline = timeline::of_ledger(&shared.ledger(cluster), &release).await;
    Ok(across(&release, cluster, (&rows, &meant), &timeline, now))
}

fn across(
    release: &ReleaseId,
    cluster: Option<&str>,
    (rows, meant): (&[ReleaseRow], &[&ReleaseRow]),
    timeline: &Timeline,
    now: Timestamp,
) -> Markup {
    let place = Place { cluster, namespace: Some(&release.namespace) };
    let ledger = place.link("ledger").with("release", &release.name).with("since", "30d");
    html! {
        nav.trail aria-label="Way back" { a href=(Link::to("releases").text()) { "Releases" } }
        h1 { (release.name) }
        p.quiet { "in namespace " (release.namespace) @if let Some(cluster) = cluster { ", cluster " (cluster) } }
        @if let [row] = meant { (one(row)) }
        section {
            h2 { "In all clusters" }
            (table(release, rows, now))
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
        p.state { (badge(row)) " " (row.message) }
        dl.facts {
            @if let Some(edits) = &row.edits { div { dt { "Edits" } dd { (edits) } } }
            @if let Some(drift) = &row.drift { div { dt { "Drift" } dd { (drift) } } }
        }
    }
}

/// The rows that tell since when objects drift. The database holds no objects.
fn drifted(release: &ReleaseId, row: &ReleaseRow) -> Link {
    let place = Place { cluster: Some(&row.cluster), namespace: Some(&release.namespace) };
    let since = row.oldest_drift.map_or_else(|| "30d".to_owned(), |oldest| oldest.to_string());
    let rows = place.link("ledger").with("release", &release.name).with("since", &since);
    LEFT.iter().fold(rows, |rows, verdict| rows.with("verdict", verdict))
}

/// The clusters that have a release, and in what it differs.
fn table(release: &ReleaseId, rows: &[ReleaseRow], now: Timestamp) -> Markup {
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
fn badge(row: &ReleaseRow) -> Markup {
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
