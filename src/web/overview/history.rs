//! What the ledger tells at a glance: drift and denied changes of the last days, and whose changes were denied.
//!
//! Entry points: [`read`], [`History::shown`]. Invariant: so many rows are counted at most; every number links to the
//! rows behind it.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use maud::{Markup, html};
use tokio::time::timeout;

use super::super::address::{Link, Place};
use super::super::html::trouble;
use super::super::ledger_reader::LedgerReader;
use crate::inspect::chart::{self, DayCounts};
use crate::inspect::failure::Failure;
use crate::ledger::entry::Entry;
use crate::ledger::query::Filter;

/// The days that are shown, the same as an age, and the most rows that are counted.
const DAYS: i64 = 10;
const SPAN: &str = "10d";
const COUNTED: usize = 3000;

/// Users that are shown.
const USERS: usize = 8;

/// How long the first page waits for the ledger.
const PATIENCE: Duration = Duration::from_secs(15);

/// The verdicts on drift that stays, and on drift that was repaired.
pub(in crate::web) const LEFT: &[&str] = &["Reported", "Failed"];
const REPAIRED: &[&str] = &["Restored", "Recreated"];

/// What happened of late.
pub(in crate::web) struct History {
    drift: Drift,
    denials: Denials,
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

/// Reads what happened in a namespace, or in all.
pub(in crate::web) async fn read(
    ledger: &LedgerReader,
    namespace: Option<&str>,
    now: Timestamp,
) -> Result<History, Failure> {
    let read = async { tokio::try_join!(drift(ledger, namespace, now), denials(ledger, namespace, now)) };
    let late = |_| Failure::Named(format!("the ledger did not answer within {} s", PATIENCE.as_secs()));
    let (drift, denials) = timeout(PATIENCE, read).await.map_err(late)??;
    Ok(History { drift, denials })
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
    ledger: &LedgerReader,
    namespace: Option<&str>,
    verdicts: &[&str],
    since: Option<Timestamp>,
) -> Result<Vec<Entry>, Failure> {
    let verdicts = verdicts.iter().map(|verdict| (*verdict).to_owned()).collect();
    let filter = Filter { namespace: namespace.map(str::to_owned), verdicts, since, ..Filter::default() };
    ledger.newest(&filter, COUNTED).await
}

async fn denials(ledger: &LedgerReader, namespace: Option<&str>, now: Timestamp) -> Result<Denials, Failure> {
    let (dates, since) = days(now);
    let entries = newest(ledger, namespace, &["Deny"], since).await?;
    let mut days: BTreeMap<String, u64> = dates.iter().map(|date| (date.to_string(), 0)).collect();
    let mut users: BTreeMap<String, u64> = BTreeMap::new();
    for entry in &entries {
        days.entry(day(entry)).and_modify(|count| *count += 1);
        *users.entry(entry.user.clone()).or_default() += 1;
    }
    let mut users: Vec<_> = users.into_iter().collect();
    users.sort_by(|(left, fewer), (right, more)| more.cmp(fewer).then_with(|| left.cmp(right)));
    users.truncate(USERS);
    Ok(Denials { days: days.into_iter().collect(), users, is_cut: entries.len() >= COUNTED })
}

async fn drift(ledger: &LedgerReader, namespace: Option<&str>, now: Timestamp) -> Result<Drift, Failure> {
    let (dates, since) = days(now);
    let entries = newest(ledger, namespace, &[LEFT, REPAIRED].concat(), since).await?;
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

impl History {
    /// What happened, as sections of a page.
    pub(in crate::web) fn shown(&self, place: Place<'_>) -> Markup {
        html! { (drifted(place, &self.drift)) (denied(place, &self.denials)) }
    }
}

/// Drift over time: above the line what stayed, below it what was repaired.
fn drifted(place: Place<'_>, Drift { days, is_cut }: &Drift) -> Markup {
    let counts = days.iter();
    let counts =
        counts.map(|(day, (worse, better))| DayCounts { label: label(day), worse: *worse, better: *better });
    let link = |day: &str, verdicts: &[&str]| {
        let rows = of_day(place.link("ledger"), day);
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
                        span.count { (number(*left, " left", &link(day, LEFT))) ", " (number(*repaired, " repaired", &link(day, REPAIRED))) }
                    }
                }
            }
            @if *is_cut { p.quiet { "Only the newest " (COUNTED) " are counted." } }
        }
    }
}

/// A number that leads to its rows, where there are any.
fn number(count: u64, words: &str, link: &str) -> Markup {
    html! { @if count == 0 { (count) (words) } @else { a href=(link) { (count) (words) } } }
}

/// The rows of a day.
fn of_day(rows: Link, day: &str) -> Link {
    rows.with("since", &format!("{day}T00:00:00Z")).with("until", &format!("{day}T23:59:59.999999999Z"))
}

/// The changes that were denied, by day and by user.
fn denied(place: Place<'_>, Denials { days, users, is_cut }: &Denials) -> Markup {
    let rows = place.link("ledger").with("verdict", "Deny");
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
                        li { a href=(of_day(rows.clone(), day).text()) { span { (day) } span.count { (count) } } }
                    }
                }
                @if *is_cut { p.quiet { "Only the newest " (COUNTED) " are counted." } }
            }
        }
        @if !users.is_empty() {
            section {
                h3 { "Users whose changes were denied" }
                ul.ranked { @for (user, count) in users {
                    li { a href=(of_user(user)) { span { (user) } span.count { (count) } } }
                } }
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
fn label(day: &str) -> String {
    day.split_once('-').map_or(day, |(_, day)| day).to_owned()
}
