//! The report as one self-contained page: no script, no font, no other file.
//!
//! Entry point: [`page`]. Invariant: all user input goes through the template or the plotting crate, and both
//! escape it. The page also forbids scripts.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::section::{MOST, Section, Table, sections};
use kubemoor_inspect::chart;
use kubemoor_inspect::ledger::facts::{Report, time};

/// The Content-Security-Policy: a page may load and run nothing but its own style.
const SECURITY: &str = "default-src 'none'; style-src 'unsafe-inline'";

const STYLE: &str = include_str!("style.css");

pub(super) fn page(report: &Report) -> anyhow::Result<String> {
    let sections: Vec<_> = sections(report).iter().map(section).collect::<anyhow::Result<_>>()?;
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
                @for section in sections { (section) }
            }
        }
    };
    Ok(page.into_string())
}

fn section(section: &Section<'_>) -> anyhow::Result<Markup> {
    let tables: Vec<_> = section.tables.iter().map(table).collect::<anyhow::Result<_>>()?;
    Ok(html! {
        h2 { (section.title) }
        @if !section.note.is_empty() { p { (section.note) } }
        @for table in tables { (table) }
    })
}

/// The first rows of a table, a chart of it, and the number of rows left out.
fn table(Table { head, rows, counts }: &Table<'_>) -> anyhow::Result<Markup> {
    let table = html! {
        table {
            thead { tr { @for cell in head { th { (cell) } } } }
            tbody { @for row in rows.iter().take(MOST) { tr { @for cell in row { td { (cell) } } } } }
        }
        @if rows.len() > MOST { p.more { "and " (rows.len() - MOST) " more: " code { "-o csv" } " has all" } }
    };
    let Some(counts) = counts else { return Ok(table) };
    let picture = chart::bars(counts)?;
    let what = head.first().map(|head| head.to_lowercase()).unwrap_or_default();
    Ok(html! {
        section {
            h3 { "By " (what) }
            // The crate that draws escapes what it writes.
            @if let Some(picture) = picture { figure aria-hidden="true" { (PreEscaped(picture)) } }
            (table)
        }
    })
}
