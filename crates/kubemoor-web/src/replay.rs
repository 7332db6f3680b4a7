//! Recorded changes, judged by other policies: what would have been refused, day by day.
//!
//! The verdicts are those of `kubemoor policy replay`. No request judges more than so many rows, for so long, and the page
//! says where it stopped; every number leads to what it counts.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::response::Response;
use clap::ValueEnum as _;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use maud::{Markup, html};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::address::{Asked, Link};
use super::cluster::Cluster;
use super::door::SentForm;
use super::html::{self as write, Frame, notes, trouble};
use super::ledger_reader::{Begun, LedgerReader};
use super::visitor::Visitor;
use kubemoor_cluster::mirror::policies::once;
use kubemoor_declare::model::{DriftMode, EditsMode, ReleaseId};
use kubemoor_inspect::chart::{self, DayCounts};
use kubemoor_inspect::failure::{Failure, failed};
use kubemoor_inspect::ledger::{add_new, place};
use kubemoor_inspect::reading::OPERATION_TIMEOUT;
use kubemoor_inspect::replay::{Changed, Day, Judges, Judging, REFUSED, Report, TouchedOperation};
use kubemoor_inspect::times::Moment;
use kubemoor_ledger::query::{Filter, PAGE, Page};
use kubemoor_policy::Policy;
use kubemoor_policy::compile::Compiled;
use kubemoor_policy::read;

/// Since when changes are judged, where nothing else is asked for.
const SINCE: &str = "7d";

/// The most rows that one request judges, and for how long. `kubemoor policy replay` has no such bounds.
const ROWS: u64 = 200_000;
const PATIENCE: Duration = Duration::from_secs(40);

/// The replays that run at one time, with a thread each; others wait so long.
static REPLAYS: Semaphore = Semaphore::const_new(2);
const TURN: Duration = Duration::from_secs(10);

/// Changed verdicts that are listed, those that a list opens to, and those of each day.
const LISTED: usize = 100;
const OPENED: usize = 900;
const LISTED_OF_DAY: usize = 20;

/// Days that are drawn.
const DAYS: usize = 92;

/// The verdicts on edits, and those with which a Helm operation begins.
const EDITS: [&str; 6] = ["Deny", "Revert", "Warn", "Record", "Allow", "Error"];
const BEGUN: [&str; 3] = ["pending-install", "pending-upgrade", "pending-rollback"];

/// The page, with a replay by the policies of the cluster where a time is asked for.
pub(super) async fn page(Extension(visitor): Extension<Arc<Visitor>>, asked: Asked) -> Response {
    answer(&visitor, &asked).await
}

/// A replay by policies that were pasted.
pub(super) async fn pasted(
    Extension(visitor): Extension<Arc<Visitor>>,
    SentForm(asked): SentForm,
) -> Response {
    answer(&visitor, &asked).await
}

async fn answer(visitor: &Visitor, asked: &Asked) -> Response {
    let found = match asked.get("since") {
        Some(since) => Some(replay(visitor, asked, since).await),
        None => None,
    };
    let only = found.as_ref().and_then(|found| found.as_ref().ok()?.only.as_deref());
    Frame::still(visitor, "Replay", "replay").around(&html! {
        h1 { "Replay" }
        p { "What would other policies have done with the changes that the ledger has recorded?" }
        @match &found {
            None => {},
            Some(Ok(found)) => (found.shown()),
            Some(Err(error)) => (trouble(&error.to_string())),
        }
        (forms(visitor, asked, only))
    })
}

