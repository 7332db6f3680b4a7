//! The first page: the state of the clusters at a glance, and drift and denied changes of the last days.
//!
//! Every number links to exactly the rows that it counts. A failing cluster does not affect the others. The number of
//! counted rows is limited, and no visitor sees counts that were made for another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::response::Response;
use futures::future::join_all;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan as _};
use maud::{Markup, html};
use moka::future::Cache;

use super::fleet::{self as shared, SharedLedger};
use super::html::{
    self as write, LinkScope, PageFrame, PageQuery, mark, notes, pagination, text_field, trouble, utc,
};
use super::ledger::{VisitorLedger, in_time};
use super::release_watch::DriftingFields;
use super::visitor::{VisitedCluster, Visitor, deadline, with_deadline};
use kubemoor_inspect::exceptions::{self, AllowanceState};
use kubemoor_inspect::failure::InspectError;
use kubemoor_inspect::fleet::{self, ClusterRow, DRIFTED};
use kubemoor_inspect::report::{self, DayCounts};
use kubemoor_ledger::query::{EntryPage, Filter};
use kubemoor_verdict::health::{HealthReason, Ready};

const FIELDS: usize = 8;
const ALL_FIELDS: usize = 500;

/// The query parameter for the page of all fields.
const ALL: &str = "fields";

/// Exceptions that end within this time are listed as ending soon.
const SOON: SignedDuration = SignedDuration::from_hours(24);

const ENDING: usize = 8;

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

pub(super) async fn page(Extension(visitor): Extension<Arc<Visitor>>, asked: PageQuery) -> Response {
    let now = Timestamp::now();
    let content = match &visitor.shared {
        Some(shared) => of_database(shared, &asked, now).await,
        None => of_clusters(&visitor, &asked, now).await,
    };
    PageFrame::live(&visitor, "Overview", "").around(&html! { h1 { "Overview" } (content) })
}

async fn of_clusters(visitor: &Visitor, asked: &PageQuery, now: Timestamp) -> Markup {
    let glances = visitor.asked(asked).map(|cluster| async move {
        let (user, glance) =
            tokio::join!(with_deadline(deadline(), cluster.user()), Box::pin(glance(cluster, asked, now)));
        (cluster, user.ok().flatten(), glance)
    });
    let glances = join_all(glances).await;
    html! {
        @if visitor.has_several() {
            @let rows: Vec<_> = glances.iter().map(|(cluster, _, glance)| match glance {
                Ok((row, namespace, _)) => (row.clone(), namespace.as_deref()),
                Err(error) => (ClusterRow::failed(&cluster.name, error.to_string()), None),
            }).collect();
            (clusters_table(&rows, now))
        }
        @for (cluster, user, glance) in &glances {
            section.cluster {
                h2 { (cluster.name) }
                @if let Some(user) = user { p.quiet { "as " (user) } }
                @match glance {
                    Ok((_, _, shown)) => (shown),
                    Err(error) => (trouble(&error.to_string())),
                }
            }
        }
    }
}

/// All clusters of a database, or the requested ones.
async fn of_database(shared: &SharedLedger, asked: &PageQuery, now: Timestamp) -> Markup {
    let place = LinkScope { cluster: asked.get("cluster"), namespace: asked.get("namespace") };
    let wanted = shared::wanted(asked);
    let (clusters, history) = tokio::join!(
        fleet::clusters(&shared.store, &wanted, &[]),
        recent_history(&shared.histories, &shared.ledger, place, now)
    );
    html! {
        form.filter method="get" action="./" role="search" {
            (text_field(asked, "Cluster", "cluster", "all"))
            (text_field(asked, "Namespace", "namespace", "all"))
            button { "Show" }
        }
        @match clusters {
            Err(error) => (trouble(&error.to_string())),
            Ok(clusters) if clusters.is_empty() => {
                p.quiet { "No cluster is found: no guard of a cluster that you may see writes to this ledger." }
            }
            Ok(clusters) => {
                (tiles(place, &clusters))
                h2 { "Clusters" }
                @let rows: Vec<_> = clusters.into_iter().map(|row| (row, place.namespace)).collect();
                (clusters_table(&rows, now))
                div.columns { (last_days(&history, place)) }
            }
        }
    }
}

