//! The report as one page that needs nothing else: no script, no font, no other file.
//!
//! Entry point: [`page`]. Invariant: whatever users wrote goes through the template, which escapes it,
//! or through the plotting crate, which does as well; the page forbids scripts besides.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::inspect::chart;
use crate::inspect::ledger::facts::{Breakdown, Report, time};
use crate::inspect::ledger::spans::lasting;

/// What a page may load or run: nothing but its own style.
const SECURITY: &str = "default-src 'none'; style-src 'unsafe-inline'";

const STYLE: &str = include_str!("style.css");

/// The rows of a table that people read; a spreadsheet has them all.
const MOST: usize = 25;

pub(super) fn page(report: &Report) -> anyhow::Result<String> {
    let denied = breakdown(&report.denied, "No change was denied.")?;
    let excepted = breakdown(&report.excepted, "No change passed by an exception.")?;
    let period = &report.period;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(SECURITY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Kubemoor audit report: " (report.scope()) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Audit report" }
                p.scope { (report.scope()) ", " (time(period.since)) " to " (time(period.until)) }
                dl.numbers {
                    @for (what, count) in report.summary() { div { dt { (what) } dd { (count) } } }
                }
                h2 { "Denied changes" }
                (denied)
                h2 { "Changes that passed by an exception" }
                (excepted)
                h2 { "Exceptions" }
                (exceptions(report))
                h2 { "Repairs" }
                (repairs(report))
                h2 { "Time in drift" }
                (drift(report))
            }
        }
    };
    Ok(page.into_string())
}

fn breakdown(breakdown: &Breakdown, none: &str) -> anyhow::Result<Markup> {
    if breakdown.total == 0 {
        return Ok(html! { p { (none) } });
    }
    let parts = [
        ("By release", "Release", &breakdown.releases),
        ("By user", "User", &breakdown.users),
        ("By field", "Field", &breakdown.fields),
    ];
    let pictures: Vec<_> =
        parts.iter().map(|(_, _, counts)| chart::bars(counts)).collect::<Result<_, _>>()?;
    Ok(html! {
        @for ((title, head, counts), picture) in parts.iter().zip(pictures) {
            section {
                h3 { (title) }
                // The crate that draws escapes what it writes.
                @if let Some(picture) = picture { figure aria-hidden="true" { (PreEscaped(picture)) } }
                (table(&[*head, "Changes"], counts.len(), counts.iter().map(|(label, count)| {
                    vec![label.clone(), count.to_string()]
                })))
            }
        }
    })
}

fn exceptions(report: &Report) -> Markup {
    if report.exceptions.is_empty() {
        return html! { p { "No exception was opened." } };
    }
    let rows = report.exceptions.iter().map(|it| {
        vec![
            time(it.opened),
            it.user.clone(),
            it.release.to_string(),
            it.object.clone(),
            it.fields.join(", "),
            it.detail.clone(),
        ]
    });
    let count = report.exceptions.len();
    table(&["Opened", "By", "Release", "Object", "Fields", "Until, and why"], count, rows)
}

fn repairs(report: &Report) -> Markup {
    if report.repairs.is_empty() {
        return html! { p { "The guard repaired nothing." } };
    }
    let rows = report
        .repairs
        .iter()
        .map(|(release, verdict, count)| vec![release.to_string(), verdict.clone(), count.to_string()]);
    table(&["Release", "Outcome", "Count"], report.repairs.len(), rows)
}

fn drift(report: &Report) -> Markup {
    let note = "Only drift whose beginning and repair are both in the ledger is counted.";
    if report.drift.is_empty() {
        return html! { p { "No such drift was repaired. " (note) } };
    }
    let rows = report.drift.iter().map(|stay| {
        vec![stay.release.to_string(), stay.drifts.to_string(), lasting(stay.total), lasting(stay.longest)]
    });
    html! {
        p { (note) }
        (table(&["Release", "Drifts", "In total", "Longest"], report.drift.len(), rows))
    }
}

/// The first rows of a table, and how many there are beyond them.
fn table(head: &[&str], count: usize, rows: impl Iterator<Item = Vec<String>>) -> Markup {
    html! {
        table {
            thead { tr { @for cell in head { th { (cell) } } } }
            tbody { @for row in rows.take(MOST) { tr { @for cell in row { td { (cell) } } } } }
        }
        @if count > MOST { p.more { "and " (count - MOST) " more: " code { "-o csv" } " has all" } }
    }
}
