//! Clusters and releases for people, programs and spreadsheets.
//!
//! Entry points: [`clusters`], [`releases`].

use anstyle::Style;
use jiff::Timestamp;

use crate::cli::list::Items;
use crate::cli::output::{self, BAD, Form, GOOD, NOTE, PLAIN, Table};
use crate::cli::{Outcome, warn};
use crate::inspect::fleet::{ClusterRow, ReleaseRow, Wanted};
use crate::inspect::sheet::Sheet;

/// How an answer is printed for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum People {
    /// For people
    Table,
    /// For spreadsheets
    Csv,
}

const CLUSTERS: [&str; 8] =
    ["CLUSTER", "RELEASES", "DRIFTED", "OLDEST DRIFT", "GUARD", "CERTIFICATE UNTIL", "LAST HEARD", "STATES"];

const RELEASES: [&str; 11] = [
    "CLUSTER",
    "NAMESPACE",
    "NAME",
    "READY",
    "REASON",
    "REVISION",
    "CHART",
    "VALUES",
    "DRIFTED",
    "OLDEST DRIFT",
    "DIFFERS",
];

/// The columns of a spreadsheet. They stay as they are: others may only be added behind them.
const CLUSTER_COLUMNS: [&str; 10] = [
    "cluster",
    "releases",
    "drifted",
    "states",
    "oldestDrift",
    "version",
    "certificateUntil",
    "lastHeard",
    "staleSince",
    "error",
];

const RELEASE_COLUMNS: [&str; 15] = [
    "cluster",
    "namespace",
    "name",
    "ready",
    "reason",
    "revision",
    "chart",
    "values",
    "drifted",
    "oldestDrift",
    "edits",
    "drift",
    "staleSince",
    "differs",
    "message",
];

/// Prints clusters.
pub(super) fn clusters(rows: &[ClusterRow], form: &Form<People>) -> anyhow::Result<Outcome> {
    match form {
        Form::Data(data) => data.print(&Items::of(rows)),
        Form::People(People::Csv) => {
            let mut sheet = Sheet::new();
            sheet.row(CLUSTER_COLUMNS)?;
            for row in rows {
                sheet.row(cluster_columns(row))?;
            }
            output::write(&sheet.text()?)
        }
        Form::People(People::Table) if rows.is_empty() => {
            warn("no cluster found: give each guard the same PostgreSQL as --ledger, or name contexts");
            Ok(Outcome::Clean)
        }
        Form::People(People::Table) => {
            let mut table = Table::new(CLUSTERS);
            for row in rows {
                table.styled(cluster_cells(row));
            }
            output::write(table.text().as_str())
        }
    }
}

/// Prints releases.
pub(super) fn releases(rows: &[ReleaseRow], form: &Form<People>, wanted: &Wanted) -> anyhow::Result<Outcome> {
    match form {
        Form::Data(data) => data.print(&Items::of(rows)),
        Form::People(People::Csv) => {
            let mut sheet = Sheet::new();
            sheet.row(RELEASE_COLUMNS)?;
            for row in rows {
                sheet.row(release_columns(row))?;
            }
            output::write(&sheet.text()?)
        }
        Form::People(People::Table) if rows.is_empty() => {
            let what =
                wanted.release.as_ref().map_or("releases".to_owned(), |name| format!("release {name}"));
            warn(&format!("no {what} found in any cluster"));
            Ok(Outcome::Clean)
        }
        Form::People(People::Table) => {
            let mut table = Table::new(RELEASES);
            for row in rows {
                table.styled(release_cells(row));
            }
            output::write(table.text().as_str())
        }
    }
}

fn cluster_cells(row: &ClusterRow) -> Vec<(String, Style)> {
    let heard = match (&row.error, row.stale_since) {
        (Some(_), _) => ("could not be read".to_owned(), BAD),
        (None, Some(since)) => (format!("stale since {}", seconds(since)), BAD),
        (None, None) => (time(row.last_heard), PLAIN),
    };
    let drifted = if row.drifted > 0 { BAD } else { GOOD };
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    vec![
        (row.cluster.clone(), PLAIN),
        (row.releases.to_string(), PLAIN),
        (row.drifted.to_string(), drifted),
        (time(row.oldest_drift), PLAIN),
        (text(&row.version), PLAIN),
        (time(row.certificate_until), PLAIN),
        heard,
        (states(row), PLAIN),
    ]
}

fn release_cells(row: &ReleaseRow) -> Vec<(String, Style)> {
    let style = match (row.stale_since, row.ready.as_deref()) {
        (None, Some("True")) => GOOD,
        (None, Some("False")) => BAD,
        (_, _) => NOTE,
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let reason = match row.stale_since {
        Some(since) if row.reason != "Stale" => format!("{}, stale since {}", row.reason, seconds(since)),
        _ => row.reason.clone(),
    };
    vec![
        (row.cluster.clone(), PLAIN),
        (row.namespace.clone(), PLAIN),
        (row.name.clone(), PLAIN),
        (text(&row.ready), style),
        (reason, style),
        (row.revision.map_or_else(|| "-".to_owned(), |it| it.to_string()), PLAIN),
        (text(&row.chart), PLAIN),
        (text(&row.values), PLAIN),
        (row.drifted.to_string(), if row.drifted > 0 { BAD } else { PLAIN }),
        (time(row.oldest_drift), PLAIN),
        (if row.differs.is_empty() { "-".to_owned() } else { row.differs.join(",") }, NOTE),
    ]
}

fn cluster_columns(row: &ClusterRow) -> [String; 10] {
    [
        row.cluster.clone(),
        row.releases.to_string(),
        row.drifted.to_string(),
        states(row),
        moment(row.oldest_drift),
        row.version.clone().unwrap_or_default(),
        moment(row.certificate_until),
        moment(row.last_heard),
        moment(row.stale_since),
        row.error.clone().unwrap_or_default(),
    ]
}

fn release_columns(row: &ReleaseRow) -> [String; 15] {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    [
        row.cluster.clone(),
        row.namespace.clone(),
        row.name.clone(),
        text(&row.ready),
        row.reason.clone(),
        row.revision.map(|revision| revision.to_string()).unwrap_or_default(),
        text(&row.chart),
        text(&row.values),
        row.drifted.to_string(),
        moment(row.oldest_drift),
        text(&row.edits),
        text(&row.drift),
        moment(row.stale_since),
        row.differs.join(","),
        row.message.clone(),
    ]
}

/// `InSync 12, Drifted 1`.
fn states(row: &ClusterRow) -> String {
    let states: Vec<_> = row.states.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    states.join(", ")
}

fn time(time: Option<Timestamp>) -> String {
    time.map_or_else(|| "-".to_owned(), seconds)
}

fn moment(time: Option<Timestamp>) -> String {
    time.map(seconds).unwrap_or_default()
}

/// A time without its fraction.
fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
