//! The list of releases, of clusters or of a database: filtered, sorted, searched and paginated. The address holds the
//! whole view, and the size of a response does not grow with the number of releases.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use axum::Extension;
use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};

use super::fleet::{self as shared, SharedLedger};
use super::html::{self as write, PageFrame, PageLink, PageQuery, badge, notes, text_field, trouble};
use super::policies;
use super::visitor::{Visitor, deadline, with_deadline};
use kubemoor_declare::model::ReleaseId;
use kubemoor_inspect::fleet::{self, ReleaseRow};
use kubemoor_inspect::releases::{ListedRelease, NOT_GUARDED, ReleaseFilter, parse_state};
use kubemoor_ledger::fleet::{FleetOrder, FleetSearch};
use kubemoor_verdict::health::HealthReason;

const PAGE: usize = 100;

/// Maximum number of pages that a database is asked for.
const PAGES: usize = 100;

/// Maximum number of characters of a message in the list.
const MESSAGE: usize = 160;

/// Maximum number of search words. Each is searched for in all releases.
const WORDS: usize = 16;

/// The columns that the list can be sorted by, and their headings.
const COLUMNS: [(&str, &str); 6] = [
    ("cluster", "Cluster"),
    ("name", "Release"),
    ("state", "State"),
    ("drifted", "Drifted"),
    ("revision", "Revision"),
    ("edits", "Edits"),
];

struct ReleaseLine {
    cluster: String,
    row: Arc<ListedRelease>,
    /// Known only to a database.
    chart: Option<String>,
}

#[derive(Default)]
struct FoundReleases {
    /// The lines of the requested page.
    lines: Vec<ReleaseLine>,
    total: usize,
    notes: Vec<String>,
    failures: Vec<String>,
    /// The only namespaces that are shown, if the user did not choose one.
    only: Vec<String>,
    /// A message about each of them.
    narrowed: Vec<String>,
}

impl ReleaseLine {
    /// A unique key of the line.
    fn place(&self) -> (&str, &str, &str) {
        (&self.row.name, &self.row.namespace, &self.cluster)
    }
}

pub(super) async fn page(Extension(visitor): Extension<Arc<Visitor>>, asked: PageQuery) -> Response {
    let now = Timestamp::now();
    let found = match &visitor.shared {
        Some(shared) => search(shared, &asked).await,
        None => find(&visitor, &asked, now).await,
    };
    let FoundReleases { lines, total, notes: unread, failures, only, narrowed } = found;
    let only = only.first().filter(|_| !visitor.has_several()).map(String::as_str);
    let most = if visitor.shared.is_some() { PAGE * PAGES } else { usize::MAX };
    let place = asked.page("page", total.min(most), PAGE);
    PageFrame::live(&visitor, "Releases", "releases").around(&html! {
        h1 { "Releases" }
        (filter(&visitor, &asked, only))
        @for sentence in &narrowed { p.note { (sentence) } }
        @for failure in &failures { (trouble(failure)) }
        (notes("", &unread))
        @if total > 0 {
            p.quiet #count {
                @if total > most { "more than " (most) " releases" }
                @else { (total) @if total == 1 { " release" } @else { " releases" } }
            }
            (table(&visitor, &asked, &lines, now))
            (write::pagination("Pages of the list", place, |page| {
                asked.link("releases").set("page", Some(&page.to_string())).text()
            }))
        } @else if visitor.shared.is_none() || failures.is_empty() { p.quiet { "No release matches." } }
    })
}

fn states(asked: &PageQuery) -> Markup {
    let states =
        HealthReason::ALL.iter().map(|reason| reason.as_str()).chain([NOT_GUARDED, "Stale", "Unknown"]);
    let chosen: BTreeSet<_> = asked.all("state").collect();
    html! {
        label { "State"
            select name="state" {
                option value="" { "all" }
                @for state in states {
                    option value=(state) selected[chosen.contains(state)] { (write::words(state)) }
                }
            }
        }
    }
}

/// A heading that sorts by its column, or reverses the order.
fn head(asked: &PageQuery, sorted: &str, column: &str, name: &str) -> Markup {
    let down = format!("-{column}");
    let (next, order) = match sorted {
        sorted if sorted == column => (down.as_str(), Some("ascending")),
        sorted if sorted == down => (column, Some("descending")),
        _ => (column, None),
    };
    let link = asked.link("releases").set("sort", Some(next)).set("page", None);
    html! { th scope="col" aria-sort=[order] { a href=(link.text()) { (name) } } }
}

