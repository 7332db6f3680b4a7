//! The first page: the state of the clusters at a glance, and drift and denied changes of the last days.
//!
//! Every number links to the rows behind it, and to no others. A cluster that fails affects no other. So many rows are
//! counted at most, and what was counted for one visitor is shown to no other.

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
use tokio::time::timeout;

use super::board::{DriftingField, Rows};
use super::html::{
    self as write, LinkScope, PageFrame, PageLink, PageQuery, mark, notes, tile, trouble, turns, utc,
};
use super::ledger::VisitorLedger;
use super::visitor::{VisitedCluster, Visitor, by, deadline};
use kubemoor_inspect::exceptions::{self, AllowanceState};
use kubemoor_inspect::failure::InspectError;
use kubemoor_inspect::fleet::{self, ClusterRow, DRIFTED};
use kubemoor_inspect::ledger::add_new;
use kubemoor_inspect::report::{self, DayCounts};
use kubemoor_ledger::query::{EntryPage, Filter};
use kubemoor_verdict::health::HealthReason;

const FIELDS: usize = 8;
const ALL_FIELDS: usize = 500;

/// The name in an address of the page of all fields.
const ALL: &str = "fields";

/// Exceptions that end within that time are about to end.
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

struct Glance {
    cluster: ClusterRow,
    /// The one that is shown to a visitor who may not list all.
    namespace: Option<String>,
    /// Whether nobody chose it.
    is_narrowed: bool,
    rows: Rows,
    fields: Vec<DriftingField>,
    exceptions: Result<Vec<exceptions::ListedAllowance>, InspectError>,
    history: Result<Arc<RecentHistory>, Arc<InspectError>>,
}

