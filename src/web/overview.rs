//! The first page: the state of the clusters at a glance.
//!
//! Entry point: [`page`]. Invariant: every number links to the rows behind it; a cluster that fails affects no other.

pub(super) mod history;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::Query;
use axum::response::Response;
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};

use self::history::History;
use super::address::{Asked, Place};
use super::board::Rows;
use super::cluster::Cluster;
use super::clusters_table;
use super::html::{self as write, Frame, notes, trouble};
use super::visitor::Visitor;
use crate::inspect::allowances::{self, State};
use crate::inspect::failure::Failure;
use crate::inspect::fleet::{self, ClusterRow, DRIFTED};
use crate::verdict::health::Reason;

/// Fields that are shown, and where all are asked for.
const FIELDS: usize = 8;
const ALL_FIELDS: usize = 500;

/// Exceptions that end within that time are about to end.
const SOON: SignedDuration = SignedDuration::from_hours(24);

/// Exceptions that are shown; their own page has all.
const ENDING: usize = 8;

/// What is known of a cluster at a glance.
struct Glance {
    cluster: ClusterRow,
    /// The one that is shown to a visitor who may not list all.
    namespace: Option<String>,
    rows: Rows,
    fields: Vec<(String, usize)>,
    exceptions: Result<Vec<allowances::Row>, Failure>,
    history: Result<History, Failure>,
}

/// The page.
pub(super) async fn page(
    Extension(visitor): Extension<Arc<Visitor>>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let asked = Asked::of(query);
    let now = Timestamp::now();
    let asked = &asked;
    let glances = visitor.asked(asked).map(|cluster| async move {
        let user = cluster.user().await.ok().flatten().map(str::to_owned);
        (cluster, user, glance(cluster, asked.get("namespace"), now).await)
    });
    let glances = join_all(glances).await;
    Frame::live(&visitor, "Overview", "").around(&html! {
        h1 { "Overview" }
        @if visitor.has_several() {
            @let rows: Vec<_> = glances.iter().map(|(cluster, _, glance)| match glance {
                Ok(glance) => (glance.cluster.clone(), glance.namespace.as_deref()),
                Err(error) => (ClusterRow::failed(&cluster.name, error.to_string()), None),
            }).collect();
            @let rows: Vec<_> = rows.iter().map(|(row, namespace)| (row, *namespace)).collect();
            (clusters_table::table(&rows, now))
        }
        @for (cluster, user, glance) in &glances {
            section.cluster {
                h2 { (cluster.name) }
                @if let Some(user) = user { p.quiet { "as " (user) } }
                @match glance {
                    Ok(glance) => (shown(cluster, glance, asked, now)),
                    Err(error) => (trouble(&error.to_string())),
                }
            }
        }
    })
}

async fn glance(cluster: &Cluster, namespace: Option<&str>, now: Timestamp) -> Result<Glance, Failure> {
    let board = cluster.board(namespace).await?;
    let connection = cluster.connection().await?;
    let namespace = board.namespace.clone();
    let history = async { history::read(&cluster.ledger().await?, namespace.as_deref(), now).await };
    let exceptions = allowances::read(connection, namespace.as_deref(), None, now);
    let rows = board.rows(now);
    let cluster = fleet::at_a_glance(&cluster.name, &connection.client, namespace.as_deref(), &rows.rows);
    let (exceptions, history, cluster) = tokio::join!(exceptions, history, cluster);
    let mut fields: Vec<_> = board.fields(None).into_iter().collect();
    fields.sort_by(|(left, fewer), (right, more)| more.cmp(fewer).then_with(|| left.cmp(right)));
    Ok(Glance { cluster, namespace, rows, fields, exceptions, history })
}

fn shown(cluster: &Cluster, glance: &Glance, asked: &Asked, now: Timestamp) -> Markup {
    let Glance { cluster: _, namespace, rows, fields, exceptions, history } = glance;
    let place = Place { cluster: Some(&cluster.name), namespace: namespace.as_deref() };
    let most = if asked.get("fields") == Some("all") { ALL_FIELDS } else { FIELDS };
    html! {
        @if let Some(namespace) = namespace {
            form.filter method="get" action="./" {
                input type="hidden" name="cluster" value=(cluster.name);
                label { "Namespace" input name="namespace" value=(namespace); }
                button { "Show" }
            }
        }
        (notes(&rows.notes))
        @if !rows.is_blind { (states(place, rows)) }
        div.columns {
            section { h3 { "Fields that drift most" } (drifting(place, fields, most)) }
            section {
                h3 { "Exceptions that end within 24 hours" }
                @match exceptions {
                    Ok(exceptions) => (ending(place, exceptions, now)),
                    Err(error) => (trouble(&error.to_string())),
                }
            }
            @match history {
                Ok(history) => (history.shown(place)),
                Err(error) => section { h3 { "Ledger" } p.note { (error) } },
            }
        }
    }
}

/// The releases by state, those that need somebody first.
fn states(place: Place<'_>, Rows { rows, .. }: &Rows) -> Markup {
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
        // The list finds every release with drift, also one whose repairs are paused.
        if state != DRIFTED && row.drifted.is_some_and(|drifted| drifted > 0) {
            let place = Reason::ALL.iter().position(|reason| reason.as_str() == DRIFTED);
            *counts.entry((0, place.unwrap_or(usize::MAX), DRIFTED)).or_default() += 1;
        }
    }
    let all = place.link("releases");
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

fn drifting(place: Place<'_>, fields: &[(String, usize)], most: usize) -> Markup {
    if fields.is_empty() {
        return html! { p.quiet { "No field drifts." } };
    }
    let link = |field: &str| place.link("releases").with("field", field).text();
    let more = fields.len().saturating_sub(most);
    html! {
        ul.ranked {
            @for (field, count) in fields.iter().take(most) {
                li { a href=(link(field)) { code { (field) } span.count { (count) } } }
            }
        }
        @if more > 0 && most < ALL_FIELDS {
            p { a href=(place.link("").with("fields", "all").text()) { "and " (more) " more fields" } }
        } @else if more > 0 { p.quiet { "and " (more) " more fields" } }
    }
}

fn ending(place: Place<'_>, exceptions: &[allowances::Row], now: Timestamp) -> Markup {
    let open: Vec<_> = exceptions.iter().filter(|row| row.state == State::Open).collect();
    let mut ending: Vec<(Timestamp, &allowances::Row)> =
        open.iter().filter_map(|row| Some((row.until.parse().ok()?, *row))).collect();
    ending.retain(|(until, _): &(Timestamp, _)| until.duration_since(now) <= SOON);
    ending.sort_by_key(|(until, _)| *until);
    let of = |row: &allowances::Row| place.link("exceptions").set("namespace", Some(&row.namespace)).text();
    html! {
        @if ending.is_empty() { p.quiet { "None." } } @else {
            ul.ranked {
                @for (until, row) in ending.iter().take(ENDING) {
                    li {
                        a href=(of(row)) {
                            span { code { (row.object.kind) "/" (row.object.name) } " in " (row.namespace) }
                            span.count { (write::time(*until, now)) }
                        }
                    }
                }
            }
        }
        p {
            a href=(place.link("exceptions").text()) {
                (open.len()) @if open.len() == 1 { " open exception" } @else { " open exceptions" }
            }
        }
    }
}
