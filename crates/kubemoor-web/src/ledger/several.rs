//! The newest rows of several clusters, each of which keeps a ledger of its own.
//!
//! Entry point: [`page`]. Invariant: a cluster that fails or does not answer takes none of the others along.

use std::time::Duration;

use axum::response::Response;
use futures::future::join_all;
use http::StatusCode;
use jiff::Timestamp;
use maud::html;
use tokio::time::timeout;

use super::super::address::Asked;
use super::super::cluster::Cluster;
use super::super::html::{self as write, Frame, notes, trouble};
use super::super::ledger_reader::Begun;
use super::super::visitor::Visitor;
use super::form::form;
use super::rows::table;
use super::{PAGE, filter};
use kubemoor_inspect::failure::Failure;
use kubemoor_ledger::entry::Entry;
use kubemoor_ledger::query::{Filter, Page};

/// How long the page waits for one cluster.
const PATIENCE: Duration = Duration::from_secs(15);

/// The page.
pub(super) async fn page(visitor: &Visitor, asked: &Asked, now: Timestamp) -> Response {
    let filter = match filter(asked, now) {
        Ok(filter) => Filter { before: None, limit: Some(PAGE), ..filter },
        Err(error) => return framed(visitor, asked, StatusCode::BAD_GATEWAY, &trouble(&error.to_string())),
    };
    let read = visitor.clusters.iter().map(|cluster| async {
        let late = |_| Failure::Named(format!("the ledger did not answer within {} s", PATIENCE.as_secs()));
        let rows = timeout(PATIENCE, first(cluster, filter.clone())).await.map_err(late).flatten();
        (cluster.name.as_str(), rows)
    });
    let read: Vec<(&str, Result<Begun, Failure>)> = join_all(read).await;
    let known: Vec<_> =
        read.iter().filter_map(|(name, rows)| Some((*name, &rows.as_ref().ok()?.page))).collect();
    let (entries, is_cut) = merged(&known);
    let status = if known.is_empty() { StatusCode::BAD_GATEWAY } else { StatusCode::OK };
    let of_cluster = |name: &str| asked.link("ledger").set("before", None).set("cluster", Some(name)).text();
    framed(
        visitor,
        asked,
        status,
        &html! {
            @for (name, rows) in &read {
                @match rows {
                    Ok(Begun { page, only, .. }) => {
                        @if let Some(only) = only { p.note { (name) ": " (write::only(only)) } }
                        (notes(name, &page.missing))
                    },
                    Err(error) => (trouble(&format!("{name}: {error}"))),
                }
            }
            @if entries.is_empty() && !known.is_empty() { p.quiet { "No row matches." } }
            @if !entries.is_empty() {
                (table(entries.into_iter().map(|(name, entry)| (Some(name), entry)), true, now))
                p.quiet {
                    @if is_cut { "Older rows and exports of one cluster: " } @else { "Exports of one cluster: " }
                    @for (name, _) in &known { a href=(of_cluster(name)) { (name) } " " }
                }
            }
        },
    )
}

fn framed(visitor: &Visitor, asked: &Asked, status: StatusCode, content: &maud::Markup) -> Response {
    let frame = Frame { status, ..Frame::still(visitor, "Ledger", "ledger") };
    frame.around(&html! {
        h1 { "Ledger" }
        (form(visitor, asked, None))
        (content)
    })
}

/// The newest rows of a cluster. Who may not read all namespaces is shown their own.
async fn first(cluster: &Cluster, filter: Filter) -> Result<Begun, Failure> {
    let ledger = cluster.ledger().await?;
    let mut begun = ledger.begin(filter).await?;
    ledger.add_facts(&mut begun.page, &begun.filter).await?;
    Ok(begun)
}

/// The newest rows of all, with the names of their clusters, and whether there are further ones.
fn merged<'p>(pages: &[(&'p str, &'p Page)]) -> (Vec<(&'p str, &'p Entry)>, bool) {
    let most = usize::try_from(PAGE).unwrap_or(usize::MAX);
    let mut entries: Vec<_> =
        pages.iter().flat_map(|(name, page)| page.items.iter().map(|entry| (*name, entry))).collect();
    // Rows of one time stay in the order of their clusters.
    entries.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.time));
    let is_cut = entries.len() > most || pages.iter().any(|(_, page)| page.next.is_some());
    entries.truncate(most);
    (entries, is_cut)
}

#[cfg(test)]
mod tests;
