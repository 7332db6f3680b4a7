//! The results of a replay, for people, programs and spreadsheets.
//!
//! Entry point: [`text`].

use crate::cli::output::{BAD, Form, GOOD, PLAIN, Table, Text};
use crate::cli::warn;
use kubemoor_inspect::replay::{Changed, HelmOperation, Key, REFUSED, Report, TouchedOperation};
use kubemoor_inspect::sheet::Sheet;

const HEAD: [&str; 8] = ["RELEASE", "USER", "FIELD", "WAS", "NOW", "RULE", "CHANGES", "LAST"];

/// The columns of a spreadsheet. They stay as they are: others may only be added behind them.
const COLUMNS: [&str; 12] = [
    "cluster",
    "namespace",
    "release",
    "user",
    "kind",
    "field",
    "was",
    "now",
    "rule",
    "changes",
    "first",
    "last",
];

/// How the answer is printed for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum People {
    /// For people
    Table,
    /// For spreadsheets: the verdicts that would change
    Csv,
}

pub(super) fn text(report: &Report, form: &Form<People>) -> anyhow::Result<String> {
    match form {
        Form::Data(data) => data.text(report),
        Form::People(People::Csv) => {
            for line in summary(report) {
                warn(&line);
            }
            sheet(report)
        }
        Form::People(People::Table) => Ok(table(report).as_str().to_owned()),
    }
}

fn sheet(report: &Report) -> anyhow::Result<String> {
    let mut sheet = Sheet::new();
    sheet.row(COLUMNS)?;
    for Changed { key, edits, first, last } in &report.changes {
        let Key { cluster, namespace, release, user, kind, field, was, now, rule } = key;
        let (edits, first, last) = (edits.to_string(), first.to_string(), last.to_string());
        let cells: [&str; 12] =
            [cluster, namespace, release, user, kind, field, was, now, rule, &edits, &first, &last];
        sheet.row(cells)?;
    }
    Ok(sheet.text()?)
}

fn table(report: &Report) -> Text {
    let mut text = Text::default();
    if !report.changes.is_empty() {
        let mut table = Table::new(HEAD);
        for Changed { key, edits, last, .. } in &report.changes {
            let Key { namespace, release, user, kind, field, was, now, rule, .. } = key;
            let refused = REFUSED.contains(now);
            let place = if field.is_empty() { "(the object)" } else { field };
            table.styled([
                (format!("{namespace}/{release}"), PLAIN),
                (user.clone(), PLAIN),
                (format!("{kind} {place}"), PLAIN),
                (was.clone(), PLAIN),
                ((*now).to_owned(), if refused { BAD } else { GOOD }),
                (rule.clone(), PLAIN),
                (edits.to_string(), PLAIN),
                (last.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), PLAIN),
            ]);
        }
        text.append(&table.text()).line();
    }
    for line in summary(report) {
        text.add(PLAIN, &line).line();
    }
    text
}

fn summary(report: &Report) -> Vec<String> {
    let Report { since, edits, replayed, refused, permitted, .. } = report;
    let since = since.strftime("%Y-%m-%dT%H:%M:%SZ");
    let mut lines = vec![
        format!("{edits} changes recorded since {since}, {replayed} judged by these policies:"),
        format!("  {refused} passed and would be refused"),
        format!("  {permitted} were refused and would pass"),
        format!(
            "  {} of {} Helm operations would have a change refused",
            report.helm_operations_touched, report.helm_operations
        ),
    ];
    for TouchedOperation { operation, users } in &report.touched_operations {
        let HelmOperation { namespace, release, revision, .. } = operation;
        lines.push(format!("    {namespace}/{release}, revision {revision}, by {}", users.join(", ")));
    }
    let unlisted = report.helm_operations_touched.saturating_sub(report.touched_operations.len());
    if unlisted > 0 {
        lines.push(format!("    and {unlisted} more"));
    }
    for (count, words) in report.unjudged() {
        lines.push(format!("{count} not judged: {words}"));
    }
    if report.more_changes > 0 {
        lines.push(format!("{} more changed verdicts are not listed", report.more_changes));
    }
    lines
}