/// A cluster, the only namespace that is shown if the visitor may not list all, and the rendered section.
async fn glance(
    cluster: &VisitedCluster,
    asked: &PageQuery,
    now: Timestamp,
) -> Result<(ClusterRow, Option<String>, Markup), InspectError> {
    let (end, chosen) = (deadline(), asked.get("namespace"));
    let board = with_deadline(end, cluster.board(chosen)).await?;
    let connection = cluster.connection().await?;
    let namespace = board.namespace();
    let place = LinkScope { cluster: Some(&cluster.name), namespace };
    if board.is_forbidden() {
        cluster.histories.invalidate_all();
    }
    // Boxed: together these futures would overflow the thread's stack.
    let history = Box::pin(async {
        let ledger = Box::pin(cluster.ledger()).await?;
        Box::pin(recent_history(&cluster.histories, &ledger, LinkScope { cluster: None, namespace }, now))
            .await
    });
    let exceptions = with_deadline(end, exceptions::read(connection, namespace, None, now));
    let rows = board.rows(now);
    let at_a_glance = Box::pin(fleet::at_a_glance(&cluster.name, &connection.client, namespace, &rows.rows));
    // A cluster has less time to answer than a ledger.
    let (exceptions, history, row) = tokio::try_join!(
        async { Ok(exceptions.await) },
        async { Ok(history.await) },
        with_deadline(end, async { Ok(at_a_glance.await) })
    )?;
    let shown = html! {
        @if let Some(namespace) = namespace {
            @if board.only(chosen).is_some() { p.note { (write::only(namespace)) } }
            form.filter method="get" action="./" {
                input type="hidden" name="cluster" value=(cluster.name);
                label { "Namespace" input name="namespace" value=(namespace); }
                button { "Show" }
            }
        }
        (notes(&cluster.name, &rows.notes))
        @if let Ok(history) = &history { (notes(&format!("ledger-{}", cluster.name), &history.missing)) }
        @if !rows.is_unreadable { (tiles(place, std::slice::from_ref(&row))) }
        div.columns {
            section { h3 { "Fields that drift most" } (drifting(place, asked, &board.fields())) }
            section {
                h3 { "Exceptions that end within 24 hours" }
                @match &exceptions {
                    Ok(exceptions) => (ending(place, exceptions, now)),
                    Err(error) => (trouble(&error.to_string())),
                }
            }
            (last_days(&history, place))
        }
    };
    Ok((row, namespace.map(str::to_owned), shown))
}

/// The releases by state, those that need attention first.
fn tiles(place: LinkScope<'_>, clusters: &[ClusterRow]) -> Markup {
    let states = fleet::states(clusters).into_iter().map(|(state, count)| {
        let reason = HealthReason::ALL.iter().enumerate().find(|(_, it)| it.as_str() == state);
        let (rank, class) = match reason.map(|(_, it)| it.ready()) {
            Some(Ready::False) => (0, "tile bad"),
            Some(Ready::True) => (2, "tile good"),
            Some(Ready::Unknown) | None => (1, "tile doubt"),
        };
        (rank, reason.map_or(usize::MAX, |(place, _)| place), state, class, count)
    });
    let mut states: Vec<_> = states.collect();
    states.sort_unstable();
    let all = place.link("releases");
    html! {
        ul.tiles {
            @let count: u64 = clusters.iter().map(|cluster| cluster.releases).sum();
            li { a.tile href=(all.text()) { strong { (count) } span { "Releases" } } }
            @for (_, _, state, class, count) in states {
                li { a class=(class) href=(all.clone().with("state", state).text()) {
                    strong { (count) } span { (write::words(state)) }
                } }
            }
        }
    }
}

/// The fields that drift in most releases, or a page of all fields that drift.
fn drifting(
    place: LinkScope<'_>,
    asked: &PageQuery,
    DriftingFields { ranked, is_cut }: &DriftingFields,
) -> Markup {
    let link = |field: &str| place.link("releases").with("field", field).text();
    let (page, pages) = asked.page(ALL, ranked.len(), ALL_FIELDS);
    let of_page = |page: &str| place.link("").with(ALL, page).text();
    let (before, most) = match asked.get(ALL) {
        Some(_) => ((page - 1) * ALL_FIELDS, ALL_FIELDS),
        None => (0, FIELDS),
    };
    html! {
        @if ranked.is_empty() { p.quiet { "No field drifts." } }
        ul.ranked {
            @for (name, releases) in ranked.iter().skip(before).take(most) {
                li { a href=(link(name)) { code { (name) } span.count { (releases) } } }
            }
        }
        @if *is_cut {
            p.quiet { "The status of a release names 10 drifted objects, with 10 fields of each: further releases may have the field." }
        }
        @if asked.get(ALL).is_some() {
            (pagination("Pages of fields", (page, pages), |page| of_page(&page.to_string())))
        } @else if ranked.len() > most {
            p { a href=(of_page("all")) { "and " (ranked.len() - most) " more fields" } }
        }
    }
}

