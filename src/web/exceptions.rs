//! The list of exceptions.
//!
//! Entry point: [`page`]. Invariant: reads only; ending one is an action of its own.

use std::sync::Arc;

use axum::Extension;
use axum::extract::Query;
use axum::response::Response;
use futures::future::join_all;
use jiff::Timestamp;
use maud::{Markup, html};

use super::address::{Asked, Link};
use super::cluster::Cluster;
use super::html::{self as write, Frame, trouble};
use super::visitor::Visitor;
use crate::inspect::allowances::{self, Row, State};
use crate::inspect::failure::Failure;

/// The most exceptions that are shown of a cluster.
const MOST: usize = 300;

/// The page.
pub(super) async fn page(
    Extension(visitor): Extension<Arc<Visitor>>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let asked = Asked::of(query);
    let now = Timestamp::now();
    let asked = &asked;
    let read = visitor.asked(asked).map(|cluster| async move { (cluster, read(cluster, asked, now).await) });
    let read = join_all(read).await;
    Frame::live(&visitor, "Exceptions", "exceptions").around(&html! {
        h1 { "Exceptions" }
        form.filter method="get" action="exceptions" role="search" {
            label { "Namespace" input name="namespace" value=[asked.get("namespace")] placeholder="all"; }
            button { "Show" }
        }
        @for (cluster, rows) in &read {
            section {
                @if visitor.has_several() { h2 { (cluster.name) } }
                @match rows {
                    Ok(rows) => (table(cluster, rows, now)),
                    Err(error) => (trouble(&error.to_string())),
                }
            }
        }
    })
}

/// A table of exceptions.
pub(super) fn table(cluster: &Cluster, rows: &[Row], now: Timestamp) -> Markup {
    html! {
        @if rows.is_empty() { p.quiet { "There are no exceptions." } } @else {
            div.wide tabindex="0" role="region" aria-label="Exceptions" {
                table {
                    thead { tr {
                        @for head in ["Object", "Fields", "Ends", "State", "By", "Reason"] { th scope="col" { (head) } }
                        th scope="col" { span.hidden { "Action" } }
                    } }
                    tbody { @for row in rows.iter().take(MOST) { (line(cluster, row, now)) } }
                }
            }
            @if rows.len() > MOST { p.quiet { "and " (rows.len() - MOST) " more: choose a namespace" } }
        }
    }
}

async fn read(cluster: &Cluster, asked: &Asked, now: Timestamp) -> Result<Vec<Row>, Failure> {
    let connection = cluster.connection().await?;
    match allowances::read(connection, asked.get("namespace"), None, now).await {
        // Who may not look into all namespaces is shown their own.
        Err(error) if error.is_forbidden() && asked.get("namespace").is_none() => {
            allowances::read(connection, Some(&connection.namespace), None, now).await
        }
        read => read,
    }
}

fn line(cluster: &Cluster, row: &Row, now: Timestamp) -> Markup {
    let (class, state) = match row.state {
        State::Open => ("badge good", "Open"),
        State::Ended => ("badge doubt", "Ended"),
        State::Invalid => ("badge bad", "Invalid"),
        State::Deleted => ("badge doubt", "Deleted"),
    };
    let revoke = Link::to("act")
        .with("do", "revoke")
        .with("cluster", &cluster.name)
        .with("namespace", &row.namespace)
        .with("name", &row.name);
    html! {
        tr {
            th scope="row" { (row.object.kind) "/" (row.object.name) span.quiet { (row.namespace) } }
            td { @for path in &row.paths { code { (path) } " " } }
            td {
                @match row.until.parse::<Timestamp>() {
                    Ok(until) => (write::time(until, now)),
                    Err(_) => (row.until),
                }
            }
            td { span class=(class) { (state) } @for flaw in &row.flaws { " " (flaw) } }
            td { (row.by) }
            td.message { (row.reason) }
            td { a href=(revoke.text()) { "End" span.hidden { " the exception " (row.name) } } }
        }
    }
}
