//! The list of exceptions.
//!
//! Entry point: [`page`]. Invariant: reads only; ending one is an action of its own.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Extension;
use axum::response::Response;
use futures::future::join_all;
use jiff::Timestamp;
use maud::{Markup, html};

use super::address::{Asked, Link};
use super::cluster::{Cluster, by, deadline};
use super::html::{self as write, Frame, trouble, turns};
use super::visitor::Visitor;
use kubemoor_inspect::allowances::{self, Row, State};
use kubemoor_inspect::failure::Failure;

/// The exceptions on a page.
const MOST: usize = 300;

/// The exceptions of a cluster.
struct Known {
    /// Those on the page.
    rows: Vec<Row>,
    /// Which page that is, and of how many.
    page: (usize, usize),
    /// The namespaces where the visitor may end them.
    ends: BTreeSet<String>,
    /// The only namespace that is shown, where nobody chose it.
    only: Option<String>,
}

/// The page.
pub(super) async fn page(Extension(visitor): Extension<Arc<Visitor>>, asked: Asked) -> Response {
    let now = Timestamp::now();
    let asked = &asked;
    let read = visitor
        .asked(asked)
        .map(|cluster| async move { (cluster, by(deadline(), read(cluster, asked, now)).await) });
    let read = join_all(read).await;
    let turned = |cluster: &Cluster, page: usize| {
        let link = asked.link("exceptions").set("cluster", Some(&cluster.name));
        link.set("page", Some(&page.to_string())).text()
    };
    Frame::live(&visitor, "Exceptions", "exceptions").of(asked).around(&html! {
        h1 { "Exceptions" }
        form.filter method="get" action="exceptions" role="search" {
            label { "Namespace" input name="namespace" value=[asked.get("namespace")] placeholder="all"; }
            button { "Show" }
        }
        @for (cluster, known) in &read {
            section {
                @if visitor.has_several() { h2 { (cluster.name) } }
                @match known {
                    Ok(Known { rows, page, ends, only }) => {
                        @if let Some(only) = only { p.note { (write::only(only)) } }
                        (table(cluster, rows, ends, now))
                        (turns(&format!("Pages of exceptions of {}", cluster.name), *page, |page| turned(cluster, page)))
                    },
                    Err(error) => (trouble(&error.to_string())),
                }
            }
        }
    })
}

/// A table of exceptions, at most of one page. Those in the namespaces `ends` may be ended.
pub(super) fn table(cluster: &Cluster, rows: &[Row], ends: &BTreeSet<String>, now: Timestamp) -> Markup {
    let shown = rows.iter().take(MOST);
    let has_ends = shown.clone().any(|row| ends.contains(&row.namespace));
    let end = |row: &Row| ends.contains(&row.namespace).then(|| end(cluster, row));
    html! {
        @if rows.is_empty() { p.quiet { "There are no exceptions." } } @else {
            div.wide tabindex="0" role="region" aria-label=(format!("Exceptions of {}", cluster.name)) {
                table {
                    thead { tr {
                        @for head in ["Object", "Fields", "Ends", "State", "By", "Reason"] { th scope="col" { (head) } }
                        @if has_ends { th scope="col" { span.hidden { "Action" } } }
                    } }
                    tbody { @for row in shown {
                        tr {
                            (line(row, now))
                            @if has_ends { td { @if let Some(end) = end(row) { (end) } } }
                        }
                    } }
                }
            }
            @if rows.len() > MOST {
                p { a href=(Link::to("exceptions").with("cluster", &cluster.name).text()) { "and " (rows.len() - MOST) " more exceptions" } }
            }
        }
    }
}

async fn read(cluster: &Cluster, asked: &Asked, now: Timestamp) -> Result<Known, Failure> {
    let connection = cluster.connection().await?;
    let mut only = None;
    let mut rows = match allowances::read(connection, asked.get("namespace"), None, now).await {
        // Who may not look into all namespaces is shown their own.
        Err(error) if error.is_forbidden() && asked.get("namespace").is_none() => {
            only = Some(connection.namespace.clone());
            allowances::read(connection, only.as_deref(), None, now).await
        }
        read => read,
    }?;
    let page = asked.page("page", rows.len(), MOST);
    rows = rows.into_iter().skip((page.0 - 1) * MOST).take(MOST).collect();
    let namespaces = rows.iter().map(|row| row.namespace.clone()).collect();
    Ok(Known { ends: cluster.ends(namespaces).await, rows, page, only })
}

/// What leads to the end of an exception.
fn end(cluster: &Cluster, row: &Row) -> Markup {
    let revoke = Link::to("act")
        .with("do", "revoke")
        .with("cluster", &cluster.name)
        .with("uid", &row.uid)
        .with("namespace", &row.namespace)
        .with("name", &row.name);
    html! { a href=(revoke.text()) { "End" span.hidden { " the exception " (row.name) } } }
}

fn line(row: &Row, now: Timestamp) -> Markup {
    let (class, state) = match row.state {
        State::Open => ("badge good", "Open"),
        State::Ended => ("badge doubt", "Ended"),
        State::Invalid => ("badge bad", "Invalid"),
        State::Deleted => ("badge doubt", "Deleted"),
    };
    html! {
        th scope="row" { (row.object.kind) "/" (row.object.name) span.quiet { (row.namespace) } }
        td.name { @for path in &row.paths { code { (path) } " " } }
        td {
            @match row.until.parse::<Timestamp>() {
                Ok(until) => (write::time(until, now)),
                Err(_) => (row.until),
            }
        }
        td { span class=(class) { (state) } @for flaw in &row.flaws { " " (flaw) } }
        td { (row.by) }
        td.message { (row.reason) }
    }
}
