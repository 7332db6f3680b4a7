//! `kubemoor audit report`: summarizes a period of the ledger.
//!
//! User input (names, reasons, annotations) is escaped in every format: never markup, script or a spreadsheet formula.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;

use super::SourceArgs;
use crate::cli::{CommandOutcome, output, warn};
use kubemoor_inspect::report::{Breakdown, LedgerReport, Period, Sheet, VERDICTS, format_seconds};
use kubemoor_inspect::times::AgeOrTime;
use kubemoor_ledger::entry::LedgerEntry;
use kubemoor_ledger::query::Filter;

/// The most rows of a table in HTML and Markdown; CSV has all rows.
const MOST: usize = 25;

/// The columns of the CSV format: each row is one number of `section`; cells that do not apply are empty. New columns
/// may only be appended, and none may be renamed.
const COLUMNS: [&str; 10] =
    ["section", "name", "count", "seconds", "longestSeconds", "time", "user", "object", "fields", "detail"];

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only this release
    #[arg(long, value_name = "NAME")]
    release: Option<String>,

    /// Since this time or age: 30d, 24h, 2026-11-21T08:00:00Z
    #[arg(long, value_name = "TIME", default_value = "30d")]
    since: AgeOrTime,

    /// Until this time or age [default: now]
    #[arg(long, value_name = "TIME")]
    until: Option<AgeOrTime>,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "md")]
    output: ReportFormat,

    #[command(flatten)]
    source: SourceArgs,
}

/// The output formats of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ReportFormat {
    /// One page for a browser or a printer, with charts
    Html,
    /// Markdown
    Md,
    /// For spreadsheets
    Csv,
}

#[derive(Serialize)]
struct Section {
    title: &'static str,
    /// A note on the tables, or the reason why there are none; may be empty.
    note: String,
    tables: Vec<ReportTable>,
}

/// The first [`MOST`] rows of a table.
#[derive(Serialize)]
struct ReportTable {
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    more: usize,
    /// Whether the rows are counts, which HTML also shows as a chart.
    is_counted: bool,
}

pub(super) async fn run(args: Args) -> anyhow::Result<CommandOutcome> {
    args.source.check()?;
    let Args { release, since, until, output: form, source } = args;
    let (source, namespace) = source.open().await?;
    let now = Timestamp::now();
    let period = Period { since: since.time(now), until: until.map_or(now, |until| until.time(now)) };
    let mut report = LedgerReport::new(period, namespace.clone(), release.clone());
    let filter = Filter {
        namespace,
        release,
        verdicts: VERDICTS.map(str::to_owned).to_vec(),
        since: Some(period.since),
        until: Some(period.until),
        ..Filter::default()
    };
    let missing = source
        .each_page(filter, async |rows: Vec<LedgerEntry>| {
            rows.iter().for_each(|row| report.add(row));
            Ok(())
        })
        .await?;
    missing.iter().for_each(|sentence| warn(sentence));
    output::write(&match form {
        ReportFormat::Html => page(&report)?,
        ReportFormat::Md => markdown(&report)?,
        ReportFormat::Csv => sheet(&report)?,
    })
}

/// One self-contained page: no script, no font, no other file.
fn page(report: &LedgerReport) -> anyhow::Result<String> {
    output::render("report.html", include_str!("report.html"), content(report))
}

fn markdown(report: &LedgerReport) -> anyhow::Result<String> {
    output::render("report.md", include_str!("report.md"), content(report))
}

fn content(report: &LedgerReport) -> serde_json::Value {
    let sections = [
        changes("Denied changes", &report.denied, "No change was denied."),
        changes("Changes that passed by an exception", &report.excepted, "No change passed by an exception."),
        exceptions(report),
        repairs(report),
        drift(report),
    ];
    json!({
        "scope": report.scope(),
        "since": time(report.period.since),
        "until": time(report.period.until),
        "summary": report.summary(),
        "sections": sections,
    })
}