/// Searches a database, which filters, sorts and paginates.
async fn search(shared: &SharedLedger, asked: &PageQuery) -> FoundReleases {
    let by = asked.get("sort").unwrap_or("state");
    let (by, is_reversed) = by.strip_prefix('-').map_or((by, false), |by| (by, true));
    let order = match by {
        "cluster" => FleetOrder::Cluster,
        "drifted" => FleetOrder::Drifted,
        "revision" => FleetOrder::Revision,
        "name" => FleetOrder::Name,
        _ => FleetOrder::State(HealthReason::ALL.iter().map(|reason| reason.as_str()).collect()),
    };
    let words = words(asked).map(str::to_owned).collect();
    let filter = shared::wanted(asked);
    let (page, _) = asked.page("page", PAGE * PAGES, PAGE);
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let (offset, limit) = (number((page - 1) * PAGE), number(PAGE));
    let wish = FleetSearch { filter, words, order, is_reversed, offset, limit, ..FleetSearch::default() };
    let line = |row: ReleaseRow| {
        let (cluster, chart) = (row.cluster.clone(), row.chart.clone());
        ReleaseLine { cluster, row: Arc::new(row.into()), chart }
    };
    match fleet::search(&shared.store, wish, &wanted_states(asked)).await {
        Ok((rows, total)) => FoundReleases {
            lines: rows.into_iter().map(line).collect(),
            total: usize::try_from(total).unwrap_or(usize::MAX),
            ..FoundReleases::default()
        },
        Err(error) => FoundReleases { failures: vec![error.to_string()], ..FoundReleases::default() },
    }
}

async fn find(visitor: &Visitor, asked: &PageQuery, now: Timestamp) -> FoundReleases {
    let namespace = asked.get("namespace");
    let mut found = FoundReleases::default();
    for (cluster, board) in visitor.each(asked, |cluster| cluster.board(namespace)).await {
        let place = |sentence: &str| match visitor.has_several() {
            true => format!("{}: {sentence}", cluster.name),
            false => sentence.to_owned(),
        };
        let board = match board {
            Ok(board) => board,
            Err(error) => {
                found.failures.push(place(&error.to_string()));
                continue;
            }
        };
        let rows = board.rows(now);
        if let Some(only) = board.only(namespace) {
            found.narrowed.push(place(&write::only(only)));
            found.only.push(only.to_owned());
        }
        found.notes.extend(rows.notes.iter().map(|note| place(note)));
        let mut among: Vec<HashSet<ReleaseId>> = Vec::new();
        among.extend(asked.get("field").map(|field| board.with_field(field)));
        let policies: Vec<_> = asked.all("policy").collect();
        match with_deadline(deadline(), policies::matched(cluster, &policies, &rows.rows)).await {
            Ok(matched) => among.extend(matched),
            Err(error) => found.failures.push(place(&error.to_string())),
        }
        let is_meant = wanted(asked, among);
        let rows = rows.rows.into_iter().filter(|row| is_meant(row));
        found.lines.extend(rows.map(|row| ReleaseLine { cluster: cluster.name.clone(), row, chart: None }));
    }
    sort(&mut found.lines, asked.get("sort").unwrap_or("state"));
    found.total = found.lines.len();
    let (page, _) = asked.page("page", found.total, PAGE);
    found.lines = found.lines.into_iter().skip((page - 1) * PAGE).take(PAGE).collect();
    found
}

fn words(asked: &PageQuery) -> impl Iterator<Item = &str> {
    asked.get("q").unwrap_or_default().split_whitespace().take(WORDS)
}

fn wanted_states(asked: &PageQuery) -> Vec<ReleaseFilter> {
    asked.all("state").filter_map(|state| parse_state(state).ok()).collect()
}

fn wanted(asked: &PageQuery, among: Vec<HashSet<ReleaseId>>) -> impl Fn(&ListedRelease) -> bool {
    let states = wanted_states(asked);
    let namespace = asked.get("namespace").map(str::to_owned);
    let words: Vec<_> = words(asked).map(str::to_lowercase).collect();
    move |row| {
        namespace.as_ref().is_none_or(|namespace| *namespace == row.namespace)
            && (states.is_empty() || states.iter().any(|state| state.is_of(row)))
            && among.iter().all(|releases| releases.contains(&row.id()))
            && (words.is_empty() || {
                let text = format!("{}/{} {}", row.namespace, row.name, row.message).to_lowercase();
                words.iter().all(|word| text.contains(word))
            })
    }
}

