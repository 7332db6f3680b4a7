//! The list of releases: filtered, sorted, searched, and in pages. What is shown stands in the address, and no answer grows
//! with the cluster.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use axum::Extension;
use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};

use super::html::{self as write, PageFrame, PageLink, PageQuery, badge, notes, text_field, trouble};
use super::policies;
use super::visitor::{Visitor, by, deadline};
use kubemoor_declare::model::ReleaseId;
use kubemoor_inspect::releases::{ListedRelease, NOT_GUARDED, parse_state};
use kubemoor_verdict::health::HealthReason;

const PAGE: usize = 100;

/// The most characters of a message in the list.
const MESSAGE: usize = 160;

/// What the list can be sorted by, and how its head calls it.
const COLUMNS: [(&str, &str); 5] = [
    ("name", "Release"),
    ("state", "State"),
    ("drifted", "Drifted"),
    ("revision", "Revision"),
    ("edits", "Edits"),
];

struct ReleaseLine {
    cluster: String,
    row: Arc<ListedRelease>,
}

#[derive(Default)]
struct FoundReleases {
    lines: Vec<ReleaseLine>,
    notes: Vec<String>,
    failures: Vec<String>,
    /// The only namespaces that are shown, where nobody chose one.
    only: Vec<String>,
    /// A sentence about each of them.
    narrowed: Vec<String>,
}

impl ReleaseLine {
    /// What tells one line from all others.
    fn place(&self) -> (&str, &str, &str) {
        (&self.row.name, &self.row.namespace, &self.cluster)
    }
}

pub(super) async fn page(Extension(visitor): Extension<Arc<Visitor>>, asked: PageQuery) -> Response {
    let FoundReleases { mut lines, notes: unread, failures, only, narrowed } = find(&visitor, &asked).await;
    let only = only.first().filter(|_| !visitor.has_several()).map(String::as_str);
    sort(&mut lines, asked.get("sort").unwrap_or("state"));
    let total = lines.len();
    let (page, pages) = asked.page("page", total, PAGE);
    let shown = lines.iter().skip((page - 1) * PAGE).take(PAGE);
    PageFrame::live(&visitor, "Releases", "releases").around(&html! {
        h1 { "Releases" }
        (filter(&visitor, &asked, only))
        @for sentence in &narrowed { p.note { (sentence) } }
        @for failure in &failures { (trouble(failure)) }
        (notes("", &unread))
        @if total == 0 { p.quiet { "No release matches." } } @else {
            p.quiet #count { (total) @if total == 1 { " release" } @else { " releases" } }
            (table(&visitor, &asked, shown))
            (turns(&asked, (page, pages)))
        }
    })
}

pub(super) fn states(asked: &PageQuery) -> Markup {
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

/// A head that sorts by its column, or the other way round.
pub(super) fn head(asked: &PageQuery, sorted: &str, column: &str, name: &str) -> Markup {
    let down = format!("-{column}");
    let (next, order) = match sorted {
        sorted if sorted == column => (down.as_str(), Some("ascending")),
        sorted if sorted == down => (column, Some("descending")),
        _ => (column, None),
    };
    let link = asked.link("releases").set("sort", Some(next)).set("page", None);
    html! { th scope="col" aria-sort=[order] { a href=(link.text()) { (name) } } }
}

/// A table below the number of its rows.
pub(super) fn counted_table(heads: &Markup, rows: &Markup) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-labelledby="count" {
            table { thead { tr { (heads) } } tbody { (rows) } }
        }
    }
}

/// The front of a message; the release's page has it whole.
pub(super) fn message_cell(message: &str) -> Markup {
    let front: String = message.chars().take(MESSAGE).collect();
    html! { td.message { (front) @if front.len() < message.len() { "…" } } }
}

pub(super) fn turns(asked: &PageQuery, place: (usize, usize)) -> Markup {
    let link = |page: usize| asked.link("releases").set("page", Some(&page.to_string())).text();
    write::turns("Pages of the list", place, link)
}

async fn find(visitor: &Visitor, asked: &PageQuery) -> FoundReleases {
    let now = Timestamp::now();
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
        match by(deadline(), policies::matched(cluster, &policies, &rows.rows)).await {
            Ok(matched) => among.extend(matched),
            Err(error) => found.failures.push(place(&error.to_string())),
        }
        let is_meant = wanted(asked, among);
        let rows = rows.rows.into_iter().filter(|row| is_meant(row));
        found.lines.extend(rows.map(|row| ReleaseLine { cluster: cluster.name.clone(), row }));
    }
    found
}

fn wanted(asked: &PageQuery, among: Vec<HashSet<ReleaseId>>) -> impl Fn(&ListedRelease) -> bool {
    let states: Vec<_> = asked.all("state").filter_map(|state| parse_state(state).ok()).collect();
    let namespace = asked.get("namespace").map(str::to_owned);
    let words: Vec<_> =
        asked.get("q").unwrap_or_default().split_whitespace().map(str::to_lowercase).collect();
    move |row| {
        let text = || format!("{}/{} {}", row.namespace, row.name, row.message).to_lowercase();
        namespace.as_ref().is_none_or(|namespace| *namespace == row.namespace)
            && (states.is_empty() || states.iter().any(|state| state.is_of(row)))
            && among.iter().all(|releases| releases.contains(&row.id()))
            && (words.is_empty() || {
                let text = text();
                words.iter().all(|word| text.contains(word))
            })
    }
}

/// Sorts by a column; those that need somebody come first, where it is by state.
fn sort(lines: &mut [ReleaseLine], by: &str) {
    let (by, is_down) = by.strip_prefix('-').map_or((by, false), |by| (by, true));
    let place = |line: &ReleaseLine| {
        let state = write::state(&line.row);
        let place = HealthReason::ALL.iter().position(|reason| reason.as_str() == state);
        // What nobody guards stands before what is in order.
        match (state, place) {
            ("InSync", _) => usize::MAX,
            (_, Some(place)) => place,
            (_, None) => HealthReason::ALL.len(),
        }
    };
    let order = |left: &ReleaseLine, right: &ReleaseLine| match by {
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
            label { "Search" input type="search" name="q" value=[asked.get("q")] placeholder="name or message"; }
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

fn table<'l>(visitor: &Visitor, asked: &PageQuery, lines: impl Iterator<Item = &'l ReleaseLine>) -> Markup {
    let sorted = asked.get("sort").unwrap_or("state");
    let heads = html! {
        @if visitor.has_several() { th scope="col" { "Cluster" } }
        @for (column, name) in COLUMNS { (head(asked, sorted, column, name)) }
        th scope="col" { "Message" }
    };
    counted_table(&heads, &html! { @for line in lines { (row(visitor, line)) } })
}

fn row(visitor: &Visitor, ReleaseLine { cluster, row }: &ReleaseLine) -> Markup {
    let release = row.id();
    html! {
        tr {
            @if visitor.has_several() { td { (cluster) } }
            th scope="row" {
                a href=(PageLink::to_release(cluster, &release).text()) { (row.name) }
                span.quiet { (row.namespace) }
            }
            td { (badge(row)) }
            td.number {
                @if let (Some(drifted), Some(declared)) = (row.drifted, row.declared) {
                    a href=(PageLink::to_release(cluster, &release).text()) { (drifted) span.quiet { " of " (declared) } }
                }
            }
            td.number { @if let Some(revision) = row.revision { (revision) } }
            td { (row.edits.as_deref().unwrap_or_default()) }
            (message_cell(&row.message))
        }
    }
}
