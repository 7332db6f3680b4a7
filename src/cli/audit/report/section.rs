//! The parts of the report that people read, before anybody says how they are printed.
//!
//! Entry point: [`sections`]. Invariant: a page and a text made of them have the same tables. Must not know a format.

use kubemoor_inspect::ledger::facts::{Breakdown, Report, time};
use kubemoor_inspect::ledger::spans::lasting;

/// The rows of a table that people read; a spreadsheet has them all.
pub(super) const MOST: usize = 25;

pub(super) struct Section<'a> {
    pub(super) title: &'static str,
    /// A note on the tables, or the reason why there are none; may be empty.
    pub(super) note: String,
    pub(super) tables: Vec<Table<'a>>,
}

pub(super) struct Table<'a> {
    pub(super) head: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
    /// The counts of the rows, where a chart can show them.
    pub(super) counts: Option<&'a [(String, u64)]>,
}

impl Section<'_> {
    fn without_tables(title: &'static str, note: &str) -> Self {
        Self { title, note: note.to_owned(), tables: Vec::new() }
    }
}

/// All of them, in the order in which they are read.
pub(super) fn sections(report: &Report) -> [Section<'_>; 5] {
    [
        changes("Denied changes", &report.denied, "No change was denied."),
        changes("Changes that passed by an exception", &report.excepted, "No change passed by an exception."),
        exceptions(report),
        repairs(report),
        drift(report),
    ]
}

fn changes<'a>(title: &'static str, breakdown: &'a Breakdown, none: &str) -> Section<'a> {
    if breakdown.total == 0 {
        return Section::without_tables(title, none);
    }
    let Breakdown { total: _, releases, users, fields } = breakdown;
    let table = |(head, counts): (&'static str, &'a [(String, u64)])| Table {
        head: vec![head, "Changes"],
        rows: counts.iter().map(|(label, count)| vec![label.clone(), count.to_string()]).collect(),
        counts: Some(counts),
    };
    let tables = [("Release", &**releases), ("User", users), ("Field", fields)].map(table);
    Section { title, note: String::new(), tables: tables.into() }
}

fn exceptions(report: &Report) -> Section<'_> {
    let title = "Exceptions";
    if report.exceptions.is_empty() {
        return Section::without_tables(title, "No exception was opened.");
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
    let head = vec!["Opened", "By", "Release", "Object", "Fields", "Until, and why"];
    Section { title, note: String::new(), tables: vec![Table { head, rows: rows.collect(), counts: None }] }
}

fn repairs(report: &Report) -> Section<'_> {
    let title = "Repairs";
    if report.repairs.is_empty() {
        return Section::without_tables(title, "The guard repaired nothing.");
    }
    let rows = report.repairs.iter();
    let rows =
        rows.map(|(release, outcome, count)| vec![release.to_string(), outcome.clone(), count.to_string()]);
    let head = vec!["Release", "Outcome", "Count"];
    Section { title, note: String::new(), tables: vec![Table { head, rows: rows.collect(), counts: None }] }
}

fn drift(report: &Report) -> Section<'_> {
    let title = "Time in drift";
    let note = "Only drift whose beginning and repair are both in the ledger is counted.";
    if report.drift.is_empty() {
        return Section::without_tables(title, &format!("No such drift was repaired. {note}"));
    }
    let rows = report.drift.iter().map(|stay| {
        vec![stay.release.to_string(), stay.drifts.to_string(), lasting(stay.total), lasting(stay.longest)]
    });
    let head = vec!["Release", "Drifts", "In total", "Longest"];
    Section { title, note: note.to_owned(), tables: vec![Table { head, rows: rows.collect(), counts: None }] }
}
