//! What a replay has found, as a page shows it: the difference that other policies would have made, day by day.
//!
//! Entry point: [`Found::shown`]. Invariant: every number leads to what it counts.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use maud::{Markup, html};

use super::super::address::Link;
use super::super::html::{self as write, notes, trouble};
use kubemoor_declare::model::ReleaseId;
use kubemoor_inspect::chart::{self, DayCounts};
use kubemoor_inspect::replay::{Changed, Day, REFUSED, Report, TouchedOperation};
use kubemoor_ledger::query::Filter;

/// Changed verdicts that are listed, those that a list opens to, and those of each day.
const LISTED: usize = 100;
const OPENED: usize = 900;
const LISTED_OF_DAY: usize = 20;

/// Days that are drawn.
const DAYS: usize = 92;

/// The verdicts on edits, and those with which a Helm operation begins.
const EDITS: [&str; 6] = ["Deny", "Revert", "Warn", "Record", "Allow", "Error"];
const BEGUN: [&str; 3] = ["pending-install", "pending-upgrade", "pending-rollback"];

/// What a replay has found, and of which policies.
pub(super) struct Found {
    pub(super) scope: Scope,
    pub(super) report: Report,
    /// Until where rows were judged, where not all were.
    pub(super) stopped: Option<Timestamp>,
    /// Sentences about ledgers whose rows are missing.
    pub(super) missing: Vec<String>,
    pub(super) policies: Vec<String>,
    /// The only namespace whose rows were judged, where nobody chose it.
    pub(super) only: Option<String>,
}

/// Which rows were judged.
pub(super) struct Scope {
    cluster: Option<String>,
    /// Whether rows of several clusters may be among them, by the names that the ledger has for them.
    is_shared: bool,
    namespace: Option<String>,
    release: Option<String>,
    until: Option<Timestamp>,
}

impl Scope {
    /// The rows of `cluster` that `filter` asks for.
    pub(super) fn of(cluster: Option<&str>, is_shared: bool, filter: &Filter) -> Self {
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
    pub(super) fn shown(&self) -> Markup {
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
