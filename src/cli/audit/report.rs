//! `kubemoor audit report`: a period of the ledger for people who were not there.
//!
//! What users wrote (names, reasons, annotations) is text in every form of the report, never markup, script or a formula.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;

use super::SourceArgs;
use crate::cli::{CommandOutcome, output, warn};
use kubemoor_inspect::report::{
    Breakdown, LedgerReport, Period, ReportBuilder, Sheet, VERDICTS, bars, lasting, time,
};
use kubemoor_inspect::times::AgeOrTime;
use kubemoor_ledger::query::Filter;

/// The rows of a table that people read; a spreadsheet has them all.
const MOST: usize = 25;

/// The columns of a spreadsheet: each row is one number of `section`; cells that do not apply to it are empty. They stay
/// as they are: others may only be added behind them.
const COLUMNS: [&str; 10] =
    ["section", "name", "count", "seconds", "longestSeconds", "time", "user", "object", "fields", "detail"];

/// The flags of `kubemoor audit report`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only this release
    #[arg(long, value_name = "NAME")]
    release: Option<String>,

    /// From this time or age on: 30d, 24h, 2026-11-21T08:00:00Z
    #[arg(long, value_name = "TIME", default_value = "30d")]
    since: AgeOrTime,

    /// Up to this time or age [default: now]
    #[arg(long, value_name = "TIME")]
    until: Option<AgeOrTime>,

    /// The form of the report
    #[arg(long, short, value_name = "FORMAT", default_value = "md")]
    output: ReportFormat,

    #[command(flatten)]
    source: SourceArgs,
}

/// The form of a report.
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

/// The first rows of a table.
#[derive(Serialize)]
struct ReportTable {
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    more: usize,
    /// A chart of the counts, where one can show them.
    picture: Option<String>,
    is_counted: bool,
}

pub(super) async fn run(args: Args) -> anyhow::Result<CommandOutcome> {
    args.source.check()?;
    let Args { release, since, until, output: form, source } = args;
    let (source, namespace) = source.open().await?;
    let now = Timestamp::now();
    let period = Period { since: since.time(now), until: until.map_or(now, |until| until.time(now)) };
    let mut facts = ReportBuilder::new(period, namespace.clone(), release.clone());
    let filter = Filter {
        namespace,
        release,
        verdicts: VERDICTS.map(str::to_owned).to_vec(),
        since: Some(period.since),
        until: Some(period.until),
        ..Filter::default()
    };
    source.each(filter, |entry| facts.add(&entry)).await?;
    source.unheard().iter().for_each(|sentence| warn(sentence));
    let report = facts.finish();
    output::write(&match form {
        ReportFormat::Html => page(&report)?,
        ReportFormat::Md => markdown(&report)?,
        ReportFormat::Csv => sheet(&report)?,
    })
}

/// One self-contained page: no script, no font, no other file.
fn page(report: &LedgerReport) -> anyhow::Result<String> {
    output::render("report.html", include_str!("report.html"), &content(report, true)?)
}

fn markdown(report: &LedgerReport) -> anyhow::Result<String> {
    output::render("report.md", include_str!("report.md"), &content(report, false)?)
}

fn content(report: &LedgerReport, has_pictures: bool) -> anyhow::Result<serde_json::Value> {
    let sections = [
        changes("Denied changes", &report.denied, "No change was denied.", has_pictures)?,
        changes(
            "Changes that passed by an exception",
            &report.excepted,
            "No change passed by an exception.",
            has_pictures,
        )?,
        exceptions(report),
        repairs(report),
        drift(report),
    ];
    Ok(json!({
        "scope": report.scope(),
        "since": time(report.period.since),
        "until": time(report.period.until),
        "summary": report.summary(),
        "sections": sections,
    }))
}

fn changes(
    title: &'static str,
    breakdown: &Breakdown,
    none: &str,
    has_pictures: bool,
) -> anyhow::Result<Section> {
    if breakdown.total == 0 {
        return Ok(Section { title, note: none.to_owned(), tables: Vec::new() });
    }
    let Breakdown { total: _, releases, users, fields } = breakdown;
    let table = |(head, counts): (&'static str, &Vec<(String, u64)>)| {
        let rows = counts.iter().map(|(label, count)| vec![label.clone(), count.to_string()]);
        let picture = if has_pictures { bars(counts)? } else { None };
        Ok(ReportTable { picture, is_counted: true, ..ReportTable::new(vec![head, "Changes"], rows) })
    };
    let tables = [("Release", releases), ("User", users), ("Field", fields)];
    let tables = tables.into_iter().map(table).collect::<anyhow::Result<_>>()?;
    Ok(Section { title, note: String::new(), tables })
}

fn exceptions(report: &LedgerReport) -> Section {
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
    let table = ReportTable::new(vec!["Opened", "By", "Release", "Object", "Fields", "Until, and why"], rows);
    Section::new("Exceptions", table, "", "No exception was opened.")
}

fn repairs(report: &LedgerReport) -> Section {
    let rows = report.repairs.iter();
    let rows =
        rows.map(|(release, outcome, count)| vec![release.to_string(), outcome.clone(), count.to_string()]);
    let table = ReportTable::new(vec!["Release", "Outcome", "Count"], rows);
    Section::new("Repairs", table, "", "The guard repaired nothing.")
}

fn drift(report: &LedgerReport) -> Section {
    let rows = report.drift.iter().map(|stay| {
        vec![stay.release.to_string(), stay.drifts.to_string(), lasting(stay.total), lasting(stay.longest)]
    });
    let note = "Only drift whose beginning and repair are both in the ledger is counted.";
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
        Self { head, rows: rows.take(MOST).collect(), more, picture: None, is_counted: false }
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
        let Breakdown { total: _, releases, users, fields } = breakdown;
        for (by, counts) in [("release", releases), ("user", users), ("field", fields)] {
            for (name, number) in counts {
                count(&mut sheet, &format!("{what} by {by}"), name, *number)?;
            }
        }
    }
    for it in &report.exceptions {
        let (release, time, fields) = (it.release.to_string(), it.opened.to_string(), it.fields.join("; "));
        sheet.row(["opened", &release, "1", "", "", &time, &it.user, &it.object, &fields, &it.detail])?;
    }
    for (release, verdict, number) in &report.repairs {
        let section = format!("repair {verdict}");
        count(&mut sheet, &section, &release.to_string(), *number)?;
    }
    for stay in &report.drift {
        let [drifts, total, longest] = [stay.drifts, stay.total, stay.longest].map(|it| it.to_string());
        let release = stay.release.to_string();
        sheet.row(["drift", &release, &drifts, &total, &longest, "", "", "", "", ""])?;
    }
    Ok(sheet.text()?)
}

#[cfg(test)]
mod tests;
