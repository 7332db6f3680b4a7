//! Formats ledger rows as text.
//!
//! Entry points: `Show::rows`, `Show::permits`. Invariant: formats only; nothing is read or judged here.

use std::fmt::Write as _;

use super::permit::{Permit, PermitPolicy, permits};
use crate::cli::list::Items;
use crate::cli::output::{Data, Form};
use kubemoor_inspect::ledger::columns::{COLUMNS, changes, columns, plain};
use kubemoor_inspect::sheet::Sheet;
use kubemoor_ledger::entry::Entry;

const HEAD: [&str; 8] = ["TIME", "VERDICT", "REASON", "RELEASE", "OBJECT", "OPERATION", "USER", "WHAT"];

/// The least widths of the columns, so that rows that come later stand below
/// those before.
const WIDTHS: [usize; 7] = [20, 9, 13, 16, 22, 9, 12];

/// Fields that a line of the table names; the rest are counted.
const FIELDS: usize = 3;

/// How rows are printed for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum People {
    /// For people
    Table,
    /// For spreadsheets
    Csv,
}

/// Shows rows, also more of them later.
pub(super) struct Show {
    form: Form<People>,
    widths: [usize; 7],
    has_head: bool,
    /// Whether rows were already printed.
    begun: bool,
    /// Whether more rows follow: then each row is printed as a separate document instead of a list.
    goes_on: bool,
}

impl Show {
    pub(super) fn new(form: Form<People>, goes_on: bool) -> Self {
        Self { form, widths: WIDTHS, has_head: true, begun: false, goes_on }
    }

    /// The same, with or without the line of names above the rows.
    pub(super) fn with_headers(self, has_head: bool) -> Self {
        Self { has_head, ..self }
    }

    /// Rows in the order given.
    pub(super) fn rows(&mut self, entries: &[Entry]) -> anyhow::Result<String> {
        match &self.form {
            Form::People(People::Table) => Ok(self.table(entries)),
            Form::People(People::Csv) => self.sheet(entries),
            Form::Data(data) if self.goes_on => entries.iter().map(|entry| data.part(entry)).collect(),
            Form::Data(data) => data.text(&Items::of(entries)),
        }
    }

    /// The changes that passed and that mode Deny would refuse, with the policies that would permit them; in
    /// YAML and JSON only the policies.
    pub(super) fn permits(&mut self, entries: &[Entry]) -> anyhow::Result<String> {
        let permits = permits(entries);
        let policies: Vec<_> = permits.iter().flat_map(Permit::policies).collect();
        match &self.form {
            // As a policy's file holds them.
            Form::Data(Data::Yaml) => documents(&policies),
            Form::Data(data) => data.text(&Items::of(&policies)),
            Form::People(People::Csv) => self.sheet(entries),
            Form::People(People::Table) if entries.is_empty() => {
                Ok("Nothing passed that Deny would have refused.\n".to_owned())
            }
            Form::People(People::Table) => {
                let mut text = self.table(entries);
                text.push('\n');
                let uncovered = permits.iter().map(|permit| permit.uncovered).sum::<usize>();
                if !policies.is_empty() {
                    text.push_str(
                        "# Policies that would permit it. Permit what is meant to happen, no more.\n",
                    );
                    text.push_str(&documents(&policies)?);
                }
                if uncovered > 0 {
                    let _ = writeln!(
                        text,
                        "# {uncovered} more would be refused that no ignored field permits: deletions, records, what is too large to judge."
                    );
                }
                Ok(text)
            }
        }
    }

    fn table(&mut self, entries: &[Entry]) -> String {
        let rows: Vec<[String; 8]> = entries.iter().map(cells).collect();
        let mut text = String::new();
        if !std::mem::replace(&mut self.begun, true) {
            for row in &rows {
                for (width, cell) in self.widths.iter_mut().zip(row) {
                    *width = cell.chars().count().max(*width);
                }
            }
            if self.has_head {
                text.push_str(&self.line(&HEAD.map(str::to_owned)));
            }
        }
        for row in &rows {
            text.push_str(&self.line(row));
        }
        text
    }

    fn sheet(&mut self, entries: &[Entry]) -> anyhow::Result<String> {
        let mut sheet = Sheet::new();
        if !std::mem::replace(&mut self.begun, true) && self.has_head {
            sheet.row(COLUMNS)?;
        }
        for entry in entries {
            sheet.row(columns(entry))?;
        }
        Ok(sheet.text()?)
    }

    fn line(&self, row: &[String; 8]) -> String {
        let mut line = String::new();
        let widths = self.widths.iter().copied().chain([0]);
        for (cell, width) in row.iter().zip(widths) {
            // Writing to a String cannot fail.
            let _ = write!(line, "{cell:width$}  ");
        }
        line.trim_end().to_owned() + "\n"
    }
}

fn cells(entry: &Entry) -> [String; 8] {
    let dash = |text: &str| if text.is_empty() { "-".to_owned() } else { plain(text) };
    let release = match (&entry.release, entry.revision) {
        (Some(name), Some(revision)) => format!("{}/{name} v{revision}", entry.namespace),
        _ => dash(""),
    };
    [
        entry.time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        dash(&entry.verdict),
        dash(if entry.reason.is_empty() { &entry.kind } else { &entry.reason }),
        plain(&release),
        plain(&entry.object.short()),
        dash(entry.operation.as_deref().unwrap_or_default()),
        dash(&entry.user),
        what(entry, FIELDS),
    ]
}

/// The fields with their old and new values, or the sentence.
fn what(entry: &Entry, most: usize) -> String {
    let mut parts = changes(entry, most);
    let more = i64::try_from(entry.fields.len().saturating_sub(most)).unwrap_or(i64::MAX);
    let more = more.saturating_add(entry.more_fields);
    if more > 0 {
        parts.push(format!("and {more} more"));
    }
    if !entry.detail.is_empty() {
        parts.push(plain(&entry.detail));
    }
    if entry.repeats > 0 {
        parts.push(format!("{} times more within a minute", entry.repeats));
    }
    parts.join("; ")
}

fn documents(policies: &[PermitPolicy]) -> anyhow::Result<String> {
    policies.iter().map(|policy| Data::Yaml.part(policy)).collect()
}
