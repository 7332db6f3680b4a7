//! What the ledger tells at a glance, as sections of a page.
//!
//! Entry point: [`shown`]. Invariant: every number links to the rows behind it.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use maud::{Markup, html};

use super::super::address::{Link, Place};
use super::super::history::{COUNTED, DAYS, Denials, Drift, History, LEFT, REPAIRED, Span};
use super::super::html::trouble;
use kubemoor_inspect::chart::{self, DayCounts};

/// What happened, as sections of a page.
pub(crate) fn shown(history: &History, place: Place<'_>) -> Markup {
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

#[cfg(test)]
mod tests;
