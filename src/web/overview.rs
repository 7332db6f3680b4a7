//! The first page: how the clusters stand at a glance.
//!
//! Entry point: [`page`]. Invariant: every number links to the rows behind it; each cluster fails by itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::Query;
use axum::response::Response;
use futures::future::join_all;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan as _};
use maud::{Markup, html};

use super::address::{Asked, Link};
use super::board::Rows;
use super::cluster::Cluster;
use super::html::{self as write, Frame, notes, trouble};
use super::ledger;
use super::visitor::Visitor;
use crate::inspect::allowances::{self, State};
use crate::inspect::chart;
use crate::inspect::failure::Failure;
use crate::ledger::query::Filter;
use crate::verdict::health::Reason;

/// Fields that are shown; the list of releases has all.
const FIELDS: usize = 8;

/// Exceptions that end within that time are about to end.
const SOON: SignedDuration = SignedDuration::from_hours(24);

/// Exceptions that are shown; their own page has all.
const ENDING: usize = 8;

/// The days of which denied changes are shown, the same as an age, and the most changes that are counted.
const DAYS: i64 = 10;
const SPAN: &str = "10d";
const DENIALS: usize = 3000;

/// What is known of a cluster at a glance.
struct Glance {
    rows: Rows,
    fields: Vec<(String, usize)>,
    exceptions: Result<Vec<allowances::Row>, Failure>,
    /// None where no guard is asked for the ledger.
    denials: Option<Result<Denials, Failure>>,
}

/// The changes that were denied of late.
struct Denials {
    /// By day, the oldest first.
    days: Vec<(String, u64)>,
    /// By user, the most first.
    users: Vec<(String, u64)>,
    /// Whether there are more than were read.
    is_cut: bool,
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
    let denials = match cluster.has_ledger() {
        true => Some(denials(cluster, board.namespace.clone(), now).await),
        false => None,
    };
    Ok(Glance { rows: board.rows(now), fields, exceptions, denials })
}

async fn denials(cluster: &Cluster, namespace: Option<String>, now: Timestamp) -> Result<Denials, Failure> {
    let today = now.to_zoned(TimeZone::UTC).date();
    let dates: Vec<_> = (0..DAYS).rev().filter_map(|age| today.checked_sub(age.days()).ok()).collect();
    let since = dates.first().and_then(|date| date.to_zoned(TimeZone::UTC).ok()).map(|it| it.timestamp());
    let filter = Filter { namespace, verdicts: vec!["Deny".to_owned()], since, ..Filter::default() };
    let entries = ledger::newest(cluster.ledger().await?, filter, DENIALS).await?;
    let mut days: BTreeMap<String, u64> = dates.iter().map(|date| (date.to_string(), 0)).collect();
    let mut users: BTreeMap<String, u64> = BTreeMap::new();
    for entry in &entries {
        let day = entry.time.to_zoned(TimeZone::UTC).date().to_string();
        days.entry(day).and_modify(|count| *count += 1);
        *users.entry(entry.user.clone()).or_default() += 1;
    }
    let mut users: Vec<_> = users.into_iter().collect();
    users.sort_by(|(left, fewer), (right, more)| more.cmp(fewer).then_with(|| left.cmp(right)));
    users.truncate(FIELDS);
    Ok(Denials { days: days.into_iter().collect(), users, is_cut: entries.len() >= DENIALS })
}

fn shown(cluster: &Cluster, glance: &Glance, now: Timestamp) -> Markup {
    let Glance { rows, fields, exceptions, denials } = glance;
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
            @match denials {
                None => {},
                Some(Ok(denials)) => (denied(cluster, denials)),
                Some(Err(error)) => section { h3 { "Denied changes" } (trouble(&error.to_string())) },
            }
        }
    }
}

/// The changes that were denied, by day and by user.
fn denied(cluster: &Cluster, Denials { days, users, is_cut }: &Denials) -> Markup {
    let rows = Link::to("ledger").with("cluster", &cluster.name).with("verdict", "Deny");
    let total: u64 = days.iter().map(|(_, count)| count).sum();
    let of_day = |day: &str| {
        let link = rows.clone().with("since", &format!("{day}T00:00:00Z"));
        link.with("until", &format!("{day}T23:59:59.999999999Z")).text()
    };
    let of_user = |user: &str| rows.clone().with("by", user).with("since", SPAN).text();
    html! {
        section {
            h3 { "Denied changes of " (DAYS) " days" }
            @if total == 0 { p.quiet { "No change was denied." } } @else {
                (picture(days))
                ul.ranked {
                    @for (day, count) in days.iter().rev().filter(|(_, count)| *count > 0) {
                        li { a href=(of_day(day)) { (day) } span.count { (count) } }
                    }
                }
                @if *is_cut { p.quiet { "Only the newest " (DENIALS) " are counted." } }
            }
        }
        @if !users.is_empty() {
            section {
                h3 { "Users whose changes were denied" }
                ul.ranked { @for (user, count) in users { li { a href=(of_user(user)) { (user) } span.count { (count) } } } }
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
    let link = |field: &str| Link::to("releases").with("cluster", &cluster.name).with("field", field).text();
    html! {
        ul.ranked {
            @for (field, count) in fields.iter().take(FIELDS) {
                li { a href=(link(field)) { code { (field) } } span.count { (count) } }
            }
        }
        @if fields.len() > FIELDS { p.quiet { "and " (fields.len() - FIELDS) " more fields" } }
    }
}

/// A picture of counts that stand beside it as text.
fn picture(counts: &[(String, u64)]) -> Markup {
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
        p { a href=(all.text()) { (open.len()) @if open.len() == 1 { " open exception" } @else { " open exceptions" } } }
    }
}
