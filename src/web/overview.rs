//! The first page: how the clusters stand at a glance.
//!
//! Entry point: [`page`]. Invariant: every number links to the rows behind it; each cluster fails by itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::Query;
use axum::response::Response;
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};

use super::address::{Asked, Link};
use super::board::Rows;
use super::cluster::Cluster;
use super::html::{self as write, Frame, notes, trouble};
use super::visitor::Visitor;
use crate::inspect::allowances::{self, State};
use crate::inspect::chart;
use crate::inspect::failure::Failure;
use crate::verdict::health::Reason;

/// Fields that are shown; the list of releases has all.
const FIELDS: usize = 8;

/// Exceptions that end within that time are about to end.
const SOON: SignedDuration = SignedDuration::from_hours(24);

/// Exceptions that are shown; their own page has all.
const ENDING: usize = 8;

/// What is known of a cluster at a glance.
struct Glance {
    rows: Rows,
    fields: Vec<(String, usize)>,
    exceptions: Result<Vec<allowances::Row>, Failure>,
}

/// The page.
pub(super) async fn page(
    Extension(visitor): Extension<Arc<Visitor>>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let asked = Asked::of(query);
    let now = Timestamp::now();
    let glances = visitor.asked(&asked).map(|cluster| async move {
        let user = cluster.user().await.ok().flatten().map(str::to_owned);
        (cluster, user, glance(cluster, now).await)
    });
    let glances = join_all(glances).await;
    Frame::live("Overview", "").around(&html! {
        h1 { "Overview" }
        @for (cluster, user, glance) in &glances {
            section.cluster {
                h2 { (cluster.name) }
                @if let Some(user) = user { p.quiet { "as " (user) } }
                @match glance {
                    Ok(glance) => (shown(cluster, glance, now)),
                    Err(error) => (trouble(&error.to_string())),
                }
            }
        }
    })
}

async fn glance(cluster: &Cluster, now: Timestamp) -> Result<Glance, Failure> {
    let board = cluster.board(None).await?;
    let connection = cluster.connection().await?;
    let exceptions = allowances::read(connection, board.namespace.as_deref(), None, now).await;
    let mut fields: Vec<_> = board.fields(None).into_iter().collect();
    fields.sort_by(|(left, fewer), (right, more)| more.cmp(fewer).then_with(|| left.cmp(right)));
    Ok(Glance { rows: board.rows(now), fields, exceptions })
}

fn shown(cluster: &Cluster, glance: &Glance, now: Timestamp) -> Markup {
    let Glance { rows, fields, exceptions } = glance;
    html! {
        (notes(&rows.notes))
        @if !rows.is_blind { (states(cluster, rows)) }
        div.columns {
            section { h3 { "Fields that drift most" } (drifting(cluster, fields)) }
            section {
                h3 { "Exceptions that end within 24 hours" }
                @match exceptions {
                    Ok(exceptions) => (ending(cluster, exceptions, now)),
                    Err(error) => (trouble(&error.to_string())),
                }
            }
        }
    }
}

/// The releases by state, those that need somebody first.
fn states(cluster: &Cluster, Rows { rows, .. }: &Rows) -> Markup {
    let mut counts: BTreeMap<(u8, usize, &str), usize> = BTreeMap::new();
    for row in rows {
        let state = write::state(row);
        let place = Reason::ALL.iter().position(|reason| reason.as_str() == state).unwrap_or(usize::MAX);
        let rank = match (row.guarded, row.ready.as_deref()) {
            (true, Some("False")) => 0,
            (true, Some("True")) => 2,
            _ => 1,
        };
        *counts.entry((rank, place, state)).or_default() += 1;
    }
    let all = Link::to("releases").with("cluster", &cluster.name);
    html! {
        ul.tiles {
            li { a.tile href=(all.text()) { strong { (rows.len()) } span { "Releases" } } }
            @for ((rank, _, state), count) in &counts {
                li {
                    a class=(format!("tile {}", ["bad", "doubt", "good"].get(usize::from(*rank)).unwrap_or(&"")))
                        href=(all.clone().with("state", state).text()) {
                        strong { (count) }
                        span { (write::words(state)) }
                    }
                }
            }
        }
    }
}

fn drifting(cluster: &Cluster, fields: &[(String, usize)]) -> Markup {
    if fields.is_empty() {
        return html! { p.quiet { "No field drifts." } };
    }
    let counts: Vec<_> = fields
        .iter()
        .take(FIELDS)
        .map(|(field, count)| (field.clone(), u64::try_from(*count).unwrap_or(u64::MAX)))
        .collect();
    let link = |field: &str| Link::to("releases").with("cluster", &cluster.name).with("field", field).text();
    html! {
        (picture(&counts))
        ul.ranked {
            @for (field, count) in &counts {
                li { a href=(link(field)) { code { (field) } } span.count { (count) } }
            }
        }
        @if fields.len() > FIELDS { p.quiet { "and " (fields.len() - FIELDS) " more fields" } }
    }
}

/// A picture of counts that stand beside it as text.
pub(super) fn picture(counts: &[(String, u64)]) -> Markup {
    match chart::bars(counts) {
        // The crate that draws escapes what it writes.
        Ok(Some(picture)) => html! { figure aria-hidden="true" { (maud::PreEscaped(picture)) } },
        Ok(None) => html! {},
        Err(error) => trouble(&error.to_string()),
    }
}

fn ending(cluster: &Cluster, exceptions: &[allowances::Row], now: Timestamp) -> Markup {
    let open: Vec<_> = exceptions.iter().filter(|row| row.state == State::Open).collect();
    let mut ending: Vec<(Timestamp, &allowances::Row)> =
        open.iter().filter_map(|row| Some((row.until.parse().ok()?, *row))).collect();
    ending.retain(|(until, _): &(Timestamp, _)| until.duration_since(now) <= SOON);
    ending.sort_by_key(|(until, _)| *until);
    let all = Link::to("exceptions").with("cluster", &cluster.name);
    html! {
        @if ending.is_empty() { p.quiet { "None." } } @else {
            ul.ranked {
                @for (until, row) in ending.iter().take(ENDING) {
                    li {
                        span {
                            code { (row.object.kind) "/" (row.object.name) }
                            " in " (row.namespace)
                        }
                        span.count { (write::time(*until, now)) }
                    }
                }
            }
        }
        p { a href=(all.text()) { (open.len()) " open exceptions" } }
    }
}
