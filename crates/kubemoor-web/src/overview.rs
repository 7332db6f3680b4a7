//! The first page: the state of the clusters at a glance.
//!
//! Every number links to the rows behind it, and to no others. A cluster that fails affects no other.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::response::Response;
use futures::future::join_all;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};

use super::address::{Asked, Link, Place};
use super::board::{Field, Rows};
use super::cluster::{Cluster, by, deadline};
use super::history::{COUNTED, DAYS, Denials, Drift, History, LEFT, Place as Counted, REPAIRED, Span};
use super::html::{self as write, Frame, notes, trouble, turns};
use super::visitor::Visitor;
use kubemoor_inspect::allowances::{self, State};
use kubemoor_inspect::chart::{self, DayCounts};
use kubemoor_inspect::failure::Failure;
use kubemoor_inspect::fleet::{self, ClusterRow, DRIFTED};
use kubemoor_verdict::health::Reason;

/// Fields that are shown, and on a page of all of them.
const FIELDS: usize = 8;
const ALL_FIELDS: usize = 500;

/// The name in an address of the page of all fields.
const PAGE: &str = "fields";

/// Exceptions that end within that time are about to end.
const SOON: SignedDuration = SignedDuration::from_hours(24);

/// Exceptions that are shown; their own page has all.
const ENDING: usize = 8;

/// The columns of the table of clusters.
const HEADS: [&str; 8] = [
    "Cluster",
    "Releases",
    "Drifted",
    "Oldest drift",
    "States",
    "Guard",
    "Certificate ends",
    "Last sign of life",
];

/// What is known of a cluster at a glance.
struct Glance {
    cluster: ClusterRow,
    /// The one that is shown to a visitor who may not list all.
    namespace: Option<String>,
    /// Whether nobody chose it.
    is_narrowed: bool,
    rows: Rows,
    fields: Vec<Field>,
    exceptions: Result<Vec<allowances::Row>, Failure>,
    history: Result<Arc<History>, Arc<Failure>>,
}