pub(super) async fn page(Extension(visitor): Extension<Arc<Visitor>>, asked: PageQuery) -> Response {
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
    PageFrame::live(&visitor, "Overview", "").around(&html! {
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

async fn glance(
    cluster: &VisitedCluster,
    chosen: Option<&str>,
    now: Timestamp,
) -> Result<Glance, InspectError> {
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
        let counted = HistoryKey { namespace: namespace.clone(), ..HistoryKey::default() };
        let ledger = Box::pin(cluster.ledger()).await?;
        Box::pin(cluster.histories.read(&ledger, counted, now)).await
    });
    let exceptions = async {
        match board.exceptions(now) {
            Some(exceptions) => Ok(exceptions),
            // Nothing follows them, or not yet.
            None => by(end, exceptions::read(connection, namespace.as_deref(), None, now)).await,
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

fn shown(cluster: &VisitedCluster, glance: &Glance, asked: &PageQuery, now: Timestamp) -> Markup {
    let Glance { cluster: _, namespace, is_narrowed, rows, fields, exceptions, history } = glance;
    let place = LinkScope { cluster: Some(&cluster.name), namespace: namespace.as_deref() };
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
fn states(place: LinkScope<'_>, Rows { rows, .. }: &Rows) -> Markup {
    let place_of =
        |state: &str| HealthReason::ALL.iter().position(|it| it.as_str() == state).unwrap_or(usize::MAX);
    let mut counts: BTreeMap<(u8, usize, &str), u64> = BTreeMap::new();
    for row in rows {
        let state = write::state(row);
        let place = place_of(state);
        let rank = match (row.guarded, row.ready.as_deref()) {
            (true, Some("False")) => 0,
            (true, Some("True")) => 2,
            _ => 1,
        };
        *counts.entry((rank, place, state)).or_default() += 1;
        // The list finds every release with drift, also one whose repairs are paused.
        if state != DRIFTED && row.drifted.is_some_and(|drifted| drifted > 0) {
            *counts.entry((0, place_of(DRIFTED), DRIFTED)).or_default() += 1;
        }
    }
    let all = place.link("releases");
    html! {
        ul.tiles {
            li { a.tile href=(all.text()) { strong { (rows.len()) } span { "Releases" } } }
            @for ((rank, _, state), count) in &counts {
                @let class = match rank { 0 => "tile bad", 1 => "tile doubt", _ => "tile good" };
                (tile(class, *count, state, &all))
            }
        }
    }
}

/// The fields that drift in most releases, or a page of all fields that drift.
fn drifting(place: LinkScope<'_>, asked: &PageQuery, fields: &[DriftingField]) -> Markup {
    if fields.is_empty() {
        return html! { p.quiet { "No field drifts." } };
    }
    let link = |field: &str| place.link("releases").with("field", field).text();
    let (page, pages) = asked.page(ALL, fields.len(), ALL_FIELDS);
    let of_page = |page: &str| place.link("").with(ALL, page).text();
    let (before, most) = match asked.get(ALL) {
        Some(_) => ((page - 1) * ALL_FIELDS, ALL_FIELDS),
        None => (0, FIELDS),
    };
    html! {
        ul.ranked {
            @for DriftingField { name, releases, is_least } in fields.iter().skip(before).take(most) {
                li { a href=(link(name)) {
                    code { (name) }
                    span.count { @if *is_least { "at least " } (releases) }
                } }
            }
        }
        @if fields.iter().any(|field| field.is_least) {
            p.quiet { "The status of a release names 10 drifted objects, with 10 fields of each: further releases may have the field." }
        }
        @if asked.get(ALL).is_some() {
            (turns("Pages of fields", (page, pages), |page| of_page(&page.to_string())))
        } @else if fields.len() > most {
            p { a href=(of_page("all")) { "and " (fields.len() - most) " more fields" } }
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

/// What happened, as sections of a page.
pub(super) fn last_days(history: &RecentHistory, place: LinkScope<'_>) -> Markup {
    html! { (drifted(place, &history.drift)) (denied(place, &history.denials)) }
}

/// Drift over time: above the line what stayed, below it what was repaired.
fn drifted(place: LinkScope<'_>, DriftHistory { span, days }: &DriftHistory) -> Markup {
    let counts = days.iter();
    let counts = counts.map(|(day, (worse, better))| DayCounts { day: *day, worse: *worse, better: *better });
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

fn number(count: u64, words: &str, link: &str) -> Markup {
    html! { @if count == 0 { (count) (words) } @else { a href=(link) { (count) (words) } } }
}

fn denied(place: LinkScope<'_>, DenialHistory { span, days, users, more_users }: &DenialHistory) -> Markup {
    let rows = place.link("ledger").with("verdict", "Deny");
    let counts = days.iter().map(|(day, count)| DayCounts { day: *day, worse: *count, better: 0 });
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

fn rows_of(span: &DaySpan, rows: PageLink, day: Date) -> PageLink {
    let begin = day.to_zoned(TimeZone::UTC).map_or(span.since, |begin| begin.timestamp().max(span.since));
    rows.with("since", &begin.to_string()).with("until", &format!("{day}T23:59:59.999999999Z"))
}

/// What a number of a span does not count.
fn note(span: &DaySpan) -> Markup {
    html! {
        @if span.is_cut {
            p.quiet {
                "Only the newest " (COUNTED) " rows are counted, those since "
                (utc(span.since)) ". The ledger has older ones of these " (DAYS) " days."
            }
        }
    }
}

/// A picture of counts that stand beside it as text; `none` where there is nothing to draw.
fn picture(counts: impl Iterator<Item = DayCounts>, none: &str) -> Markup {
    match report::days(&counts.collect::<Vec<_>>()) {
        // It holds only numbers and days.
        Some(picture) => html! { figure aria-hidden="true" { (maud::PreEscaped(picture)) } },
        None => html! { p.quiet { (none) } },
    }
}

/// The clusters, each with the namespace that is shown of it.
pub(super) fn clusters_table(rows: &[(&ClusterRow, Option<&str>)], now: Timestamp) -> Markup {
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
                // Only a shared ledger knows when the guard's certificate ends.
                td {
                    @if let Some(until) = row.certificate_until {
                        @if until <= now { (mark("bad", "Ended")) " " }
                        (write::time(until, now))
                    }
                }
                td {
                    @match (row.stale_since, row.last_heard) {
                        (Some(since), _) => (mark("bad", &format!("Stale since {}", utc(since)))),
                        (None, Some(heard)) => (write::time(heard, now)),
                        (None, None) => "not known",
                    }
                }
            }
        }
    }
}

/// The days that are counted, and the most rows.
pub(super) const DAYS: i64 = 10;
pub(super) const COUNTED: usize = 3000;

const USERS: usize = 8;

/// How long the first page waits for the ledger.
const HISTORY_PATIENCE: Duration = Duration::from_secs(15);

/// How long a count is shown again, and for how many places.
const HISTORY_KEPT: Duration = Duration::from_secs(30);
const KEPT_HISTORIES: u64 = 64;

/// The verdicts on drift that stays, and on drift that was repaired.
pub(super) const LEFT: &[&str] = &["Reported", "Failed"];
pub(super) const REPAIRED: &[&str] = &["Restored", "Recreated"];

pub(super) struct RecentHistory {
    pub(super) drift: DriftHistory,
    pub(super) denials: DenialHistory,
    /// Sentences about ledgers whose rows are missing.
    pub(super) missing: Vec<String>,
}

/// The time of which rows are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DaySpan {
    pub(super) days: Vec<Date>,
    pub(super) since: Timestamp,
    /// Whether it is shorter than asked for: there are more rows than are counted.
    pub(super) is_cut: bool,
}

/// The drift that was found of late: what stayed, and what was repaired.
pub(super) struct DriftHistory {
    pub(super) span: DaySpan,
    pub(super) days: BTreeMap<Date, (u64, u64)>,
}

/// The changes that were denied of late.
pub(super) struct DenialHistory {
    pub(super) span: DaySpan,
    pub(super) days: BTreeMap<Date, u64>,
    /// By user, the most first.
    pub(super) users: Vec<(String, u64)>,
    /// Users that are not among them.
    pub(super) more_users: usize,
}

pub(super) struct ReleaseHistories(Cache<HistoryKey, Arc<RecentHistory>>);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct HistoryKey {
    /// `None` for all, or for the only one.
    pub(super) cluster: Option<String>,
    /// `None` for all.
    pub(super) namespace: Option<String>,
    /// Which changes it counts, where changes are told.
    pub(super) version: u64,
}

impl Default for ReleaseHistories {
    fn default() -> Self {
        Self(Cache::builder().max_capacity(KEPT_HISTORIES).time_to_live(HISTORY_KEPT).build())
    }
}

impl ReleaseHistories {
    /// What happened in a place, as it was counted a moment ago or as `ledger` says now.
    pub(super) async fn read(
        &self,
        ledger: &VisitorLedger,
        place: HistoryKey,
        now: Timestamp,
    ) -> Result<Arc<RecentHistory>, Arc<InspectError>> {
        let namespace = place.namespace.clone();
        self.keep(place, read_history(ledger, namespace.as_deref(), now)).await
    }

    /// Forgets what was counted with rights that are gone.
    pub(super) fn forget(&self) {
        self.0.invalidate_all();
    }

    /// What is counted for a place; a failure is not kept.
    async fn keep(
        &self,
        place: HistoryKey,
        count: impl Future<Output = Result<RecentHistory, InspectError>>,
    ) -> Result<Arc<RecentHistory>, Arc<InspectError>> {
        self.0.try_get_with(place, async { count.await.map(Arc::new) }).await
    }
}

impl DaySpan {
    pub(super) fn until(now: Timestamp) -> Self {
        let today = date(now);
        let days: Vec<_> = (0..DAYS).rev().filter_map(|age| today.checked_sub(age.days()).ok()).collect();
        let since = days.first().and_then(|date| date.to_zoned(TimeZone::UTC).ok());
        Self { days, since: since.map_or(now, |since| since.timestamp()), is_cut: false }
    }

    /// The part of it that the newest rows are of.
    fn reached(&self, newest: &EntryPage) -> Self {
        match newest.items.last().filter(|_| newest.next.is_some()) {
            None => self.clone(),
            Some(last) => Self {
                days: self.days.iter().copied().filter(|day| *day >= date(last.time)).collect(),
                since: last.time,
                is_cut: true,
            },
        }
    }

    fn by_day<C: Default>(&self) -> BTreeMap<Date, C> {
        self.days.iter().map(|day| (*day, C::default())).collect()
    }
}

impl DriftHistory {
    /// The drift of the newest rows.
    fn count(span: &DaySpan, newest: &EntryPage) -> Self {
        let span = span.reached(newest);
        let mut days: BTreeMap<Date, (u64, u64)> = span.by_day();
        for entry in &newest.items {
            let is_left = LEFT.contains(&entry.verdict.as_str());
            let (left, repaired) = days.entry(date(entry.time)).or_default();
            *(if is_left { left } else { repaired }) += 1;
        }
        Self { span, days }
    }
}

impl DenialHistory {
    /// The changes of the newest rows.
    fn count(span: &DaySpan, newest: &EntryPage) -> Self {
        let span = span.reached(newest);
        let mut days: BTreeMap<Date, u64> = span.by_day();
        let mut users: BTreeMap<&str, u64> = BTreeMap::new();
        for entry in &newest.items {
            *days.entry(date(entry.time)).or_default() += 1;
            *users.entry(&entry.user).or_default() += 1;
        }
        let mut users: Vec<_> = users.into_iter().map(|(user, count)| (user.to_owned(), count)).collect();
        users.sort_by(|(left, fewer), (right, more)| more.cmp(fewer).then_with(|| left.cmp(right)));
        let more_users = users.len().saturating_sub(USERS);
        users.truncate(USERS);
        Self { span, days, users, more_users }
    }
}

/// Reads what happened in a namespace, or in all.
async fn read_history(
    ledger: &VisitorLedger,
    namespace: Option<&str>,
    now: Timestamp,
) -> Result<RecentHistory, InspectError> {
    let span = DaySpan::until(now);
    let drift = [LEFT, REPAIRED].concat();
    let (drift, denials) =
        (newest(ledger, namespace, &drift, span.since), newest(ledger, namespace, &["Deny"], span.since));
    let read = async { tokio::try_join!(drift, denials) };
    let late =
        |_| InspectError::Named(format!("the ledger did not answer within {} s", HISTORY_PATIENCE.as_secs()));
    let (drift, denials) = timeout(HISTORY_PATIENCE, read).await.map_err(late)??;
    let mut missing = drift.missing.clone();
    add_new(&mut missing, denials.missing.clone());
    Ok(RecentHistory {
        drift: DriftHistory::count(&span, &drift),
        denials: DenialHistory::count(&span, &denials),
        missing,
    })
}

async fn newest(
    ledger: &VisitorLedger,
    namespace: Option<&str>,
    verdicts: &[&str],
    since: Timestamp,
) -> Result<EntryPage, InspectError> {
    let verdicts = verdicts.iter().map(|verdict| (*verdict).to_owned()).collect();
    let (namespace, since) = (namespace.map(str::to_owned), Some(since));
    ledger.newest(&Filter { namespace, verdicts, since, ..Filter::default() }, COUNTED).await
}

fn date(time: Timestamp) -> Date {
    time.to_zoned(TimeZone::UTC).date()
}

#[cfg(test)]
mod tests;