fn ending(place: LinkScope<'_>, exceptions: &[exceptions::ListedAllowance], now: Timestamp) -> Markup {
    let open: Vec<_> = exceptions.iter().filter(|row| row.state == AllowanceState::Open).collect();
    let mut ending: Vec<(Timestamp, &exceptions::ListedAllowance)> =
        open.iter().filter_map(|row| Some((row.until.parse().ok()?, *row))).collect();
    ending.retain(|(until, _): &(Timestamp, _)| until.duration_since(now) <= SOON);
    ending.sort_by_key(|(until, _)| *until);
    let of = |row: &exceptions::ListedAllowance| {
        place.link("exceptions").set("namespace", Some(&row.namespace)).text()
    };
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

/// The clusters, each with the only namespace that is shown, if any.
fn clusters_table(rows: &[(ClusterRow, Option<&str>)], now: Timestamp) -> Markup {
    let lines = html! { @for (row, namespace) in rows { (cluster_line(row, *namespace, now)) } };
    write::table("Clusters", &write::heads(&HEADS), &lines)
}

fn cluster_line(row: &ClusterRow, namespace: Option<&str>, now: Timestamp) -> Markup {
    let place = LinkScope { cluster: Some(&row.cluster), namespace };
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
                // Only a shared ledger records when the guard's certificate expires.
                td {
                    @if let Some(until) = row.certificate_until {
                        @if until <= now { (mark("bad", "Ended")) " " }
                        (write::time(until, now))
                    }
                }
                td {
                    @match (row.stale_since, row.last_seen) {
                        (Some(since), _) => (mark("bad", &format!("Stale since {}", utc(since)))),
                        (None, Some(heard)) => (write::time(heard, now)),
                        (None, None) => "not known",
                    }
                }
            }
        }
    }
}

/// The number of days, and the maximum number of rows to count.
const DAYS: i64 = 10;
const COUNTED: usize = 5000;

const USERS: usize = 8;

/// How long a count is cached, and the size of the cache.
const HISTORY_KEPT: Duration = Duration::from_secs(30);
const KEPT_HISTORIES: u64 = 64;

/// The verdicts for drift that stays, drift that was repaired, and changes that were denied.
pub(super) const LEFT: &[&str] = &["Reported", "Failed"];
const REPAIRED: &[&str] = &["Restored", "Recreated"];
const DENIED: &[&str] = &["Deny"];