/// The page.
pub(super) async fn page(Extension(visitor): Extension<Arc<Visitor>>, asked: Asked) -> Response {
    let now = Timestamp::now();
    let asked = &asked;
    let glances = visitor.asked(asked).map(|cluster| async move {
        let (user, glance) = tokio::join!(
            by(deadline(), cluster.user()),
            Box::pin(glance(cluster, asked.get("namespace"), now))
        );
        (cluster, user.ok().flatten().map(str::to_owned), glance)
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
            (clusters_table(&rows, now))
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

async fn glance(cluster: &Cluster, chosen: Option<&str>, now: Timestamp) -> Result<Glance, Failure> {
    let end = deadline();
    let board = by(end, cluster.board(chosen)).await?;
    let is_narrowed = board.only(chosen).is_some();
    let connection = cluster.connection().await?;
    let namespace = board.namespace.clone();
    if board.is_forbidden() {
        cluster.histories.forget();
    }
    // On the heap: all of it together would not fit onto the stack of a thread.
    let history = Box::pin(async {
        let counted = Counted { namespace: namespace.clone(), ..Counted::default() };
        let ledger = Box::pin(cluster.ledger()).await?;
        Box::pin(cluster.histories.read(&ledger, counted, now)).await
    });
    let exceptions = async {
        match board.exceptions(now) {
            Some(exceptions) => Ok(exceptions),
            // Nothing follows them, or not yet.
            None => by(end, allowances::read(connection, namespace.as_deref(), None, now)).await,
        }
    };
    let rows = board.rows(now);
    let at_a_glance =
        Box::pin(fleet::at_a_glance(&cluster.name, &connection.client, namespace.as_deref(), &rows.rows));
    // A cluster that does not answer is not waited for as long as a ledger is.
    let (exceptions, history, cluster) = tokio::try_join!(
        async { Ok(exceptions.await) },
        async { Ok(history.await) },
        by(end, async { Ok(at_a_glance.await) })
    )?;
    let fields = board.fields(None).ranked();
    Ok(Glance { cluster, namespace, is_narrowed, rows, fields, exceptions, history })
}

fn shown(cluster: &Cluster, glance: &Glance, asked: &Asked, now: Timestamp) -> Markup {
    let Glance { cluster: _, namespace, is_narrowed, rows, fields, exceptions, history } = glance;
    let place = Place { cluster: Some(&cluster.name), namespace: namespace.as_deref() };
    html! {
        @if let Some(namespace) = namespace {
            @if *is_narrowed { p.note { (write::only(namespace)) } }
            form.filter method="get" action="./" {
                input type="hidden" name="cluster" value=(cluster.name);
                label { "Namespace" input name="namespace" value=(namespace); }
                button { "Show" }
            }
        }
        (notes(&cluster.name, &rows.notes))
        @if let Ok(history) = history { (notes(&format!("ledger-{}", cluster.name), &history.missing)) }
        @if !rows.is_blind { (states(place, rows)) }
        div.columns {
            section { h3 { "Fields that drift most" } (drifting(place, asked, fields)) }
            section {
                h3 { "Exceptions that end within 24 hours" }
                @match exceptions {
                    Ok(exceptions) => (ending(place, exceptions, now)),
                    Err(error) => (trouble(&error.to_string())),
                }
            }
            @match history {
                Ok(history) => (last_days(history, place)),
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

/// The fields that drift in most releases, or a page of all fields that drift.
fn drifting(place: Place<'_>, asked: &Asked, fields: &[Field]) -> Markup {
    if fields.is_empty() {
        return html! { p.quiet { "No field drifts." } };
    }
    let link = |field: &str| place.link("releases").with("field", field).text();
    let (page, pages) = asked.page(PAGE, fields.len(), ALL_FIELDS);
    let of_page = |page: &str| place.link("").with(PAGE, page).text();
    let (before, most) = match asked.get(PAGE) {
        Some(_) => ((page - 1) * ALL_FIELDS, ALL_FIELDS),
        None => (0, FIELDS),
    };
    html! {
        ul.ranked {
            @for Field { name, releases, is_least } in fields.iter().skip(before).take(most) {
                li { a href=(link(name)) {
                    code { (name) }
                    span.count { @if *is_least { "at least " } (releases) }
                } }
            }
        }
        @if fields.iter().any(|field| field.is_least) {
            p.quiet { "The status of a release names 10 drifted objects, with 10 fields of each: further releases may have the field." }
        }
        @if asked.get(PAGE).is_some() {
            (turns("Pages of fields", (page, pages), |page| of_page(&page.to_string())))
        } @else if fields.len() > most {
            p { a href=(of_page("all")) { "and " (fields.len() - most) " more fields" } }
        }
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
            @if ending.len() > ENDING {
                p { a href=(place.link("exceptions").text()) { "and " (ending.len() - ENDING) " more, among all exceptions" } }
            }
        }
        p {
            a href=(place.link("exceptions").text()) {
                (open.len()) @if open.len() == 1 { " open exception" } @else { " open exceptions" }
            }
        }
    }
}

/// What happened, as sections of a page.
pub(super) fn last_days(history: &History, place: Place<'_>) -> Markup {
    html! { (drifted(place, &history.drift)) (denied(place, &history.denials)) }
}

/// Drift over time: above the line what stayed, below it what was repaired.
fn drifted(place: Place<'_>, Drift { span, days }: &Drift) -> Markup {
    let counts = days.iter();
    let counts =
        counts.map(|(day, (worse, better))| DayCounts { label: label(*day), worse: *worse, better: *better });
    let link = |day: Date, verdicts: &[&str]| {
        let rows = rows_of(span, place.link("ledger"), day);
        verdicts.iter().fold(rows, |rows, verdict| rows.with("verdict", verdict)).text()
    };
    html! {
        section {
            h3 { "Drift of " (DAYS) " days" }
            (picture(counts, "No drift was found."))
            ul.ranked {
                @for (day, (left, repaired)) in days.iter().rev().filter(|(_, counts)| **counts != (0, 0)) {
                    li {
                        span { (day) }
                        span.count { (number(*left, " left", &link(*day, LEFT))) ", " (number(*repaired, " repaired", &link(*day, REPAIRED))) }
                    }
                }
            }
            (note(span))
        }
    }
}

/// A number that leads to its rows, where there are any.
fn number(count: u64, words: &str, link: &str) -> Markup {
    html! { @if count == 0 { (count) (words) } @else { a href=(link) { (count) (words) } } }
}

/// The changes that were denied, by day and by user.
fn denied(place: Place<'_>, Denials { span, days, users, more_users }: &Denials) -> Markup {
    let rows = place.link("ledger").with("verdict", "Deny");
    let counts = days.iter().map(|(day, count)| DayCounts { label: label(*day), worse: *count, better: 0 });
    let of_user = |user: &str| rows.clone().with("by", user).with("since", &span.since.to_string()).text();
    html! {
        section {
            h3 { "Denied changes of " (DAYS) " days" }
            (picture(counts, "No change was denied."))
            @if days.values().any(|count| *count > 0) {
                ul.ranked {
                    @for (day, count) in days.iter().rev().filter(|(_, count)| **count > 0) {
                        li { a href=(rows_of(span, rows.clone(), *day).text()) { span { (day) } span.count { (count) } } }
                    }
                }
                (note(span))
            }
        }
        @if !users.is_empty() {
            section {
                h3 { "Users whose changes were denied" }
                ul.ranked { @for (user, count) in users {
                    li { a href=(of_user(user)) { span { (user) } span.count { (count) } } }
                } }
                @if *more_users > 0 {
                    p { a href=(rows.clone().with("since", &span.since.to_string()).text()) {
                        "and " (more_users) " more users, among all denied changes"
                    } }
                }
            }
        }
    }
}

/// The rows of one day of a span.
fn rows_of(span: &Span, rows: Link, day: Date) -> Link {
    let begin = day.to_zoned(TimeZone::UTC).map_or(span.since, |begin| begin.timestamp().max(span.since));
    rows.with("since", &begin.to_string()).with("until", &format!("{day}T23:59:59.999999999Z"))
}

/// What a number of a span does not count.
fn note(span: &Span) -> Markup {
    html! {
        @if span.is_cut {
            p.quiet {
                "Only the newest " (COUNTED) " rows are counted, those since "
                (span.since.strftime("%Y-%m-%dT%H:%M:%SZ")) ". The ledger has older ones of these " (DAYS) " days."
            }
        }
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
fn label(day: Date) -> String {
    day.strftime("%m-%d").to_string()
}

/// The clusters, each with the namespace that is shown of it.
pub(super) fn clusters_table(rows: &[(&ClusterRow, Option<&str>)], now: Timestamp) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label="Clusters" {
            table {
                thead { tr { @for head in HEADS { th scope="col" { (head) } } } }
                tbody { @for (row, namespace) in rows { (cluster_line(row, *namespace, now)) } }
            }
        }
    }
}

fn cluster_line(row: &ClusterRow, namespace: Option<&str>, now: Timestamp) -> Markup {
    let place = Place { cluster: Some(&row.cluster), namespace };
    let releases = place.link("releases");
    let of_state = |state: &str| releases.clone().with("state", state).text();
    html! {
        tr {
            th scope="row" { a href=(place.link("").text()) { (row.cluster) } }
            @if let Some(error) = &row.error { td.message colspan="7" { (error) } } @else {
                td.number { a href=(releases.text()) { (row.releases) } }
                td.number {
                    @if row.drifted == 0 { "0" } @else { a href=(of_state(DRIFTED)) { (row.drifted) } }
                }
                td { @if let Some(oldest) = row.oldest_drift { (write::time(oldest, now)) } }
                td {
                    @for (state, count) in fleet::states([row]) {
                        a.below href=(of_state(state)) { (write::words(state)) " " (count) }
                    }
                }
                td { (row.version.as_deref().unwrap_or_default()) }
                td { @if let Some(until) = row.certificate_until { (certificate(until, now)) } }
                td { (heard(row, now)) }
            }
        }
    }
}

/// When the guard's certificate ends. Only a shared ledger knows.
fn certificate(until: Timestamp, now: Timestamp) -> Markup {
    html! {
        @if until <= now { span.badge.bad { "Ended" } " " }
        (write::time(until, now))
    }
}

fn heard(row: &ClusterRow, now: Timestamp) -> Markup {
    html! {
        @match (row.stale_since, row.last_heard) {
            (Some(since), _) => span.badge.bad { "Stale since " (since.strftime("%Y-%m-%dT%H:%M:%SZ")) },
            (None, Some(heard)) => (write::time(heard, now)),
            (None, None) => "not known",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use kubemoor_ledger::entry::Entry;
    use kubemoor_ledger::query::Page;
    fn entry(time: &str, user: &str, verdict: &str) -> Entry {
        serde_json::from_value(json!({
            "id": "1", "time": time, "kind": "verdict", "cluster": "here", "namespace": "shop", "release": "web",
            "revision": 1, "object": {"group": "apps", "kind": "Deployment", "namespace": "shop", "name": "web"},
            "operation": "UPDATE", "user": user, "groups": [], "verdict": verdict, "reason": "drift", "detail": "",
            "fields": [], "moreFields": 0, "uid": "",
        }))
        .unwrap()
    }

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// Everything until the evening of the tenth of January.
    fn span() -> Span {
        Span::until(time("2026-01-10T19:00:00Z"))
    }

    fn newest(entries: impl Into<Vec<Entry>>, next: Option<&str>) -> Page {
        Page { items: entries.into(), next: next.map(str::to_owned), missing: Vec::new() }
    }

    #[test]
    fn days_and_users_are_counted_since_one_time() {
        let entries = [
            entry("2026-01-10T12:00:00Z", "alice", "Deny"),
            entry("2026-01-01T00:00:00Z", "alice", "Deny"),
            entry("2026-01-01T00:00:00Z", "bob", "Deny"),
        ];
        let denials = Denials::of(&span(), &newest(entries, None));
        assert_eq!(denials.users, [("alice".to_owned(), 2), ("bob".to_owned(), 1)]);
        assert_eq!(denials.days.len(), 10);
        assert_eq!(denials.days.values().sum::<u64>(), 3);
        let place = Place { cluster: None, namespace: None };
        let shown = denied(place, &denials).into_string();
        let since = "since=2026%2D01%2D01T00%3A00%3A00Z";
        assert!(shown.contains(&format!("by=alice&amp;{since}")), "{shown}");
        assert!(shown.contains(&format!("verdict=Deny&amp;{since}&amp;until=2026%2D01%2D01T23")), "{shown}");
        assert!(!shown.contains("Only the newest"), "{shown}");
    }

    #[test]
    fn days_beyond_the_newest_rows_are_named_and_not_shown() {
        let entries = [
            entry("2026-01-10T12:00:00Z", "alice", "Reported"),
            entry("2026-01-09T12:00:00Z", "alice", "Restored"),
        ];
        let drift = Drift::of(&span(), &newest(entries, Some("7")));
        let days: Vec<_> = drift.days.iter().map(|(day, counts)| (day.to_string(), *counts)).collect();
        assert_eq!(days, [("2026-01-09".to_owned(), (0, 1)), ("2026-01-10".to_owned(), (1, 0))]);
        let place = Place { cluster: None, namespace: None };
        let shown = drifted(place, &drift).into_string();
        for part in [
            "those since 2026-01-09T12:00:00Z",
            "since=2026%2D01%2D09T12%3A00%3A00Z&amp;until=2026%2D01%2D09T23",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(!shown.contains("2026-01-08"), "{shown}");
    }

    #[test]
    fn as_many_rows_as_are_counted_are_not_called_cut() {
        let entry = entry("2026-01-02T12:00:00Z", "alice", "Deny");
        let denials = Denials::of(&span(), &newest(vec![entry; COUNTED], None));
        assert!(!denials.span.is_cut && denials.days.len() == 10, "{:?}", denials.span);
    }
}
