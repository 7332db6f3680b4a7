//! The first page: the state of the clusters at a glance.
//!
//! Entry point: [`page`]. Invariant: every number links to the rows behind it; a cluster that fails affects no other.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::Query;
use axum::response::Response;
use futures::future::join_all;
use jiff::civil::Date;
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
use crate::inspect::chart::{self, DayCounts};
use crate::inspect::failure::Failure;
use crate::ledger::entry::Entry;
use crate::ledger::query::Filter;
use crate::verdict::health::Reason;

/// Fields that are shown; the list of releases has all.
const FIELDS: usize = 8;

/// Exceptions that end within that time are about to end.
const SOON: SignedDuration = SignedDuration::from_hours(24);

/// Exceptions that are shown; their own page has all.
const ENDING: usize = 8;

/// The days that are shown, the same as an age, and the most rows that are counted.
const DAYS: i64 = 10;
const SPAN: &str = "10d";
const COUNTED: usize = 3000;

/// The verdicts on drift that stays, and on drift that was repaired.
const LEFT: &[&str] = &["Reported", "Failed"];
const REPAIRED: &[&str] = &["Restored", "Recreated"];

/// What is known of a cluster at a glance.
struct Glance {
    /// The one that is shown to a visitor who may not list all.
    namespace: Option<String>,
    rows: Rows,
    fields: Vec<(String, usize)>,
    exceptions: Result<Vec<allowances::Row>, Failure>,
    /// None where no guard is asked for the ledger.
    denials: Option<Result<Denials, Failure>>,
    drift: Option<Result<Drift, Failure>>,
}