/// Sorts by a column; by state, releases that need attention come first.
fn sort(lines: &mut [ReleaseLine], by: &str) {
    let (by, is_down) = by.strip_prefix('-').map_or((by, false), |by| (by, true));
    let place = |line: &ReleaseLine| {
        let state = line.row.state();
        let place = HealthReason::ALL.iter().position(|reason| reason.as_str() == state);
        // Unguarded releases come before those in sync.
        match (state, place) {
            ("InSync", _) => usize::MAX,
            (_, Some(place)) => place,
            (_, None) => HealthReason::ALL.len(),
        }
    };
    let order = |left: &ReleaseLine, right: &ReleaseLine| match by {
        "cluster" => left.cluster.cmp(&right.cluster),
        "state" => place(left).cmp(&place(right)),
        "drifted" => right.row.drifted.cmp(&left.row.drifted),
        "revision" => right.row.revision.cmp(&left.row.revision),
        "edits" => left.row.edits.cmp(&right.row.edits),
        _ => Ordering::Equal,
    };
    lines.sort_by(|left, right| {
        let order = order(left, right).then_with(|| left.place().cmp(&right.place()));
        if is_down { order.reverse() } else { order }
    });
}

fn filter(visitor: &Visitor, asked: &PageQuery, only: Option<&str>) -> Markup {
    html! {
        form.filter method="get" action="releases" role="search" {
            @let hint = if visitor.shared.is_some() { "name, chart or message" } else { "name or message" };
            label { "Search" input type="search" name="q" value=[asked.get("q")] placeholder=(hint); }
            (text_field(asked, "Namespace", "namespace", only.unwrap_or("all")))
            (states(asked))
            (write::cluster_choice(visitor, asked, true))
            @if let Some(field) = asked.get("field") {
                label { "Field that drifts" input name="field" value=(field); }
            }
            @for policy in asked.all("policy") {
                label { "Policy that matches" input name="policy" value=(policy); }
            }
            @if let Some(sort) = asked.get("sort") { input type="hidden" name="sort" value=(sort); }
            button { "Show" }
        }
    }
}

fn table(visitor: &Visitor, asked: &PageQuery, lines: &[ReleaseLine], now: Timestamp) -> Markup {
    let (sorted, is_shared) = (asked.get("sort").unwrap_or("state"), visitor.shared.is_some());
    let has_clusters = visitor.has_several() || is_shared;
    let is_shown = |column: &str| match column {
        "cluster" => has_clusters,
        "edits" => !is_shared,
        _ => true,
    };
    html! {
        div.wide tabindex="0" role="region" aria-labelledby="count" {
            table {
                thead { tr {
                    @for (column, name) in COLUMNS {
                        @if is_shown(column) { (head(asked, sorted, column, name)) }
                    }
                    @if is_shared { (write::heads(&["Oldest drift", "Chart"])) }
                    th scope="col" { "Message" }
                } }
                tbody { @for line in lines { (row(line, has_clusters, is_shared, now)) } }
            }
        }
    }
}

fn row(
    ReleaseLine { cluster, row, chart }: &ReleaseLine,
    has_clusters: bool,
    is_shared: bool,
    now: Timestamp,
) -> Markup {
    let link = PageLink::to_release(cluster, &row.id()).text();
    let front: String = row.message.chars().take(MESSAGE).collect();
    html! {
        tr {
            @if has_clusters { td { (cluster) } }
            th scope="row" { a href=(link) { (row.name) } span.quiet { (row.namespace) } }
            td { (badge(row.state(), row.ready.as_deref(), row.stale_since)) }
            td.number {
                @match row.drifted {
                    Some(0) if is_shared => "0",
                    Some(drifted) => a href=(link) {
                        (drifted)
                        @if let Some(declared) = row.declared { span.quiet { " of " (declared) } }
                    },
                    None => {},
                }
            }
            td.number { @if let Some(revision) = row.revision { (revision) } }
            @if is_shared {
                td { @if let Some(oldest) = row.oldest_drift { (write::time(oldest, now)) } }
                td { (chart.as_deref().unwrap_or_default()) }
            } @else {
                td { (row.edits.as_deref().unwrap_or_default()) }
            }
            // The release's page shows the whole message.
            td.message { (front) @if front.len() < row.message.len() { "…" } }
        }
    }
}

#[cfg(test)]
mod tests;
