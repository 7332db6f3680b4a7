//! What a replay has found, as a page shows it: the difference that other policies would have made, day by day.
//!
//! Entry point: [`Found::shown`]. Invariant: every number leads to what it counts.

use jiff::civil::Date;
use jiff::{Timestamp, ToSpan as _};
use maud::{Markup, html};

use super::super::address::Link;
use super::super::html::trouble;
use crate::inspect::chart::{self, DayCounts};
use crate::inspect::replay::{Changed, Day, REFUSED, Report};
use crate::ledger::query::Filter;

/// Changed verdicts that are listed, and of each day.
const LISTED: usize = 100;
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
    pub(super) policies: Vec<String>,
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
        let Self { scope, report, stopped, policies } = self;
        let until = scope.until.map(|until| until.to_string());
        let all =
            |verdicts: &[&str]| scope.rows(verdicts, &report.since.to_string(), until.as_deref()).text();
        html! {
            section {
                p.quiet {
                    @if policies.is_empty() { "No policy: one mode of edits holds for every release." }
                    @else { "By " (policies.join(", ")) "." }
                }
                @if let Some(stopped) = stopped {
                    p.note {
                        "Only changes since " (stopped.strftime("%Y-%m-%dT%H:%M:%SZ")) " are judged: there are more than one page \
                         judges. " code { "kubemoor policy replay" } " judges all."
                    }
                }
                dl.facts {
                    div { dt { "Changes" } dd { a href=(all(&EDITS)) { (report.edits) } } }
                    div { dt { "Judged" } dd { a href=(all(&EDITS)) { (report.replayed) } } }
                    div { dt { "Passed, would be refused" } dd { a href="#days" { (report.refused) } } }
                    div { dt { "Refused, would pass" } dd { a href="#days" { (report.permitted) } } }
                    div {
                        dt { "Helm operations that would have a change refused" }
                        dd {
                            a href="#changes" { (report.helm_operations_touched) } " of "
                            a href=(all(&BEGUN)) { (report.helm_operations) }
                        }
                    }
                }
                @for (count, words) in report.unjudged() {
                    p.quiet { a href=(all(&EDITS)) { (count) " not judged" } ": " (words) "." }
                }
                (self.days())
                (self.by_day())
                (self.changes())
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
        let all = |date: Date| {
            let (since, until) = (format!("{date}T00:00:00Z"), format!("{date}T23:59:59.999999999Z"));
            self.scope.rows(&EDITS, &since, Some(&until)).text()
        };
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
                            @for head in ["Day", "Changes", "Passed, would be refused", "Refused, would pass"] {
                                th scope="col" { (head) }
                            }
                        } }
                        tbody { @for day in days.iter().rev() {
                            tr {
                                th scope="row" { (day.date) }
                                td.number { a href=(all(day.date)) { (day.edits) } }
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
                    div id=(format!("day-{date}")) { (self.table(changes, LISTED_OF_DAY, &format!("Changes of {date}"))) }
                }
            }
        }
    }

    /// The verdicts that would change.
    fn changes(&self) -> Markup {
        let Report { changes, more_changes, .. } = &self.report;
        html! {
            h2 #changes { "Verdicts that would change" }
            @if changes.is_empty() { p.quiet { "None." } } @else {
                (self.table(changes, LISTED, "Verdicts that would change"))
                @if *more_changes > 0 { p.quiet { "and " (more_changes) " that are not counted here" } }
            }
        }
    }

    fn table(&self, changes: &[Changed], most: usize, label: &str) -> Markup {
        html! {
            div.wide tabindex="0" role="region" aria-label=(label) {
                table {
                    thead { tr {
                        @for head in ["Release", "User", "Field", "Was", "Would be", "Rule", "Changes"] {
                            th scope="col" { (head) }
                        }
                    } }
                    tbody { @for changed in changes.iter().take(most) {
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
            @if changes.len() > most { p.quiet { "and " (changes.len() - most) " more" } }
        }
    }
}

/// All days from the first to the last, with those on which nothing was recorded.
fn whole(days: &[&Day]) -> Vec<Day> {
    let (Some(first), Some(last)) = (days.first(), days.last()) else { return Vec::new() };
    let dates = first.date.series(1.day()).take_while(|date| *date <= last.date).take(DAYS);
    let of = |date| days.iter().find(|day| day.date == date).map(|day| **day);
    dates.map(|date| of(date).unwrap_or(Day { date, edits: 0, refused: 0, permitted: 0 })).collect()
}

/// Changes of a day, which are listed below.
fn number(count: u64, date: Date) -> Markup {
    html! { @if count == 0 { "0" } @else { a href=(format!("#day-{date}")) { (count) } } }
}

fn badge(verdict: &str) -> &'static str {
    if REFUSED.contains(&verdict) { "badge bad" } else { "badge good" }
}