/// The drift that was found of late, by day, the oldest first: what stayed, and what was repaired.
struct Drift {
    days: Vec<(String, (u64, u64))>,
    /// Whether there is more than was read.
    is_cut: bool,
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
    let asked = &asked;
    let glances = visitor.asked(asked).map(|cluster| async move {
        let user = cluster.user().await.ok().flatten().map(str::to_owned);
        (cluster, user, glance(cluster, asked.get("namespace"), now).await)
    });
    let glances = join_all(glances).await;
    Frame::live(&visitor, "Overview", "").around(&html! {
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

async fn glance(cluster: &Cluster, namespace: Option<&str>, now: Timestamp) -> Result<Glance, Failure> {
    let board = cluster.board(namespace).await?;
    let connection = cluster.connection().await?;
    let exceptions = allowances::read(connection, board.namespace.as_deref(), None, now).await;
    let mut fields: Vec<_> = board.fields(None).into_iter().collect();
    fields.sort_by(|(left, fewer), (right, more)| more.cmp(fewer).then_with(|| left.cmp(right)));
    let here = || board.namespace.clone();
    let (denials, drift) = match cluster.has_ledger() {
        true => {
            let (denials, drift) = tokio::join!(denials(cluster, here(), now), drift(cluster, here(), now));
            (Some(denials), Some(drift))
        }
        false => (None, None),
    };
    Ok(Glance {
        namespace: board.namespace.clone(),
        rows: board.rows(now),
        fields,
        exceptions,
        denials,
        drift,
    })
}

/// The days that are shown, the oldest first, and when they begin.
fn days(now: Timestamp) -> (Vec<Date>, Option<Timestamp>) {
    let today = now.to_zoned(TimeZone::UTC).date();
    let dates: Vec<_> = (0..DAYS).rev().filter_map(|age| today.checked_sub(age.days()).ok()).collect();
    let since = dates.first().and_then(|date| date.to_zoned(TimeZone::UTC).ok()).map(|it| it.timestamp());
    (dates, since)
}

/// The newest rows with these verdicts of the days that are shown.
async fn newest(
    cluster: &Cluster,
    namespace: Option<String>,
    verdicts: &[&str],
    since: Option<Timestamp>,
) -> Result<Vec<Entry>, Failure> {
    let verdicts = verdicts.iter().map(|verdict| (*verdict).to_owned()).collect();
    let filter = Filter { namespace, verdicts, since, ..Filter::default() };
    ledger::newest(cluster.ledger().await?, filter, COUNTED).await
}

async fn denials(cluster: &Cluster, namespace: Option<String>, now: Timestamp) -> Result<Denials, Failure> {
    let (dates, since) = days(now);
    let entries = newest(cluster, namespace, &["Deny"], since).await?;
    let mut days: BTreeMap<String, u64> = dates.iter().map(|date| (date.to_string(), 0)).collect();
    let mut users: BTreeMap<String, u64> = BTreeMap::new();
    for entry in &entries {
        days.entry(day(entry)).and_modify(|count| *count += 1);
        *users.entry(entry.user.clone()).or_default() += 1;
    }
    let mut users: Vec<_> = users.into_iter().collect();
    users.sort_by(|(left, fewer), (right, more)| more.cmp(fewer).then_with(|| left.cmp(right)));
    users.truncate(FIELDS);
    Ok(Denials { days: days.into_iter().collect(), users, is_cut: entries.len() >= COUNTED })
}

async fn drift(cluster: &Cluster, namespace: Option<String>, now: Timestamp) -> Result<Drift, Failure> {
    let (dates, since) = days(now);
    let entries = newest(cluster, namespace, &[LEFT, REPAIRED].concat(), since).await?;
    let empty = |date: &Date| (date.to_string(), (0, 0));
    let mut days: BTreeMap<String, (u64, u64)> = dates.iter().map(empty).collect();
    for entry in &entries {
        let is_left = LEFT.contains(&entry.verdict.as_str());
        days.entry(day(entry)).and_modify(|(left, repaired)| *(if is_left { left } else { repaired }) += 1);
    }
    Ok(Drift { days: days.into_iter().collect(), is_cut: entries.len() >= COUNTED })
}

fn day(entry: &Entry) -> String {
    entry.time.to_zoned(TimeZone::UTC).date().to_string()
}

fn shown(cluster: &Cluster, glance: &Glance, now: Timestamp) -> Markup {
    let Glance { namespace, rows, fields, exceptions, denials, drift } = glance;
    html! {
        @if let Some(namespace) = namespace {
            form.filter method="get" action="./" {
                input type="hidden" name="cluster" value=(cluster.name);
                label { "Namespace" input name="namespace" value=(namespace); }
                button { "Show" }
            }
        }
        (notes(&rows.notes))
        @if !rows.is_blind { (states(cluster, namespace.as_deref(), rows)) }
        div.columns {
            section { h3 { "Fields that drift most" } (drifting(cluster, fields)) }
            section {
                h3 { "Exceptions that end within 24 hours" }
                @match exceptions {
                    Ok(exceptions) => (ending(cluster, exceptions, now)),
                    Err(error) => (trouble(&error.to_string())),
                }
            }
            @match drift {
                None => {},
                Some(Ok(drift)) => (drifted(cluster, drift)),
                Some(Err(error)) => section { h3 { "Drift over time" } (trouble(&error.to_string())) },
            }
            @match denials {
                None => {},
                Some(Ok(denials)) => (denied(cluster, denials)),
                Some(Err(error)) => section { h3 { "Denied changes" } (trouble(&error.to_string())) },
            }
        }
    }
}

/// Drift over time: above the line what stayed, below it what was repaired.
fn drifted(cluster: &Cluster, Drift { days, is_cut }: &Drift) -> Markup {
    let counts = days.iter();
    let counts =
        counts.map(|(day, (worse, better))| DayCounts { label: label(day), worse: *worse, better: *better });
    let link = |day: &str, verdicts: &[&str]| {
        let rows = of_day(Link::to("ledger").with("cluster", &cluster.name), day);
        verdicts.iter().fold(rows, |rows, verdict| rows.with("verdict", verdict)).text()
    };
    html! {
        section {
            h3 { "Drift of " (DAYS) " days" }
            (picture(counts, "No drift was found."))
            ul.ranked {
                @for (day, (left, repaired)) in days.iter().rev().filter(|(_, counts)| *counts != (0, 0)) {
                    li {
                        span { (day) }
                        span.count {
                            a href=(link(day, LEFT)) { (left) " left" } ", " a href=(link(day, REPAIRED)) { (repaired) " repaired" }
                        }
                    }
                }
            }
            @if *is_cut { p.quiet { "Only the newest " (COUNTED) " are counted." } }
        }
    }
}

/// The rows of a day.
fn of_day(rows: Link, day: &str) -> Link {
    rows.with("since", &format!("{day}T00:00:00Z")).with("until", &format!("{day}T23:59:59.999999999Z"))
}

/// The changes that were denied, by day and by user.
fn denied(cluster: &Cluster, Denials { days, users, is_cut }: &Denials) -> Markup {
    let rows = Link::to("ledger").with("cluster", &cluster.name).with("verdict", "Deny");
    let total: u64 = days.iter().map(|(_, count)| count).sum();
    let counts = days.iter().map(|(day, count)| DayCounts { label: label(day), worse: *count, better: 0 });
    let of_user = |user: &str| rows.clone().with("by", user).with("since", SPAN).text();
    html! {
        section {
            h3 { "Denied changes of " (DAYS) " days" }
            (picture(counts, "No change was denied."))
            @if total > 0 {
                ul.ranked {
                    @for (day, count) in days.iter().rev().filter(|(_, count)| *count > 0) {
                        li { a href=(of_day(rows.clone(), day).text()) { (day) } span.count { (count) } }
                    }
                }
                @if *is_cut { p.quiet { "Only the newest " (COUNTED) " are counted." } }
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
fn states(cluster: &Cluster, namespace: Option<&str>, Rows { rows, .. }: &Rows) -> Markup {
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
    let all = Link::to("releases").with("cluster", &cluster.name).set("namespace", namespace);
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

/// A picture of counts that stand beside it as text; `none` where there is nothing to draw.
fn picture(counts: impl Iterator<Item = DayCounts>, none: &str) -> Markup {
    match chart::days(&counts.collect::<Vec<_>>()) {
        // The crate that draws escapes what it writes.
        Ok(Some(picture)) => html! { figure aria-hidden="true" { (maud::PreEscaped(picture)) } },
        Ok(None) => html! { p.quiet { (none) } },
        Err(error) => trouble(&error.to_string()),
    }
}

/// A day below its bars.
fn label(day: &str) -> String {
    day.split_once('-').map_or(day, |(_, day)| day).to_owned()
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
