//! The releases of all clusters of a shared ledger: filtered, sorted, searched, and in pages.
//!
//! Entry point: [`page`]. Invariant: the database filters, sorts and cuts, so that no answer grows with its rows.

use std::sync::Arc;

use axum::Extension;
use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};

use super::super::address::{Asked, Link};
use super::super::html::{self as write, Frame, trouble};
use super::super::release::everywhere::badge;
use super::super::releases::{head, states, turns};
use super::super::visitor::Visitor;
use super::{shared, wanted};
use kubemoor_declare::model::ReleaseId;
use kubemoor_inspect::failure::Failure;
use kubemoor_inspect::fleet::{ReleaseRow, search};
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

/// The page.
pub(crate) async fn page(Extension(visitor): Extension<Arc<Visitor>>, asked: Asked) -> Response {
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
                (table(&asked, rows, now))
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
    search(&shared(visitor)?.store, wish, &states).await
}

fn filter(asked: &Asked) -> Markup {
    html! {
        form.filter method="get" action="releases" role="search" {
            label { "Search" input type="search" name="q" value=[asked.get("q")] placeholder="name, chart or message"; }
            label { "Cluster" input name="cluster" value=[asked.get("cluster")] placeholder="all"; }
            label { "Namespace" input name="namespace" value=[asked.get("namespace")] placeholder="all"; }
            (states(asked))
            @if let Some(sort) = asked.get("sort") { input type="hidden" name="sort" value=(sort); }
            button { "Show" }
        }
    }
}

fn table(asked: &Asked, rows: &[ReleaseRow], now: Timestamp) -> Markup {
    let sorted = asked.get("sort").unwrap_or("state");
    html! {
        div.wide tabindex="0" role="region" aria-labelledby="count" {
            table {
                thead { tr {
                    @for (column, name) in COLUMNS { (head(asked, sorted, column, name)) }
                    @for name in ["Oldest drift", "Chart", "Message"] { th scope="col" { (name) } }
                } }
                tbody { @for row in rows { (line(row, now)) } }
            }
        }
    }
}

fn line(row: &ReleaseRow, now: Timestamp) -> Markup {
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