async fn replay(visitor: &Visitor, asked: &Asked, since: &str) -> Result<Found, Failure> {
    let began = Instant::now();
    let now = Timestamp::now();
    let time = |name: &str, text: &str| {
        let moment: Result<Moment, _> = text.parse();
        let moment = moment.map_err(|error| Failure::Named(format!("{name}: {error}")))?;
        Ok::<_, Failure>(moment.time(now))
    };
    let since = time("since", since)?;
    let filter = Filter {
        namespace: asked.get("namespace").map(str::to_owned),
        release: asked.get("release").map(str::to_owned),
        since: Some(since),
        until: asked.get("until").map(|text| time("until", text)).transpose()?,
        facts: true,
        limit: Some(PAGE),
        ..Filter::default()
    };
    let accepted = match asked.get("policies") {
        Some(text) => of_text(text)?,
        // No cluster is asked.
        None if visitor.shared.is_some() => Vec::new(),
        None => of_cluster(visitor.cluster(asked)?).await?,
    };
    let edits = asked.get("edits").map_or(Ok(EditsMode::Warn), parse_edits)?;
    let names = accepted.iter().map(|policy| policy.name.clone()).collect();
    let defaults = Policy::new(edits, DriftMode::Report, OPERATION_TIMEOUT);
    let turn = timeout(TURN, REPLAYS.acquire()).await.ok().and_then(Result::ok);
    let _turn = turn.ok_or_else(|| Failure::Named("other replays run: try again in a minute".to_owned()))?;
    let ledger = visitor.ledger(asked).await?;
    let Begun { page, filter, only } = ledger.begin(filter).await?;
    let judging = Judging::start(Judges::new(1, &defaults, &accepted), since);
    let scope = Scope::of(asked.get("cluster"), visitor.shared.is_some(), &filter);
    let (stopped, missing) = judge(&ledger, (page, filter), &judging, began).await?;
    Ok(Found { scope, report: judging.finish().await?, stopped, missing, policies: names, only })
}

/// Judges the rows from the first page on, until it took too long since it `began`; where it stopped, if that was before the end, and sentences about ledgers whose rows are missing.
async fn judge(
    ledger: &LedgerReader,
    (mut page, mut filter): (Page, Filter),
    judging: &Judging,
    began: Instant,
) -> Result<(Option<Timestamp>, Vec<String>), Failure> {
    let (mut rows, mut missing) = (0, Vec::new());
    loop {
        rows += page.items.len() as u64;
        let last = page.items.last().map(|entry| entry.time);
        judging.add(page.items).await;
        add_new(&mut missing, page.missing);
        let Some(next) = page.next else { return Ok((None, missing)) };
        if rows >= ROWS || began.elapsed() >= PATIENCE {
            return Ok((last, missing));
        }
        filter.before = Some(place(&next)?);
        page = ledger.page(&filter).await?;
    }
}

fn parse_edits(text: &str) -> Result<EditsMode, Failure> {
    EditsMode::from_str(text, false)
        .map_err(|_| Failure::Named(format!("there is no mode {text:?} of edits")))
}

/// The policies of a form.
fn of_text(text: &str) -> Result<Vec<Arc<Compiled>>, Failure> {
    let (accepted, flawed) = read::read([("the form", text)]);
    match flawed.first() {
        None if accepted.is_empty() => Err(Failure::Named("there is no DriftPolicy in the form".to_owned())),
        None => Ok(accepted),
        Some(flaw) => Err(Failure::Named(format!("these policies are not accepted: {flaw}"))),
    }
}

/// The valid policies of the cluster; the page of policies says what is wrong with others.
async fn of_cluster(cluster: &Cluster) -> Result<Vec<Arc<Compiled>>, Failure> {
    let connection = cluster.connection().await?;
    let read = once::policies(&connection.client).await;
    read.map_err(|error| failed(connection, "list the policies", error))
}

fn forms(visitor: &Visitor, asked: &Asked, only: Option<&str>) -> Markup {
    html! {
        form.sheet method="get" action="replay" {
            @let (head, action) = match visitor.shared.is_some() {
                true => ("By one mode of edits for all releases", "Replay by this mode"),
                false => ("By the policies of the cluster", "Replay by the cluster's policies"),
            };
            h2 { (head) }
            (window(visitor, asked, only))
            button { (action) }
        }
        form.sheet method="post" action="replay" {
            h2 { "By other policies" }
            (write::token(visitor))
            (window(visitor, asked, only))
            label { "DriftPolicies as YAML"
                textarea name="policies" rows="12" required spellcheck="false" { (asked.get("policies").unwrap_or_default()) }
            }
            // Without its script the page has the field alone.
            label.script { "or a file of them" input type="file" accept=".yaml,.yml,.json" data-into="policies"; }
            button { "Replay by these policies" }
        }
    }
}