fn changes(title: &'static str, breakdown: &Breakdown, none: &str) -> Section {
    if breakdown.total == 0 {
        return Section { title, note: none.to_owned(), tables: Vec::new() };
    }
    let tables = breakdown.ranked().into_iter().map(|(head, counts)| {
        let rows = counts.into_iter().map(|(label, count)| vec![label.to_owned(), count.to_string()]);
        ReportTable { is_counted: true, ..ReportTable::new(vec![head, "Changes"], rows) }
    });
    Section { title, note: String::new(), tables: tables.collect() }
}

fn exceptions(report: &LedgerReport) -> Section {
    let rows = report.exceptions.iter().map(|it| {
        vec![
            time(it.opened),
            it.user.clone(),
            it.release.clone(),
            it.object.clone(),
            it.fields.join(", "),
            it.detail.clone(),
        ]
    });
    let table = ReportTable::new(vec!["Opened", "By", "Release", "Object", "Fields", "Until, and why"], rows);
    Section::new("Exceptions", table, "", "No exception was opened.")
}

fn repairs(report: &LedgerReport) -> Section {
    let rows = report
        .repairs
        .iter()
        .map(|((release, outcome), count)| vec![release.clone(), outcome.clone(), count.to_string()]);
    let table = ReportTable::new(vec!["Release", "Outcome", "Count"], rows);
    Section::new("Repairs", table, "", "The guard repaired nothing.")
}

fn drift(report: &LedgerReport) -> Section {
    let rows = report.drift().into_iter().map(|stay| {
        vec![stay.release, stay.drifts.to_string(), format_seconds(stay.total), format_seconds(stay.longest)]
    });
    let note = "Only drift with both its start and its repair in the ledger is counted.";
    let table = ReportTable::new(vec!["Release", "Drifts", "In total", "Longest"], rows);
    Section::new("Time in drift", table, note, &format!("No such drift was repaired. {note}"))
}

impl Section {
    /// The table with a note; without rows only the reason why there are `none`.
    fn new(title: &'static str, table: ReportTable, note: &str, none: &str) -> Self {
        match table.rows.is_empty() {
            true => Self { title, note: none.to_owned(), tables: Vec::new() },
            false => Self { title, note: note.to_owned(), tables: vec![table] },
        }
    }
}

impl ReportTable {
    fn new(head: Vec<&'static str>, rows: impl ExactSizeIterator<Item = Vec<String>>) -> Self {
        let more = rows.len().saturating_sub(MOST);
        Self { head, rows: rows.take(MOST).collect(), more, is_counted: false }
    }
}

fn sheet(report: &LedgerReport) -> anyhow::Result<String> {
    let mut sheet = Sheet::new();
    sheet.row(COLUMNS)?;
    let count = |sheet: &mut Sheet, section: &str, name: &str, count: u64| {
        sheet.row([section, name, &count.to_string(), "", "", "", "", "", "", ""])
    };
    for (what, number) in report.summary() {
        count(&mut sheet, "summary", what, number)?;
    }
    for (what, breakdown) in [("denied", &report.denied), ("exception", &report.excepted)] {
        for (by, counts) in breakdown.ranked() {
            for (name, number) in counts {
                count(&mut sheet, &format!("{what} by {}", by.to_lowercase()), name, number)?;
            }
        }
    }
    for it in &report.exceptions {
        let (time, fields) = (it.opened.to_string(), it.fields.join("; "));
        sheet.row(["opened", &it.release, "1", "", "", &time, &it.user, &it.object, &fields, &it.detail])?;
    }
    for ((release, verdict), number) in &report.repairs {
        count(&mut sheet, &format!("repair {verdict}"), release, *number)?;
    }
    for stay in report.drift() {
        let [drifts, total, longest] = [stay.drifts, stay.total, stay.longest].map(|it| it.to_string());
        sheet.row(["drift", &stay.release, &drifts, &total, &longest, "", "", "", "", ""])?;
    }
    Ok(sheet.text()?)
}

/// A time to the second, in UTC.
fn time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests;
