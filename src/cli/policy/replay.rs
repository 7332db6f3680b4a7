//! `kubemoor policy replay`: judges recorded changes by other policies, and lists the verdicts that would change.

use std::path::PathBuf;

use jiff::Timestamp;

use crate::cli::audit::SourceArgs;
use crate::cli::output::{self, BAD, GOOD, OutputFormat, PLAIN, StyledText, Table, seconds};
use crate::cli::{CommandOutcome, check, warn};
use kubemoor_declare::model::{DriftMode, EditsMode};
use kubemoor_inspect::reading::OPERATION_TIMEOUT;
use kubemoor_inspect::replay::{ChangedVerdict, REFUSED, ReplayReport, ReplayRun, VerdictKey};
use kubemoor_inspect::report::Sheet;
use kubemoor_inspect::times::AgeOrTime;
use kubemoor_ledger::query::{EDITS, Filter};
use kubemoor_policy::Policy;

const HEAD: [&str; 8] = ["RELEASE", "USER", "FIELD", "WAS", "NOW", "RULE", "CHANGES", "LAST"];

/// The columns of the CSV format. New columns may only be appended, and none may be renamed.
#[rustfmt::skip]
const COLUMNS: [&str; 12] = [
    "cluster", "namespace", "release", "user", "kind", "field", "was", "now", "rule", "changes",
    "first", "last",
];

/// The output formats of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ReplayFormat {
    /// For people
    Table,
    /// For spreadsheets: the verdicts that would change
    Csv,
}

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The directory of the policies
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// How to answer a change that causes drift, unless a policy decides
    #[arg(long, value_name = "MODE", default_value = "Warn", ignore_case = true)]
    edits: EditsMode,

    /// Only this release
    #[arg(long, value_name = "NAME")]
    release: Option<String>,

    /// Changes since this time or age: 30d, 24h, 90m, 2026-11-21T08:00:00Z
    #[arg(long, value_name = "TIME", default_value = "7d")]
    since: AgeOrTime,

    /// Only changes before this time or age
    #[arg(long, value_name = "TIME")]
    until: Option<AgeOrTime>,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    output: OutputFormat<ReplayFormat>,

    #[command(flatten)]
    source: SourceArgs,
}

pub(super) async fn run(args: Args) -> anyhow::Result<CommandOutcome> {
    args.source.check()?;
    let Args { directory, edits, release, since, until, output: form, source } = args;
    let accepted = check::read_policy_folder(&directory)?;
    if accepted.is_empty() {
        warn(&format!("no policy found in {}: {edits:?} applies to every release", directory.display()));
    }
    let defaults = Policy::new(edits, DriftMode::Report, OPERATION_TIMEOUT);
    let (source, namespace) = source.open().await?;
    let now = Timestamp::now();
    let since = since.time(now);
    let filter = Filter {
        namespace,
        release,
        since: Some(since),
        until: until.map(|until| until.time(now)),
        verdicts: EDITS.map(str::to_owned).into(),
        facts: true,
        ..Filter::default()
    };
    let judging = ReplayRun::new(defaults, accepted, since);
    let missing = source.each_page(filter, async |rows| judging.add(rows).await).await?;
    missing.iter().for_each(|sentence| warn(sentence));
    let report = judging.report();
    output::write(&text(&report, &form)?)?;
    Ok(if report.refused == 0 { CommandOutcome::Clean } else { CommandOutcome::Found })
}

fn text(report: &ReplayReport, form: &OutputFormat<ReplayFormat>) -> anyhow::Result<String> {
    match form {
        OutputFormat::Data(data) => data.text(report),
        OutputFormat::People(ReplayFormat::Csv) => {
            for line in summary(report) {
                warn(&line);
            }
            sheet(report)
        }
        OutputFormat::People(ReplayFormat::Table) => Ok(table(report).as_str().to_owned()),
    }
}

fn sheet(report: &ReplayReport) -> anyhow::Result<String> {
    let mut sheet = Sheet::new();
    sheet.row(COLUMNS)?;
    for ChangedVerdict { key, edits, first, last } in &report.changes {
        let VerdictKey { cluster, namespace, release, user, kind, field, was, now, rule } = key;
        let (edits, first, last) = (edits.to_string(), first.to_string(), last.to_string());
        let cells: [&str; 12] =
            [cluster, namespace, release, user, kind, field, was, now, rule, &edits, &first, &last];
        sheet.row(cells)?;
    }
    Ok(sheet.text()?)
}

fn table(report: &ReplayReport) -> StyledText {
    let mut text = StyledText::default();
    if !report.changes.is_empty() {
        let mut table = Table::new(HEAD);
        for ChangedVerdict { key, edits, last, .. } in &report.changes {
            let VerdictKey { namespace, release, user, kind, field, was, now, rule, .. } = key;
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
                (seconds(*last), PLAIN),
            ]);
        }
        text.append(&table.text()).line();
    }
    for line in summary(report) {
        text.add(PLAIN, &line).line();
    }
    text
}

fn summary(report: &ReplayReport) -> Vec<String> {
    let ReplayReport { since, edits, replayed, refused, permitted, .. } = report;
    let since = seconds(*since);
    let mut lines = vec![
        format!("{edits} changes recorded since {since}, {replayed} judged by these policies:"),
        format!("  {refused} passed and would be refused"),
        format!("  {permitted} were refused and would pass"),
    ];
    lines.extend(report.unjudged().map(|(count, words)| format!("{count} not judged: {words}")));
    if report.more_changes > 0 {
        lines.push(format!("{} more changed verdicts are not listed", report.more_changes));
    }
    lines
}