fn window(visitor: &Visitor, asked: &Asked, only: Option<&str>) -> Markup {
    html! {
        label { "Since" input name="since" required value=(asked.get("since").unwrap_or(SINCE)); }
        label { "Until" input name="until" value=[asked.get("until")] placeholder="now"; }
        label { "Namespace" input name="namespace" value=[asked.get("namespace")] placeholder=(only.unwrap_or("all")); }
        label { "Release" input name="release" value=[asked.get("release")] placeholder="all"; }
        label { "Edits, where no policy says otherwise"
            select name="edits" {
                @for mode in EditsMode::value_variants() {
                    @let name = format!("{mode:?}");
                    option value=(name) selected[asked.get("edits").unwrap_or("Warn") == name] { (name) }
                }
            }
        }
        @if visitor.shared.is_some() {
            label { "Cluster" input name="cluster" value=[asked.get("cluster")] placeholder="all"; }
        }
        @if visitor.has_several() {
            label { "Cluster"
                select name="cluster" {
                    @for cluster in &visitor.clusters {
                        option value=(cluster.name) selected[asked.get("cluster") == Some(&cluster.name)] { (cluster.name) }
                    }
                }
            }
        }
    }
}

/// What a replay has found, and of which policies.
struct Found {
    scope: Scope,
    report: Report,
    /// Until where rows were judged, where not all were.
    stopped: Option<Timestamp>,
    /// Sentences about ledgers whose rows are missing.
    missing: Vec<String>,
    policies: Vec<String>,
    /// The only namespace whose rows were judged, where nobody chose it.
    only: Option<String>,
}

/// Which rows were judged.
struct Scope {
    cluster: Option<String>,
    /// Whether rows of several clusters may be among them, by the names that the ledger has for them.
    is_shared: bool,
    namespace: Option<String>,
    release: Option<String>,
    until: Option<Timestamp>,
}

impl Scope {
    /// The rows of `cluster` that `filter` asks for.
    fn of(cluster: Option<&str>, is_shared: bool, filter: &Filter) -> Self {
        let Filter { namespace, release, until, .. } = filter.clone();
        Self { cluster: cluster.map(str::to_owned), is_shared, namespace, release, until }
    }

    /// Whether the rows end on this day.
    fn is_last(&self, date: Date) -> bool {
        self.until.is_some_and(|until| TimeZone::UTC.to_datetime(until).date() == date)
    }

    /// Rows of the ledger with these verdicts, since and until some time.
    fn rows(&self, verdicts: &[&str], since: &str, until: Option<&str>) -> Link {
        let link = Link::to("ledger").set("cluster", self.cluster.as_deref());
        let link = link.set("namespace", self.namespace.as_deref()).set("release", self.release.as_deref());
        let link = link.with("since", since).set("until", until);
        verdicts.iter().fold(link, |link, verdict| link.with("verdict", verdict))
    }

    /// The rows of a change.
    fn of_change(&self, Changed { key, first, last, .. }: &Changed) -> String {
        let end = last.checked_add(1.millisecond()).unwrap_or(*last);
        let rows = self.rows(&[&key.was], &first.to_string(), Some(&end.to_string()));
        let rows = rows.set("namespace", Some(&key.namespace));
        let rows = if self.is_shared { rows.set("cluster", Some(&key.cluster)) } else { rows };
        let rows = rows.set("release", Some(&key.release).filter(|it| !it.is_empty()).map(String::as_str));
        rows.with("by", &key.user).text()
    }
}

impl Found {
    fn shown(&self) -> Markup {
        let Self { scope, report, stopped, missing, policies, only } = self;
        let until = self.until();
        let all =
            |verdicts: &[&str]| scope.rows(verdicts, &self.since().to_string(), until.as_deref()).text();
        html! {
            section {
                p.quiet {
                    @if policies.is_empty() { "No policy: one mode of edits holds for every release." }
                    @else { "By " (policies.join(", ")) "." }
                }
                @if let Some(only) = only { p.note { (write::only(only)) } }
                (notes("replay", missing))
                @if let Some(stopped) = stopped {
                    p.note {
                        "Only changes since " (stopped.strftime("%Y-%m-%dT%H:%M:%SZ")) " are judged: there are more than one page \
                         judges. " code { "kubemoor policy replay" } " judges all."
                    }
                }
                dl.facts {
                    div { dt { "Changes" } dd { a href="#days" { (report.edits) } } }
                    div { dt { "Rows about them" } dd { a href=(all(&EDITS)) { (report.edits + report.repeats) } } }
                    div { dt { "Judged" } dd { a href="#unjudged" { (report.replayed) } } }
                    div { dt { "Passed, would be refused" } dd { a href="#days" { (report.refused) } } }
                    div { dt { "Refused, would pass" } dd { a href="#days" { (report.permitted) } } }
                    div {
                        dt { "Helm operations that would have a change refused" }
                        dd {
                            a href="#operations" { (report.helm_operations_touched) } " of "
                            a href=(all(&BEGUN)) { (report.helm_operations) }
                        }
                    }
                }
                (self.unjudged())
                (self.operations())
                (self.days())
                (self.by_day())
                (self.changes())
            }
        }
    }