/// The counts of the last days.
pub(super) struct RecentHistory {
    days: BTreeMap<Date, VerdictCounts>,
    since: Timestamp,
    /// Whether it covers a shorter time, because there are more rows than are counted.
    is_cut: bool,
    /// Users whose changes were denied, the most denials first.
    users: Vec<(String, u64)>,
    /// Messages about ledgers whose rows are missing.
    missing: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct VerdictCounts {
    left: u64,
    repaired: u64,
    denied: u64,
}

/// Cached counts by cluster and namespace. Failures are not cached.
pub(super) type HistoryCache = Cache<(Option<String>, Option<String>), Arc<RecentHistory>>;

pub(super) fn histories() -> HistoryCache {
    Cache::builder().max_capacity(KEPT_HISTORIES).time_to_live(HISTORY_KEPT).build()
}

/// One kind of count: its label, the verdicts of its rows, and its field in [`VerdictCounts`].
type Counted = (&'static str, &'static [&'static str], fn(&VerdictCounts) -> u64);

const DRIFT: [Counted; 2] =
    [(" left", LEFT, |counts| counts.left), (" repaired", REPAIRED, |counts| counts.repaired)];
const DENIALS: [Counted; 1] = [(" denied", DENIED, |counts| counts.denied)];

/// Renders the history as sections of a page.
fn last_days(history: &Result<Arc<RecentHistory>, Arc<InspectError>>, place: LinkScope<'_>) -> Markup {
    let history = match history {
        Ok(history) => history,
        Err(error) => return html! { section { h3 { "Ledger" } p.note { (error) } } },
    };
    let denied = place.link("ledger").with("verdict", "Deny").with("since", &history.since.to_string());
    html! {
        (by_day("Drift", history, place, "No drift was found.", &DRIFT))
        (by_day("Denied changes", history, place, "No change was denied.", &DENIALS))
        @if !history.users.is_empty() {
            section {
                h3 { "Users whose changes were denied" }
                ul.ranked { @for (user, count) in history.users.iter().take(USERS) {
                    li { a href=(denied.clone().with("by", user).text()) { span { (user) } span.count { (count) } } }
                } }
                @if history.users.len() > USERS {
                    p { a href=(denied.text()) {
                        "and " (history.users.len() - USERS) " more users, among all denied changes"
                    } }
                }
            }
        }
    }
}

/// Counts by day, as a chart and as text. The chart shows the first count above the line and the second below it.
fn by_day(
    what: &str,
    history: &RecentHistory,
    place: LinkScope<'_>,
    none: &str,
    counted: &[Counted],
) -> Markup {
    let number = |day: Date, counts: &VerdictCounts, (words, verdicts, count): &Counted| {
        let begin = day.to_zoned(TimeZone::UTC).map_or(history.since, |begin| begin.timestamp());
        let rows = place.link("ledger").with("since", &begin.max(history.since).to_string());
        let rows = rows.with("until", &format!("{day}T23:59:59.999999999Z"));
        let rows = verdicts.iter().fold(rows, |rows, verdict| rows.with("verdict", verdict));
        html! { @match count(counts) { 0 => { "0" (words) } count => a href=(rows.text()) { (count) (words) } } }
    };
    let drawn: Vec<_> = history
        .days
        .iter()
        .map(|(day, counts)| {
            let mut numbers = counted.iter().map(|(.., count)| count(counts));
            let (worse, better) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
            DayCounts { day: *day, worse, better }
        })
        .collect();
    html! {
        section {
            h3 { (what) " of " (DAYS) " days" }
            @match report::days(&drawn) {
                // The SVG holds only numbers and days.
                Some(picture) => figure aria-hidden="true" { (maud::PreEscaped(picture)) },
                None => p.quiet { (none) },
            }
            ul.ranked {
                @for (day, counts) in history.days.iter().rev() {
                    @if counted.iter().any(|(.., count)| count(counts) > 0) {
                        li {
                            span { (day) }
                            span.count { @for (place, one) in counted.iter().enumerate() {
                                @if place > 0 { ", " }
                                (number(*day, counts, one))
                            } }
                        }
                    }
                }
            }
            @if history.is_cut {
                p.quiet {
                    "Only the newest " (COUNTED) " rows are counted, those since " (utc(history.since))
                    ". The ledger has older ones of these " (DAYS) " days."
                }
            }
        }
    }
}

impl RecentHistory {
    /// Counts the newest rows; if there are older ones that were not read, the history starts at the last row that was.
    fn count(since: Timestamp, now: Timestamp, newest: EntryPage) -> Self {
        let last = newest.items.last().filter(|_| newest.next.is_some()).map(|last| last.time);
        let since = last.unwrap_or(since);
        let days = date(since).series(1.day()).take_while(|day| *day <= date(now));
        let mut days: BTreeMap<Date, VerdictCounts> =
            days.map(|day| (day, VerdictCounts::default())).collect();
        let mut users: BTreeMap<String, u64> = BTreeMap::new();
        for entry in newest.items {
            let counts = days.entry(date(entry.time)).or_default();
            let is_of = |verdicts: &[&str]| verdicts.contains(&entry.verdict.as_str());
            if is_of(DENIED) {
                counts.denied += 1;
                *users.entry(entry.user).or_default() += 1;
            } else {
                *(if is_of(LEFT) { &mut counts.left } else { &mut counts.repaired }) += 1;
            }
        }
        let mut users: Vec<_> = users.into_iter().collect();
        users.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        Self { days, since, is_cut: last.is_some(), users, missing: newest.missing }
    }
}

/// The history of a cluster and namespace, from the cache or from `ledger`.
async fn recent_history(
    histories: &HistoryCache,
    ledger: &VisitorLedger,
    place: LinkScope<'_>,
    now: Timestamp,
) -> Result<Arc<RecentHistory>, Arc<InspectError>> {
    let (cluster, namespace) = (place.cluster.map(str::to_owned), place.namespace.map(str::to_owned));
    let since = since(now);
    let verdicts = [LEFT, REPAIRED, DENIED].concat().into_iter().map(str::to_owned).collect();
    let filter = Filter {
        cluster: cluster.clone(),
        namespace: namespace.clone(),
        verdicts,
        since: Some(since),
        ..Filter::default()
    };
    let read = async {
        let newest = in_time(ledger.newest(&filter, COUNTED)).await?;
        Ok::<_, InspectError>(Arc::new(RecentHistory::count(since, now, newest)))
    };
    histories.try_get_with((cluster, namespace), read).await
}

/// The start of the first counted day.
fn since(now: Timestamp) -> Timestamp {
    let first = date(now).checked_sub((DAYS - 1).days()).and_then(|first| first.to_zoned(TimeZone::UTC));
    first.map_or(now, |first| first.timestamp())
}

fn date(time: Timestamp) -> Date {
    time.to_zoned(TimeZone::UTC).date()
}

#[cfg(test)]
mod tests;