    /// When the rows that were judged begin.
    fn since(&self) -> Timestamp {
        self.stopped.map_or(self.report.since, |stopped| stopped.max(self.report.since))
    }

    /// When they end, where that is not now.
    fn until(&self) -> Option<String> {
        self.scope.until.map(|until| until.to_string())
    }

    /// The rows of a day.
    fn of_day(&self, date: Date) -> String {
        let begin = date.to_zoned(TimeZone::UTC).map_or(self.since(), |it| it.timestamp().max(self.since()));
        let end = format!("{date}T23:59:59.999999999Z");
        let until = self.until().filter(|_| self.scope.is_last(date));
        self.scope.rows(&EDITS, &begin.to_string(), Some(until.as_ref().unwrap_or(&end))).text()
    }

    /// The rows that have no other verdict, and why. No address finds them: the ledger does not know the reasons.
    fn unjudged(&self) -> Markup {
        html! {
            ul.unjudged #unjudged {
                @for (count, words) in self.report.unjudged() { li { (count) " not judged: " (words) "." } }
                @if self.report.repeats > 0 {
                    li { (self.report.repeats) " judged with another row: the API server asked about one change twice." }
                }
                @if self.report.repeats == 0 && self.report.not_replayable.is_empty() { li { "All are judged." } }
            }
        }
    }

    /// The Helm operations that would have a change refused.
    fn operations(&self) -> Markup {
        let Report { touched_operations: touched, helm_operations_touched: count, .. } = &self.report;
        let link = |TouchedOperation { operation, .. }: &TouchedOperation| {
            let id = ReleaseId {
                namespace: operation.namespace.clone().into(),
                name: operation.release.clone().into(),
            };
            let cluster =
                if self.scope.is_shared { Some(&operation.cluster) } else { self.scope.cluster.as_ref() };
            Link::to("release").set("cluster", cluster.map(String::as_str)).of_release(&id).text()
        };
        html! {
            h2 #operations { "Helm operations that would have a change refused" }
            @if touched.is_empty() { p.quiet { "None." } } @else {
                ul.objects { @for it in touched {
                    li {
                        a href=(link(it)) { (it.operation.namespace) "/" (it.operation.release) }
                        @if self.scope.is_shared { " in " (it.operation.cluster) }
                        ", revision " (it.operation.revision) ", by " (it.users.join(", "))
                    }
                } }
                @if *count > touched.len() {
                    p { a href=(self.scope.rows(&BEGUN, &self.since().to_string(), self.until().as_deref()).text()) {
                        "and " (count - touched.len()) " more, among all that were begun"
                    } }
                }
            }
        }
    }

    /// The days as a picture, and as a table whose numbers lead to the rows.
    fn days(&self) -> Markup {
        let days: Vec<_> = self.report.days.iter().rev().take(DAYS).rev().collect();
        let counts: Vec<_> = whole(&days)
            .into_iter()
            .map(|day| DayCounts {
                label: day.date.strftime("%m-%d").to_string(),
                worse: day.refused,
                better: day.permitted,
            })
            .collect();
        html! {
            h2 #days { "Day by day" }
            @match chart::days(&counts) {
                // The crate that draws escapes what it writes.
                Ok(Some(picture)) => figure aria-hidden="true" { (maud::PreEscaped(picture)) },
                Ok(None) => p.quiet { "No verdict would change between passing and being refused." },
                Err(error) => (trouble(&error.to_string())),
            }
            @if !days.is_empty() {
                div.wide tabindex="0" role="region" aria-label="Days" {
                    table {
                        thead { tr {
                            @for head in ["Day", "Rows", "Passed, would be refused", "Refused, would pass"] {
                                th scope="col" { (head) }
                            }
                        } }
                        tbody { @for day in days.iter().rev() {
                            tr {
                                th scope="row" { (day.date) }
                                td.number { a href=(self.of_day(day.date)) { (day.edits + day.repeats) } }
                                td.number { (number(day.refused, day.date)) }
                                td.number { (number(day.permitted, day.date)) }
                            }
                        } }
                    }
                }
            }
        }
    }

    /// What would change on each day.
    fn by_day(&self) -> Markup {
        let days = self.report.by_day.iter().rev().take(DAYS);
        html! {
            @for (date, changes) in days {
                details {
                    summary { (date) }
                    // A link to it opens the details around it.
                    div id=(format!("day-{date}")) {
                        (self.table(changes.iter().take(LISTED_OF_DAY), &format!("Changes of {date}")))
                        @if changes.len() > LISTED_OF_DAY {
                            p { a href=(self.of_day(*date)) {
                                "and " (changes.len() - LISTED_OF_DAY) " more, among all rows of the day"
                            } }
                        }
                    }
                }
            }
        }
    }

    /// The verdicts that would change.
    fn changes(&self) -> Markup {
        let Report { changes, more_changes, .. } = &self.report;
        let further = changes.len().saturating_sub(LISTED);
        let beyond = u64::try_from(further.saturating_sub(OPENED)).unwrap_or(u64::MAX) + more_changes;
        html! {
            h2 #changes { "Verdicts that would change" }
            @if changes.is_empty() { p.quiet { "None." } } @else {
                (self.table(changes.iter().take(LISTED), "Verdicts that would change"))
                @if further > 0 {
                    details #more-changes {
                        summary { "and " (further.min(OPENED)) " more" }
                        (self.table(changes.iter().skip(LISTED).take(OPENED), "Further verdicts that would change"))
                    }
                }
                @if beyond > 0 {
                    p { a href=(self.scope.rows(&EDITS, &self.since().to_string(), self.until().as_deref()).text()) {
                        "and " (beyond) " that are not listed here, among all rows"
                    } }
                }
            }
        }
    }

    fn table<'c>(&self, changes: impl Iterator<Item = &'c Changed>, label: &str) -> Markup {
        html! {
            div.wide tabindex="0" role="region" aria-label=(label) {
                table {
                    thead { tr {
                        @for head in ["Release", "User", "Field", "Was", "Would be", "Rule", "Changes"] {
                            th scope="col" { (head) }
                        }
                    } }
                    tbody { @for changed in changes {
                        tr {
                            th scope="row" {
                                (changed.key.release) span.quiet.below { (changed.key.namespace) }
                                @if self.scope.is_shared { span.quiet.below { (changed.key.cluster) } }
                            }
                            td { (changed.key.user) }
                            td { (changed.key.kind) " " code { (changed.key.field) } }
                            td { (changed.key.was) }
                            td { span class=(badge(changed.key.now)) { (changed.key.now) } }
                            td { (changed.key.rule) }
                            td.number { a href=(self.scope.of_change(changed)) { (changed.edits) } }
                        }
                    } }
                }
            }
        }
    }
}

/// All days from the first to the last, with those on which nothing was recorded.
fn whole(days: &[&Day]) -> Vec<Day> {
    let (Some(first), Some(last)) = (days.first(), days.last()) else { return Vec::new() };
    let dates = first.date.series(1.day()).take_while(|date| *date <= last.date).take(DAYS);
    let of = |date| days.iter().find(|day| day.date == date).map(|day| **day);
    dates
        .map(|date| of(date).unwrap_or(Day { date, edits: 0, repeats: 0, refused: 0, permitted: 0 }))
        .collect()
}

/// Changes of a day, which are listed below.
fn number(count: u64, date: Date) -> Markup {
    html! { @if count == 0 { "0" } @else { a href=(format!("#day-{date}")) { (count) } } }
}

fn badge(verdict: &str) -> &'static str {
    if REFUSED.contains(&verdict) { "badge bad" } else { "badge good" }
}
